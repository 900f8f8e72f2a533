//! The engine as its shell sees it: events in, effects out.

use super::*;
use crate::fixture::{node, pod};

struct Shell {
    engine: Engine,
    now: Time,
}

impl Shell {
    fn new(nodes: &[&str]) -> Shell {
        let mut shell = Shell { engine: Engine::new(Options::default()), now: Time::from_secs(100) };
        for text in nodes {
            shell.tell(Event::NodeApplied(node(text)));
        }
        shell.tell(Event::Synced);
        shell
    }

    /// One event, and the effects that are not facts, each as a line.
    fn tell(&mut self, event: Event) -> Vec<String> {
        let mut effects = Vec::new();
        self.engine.step(self.now, event, &mut effects);
        effects.into_iter().filter_map(line).collect()
    }

    fn apply(&mut self, text: &str) -> Vec<String> {
        self.tell(Event::PodApplied(pod(text)))
    }

    fn tick(&mut self) -> Vec<String> {
        self.tell(Event::Tick { budget: 100 })
    }

    fn finish(&mut self, uid: &str, node: &str, outcome: BindOutcome) -> Vec<String> {
        self.tell(Event::BindFinished { uid: uid.into(), node: node.into(), outcome })
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn lengths(&self) -> [usize; 4] {
        self.engine.queue_lengths().map(|(_, length)| length)
    }
}

fn line(effect: Effect) -> Option<String> {
    match effect {
        Effect::Bind(bind) => Some(format!("bind {} {}", bind.pod.name, bind.node)),
        Effect::ReportScheduled { pod, node } => Some(format!("scheduled {} {node}", pod.name)),
        Effect::ReportUnschedulable(report) => Some(format!(
            "{}{} {}: {}",
            report.reason.as_str(),
            if report.publish { "!" } else { "" },
            report.pod.name,
            report.message
        )),
        Effect::Fact(_) => None,
    }
}

const NO_SLICE: &str = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb.";

#[test]
fn a_pod_is_bound_and_told_so() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    assert!(shell.apply("p 1g.5gb=1").is_empty());
    assert_eq!(shell.tick(), ["bind p n0"]);
    assert_eq!(shell.finish("p", "n0", BindOutcome::Bound), ["scheduled p n0"]);
    assert!(shell.apply("p 1g.5gb=1 on=n0").is_empty());
    assert_eq!((shell.lengths(), shell.engine.cache().assumed_count()), ([0; 4], 0));
    assert_eq!(shell.engine.next_wakeup(), None);
}

#[test]
fn nothing_is_decided_before_everything_is_listed() {
    let mut shell = Shell { engine: Engine::new(Options::default()), now: Time::ZERO };
    shell.tell(Event::NodeApplied(node("n0 1g.5gb=1")));
    shell.apply("p 1g.5gb=1");
    assert_eq!(shell.engine.next_wakeup(), None);
    assert!(shell.tick().is_empty());
    shell.apply("other 1g.5gb=1 on=n0");
    shell.tell(Event::Synced);
    assert_eq!(shell.tick(), [format!("Unschedulable! p: {NO_SLICE}")]);
}

#[test]
fn the_next_decision_counts_the_last_one() {
    let mut shell = Shell::new(&["n0 1g.5gb=1", "n1 1g.5gb=1"]);
    for text in ["a 1g.5gb=1", "b 1g.5gb=1 prio=9", "c 1g.5gb=1"] {
        shell.apply(text);
    }
    let message = "0/2 nodes are available: 2 Insufficient nvidia.com/mig-1g.5gb.";
    assert_eq!(shell.tick(), ["bind b n0", "bind a n1", &format!("Unschedulable! c: {message}")]);
}

#[test]
fn a_tick_decides_no_more_than_it_may() {
    let mut shell = Shell::new(&["n0 1g.5gb=3"]);
    for text in ["a 1g.5gb=1", "b 1g.5gb=1", "c 1g.5gb=1"] {
        shell.apply(text);
    }
    assert_eq!(shell.tell(Event::Tick { budget: 2 }), ["bind a n0", "bind b n0"]);
    assert_eq!(shell.engine.next_wakeup(), Some(Time::ZERO));
    assert_eq!(shell.tell(Event::Tick { budget: 0 }).len(), 0);
    assert_eq!(shell.tick(), ["bind c n0"]);
}

#[test]
fn pods_of_others_are_counted_and_never_bound() {
    let mut shell = Shell::new(&["n0 1g.5gb=2"]);
    shell.apply("theirs by=default-scheduler 1g.5gb=1");
    assert!(shell.tick().is_empty());
    shell.apply("theirs by=default-scheduler 1g.5gb=1 on=n0");
    shell.apply("a 1g.5gb=1");
    shell.apply("b 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind a n0", &format!("Unschedulable! b: {NO_SLICE}")]);
}

#[test]
fn a_waiting_pod_is_tried_when_a_node_can_take_it_and_not_otherwise() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("holder 1g.5gb=1 on=n0");
    shell.apply("p 1g.5gb=1");
    assert_eq!(shell.tick(), [format!("Unschedulable! p: {NO_SLICE}")]);
    shell.pass(60);
    assert_eq!(shell.engine.next_wakeup(), None);
    // Nothing of this can help it.
    shell.apply("other cpu=5 on=n0");
    shell.tell(Event::PodDeleted("other".into()));
    shell.tell(Event::NodeApplied(node("n1 3g.20gb=1")));
    shell.tell(Event::NodeApplied(node("n2 1g.5gb=1 cordoned")));
    assert_eq!(shell.engine.next_wakeup(), None);
    // Each of this can.
    for event in [
        Event::PodDeleted("holder".into()),
        Event::PodApplied(pod("holder 1g.5gb=1 on=n0 finished")),
        Event::NodeApplied(node("n2 1g.5gb=1")),
        Event::NodeApplied(node("n0 1g.5gb=2")),
    ] {
        let mut shell = Shell::new(&["n0 1g.5gb=1", "n2 1g.5gb=1 cordoned"]);
        shell.apply("holder 1g.5gb=1 on=n0");
        shell.apply("p 1g.5gb=1");
        shell.tick();
        shell.pass(60);
        assert!(shell.tell(event.clone()).is_empty());
        let bound = shell.tick();
        assert!(bound.len() == 1 && bound[0].starts_with("bind p n"), "{event:?}: {bound:?}");
    }
}

#[test]
fn the_same_refusal_is_reported_once() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("holder 1g.5gb=1 on=n0");
    shell.apply("p 1g.5gb=1");
    shell.apply("q 1g.5gb=1");
    assert_eq!(shell.tick().len(), 2);
    for round in 0..5 {
        shell.pass(60);
        shell.tell(Event::NodeApplied(node(&format!("n0 1g.5gb=2 label=round:{round}"))));
        shell.tell(Event::NodeApplied(node(&format!("n0 1g.5gb=1 label=round:{round}"))));
        assert!(shell.tick().is_empty(), "tried again, to the same end");
    }
    let attempts = shell.engine.queue().get(&"p".into()).unwrap().attempts;
    assert_eq!(attempts, 6);
}

#[test]
fn a_refused_bind_gives_back_what_it_took_and_is_tried_again() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("p 1g.5gb=1");
    shell.apply("q 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind p n0", &format!("Unschedulable! q: {NO_SLICE}")]);
    shell.pass(60);
    let refused = shell.finish("p", "n0", BindOutcome::Refused("forbidden".into()));
    assert_eq!(refused, ["SchedulerError! p: binding rejected: forbidden"]);
    assert_eq!(shell.tick(), ["bind q n0"], "the slice went to whoever waited for it");
    shell.pass(1);
    assert_eq!(shell.tick(), [format!("Unschedulable! p: {NO_SLICE}")]);
}

#[test]
fn a_pod_that_is_gone_or_bound_elsewhere_is_not_tried_again() {
    for outcome in [BindOutcome::Gone, BindOutcome::BoundElsewhere("n9".into())] {
        let mut shell = Shell::new(&["n0 1g.5gb=1"]);
        shell.apply("p 1g.5gb=1");
        shell.tick();
        assert!(shell.finish("p", "n0", outcome).is_empty());
        assert_eq!((shell.lengths(), shell.engine.cache().pod_count()), ([0; 4], 0));
        shell.apply("q 1g.5gb=1");
        assert_eq!(shell.tick(), ["bind q n0"]);
    }
}

#[test]
fn a_pod_deleted_while_it_is_bound_leaves_nothing_behind() {
    for outcome in [BindOutcome::Bound, BindOutcome::Gone, BindOutcome::Refused("conflict".into())] {
        let mut shell = Shell::new(&["n0 1g.5gb=1"]);
        shell.apply("p 1g.5gb=1");
        shell.tick();
        shell.tell(Event::PodDeleted("p".into()));
        assert!(shell.finish("p", "n0", outcome).is_empty());
        assert_eq!((shell.lengths(), shell.engine.cache().pod_count()), ([0; 4], 0));
    }
}

#[test]
fn a_pod_that_began_to_end_while_it_was_bound_is_not_retried() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("p 1g.5gb=1");
    shell.tick();
    shell.apply("p 1g.5gb=1 terminating");
    assert!(shell.finish("p", "n0", BindOutcome::Refused("being deleted".into())).is_empty());
    assert_eq!((shell.lengths(), shell.engine.cache().pod_count()), ([0; 4], 0));
    shell.apply("q 1g.5gb=1 terminating");
    assert!(shell.tick().is_empty());
}

#[test]
fn the_watch_may_overtake_the_answer() {
    let mut shell = Shell::new(&["n0 1g.5gb=1", "n1 1g.5gb=1"]);
    shell.apply("p 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind p n0"]);
    shell.apply("p 1g.5gb=1 on=n0");
    assert_eq!(shell.finish("p", "n0", BindOutcome::Bound), ["scheduled p n0"]);
    // An echo from before the bind does not bring it back.
    shell.apply("p 1g.5gb=1");
    assert!(shell.tick().is_empty());
    assert_eq!(shell.engine.cache().pod_count(), 1);
    // Nor does a refusal after the watch has shown it bound.
    shell.apply("q 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind q n1"]);
    shell.apply("q 1g.5gb=1 on=n1");
    assert!(shell.finish("q", "n1", BindOutcome::Refused("late".into())).is_empty());
    assert_eq!((shell.lengths(), shell.engine.cache().pod_count()), ([0; 4], 2));
}

#[test]
fn a_pod_bound_by_somebody_else_while_it_waits_is_theirs() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("holder 1g.5gb=1 on=n0");
    shell.apply("p 1g.5gb=1");
    shell.tick();
    shell.apply("p 1g.5gb=1 on=n7");
    assert_eq!((shell.lengths(), shell.engine.cache().pod_count()), ([0; 4], 2));
}

#[test]
fn equal_events_give_equal_effects() {
    let run = || {
        let mut shell = Shell::new(&["n0 A100-40GB*4", "n1 A100-40GB*4"]);
        let mut lines = Vec::new();
        for i in 0..600 {
            let profile = ["1g.5gb", "3g.20gb", "2g.10gb", "7g.40gb"][i % 4];
            lines.extend(shell.apply(&format!("p{i} {profile}=1")));
            lines.extend(shell.tick());
            lines.extend(shell.tell(Event::PodDeleted(format!("p{}", i / 2).as_str().into())));
            shell.pass(1);
        }
        lines
    };
    let lines = run();
    assert!(lines.iter().filter(|line| line.starts_with("bind")).count() > 100);
    assert_eq!(lines, run());
}
