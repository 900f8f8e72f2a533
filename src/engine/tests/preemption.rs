//! Nominations from the first refusal to the bind.

use super::*;
use crate::event::EvictionOutcome;
use crate::model::{Budget, BudgetId, LabelSelector, Operator, Requirement};

const FULL: &str = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb.";

/// One node of one instance, which `a` holds.
fn full() -> Shell {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("a 1g.5gb=1 on=n0");
    shell
}

#[test]
fn a_victim_ends_and_its_place_is_taken() {
    let mut shell = full();
    shell.apply("p 1g.5gb=1 prio=9");
    assert_eq!(shell.tick(), ["evict a for p", &format!("Unschedulable! p for n0: {FULL}")]);
    // The place is nobody else's, neither while the victim ends nor when it is gone.
    shell.apply("q 1g.5gb=1 prio=9");
    shell.apply("r 1g.5gb=1");
    let vain = "preemption: 0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb.";
    assert_eq!(
        shell.tick(),
        [format!("Unschedulable! q: {FULL} {vain}"), format!("Unschedulable! r: {FULL}")]
    );
    shell.tell(Event::EvictionFinished { victim: "a".into(), outcome: EvictionOutcome::Ends });
    shell.apply("a 1g.5gb=1 on=n0 preempted");
    shell.pass(5);
    assert!(shell.tick().is_empty());
    shell.tell(Event::PodDeleted("a".into()));
    assert_eq!(shell.tick(), ["bind p n0"]);
    assert!(!shell.engine.cache().has_nominations());
    assert_eq!(shell.finish("p", "n0", BindOutcome::Bound), ["scheduled p n0"]);
}

#[test]
fn who_may_not_preempt_waits() {
    let mut shell = full();
    shell.apply("p 1g.5gb=1 prio=9 meek");
    let never = "preemption: not eligible due to preemptionPolicy=Never.";
    assert_eq!(shell.tick(), [format!("Unschedulable! p: {FULL} {never}")]);
    shell.apply("q 1g.5gb=1");
    assert_eq!(shell.tick(), [format!("Unschedulable! q: {FULL}")], "nobody is less important");
}

#[test]
fn nobody_else_ends_while_a_victim_is_ending() {
    let mut shell = Shell::new(&["n0 1g.5gb=1", "n1 1g.5gb=1"]);
    shell.apply("a 1g.5gb=1 on=n0");
    shell.apply("b 1g.5gb=1 on=n1 prio=1");
    shell.apply("p 1g.5gb=1 prio=9");
    assert!(shell.tick().contains(&"evict a for p".to_owned()));
    for text in ["a 1g.5gb=1 on=n0", "a 1g.5gb=1 on=n0 preempted"] {
        shell.apply(text);
        // It is tried again, in vain.
        shell.apply("p 1g.5gb=1 prio=9 label=round:2");
        shell.apply("p 1g.5gb=1 prio=9");
        shell.pass(20);
        assert!(shell.tick().is_empty());
    }
    // A node comes up that takes it: the place is given up.
    shell.tell(Event::NodeApplied(node("n2 1g.5gb=1")));
    shell.pass(20);
    assert_eq!(shell.tick(), ["bind p n2"]);
    assert!(!shell.engine.cache().has_nominations());
}

#[test]
fn each_of_many_equals_gets_its_victim() {
    let mut shell = Shell::new(&["n0 1g.5gb=3"]);
    for text in ["a 1g.5gb=1 on=n0", "b 1g.5gb=1 on=n0", "c 1g.5gb=1 on=n0 prio=9"] {
        shell.apply(text);
    }
    for text in ["p 1g.5gb=1 prio=9", "q 1g.5gb=1 prio=9", "r 1g.5gb=1 prio=9"] {
        shell.apply(text);
    }
    let evictions: Vec<_> = shell.tick().into_iter().filter(|line| line.starts_with("evict")).collect();
    assert_eq!(evictions.len(), 2, "{evictions:?}");
    shell.pass(20);
    shell.tell(Event::PodDeleted("a".into()));
    shell.tell(Event::PodDeleted("b".into()));
    let bound: Vec<_> = shell.tick().into_iter().filter(|line| line.starts_with("bind")).collect();
    assert_eq!(bound.len(), 2, "{bound:?}");
    assert_eq!(shell.lengths(), [0, 0, 1, 0]);
    // The one of their rank ends of itself.
    shell.tell(Event::PodDeleted("c".into()));
    assert_eq!(shell.tick().len(), 1);
}

#[test]
fn a_more_important_pod_takes_the_place_kept_for_another() {
    let mut shell = full();
    shell.apply("p 1g.5gb=1 prio=5");
    shell.tick();
    shell.apply("q 1g.5gb=1 prio=9");
    assert_eq!(shell.tick(), [format!("Unschedulable! q for n0: {FULL}")], "the victim is ending already");
    shell.pass(20);
    let vain = "preemption: 0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb.";
    assert_eq!(shell.tick(), [format!("Unschedulable! p: {FULL} {vain}")]);
    shell.tell(Event::PodDeleted("a".into()));
    assert_eq!(shell.tick(), ["bind q n0"]);
}

#[test]
fn a_successor_keeps_what_is_written() {
    let mut shell = Shell { engine: Engine::new(Options::default()), now: Time::from_secs(100) };
    shell.tell(Event::NodeApplied(node("n0 1g.5gb=1")));
    shell.apply("a 1g.5gb=1 on=n0 preempted");
    shell.apply("q 1g.5gb=1 prio=9 created=1");
    shell.apply("p 1g.5gb=1 prio=9 created=2 nominated=n0");
    shell.tell(Event::Synced);
    assert!(shell.tick().iter().all(|line| !line.starts_with("evict")));
    shell.pass(20);
    shell.tell(Event::PodDeleted("a".into()));
    assert_eq!(shell.tick(), ["bind p n0"]);
}

#[test]
fn a_place_is_free_again_when_its_pod_goes() {
    let mut shell = full();
    shell.apply("p 1g.5gb=1 prio=9");
    shell.tick();
    shell.apply("r 1g.5gb=1");
    shell.tick();
    shell.tell(Event::PodDeleted("a".into()));
    shell.pass(20);
    shell.tell(Event::PodDeleted("p".into()));
    assert_eq!(shell.tick(), ["bind r n0"]);
}

#[test]
fn what_the_api_says_of_a_place_is_followed() {
    let mut shell = full();
    shell.apply("p 1g.5gb=1 prio=9");
    shell.tick();
    // The echo of the state before, and of our own word.
    for text in ["p 1g.5gb=1 prio=9", "p 1g.5gb=1 prio=9 nominated=n0"] {
        shell.apply(text);
        assert!(shell.engine.cache().has_nominations(), "{text}");
    }
    shell.apply("p 1g.5gb=1 prio=9");
    assert!(!shell.engine.cache().has_nominations(), "somebody has taken it back");
}

#[test]
fn a_victim_that_may_not_be_ended_is_one_no_longer() {
    let mut shell = full();
    shell.apply("p 1g.5gb=1 prio=9");
    assert_eq!(shell.tick().len(), 2);
    shell.pass(20);
    let outcome = EvictionOutcome::Refused("a webhook says no".to_owned());
    shell.tell(Event::EvictionFinished { victim: "a".into(), outcome });
    assert_eq!(shell.tick(), ["evict a for p"], "it is tried again after the pod's back-off");
}

/// While it waits in vain, only what can help wakes it.
#[test]
fn a_change_that_makes_preemption_possible_wakes() {
    let mut shell = Shell::new(&["n0 1g.5gb=2"]);
    shell.apply("a 1g.5gb=1 on=n0");
    shell.apply("b 1g.5gb=1 on=n0 prio=9");
    shell.apply("p 1g.5gb=2 prio=9");
    assert!(shell.tick()[0].contains("preemption: 0/1"));
    shell.pass(20);
    for text in ["x cpu=1 on=n0", "y cpu=1 on=n0"] {
        shell.apply(text);
    }
    shell.tell(Event::PodDeleted("x".into()));
    assert_eq!(shell.lengths(), [0, 0, 1, 0]);
    shell.tell(Event::PodDeleted("b".into()));
    assert_eq!(shell.tick()[0], "evict a for p");
}

#[test]
fn budgets_come_and_go() {
    let mut shell = Shell::new(&["n0 1g.5gb=1", "n1 1g.5gb=1"]);
    shell.apply("a 1g.5gb=1 on=n0 label=app:web");
    shell.apply("b 1g.5gb=1 on=n1 prio=5");
    let id = BudgetId { namespace: "ns".into(), name: "web".into() };
    let needs = Requirement { key: "app".into(), operator: Operator::In, values: vec!["web".into()] };
    let budget = Budget { selector: LabelSelector::All(vec![needs]), ..Budget::default() };
    shell.tell(Event::BudgetApplied { id: id.clone(), budget });
    shell.apply("p 1g.5gb=1 prio=9");
    assert_eq!(shell.tick()[0], "evict b for p");
    shell.tell(Event::BudgetDeleted(id));
    shell.apply("q 1g.5gb=1 prio=9");
    assert_eq!(shell.tick()[0], "evict a for q");
}
