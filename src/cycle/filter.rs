//! The predicates that a node must satisfy, in kube-scheduler's order and with its rules.
//!
//! Invariant: a filter here looks at one node and the pod, nothing else. That is what lets rankings be kept per node and
//! waiting pods be woken by the one node that changed. What depends on other nodes, too (spreading, pod affinity), is judged
//! in [`super::domains`].
//!
//! There is no filter for `spec.nodeName`: an unbound pod cannot carry one, and whoever wants one node by name uses
//! `matchFields`, which is part of node affinity.

use std::sync::LazyLock;

use super::reason::Reason;
use super::score::{FragmentationTables, Scoring, placements};
use crate::cache::NodeInfo;
use crate::model::{
    Admission, MigConfigState, Node, Partitioning, PodSpec, ResourceName, Taint, TaintEffect,
};

/// The taint that a cordon stands for; a pod that tolerates it may go to a cordoned node.
static CORDON: LazyLock<Taint> = LazyLock::new(|| Taint {
    key: "node.kubernetes.io/unschedulable".into(),
    value: "".into(),
    effect: TaintEffect::NoSchedule,
});

/// Whether pods that go could make the node take the pod: whatever else it lacks stays as it is, and it offers enough.
pub(super) fn is_eligible(pod: &PodSpec, node: &Node) -> bool {
    let (wanted, offered) = (&pod.requests, &node.allocatable);
    pod.unsupported.is_empty()
        && !is_cordoned(pod, node)
        && is_settled(pod, node)
        && is_admitted(pod, node)
        && tolerates_taints(pod, node)
        && pod.selector.matches(node.name.as_str(), &node.labels)
        && declares_features(pod, node)
        && wanted.cpu_milli <= offered.cpu_milli
        && wanted.memory <= offered.memory
        && wanted.ephemeral_storage <= offered.ephemeral_storage
        && wanted
            .extended()
            .iter()
            .all(|(name, amount)| !is_counted(pod, node, name) || *amount <= offered.get(name))
}

/// Whether the node can take the pod, as far as the node alone is concerned.
pub fn feasible(tables: &FragmentationTables, pod: &PodSpec, info: &NodeInfo, node: &Node) -> bool {
    passes_all_but_slots(pod, info, node) && has_free_slots(tables, pod, info, node)
}

/// Everything but the search for free slots, which scoring makes anyway. The cheapest and most selective checks come first.
pub(super) fn passes_all_but_slots(pod: &PodSpec, info: &NodeInfo, node: &Node) -> bool {
    pod.unsupported.is_empty()
        && fits(pod, info, node)
        && !is_cordoned(pod, node)
        && is_settled(pod, node)
        && is_admitted(pod, node)
        && tolerates_taints(pod, node)
        && pod.selector.matches(node.name.as_str(), &node.labels)
        && has_free_ports(pod, info)
        && declares_features(pod, node)
        && !info.is_shunned_by(pod)
}

/// Why the node cannot take the pod: the reasons of the first filter that rejects it, in kube-scheduler's order. Empty if it
/// can. `further` is what the pod's volumes, or else other pods, have against it.
pub(super) fn rejections(
    tables: &FragmentationTables,
    pod: &PodSpec,
    info: &NodeInfo,
    node: &Node,
    further: Vec<Reason>,
) -> Vec<Reason> {
    if !is_admitted(pod, node) {
        return vec![Reason::LayoutChanging];
    }
    if is_cordoned(pod, node) {
        return vec![Reason::Cordoned];
    }
    if !tolerates_taints(pod, node) {
        return vec![Reason::UntoleratedTaint];
    }
    if !pod.selector.matches(node.name.as_str(), &node.labels) {
        return vec![Reason::NodeAffinity];
    }
    if info.is_shunned_by(pod) {
        return vec![Reason::Shunned];
    }
    if !has_free_ports(pod, info) {
        return vec![Reason::HostPorts];
    }
    let short = shortages(pod, info, node);
    if !short.is_empty() {
        return short;
    }
    if let MigConfigState::Unsettled(state) = &node.mig_config_state
        && !is_settled(pod, node)
    {
        return vec![Reason::MigConfigUnsettled(state.clone())];
    }
    if !has_free_slots(tables, pod, info, node) {
        let unaccounted = info.has_unaccounted_instances();
        return vec![if unaccounted { Reason::UnaccountedInstances } else { Reason::no_free_slot(pod) }];
    }
    if !further.is_empty() {
        return further;
    }
    (!declares_features(pod, node)).then_some(Reason::DeclaredFeatures).into_iter().collect()
}

/// Our own cordon keeps others' pods away; which of ours may come is [`is_admitted`]'s to say.
fn is_cordoned(pod: &PodSpec, node: &Node) -> bool {
    let invited = node.our_cordon && node.admission == Admission::Movable && pod.movable;
    node.unschedulable && !invited && !pod.tolerates(&CORDON)
}

/// While its layout changes a node takes no pod with MIG instances, and afterwards, until the change has proven good, only
/// such as could go again. Kept besides the cordon, which a pod may tolerate.
fn is_admitted(pod: &PodSpec, node: &Node) -> bool {
    match node.admission {
        Admission::All => true,
        Admission::Movable => pod.mig.is_empty() || pod.movable,
        Admission::None => pod.mig.is_empty(),
    }
}

fn tolerates_taints(pod: &PodSpec, node: &Node) -> bool {
    node.taints.iter().all(|taint| !taint.is_hard() || pod.tolerates(taint))
}

fn has_free_ports(pod: &PodSpec, info: &NodeInfo) -> bool {
    pod.host_ports.iter().all(|port| !info.host_ports().iter().any(|taken| taken.conflicts(port)))
}

/// Features that are not declared are not there.
fn declares_features(pod: &PodSpec, node: &Node) -> bool {
    pod.features.iter().all(|feature| node.features.contains(feature))
}

/// While a layout changes the device plugin is stopped and what the node offers is out of date; kubelet would reject the pod.
fn is_settled(pod: &PodSpec, node: &Node) -> bool {
    !matches!(node.mig_config_state, MigConfigState::Unsettled(_)) || !pod.needs_gpu()
}

/// The resources that every node has, pods left out: name, what the pod asks for, what the node offers, what is taken.
fn basic<'a>(pod: &'a PodSpec, info: &'a NodeInfo, node: &'a Node) -> [(&'static str, u64, u64, u64); 3] {
    let (wanted, offered, taken) = (&pod.requests, &node.allocatable, info.requested());
    [
        ("cpu", wanted.cpu_milli, offered.cpu_milli, taken.cpu_milli),
        ("memory", wanted.memory, offered.memory, taken.memory),
        ("ephemeral-storage", wanted.ephemeral_storage, offered.ephemeral_storage, taken.ephemeral_storage),
    ]
}

fn exceeds(wanted: u64, offered: u64, taken: u64) -> bool {
    wanted > 0 && wanted > offered.saturating_sub(taken)
}

/// MIG instances that are created on demand are no resource that the node counts; the slots decide.
fn is_counted(pod: &PodSpec, node: &Node, name: &ResourceName) -> bool {
    matches!(node.partitioning, Partitioning::Fixed)
        || !pod.mig.iter().any(|request| request.resource == *name)
}

fn fits(pod: &PodSpec, info: &NodeInfo, node: &Node) -> bool {
    info.requested().pods < node.allocatable.pods
        && basic(pod, info, node).iter().all(|&(_, wanted, offered, taken)| !exceeds(wanted, offered, taken))
        && pod.requests.extended().iter().all(|(name, wanted)| {
            !is_counted(pod, node, name)
                || !exceeds(*wanted, node.allocatable.get(name), info.requested().get(name))
        })
}

/// Every resource that the node is short of. kube-scheduler names them all, not the first alone.
fn shortages(pod: &PodSpec, info: &NodeInfo, node: &Node) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if info.requested().pods >= node.allocatable.pods {
        reasons.push(Reason::TooManyPods);
    }
    for (name, wanted, offered, taken) in basic(pod, info, node) {
        if exceeds(wanted, offered, taken) {
            reasons.push(Reason::InsufficientBasic(name));
        }
    }
    for (name, wanted) in pod.requests.extended() {
        if is_counted(pod, node, name)
            && exceeds(*wanted, node.allocatable.get(name), info.requested().get(name))
        {
            reasons.push(Reason::Insufficient(name.clone()));
        }
    }
    reasons
}

fn has_free_slots(tables: &FragmentationTables, pod: &PodSpec, info: &NodeInfo, node: &Node) -> bool {
    matches!(node.partitioning, Partitioning::Fixed)
        || pod.mig.is_empty()
        || placements(tables, Scoring::BestFit, pod, info).is_some()
}
