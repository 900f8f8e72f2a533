//! Claims that wait for their first consumer: what is chosen for them, and what happens until the pod is bound.

use super::volumes::check;
use super::*;
use crate::engine::Examination;
use crate::fixture::{chance, storage};

const NODES: [&str; 2] = ["n0 label=zone:a", "n1 label=zone:b"];
const FAILED: &str = "SchedulerError! p: running PreBind plugin \"VolumeBinding\": binding volumes: ";

impl Shell {
    fn written(&mut self, attempt: u64, outcome: Result<Vec<u64>, &str>) -> Vec<String> {
        let outcome = outcome.map_err(str::to_owned);
        self.tell(Event::ClaimsWritten { uid: "p".into(), attempt, outcome })
    }
}

/// A cluster with these objects and the pod `p`, which uses the claim `data`.
fn world(objects: &[&str]) -> Shell {
    let mut shell = Shell::new(&NODES);
    objects.iter().for_each(|text| drop(shell.tell(Event::StorageApplied(storage(text)))));
    shell.apply("p claim=data zone=a");
    shell
}

fn store(shell: &mut Shell, text: &str) -> Vec<String> {
    shell.tell(Event::StorageApplied(storage(text)))
}

/// One that waits until a volume is made for it on `n0`.
fn provisioning() -> Shell {
    let mut shell = world(&["class slow", "claim data class=slow"]);
    assert_eq!(shell.tick(), ["write p n0 #1: data@1"]);
    assert!(shell.written(1, Ok(vec![5])).is_empty());
    shell
}

#[test]
fn a_volume_is_made_before_the_pod_is_bound() {
    let mut shell = provisioning();
    assert!(store(&mut shell, "claim data class=slow version=5 node=n0").is_empty());
    assert!(store(&mut shell, "volume made class=slow for=data uid=data at=zone:a").is_empty());
    assert!(store(&mut shell, "claim data class=slow version=6 node=n0 volume=made prebound").is_empty());
    assert!(shell.tick().is_empty(), "it is not bound yet");
    assert!(store(&mut shell, "claim data class=slow version=7 node=n0 volume=made").is_empty());
    assert_eq!(shell.engine.next_wakeup(), Some(Time::ZERO));
    assert!(shell.tell(Event::Tick { budget: 0 }).is_empty(), "the bind lane is full");
    assert_eq!(shell.tick(), ["bind p n0"]);
    assert_eq!(shell.finish("p", "n0", BindOutcome::Bound), ["scheduled p n0"]);
    assert_eq!(shell.engine.next_wakeup(), None);
}

#[test]
fn what_is_seen_before_the_answer_counts() {
    let mut shell = world(&["class slow", "claim data class=slow"]);
    shell.tick();
    store(&mut shell, "volume made class=slow for=data uid=data");
    store(&mut shell, "claim data class=slow version=7 node=n0 volume=made");
    assert!(shell.tick().is_empty());
    shell.written(1, Ok(vec![5]));
    assert_eq!(shell.tick(), ["bind p n0"]);
}

#[test]
fn a_claim_that_is_turned_back_is_tried_again() {
    let mut shell = provisioning();
    assert!(store(&mut shell, "claim data class=slow version=4").is_empty(), "older than what was written");
    shell.pass(5);
    let told = store(&mut shell, "claim data class=slow version=6");
    assert_eq!(told, [format!("{FAILED}provisioning failed for PVC \"data\"")]);
    assert_eq!((shell.lengths(), shell.engine.cache().pod_count()), ([0, 1, 0, 0], 0));
    assert!(shell.written(1, Ok(vec![9])).is_empty(), "a late answer means nothing");
    shell.pass(60);
    assert_eq!(shell.tick(), ["write p n0 #2: data@6"]);
}

#[test]
fn whatever_ends_the_wait_gives_the_place_back() {
    let one = |end: fn(&mut Shell) -> Vec<String>, expected: &[String], left: usize| {
        let mut shell = provisioning();
        assert_eq!(end(&mut shell), expected);
        assert_eq!((shell.engine.cache().pod_count(), shell.engine.queue().pods().count()), (0, left));
        assert!(shell.written(1, Ok(vec![9])).is_empty());
    };
    let failed = |why: &str| vec![format!("{FAILED}{why}")];
    one(|shell| shell.tell(Event::PodDeleted("p".into())), &[], 0);
    one(
        |shell| store(shell, "claim data class=slow version=6"),
        &failed("provisioning failed for PVC \"data\""),
        1,
    );
    one(
        |shell| shell.tell(Event::StorageDeleted(storage("claim data").key())),
        &failed("failed to check provisioning pvc: persistentvolumeclaims \"data\" not found"),
        1,
    );
    one(
        |shell| shell.tell(Event::NodeDeleted("n0".into())),
        &failed("failed to get node \"n0\": node \"n0\" not found"),
        1,
    );
    one(
        |shell| {
            store(shell, "volume made for=data uid=data at=zone:b");
            store(shell, "claim data class=slow version=7 node=n0 volume=made")
        },
        &failed("pv \"made\" node affinity doesn't match node \"n0\": no matching NodeSelectorTerms"),
        1,
    );
    let mut shell = provisioning();
    shell.pass(599);
    assert!(shell.tick().is_empty());
    assert_eq!(shell.engine.next_wakeup(), Some(shell.now + Duration::from_secs(1)));
    shell.pass(1);
    assert_eq!(shell.tick(), failed("context deadline exceeded"));
    let mut shell = provisioning();
    shell.apply("p claim=data zone=a on=n1");
    assert_eq!((shell.lengths(), shell.engine.cache().assumed_count()), ([0; 4], 0));
    assert_eq!(shell.engine.next_wakeup(), None, "somebody else bound it");
    let mut shell = world(&["class slow", "claim data class=slow"]);
    shell.tick();
    assert_eq!(shell.written(1, Err("conflict")), failed("conflict"));
}

#[test]
fn the_smallest_volume_that_suits_is_kept_for_the_claim() {
    let class = "class local by=kubernetes.io/no-provisioner";
    let volumes = ["volume large class=local size=9 at=zone:a", "volume fits class=local size=5 at=zone:a"];
    let mut shell = world(&[class, volumes[0], volumes[1], "claim data class=local size=4"]);
    assert_eq!(shell.tick(), ["write p n0 #1: fits@1 for data"]);
    // Nobody else gets it meanwhile.
    store(&mut shell, "claim other class=local size=4");
    store(&mut shell, "claim third class=local size=4");
    shell.apply("q claim=other zone=a");
    shell.apply("r claim=third zone=a");
    let none = "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, 1 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(
        shell.tick(),
        ["write q n0 #2: large@1 for other".to_owned(), format!("Unschedulable! r: {none}")]
    );
    shell.written(1, Ok(vec![2]));
    store(&mut shell, "volume fits class=local size=5 at=zone:a for=data uid=data version=2");
    assert!(shell.tick().is_empty());
    store(&mut shell, "claim data class=local size=4 volume=fits");
    assert_eq!(shell.tick(), ["bind p n0"]);
    // What is given back helps whoever waits for it.
    shell.pass(60);
    shell.tell(Event::PodDeleted("q".into()));
    assert_eq!(shell.tick(), ["write r n0 #3: large@1 for third"]);
}

#[test]
fn a_volume_that_is_taken_away_again_is_noticed() {
    let class = "class local by=kubernetes.io/no-provisioner";
    for (event, why) in [
        ("volume v class=local version=3", "ClaimRef got reset for pv \"v\""),
        ("-volume v", "failed to check binding: persistentvolumes \"v\" not found"),
    ] {
        let mut shell = world(&[class, "volume v class=local", "claim data class=local"]);
        assert_eq!(shell.tick(), ["write p n0 #1: v@1 for data"]);
        shell.written(1, Ok(vec![2]));
        let told = match event.strip_prefix('-') {
            Some(text) => shell.tell(Event::StorageDeleted(storage(text).key())),
            None => store(&mut shell, event),
        };
        assert_eq!(told, [format!("{FAILED}{why}")]);
    }
}

#[test]
fn which_nodes_a_waiting_claim_allows() {
    let local = "class slow by=kubernetes.io/no-provisioner";
    let check = |objects: &[&str], expected: &str| check(&NODES, objects, &[], "p claim=data", expected);
    let none = "2 node(s) didn't find available persistent volumes to bind.";
    let small = "claim data class=slow size=4";
    check(&["class slow", small], "n0 n1");
    check(&["class slow at=zone:a", small], "n0");
    check(&["class slow at=zone:c", small], none);
    check(&[local, small], none);
    check(&[local, small, "volume v class=slow size=4 at=zone:b"], "n1");
    check(&[local, small, "volume v class=slow size=3"], none);
    check(&[local, small, "volume v class=other size=4"], none);
    check(&[local, small, "volume v class=slow size=4 released"], none);
    check(&[local, small, "volume v class=slow size=4 terminating"], none);
    check(&[local, small, "volume v class=slow size=4 block"], none);
    check(&[local, small, "volume v class=slow size=4 for=another"], none);
    check(&[local, small, "volume v class=slow size=4 at=zone:a for=data"], "n0");
    check(&[local, small, "volume v class=slow size=4 for=data uid=before"], none);
    check(&[local, "claim data class=slow mode=RWX", "volume v class=slow mode=RWO"], none);
    check(&[local, "claim data class=slow mode=RWX", "volume v class=slow mode=RWO mode=RWX"], "n0 n1");
    check(&[local, "claim data class=slow select=tier:gold", "volume v class=slow"], none);
    check(&[local, "claim data class=slow select=tier:gold", "volume v class=slow label=tier:gold"], "n0 n1");
    // What was begun for one node goes on there.
    check(&["class slow", "claim data class=slow node=n1"], "n1");
    check(&["class slow", "claim data class=slow node=n9"], none);
    // A volume made for it is the same on each node that its driver has room for.
    let tracked =
        |objects: &[&'static str]| [&["class slow", small, "driver csi.x tracks"], objects].concat();
    check(&tracked(&[]), "2 node(s) did not have enough free storage.");
    check(&tracked(&["capacity c class=slow at=zone:a limit=4"]), "n0");
    check(
        &tracked(&["capacity c class=slow at=zone:a limit=3"]),
        "2 node(s) did not have enough free storage.",
    );
    check(
        &tracked(&["capacity c class=other at=zone:a limit=9"]),
        "2 node(s) did not have enough free storage.",
    );
    check(&tracked(&["capacity c class=slow at=zone:a"]), "2 node(s) did not have enough free storage.");
    check(&tracked(&["volume v class=slow size=4 at=zone:b"]), "n1");
}

#[test]
fn volumes_that_lie_on_a_node() {
    let nodes = ["n0 label=host:h0", "n1 label=host:h1", "n2"];
    let one = |volumes: &[&str], expected: &str| {
        let local = ["class local by=kubernetes.io/no-provisioner", "claim data class=local size=2"];
        check(&nodes, &[&local, volumes].concat(), &[], "p claim=data", expected);
    };
    one(&["volume v class=local size=2 at=host:h1"], "n1");
    one(&["volume v class=local size=2 at=host:h1 at=host:h0"], "n0 n1");
    one(&["volume v class=local size=2 at=host:h1 at=!host"], "n1 n2");
    one(&["volume v class=local size=2 at=host:h1+zone:a", "volume w class=local size=2 at=host:h0"], "n0");
    one(&["volume v class=local size=1 at=host:h0", "volume w class=local size=3 at=host:h0"], "n0");
    let none = "3 node(s) didn't find available persistent volumes to bind.";
    one(&["volume v class=local size=2 at=host:h1+host:h0"], none);
}

#[test]
fn two_claims_get_two_volumes() {
    let objects = [
        "class local by=kubernetes.io/no-provisioner",
        "claim a class=local size=4",
        "claim b class=local size=2",
        "volume v class=local size=4 at=zone:a",
    ];
    let two = |more: &str, expected: &str| {
        let objects: Vec<_> = objects.into_iter().chain([more]).collect();
        check(&NODES, &objects, &[], "p claim=a claim=b", expected);
    };
    let none = "2 node(s) didn't find available persistent volumes to bind.";
    two("volume w class=local size=3 at=zone:b", none);
    two("volume w class=local size=3 at=zone:a", "n0");
    two("volume w class=local size=1 at=zone:a", none);
}

#[test]
fn pods_that_share_a_claim_follow_the_first() {
    let mut shell = world(&["class slow", "claim data class=slow"]);
    shell.tick();
    shell.apply("q claim=data");
    assert_eq!(shell.tick(), ["write q n0 #2: data@1"], "where the first goes");
    shell.apply("r claim=data zone=b");
    let none = "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, 1 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(shell.tick(), [format!("Unschedulable! r: {none}")]);
    // Both give up: the claim is anybody's again.
    shell.pass(60);
    shell.tell(Event::PodDeleted("p".into()));
    assert!(shell.tick().is_empty());
    shell.tell(Event::PodDeleted("q".into()));
    assert_eq!(shell.tick(), ["write r n1 #3: data@1"]);
}

#[test]
fn what_wakes_a_pod_whose_claim_finds_no_volume() {
    let local = "class local by=kubernetes.io/no-provisioner";
    for helpful in ["volume v class=local at=zone:a", "class local", "claim data class=fast"] {
        let mut shell = world(&[local, "class fast", "claim data class=local"]);
        shell.tick();
        shell.pass(60);
        for vain in
            ["volume w class=local at=zone:b", "volume x class=fast", "claim other class=local", "driver d"]
        {
            store(&mut shell, vain);
        }
        assert_eq!(shell.lengths(), [0, 0, 1, 0]);
        store(&mut shell, helpful);
        assert_eq!(shell.tick().len(), 1, "{helpful}");
        assert_eq!(shell.lengths(), [0; 4], "{helpful}");
    }
    // A volume that is kept for the claim grows.
    let mut shell = world(&[local, "claim data class=local size=2", "volume v class=local size=1 for=data"]);
    shell.tick();
    shell.pass(60);
    store(&mut shell, "volume v class=local size=2 for=data version=2");
    assert_eq!(shell.tick(), ["write p n0 #1: v@2 for data"]);
    let mut shell = world(&["class slow", "claim data class=slow size=4", "driver csi.x tracks"]);
    shell.tick();
    shell.pass(60);
    store(&mut shell, "capacity c class=slow at=zone:a limit=3");
    assert_eq!(shell.lengths(), [0, 0, 1, 0]);
    store(&mut shell, "capacity c class=slow at=zone:a limit=4");
    assert_eq!(shell.tick(), ["write p n0 #1: data@1"]);
}

/// An object of storage, by chance, with few names so that they meet.
fn random_object(next: &mut impl FnMut(u64) -> u64) -> String {
    let mut any = |words: &[&str]| words[next(words.len() as u64) as usize].to_owned();
    let class = any(&["class=slow", "class=local", ""]);
    let at = any(&["", "at=zone:a", "at=zone:b"]);
    let size = any(&["size=1", "size=2", "size=3"]);
    match &*any(&[
        "claim",
        "claim",
        "claim",
        "volume",
        "volume",
        "volume",
        "class",
        "csinode",
        "capacity",
        "attachment",
    ]) {
        "claim" => {
            let volume = any(&["", "", "volume=v0", "volume=v1", "volume=v2", "volume=v1 prebound"]);
            let rest =
                any(&["", "", "", "mode=ReadWriteOncePod", "node=n0", "terminating", "lost", "owner=p1"]);
            format!("claim {} {class} {size} {volume} {rest}", any(&["c0", "c1", "c2", "p1-own"]))
        }
        "volume" => {
            let kept = any(&["", "", "for=c0", "for=c1 uid=c1", "for=c2 uid=old", "released", "terminating"]);
            format!(
                "volume {} {class} {at} {size} {kept} {}",
                any(&["v0", "v1", "v2"]),
                any(&["", "handle=h"])
            )
        }
        "class" => any(&[
            "class slow",
            "class slow at=zone:a",
            "class slow immediate",
            "class local by=kubernetes.io/no-provisioner",
        ]),
        "csinode" => format!("csinode {} csi.x={}", any(&["n0", "n1"]), any(&["0", "1", "2", "3"])),
        "capacity" => {
            any(&["driver csi.x tracks", "driver csi.x", "capacity r class=slow at=zone:b limit=2"])
        }
        _ => {
            format!("attachment {} on={} volume={}", any(&["x", "y"]), any(&["n0", "n1"]), any(&["v0", "v1"]))
        }
    }
}

/// Whatever happens to storage and in whatever order, a waiting pod is one that no node can take now, and in the end nothing is
/// held for pods that are gone.
#[test]
fn random_histories_leave_no_pod_waiting_that_has_a_place() {
    for seed in 0..60 {
        let mut next = chance(seed);
        let mut shell = Shell::new(&NODES);
        let mut known: Vec<String> = Vec::new();
        let mut asked: Vec<(String, u64, usize)> = Vec::new();
        for step in 0..250 {
            let number = next(6);
            let name = format!("p{number}");
            let mounts = ["claim=c0", "claim=c1", "claim=c2", "claim=c1 claim=c2", "ephemeral=own", ""]
                [number as usize];
            match next(12) {
                0..=4 => {
                    let text = random_object(&mut next);
                    store(&mut shell, &text);
                    known.push(text);
                }
                5 if !known.is_empty() => {
                    let at = next(known.len() as u64) as usize;
                    shell.tell(Event::StorageDeleted(storage(&known.swap_remove(at)).key()));
                }
                6 => drop(shell.apply(&format!("q{step} by=other on=n{} {mounts}", next(2)))),
                7 => drop(shell.tell(Event::PodDeleted(format!("q{}", next(step + 1)).as_str().into()))),
                8 => drop(shell.tell(Event::PodDeleted(name.as_str().into()))),
                9 => shell.pass(next(700)),
                10 if !asked.is_empty() => {
                    let (uid, attempt, writes) = asked.swap_remove(next(asked.len() as u64) as usize);
                    let outcome = if next(4) == 0 { Err("no".to_owned()) } else { Ok(vec![2; writes]) };
                    shell.tell(Event::ClaimsWritten { uid: uid.as_str().into(), attempt, outcome });
                }
                _ => drop(shell.apply(&format!("{name} {mounts}"))),
            }
            if next(2) == 0 {
                for line in shell.tick() {
                    let words: Vec<_> = line.split_whitespace().collect();
                    match words[0] {
                        "write" => {
                            let attempt = words[3].trim_matches(['#', ':']).parse().unwrap();
                            asked.push((
                                words[1].to_owned(),
                                attempt,
                                words.iter().filter(|word| word.contains('@')).count(),
                            ));
                        }
                        "bind" => drop(shell.finish(words[1], words[2], BindOutcome::Bound)),
                        _ => {}
                    }
                }
            }
            let queue = shell.engine.queue().pods();
            let waiting = queue.filter(|(_, queue)| *queue == Some(QueueName::Unschedulable));
            let waiting: Vec<_> = waiting.map(|(queued, _)| queued.pod.clone()).collect();
            for pod in waiting {
                let found = shell.engine.examine(&pod);
                assert!(
                    matches!(found, Examination::Refused(_)),
                    "seed {seed}, step {step}: {} {found:?}",
                    pod.id
                );
            }
        }
        let uids: Vec<_> = (0..6).map(|n| format!("p{n}")).collect();
        uids.iter().for_each(|uid| drop(shell.tell(Event::PodDeleted(uid.as_str().into()))));
        assert_eq!((shell.engine.cache().assumed_count(), shell.lengths()), (0, [0; 4]), "seed {seed}");
        assert!(shell.engine.cache().storage().is_settled(), "seed {seed}");
    }
}
