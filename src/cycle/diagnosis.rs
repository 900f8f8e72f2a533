//! Why no node takes a pod, as data, and the one place where it becomes text.
//!
//! The text is kube-scheduler's, since people, dashboards and cluster autoscalers read it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::filter;
use super::score::FragmentationTables;
use crate::cache::Cache;
use crate::model::{PodSpec, ResourceName, Unsupported};

/// Why one node rejects a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The node is cordoned.
    Cordoned,
    /// It has a taint that the pod does not tolerate.
    UntoleratedTaint,
    /// The pod's node selector or required node affinity excludes it.
    NodeAffinity,
    /// A host port is taken.
    HostPorts,
    /// It runs as many pods as it may.
    TooManyPods,
    /// Too little CPU, memory or ephemeral storage is free.
    InsufficientBasic(&'static str),
    /// Too little of an extended resource is free.
    Insufficient(ResourceName),
    /// Its MIG layout is being changed, or the change failed.
    MigConfigUnsettled(Arc<str>),
    /// None of its GPUs has room for the instances, which are listed.
    NoFreeSlot(Arc<str>),
    /// Instances exist on its GPUs at unknown places.
    UnaccountedInstances,
}

impl Reason {
    /// The pod's MIG instances find no room on a node.
    pub(super) fn no_free_slot(pod: &PodSpec) -> Reason {
        let wanted = |request: &crate::model::MigRequest| match request.count {
            1 => request.profile.to_string(),
            count => format!("{count}x {}", request.profile),
        };
        Reason::NoFreeSlot(pod.mig.iter().map(wanted).collect::<Vec<_>>().join(" + ").into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Cordoned => f.write_str("node(s) were unschedulable"),
            Reason::UntoleratedTaint => f.write_str("node(s) had untolerated taint(s)"),
            Reason::NodeAffinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Reason::HostPorts => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Reason::TooManyPods => f.write_str("Too many pods"),
            Reason::InsufficientBasic(name) => write!(f, "Insufficient {name}"),
            Reason::Insufficient(name) => write!(f, "Insufficient {name}"),
            Reason::MigConfigUnsettled(state) => {
                write!(f, "node(s) had an unsettled MIG layout (nvidia.com/mig.config.state={state})")
            }
            Reason::NoFreeSlot(wanted) => write!(f, "no free {wanted} slot"),
            Reason::UnaccountedInstances => f.write_str("node(s) had MIG instances at unknown places"),
        }
    }
}

/// Why no node takes a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diagnosis {
    /// There are no nodes.
    NoNodes,
    /// The pod asks for something that this scheduler does not honour, so no node was looked at.
    Unsupported {
        /// Number of nodes.
        nodes: usize,
        /// What it asks for.
        features: Vec<Unsupported>,
    },
    /// Every node rejects it.
    Rejected {
        /// Number of nodes.
        nodes: usize,
        /// How many nodes gave each reason; one node may give several.
        reasons: BTreeMap<Reason, usize>,
    },
}

impl Diagnosis {
    /// Looks at every node.
    pub fn of(cache: &Cache, tables: &FragmentationTables, pod: &PodSpec) -> Diagnosis {
        let nodes = cache.node_count();
        if nodes == 0 {
            return Diagnosis::NoNodes;
        }
        if !pod.unsupported.is_empty() {
            return Diagnosis::Unsupported { nodes, features: pod.unsupported.clone() };
        }
        let mut reasons = BTreeMap::new();
        for (_, info, node) in cache.nodes() {
            for reason in filter::rejections(tables, pod, info, node) {
                *reasons.entry(reason).or_insert(0) += 1;
            }
        }
        Diagnosis::Rejected { nodes, reasons }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Diagnosis::NoNodes => f.write_str("no nodes available to schedule pods"),
            Diagnosis::Unsupported { nodes, features } => {
                let features: Vec<_> = features.iter().map(Unsupported::to_string).collect();
                let features = features.join(", ");
                write!(
                    f,
                    "0/{nodes} nodes are available: pod uses {features}, not supported by this scheduler yet."
                )
            }
            Diagnosis::Rejected { nodes, reasons } => {
                // Sorted as text, as kube-scheduler does.
                let mut lines: Vec<_> =
                    reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
                lines.sort_unstable();
                write!(f, "0/{nodes} nodes are available: {}.", lines.join(", "))
            }
        }
    }
}
