//! Pods that wait because of other pods are tried when something made a place for them, and not otherwise.

use super::*;
use crate::fixture::labels;

/// `pod` waits on these nodes beside these pods. Nothing of `useless` wakes it, all of it told in this order; then
/// `helpful` does, and it is bound to `to`.
fn check(nodes: &[&str], running: &[&str], waiting: &str, useless: &[Event], helpful: Event, to: &str) {
    let mut shell = Shell::new(nodes);
    shell.tell(namespace("ns", "team:own"));
    for text in running {
        shell.apply(text);
    }
    shell.apply(waiting);
    let refused = shell.tick();
    assert!(refused.len() == 1 && refused[0].starts_with("Unschedulable!"), "{waiting}: {refused:?}");
    shell.pass(60);
    for event in useless {
        shell.tell(event.clone());
        assert_eq!(shell.lengths(), [0, 0, 1, 0], "{waiting} is woken by {event:?}");
    }
    shell.tell(helpful.clone());
    assert_eq!(shell.lengths(), [1, 0, 0, 0], "{waiting} is not woken by {helpful:?}");
    let name = waiting.split(' ').next().unwrap();
    assert_eq!(shell.tick(), [format!("bind {name} {to}")]);
}

fn namespace(name: &str, text: &str) -> Event {
    Event::NamespaceApplied { name: name.into(), labels: labels(text) }
}

fn applied(text: &str) -> Event {
    Event::PodApplied(pod(text))
}

fn gone(name: &str) -> Event {
    Event::PodDeleted(name.into())
}

fn changed(text: &str) -> Event {
    Event::NodeApplied(node(text))
}

const ZONES: &[&str] = &["n0 label=zone:a", "n1 label=zone:b"];

#[test]
fn affinity_waits_for_a_pod_that_matches() {
    let useless = [
        applied("x on=n0 label=app:web"),
        applied("y on=n0 label=app:db ns=other"),
        applied("z on=n9 label=app:db"),
        changed("n2 label=zone:c"),
        gone("x"),
        namespace("other", "team:a"),
    ];
    check(ZONES, &[], "p near=zone/app:db", &useless, applied("w on=n1 label=app:db"), "n1");
    // A running pod may come to match, and a node may come to the pods.
    let running = &["x on=n0 label=app:web"];
    check(ZONES, running, "p near=zone/app:db", &[], applied("x on=n0 label=app:db"), "n0");
    let running = &["x on=n2 label=app:db"];
    let useless = [changed("n2 cordoned label=zone:c"), changed("n3 label=zone:d")];
    check(ZONES, running, "p near=zone/app:db", &useless, changed("n4 label=zone:c"), "n4");
    check(ZONES, running, "p near=zone/app:db", &[], changed("n2 label=zone:a cordoned"), "n0");
    // A pod of ours helps as soon as it is assumed.
    let mut shell = Shell::new(&["n0 label=zone:a"]);
    shell.apply("p near=zone/app:db prio=9");
    shell.apply("q label=app:db");
    assert_eq!(shell.tick().last().unwrap(), "bind q n0");
    shell.pass(60);
    assert_eq!(shell.tick(), ["bind p n0"]);
}

#[test]
fn the_last_of_a_group_that_goes_lets_another_be_the_first() {
    let nodes = &["n0 label=zone:a cordoned", "n1 label=zone:b"];
    let running = &["x on=n0 label=app:db", "y on=n0 label=app:db"];
    check(nodes, running, "p label=app:db near=zone/app:db", &[gone("x")], gone("y"), "n1");
}

#[test]
fn anti_affinity_waits_for_the_pod_in_the_way_to_go() {
    let running = &["x on=n0 label=app:db", "y on=n1 label=app:db", "z on=n1 label=app:web"];
    let useless = [gone("z"), applied("z on=n1 label=app:web"), changed("n2 label=zone:a")];
    check(ZONES, running, "p apart=zone/app:db", &useless, gone("y"), "n1");
    check(ZONES, running, "p apart=zone/app:db", &useless, applied("y on=n1 label=app:web"), "n1");
    check(ZONES, running, "p apart=zone/app:db", &useless, changed("n3 label=zone:c"), "n3");
    check(ZONES, running, "p apart=zone/app:db", &useless, changed("n3"), "n3");
    check(ZONES, running, "p apart=zone/app:db", &useless, changed("n1"), "n1");
    check(ZONES, running, "p apart=zone/app:db", &useless, applied("y on=n1 label=app:db finished"), "n1");
}

#[test]
fn a_running_pods_anti_affinity_ends_with_it() {
    let running = &["x on=n0 apart=zone/app:web", "y on=n1 apart=zone/app:web", "z on=n1 apart=zone/app:db"];
    let useless = [gone("z"), applied("v on=n1 label=app:web")];
    check(ZONES, running, "p label=app:web", &useless, gone("y"), "n1");
    check(ZONES, running, "p label=app:web", &useless, changed("n1"), "n1");
    // Another node of the same domain gets free with it.
    let nodes = &["n0 label=zone:a cordoned", "n1 label=zone:a"];
    check(nodes, &["x on=n0 apart=zone/app:web"], "p label=app:web", &[], gone("x"), "n1");
    // What is held by several goes with the last.
    let running = &["x on=n0 apart=zone/app:web", "y on=n0 apart=zone/app:web"];
    check(&ZONES[..1], running, "p label=app:web", &[gone("x")], gone("y"), "n0");
}

#[test]
fn a_pod_that_waits_follows_the_terms_that_come_to_concern_it() {
    let mut shell = Shell::new(&["n0 1g.5gb=1 label=zone:a"]);
    shell.apply("holder 1g.5gb=1 on=n0");
    shell.apply("p 1g.5gb=1 label=app:web");
    assert_eq!(shell.tick().len(), 1);
    shell.pass(60);
    // Room alone does not help any more once somebody refuses it.
    shell.apply("guard on=n0 apart=zone/app:web");
    shell.tell(gone("holder"));
    assert_eq!(shell.lengths(), [0, 0, 1, 0]);
    shell.tell(gone("guard"));
    assert_eq!(shell.tick(), ["bind p n0"]);
}

#[test]
fn spreading_waits_for_the_domains_to_even_out() {
    let pod = "p zone=a label=app:web spread=zone/app:web/1/anynode";
    let running = &["x on=n0 label=app:web"];
    let useless = [
        applied("y on=n1 label=app:db"),
        applied("z on=n1 label=app:web ns=other"),
        applied("w on=n1 label=app:web terminating"),
        changed("n2 label=zone:b"),
        changed("n3"),
    ];
    // The emptiest domain gets a pod, the fullest loses one, or begins to.
    check(ZONES, running, pod, &useless, applied("v on=n1 label=app:web"), "n0");
    check(ZONES, running, pod, &useless, gone("x"), "n0");
    check(ZONES, running, pod, &useless, applied("x on=n0 label=app:web terminating"), "n0");
    // Or the emptiest domain goes: with its last node, or because it is none any more.
    check(ZONES, running, pod, &useless[..3], Event::NodeDeleted("n1".into()), "n0");
    check(ZONES, running, pod, &useless[..3], changed("n1"), "n0");
    let three = "p label=app:web spread=zone/app:web/1/min3";
    let running = &["x on=n0 label=app:web", "y on=n1 label=app:web"];
    check(ZONES, running, three, &[changed("n2 label=zone:b")], changed("n3 label=zone:c"), "n3");
    // Taints decide what is a domain where the constraint says so.
    let taints = "p zone=a label=app:web spread=zone/app:web/1/anynode/taints";
    check(ZONES, &running[..1], taints, &[], changed("n1 label=zone:b taint=gpu"), "n0");
}

#[test]
fn namespaces_that_change_their_labels_change_what_is_selected() {
    let running = &["x on=n0 label=app:db ns=other"];
    let useless = [namespace("other", "team:b"), namespace("third", "team:a")];
    check(ZONES, running, "p near=zone/app:db@team:a", &useless, namespace("other", "team:a"), "n0");
    let nodes = &ZONES[..1];
    let mut before = Shell::new(nodes);
    before.tell(namespace("other", "team:a"));
    before.apply("x on=n0 label=app:db ns=other");
    before.apply("p apart=zone/app:db@team:a");
    assert_eq!(before.tick().len(), 1);
    before.pass(60);
    before.tell(Event::NamespaceDeleted("other".into()));
    assert_eq!(before.tick(), ["bind p n0"]);
    // The other way round: the running pod's term selects the namespace of the waiting one.
    let running = &["x on=n0 apart=zone/app:web@team:own ns=other"];
    let useless = [namespace("other", "team:own"), namespace("ns", "team:own stage:1")];
    check(nodes, running, "p label=app:web", &useless, namespace("ns", "team:new"), "n0");
    check(nodes, running, "p label=app:web", &useless, Event::NamespaceDeleted("ns".into()), "n0");
}

#[test]
fn pods_without_rules_are_not_looked_at_for_pods_that_come() {
    let mut shell = Shell::new(&["n0 1g.5gb=1 label=zone:a"]);
    shell.apply("holder 1g.5gb=1 on=n0");
    shell.apply("p 1g.5gb=1");
    shell.apply("q 1g.5gb=1 label=app:web evenly=zone/app:web/1 likes=zone/app:db*5");
    assert_eq!(shell.tick().len(), 2);
    shell.pass(60);
    for event in [applied("x on=n0 label=app:db"), gone("x"), changed("n1 label=zone:b")] {
        shell.tell(event);
        assert_eq!(shell.lengths(), [0, 0, 2, 0]);
    }
    shell.tell(gone("holder"));
    assert_eq!(shell.lengths(), [2, 0, 0, 0]);
}

#[test]
fn a_change_of_its_own_labels_is_a_reason_to_try_again() {
    let running = &["x on=n0 apart=zone/app:web"];
    check(&ZONES[..1], running, "p label=app:web", &[], applied("p label=app:db"), "n0");
}

/// Whatever happens, a pod waits exactly if no node can take it, and it is never tried in vain but for having been told of
/// a place that another of those told took first.
#[test]
fn random_histories_leave_nobody_waiting_who_has_a_place() {
    const RULES: [&str; 10] = [
        "near=zone/app:a",
        "near=zone/app:b@team:x",
        "apart=host/app:a",
        "apart=zone/app:b",
        "apart=zone/app:c@team:x",
        "spread=zone/app:a/1",
        "spread=zone/app:b/1/min3",
        "spread=host/app:c/1/taints",
        "likes=zone/app:a*5",
        "",
    ];
    let mut waited = 0;
    for seed in 0..40 {
        let mut next = crate::fixture::chance(seed);
        let mut shell = Shell::new(&[]);
        for step in 0..250 {
            let name = format!("n{}", next(6));
            match next(8) {
                0 | 1 => {
                    let zone = [" label=zone:a", " label=zone:b", " label=zone:c", ""][next(4) as usize];
                    let more = ["", "", " cordoned", " taint=gpu"][next(4) as usize];
                    let text = format!("{name} 1g.5gb={}{zone} label=host:{name}{more}", 1 + next(3));
                    drop(shell.tell(changed(&text)));
                }
                2 if next(3) == 0 => drop(shell.tell(Event::NodeDeleted(name.as_str().into()))),
                2 => {
                    let team = ["team:x", "team:y"][next(2) as usize];
                    drop(shell.tell(namespace(["ns", "other"][next(2) as usize], team)));
                }
                3 | 4 if step > 3 => drop(shell.tell(gone(&format!("p{}", next(step))))),
                5 => {
                    let app = ["a", "b", "c"][next(3) as usize];
                    let rule = RULES[next(10) as usize];
                    let theirs =
                        format!("p{step} on={name} 1g.5gb={} ns=other label=app:{app} {rule}", next(2));
                    drop(shell.apply(&theirs));
                }
                _ => {
                    let app = ["a", "b", "c"][next(3) as usize];
                    let (one, two) = (RULES[next(10) as usize], RULES[next(10) as usize]);
                    drop(shell.apply(&format!("p{step} 1g.5gb={} label=app:{app} {one} {two}", next(2))));
                }
            }
            settle(&mut shell);
            let waiting = shell.engine.queue().pods().filter(|(_, part)| part.is_some());
            for (queued, part) in waiting {
                assert_eq!(part, Some(QueueName::Unschedulable), "seed {seed} step {step}");
                let kind = shell.engine.cache.kind_of(&queued.pod);
                let mut afresh = Rankings::new(Scoring::LeastFragmentation);
                let place = afresh.best(&shell.engine.cache, &shell.engine.tables, &kind);
                assert_eq!(place, None, "seed {seed} step {step}: {} has a place", queued.pod.id);
                waited += 1;
            }
        }
    }
    assert!(waited > 5_000, "{waited}: hardly a test");
}

/// Decides and binds until nothing moves.
fn settle(shell: &mut Shell) {
    loop {
        shell.pass(20);
        let lines = shell.tick();
        let binds = lines.iter().filter_map(|line| line.strip_prefix("bind "));
        let binds: Vec<_> = binds.filter_map(|bind| bind.split_once(' ')).collect();
        for (name, node) in &binds {
            shell.finish(name, node, BindOutcome::Bound);
        }
        if binds.is_empty() && shell.lengths()[0] + shell.lengths()[1] == 0 {
            return;
        }
    }
}
