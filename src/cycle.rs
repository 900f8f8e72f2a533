//! One decision: a pod against the nodes as they are now.
//!
//! ```text
//!   filter   which nodes can take the pod                     (node-local predicates, kube-scheduler's rules and words)
//!   domains  which of them other pods keep it away from       (pod affinity and spreading, by counts per topology domain)
//!   volumes  which of them its volumes allow                  (node affinity of volumes, attach limits, claims to be bound)
//!   wishes   which of them suit it                            (preferences, weighed as kube-scheduler does)
//!   score    which of those is best                           (least fragmentation, then best fit)
//!   ranking  all that, remembered for pods of equal kind, so that a decision looks only at what changed
//!   preemption  if there is none: who would have to go, and where
//!   hints    whether an event may have made a place for a waiting kind
//!   reasons  if there is none: why, as a histogram over the nodes
//! ```
//!
//! Invariant: a decision changes nothing but the rankings, which are a memory: throwing them away changes the cost of the next
//! decision and never its result.

mod diagnosis;
mod domains;
mod filter;
mod hints;
mod preemption;
mod ranking;
mod reason;
mod score;
mod volumes;
mod wishes;

use crate::cache::{Cache, NodeIndex};
use crate::model::{DevicePlacement, PodKind};

pub use diagnosis::Diagnosis;
pub use filter::feasible;
pub use hints::{Occasion, concerns, has_become_feasible};
pub use preemption::{Preemption, Search};
pub use ranking::Rankings;
pub use reason::Reason;
pub use score::{FragmentationTables, Score, Scoring};
pub use volumes::{assign, is_reachable};

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

/// Decides where a pod of this kind goes. Costs one filter and score for each node that changed since the last decision for
/// an equal kind (for a kind not seen lately: for every node), plus a logarithm of the number of nodes; where other pods have
/// a say, also what [`domains`] costs.
pub fn decide(
    cache: &Cache,
    tables: &FragmentationTables,
    rankings: &mut Rankings,
    kind: &PodKind,
) -> Decision {
    let ranked = rankings.best(cache, tables, kind);
    let placed = ranked.and_then(|(node, feasible)| {
        let placements = score::placements(
            tables,
            rankings.scoring(),
            &kind.spec,
            &cache.at(node).seen_by(kind.priority, None),
        )?;
        Some(Decision::Place { node, placements, feasible })
    });
    placed.unwrap_or_else(|| Decision::Unschedulable(Diagnosis::of(cache, tables, rankings, kind)))
}

/// Every node that [`decide`] chooses from, best first. Empty where it finds none.
pub fn candidates(
    cache: &Cache,
    tables: &FragmentationTables,
    rankings: &mut Rankings,
    kind: &PodKind,
) -> Vec<NodeIndex> {
    rankings.all(cache, tables, kind)
}

#[cfg(test)]
mod tests;
