//! One rule's domains, by value of its topology key.
//!
//! Invariant: every number here is the sum of the shares that were given and not taken back; a domain exists while a node has its
//! value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::count::Role;
use crate::cache::NodeIndex;
use crate::model::{PodKind, SpreadConstraint};

/// What one node adds to one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// The node's domain, if it has the rule's key.
    pub domain: Option<u32>,
    /// Pods, or the sum of weights.
    pub pods: i64,
    /// Whether the node is one that the rule counts.
    pub counts: bool,
}

#[derive(Debug, Default)]
pub(super) struct Domain {
    value: Arc<str>,
    pub pods: i64,
    /// Nodes that count.
    counting: usize,
    /// Nodes with this value.
    pub members: BTreeSet<NodeIndex>,
    /// Nodes with this value that the pod may go to.
    chosen: usize,
}

/// One rule's domains.
#[derive(Debug, Default)]
pub(super) struct Table {
    ids: BTreeMap<Arc<str>, u32>,
    pub domains: Vec<Domain>,
    vacant: Vec<u32>,
    /// How many of the domains that count hold how many pods.
    sizes: BTreeMap<i64, usize>,
    /// Number of domains that count.
    counting: usize,
    /// Pods in all of them.
    pub pods: i64,
    /// Number of domains that the pod may go to.
    pub chosen: usize,
}

impl Table {
    pub(super) fn id(&mut self, value: &Arc<str>) -> u32 {
        if let Some(id) = self.ids.get(value) {
            return *id;
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.domains.push(Domain::default());
            // As many as nodes at most.
            u32::try_from(self.domains.len() - 1).unwrap_or(u32::MAX)
        });
        self.domains[id as usize].value = Arc::clone(value);
        self.ids.insert(Arc::clone(value), id);
        id
    }

    /// Puts a node's new share in the place of its old one. Returns the domains whose number changed in a way that matters.
    pub(super) fn exchange(&mut self, at: NodeIndex, old: Share, new: Share, role: Role) -> [Option<u32>; 2] {
        let counting = |share: Share| isize::from(share.counts);
        if old.domain == new.domain {
            let more = (new.pods - old.pods, counting(new) - counting(old));
            return [new.domain.filter(|id| self.add(*id, more.0, more.1, role)), None];
        }
        let joined = new.domain.filter(|id| {
            self.domains[*id as usize].members.insert(at);
            self.add(*id, new.pods, counting(new), role)
        });
        let left = old.domain.filter(|id| {
            let matters = self.add(*id, -old.pods, -counting(old), role);
            self.domains[*id as usize].members.remove(&at);
            self.release_if_vacant(*id);
            matters
        });
        [joined, left]
    }

    fn release_if_vacant(&mut self, id: u32) {
        let domain = &mut self.domains[id as usize];
        if domain.members.is_empty() {
            let domain = std::mem::take(domain);
            debug_assert_eq!((domain.pods, domain.counting, domain.chosen), (0, 0, 0));
            self.ids.remove(&domain.value);
            self.vacant.push(id);
        }
    }

    /// Adds to a domain's numbers. Returns whether the verdict about its nodes may change with it.
    fn add(&mut self, id: u32, pods: i64, counting: isize, role: Role) -> bool {
        let domain = &mut self.domains[id as usize];
        let before = domain.pods;
        let sized = |domain: &Domain| (domain.counting > 0).then_some(domain.pods);
        let old = sized(domain);
        domain.pods += pods;
        domain.counting = domain.counting.saturating_add_signed(counting);
        let (after, new) = (domain.pods, sized(domain));
        self.pods += pods;
        if old != new {
            old.into_iter().for_each(|size| forget(&mut self.sizes, size));
            new.into_iter().for_each(|size| *self.sizes.entry(size).or_default() += 1);
            self.counting -= usize::from(old.is_some());
            self.counting += usize::from(new.is_some());
        }
        match role {
            Role::Affinity | Role::AntiAffinity(_) | Role::Refusals => (before > 0) != (after > 0),
            Role::Spread(_) | Role::SpreadSoftly(_) | Role::Weights => pods != 0,
        }
    }

    /// The number of pods in the emptiest domain of a spread constraint, as it counts.
    fn least(&self, constraint: &SpreadConstraint) -> i64 {
        let least = self.sizes.first_key_value().map_or(0, |(size, _)| *size);
        if self.counting < constraint.min_domains { 0 } else { least }
    }

    pub(super) fn floor(&self, kind: &PodKind, role: Role) -> Option<i64> {
        match (role, &kind.spec.relations) {
            (Role::Spread(nth), Some(relations)) => Some(self.least(&relations.spread[nth])),
            _ => None,
        }
    }

    /// Whether a domain of so many pods, `more` of which are only supposed on the node of this share, could take none more.
    pub(super) fn is_skewed(
        &self,
        constraint: &SpreadConstraint,
        pods: i64,
        share: &Share,
        more: i64,
    ) -> bool {
        let least = match share.domain.map(|id| &self.domains[id as usize]) {
            Some(domain) if more != 0 && domain.counting > 0 && self.counting >= constraint.min_domains => {
                // The number of its domain is another; that of one with as many pods stays.
                let others = self.sizes.iter().find(|(size, count)| **size != domain.pods || **count > 1);
                others.map_or(pods, |(least, _)| pods.min(*least))
            }
            _ => self.least(constraint),
        };
        pods + i64::from(constraint.counts_itself) - least > constraint.max_skew
    }

    pub(super) fn choose(&mut self, id: u32, chosen: bool) {
        let domain = &mut self.domains[id as usize];
        let before = domain.chosen > 0;
        domain.chosen = domain.chosen.saturating_add_signed(if chosen { 1 } else { -1 });
        self.chosen -= usize::from(before);
        self.chosen += usize::from(domain.chosen > 0);
    }
}

fn forget(sizes: &mut BTreeMap<i64, usize>, size: i64) {
    if let Some(count) = sizes.get_mut(&size) {
        *count -= 1;
        if *count == 0 {
            sizes.remove(&size);
        }
    }
}
