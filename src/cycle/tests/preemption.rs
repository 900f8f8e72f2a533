//! Who has to go, and where: kube-scheduler's rules, and slots.

use super::*;
use crate::mig::Placement;
use crate::model::{
    Budget, BudgetId, Budgets, DevicePlacement, LabelSelector, Operator as Op, Requirement as Needs,
};

/// `a 1g.5gb=1 on=n0 @0:3` holds its instance on GPU 0 from slice 3.
fn placed(text: &str) -> crate::model::Pod {
    let (text, place) = text.split_once(" @").unwrap_or((text, ""));
    let mut pod = pod(text);
    if let Some((gpu, start)) = place.split_once(':') {
        let placement = Placement::new(pod.spec.mig[0].profile, start.parse().unwrap());
        pod.placements = vec![DevicePlacement { gpu: gpu.parse().unwrap(), placement }];
    }
    pod
}

/// `app:web=1`: one of these may be missed.
fn budgets(texts: &[&str]) -> Budgets {
    let mut budgets = Budgets::default();
    for text in texts {
        let (pair, allowed) = text.split_once('=').unwrap();
        let (key, value) = pair.split_once(':').unwrap();
        let needs = Needs { key: key.into(), operator: Op::In, values: vec![value.into()] };
        let selector = LabelSelector::All(vec![needs]);
        let id = BudgetId { namespace: "ns".into(), name: (*text).into() };
        budgets.apply(id, Budget { selector, allowed: allowed.parse().unwrap(), ..Budget::default() });
    }
    budgets
}

/// Pods that run or are nominated (`nominated=n0`).
fn filled(nodes: &[&str], pods: &[&str]) -> Cluster {
    let mut cluster = cluster(nodes, &[]);
    for text in pods {
        let pod = placed(text);
        match (&pod.node, &pod.nominated) {
            (Some(node), _) => drop(cluster.cache.apply_pod(&pod, node)),
            (None, Some(node)) => drop(cluster.cache.nominate(&pod, node, &pod.placements)),
            (None, None) => panic!("{text}"),
        }
    }
    cluster
}

/// With these pods on the nodes and these budgets, `n0: a b` are the victims, `n0! a` if that goes against a budget, or the
/// reasons why there are none.
#[track_caller]
fn check(nodes: &[&str], pods: &[&str], with: &[&str], preemptor: &str, expected: &str) {
    let cluster = filled(nodes, pods);
    let preemptor = pod(preemptor);
    let kind = cluster.cache.kind_of(&preemptor);
    let mut rankings = Rankings::new(Scoring::LeastFragmentation);
    let uid = &preemptor.id.uid;
    let search = Search::new(&cluster.cache, &cluster.tables, &mut rankings, &kind, Some(uid));
    let found = match search.choose(&budgets(with), &mut 0) {
        Ok(found) => {
            let victims: String = found.victims.iter().map(|uid| format!(" {uid}")).collect();
            let mark = if found.violations > 0 { "!" } else { ":" };
            format!("{}{mark}{victims}", cluster.cache.at(found.node).name())
        }
        Err(why) => {
            let text = why.to_string();
            let start = format!("0/{} nodes are available: ", nodes.len());
            text.strip_prefix(&start).unwrap().trim_end_matches('.').to_owned()
        }
    };
    assert_eq!(found, expected, "{preemptor:?}");
}

const ONE: &[&str] = &["n0 1g.5gb=3"];

#[test]
fn whoever_matters_least_goes() {
    let pods = ["a 1g.5gb=1 on=n0 prio=5", "b 1g.5gb=1 on=n0 prio=1", "c 1g.5gb=1 on=n0 prio=3"];
    check(ONE, &pods, &[], "p 1g.5gb=1 prio=9", "n0: b");
    check(ONE, &pods, &[], "p 1g.5gb=2 prio=9", "n0: c b");
    check(ONE, &pods, &[], "p 1g.5gb=2 prio=3", "1 Insufficient nvidia.com/mig-1g.5gb");
    check(ONE, &pods, &[], "p 1g.5gb=1 prio=1", "1 No preemption victims found for incoming pod");
    check(ONE, &pods, &[], "p 1g.5gb=4 prio=9", "1 Preemption is not helpful for scheduling");
    let aged = ["a 1g.5gb=1 on=n0 started=9", "b 1g.5gb=1 on=n0 started=7", "c 1g.5gb=1 on=n0 started=8"];
    check(ONE, &aged, &[], "p 1g.5gb=1 prio=9", "n0: a");
}

#[test]
fn nobody_goes_in_vain() {
    // The idle pods and the one that holds something else are left alone.
    let pods = ["a cpu=1 on=n0", "b 2g.10gb=1 on=n0", "c 1g.5gb=3 on=n0 prio=2", "d cpu=7 on=n0"];
    check(&["n0 1g.5gb=3 2g.10gb=1"], &pods, &[], "p 1g.5gb=1 prio=9", "n0: c");
    // Each of two resources has its own victim.
    let pods = ["a 1g.5gb=1 on=n0", "b cpu=4000 on=n0", "c cpu=100 on=n0"];
    check(&["n0 cpu=4200 1g.5gb=1"], &pods, &[], "p cpu=2000 1g.5gb=1 prio=9", "n0: a b");
}

#[test]
fn what_no_end_of_a_pod_brings_is_not_looked_for() {
    let nodes = ["n0 1g.5gb=1 taint=gpu", "n1 1g.5gb=1 cordoned", "n2 1g.5gb=1 label=zone:b", "n3 3g.20gb=1"];
    let pods = ["a 1g.5gb=1 on=n0", "b 1g.5gb=1 on=n1", "c 1g.5gb=1 on=n2", "d 3g.20gb=1 on=n3"];
    check(&nodes, &pods, &[], "p 1g.5gb=1 prio=9 zone=a", "4 Preemption is not helpful for scheduling");
    check(&nodes, &pods, &[], "p 1g.5gb=1 prio=9 tolerates=gpu zone=b", "n2: c");
    let unsettled = ["n0 1g.5gb=1 state=pending"];
    check(&unsettled, &pods[..1], &[], "p 1g.5gb=1 prio=9", "1 Preemption is not helpful for scheduling");
}

#[test]
fn budgets_are_kept_where_that_is_possible() {
    let pods = ["a 1g.5gb=1 on=n0 label=app:web", "b 1g.5gb=1 on=n0 prio=5", "c 1g.5gb=1 on=n0 prio=6"];
    check(ONE, &pods, &[], "p 1g.5gb=1 prio=9", "n0: a");
    check(ONE, &pods, &["app:web=1"], "p 1g.5gb=1 prio=9", "n0: a");
    check(ONE, &pods, &["app:web=0"], "p 1g.5gb=1 prio=9", "n0: b");
    check(ONE, &pods, &["app:web=0"], "p 1g.5gb=3 prio=9", "n0! c b a");
    let two = ["n0 1g.5gb=1", "n1 1g.5gb=1"];
    let pods = ["a 1g.5gb=1 on=n0 label=app:web", "b 1g.5gb=1 on=n1 prio=5"];
    check(&two, &pods, &["app:web=0"], "p 1g.5gb=1 prio=9", "n1: b");
    check(&two, &pods, &["app:web=0"], "p 1g.5gb=1 prio=4", "n0! a");
}

#[test]
fn the_node_where_least_is_lost_is_chosen() {
    let two = ["n0 cpu=4000", "n1 cpu=4000"];
    let preemptor = "p cpu=4000 prio=9";
    // The lowest of the highest priorities, whatever else.
    let pods = ["a cpu=4000 on=n0 prio=3", "b cpu=2000 on=n1 prio=2", "c cpu=2000 on=n1 prio=2"];
    check(&two, &pods, &[], preemptor, "n1: b c");
    // Then the smallest sum, where fewer pods weigh less.
    let pods = ["a cpu=2000 on=n0 prio=3", "b cpu=2000 on=n0 prio=1", "c cpu=4000 on=n1 prio=3"];
    check(&two, &pods, &[], preemptor, "n1: c");
    let pods =
        ["a cpu=2000 on=n0 prio=3", "b cpu=2000 on=n0 prio=2", "c cpu=2000 on=n1 prio=3", "d cpu=2000 on=n1"];
    check(&two, &pods, &[], preemptor, "n1: c d");
    // Then whoever has run for less long.
    let pods = ["a cpu=4000 on=n0 started=5", "b cpu=4000 on=n1 started=6"];
    check(&two, &pods, &[], preemptor, "n1: b");
    // Then the first.
    check(&two, &["a cpu=4000 on=n0", "b cpu=4000 on=n1"], &[], preemptor, "n0: a");
}

const GPU: &[&str] = &["n0 A100-40GB*1"];

/// Seven pods that fill a GPU, the first begun first; those named have priority zero, the others one.
fn seven(cheap: &[usize]) -> Vec<String> {
    let pod = |at| {
        let priority = usize::from(!cheap.contains(&at));
        format!("s{at} 1g.5gb=1 on=n0 prio={priority} started={at} @0:{at}")
    };
    (0..7).map(pod).collect()
}

#[test]
fn slots_are_freed_that_make_an_instance_together() {
    let check = |cheap: &[usize], preemptor, expected| {
        let pods = seven(cheap);
        check(GPU, &pods.iter().map(String::as_str).collect::<Vec<_>>(), &[], preemptor, expected);
    };
    // Two of the cheap ones would be enough by count, in slots where no 2g fits.
    check(&[3, 6], "p 2g.10gb=1 prio=9", "n0: s2 s3");
    check(&[0, 5], "p 2g.10gb=1 prio=9", "n0: s4 s5");
    check(&[2, 3], "p 2g.10gb=1 prio=9", "n0: s2 s3");
    check(&[], "p 2g.10gb=1 prio=9", "n0: s4 s5");
    check(&[0, 1, 2, 3], "p 3g.20gb=1 prio=9", "n0: s0 s1 s2 s3");
    check(&[4, 5, 6], "p 3g.20gb=1 prio=9", "n0: s4 s5 s6");
    check(&[0], "p 2g.10gb=1 prio=1", "1 no free 2g.10gb slot");
    check(&[0, 1], "p 2g.10gb=1 prio=1", "n0: s0 s1");
}

/// Every set of pods, tried on GPUs filled at random: none that makes room costs less, and no victim can be left out.
#[test]
fn no_cheaper_set_makes_room_on_a_gpu() {
    let mut next = chance(11);
    let (mut found, profiles) = (0, ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "1g.10gb"]);
    for _ in 0..600 {
        let mut layout = crate::mig::Layout::empty(crate::mig::GpuModel::by_name("A100-40GB").unwrap());
        let mut pods = Vec::new();
        for at in 0..8 {
            let (profile, start) = (profiles[next(5) as usize], next(8));
            let placement = Placement::new(profile.parse().unwrap(), start as u8);
            if let Ok(larger) = layout.clone().with(placement) {
                layout = larger;
                let (priority, started) = (next(4), next(50));
                pods.push(format!("s{at} {profile}=1 on=n0 prio={priority} started={started} @0:{start}"));
            }
        }
        let texts: Vec<_> = pods.iter().map(String::as_str).collect();
        let preemptor = pod(&format!("p {}=1 prio={}", profiles[next(5) as usize], 1 + next(4)));
        let cluster = filled(GPU, &texts);
        let kind = cluster.cache.kind_of(&preemptor);
        let mut rankings = Rankings::new(Scoring::LeastFragmentation);
        let search = Search::new(&cluster.cache, &cluster.tables, &mut rankings, &kind, None);
        if search.fits(NodeIndex::default()).is_some() {
            continue;
        }
        let lower: Vec<_> = texts.iter().map(|text| placed(text)).collect();
        let lower: Vec<_> = lower.into_iter().filter(|pod| pod.priority < preemptor.priority).collect();
        let cost = |victims: &[&crate::model::Pod]| {
            let highest = victims.iter().map(|pod| pod.priority).max();
            (highest, victims.iter().map(|pod| i64::from(pod.priority) + (1 << 31)).sum::<i64>())
        };
        let makes_room = |victims: &[&crate::model::Pod]| {
            let rest: Vec<_> = texts
                .iter()
                .filter(|text| !victims.iter().any(|pod| pod.id.name == placed(text).id.name))
                .copied()
                .collect();
            let cluster = filled(GPU, &rest);
            let mut rankings = Rankings::new(Scoring::LeastFragmentation);
            let search = Search::new(&cluster.cache, &cluster.tables, &mut rankings, &kind, None);
            search.fits(NodeIndex::default()).is_some()
        };
        let sets = (0..1_u32 << lower.len()).map(|set| {
            let chosen = lower.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            chosen.map(|(_, pod)| pod).collect::<Vec<_>>()
        });
        let cheapest = sets.filter(|set| makes_room(set)).map(|set| cost(&set)).min();
        let chosen = search.choose(&Budgets::default(), &mut 0).ok().map(|chosen| {
            let chosen: Vec<_> = lower.iter().filter(|pod| chosen.victims.contains(&pod.id.uid)).collect();
            for at in 0..chosen.len() {
                let mut fewer = chosen.clone();
                fewer.remove(at);
                assert!(!makes_room(&fewer), "one of {chosen:?} goes in vain for {preemptor:?}");
            }
            cost(&chosen)
        });
        assert_eq!(chosen, cheapest, "{preemptor:?} on {texts:?}");
        found += usize::from(chosen.is_some());
    }
    assert!(found > 100, "{found} found: hardly a test");
}

#[test]
fn places_kept_for_others_are_not_taken() {
    let two = ["n0 1g.5gb=1", "n1 1g.5gb=1"];
    let pods = ["a 1g.5gb=1 on=n0", "b 1g.5gb=1 on=n1 prio=3", "q 1g.5gb=1 prio=7 nominated=n0"];
    check(&two, &pods, &[], "p 1g.5gb=1 prio=7", "n1: b");
    check(&two, &pods, &[], "p 1g.5gb=1 prio=8", "n0: a");
    check(&two, &pods[..2], &[], "p 1g.5gb=1 prio=7", "n0: a");
    // Its own place is not in its way.
    check(&two, &pods, &[], "q 1g.5gb=1 prio=7", "n0: a");
    let pods = ["a 1g.5gb=1 on=n0 prio=1 @0:0", "b 3g.20gb=1 on=n0 @0:4", "c 2g.10gb=1 on=n0 @0:2"];
    let kept = ["q 2g.10gb=1 prio=7 nominated=n0 @0:2"];
    // Who is in the place that is kept has to go in any case.
    check(GPU, &[&pods[..], &kept].concat(), &[], "p 3g.20gb=1 prio=7", "n0: b c");
    check(GPU, &[&pods[..2], &kept].concat(), &[], "p 2g.10gb=1 prio=7", "n0: b");
}

#[test]
fn other_pods_have_their_say() {
    let two = ["n0 1g.5gb=1 label=host:n0", "n1 1g.5gb=1 label=host:n1"];
    let apart = "p 1g.5gb=1 prio=9 label=app:web apart=host/app:web";
    // One that stays keeps it out of n0, one that goes does not.
    let pods = ["x cpu=1 on=n0 prio=9 label=app:web", "a 1g.5gb=1 on=n0", "b 1g.5gb=1 on=n1 prio=5"];
    check(&two, &pods, &[], apart, "n1: b");
    let pods = ["x cpu=1 on=n0 label=app:web", "a 1g.5gb=1 on=n0", "b 1g.5gb=1 on=n1 prio=5"];
    check(&two, &pods, &[], apart, "n0: a x");
    // Nobody goes whom the pod wants to be near.
    let near = "p 1g.5gb=1 prio=9 near=host/app:web";
    check(
        &two,
        &["a 1g.5gb=1 on=n0 label=app:web"],
        &[],
        near,
        "1 No preemption victims found for incoming pod, 1 node(s) didn't match pod affinity rules",
    );
}

/// On the way to a spread the domain that loses a pod may become the emptiest.
#[test]
fn spreading_counts_who_is_left() {
    let two = ["n0 1g.5gb=1 label=zone:a", "n1 1g.5gb=1 label=zone:b"];
    let spread = "p 1g.5gb=1 prio=9 label=app:web spread=zone/app:web/1";
    let pods =
        ["a 1g.5gb=1 on=n0 label=app:web", "b cpu=1 on=n0 prio=9 label=app:web", "c 1g.5gb=1 on=n1 prio=4"];
    check(&two, &pods, &[], spread, "n1: c");
    let pods = ["a 1g.5gb=1 on=n0 label=app:web", "c 1g.5gb=1 on=n1 prio=9"];
    check(&two, &pods, &[], spread, "n0: a");
}

#[test]
fn a_nominated_pod_is_yielded_to_by_its_equals_and_lessers() {
    let pods = ["q 1g.5gb=2 prio=7 nominated=n0"];
    let cluster = filled(ONE, &pods);
    let goes = |text: &str| cluster.decide(Scoring::LeastFragmentation, text);
    assert_eq!(goes("p 1g.5gb=1 prio=7"), "n0");
    assert_eq!(goes("p 1g.5gb=2 prio=8"), "n0");
    assert!(goes("p 1g.5gb=2 prio=7").contains("Insufficient nvidia.com/mig-1g.5gb"));
    // It is not there yet, so nobody finds company in it, but may be kept away by it.
    let nodes = ["n0 label=host:n0"];
    let cluster = filled(&nodes, &["q prio=7 label=app:web apart=host/app:db nominated=n0"]);
    let goes = |text: &str| cluster.decide(Scoring::LeastFragmentation, text);
    assert!(goes("p near=host/app:web").contains("affinity"));
    assert!(goes("p label=app:db").contains("anti-affinity"));
    assert_eq!(goes("p label=app:db prio=8"), "n0");
    assert_eq!(goes("p label=app:x"), "n0");
}
