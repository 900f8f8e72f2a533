//! One decision: a pod against the nodes as they are now.
//!
//! ```text
//!   filter   which nodes can take the pod                     (node-local predicates, kube-scheduler's rules and words)
//!   score    which of them is best                            (least fragmentation, then best fit)
//!   ranking  both, remembered for pods of equal spec, so that a decision looks only at nodes that changed
//!   reasons  if there is none: why, as a histogram over the nodes
//! ```
//!
//! Invariant: a decision changes nothing but the rankings, which are a memory: throwing them away changes the cost of the next
//! decision and never its result.

mod diagnosis;
mod filter;
mod ranking;
mod reason;
mod score;

use crate::cache::{Cache, NodeIndex};
use crate::model::{DevicePlacement, PodSpec};

pub use diagnosis::Diagnosis;
pub use filter::feasible;
pub use ranking::Rankings;
pub use reason::Reason;
pub use score::{FragmentationTables, Score, Scoring};

/// What came of looking for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The pod goes here.
    Place {
        /// The node.
        node: NodeIndex,
        /// The instances chosen for it, where the node's are created on demand.
        placements: Vec<DevicePlacement>,
        /// Number of nodes that could have taken it.
        feasible: usize,
    },
    /// No node can take it now.
    Unschedulable(Diagnosis),
}

/// Decides where a pod with this spec goes. Costs one filter and score for each node that changed since the last decision for
/// an equal spec (for a spec not seen lately: for every node), plus a logarithm of the number of nodes.
pub fn decide(
    cache: &Cache,
    tables: &FragmentationTables,
    rankings: &mut Rankings,
    spec: &std::sync::Arc<PodSpec>,
) -> Decision {
    let ranked = rankings.best(cache, tables, spec);
    let placed = ranked.and_then(|(node, feasible)| {
        let placements = score::placements(tables, rankings.scoring(), spec, cache.at(node))?;
        Some(Decision::Place { node, placements, feasible })
    });
    placed.unwrap_or_else(|| Decision::Unschedulable(Diagnosis::of(cache, tables, spec)))
}

#[cfg(test)]
mod tests;
