//! The engine as its shell sees it: events in, effects out.

mod claims;
mod hints;
mod preemption;
mod rejections;
mod volumes;

use super::*;
use crate::effect::{ClaimWrite, ClaimWrites};
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
        Effect::Evict(eviction) => {
            Some(format!("evict {} for {}", eviction.victim.name, eviction.preemptor.name))
        }
        Effect::ReportRejected { pod, explanation } => Some(format!("rejected {}: {explanation}", pod.name)),
        Effect::WriteClaims(ClaimWrites { pod, node, attempt, writes }) => {
            let write = |write: &ClaimWrite| match write {
                ClaimWrite::SelectNode { claim, version, .. } => format!(" {}@{version}", claim.name),
                ClaimWrite::Reserve { volume, version, claim, .. } => {
                    format!(" {volume}@{version} for {}", claim.name)
                }
            };
            let writes: String = writes.iter().map(write).collect();
            Some(format!("write {} {node} #{attempt}:{writes}", pod.name))
        }
        Effect::ReportScheduled { pod, node } => Some(format!("scheduled {} {node}", pod.name)),
        Effect::ReportUnschedulable(report) => Some(format!(
            "{}{} {}{}: {}",
            report.reason.as_str(),
            if report.publish { "!" } else { "" },
            report.pod.name,
            report.nominated.map(|node| format!(" for {node}")).unwrap_or_default(),
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
    let waits = [0, 0, 1, 0];
    // Nothing of this can help it.
    shell.apply("other cpu=5 on=n0");
    shell.tell(Event::PodDeleted("other".into()));
    shell.tell(Event::NodeApplied(node("n1 3g.20gb=1")));
    shell.tell(Event::NodeApplied(node("n2 1g.5gb=1 cordoned")));
    assert_eq!(shell.lengths(), waits);
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
    // A condition quotes the generation it speaks of.
    let mut newer = pod("p 1g.5gb=1");
    newer.generation += 1;
    shell.tell(Event::PodApplied(newer));
    shell.pass(60);
    shell.tell(Event::NodeApplied(node("n0 1g.5gb=2")));
    shell.tell(Event::NodeApplied(node("n0 1g.5gb=1")));
    assert_eq!(shell.tick(), [format!("Unschedulable p: {NO_SLICE}")]);
}

#[test]
fn a_newcomer_does_not_keep_others_from_being_told() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("holder 1g.5gb=1 on=n0");
    shell.apply("p 1g.5gb=1");
    shell.tick();
    shell.tell(Event::NodeApplied(node("n1 3g.20gb=1")));
    shell.pass(5);
    shell.apply("q 1g.5gb=1");
    let two = "0/2 nodes are available: 2 Insufficient nvidia.com/mig-1g.5gb.";
    assert_eq!(shell.tick(), [format!("Unschedulable! q: {two}")]);
    shell.pass(25);
    assert_eq!(shell.tick(), [format!("Unschedulable p: {two}")]);
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
        shell.apply("q 1g.5gb=1");
        assert_eq!(shell.tick(), [format!("Unschedulable! q: {NO_SLICE}")], "the bind may still land");
        shell.pass(60);
        assert!(shell.finish("p", "n0", outcome).is_empty());
        assert_eq!((shell.lengths(), shell.engine.cache().pod_count()), ([1, 0, 0, 0], 0));
        assert_eq!(shell.tick(), ["bind q n0"]);
    }
}

#[test]
fn a_pod_that_is_back_before_the_answer_is_bound_once() {
    for (outcome, lines) in [
        (BindOutcome::Bound, vec!["scheduled p n0"]),
        (BindOutcome::Refused("no".to_owned()), vec!["SchedulerError! p: binding rejected: no"]),
        (BindOutcome::Gone, vec![]),
    ] {
        let mut shell = Shell::new(&["n0 1g.5gb=1", "n1 1g.5gb=1"]);
        shell.apply("p 1g.5gb=1");
        assert_eq!(shell.tick(), ["bind p n0"]);
        shell.tell(Event::PodDeleted("p".into()));
        shell.apply("p 1g.5gb=1");
        assert!(shell.tick().is_empty(), "its bind is under way");
        assert_eq!(shell.finish("p", "n0", outcome.clone()), lines, "{outcome:?}");
        assert!(shell.finish("p", "n0", outcome).is_empty(), "a second answer means nothing");
    }
}

#[test]
fn a_pod_seen_bound_and_deleted_before_the_answer_is_free_at_once() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    shell.apply("p 1g.5gb=1");
    shell.tick();
    shell.apply("p 1g.5gb=1 on=n0");
    shell.tell(Event::PodDeleted("p".into()));
    shell.apply("q 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind q n0"]);
    assert!(shell.finish("p", "n0", BindOutcome::Bound).is_empty());
    assert_eq!(shell.finish("q", "n0", BindOutcome::Bound), ["scheduled q n0"]);
}

#[test]
fn waiting_pods_are_told_when_the_reason_changes() {
    let check = |nodes: &[&str], change: &str, before: &str, after: &str| {
        let mut shell = Shell::new(nodes);
        shell.apply("holder 1g.5gb=1 on=n0");
        shell.apply("p 1g.5gb=1");
        assert_eq!(shell.tick(), [format!("Unschedulable! p: {before}")]);
        shell.pass(1);
        shell.tell(Event::NodeApplied(node(change)));
        assert!(shell.tick().is_empty(), "not yet: a cluster that grows changes all the time");
        let due = shell.engine.next_wakeup().unwrap();
        shell.now = due;
        assert_eq!(shell.tick(), [format!("Unschedulable p: {after}")]);
        shell.pass(60);
        assert!(shell.tick().is_empty());
        assert_eq!(shell.engine.next_wakeup(), None);
        assert_eq!(shell.engine.queue().get(&"p".into()).unwrap().attempts, 1, "it was not tried");
    };
    check(&[], "n0 1g.5gb=1", "no nodes available to schedule pods", NO_SLICE);
    check(
        &["n0 1g.5gb=2 cordoned"],
        "n0 1g.5gb=1",
        "0/1 nodes are available: 1 node(s) were unschedulable.",
        NO_SLICE,
    );
    let unsettled = "0/1 nodes are available: 1 node(s) had an unsettled MIG layout (nvidia.com/mig.config.state=pending).";
    check(&["n0 1g.5gb=2 state=pending"], "n0 1g.5gb=1 state=success", unsettled, NO_SLICE);
}

#[test]
fn only_the_pod_that_was_really_tried_backs_off() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    for text in ["a 1g.5gb=1", "b 1g.5gb=1", "c 1g.5gb=1", "d 1g.5gb=1"] {
        shell.apply(text);
    }
    shell.tick();
    let attempts = |shell: &Shell, name: &str| shell.engine.queue().get(&name.into()).unwrap().attempts;
    assert_eq!(["b", "c", "d"].map(|name| attempts(&shell, name)), [1, 0, 0]);
    shell.finish("a", "n0", BindOutcome::Bound);
    shell.tell(Event::PodDeleted("a".into()));
    assert_eq!(shell.lengths(), [2, 1, 0, 0]);
    assert_eq!(shell.tick()[0], "bind c n0");
}

/// An API server in a few lines: what is true, and what the engine has not been told of it yet.
#[derive(Default)]
struct Api {
    /// Every pod that exists, and its node.
    pods: std::collections::BTreeMap<String, Option<String>>,
    watch: std::collections::VecDeque<Event>,
    binds: Vec<(String, String)>,
    answers: Vec<(String, String, BindOutcome)>,
    /// Says now and then of a pod that exists that it is gone, and shows it again later, as a list taken from a restored backup
    /// may. Then a slice may be given away for a moment, but nothing else may go wrong.
    rude: bool,
}

const SLICES: u64 = 3;

impl Api {
    fn text(name: &str, node: Option<&String>) -> String {
        let place = node.map(|node| format!(" on={node}")).unwrap_or_default();
        format!("{name} 1g.5gb={}{place}", 1 + name.len() % 2)
    }

    fn show(&mut self, name: &str) {
        let event = match self.pods.get(name) {
            Some(node) => Event::PodApplied(pod(&Api::text(name, node.as_ref()))),
            None => Event::PodDeleted(name.into()),
        };
        self.watch.push_back(event);
    }

    /// Carries out one bind that was asked for, as the API server would, or refuses it.
    fn carry_out(&mut self, at: usize, fate: u64) {
        let (name, node) = self.binds.swap_remove(at);
        let outcome = match self.pods.get(&name).cloned() {
            None => BindOutcome::Gone,
            Some(Some(other)) if other != node => BindOutcome::BoundElsewhere(other.as_str().into()),
            Some(Some(_)) => {
                assert!(self.rude, "{name} is bound a second time");
                BindOutcome::Bound
            }
            Some(None) if fate == 0 => BindOutcome::Refused("not now".to_owned()),
            Some(None) => {
                self.pods.insert(name.clone(), Some(node.clone()));
                self.show(&name);
                let held = |(name, on): (&String, &Option<String>)| {
                    if on.as_ref() == Some(&node) { 1 + name.len() as u64 % 2 } else { 0 }
                };
                let taken: u64 = self.pods.iter().map(held).sum();
                assert!(self.rude || taken <= SLICES, "{node} holds {taken} of {SLICES}");
                BindOutcome::Bound
            }
        };
        self.answers.push((name, node, outcome));
    }
}

/// Pods come and go, others bind some of them, nodes leave and return, and news arrive late and in any order that the API
/// allows. Whatever happens, no node is ever asked for more than it has, and in the end nobody waits in vain.
#[test]
fn random_histories_neither_oversubscribe_nor_forget() {
    let mut bound = 0;
    for seed in 0..300 {
        let mut next = crate::fixture::chance(seed);
        let mut shell = Shell::new(&[]);
        let mut api = Api { rude: seed % 3 == 0, ..Api::default() };
        let mut up = [true; 4];
        let show = |at: usize, up: bool| match up {
            true => Event::NodeApplied(node(&format!("n{at} 1g.5gb={SLICES}"))),
            false => Event::NodeDeleted(format!("n{at}").as_str().into()),
        };
        (0..4).for_each(|at| api.watch.push_back(show(at, true)));
        for step in 0..400 {
            match next(12) {
                0..3 => {
                    let name = format!("p{step}");
                    api.pods.entry(name.clone()).or_insert(None);
                    api.show(&name);
                }
                3 => {
                    let at = next(api.pods.len().max(1) as u64) as usize;
                    let Some(name) = api.pods.keys().nth(at).cloned() else { continue };
                    // Now and then one is only said to be gone, and is shown again later.
                    match next(3) {
                        0 if api.rude && api.pods[&name].is_none() => {
                            api.watch.push_back(Event::PodDeleted(name.as_str().into()));
                        }
                        _ => drop(api.pods.remove(&name)),
                    }
                    api.show(&name);
                }
                4 if next(4) == 0 => {
                    let waiting = api.pods.iter().find(|(_, node)| node.is_none());
                    let Some(name) = waiting.map(|(name, _)| name.clone()) else { continue };
                    api.pods.insert(name.clone(), Some("elsewhere".to_owned()));
                    api.show(&name);
                }
                5 if next(6) == 0 => {
                    let at = next(4) as usize;
                    up[at] = !up[at];
                    api.watch.push_back(show(at, up[at]));
                }
                6 | 7 if !api.binds.is_empty() => {
                    let (at, fate) = (next(api.binds.len() as u64) as usize, next(5));
                    api.carry_out(at, fate);
                }
                8 if !api.answers.is_empty() => deliver(&mut shell, &mut api, &mut next),
                9 => shell.pass(next(3)),
                _ => {
                    if let Some(event) = api.watch.pop_front() {
                        shell.tell(event);
                    }
                }
            }
            ask(&mut shell, &mut api);
        }
        // Everything comes to rest.
        for at in 0..4 {
            api.watch.push_back(show(at, true));
        }
        for _ in 0..200 {
            while let Some(event) = api.watch.pop_front() {
                shell.tell(event);
            }
            while !api.binds.is_empty() {
                api.carry_out(0, 1);
            }
            while !api.answers.is_empty() {
                deliver(&mut shell, &mut api, &mut next);
            }
            shell.pass(1);
            ask(&mut shell, &mut api);
        }
        let waiting = api.pods.iter().filter(|(_, node)| node.is_none());
        let smallest = waiting.clone().map(|(name, _)| 1 + name.len() as u64 % 2).min();
        assert_eq!(shell.lengths(), [0, 0, waiting.count(), 0], "seed {seed}");
        assert_eq!(shell.engine.cache().assumed_count(), 0, "seed {seed}");
        assert_eq!(shell.engine.cache().pod_count(), api.pods.values().flatten().count(), "seed {seed}");
        bound += api.pods.values().flatten().filter(|node| node.starts_with('n')).count();
        let mut free = [SLICES; 4];
        for (name, node) in &api.pods {
            let at =
                node.as_ref().and_then(|node| node.strip_prefix('n')).map(|at| at.parse::<usize>().unwrap());
            let taken = 1 + name.len() as u64 % 2;
            at.into_iter().for_each(|at| free[at] = free[at].saturating_sub(taken));
        }
        let room = free.iter().max().copied();
        assert!(
            smallest.is_none_or(|wanted| Some(wanted) > room),
            "seed {seed}: {free:?} free, {smallest:?} waits"
        );
    }
    assert!(bound > 1_000, "{bound} pods ended on a node: hardly a test");
}

fn ask(shell: &mut Shell, api: &mut Api) {
    for line in shell.tick() {
        if let Some(("bind", rest)) = line.split_once(' ') {
            let (name, node) = rest.split_once(' ').unwrap();
            assert!(!api.binds.iter().any(|(asked, _)| asked == name), "{name} is asked for twice");
            api.binds.push((name.to_owned(), node.to_owned()));
        }
    }
}

fn deliver(shell: &mut Shell, api: &mut Api, next: &mut impl FnMut(u64) -> u64) {
    let at = next(api.answers.len() as u64) as usize;
    let (name, node, outcome) = api.answers.swap_remove(at);
    shell.finish(&name, &node, outcome);
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
            let decided = shell.tick();
            for bind in decided.iter().filter_map(|line| line.strip_prefix("bind ")) {
                let (name, node) = bind.split_once(' ').unwrap();
                lines.extend(shell.finish(name, node, BindOutcome::Bound));
            }
            lines.extend(decided);
            lines.extend(shell.tell(Event::PodDeleted(format!("p{}", i / 2).as_str().into())));
            shell.pass(1);
        }
        lines
    };
    let lines = run();
    assert!(lines.iter().filter(|line| line.starts_with("bind")).count() > 100);
    assert_eq!(lines, run());
}

fn outlook(at: i64, distrust: Option<&str>) -> Event {
    let group = GroupOutlook {
        group: "gpu-activity".to_owned(),
        series: 1,
        trusted: 1,
        stale: 0,
        models: vec![("lstm", 1.0)],
        distrust: distrust.map(str::to_owned),
        error: Some(0.1),
        persistence_error: Some(0.2),
        said: None,
        actual: None,
    };
    Event::Forecast(Arc::new(Outlook { at, valid_seconds: 60, groups: vec![group], ..Outlook::default() }))
}

/// Whether each fact about forecasts was news.
fn news(shell: &mut Shell, event: Event) -> Vec<bool> {
    let mut effects = Vec::new();
    shell.engine.step(shell.now, event, &mut effects);
    let changed = |effect| match effect {
        Effect::Fact(Fact::Forecast { changed, .. }) => changed,
        other => panic!("{other:?}"),
    };
    effects.into_iter().map(changed).collect()
}

#[test]
fn a_forecast_is_kept_until_it_runs_out() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    assert_eq!(news(&mut shell, outlook(100, None)), [true]);
    assert_eq!(news(&mut shell, outlook(101, None)), [false]);
    assert_eq!(news(&mut shell, outlook(102, Some("worse than persistence"))), [true]);
    assert!(news(&mut shell, outlook(50, None)).is_empty(), "late news is none");
    let known = |shell: &Shell| shell.engine.outlook(shell.now).map(|outlook| outlook.at);
    assert_eq!(known(&shell), Some(102));
    shell.pass(62);
    assert_eq!(known(&shell), Some(102));
    shell.pass(1);
    assert_eq!(known(&shell), None);
    // With it or without, a pod is bound all the same.
    shell.apply("p0 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind p0 n0"]);
}

#[test]
fn an_examination_finds_what_a_tick_would() {
    let mut shell = Shell::new(&["n0 1g.5gb=2", "n1 1g.5gb=1", "n2"]);
    let examine = |shell: &mut Shell, text: &str| shell.engine.examine(&pod(text));
    let found = examine(&mut shell, "p 1g.5gb=1");
    assert_eq!(found, Examination::Feasible(vec!["n1".into(), "n0".into()]));
    assert_eq!(shell.lengths(), [0; 4], "nothing came of it");
    shell.apply("p 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind p n1"]);
    assert_eq!(examine(&mut shell, "q 1g.5gb=1"), Examination::Feasible(vec!["n0".into()]));
    let Examination::Refused(why) = examine(&mut shell, "q 1g.5gb=3") else {
        panic!("there is no such node")
    };
    assert_eq!(why.to_string(), "0/3 nodes are available: 3 Insufficient nvidia.com/mig-1g.5gb.");
    assert_eq!(examine(&mut shell, "q gated"), Examination::Gated);
}
