//! What each rule of a kind counts on one node.
//!
//! Invariant: a count depends on the node and its pods alone, and on nothing that changes without the node's generation but
//! the labels of namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::HOSTNAME;
use super::table::Share;
use crate::cache::{Cache, NodeInfo, Occupant};
use crate::model::{AffinityTerm, Node, PodKind, PodSelection, PodSpec, Relations, SpreadConstraint, Stance};

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The constraint of that number with `DoNotSchedule`.
    Spread(usize),
    /// The constraint of that number with `ScheduleAnyway`.
    SpreadSoftly(usize),
    /// One required affinity term; counts pods that match all of them.
    Affinity,
    /// The required anti-affinity term of that number.
    AntiAffinity(usize),
    /// Required anti-affinity of running pods.
    Refusals,
    /// Preferred terms of both sides.
    Weights,
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub key: Arc<str>,
    pub role: Role,
}

pub(super) fn rules(kind: &PodKind) -> Vec<Rule> {
    let mut rules = Vec::new();
    let rule = |key: &Arc<str>, role| Rule { key: Arc::clone(key), role };
    let mut weighed = BTreeSet::new();
    if let Some(relations) = &kind.spec.relations {
        let numbered = |constraints: &[SpreadConstraint], role: fn(usize) -> Role| {
            let keys = constraints.iter().map(|constraint| &constraint.topology_key);
            keys.enumerate().map(|(nth, key)| rule(key, role(nth))).collect::<Vec<_>>()
        };
        rules.extend(numbered(&relations.spread, Role::Spread));
        rules.extend(numbered(&relations.spread_softly, Role::SpreadSoftly));
        rules.extend(relations.affinity.iter().map(|term| rule(&term.topology_key, Role::Affinity)));
        let repelling = relations.anti_affinity.iter().enumerate();
        rules.extend(repelling.map(|(nth, term)| rule(&term.topology_key, Role::AntiAffinity(nth))));
        weighed.extend(relations.preferred.iter().map(|(_, term)| &term.topology_key));
    }
    let refusing = kind.terms.iter().filter(|held| held.stance == Stance::Refuses);
    let refused: BTreeSet<_> = refusing.map(|held| &held.term.topology_key).collect();
    rules.extend(refused.into_iter().map(|key| rule(key, Role::Refusals)));
    let weighing = kind.terms.iter().filter(|held| held.stance != Stance::Refuses);
    weighed.extend(weighing.map(|held| &held.term.topology_key));
    rules.extend(weighed.into_iter().map(|key| rule(key, Role::Weights)));
    rules
}

/// Counts one node's pods for one kind.
pub(super) struct Counter<'a> {
    cache: &'a Cache,
    kind: &'a PodKind,
    info: &'a NodeInfo,
    node: &'a Node,
    /// Whether the node has every key of the spread constraints, hard and soft.
    has_keys: [bool; 2],
    /// Pods that match every required affinity term.
    affine: i64,
}

impl<'a> Counter<'a> {
    pub(super) fn new(
        cache: &'a Cache,
        kind: &'a PodKind,
        info: &'a NodeInfo,
        node: &'a Node,
    ) -> Counter<'a> {
        let has_keys = |constraints: &[SpreadConstraint]| {
            constraints.iter().all(|constraint| node.labels.contains_key(&constraint.topology_key))
        };
        let relations = kind.spec.relations.as_deref();
        Counter {
            cache,
            kind,
            info,
            node,
            has_keys: relations
                .map_or([true; 2], |all| [has_keys(&all.spread), has_keys(&all.spread_softly)]),
            affine: relations
                .filter(|relations| !relations.affinity.is_empty())
                .map_or(0, |relations| count(info, |pod| attracts(cache, relations, pod))),
        }
    }

    /// The node's share, its domain left open.
    pub(super) fn share(&self, rule: &Rule) -> Share {
        let of = |pods| Share { domain: None, pods, counts: true };
        let Some(relations) = self.kind.spec.relations.as_deref() else { return of(self.held(rule)) };
        match rule.role {
            Role::Spread(nth) => {
                let constraint = &relations.spread[nth];
                let counts = self.has_keys[0] && is_included(constraint, &self.kind.spec, self.node);
                self.spread(constraint, relations, counts, counts)
            }
            Role::SpreadSoftly(nth) => {
                let constraint = &relations.spread_softly[nth];
                let counts = self.has_keys[1] && is_included(constraint, &self.kind.spec, self.node);
                self.spread(constraint, relations, counts, counts || &*rule.key == HOSTNAME)
            }
            Role::Affinity => of(self.affine),
            Role::AntiAffinity(nth) => {
                let selection = &relations.anti_affinity[nth].pods;
                of(count(self.info, |pod| selects(self.cache, selection, pod)))
            }
            Role::Refusals => of(self.held(rule)),
            Role::Weights => {
                let terms = relations.preferred.iter().filter(|(_, term)| term.topology_key == rule.key);
                let pods = |term: &AffinityTerm| count(self.info, |pod| selects(self.cache, &term.pods, pod));
                of(self.held(rule) + terms.map(|(weight, term)| weight * pods(term)).sum::<i64>())
            }
        }
    }

    fn spread(&self, constraint: &SpreadConstraint, of: &Relations, counts: bool, looks: bool) -> Share {
        // A selector that takes everything is counted as if it took nothing; kube-scheduler does so.
        let looks = looks && !constraint.selector.is_everything();
        let pods = if looks { count(self.info, |pod| is_spread(constraint, of, pod)) } else { 0 };
        Share { domain: None, pods, counts }
    }

    /// What the terms of the node's pods add up to.
    fn held(&self, rule: &Rule) -> i64 {
        let terms = self.kind.terms.iter().filter(|held| held.term.topology_key == rule.key);
        let weight = |stance| match (stance, rule.role) {
            (Stance::Refuses, Role::Refusals) => 1,
            (Stance::Weighs(weight), Role::Weights) => weight,
            _ => 0,
        };
        terms.map(|held| weight(held.stance) * self.info.holders(held)).sum()
    }
}

fn count(info: &NodeInfo, selects: impl Fn(&Occupant) -> bool) -> i64 {
    info.occupants().map(|pod| i64::from(selects(pod))).sum()
}

/// Whether a spread constraint takes a node into account.
fn is_included(constraint: &SpreadConstraint, pod: &PodSpec, node: &Node) -> bool {
    (!constraint.honors_affinity || pod.selector.matches(node.name.as_str(), &node.labels))
        && (!constraint.honors_taints
            || node.taints.iter().all(|taint| !taint.is_hard() || pod.tolerates(taint)))
}

/// Whether a spread constraint counts a running pod.
pub(in crate::cycle) fn is_spread(
    constraint: &SpreadConstraint,
    relations: &Relations,
    pod: &Occupant,
) -> bool {
    !pod.terminating && pod.namespace == relations.namespace && constraint.selector.matches(&pod.labels)
}

/// Whether a term selects a running pod.
pub(in crate::cycle) fn selects(cache: &Cache, selection: &PodSelection, pod: &Occupant) -> bool {
    selection.takes_namespace(&pod.namespace, cache.namespace_labels(&pod.namespace))
        && selection.selector.matches(&pod.labels)
}

/// Whether a running pod matches every required affinity term.
pub(in crate::cycle) fn attracts(cache: &Cache, relations: &Relations, pod: &Occupant) -> bool {
    relations.affinity.iter().all(|term| selects(cache, &term.pods, pod))
}
