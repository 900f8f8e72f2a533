//! What safety is told of the world at one moment. The shell reads it from watches; nothing of it is remembered here.
//!
//! Invariant: an observation may be late but is never a mixture: everything about the node object (journal, cordon, label, state,
//! allocatable) is of one resourceVersion, and whatever is written is refused if that is no longer the latest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::document::Reading;
use super::journal::Journal;
use super::observe::Trial;
use super::record::ClusterRecord;
use crate::mig::{Counts, NodeLayout};
use crate::model::{PodId, Time};
use crate::planner::{Actuator, Immovable};

/// What the actuator says of the last thing it was told. Neither answer says *which* thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has said nothing.
    None,
    /// It is at work (`pending`, `rebooting`; the agent has not seen the latest generation).
    Working,
    /// It has succeeded.
    Done,
    /// It has failed.
    Failed(String),
}

/// A pod that holds MIG instances on the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// The pod.
    pub pod: PodId,
    /// The GPUs that it has instances on; `None` without a fresh map, and then any.
    pub gpus: Option<BTreeSet<u16>>,
    /// Whether it may be moved.
    pub movable: Result<(), Immovable>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it keeps crashing.
    pub crashing: bool,
}

/// A ReplicaSet with a pod that has to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Replicas that are ready.
    pub ready: u32,
    /// Replicas that are wanted.
    pub wanted: u32,
    /// Whether its owner allows the last ready one to be evicted.
    pub may_pause: bool,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The journal's annotation.
    pub journal: Reading<Journal>,
    /// Whether kubelet is ready.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Whether the annotation stands that says the cordon is ours.
    pub our_cordon: bool,
    /// Whether an admin has paused the node.
    pub paused: bool,
    /// What the actuator was told last: the label's value, or the agent's plan.
    pub told: Option<String>,
    /// What it says.
    pub answer: Answer,
    /// Instances per profile in `status.allocatable`, without zeros.
    pub allocatable: Counts,
    /// Instances per profile by GPU feature discovery's labels, without zeros.
    pub discovered: Counts,
    /// The instances of each GPU by a fresh report of the agent or of DCGM.
    pub placed: Option<NodeLayout>,
    /// The names that the actuator can be told.
    pub published: BTreeSet<String>,
    /// The pods that hold instances.
    pub holders: Vec<Holder>,
    /// By ReplicaSet's uid: those with a pod that has to go.
    pub workloads: BTreeMap<Arc<str>, Workload>,
    /// What was measured before and after the change under way.
    pub trial: Trial,
}

/// What is not of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The record.
    pub record: Reading<ClusterRecord>,
    /// Whether an admin has paused everything.
    pub paused: bool,
    /// The API server's clock, brought forward from its last answer by our monotonic one.
    pub server_time: Option<Time>,
}

impl World {
    /// Whether everything that reports instances reports those of `layout`. With mig-manager, starts are the driver's choice.
    pub fn shows(&self, layout: &NodeLayout, actuator: Actuator) -> bool {
        let counts = layout.counts();
        let placed = match (&self.placed, actuator) {
            (Some(placed), Actuator::Agent) => placed == layout,
            (Some(placed), Actuator::MigManager) => placed.counts_by_gpu() == layout.counts_by_gpu(),
            (None, actuator) => actuator == Actuator::MigManager,
        };
        placed && self.allocatable == counts && self.discovered == counts
    }

    /// Whether `layout` is in force beyond doubt. A word of success alone may be about an earlier change, and counts alone may
    /// be on their way out.
    pub fn verifies(&self, layout: &NodeLayout, actuator: Actuator) -> bool {
        self.ready && self.answer == Answer::Done && self.shows(layout, actuator)
    }

    /// The pods that hold, or may hold, instances on these GPUs.
    pub fn holders_on(&self, gpus: &[u16]) -> impl Iterator<Item = &Holder> {
        let on = |holder: &&Holder| match &holder.gpus {
            Some(held) => gpus.iter().any(|gpu| held.contains(gpu)),
            None => true,
        };
        self.holders.iter().filter(on)
    }
}
