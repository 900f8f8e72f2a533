//! What belongs to the cluster and not to one node: the freeze, the policy's canary stage, the slots of the budget, and when each
//! node was changed last. It lives in one ConfigMap of our namespace.
//!
//! It is edited, never overwritten: whoever writes reads the latest record, applies an [`Edit`] and writes under the
//! resourceVersion it read. An edit that is applied twice changes nothing the second time, and one that takes a slot is refused
//! where the record no longer allows it, so that two leaders together cannot exceed the budget.
//!
//! ```text
//!               new policy           enough changes held
//!   any stage ────────────► Trying ───────────────────────► Everywhere
//!                             │ one was undone
//!                             └──────────────► Failed        (until the next policy)
//! ```
//!
//! Invariant: a node's entry in `changed` is written before the node is touched, so that a journal deleted later is missed. Size:
//! some 45 bytes a node, 0.7 MB of the allowed 1 MiB for 15,000 nodes; nodes that are gone
//! are forgotten.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::journal::{ChangeId, Freeze, Outcome, PolicyVersion};
use super::settings::Settings;
use super::stamp::Stamp;
use crate::model::{NodeName, Time};

/// What belongs to the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterRecord {
    /// Why nothing is changed until somebody removes this.
    pub frozen: Option<Freeze>,
    /// The policy in force and how far it is trusted.
    pub canary: Option<Canary>,
    /// The changes under way.
    pub open: BTreeMap<NodeName, OpenChange>,
    /// When each node was changed last.
    pub changed: BTreeMap<NodeName, Stamp>,
    /// When this record replaced a damaged one: a node that it does not know may have been changed until then.
    pub renewed: Option<Stamp>,
}

/// A policy on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// Which.
    pub policy: PolicyVersion,
    /// How far it is.
    pub stage: Stage,
}

/// How far a policy is trusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Stage {
    /// On a few nodes.
    Trying {
        /// Which.
        members: BTreeSet<NodeName>,
        /// Their changes that held.
        held: BTreeSet<ChangeId>,
    },
    /// On all nodes.
    Everywhere,
    /// On none.
    Failed(String),
}

/// A slot of the budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenChange {
    /// The change.
    pub id: ChangeId,
    /// Since when.
    pub since: Stamp,
}

/// A change to the record. Applying it twice is applying it once.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Takes a slot for a change and enters its node as changed now.
    Open {
        /// The node.
        node: NodeName,
        /// The change.
        id: ChangeId,
        /// The policy that wants it.
        policy: PolicyVersion,
    },
    /// Enters a slot again that a lost record no longer shows.
    Restore {
        /// The node.
        node: NodeName,
        /// The change.
        id: ChangeId,
        /// When it began.
        since: Stamp,
    },
    /// Gives the slot back and counts how the change ended.
    Close {
        /// The node.
        node: NodeName,
        /// The change.
        id: ChangeId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Gives slots back that no journal speaks of, and places of canary nodes that are gone.
    Release {
        /// Whose slot and place.
        nodes: BTreeSet<NodeName>,
        /// Nodes that no longer exist, to be forgotten.
        gone: BTreeSet<NodeName>,
    },
    /// Stops all further changes.
    Freeze(String),
}

/// Which nodes there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// Every node of the cluster.
    pub known: BTreeSet<NodeName>,
    /// Nodes whose layout we may change at all.
    pub eligible: BTreeSet<NodeName>,
    /// Nodes whose journal has a change under way.
    pub changing: BTreeSet<NodeName>,
}

/// Why a slot is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum NoSlot {
    /// Everything stands still.
    Frozen(String),
    /// The policy did harm.
    CanaryFailed(String),
    /// The node is not one of the few on which the policy is tried.
    NotInCanary {
        /// How many there are.
        members: usize,
    },
    /// So many nodes are changing that no more may.
    BudgetSpent {
        /// How many may.
        most: usize,
    },
    /// The node has a change under way.
    Busy,
}

impl ClusterRecord {
    /// A record in the place of one that cannot be read.
    pub fn renewed(now: Time) -> ClusterRecord {
        ClusterRecord { renewed: Some(Stamp::of(now)), ..ClusterRecord::default() }
    }

    /// When a node was changed last, as far as the cluster remembers.
    pub fn last_change(&self, node: &NodeName) -> Option<Stamp> {
        self.changed.get(node).copied().max(self.renewed)
    }

    /// Whether this change has its slot.
    pub fn has_slot(&self, node: &NodeName, id: &ChangeId) -> bool {
        self.open.get(node).is_some_and(|open| open.id == *id)
    }

    /// Whether a change of `node` by `policy` may take a slot.
    pub fn slot(
        &self,
        node: &NodeName,
        policy: &PolicyVersion,
        fleet: &Fleet,
        settings: &Settings,
    ) -> Result<(), NoSlot> {
        if let Some(freeze) = &self.frozen {
            return Err(NoSlot::Frozen(freeze.why.clone()));
        }
        if self.open.contains_key(node) || fleet.changing.contains(node) {
            return Err(NoSlot::Busy);
        }
        match self.canary.as_ref().filter(|canary| canary.policy == *policy).map(|canary| &canary.stage) {
            Some(Stage::Failed(why)) => return Err(NoSlot::CanaryFailed(why.clone())),
            Some(Stage::Trying { members, .. })
                if !members.contains(node)
                    && members.len() >= share(fleet.eligible.len(), settings.canary_share) =>
            {
                return Err(NoSlot::NotInCanary { members: members.len() });
            }
            _ => {}
        }
        let changing: BTreeSet<&NodeName> = self.open.keys().chain(&fleet.changing).collect();
        let most = share(fleet.eligible.len(), settings.budget_share);
        if changing.len() >= most { Err(NoSlot::BudgetSpent { most }) } else { Ok(()) }
    }

    /// The record after an edit; `None` where the edit is refused or changes nothing.
    pub fn edited(
        &self,
        now: Time,
        edit: &Edit,
        fleet: &Fleet,
        settings: &Settings,
    ) -> Option<ClusterRecord> {
        let mut record = self.cut(now);
        match edit {
            Edit::Open { node, id, policy } => {
                record.slot(node, policy, fleet, settings).ok()?;
                record.join(node, policy);
                record.take(node, id, Stamp::of(now));
                record.changed.insert(node.clone(), Stamp::of(now));
            }
            Edit::Restore { node, id, since } => {
                record.take(node, id, *since);
                let entry = record.changed.entry(node.clone()).or_insert(*since);
                *entry = (*entry).max(*since);
            }
            Edit::Close { node, id, outcome } => record.close(now, node, id, outcome, settings),
            Edit::Release { nodes, gone } => {
                record.release(nodes);
                record.changed.retain(|node, _| !gone.contains(node));
            }
            Edit::Freeze(why) if record.frozen.is_none() => {
                record.frozen = Some(Freeze { why: why.clone(), since: Stamp::of(now) });
            }
            Edit::Freeze(_) => {}
        }
        (record != *self).then_some(record)
    }

    /// What has to be tidied: slots of nodes without a change, older than `settings.timings.grace`; the places of canary nodes that
    /// are gone; entries of nodes that are gone, once no cool-down depends on them; stamps too far ahead.
    pub fn leftovers(&self, now: Time, fleet: &Fleet, settings: &Settings) -> Option<Edit> {
        let idle = |(node, open): &(&NodeName, &OpenChange)| {
            !fleet.changing.contains(*node) && open.since.age(now) > settings.timings.grace
        };
        let members = match self.canary.as_ref().map(|canary| &canary.stage) {
            Some(Stage::Trying { members, .. }) => Some(members),
            _ => None,
        };
        let left = members.into_iter().flatten().filter(|node| !fleet.eligible.contains(*node));
        let left = left.filter(|node| !fleet.changing.contains(*node));
        let nodes: BTreeSet<NodeName> =
            self.open.iter().filter(idle).map(|(node, _)| node).chain(left).cloned().collect();
        let old = |(node, changed): &(&NodeName, &Stamp)| {
            !fleet.known.contains(*node) && changed.age(now) > settings.cool_down * 2
        };
        let gone: BTreeSet<NodeName> =
            self.changed.iter().filter(old).map(|(node, _)| node.clone()).collect();
        let tidy = nodes.is_empty() && gone.is_empty() && self.cut(now) == *self;
        (!tidy).then_some(Edit::Release { nodes, gone })
    }

    /// The node becomes one of those on which the policy is tried; a policy not seen before begins its trial.
    fn join(&mut self, node: &NodeName, policy: &PolicyVersion) {
        let fresh = || Canary {
            policy: policy.clone(),
            stage: Stage::Trying { members: BTreeSet::new(), held: BTreeSet::new() },
        };
        let known = self.canary.take().filter(|canary| canary.policy == *policy);
        let canary = self.canary.insert(known.unwrap_or_else(fresh));
        if let Stage::Trying { members, .. } = &mut canary.stage {
            members.insert(node.clone());
        }
    }

    fn take(&mut self, node: &NodeName, id: &ChangeId, since: Stamp) {
        self.open.insert(node.clone(), OpenChange { id: id.clone(), since });
    }

    fn close(&mut self, now: Time, node: &NodeName, id: &ChangeId, outcome: &Outcome, settings: &Settings) {
        if !self.has_slot(node, id) {
            return;
        }
        self.open.remove(node);
        self.changed.insert(node.clone(), Stamp::of(now));
        let Some(Canary { stage, .. }) = &mut self.canary else { return };
        let Stage::Trying { members, held } = stage else { return };
        if !members.contains(node) {
            return;
        }
        match outcome {
            Outcome::Held => {
                held.insert(id.clone());
                if held.len() >= settings.canary_changes {
                    *stage = Stage::Everywhere;
                }
            }
            Outcome::RolledBack(why) | Outcome::Frozen(why) => {
                *stage = Stage::Failed(format!("{node}: {why}"))
            }
            Outcome::Unjudged | Outcome::Aborted(_) => {}
        }
    }

    fn release(&mut self, nodes: &BTreeSet<NodeName>) {
        self.open.retain(|node, _| !nodes.contains(node));
        if let Some(Canary { stage: Stage::Trying { members, .. }, .. }) = &mut self.canary {
            members.retain(|node| !nodes.contains(node));
        }
    }

    /// Stamps too far ahead, cut back to the present.
    fn cut(&self, now: Time) -> ClusterRecord {
        let mut record = self.clone();
        record.changed.values_mut().chain(&mut record.renewed).for_each(|stamp| *stamp = stamp.cut(now));
        record.open.values_mut().for_each(|open| open.since = open.since.cut(now));
        record
    }
}

/// A share of `count`, at least one.
pub(super) fn share(count: usize, share: f64) -> usize {
    ((count as f64 * share) as usize).max(1)
}

#[cfg(test)]
mod tests;
