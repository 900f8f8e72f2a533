//! Whether an event may have made a place for a waiting kind of pod.
//!
//! | event | may help a kind that other pods cannot keep away | and one that they can |
//! |---|---|---|
//! | a node has more room | if this node can take it | the same, and other pods let it |
//! | a node came, went or has other labels or taints | the same | if it has rules over domains |
//! | a pod left a node | if this node can take it | also elsewhere, if its anti-affinity or spreading counted the pod, or the pod's anti-affinity refused it |
//! | a pod came to a node | no | if its affinity or spreading counts the pod |
//! | a namespace came, went or has other labels | no | if a term selects namespaces by label |
//! | storage changed | if its volumes are concerned | the same |
//!
//! Invariant: a hint never misses, as long as the kind names the terms that concern its pods now; the queue regroups its pods
//! when that changes. What a hint lets through is put to the kind's ranking, which knows exactly; so a pod is woken when there is
//! a place for it and not otherwise.
//!
//! Cost: for a kind whose hint says no, a few comparisons; else one update of its ranking, which is made anew if it has not been
//! used for so long that it was given up.

use super::domains::{attracts, is_spread, selects};
use super::filter::feasible;
use super::ranking::Rankings;
use super::score::FragmentationTables;
use super::volumes;
use crate::cache::{Cache, NodeIndex, Occupant, StorageChange};
use crate::model::{PodKind, Stance};

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occasion<'a> {
    /// A node that may have more room than before.
    pub roomier: Option<NodeIndex>,
    /// Whether a node came, went or has other labels or taints.
    pub moves_domains: bool,
    /// A pod that is not where, or what, it was.
    pub left: Option<&'a Occupant>,
    /// A pod that is somewhere new, or something new.
    pub arrived: Option<&'a Occupant>,
    /// Whether a namespace came, went or has other labels.
    pub moves_namespaces: bool,
}

/// Whether a kind that no node could take before can be taken now. Exact, provided that the occasion tells all that happened.
pub fn has_become_feasible(
    cache: &Cache,
    tables: &FragmentationTables,
    rankings: &mut Rankings,
    occasion: &Occasion<'_>,
    kind: &PodKind,
) -> bool {
    let has_room = occasion.roomier.is_some_and(|at| {
        let info = cache.at(at).seen_by(kind.priority, None);
        info.node().is_some_and(|node| {
            feasible(tables, &kind.spec, &info, node) && volumes::admits(cache, kind, &info, node)
        })
    });
    if !kind.can_be_refused() {
        return has_room;
    }
    let may = has_room || may_move_others(cache, occasion, kind);
    may && kind.spec.unsupported.is_empty() && rankings.best(cache, tables, kind).is_some()
}

/// Whether other pods may keep the kind away from fewer nodes than before.
pub(super) fn may_move_others(cache: &Cache, occasion: &Occasion<'_>, kind: &PodKind) -> bool {
    occasion.moves_domains
        || occasion.left.is_some_and(|pod| is_relieved_by(cache, kind, pod))
        || occasion.arrived.is_some_and(|pod| is_helped_by(cache, kind, pod))
        || occasion.moves_namespaces && depends_on_namespaces(kind)
}

/// Whether a change of storage may have made a place for a kind: one that waiting pods came to because of it (`moved`), or one
/// whose volumes it concerns. What it lets through is put to the kind's ranking, like the rest.
pub fn concerns(change: &StorageChange, moved: bool, kind: &PodKind) -> bool {
    let Some(needs) = kind.volumes.as_deref() else { return false };
    let may = moved
        || change.offers && !needs.waiting.is_empty()
        || (change.all || !change.nodes.is_empty()) && needs.attaches();
    may && needs.blocked.is_none() && kind.spec.unsupported.is_empty()
}

/// Whether a pod that left may have stood in the way.
fn is_relieved_by(cache: &Cache, kind: &PodKind, pod: &Occupant) -> bool {
    let refused = |pod: &Occupant| {
        let mut held = pod.spec.relations.iter().flat_map(|relations| relations.held());
        held.any(|term| term.stance == Stance::Refuses && kind.terms.iter().any(|known| **known == term))
    };
    let counted = kind.spec.relations.as_ref().is_some_and(|relations| {
        relations.anti_affinity.iter().any(|term| selects(cache, &term.pods, pod))
            || relations.spread.iter().any(|constraint| is_spread(constraint, relations, pod))
            // The last of its kind is gone: another may be the first again.
            || relations.attracts_itself && attracts(cache, relations, pod)
    });
    counted || refused(pod)
}

/// Whether a pod that came may be what was missing.
fn is_helped_by(cache: &Cache, kind: &PodKind, pod: &Occupant) -> bool {
    kind.spec.relations.as_ref().is_some_and(|relations| {
        !relations.affinity.is_empty() && attracts(cache, relations, pod)
            // The emptiest domain may have become fuller.
            || relations.spread.iter().any(|constraint| is_spread(constraint, relations, pod))
    })
}

fn depends_on_namespaces(kind: &PodKind) -> bool {
    kind.spec.relations.as_ref().is_some_and(|relations| relations.selects_namespaces())
        || kind.terms.iter().any(|held| held.term.pods.namespace_selector.depends_on_labels())
}
