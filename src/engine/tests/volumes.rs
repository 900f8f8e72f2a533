//! Volumes: which nodes a pod's claims allow, in which words it waits, and what wakes it.

use super::*;
use crate::engine::Examination;
use crate::fixture::storage;

/// Nodes in three zones, the last of which says nothing of itself.
const NODES: [&str; 3] = ["n0 label=zone:a label=host:n0", "n1 label=zone:b label=host:n1", "n2"];

impl Shell {
    fn store(&mut self, text: &str) -> Vec<String> {
        self.tell(Event::StorageApplied(storage(text)))
    }

    fn unstore(&mut self, text: &str) -> Vec<String> {
        self.tell(Event::StorageDeleted(storage(text).key()))
    }

    /// The nodes that can take a pod, sorted; or why none can, without the number of nodes.
    fn asks(&mut self, text: &str) -> String {
        match self.engine.examine(&pod(text)) {
            Examination::Gated => "gated".to_owned(),
            Examination::Feasible(mut nodes) => {
                nodes.sort();
                nodes.iter().map(|node| node.as_str()).collect::<Vec<_>>().join(" ")
            }
            Examination::Refused(why) => {
                let why = why.to_string();
                why.split_once("available: ").map_or(why.clone(), |(_, why)| why.to_owned())
            }
        }
    }
}

/// What becomes of `pod` beside `objects` and the pods on nodes.
#[track_caller]
pub(super) fn check(nodes: &[&str], objects: &[&str], bound: &[&str], pod: &str, expected: &str) {
    let mut shell = Shell::new(nodes);
    objects.iter().for_each(|text| drop(shell.store(text)));
    bound.iter().for_each(|text| drop(shell.apply(text)));
    assert_eq!(shell.asks(pod), expected, "{pod} {objects:?} {bound:?}");
    // The order in which things become known does not matter.
    let mut shell = Shell::new(&[]);
    bound.iter().for_each(|text| drop(shell.apply(text)));
    objects.iter().rev().for_each(|text| drop(shell.store(text)));
    nodes.iter().for_each(|text| drop(shell.tell(Event::NodeApplied(node(text)))));
    assert_eq!(shell.asks(pod), expected, "{pod} {objects:?} {bound:?}, told backwards");
}

#[test]
fn claims_that_have_to_become_something_else_first() {
    let check = |objects: &[&str], pod: &str, expected: &str| check(&NODES, objects, &[], pod, expected);
    check(&[], "p claim=data", "persistentvolumeclaim \"data\" not found.");
    check(&["claim other/data volume=v"], "p claim=data", "persistentvolumeclaim \"data\" not found.");
    check(
        &[],
        "p ephemeral=scratch",
        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-scratch\".",
    );
    check(
        &["claim p-scratch volume=v", "volume v"],
        "p ephemeral=scratch",
        "PVC ns/p-scratch was not created for pod ns/p (pod is not owner).",
    );
    check(&["claim p-scratch volume=v owner=p", "volume v"], "p ephemeral=scratch", "n0 n1 n2");
    check(
        &["claim data volume=v lost"],
        "p claim=data",
        "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"v\".",
    );
    check(
        &["claim data volume=v terminating", "volume v"],
        "p claim=data",
        "persistentvolumeclaim \"data\" is being deleted.",
    );
    check(&["claim data volume=v"], "p claim=data", "persistentvolume \"v\" not found.");
    check(
        &["claim p-scratch volume=v owner=p"],
        "p ephemeral=scratch",
        "3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
    );
    let unbound = "pod has unbound immediate PersistentVolumeClaims.";
    check(&["claim data"], "p claim=data", unbound);
    check(&["claim data class=slow"], "p claim=data", unbound);
    check(&["claim data class=slow", "class slow immediate"], "p claim=data", unbound);
    check(&["claim data class=slow volume=v prebound", "class slow", "volume v"], "p claim=data", unbound);
}

#[test]
fn where_bound_volumes_can_be_reached_from() {
    let check = |volume: &str, expected: &str| {
        check(&NODES, &["claim data volume=v", volume], &[], "p claim=data", expected);
    };
    check("volume v", "n0 n1 n2");
    check("volume v at=zone:a", "n0");
    check("volume v at=zone:a at=host:n1", "n0 n1");
    check("volume v at=zone:a+host:n1", "3 node(s) didn't match PersistentVolume's node affinity.");
    check("volume v at=zone:c", "3 node(s) didn't match PersistentVolume's node affinity.");
}

#[test]
fn zones_by_label() {
    const TODAY: &str = "topology.kubernetes.io/zone";
    const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
    let check = |label: &str, own: &str, expected: &str| {
        let node = if own.is_empty() { "n0".to_owned() } else { format!("n0 label={own}") };
        check(
            &[&node],
            &["claim data volume=v", &format!("volume v label={label}")],
            &[],
            "p claim=data",
            expected,
        );
    };
    let no = "1 node(s) had no available volume zone.";
    check(&format!("{TODAY}:a"), &format!("{TODAY}:a"), "n0");
    check(&format!("{TODAY}:a"), &format!("{TODAY}:b"), no);
    check(&format!("{TODAY}:a__b"), &format!("{TODAY}:b"), "n0");
    check(&format!("{TODAY}:a__"), &format!("{TODAY}:b"), "n0");
    check(&format!("{BETA}:a"), &format!("{TODAY}:a"), "n0");
    check(&format!("{BETA}:a"), &format!("{TODAY}:b"), no);
    check(&format!("{TODAY}:a"), &format!("{BETA}:a"), no);
    check(&format!("{TODAY}:a"), "topology.kubernetes.io/region:a", no);
    check(&format!("{TODAY}:a"), "", "n0");
    check("zone:a", &format!("{TODAY}:b"), "n0");
}

#[test]
fn a_claim_for_one_pod_alone() {
    let objects = ["claim data volume=v mode=ReadWriteOncePod", "volume v"];
    check(&NODES, &objects, &[], "p claim=data", "n0 n1 n2");
    let taken = "3 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod.";
    check(&NODES, &objects, &["q on=n0 claim=data"], "p claim=data", taken);
    check(&NODES, &objects, &["q on=n0 claim=data ns=other"], "p claim=data", "n0 n1 n2");
    check(&NODES, &["claim data volume=v", "volume v"], &["q on=n0 claim=data"], "p claim=data", "n0 n1 n2");
}

#[test]
fn disks_that_are_not_shared() {
    check(&NODES[..2], &[], &["q on=n0 ebs=vol-1"], "p ebs=vol-1", "n1");
    check(&NODES[..2], &[], &["q on=n0 ebs=vol-1"], "p ebs=vol-2", "n0 n1");
    check(&NODES[..1], &[], &["q on=n0 ebs=vol-1"], "p ebs=vol-1", "1 node(s) had no available disk.");
    wakes(&[], &["q on=n0 ebs=vol-1", "r on=n0"], "p ebs=vol-1", &["-r"], &["-q"]);
}

#[test]
fn attach_limits() {
    let all_ways = check;
    let full = "1 node(s) exceed max volume count.";
    let check = |objects: &[&str], bound: &[&str], pod: &str, expected: &str| {
        let volumes = ["claim a volume=va", "volume va", "claim b volume=vb", "volume vb", "class slow"];
        let unbound = ["claim c class=slow"];
        let all: Vec<&str> = volumes.iter().chain(&unbound).chain(objects).copied().collect();
        all_ways(&["n0"], &all, bound, pod, expected);
    };
    check(&[], &[], "p claim=a claim=b", "n0");
    check(&["csinode n0 csi.y=0"], &[], "p claim=a claim=b", "n0");
    check(&["csinode n0 csi.x=2"], &[], "p claim=a claim=b", "n0");
    check(&["csinode n0 csi.x=1"], &[], "p claim=a claim=b", full);
    check(&["csinode n0 csi.x=1"], &["q on=n0 claim=a"], "p claim=b", full);
    check(&["csinode n0 csi.x=1"], &["q on=n0 claim=a"], "p claim=a", "n0");
    check(&["csinode n0 csi.x=1"], &["q on=n0 claim=c"], "p claim=b", full);
    check(&["csinode n0 csi.x=1"], &["q on=n0 claim=unknown"], "p claim=b", "n0");
    // Volumes that one driver knows by one handle are one.
    let same = ["csinode n0 csi.x=1", "claim d volume=vd", "volume vd handle=va"];
    check(&same, &["q on=n0 claim=a"], "p claim=d", "n0");
    check(&same, &[], "p claim=a claim=d", "n0");
    // What is still attached for a pod that is gone counts; what a pod on the node uses counts once.
    let attached = |objects: &[&'static str]| [&["csinode n0 csi.x=1"], objects].concat();
    check(&attached(&["attachment x on=n0 volume=va"]), &[], "p claim=b", full);
    check(&attached(&["attachment x on=n9 volume=va"]), &[], "p claim=b", "n0");
    check(&attached(&["attachment x on=n0 volume=missing"]), &[], "p claim=b", "n0");
    check(&attached(&["attachment x on=n0 volume=va"]), &["q on=n0 claim=a"], "p claim=a", "n0");
}

/// What has to happen for a waiting pod to be tried again, and what does not do.
#[track_caller]
fn wakes(objects: &[&str], bound: &[&str], pod: &str, vain: &[&str], helpful: &[&str]) {
    let tell = |shell: &mut Shell, text: &str| match text.strip_prefix('-') {
        Some(text) if text.split_whitespace().count() == 1 => {
            drop(shell.tell(Event::PodDeleted(text.into())))
        }
        Some(text) => drop(shell.unstore(text)),
        None => drop(shell.store(text)),
    };
    for event in helpful {
        let mut shell = Shell::new(&["n0 label=zone:a"]);
        objects.iter().for_each(|text| drop(shell.store(text)));
        bound.iter().for_each(|text| drop(shell.apply(text)));
        shell.apply(pod);
        assert!(shell.tick()[0].starts_with("Unschedulable! p: "));
        shell.pass(60);
        vain.iter().for_each(|text| tell(&mut shell, text));
        assert_eq!(shell.lengths(), [0, 0, 1, 0], "{vain:?}");
        tell(&mut shell, event);
        assert_eq!(shell.tick(), ["bind p n0"], "{event}");
    }
}

#[test]
fn what_wakes_a_pod_with_claims() {
    let others = ["claim other volume=w", "volume w", "claim other/data volume=v", "volume v at=zone:b"];
    wakes(&["volume v"], &[], "p claim=data", &others[..3], &["claim data volume=v"]);
    wakes(
        &["claim data"],
        &[],
        "p claim=data",
        &["volume v", "claim data class=x"],
        &["claim data volume=v"],
    );
    wakes(&["claim data volume=v"], &[], "p claim=data", &others, &["volume v", "volume v at=zone:a"]);
    wakes(
        &["claim data volume=v terminating", "volume v"],
        &[],
        "p claim=data",
        &["-claim data"],
        &["claim data volume=v"],
    );
    let exclusive = ["claim data volume=v mode=ReadWriteOncePod", "volume v"];
    wakes(&exclusive, &["q on=n0 claim=data", "r on=n0"], "p claim=data", &["-r"], &["-q"]);
    let full = ["claim a volume=va", "volume va", "claim b volume=vb", "volume vb", "csinode n0 csi.x=1"];
    wakes(
        &full,
        &["q on=n0 claim=a", "r on=n0"],
        "p claim=b",
        &["-r", "csinode n1 csi.x=5", "attachment x on=n0 volume=va"],
        &["csinode n0 csi.x=2", "-csinode n0"],
    );
    wakes(&full, &["q on=n0 claim=a"], "p claim=b", &[], &["-q", "-claim a"]);
    let left = [&full[..], &["attachment x on=n0 volume=va"]].concat();
    wakes(
        &left,
        &[],
        "p claim=b",
        &["-attachment y on=n0 volume=va"],
        &["-attachment x on=n0 volume=va", "-volume va"],
    );
}

#[test]
fn a_pod_is_told_at_once_what_its_claims_lack_now() {
    let mut shell = Shell::new(&["n0"]);
    shell.apply("p claim=data");
    let told = |why: &str| vec![format!("Unschedulable p: 0/1 nodes are available: {why}.")];
    assert_eq!(
        shell.tick(),
        [format!("Unschedulable! p: {}", &told("persistentvolumeclaim \"data\" not found")[0][17..])]
    );
    assert_eq!(shell.store("claim data"), told("pod has unbound immediate PersistentVolumeClaims"));
    assert!(shell.store("claim other").is_empty());
    assert_eq!(shell.store("claim data volume=v"), told("persistentvolume \"v\" not found"));
    assert!(shell.store("volume v").is_empty());
    shell.pass(60);
    assert_eq!(shell.tick(), ["bind p n0"]);
}

#[test]
fn members_of_a_stateful_set_are_one_kind() {
    let mut shell = Shell::new(&["n0 pods=0", "n1 pods=0"]);
    for at in 0..3 {
        shell.store(&format!("claim data-{at} volume=v{at}"));
        shell.store(&format!("volume v{at} at=zone:a"));
        shell.apply(&format!("p{at} claim=data-{at}"));
    }
    shell.tick();
    let attempts = |name: &str| shell.engine.queue().get(&name.into()).unwrap().attempts;
    assert_eq!(["p0", "p1", "p2"].map(attempts), [1, 0, 0], "the first speaks for all");
}
