//! Pods that kubelets turn away.

use super::*;
use crate::event::Rejection;

/// The kubelet of `node` turns a pod away that was bound to it just now.
fn reject(shell: &mut Shell, text: &str, reason: &str) -> Vec<String> {
    let pod = pod(text);
    let (node, at) = (pod.node.clone().unwrap(), shell.now);
    let (spec, reason, message) = (pod.spec.clone(), reason.to_owned(), "broken".to_owned());
    shell.tell(Event::PodDeleted(pod.id.uid.clone()));
    shell.tell(Event::PodRejected(Rejection { pod: pod.id, node, spec, at, reason, message }))
}

const UNEXPECTED: &str = "UnexpectedAdmissionError";

/// How many pods a ReplicaSet of `replicas` loses to a node that turns all of them away within a second, in `seconds`.
fn burnt(replicas: usize, seconds: u64) -> usize {
    let mut shell = Shell::new(&["n0 1g.5gb=56"]);
    let (mut made, mut burnt) = (0, 0);
    let mut create = |shell: &mut Shell| {
        made += 1;
        shell.apply(&format!("p{made} 1g.5gb=1"));
    };
    (0..replicas).for_each(|_| create(&mut shell));
    for _ in 0..seconds {
        shell.pass(1);
        for line in shell.tick() {
            let Some(name) = line.strip_prefix("bind ") else { continue };
            let (name, node) = name.split_once(' ').unwrap();
            shell.finish(name, node, BindOutcome::Bound);
            shell.apply(&format!("{name} 1g.5gb=1 on={node}"));
            reject(&mut shell, &format!("{name} 1g.5gb=1 on={node}"), UNEXPECTED);
            burnt += 1;
            create(&mut shell);
        }
    }
    burnt
}

#[test]
fn a_broken_node_costs_a_bounded_number_of_pods() {
    assert_eq!(burnt(100, 3_600), 56 + 11);
    assert!(burnt(100, 86_400) < 56 + 160);
}

#[test]
fn a_rejection_is_explained_and_others_go_elsewhere() {
    let mut shell = Shell::new(&["n0 1g.5gb=2", "n1 1g.5gb=1 2g.10gb=1"]);
    shell.apply("a 1g.5gb=1 on=n0");
    let told = reject(&mut shell, "a 1g.5gb=1 on=n0", UNEXPECTED);
    let words = "Node n0 turned the pod away after it was bound (UnexpectedAdmissionError): broken; pods that ask for \
                 nvidia.com/mig-1g.5gb are kept off the node for 5s";
    assert_eq!(told, [format!("rejected a: {words}")]);
    shell.apply("b 1g.5gb=1");
    shell.apply("c 1g.5gb=1");
    shell.apply("d cpu=1");
    let lines = shell.tick();
    assert!(lines.contains(&"bind b n1".to_owned()) && lines.contains(&"bind d n0".to_owned()), "{lines:?}");
    let reason =
        "1 Insufficient nvidia.com/mig-1g.5gb, 1 node(s) lately turned such pods away after they were bound";
    assert!(lines.contains(&format!("Unschedulable! c: 0/2 nodes are available: {reason}.")), "{lines:?}");
    // Nothing but time is waited for.
    assert_eq!(shell.engine.next_wakeup(), Some(shell.now + Duration::from_secs(5)));
    shell.pass(5);
    assert_eq!(shell.tick(), ["bind c n0"]);
}

#[test]
fn an_admitted_pod_ends_it() {
    let mut shell = Shell::new(&["n0 1g.5gb=9"]);
    reject(&mut shell, "a 1g.5gb=1 on=n0", UNEXPECTED);
    for text in ["b 1g.5gb=1", "c 1g.5gb=1", "d 1g.5gb=1"] {
        shell.apply(text);
    }
    assert!(shell.tick().iter().all(|line| line.starts_with("Unschedulable")));
    shell.pass(10);
    assert_eq!(shell.tick()[0], "bind b n0", "one tries");
    shell.apply("b 1g.5gb=1 on=n0");
    assert_eq!(shell.lengths(), [0, 0, 2, 0]);
    shell.pass(10);
    assert_eq!(shell.tick(), ["bind c n0", "bind d n0"]);
}

#[test]
fn what_says_nothing_of_other_pods_keeps_none_away() {
    let mut shell = Shell::new(&["n0 1g.5gb=1"]);
    let told = reject(&mut shell, "a 1g.5gb=1 on=n0", "Preempting");
    assert_eq!(told.len(), 1);
    shell.apply("b 1g.5gb=1");
    assert_eq!(shell.tick(), ["bind b n0"]);
}

#[test]
fn what_was_before_the_start_is_not_told_again() {
    let mut shell = Shell { engine: Engine::new(Options::default()), now: Time::from_secs(10_000) };
    shell.tell(Event::NodeApplied(node("n0 1g.5gb=1")));
    let mut old = pod("a 1g.5gb=1 on=n0");
    old.created = Time::from_secs(1);
    let rejection = |at| Rejection {
        pod: old.id.clone(),
        node: "n0".into(),
        spec: old.spec.clone(),
        at,
        reason: UNEXPECTED.to_owned(),
        message: "broken".to_owned(),
    };
    assert!(shell.tell(Event::PodRejected(rejection(Time::from_secs(1)))).is_empty());
    assert!(shell.engine.standoffs.is_empty(), "it is long past");
    assert!(shell.tell(Event::PodRejected(rejection(Time::from_secs(9_990)))).is_empty());
    shell.tell(Event::Synced);
    shell.apply("b 1g.5gb=1");
    assert_eq!(shell.tick().len(), 1);
    shell.pass(5);
    assert_eq!(shell.tick(), ["bind b n0"]);
}
