//! What other pods have to do with it: each rule alone, and incremental counts against a recount from the plain list of pods.

use std::collections::BTreeMap;

use super::super::domains::Domains;
use super::super::filter::feasible;
use super::super::score;
use super::*;
use crate::fixture::labels;
use crate::model::{AffinityTerm, Labels, Node, Pod, PodSelection, SpreadConstraint, Stance};

const NO_AFFINITY: &str = "1 node(s) didn't match pod affinity rules";
const NO_ANTI: &str = "1 node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "1 node(s) didn't satisfy existing pods anti-affinity rules";
const SKEWED: &str = "1 node(s) didn't match pod topology spread constraints";
const UNLABELLED: &str = "1 node(s) didn't match pod topology spread constraints (missing required label)";

/// As [`check`], with a namespace `other` that is labelled `team:a` and one `ns` that is labelled `team:b`.
fn check_in(nodes: &[&str], running: &[&str], pod: &str, expected: &str) {
    let mut world = cluster(nodes, running);
    world.cache.apply_namespace("other".into(), labels("team:a"));
    world.cache.apply_namespace("ns".into(), labels("team:b"));
    let found = world.decide(Scoring::LeastFragmentation, pod);
    let refusal = format!("0/{} nodes are available: {expected}.", nodes.len());
    assert!(found == expected || found == refusal, "{pod} on {nodes:?} with {running:?}:\n{found}");
}

#[test]
fn required_affinity_needs_a_pod_in_the_domain() {
    let zones = &["n0 label=zone:a cpu=9000", "n1 label=zone:b", "n2 label=zone:b cpu=9000", "n3"];
    check(zones, &["x on=n1 label=app:db"], "p cpu=100 near=zone/app:db", "n2");
    check(&["n0 label=zone:a"], &[], "p near=zone/app:db", NO_AFFINITY);
    check(&["n0 label=zone:a"], &["x on=n0 label=app:web"], "p near=zone/app:db", NO_AFFINITY);
    check(&["n0 label=zone:a"], &["x on=n0 label=app:db terminating"], "p near=zone/app:db", "n0");
    check(&["n0 label=zone:a"], &["x on=n0"], "p near=zone/-", NO_AFFINITY);
    check(&["n0 label=zone:a"], &["x on=n0"], "p near=zone/*", "n0");
    // A domain may be a node that does not exist: its pods count for nobody.
    check(&["n0 label=zone:a"], &["x on=n9 label=app:db"], "p near=zone/app:db", NO_AFFINITY);
}

#[test]
fn one_pod_must_match_every_affinity_term() {
    let nodes = &["n0 label=zone:a label=rack:r"];
    let both = "p near=zone/app:db near=rack/tier:hot";
    check(nodes, &["x on=n0 label=app:db", "y on=n0 label=tier:hot"], both, NO_AFFINITY);
    check(nodes, &["x on=n0 label=app:db label=tier:hot"], both, "n0");
    // The pod may be elsewhere in one of the domains; every domain needs one.
    let nodes = &["n0 label=zone:a label=rack:r", "n1 label=zone:a label=rack:s cordoned"];
    let expected = "1 node(s) didn't match pod affinity rules, 1 node(s) were unschedulable";
    check(nodes, &["x on=n1 label=app:db label=tier:hot"], both, expected);
}

#[test]
fn the_first_of_a_group_may_stand_alone() {
    let own = "p label=app:db near=zone/app:db";
    check(&["n0 label=zone:a"], &[], own, "n0");
    check(&["n0"], &[], own, NO_AFFINITY);
    // Not where one of the group is somewhere already.
    let nodes = &["n0 label=zone:a cordoned", "n1 label=zone:b"];
    let expected = "1 node(s) didn't match pod affinity rules, 1 node(s) were unschedulable";
    check(nodes, &["x on=n0 label=app:db"], own, expected);
    check(nodes, &["x on=n0 label=app:db ns=other"], own, "n1");
    // Nor if it is only said to belong to the group by some of the terms.
    check(&["n0 label=zone:a"], &[], "p label=app:db near=zone/app:db near=zone/app:web", NO_AFFINITY);
    // Nor if its namespace is not meant, which nothing but its rule says.
    check(&["n0 label=zone:a"], &[], "p label=app:db near=zone/app:db@other", NO_AFFINITY);
}

#[test]
fn terms_name_and_select_namespaces() {
    let node = &["n0 label=zone:a"];
    let elsewhere = &["x on=n0 label=app:db ns=other"];
    check_in(node, elsewhere, "p near=zone/app:db", NO_AFFINITY);
    check_in(node, elsewhere, "p near=zone/app:db@other", "n0");
    check_in(node, elsewhere, "p near=zone/app:db@*", "n0");
    check_in(node, elsewhere, "p near=zone/app:db@team:a", "n0");
    check_in(node, elsewhere, "p near=zone/app:db@team:b", NO_AFFINITY);
    check_in(node, elsewhere, "p near=zone/app:db@!stage", "n0");
    check_in(node, elsewhere, "p apart=zone/app:db@team:a", NO_ANTI);
    // A namespace nobody knows has no labels to select it by; all namespaces have a name.
    let unknown = &["x on=n0 label=app:db ns=new"];
    check_in(node, unknown, "p near=zone/app:db@!stage", NO_AFFINITY);
    check_in(node, unknown, "p near=zone/app:db@*", "n0");
    // The running pod's rules take an unknown namespace for one without labels.
    check_in(node, &["x on=n0 apart=zone/app:web@!stage"], "p label=app:web ns=new", EXISTING);
    check_in(node, &["x on=n0 apart=zone/app:web@team:a"], "p label=app:web ns=new", "n0");
    check_in(node, &["x on=n0 apart=zone/app:web@team:a"], "p label=app:web ns=other", EXISTING);
    check_in(node, &["x on=n0 apart=zone/app:web@other"], "p label=app:web ns=other", EXISTING);
}

#[test]
fn anti_affinity_holds_from_both_sides() {
    let node = &["n0 label=zone:a"];
    check(node, &["x on=n0 label=app:db"], "p apart=zone/app:db", NO_ANTI);
    check(node, &["x on=n0 label=app:db terminating"], "p apart=zone/app:db", NO_ANTI);
    check(node, &["x on=n0 label=app:db ns=other"], "p apart=zone/app:db", "n0");
    check(node, &["x on=n0 apart=zone/app:web"], "p label=app:web", EXISTING);
    check(node, &["x on=n0 apart=zone/app:web"], "p label=app:db", "n0");
    check(node, &["x on=n0 apart=zone/app:web by=default-scheduler"], "p label=app:web", EXISTING);
    check(node, &["x on=n0 apart=zone/app:web label=app:web"], "p label=app:web apart=zone/app:web", NO_ANTI);
    // A node without the label is in no domain.
    check(&["n0"], &["x on=n0 label=app:db apart=zone/*"], "p apart=zone/app:db", "n0");
    check(&["n0 label=zone:a", "n1"], &["x on=n0 label=app:db"], "p apart=zone/app:db", "n1");
    let racks = &["n0 label=zone:a label=rack:r", "n1 label=zone:a label=rack:s"];
    check(racks, &["x on=n0 apart=rack/app:web apart=host/app:web"], "p label=app:web", "n1");
}

#[test]
fn the_order_of_refusals_is_kube_schedulers() {
    let node = &["n0 label=zone:a"];
    let pod = "p label=app:web near=zone/app:x apart=zone/app:db spread=zone/app:web/1/min2";
    let running = ["x on=n0 label=app:db apart=zone/app:web", "y on=n0 label=app:x", "z on=n0 label=app:web"];
    check(node, &running, pod, SKEWED);
    check(node, &running[..1], pod, NO_AFFINITY);
    check(node, &running[..2], pod, NO_ANTI);
    check(node, &running[..2], "p label=app:web", EXISTING);
    check(&["n0 label=zone:a cpu=10"], &running, &format!("{pod} cpu=20"), "1 Insufficient cpu");
    check(node, &running[..2], "p label=app:web feature=f", EXISTING);
}

#[test]
fn spreading_compares_with_the_emptiest_domain() {
    let nodes = &["n0 label=zone:a", "n1 label=zone:b cpu=9000"];
    let pod = "p cpu=100 label=app:web spread=zone/app:web/1";
    check(nodes, &["x on=n0 label=app:web"], pod, "n1");
    check(nodes, &["x on=n1 label=app:web"], pod, "n0");
    check(nodes, &["x on=n1 label=app:web"], "p cpu=100 label=app:web spread=zone/app:web/2", "n1");
    // A pod that is not one of those counted adds nothing itself.
    check(nodes, &["x on=n1 label=app:web"], "p cpu=100 spread=zone/app:web/1", "n1");
    // Only running pods of its own namespace that are not about to go are counted.
    check(nodes, &["x on=n1 label=app:web ns=other"], pod, "n1");
    check(nodes, &["x on=n1 label=app:web terminating"], pod, "n1");
    check(&["n0", "n1 label=zone:b"], &[], pod, "n1");
    check(&["n0"], &[], pod, UNLABELLED);
    // Without a selector nothing is counted; with one for every pod only the pod itself is.
    check(nodes, &["x on=n1", "y on=n1"], "p cpu=100 spread=zone/-/1", "n1");
    check(nodes, &["x on=n1", "y on=n1"], "p cpu=100 spread=zone/*/1", "n1");
}

#[test]
fn too_few_domains_count_as_one_that_is_empty() {
    let nodes = &["n0 label=zone:a"];
    check(nodes, &["x on=n0 label=app:web"], "p label=app:web spread=zone/app:web/1", "n0");
    check(nodes, &["x on=n0 label=app:web"], "p label=app:web spread=zone/app:web/1/min2", SKEWED);
    check(nodes, &[], "p label=app:web spread=zone/app:web/1/min2", "n0");
    let two = &["n0 label=zone:a", "n1 label=zone:b"];
    let running = &["x on=n0 label=app:web", "y on=n1 label=app:web"];
    check(two, running, "p label=app:web spread=zone/app:web/1/min2", "n0");
    let skewed = "2 node(s) didn't match pod topology spread constraints";
    check(two, running, "p label=app:web spread=zone/app:web/1/min3", skewed);
}

#[test]
fn nodes_that_the_pod_may_not_use_are_left_out_of_spreading_as_it_says() {
    let two = &["n0 label=zone:a", "n1 label=zone:b"];
    let running = &["x on=n0 label=app:web"];
    let excluded = "1 node(s) didn't match Pod's node affinity/selector";
    check(two, running, "p zone=a label=app:web spread=zone/app:web/1", "n0");
    check(
        two,
        running,
        "p zone=a label=app:web spread=zone/app:web/1/anynode",
        &format!("{excluded}, {SKEWED}"),
    );
    let tainted = &["n0 label=zone:a", "n1 label=zone:b taint=gpu"];
    let untolerated = "1 node(s) had untolerated taint(s)";
    check(tainted, running, "p label=app:web spread=zone/app:web/1", &format!("{SKEWED}, {untolerated}"));
    check(tainted, running, "p label=app:web spread=zone/app:web/1/taints", "n0");
    check(tainted, running, "p tolerates=gpu label=app:web spread=zone/app:web/1/taints", "n1");
    // A node must have the keys of all constraints to count for any.
    let keyed = &["n0 label=zone:a label=host:n0", "n1 label=zone:b cordoned"];
    let pod = "p label=app:web spread=zone/app:web/1 spread=host/app:web/9";
    check(keyed, running, pod, "n0");
}

#[test]
fn wishes_come_before_packing() {
    // By size alone the pod would go to n0.
    let nodes = &["n0 cpu=2000 label=zone:a", "n1 cpu=9000 label=zone:b"];
    check(nodes, &[], "p cpu=1000", "n0");
    check(nodes, &[], "p cpu=1000 prefers=zone:b*1", "n1");
    check(&["n0 cpu=2000 shy=x", "n1 cpu=9000"], &[], "p cpu=1000", "n1");
    check(&["n0 cpu=2000 shy=x", "n1 cpu=9000"], &[], "p cpu=1000 tolerates=x", "n0");
    check(nodes, &["x on=n1 label=app:db"], "p cpu=1000 likes=zone/app:db*1", "n1");
    check(nodes, &["x on=n0 label=app:db"], "p cpu=1000 dislikes=zone/app:db*1", "n1");
    // What running pods like and dislike counts as well, and so does what they require.
    check(nodes, &["x on=n1 likes=zone/app:web*1"], "p cpu=1000 label=app:web", "n1");
    check(nodes, &["x on=n0 dislikes=zone/app:web*1"], "p cpu=1000 label=app:web", "n1");
    check(nodes, &["x on=n1 near=zone/app:web"], "p cpu=1000 label=app:web", "n1");
    check(nodes, &["x on=n0 label=app:web"], "p cpu=1000 label=app:web evenly=zone/app:web/1", "n1");
    // A taint weighs more than a preference.
    check(&["n0 shy=x label=zone:a", "n1"], &[], "p prefers=zone:a*100", "n1");
}

#[test]
fn images_decide_between_nodes_that_are_equal_to_a_gpu() {
    let nodes = &["n0 cpu=2000", "n1 cpu=9000 image=server:latest:900000000"];
    check(nodes, &[], "p cpu=1000 image=server:latest", "n1");
    check(nodes, &[], "p cpu=1000 image=other:latest", "n0");
    let small = &["n0 cpu=2000", "n1 cpu=9000 image=server:latest:2000"];
    check(small, &[], "p cpu=1000 image=server:latest", "n0");
    let gpus = &["n0 1g.5gb=1", "n1 1g.5gb=2 image=server:latest:900000000"];
    check(gpus, &[], "p 1g.5gb=1 image=server:latest", "n0");
}

#[test]
fn features_are_required_of_the_node() {
    let unable = "1 node(s) didn't match Pod's required features";
    check(&["n0"], &[], "p feature=Resize", unable);
    check(&["n0 feature=Other"], &[], "p feature=Resize", unable);
    check(&["n0 feature=Other", "n1 feature=Resize"], &[], "p feature=Resize", "n1");
}

/// The cluster as a plain list, and every rule read off it.
#[derive(Default)]
struct Plain {
    nodes: BTreeMap<String, Node>,
    /// Running pods and their nodes.
    pods: BTreeMap<String, (Pod, String)>,
    namespaces: BTreeMap<Arc<str>, Labels>,
}

impl Plain {
    fn selects(&self, pods: &PodSelection, other: &Pod) -> bool {
        let namespace = self.namespaces.get(&other.id.namespace);
        let meant = pods.namespaces.contains(&other.id.namespace)
            || pods.namespace_selector.is_everything()
            || namespace.is_some_and(|labels| pods.namespace_selector.matches(labels));
        meant && pods.selector.matches(&other.labels)
    }

    /// Sum over the running pods in the same domain as `node`.
    fn in_domain(&self, node: &Node, key: &str, weight: impl Fn(&Pod) -> i64) -> i64 {
        let Some(value) = node.labels.get(key) else { return 0 };
        let inside = |on: &str| self.nodes.get(on).is_some_and(|other| other.labels.get(key) == Some(value));
        self.pods.values().filter(|(_, on)| inside(on)).map(|(pod, _)| weight(pod)).sum()
    }

    fn finds(&self, node: &Node, term: &AffinityTerm) -> bool {
        self.in_domain(node, &term.topology_key, |other| i64::from(self.selects(&term.pods, other))) > 0
    }

    fn counted(&self, constraint: &SpreadConstraint, pod: &Pod, on: &str) -> i64 {
        let counts = |other: &Pod| {
            !other.terminating
                && other.id.namespace == pod.id.namespace
                && constraint.selector.matches(&other.labels)
        };
        let pods = self.pods.values().filter(|(other, place)| place == on && counts(other));
        if constraint.selector.is_everything() { 0 } else { pods.count() as i64 }
    }

    fn included(
        &self,
        all: &[SpreadConstraint],
        constraint: &SpreadConstraint,
        pod: &Pod,
        node: &Node,
    ) -> bool {
        let tolerated = || node.taints.iter().all(|taint| !taint.is_hard() || pod.spec.tolerates(taint));
        all.iter().all(|other| node.labels.contains_key(&other.topology_key))
            && (!constraint.honors_affinity || pod.spec.selector.matches(node.name.as_str(), &node.labels))
            && (!constraint.honors_taints || tolerated())
    }

    /// By value of the key: pods counted there.
    fn domains(
        &self,
        all: &[SpreadConstraint],
        constraint: &SpreadConstraint,
        pod: &Pod,
    ) -> BTreeMap<Arc<str>, i64> {
        let mut domains = BTreeMap::new();
        for node in self.nodes.values().filter(|node| self.included(all, constraint, pod, node)) {
            let value = node.labels[&constraint.topology_key].clone();
            *domains.entry(value).or_default() += self.counted(constraint, pod, node.name.as_str());
        }
        domains
    }

    fn refusal(&self, pod: &Pod, node: &Node) -> Option<Reason> {
        let none = Default::default();
        let relations = pod.spec.relations.as_deref().unwrap_or(&none);
        for constraint in &relations.spread {
            let Some(value) = node.labels.get(&constraint.topology_key) else {
                return Some(Reason::SpreadLabelMissing);
            };
            let domains = self.domains(&relations.spread, constraint, pod);
            let least = domains.values().min().copied().unwrap_or(0);
            let least = if domains.len() < constraint.min_domains { 0 } else { least };
            let there = domains.get(value).copied().unwrap_or(0);
            if there + i64::from(constraint.selector.matches(&pod.labels)) - least > constraint.max_skew {
                return Some(Reason::Spread);
            }
        }
        let of_group = |other: &Pod| relations.affinity.iter().all(|term| self.selects(&term.pods, other));
        let reaches = |term: &AffinityTerm| {
            self.in_domain(node, &term.topology_key, |other| i64::from(of_group(other))) > 0
        };
        let has_keys = relations.affinity.iter().all(|term| node.labels.contains_key(&term.topology_key));
        let somewhere = self.nodes.values().any(|other| {
            relations
                .affinity
                .iter()
                .any(|term| self.in_domain(other, &term.topology_key, |pod| i64::from(of_group(pod))) > 0)
        });
        let first = !somewhere && of_group(pod);
        if !relations.affinity.is_empty() && !(has_keys && (first || relations.affinity.iter().all(reaches)))
        {
            return Some(Reason::PodAffinity);
        }
        if relations.anti_affinity.iter().any(|term| self.finds(node, term)) {
            return Some(Reason::PodAntiAffinity);
        }
        let refusing = |other: &Pod, key: &str| -> i64 { self.held(other, pod, key, true) };
        let keys = node.labels.keys();
        keys.into_iter()
            .any(|key| self.in_domain(node, key, |other| refusing(other, key)) > 0)
            .then_some(Reason::ExistingAntiAffinity)
    }

    /// What a running pod holds against (`refusals`) or for a newcomer over one topology key.
    fn held(&self, other: &Pod, pod: &Pod, key: &str, refusals: bool) -> i64 {
        let unlabelled = Labels::new();
        let namespace = self.namespaces.get(&pod.id.namespace).unwrap_or(&unlabelled);
        let held = other.spec.relations.iter().flat_map(|relations| relations.held());
        let concerning = held.filter(|held| {
            &*held.term.topology_key == key && held.concerns(&pod.id.namespace, namespace, &pod.labels)
        });
        concerning
            .map(|held| match held.stance {
                Stance::Refuses => i64::from(refusals),
                Stance::Weighs(weight) if !refusals => weight,
                Stance::Weighs(_) => 0,
            })
            .sum()
    }

    fn weight(&self, pod: &Pod, node: &Node) -> i64 {
        let preferred = pod.spec.relations.iter().flat_map(|relations| &relations.preferred);
        let own = preferred.map(|(weight, term)| {
            weight
                * self.in_domain(node, &term.topology_key, |other| i64::from(self.selects(&term.pods, other)))
        });
        let theirs = node.labels.keys();
        own.sum::<i64>()
            + theirs
                .map(|key| self.in_domain(node, key, |other| self.held(other, pod, key, false)))
                .sum::<i64>()
    }

    /// The crowding of a node's domains; `None` if it lacks a key.
    fn crowding(&self, pod: &Pod, node: &Node, chosen: &[&Node]) -> Option<i64> {
        let soft = &pod.spec.relations.as_ref()?.spread_softly;
        let has_keys = |node: &Node| soft.iter().all(|rule| node.labels.contains_key(&rule.topology_key));
        if soft.is_empty() || !has_keys(node) {
            return None;
        }
        let score = soft.iter().map(|rule| {
            let key = &rule.topology_key;
            let chosen = chosen.iter().filter(|node| has_keys(node));
            let mut values: Vec<_> = chosen.map(|node| &node.labels[key]).collect();
            let host = &**key == "kubernetes.io/hostname";
            if !host {
                values.sort();
                values.dedup();
            }
            let there = if host {
                self.counted(rule, pod, node.name.as_str())
            } else {
                self.domains(soft, rule, pod).get(&node.labels[key]).copied().unwrap_or(0)
            };
            there as f64 * ((values.len() + 2) as f64).ln() + (rule.max_skew - 1) as f64
        });
        Some(score.sum::<f64>().round() as i64)
    }

    /// The totals of the nodes in question.
    fn totals(&self, pod: &Pod, chosen: &[&Node]) -> Vec<i64> {
        let taints = |node: &Node| {
            node.taints.iter().filter(|taint| !taint.is_hard() && !pod.spec.tolerates(taint)).count() as i64
        };
        let liked = |node: &Node| -> i64 {
            let terms = pod.spec.preferred_nodes.iter();
            terms
                .filter(|(_, term)| term.matches(node.name.as_str(), &node.labels))
                .map(|(weight, _)| weight)
                .sum()
        };
        let most = |value: &dyn Fn(&Node) -> i64| chosen.iter().map(|node| value(node)).max().unwrap_or(0);
        let (most_taints, most_liked) = (most(&taints), most(&liked));
        let weights: Vec<_> = chosen.iter().map(|node| self.weight(pod, node)).collect();
        let (least, top) = (weights.iter().min().copied(), weights.iter().max().copied());
        let range = top.unwrap_or(0) - least.unwrap_or(0);
        let crowding: Vec<_> = chosen.iter().map(|node| self.crowding(pod, node, chosen)).collect();
        let (widest, tightest) = (crowding.iter().flatten().max(), crowding.iter().flatten().min());
        let soft = pod.spec.relations.as_ref().is_some_and(|relations| !relations.spread_softly.is_empty());
        let total = |nth: usize, node: &Node| {
            let tolerated = if most_taints == 0 { 100 } else { 100 - 100 * taints(node) / most_taints };
            let liked = if most_liked == 0 { 0 } else { 100 * liked(node) / most_liked };
            let near = (weights[nth] - least.unwrap_or(0)) as f64 / range as f64;
            let near = if range > 0 { (100.0 * near) as i64 } else { 0 };
            let even = match (crowding[nth], widest, tightest) {
                (Some(_), Some(0), _) => 100,
                (Some(own), Some(widest), Some(tightest)) => 100 * (widest + tightest - own) / widest,
                _ => 0,
            };
            3 * tolerated + 2 * liked + 2 * near + if soft { 2 * even } else { 0 }
        };
        chosen.iter().enumerate().map(|(nth, node)| total(nth, node)).collect()
    }
}

/// Cluster and list, changed alike.
struct Both {
    world: Cluster,
    plain: Plain,
}

impl Both {
    fn best(&self, pod: &Pod) -> Option<(NodeIndex, usize)> {
        let takes = |(at, info, node): (NodeIndex, &crate::cache::NodeInfo, &Node)| {
            let local = feasible(&self.world.tables, &pod.spec, info, node);
            let score = score::score(&self.world.tables, Scoring::LeastFragmentation, &pod.spec, info, node);
            let refused = self.plain.refusal(pod, node).is_some();
            (local && !refused).then(|| (score.unwrap(), at))
        };
        let rated: Vec<_> = self.world.cache.nodes().filter_map(takes).collect();
        let chosen: Vec<_> = rated.iter().map(|(_, at)| self.world.cache.at(*at).node().unwrap()).collect();
        let totals = self.plain.totals(pod, &chosen);
        let nodes = totals.iter().zip(&rated).map(|(total, (score, at))| (-total, *score, *at));
        nodes.min().map(|(_, _, at)| (at, rated.len()))
    }

    fn place(&mut self, pod: &Pod, on: &str) {
        let held = Pod { node: Some(on.into()), ..pod.clone() };
        self.world.cache.apply_pod(&held, &on.into());
        self.plain.pods.insert(pod.id.uid.to_string(), (pod.clone(), on.to_owned()));
    }

    fn add(&mut self, text: &str) {
        let node = node(text);
        self.plain.nodes.insert(node.name.to_string(), node.clone());
        self.world.add(node);
    }
}

const RULES: [&str; 18] = [
    "near=zone/app:a",
    "near=host/app:b near=zone/app:b",
    "near=zone/app:a@team:x",
    "apart=host/app:a",
    "apart=zone/app:b",
    "apart=zone/app:c@team:x",
    "apart=rack/app:a@*",
    "likes=zone/app:a*7",
    "dislikes=host/app:b*3 likes=zone/app:c*5",
    "dislikes=rack/app:a@team!x*9",
    "spread=zone/app:a/1",
    "spread=zone/app:b/1/min3 spread=host/app:b/2",
    "spread=rack/app:c/2/anynode/taints",
    "spread=host/app/1/taints",
    "evenly=zone/app:a/1",
    "evenly=host/app:b/3 evenly=zone/app:b/5",
    "evenly=rack/app/2/anynode spread=zone/app/3",
    "prefers=zone:z1*10 prefers=rack:r0*4",
];

/// Whatever happens, counts kept up to date say what a recount from the list of pods says, and the decision is that of a scan.
#[test]
fn random_histories_count_as_a_recount_does() {
    let mut next = chance(23);
    let (mut placed, mut refused, mut compared) = (0, 0, 0);
    for round in 0..6 {
        let mut both = Both { world: cluster(&[], &[]), plain: Plain::default() };
        let mut rankings = Rankings::new(Scoring::LeastFragmentation);
        let mut kinds: Vec<Pod> = Vec::new();
        for step in 0..700 {
            let name = format!("n{}", next(12));
            match next(20) {
                0..3 => {
                    let mut text = format!("{name} cpu={}000", 2 + next(6));
                    for (key, values) in [("zone", 4), ("rack", 3)] {
                        if next(8) > 0 {
                            text += &format!(" label={key}:{}{}", &key[..1], next(values));
                        }
                    }
                    let host = if next(9) == 0 { "shared" } else { &name };
                    text += &format!(" label=host:{host}");
                    text += ["", "", "", " taint=gpu", " shy=gpu"][next(5) as usize];
                    both.add(&text);
                }
                3 if next(3) == 0 => {
                    both.plain.nodes.remove(&name);
                    both.world.cache.delete_node(&name.as_str().into());
                }
                4..8 if !both.plain.pods.is_empty() => {
                    let nth = next(both.plain.pods.len() as u64) as usize;
                    let (uid, (pod, on)) = both.plain.pods.iter().nth(nth).unwrap();
                    let (uid, mut pod, on) = (uid.clone(), pod.clone(), on.clone());
                    if !pod.terminating && next(3) == 0 {
                        pod.terminating = true;
                        both.place(&pod, &on);
                    } else {
                        both.plain.pods.remove(&uid);
                        both.world.cache.remove_pod(&uid.as_str().into());
                    }
                }
                8 if next(4) == 0 => {
                    let name: Arc<str> = ["ns", "other"][next(2) as usize].into();
                    if next(4) == 0 {
                        both.plain.namespaces.remove(&name);
                        both.world.cache.delete_namespace(&name);
                    } else {
                        let labels = labels(["team:x", "team:y", ""][next(3) as usize]);
                        both.plain.namespaces.insert(name.clone(), labels.clone());
                        both.world.cache.apply_namespace(name, labels);
                    }
                }
                _ => {
                    let app = ["a", "b", "c"][next(3) as usize];
                    let mut text = format!("p{round}-{step} label=app:{app} cpu={}", 100 * next(3));
                    for _ in 0..next(3) {
                        text += &format!(" {}", RULES[next(18) as usize]);
                    }
                    text += ["", "", " ns=other", " tolerates=gpu", " zone=z0"][next(5) as usize];
                    let newcomer = pod(&text);
                    kinds.push(newcomer.clone());
                    let again = kinds[next(kinds.len() as u64) as usize].clone();
                    for pod in [&again, &newcomer] {
                        let kind = both.world.cache.kind_of(pod);
                        let found = rankings.best(&both.world.cache, &both.world.tables, &kind);
                        assert_eq!(found, both.best(pod), "round {round} step {step}: {pod:?}");
                        let all = rankings.all(&both.world.cache, &both.world.tables, &kind);
                        assert_eq!(
                            (all.len(), all.first().copied()),
                            (found.map_or(0, |f| f.1), found.map(|f| f.0))
                        );
                        compared += 1;
                        if let Some(domains) = Domains::of(&both.world.cache, &kind) {
                            for (at, _, node) in both.world.cache.nodes() {
                                assert_eq!(
                                    domains.judge(&kind, at).err(),
                                    both.plain.refusal(pod, node),
                                    "{pod:?}"
                                );
                            }
                        }
                    }
                    match both.best(&newcomer) {
                        Some((at, _)) => {
                            let on = both.world.cache.at(at).name().to_string();
                            both.place(&newcomer, &on);
                            placed += 1;
                        }
                        None => refused += 1,
                    }
                }
            }
        }
    }
    assert!(
        placed > 500 && refused > 200 && compared > 2_000,
        "{placed} {refused} {compared}: hardly a test"
    );
}
