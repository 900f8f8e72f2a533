//! Everything the engine can ask for.
//!
//! Invariant: an effect is a request, not a call. The shell carries it out in its own lanes and answers a bind with
//! [`crate::event::Event::BindFinished`], an eviction with `EvictionFinished`; everything else may be merged (latest wins) or, for events, dropped and counted.

use std::sync::Arc;

use crate::fact::Fact;
use crate::model::{ClaimKey, DevicePlacement, NodeName, PodId};

/// Something the engine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Bind the pod to the node. Answered by exactly one `BindFinished`.
    Bind(Binding),
    /// Write for which node or volume the claims of a pod are meant, before the pod is bound. Answered by exactly one
    /// `ClaimsWritten`, unless this replica stops leading.
    WriteClaims(ClaimWrites),
    /// Tell the pod why it is not running: its `PodScheduled` condition and, if `publish` is set, a `FailedScheduling` event.
    ReportUnschedulable(UnschedulableReport),
    /// Tell the pod, by a `Scheduled` event, where it was bound to.
    ReportScheduled {
        /// The pod.
        pod: PodId,
        /// Its node.
        node: NodeName,
    },
    /// Ask a pod to end in another's favour, within its own grace period. Answered by exactly one `EvictionFinished`.
    Evict(Eviction),
    /// Tell a pod, by an event, that its node turned it away and what follows.
    ReportRejected {
        /// The pod.
        pod: PodId,
        /// For people.
        explanation: String,
    },
    /// Something worth a log line and a metric.
    Fact(Fact),
}

/// A bind to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The pod; its uid guards against a successor of the same name.
    pub pod: PodId,
    /// The node.
    pub node: NodeName,
    /// The instances chosen for it; empty where the node's device plugin chooses.
    pub placements: Vec<DevicePlacement>,
}

/// A pod that has to go for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod; its uid guards its successors.
    pub victim: PodId,
    /// Its `metadata.generation`, quoted in the condition that is written about it; zero when absent.
    pub generation: i64,
    /// The pod that is to have its place.
    pub preemptor: PodId,
    /// Where.
    pub node: NodeName,
}

/// What is to be written about the claims of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimWrites {
    /// The pod.
    pub pod: PodId,
    /// The node chosen for it.
    pub node: NodeName,
    /// Tells this attempt from others for the same pod.
    pub attempt: u64,
    /// The writes, each on the condition that its object has not changed.
    pub writes: Vec<ClaimWrite>,
}

/// One write about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimWrite {
    /// The claim gets a volume that is made for a node (`volume.kubernetes.io/selected-node`).
    SelectNode {
        /// The claim.
        claim: ClaimKey,
        /// Its uid.
        uid: Arc<str>,
        /// Its version.
        version: u64,
    },
    /// The volume is kept for the claim (`spec.claimRef`).
    Reserve {
        /// The volume's name.
        volume: Arc<str>,
        /// Its version.
        version: u64,
        /// The claim.
        claim: ClaimKey,
        /// The claim's uid.
        uid: Arc<str>,
        /// Whether nobody had kept it for the claim before (`pv.kubernetes.io/bound-by-controller`).
        chosen: bool,
    },
}

/// Why a pod is not running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnschedulableReport {
    /// The pod.
    pub pod: PodId,
    /// `metadata.generation` of the pod that was looked at.
    pub generation: i64,
    /// The condition's reason.
    pub reason: UnschedulableReason,
    /// For people: `0/20 nodes are available: …`.
    pub message: String,
    /// The node on which a place is kept for it.
    pub nominated: Option<NodeName>,
    /// Whether an attempt was made and its message differs from the last one for this pod, and so is worth an event too.
    pub publish: bool,
}

/// `reason` of a `PodScheduled=False` condition, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnschedulableReason {
    /// No node can take the pod now.
    Unschedulable,
    /// Something failed on the way; it will be tried again.
    SchedulerError,
}

impl UnschedulableReason {
    /// The word as the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            UnschedulableReason::Unschedulable => "Unschedulable",
            UnschedulableReason::SchedulerError => "SchedulerError",
        }
    }
}
