//! What a node's annotation holds: everything that must not be lost with the process.
//!
//! The annotation lies in the same object as the label that mig-manager obeys and as `spec.unschedulable`, so that what is
//! intended and what is done are one PATCH, guarded by the object's resourceVersion.
//!
//! Invariant: a [`Journal`] and the observed world determine every further step. It is small: a node of 16 GPUs with 112
//! pods to evict takes some 25 kB of the 256 kB that Kubernetes allows for annotations.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::stamp::Stamp;
use crate::mig::parted::content_hash;
use crate::mig::{NodeLayout, ProfileName};
use crate::model::{Admission, NodeName, Time};
use crate::planner::{Actuator, Evictee, Proposal};

/// The annotation that holds the journal.
pub const JOURNAL: &str = "mig-scheduler.io/journal";

/// The annotation that says that the cordon is ours; set and removed in the same PATCH as `spec.unschedulable`. It is apart from
/// the journal so that a lost journal does not leave a node cordoned.
pub const CORDON: &str = "mig-scheduler.io/cordon";

/// The annotation by which an admin keeps a node (or, on our ConfigMap, the cluster) from being changed; any value but `false`.
pub const PAUSE: &str = "mig-scheduler.io/pause";

/// What is appended to a layout's name to make mig-manager apply it again: it looks at nothing but a changed name.
const AGAIN: &str = "-again";

/// Which policy decides: a hash of thresholds, targets, model and program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyVersion(pub String);

/// What one change is called in journal, cluster record and events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeId(pub String);

/// Why something stands still, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    /// Why.
    pub why: String,
    /// Since when.
    pub since: Stamp,
}

/// What a node's annotation holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// When the layout was last changed, forth or back.
    pub changed: Option<Stamp>,
    /// Why the node is not to be changed until somebody removes this.
    pub frozen: Option<Freeze>,
    /// The change under way.
    pub change: Option<Change>,
}

/// A change under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Its name.
    pub id: ChangeId,
    /// The policy that wanted it.
    pub policy: PolicyVersion,
    /// Who acts.
    pub actuator: Actuator,
    /// When it began.
    pub started: Stamp,
    /// The layout before, verified.
    pub from: NodeLayout,
    /// The layout wanted.
    pub to: NodeLayout,
    /// Under which names the actuator is told.
    pub names: Names,
    /// The pods that go, in this order.
    pub evictees: Vec<Evictee>,
    /// Why, in words.
    pub why: String,
    /// How far it is.
    pub phase: Phase,
}

/// What the actuator is told: a value that differs from the one before, every time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// The new layout.
    pub forward: String,
    /// The old layout.
    pub back: String,
    /// The old layout once more, should the actuator not have managed it.
    pub again: String,
}

/// How far a change is; see the picture in [`safety`](crate::safety).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Phase {
    /// The names are being made known.
    Publishing,
    /// They are known; the actuator may not see them yet.
    Propagating {
        /// Since when.
        since: Stamp,
    },
    /// Cordoned; the first `evicted` of the pods have been told to go, one after the other.
    Draining {
        /// How many.
        evicted: usize,
        /// When the last of them was, or when the node was cordoned.
        since: Stamp,
    },
    /// The new layout is asked for.
    Applying {
        /// Since when.
        since: Stamp,
        /// Whether the device plugin was restarted.
        nudged: bool,
        /// How often the layout has been verified before and was lost again.
        lost: u8,
    },
    /// The new layout is there and is being watched.
    Observing {
        /// Since when it is advertised.
        since: Stamp,
        /// As in `Applying`.
        lost: u8,
    },
    /// The change is to be undone; the GPUs are emptied.
    Retreating {
        /// Since when.
        since: Stamp,
        /// Why.
        why: String,
    },
    /// The old layout is asked for.
    Reverting {
        /// Since when.
        since: Stamp,
        /// Why.
        why: String,
        /// Whether this is the second attempt.
        again: bool,
        /// Whether the actuator has been seen at work since, so that its answer is to this question and not to the last.
        seen: bool,
        /// Whether the device plugin was restarted.
        nudged: bool,
    },
    /// Neither layout can be had; the node waits for a person, or for either layout to show after all.
    Stuck,
    /// All is decided; what is ours is being taken away.
    Closing {
        /// How it ended.
        outcome: Outcome,
    },
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Outcome {
    /// The new layout is in force and did no harm.
    Held,
    /// The new layout is in force and nothing could be measured.
    Unjudged,
    /// Given up before any instance was touched.
    Aborted(String),
    /// The old layout is in force again.
    RolledBack(String),
    /// The node is frozen.
    Frozen(String),
}

/// A place that is kept for the successor of a pod that has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// Where.
    pub node: &'a NodeName,
    /// The successor's ReplicaSet.
    pub workload: &'a str,
    /// What is kept.
    pub profiles: &'a [ProfileName],
}

impl Journal {
    /// The journal with the change that a proposal asks for begun, all steps still ahead. `told` is what the actuator was told
    /// last. `None` where the node has no GPU.
    pub fn begun(
        &self,
        now: Time,
        proposal: &Proposal,
        policy: &PolicyVersion,
        told: Option<&str>,
    ) -> Option<Journal> {
        let id = change_id(proposal, policy, self.changed);
        let change = Change {
            names: names(proposal, &id, told)?,
            id,
            policy: policy.clone(),
            actuator: proposal.actuator,
            started: Stamp::of(now),
            from: proposal.from.clone(),
            to: proposal.to.clone(),
            evictees: proposal.evictees.clone(),
            why: proposal.why.to_string(),
            phase: Phase::Publishing,
        };
        Some(Journal { change: Some(change), ..self.clone() })
    }

    /// The places that are kept while the change is under way.
    pub fn reservations(&self) -> impl Iterator<Item = Reservation<'_>> {
        self.change.iter().flat_map(|change| &change.evictees).map(|evictee| Reservation {
            node: &evictee.home,
            workload: &evictee.workload,
            profiles: &evictee.profiles,
        })
    }

    /// Which pods with MIG instances the node takes now: until the new layout is verified whoever came would have to go again,
    /// and afterwards a pod that cannot be moved would make the way back impossible.
    pub fn admission(&self) -> Admission {
        match self.change.as_ref().map(|change| &change.phase) {
            None | Some(Phase::Closing { .. }) => Admission::All,
            Some(Phase::Observing { .. }) => Admission::Movable,
            Some(_) => Admission::None,
        }
    }

    /// The journal with every stamp that lies too far ahead cut back to the present.
    pub fn cut(&self, now: Time) -> Journal {
        let mut journal = self.clone();
        journal.changed = journal.changed.map(|stamp| stamp.cut(now));
        if let Some(change) = &mut journal.change {
            change.started = change.started.cut(now);
            if let Some(since) = change.phase.since_mut() {
                *since = since.cut(now);
            }
        }
        journal
    }
}

impl Change {
    /// The GPUs that it touches.
    pub fn gpus(&self) -> Vec<u16> {
        self.actuator.touches(&self.from, &self.to)
    }

    /// Whether instances may have been touched.
    pub const fn has_acted(&self) -> bool {
        !matches!(self.phase, Phase::Publishing | Phase::Propagating { .. } | Phase::Draining { .. })
    }
}

impl Phase {
    const fn since_mut(&mut self) -> Option<&mut Stamp> {
        match self {
            Phase::Publishing | Phase::Stuck | Phase::Closing { .. } => None,
            Phase::Propagating { since }
            | Phase::Draining { since, .. }
            | Phase::Applying { since, .. }
            | Phase::Observing { since, .. }
            | Phase::Retreating { since, .. }
            | Phase::Reverting { since, .. } => Some(since),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Held => f.write_str("the new layout holds"),
            Outcome::Unjudged => {
                f.write_str("the new layout is in force; too little was measured to judge it")
            }
            Outcome::Aborted(why) => write!(f, "given up before anything was changed: {why}"),
            Outcome::RolledBack(why) => write!(f, "the old layout is back: {why}"),
            Outcome::Frozen(why) => write!(f, "the node is frozen: {why}"),
        }
    }
}

/// The same for the same proposal as long as nothing has been changed in between, so that asking twice is asking once.
pub(super) fn change_id(proposal: &Proposal, policy: &PolicyVersion, changed: Option<Stamp>) -> ChangeId {
    let content =
        format!("{} {} {} > {} after {:?}", proposal.node, policy.0, proposal.from, proposal.to, changed);
    ChangeId(format!("{:016x}", content_hash(&content)))
}

/// mig-manager takes names of layouts, which are made of their content; the agent takes the number of a plan.
fn names(proposal: &Proposal, id: &ChangeId, told: Option<&str>) -> Option<Names> {
    let (from, to) = (proposal.from.config()?.name(), proposal.to.config()?.name());
    Some(match proposal.actuator {
        Actuator::MigManager => {
            let forward = if told == Some(&to) { format!("{to}{AGAIN}") } else { to };
            Names { forward, again: format!("{from}{AGAIN}"), back: from }
        }
        Actuator::Agent => {
            let name = |part: &str| format!("{}-{part}", id.0);
            Names { forward: name("forward"), back: name("back"), again: name("again") }
        }
    })
}
