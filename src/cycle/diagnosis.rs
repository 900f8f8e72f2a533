//! Why no node takes a pod: every node's reasons, counted, and the sentence that people read.
//!
//! The sentence is kube-scheduler's, since dashboards and cluster autoscalers read it, too.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::filter;
use super::ranking::Rankings;
use super::reason::Reason;
use super::score::FragmentationTables;
use super::volumes;
use crate::cache::Cache;
use crate::model::{PodKind, Unsupported};

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
    /// Each term of its node affinity names nodes that exclude each other, so no node was looked at.
    Contradiction {
        /// Number of nodes.
        nodes: usize,
    },
    /// One of its claims has to become something else first, so no node was looked at.
    Claims {
        /// Number of nodes.
        nodes: usize,
        /// What is the matter with the claim.
        why: Arc<str>,
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
    pub fn of(
        cache: &Cache,
        tables: &FragmentationTables,
        rankings: &mut Rankings,
        kind: &PodKind,
    ) -> Diagnosis {
        let (nodes, pod) = (cache.node_count(), &kind.spec);
        if nodes == 0 {
            return Diagnosis::NoNodes;
        }
        if !pod.unsupported.is_empty() {
            return Diagnosis::Unsupported { nodes, features: pod.unsupported.clone() };
        }
        let named = pod.selector.named();
        if named.as_ref().is_some_and(BTreeSet::is_empty) {
            return Diagnosis::Contradiction { nodes };
        }
        if let Some(why) = kind.volumes.as_ref().and_then(|needs| needs.blocked.clone()) {
            return Diagnosis::Claims { nodes, why };
        }
        let domains = rankings.domains(cache, tables, kind);
        let mut reasons = BTreeMap::new();
        for (at, info, node) in cache.nodes() {
            if named.as_ref().is_some_and(|named| !named.contains(node.name.as_str())) {
                *reasons.entry(Reason::NotNamed).or_insert(0) += 1;
                continue;
            }
            let seen = info.seen_by(kind.priority, None);
            let mut further = volumes::rejections(cache, kind, &seen, node);
            if further.is_empty() {
                further.extend(domains.and_then(|domains| {
                    let supposed = || match &seen {
                        Cow::Owned(seen) => domains.suppose(cache, kind, at, seen).err(),
                        Cow::Borrowed(_) => None,
                    };
                    domains.judge(kind, at).err().or_else(supposed)
                }));
            }
            for reason in filter::rejections(tables, pod, &seen, node, further) {
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
            Diagnosis::Contradiction { nodes } => {
                write!(f, "0/{nodes} nodes are available: pod affinity terms conflict.")
            }
            Diagnosis::Claims { nodes, why } => write!(f, "0/{nodes} nodes are available: {why}."),
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
