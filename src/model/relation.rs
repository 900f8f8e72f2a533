//! What a pod wants of other pods: affinity, anti-affinity and spreading over the domains of a topology.
//!
//! A *domain* is the set of nodes whose label of one key (`topology.kubernetes.io/zone`) has one value. A rule counts pods by
//! namespace and labels in the domain of the node in question.
//!
//! Invariant: everything here is resolved against its pod when it is read (a term's own namespace, `matchLabelKeys`, whether
//! the pod matches its own selector), so that evaluating a rule needs the labels of *other* pods alone and pods of one template
//! have equal rules. Only `namespaceSelector` is left open: namespaces change while pods run.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{LabelSelector, Labels, PodSpec, VolumeNeeds};

/// Which pods a term speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSelection {
    /// Namespaces by name; the pod's own where the term names none and selects none.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Namespaces by label, besides those named.
    pub namespace_selector: LabelSelector,
    /// Pods by label.
    pub selector: LabelSelector,
}

impl PodSelection {
    /// Whether pods of a namespace are meant. `namespace_labels` is `None` where the namespace is not known: then only its name
    /// counts, or a selector that takes every namespace.
    pub fn takes_namespace(&self, namespace: &Arc<str>, namespace_labels: Option<&Labels>) -> bool {
        self.namespaces.contains(namespace)
            || self.namespace_selector.is_everything()
            || namespace_labels.is_some_and(|labels| self.namespace_selector.matches(labels))
    }
}

/// One term of pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityTerm {
    /// The node label that makes the domains.
    pub topology_key: Arc<str>,
    /// The pods looked for there.
    pub pods: PodSelection,
}

/// One `topologySpreadConstraints` entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpreadConstraint {
    /// The node label that makes the domains.
    pub topology_key: Arc<str>,
    /// How many pods more than in the emptiest domain are allowed.
    pub max_skew: i64,
    /// Pods counted, of the pod's own namespace, `matchLabelKeys` merged in.
    pub selector: LabelSelector,
    /// With fewer domains than this the emptiest one counts as empty.
    pub min_domains: usize,
    /// Whether nodes that the pod's node selector excludes are left out (`nodeAffinityPolicy: Honor`).
    pub honors_affinity: bool,
    /// Whether nodes whose taints the pod does not tolerate are left out (`nodeTaintsPolicy: Honor`).
    pub honors_taints: bool,
    /// Whether the pod itself is one of the pods counted.
    pub counts_itself: bool,
}

/// Everything that a pod wants of other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Relations {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// Required affinity: all terms must find a pod that matches all of them.
    pub affinity: Vec<AffinityTerm>,
    /// Whether the pod's labels match the selectors of all affinity terms: the first of a group may stand alone.
    pub attracts_itself: bool,
    /// Required anti-affinity: no term may find a pod.
    pub anti_affinity: Vec<AffinityTerm>,
    /// Preferred affinity, with its weight; anti-affinity with a weight below zero.
    pub preferred: Vec<(i64, AffinityTerm)>,
    /// Spreading with `DoNotSchedule`.
    pub spread: Vec<SpreadConstraint>,
    /// Spreading with `ScheduleAnyway`.
    pub spread_softly: Vec<SpreadConstraint>,
}

impl Relations {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.preferred.is_empty()
            && self.spread.is_empty()
            && self.spread_softly.is_empty()
    }

    /// Whether a node can be refused because of other pods.
    pub fn can_refuse(&self) -> bool {
        !self.affinity.is_empty() || !self.anti_affinity.is_empty() || !self.spread.is_empty()
    }

    /// The terms that the pod, once it runs, holds against or for newcomers.
    pub fn held(&self) -> impl Iterator<Item = HeldTerm> {
        let refusing = self.anti_affinity.iter().map(|term| (Stance::Refuses, term));
        let attracting = self.affinity.iter().map(|term| (Stance::Weighs(HARD_AFFINITY_WEIGHT), term));
        let weighing = self.preferred.iter().map(|(weight, term)| (Stance::Weighs(*weight), term));
        let terms = refusing.chain(attracting).chain(weighing);
        terms.map(|(stance, term)| HeldTerm { stance, term: term.clone() })
    }

    /// Whether any term selects namespaces by label.
    pub fn selects_namespaces(&self) -> bool {
        let preferred = self.preferred.iter().map(|(_, term)| term);
        let mut terms = self.affinity.iter().chain(&self.anti_affinity).chain(preferred);
        terms.any(|term| term.pods.namespace_selector.depends_on_labels())
    }
}

/// What a required affinity term of a running pod weighs for newcomers that match it (`hardPodAffinityWeight`).
const HARD_AFFINITY_WEIGHT: i64 = 1;

/// What a running pod's term does to newcomers that match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stance {
    /// Required anti-affinity: keeps them out of its domain.
    Refuses,
    /// Makes its domain better or worse by this much.
    Weighs(i64),
}

/// A term of a running pod, as it concerns newcomers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldTerm {
    /// What it does.
    pub stance: Stance,
    /// Where, and to whom.
    pub term: AffinityTerm,
}

impl HeldTerm {
    /// Whether it concerns a newcomer. A namespace that is not known has no labels.
    pub fn concerns(&self, namespace: &Arc<str>, namespace_labels: &Labels, labels: &Labels) -> bool {
        let pods = &self.term.pods;
        pods.takes_namespace(namespace, Some(namespace_labels)) && pods.selector.matches(labels)
    }
}

/// What decides where a pod goes: its spec, the terms of running pods that concern it, what its volumes ask for, and its rank among
/// others.
///
/// Invariant: pods of equal kind are interchangeable for as long as the cluster does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKind {
    /// What it asks for itself.
    pub spec: Arc<PodSpec>,
    /// Terms held by running pods, sorted.
    pub terms: Arc<[Arc<HeldTerm>]>,
    /// What its volumes ask for; `None` for a pod without any that matter.
    pub volumes: Option<Arc<VolumeNeeds>>,
    /// Places kept for pods of this priority or a higher one are not for it.
    pub priority: i32,
    /// Whether pods of a lower priority may have to go for it.
    pub preempts: bool,
}

impl PodKind {
    /// Whether other pods have a say in where it goes.
    pub fn is_related(&self) -> bool {
        self.spec.relations.is_some() || !self.terms.is_empty()
    }

    /// Whether other pods can keep it away from a node.
    pub fn can_be_refused(&self) -> bool {
        self.spec.relations.as_ref().is_some_and(|relations| relations.can_refuse())
            || self.terms.iter().any(|term| term.stance == Stance::Refuses)
    }
}

impl From<Arc<PodSpec>> for PodKind {
    /// The kind of a pod that concerns no running pod, of priority zero, for which none has to go.
    fn from(spec: Arc<PodSpec>) -> PodKind {
        PodKind { spec, ..PodKind::default() }
    }
}
