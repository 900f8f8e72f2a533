//! Each filter alone, the order of scores, the text of refusals, and rankings against a plain scan.

mod preemption;
mod relations;

use std::sync::Arc;

use super::*;
use crate::fixture::{chance, node, pod};
use crate::model::{Node, NodeSelectorTerm, Operator, Partitioning, PodSpec, Requirement, Unsupported};
use crate::solver::fragmentation::DemandMix;

struct Cluster {
    cache: Cache,
    tables: FragmentationTables,
}

fn cluster(nodes: &[&str], pods: &[&str]) -> Cluster {
    let mut cluster = Cluster { cache: Cache::default(), tables: FragmentationTables::default() };
    for text in nodes {
        cluster.add(node(text));
    }
    for text in pods {
        let pod = pod(text);
        cluster.cache.apply_pod(&pod, pod.node.as_ref().unwrap());
    }
    cluster
}

impl Cluster {
    fn add(&mut self, node: Node) {
        if let Partitioning::OnDemand { model, .. } = node.partitioning {
            self.tables.add(model, &DemandMix::default());
        }
        self.cache.apply_node(node);
    }

    fn decide(&self, scoring: Scoring, text: &str) -> String {
        let kind = self.cache.kind_of(&pod(text));
        match decide(&self.cache, &self.tables, &mut Rankings::new(scoring), &kind) {
            Decision::Place { node, placements, .. } => {
                let places = placements.iter().map(|p| format!(" gpu{}:{}", p.gpu, p.placement));
                format!("{}{}", self.cache.at(node).name(), places.collect::<String>())
            }
            Decision::Unschedulable(diagnosis) => diagnosis.to_string(),
        }
    }
}

/// On these nodes with these pods running, the pod goes to the node named, or is refused with the reasons given.
fn check(nodes: &[&str], running: &[&str], pod: &str, expected: &str) {
    let found = cluster(nodes, running).decide(Scoring::LeastFragmentation, pod);
    let refusal = format!("0/{} nodes are available: {expected}.", nodes.len());
    assert!(found == expected || found == refusal, "{pod} on {nodes:?} with {running:?}:\n{found}");
}

#[test]
fn each_filter_decides() {
    check(&["n0"], &[], "p", "n0");
    check(&["n0 cordoned"], &[], "p", "1 node(s) were unschedulable");
    check(&["n0 cordoned"], &[], "p tolerates=node.kubernetes.io/unschedulable", "n0");
    check(&["n0 taint=gpu"], &[], "p", "1 node(s) had untolerated taint(s)");
    check(&["n0 taint=gpu"], &[], "p tolerates=gpu", "n0");
    check(&["n0 taint=gpu taint=batch"], &[], "p tolerates=gpu", "1 node(s) had untolerated taint(s)");
    check(&["n0 label=zone:a", "n1 label=zone:b"], &[], "p zone=b", "n1");
    check(&["n0", "n1 label=zone:b"], &[], "p zone=c", "2 node(s) didn't match Pod's node affinity/selector");
    check(&["n0"], &["x on=n0 port=80"], "p port=81", "n0");
    let taken = "1 node(s) didn't have free ports for the requested pod ports";
    check(&["n0"], &["x on=n0 port=80"], "p port=80", taken);
    check(&["n0 cpu=1000"], &["x on=n0 cpu=600"], "p cpu=400", "n0");
    check(&["n0 cpu=1000"], &["x on=n0 cpu=600"], "p cpu=401", "1 Insufficient cpu");
    check(&["n0 memory=10"], &[], "p memory=11", "1 Insufficient memory");
    check(&["n0 disk=10"], &[], "p disk=11", "1 Insufficient ephemeral-storage");
    check(&["n0 pods=1"], &["x on=n0"], "p", "1 Too many pods");
    check(&["n0 example.com/fpga=1"], &[], "p example.com/fpga=1", "n0");
    check(&["n0"], &[], "p example.com/fpga=1", "1 Insufficient example.com/fpga");
}

#[test]
fn a_node_short_of_several_resources_names_them_all() {
    check(
        &["n0 cpu=100 pods=0", "n1 cpu=100 1g.5gb=1"],
        &[],
        "p cpu=200 1g.5gb=1",
        "1 Insufficient nvidia.com/mig-1g.5gb, 1 Too many pods, 2 Insufficient cpu",
    );
}

#[test]
fn a_taken_resource_that_is_overcommitted_already_is_simply_full() {
    // Somebody else bound more than the node offers, or the node has shrunk.
    check(&["n0 cpu=100 1g.5gb=1"], &["x on=n0 cpu=900 1g.5gb=3"], "p cpu=1", "1 Insufficient cpu");
    check(&["n0 cpu=100"], &["x on=n0 cpu=900"], "p", "n0");
}

#[test]
fn nothing_that_needs_a_gpu_goes_where_a_layout_changes() {
    let unsettled = "1 node(s) had an unsettled MIG layout (nvidia.com/mig.config.state=pending)";
    check(&["n0 state=pending 1g.5gb=1"], &[], "p 1g.5gb=1", unsettled);
    check(&["n0 state=pending nvidia.com/gpu=1"], &[], "p nvidia.com/gpu=1", unsettled);
    check(&["n0 state=pending 1g.5gb=1"], &[], "p cpu=1", "n0");
    check(&["n0 state=success 1g.5gb=1"], &[], "p 1g.5gb=1", "n0");
}

#[test]
fn our_own_cordon_keeps_away_what_the_change_could_not_move() {
    let cordoned = "1 node(s) were unschedulable";
    let changing = "1 node(s) were having their MIG layout changed";
    let anywhere = "tolerates=node.kubernetes.io/unschedulable";
    check(&["n0 1g.5gb=1 changing"], &[], "p 1g.5gb=1 movable", changing);
    check(&["n0 1g.5gb=1 changing"], &[], &format!("p 1g.5gb=1 movable {anywhere}"), changing);
    check(&["n0 changing"], &[], "p", cordoned);
    check(&["n0 changing"], &[], &format!("p {anywhere}"), "n0");
    check(&["n0 1g.5gb=1 changed"], &[], "p 1g.5gb=1 movable", "n0");
    check(&["n0 1g.5gb=1 changed"], &[], &format!("p 1g.5gb=1 {anywhere}"), changing);
    check(&["n0 changed"], &[], "p", cordoned);
}

#[test]
fn slots_decide_where_instances_are_made_on_demand() {
    check(&["n0 A100-40GB*1"], &[], "p 7g.40gb=1", "n0 gpu0:7g.40gb@0");
    check(&["n0 A100-40GB*1"], &[], "p 7g.40gb=2", "1 no free 2x 7g.40gb slot");
    check(&["n0 A100-40GB*2"], &[], "p 7g.40gb=2", "n0 gpu0:7g.40gb@0 gpu1:7g.40gb@0");
    check(&["n0 A100-40GB*1"], &[], "p 4g.20gb=1 3g.20gb=1", "n0 gpu0:4g.20gb@0 gpu0:3g.20gb@4");
    check(&["n0 A100-40GB*1"], &[], "p 4g.20gb=1 3g.20gb=2", "1 no free 4g.20gb + 2x 3g.20gb slot");
    check(
        &["n0 A100-40GB*1"],
        &[],
        "p 1g.10gb=1 3g.20gb=1 1g.5gb=2",
        "n0 gpu0:3g.20gb@4 gpu0:1g.10gb@2 gpu0:1g.5gb@1 gpu0:1g.5gb@0",
    );
    check(&["n0 A30-24GB*1"], &[], "p 1g.5gb=1", "1 no free 1g.5gb slot");
    check(
        &["n0 A100-40GB*1"],
        &["x on=n0 1g.5gb=1"],
        "p 1g.5gb=1",
        "1 node(s) had MIG instances at unknown places",
    );
    check(&["n0 A100-40GB*1"], &[], "p 1g.5gb+me=2", "1 no free 2x 1g.5gb+me slot");
    check(&["n0 A100-40GB*2"], &[], "p 1g.5gb+me=2", "n0 gpu0:1g.5gb+me@6 gpu1:1g.5gb+me@6");
    check(&["n0 A100-40GB*1"], &[], "p 1g.5gb=1000000", "1 no free 1000000x 1g.5gb slot");
}

#[test]
fn clusters_without_nodes_and_pods_with_unsupported_wishes_say_so() {
    let found = cluster(&[], &[]).decide(Scoring::LeastFragmentation, "p");
    assert_eq!(found, "no nodes available to schedule pods");
    let mut spec = (*pod("p").spec).clone();
    spec.unsupported = vec![Unsupported::ResourceClaims, Unsupported::SchedulingGroup];
    let world = cluster(&["n0"], &[]);
    let mut rankings = Rankings::new(Scoring::LeastFragmentation);
    let decision = decide(&world.cache, &world.tables, &mut rankings, &Arc::new(spec).into());
    let Decision::Unschedulable(diagnosis) = decision else { panic!("{decision:?}") };
    assert_eq!(
        diagnosis.to_string(),
        "0/1 nodes are available: pod uses resourceClaims, a scheduling group, not supported by this scheduler yet."
    );
}

#[test]
fn reasons_are_sorted_as_text() {
    let nodes: Vec<String> =
        (0..12).map(|i| format!("n{i:02} {}", if i < 2 { "cordoned" } else { "cpu=0" })).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    check(&nodes, &[], "p cpu=1", "10 Insufficient cpu, 2 node(s) were unschedulable");
}

#[test]
fn fragmentation_comes_first_then_the_best_fit() {
    // A 1g next to another leaves the empty GPU, which alone can hold a 7g, alone.
    let mut busy = pod("x on=n0 1g.5gb=1");
    busy.placements = vec![placement(0, "1g.5gb", 6)];
    let mut world = cluster(&["n0 A100-40GB*2", "n1 A100-40GB*1"], &[]);
    world.cache.apply_pod(&busy, &"n0".into());
    assert_eq!(world.decide(Scoring::LeastFragmentation, "p 1g.5gb=1"), "n0 gpu0:1g.5gb@5");
    assert_eq!(world.decide(Scoring::Spread, "p 1g.5gb=1 cpu=1"), "n0 gpu1:1g.5gb@0");
    // Where instances exist already, the node with the fewest of them free.
    check(&["n0 1g.5gb=7", "n1 1g.5gb=2", "n2 1g.5gb=3"], &["x on=n1 1g.5gb=2"], "p 1g.5gb=1", "n2");
    // Then the node with the least CPU and memory left.
    check(&["n0 cpu=9000", "n1 cpu=2000", "n2 cpu=3000"], &[], "p cpu=1000", "n1");
    // And a pod that needs no GPU leaves those that have one to others.
    check(&["n0 cpu=2000 1g.5gb=7", "n1 cpu=9000"], &[], "p cpu=1000", "n1");
    check(&["n0 cpu=2000 A100-40GB*1", "n1 cpu=9000"], &[], "p cpu=1000", "n1");
}

fn placement(gpu: u16, profile: &str, start: u8) -> DevicePlacement {
    DevicePlacement { gpu, placement: crate::mig::Placement::new(profile.parse().unwrap(), start) }
}

/// The best node by looking at all of them.
fn scan(world: &Cluster, scoring: Scoring, spec: &PodSpec) -> Option<(NodeIndex, usize)> {
    let rated = world.cache.nodes().filter_map(|(at, info, node)| {
        let takes = feasible(&world.tables, spec, info, node);
        Some((score::score(&world.tables, scoring, spec, info, node).filter(|_| takes)?, at))
    });
    let rated: Vec<_> = rated.collect();
    rated.iter().min().map(|(_, at)| (*at, rated.len()))
}

#[test]
fn rankings_equal_a_scan_whatever_happens_in_between() {
    let mut next = chance(11);
    let profiles = ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"];
    for scoring in [Scoring::LeastFragmentation, Scoring::BestFit, Scoring::Spread] {
        let mut world = cluster(&[], &[]);
        let mut rankings = Rankings::new(scoring);
        let (mut placed, mut held) = (0, Vec::new());
        for step in 0..3_000 {
            let name = format!("n{}", next(40));
            match next(24) {
                0 => world.add(node(&format!("{name} A100-40GB*{} cpu=9000", next(3)))),
                1 => world.add(node(&format!("{name} 1g.5gb={} 3g.20gb={} cpu=9000", next(4), next(2)))),
                2 => drop(world.cache.delete_node(&name.as_str().into())),
                3..9 if !held.is_empty() => {
                    let uid = held.swap_remove(next(held.len() as u64) as usize);
                    world.cache.remove_pod(&uid);
                }
                _ => {
                    let profile = profiles[next(4) as usize];
                    let pod = pod(&format!("p{step} cpu={} {profile}={}", 100 * next(3), 1 + next(2)));
                    let expected = scan(&world, scoring, &pod.spec);
                    let kind = world.cache.kind_of(&pod);
                    assert_eq!(rankings.best(&world.cache, &world.tables, &kind), expected, "step {step}");
                    let decision = decide(&world.cache, &world.tables, &mut rankings, &kind);
                    if let Decision::Place { node, placements, .. } = decision {
                        world.cache.assume(&pod, node, &placements);
                        assert!(!world.cache.at(node).has_unaccounted_instances());
                        placed += 1;
                        held.push(pod.id.uid.clone());
                    }
                }
            }
        }
        assert!(placed > 500, "{placed} pods placed: the test hardly tested anything");
    }
}

/// Found beside kube-scheduler: a node that the pod does not name gets no other reason, however many it has.
#[test]
fn nodes_that_a_pod_does_not_name_are_not_filtered() {
    let refuse = |fields: &[(&[&str], Operator)]| {
        let cluster = cluster(&["n0 cordoned", "n1 taint=gpu", "n2 cpu=1"], &[]);
        let field = |(names, operator): &(&[&str], Operator)| Requirement {
            key: "metadata.name".into(),
            operator: *operator,
            values: names.iter().map(|name| Arc::from(*name)).collect(),
        };
        let term =
            NodeSelectorTerm { match_fields: fields.iter().map(field).collect(), ..Default::default() };
        let mut pod = pod("p cpu=2");
        Arc::make_mut(&mut pod.spec).selector.terms = Some(vec![term]);
        let mut rankings = Rankings::new(Scoring::LeastFragmentation);
        Diagnosis::of(&cluster.cache, &cluster.tables, &mut rankings, &pod.spec.into()).to_string()
    };
    assert_eq!(
        refuse(&[(&["n2", "n9"], Operator::In)]),
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    );
    assert_eq!(
        refuse(&[(&["n0"], Operator::In), (&["n1"], Operator::In)]),
        "0/3 nodes are available: pod affinity terms conflict."
    );
    assert_eq!(
        refuse(&[(&["n2"], Operator::NotIn)]),
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
         1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    );
}
