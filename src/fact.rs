//! What is worth knowing about the engine's work: one value a fact, from which the shell writes both a log line and a metric.
//!
//! Invariant: facts are observations. Nothing ever depends on whether one was seen.

use std::time::Duration;

use crate::forecast::GroupOutlook;
use crate::model::{NodeName, PodId, PodUid};

/// One observation.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A pod of ours entered the queue.
    PodQueued {
        /// The queue it went to.
        queue: QueueName,
        /// What brought it there.
        cause: QueueCause,
    },
    /// An attempt found a node.
    PodAssumed {
        /// The pod.
        pod: PodId,
        /// Its node.
        node: NodeName,
        /// Nodes that could have taken it.
        feasible: usize,
    },
    /// An attempt found none.
    PodUnschedulable {
        /// The pod.
        pod: PodId,
        /// The message reported on the pod.
        message: String,
    },
    /// The API server confirmed a bind.
    PodBound {
        /// The pod.
        pod: PodId,
        /// Its node.
        node: NodeName,
        /// Attempts it took, at least one.
        attempts: u32,
        /// From its first entry into the queue, without time spent gated, until now.
        waited: Duration,
    },
    /// A bind ended without success.
    BindFailed {
        /// The pod.
        pod: PodId,
        /// The node.
        node: NodeName,
        /// What came of it.
        message: String,
    },
    /// It was looked whether others could go for a pod.
    Preemption {
        /// The pod.
        pod: PodId,
        /// Where it will have a place, how many have to go for it, and how many of them against a disruption budget; `None` if
        /// that would not help.
        chosen: Option<(NodeName, usize, usize)>,
    },
    /// The API server refused to end a pod in another's favour.
    EvictionRefused {
        /// The pod.
        victim: PodUid,
        /// In these words.
        message: String,
    },
    /// A kubelet turned away a pod that was bound to its node.
    PodRejected {
        /// The pod.
        pod: PodId,
        /// The node.
        node: NodeName,
        /// The kubelet's word for it.
        reason: String,
        /// Its explanation.
        message: String,
        /// For how long such pods keep away from the node, if that begins now.
        pause: Option<Duration>,
    },
    /// A kind of series was forecast.
    Forecast {
        /// Unix seconds at which.
        at: i64,
        /// How its forecasts do.
        group: GroupOutlook,
        /// Whether another model speaks than before, or it is trusted otherwise.
        changed: bool,
    },
}

/// The parts of the scheduling queue, named as kube-scheduler's metrics name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueName {
    /// Ready to be tried.
    Active,
    /// Waiting for its back-off to end.
    Backoff,
    /// Waiting for something to change that can help it.
    Unschedulable,
    /// Held by scheduling gates.
    Gated,
}

impl QueueName {
    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            QueueName::Active => "active",
            QueueName::Backoff => "backoff",
            QueueName::Unschedulable => "unschedulable",
            QueueName::Gated => "gated",
        }
    }
}

/// What moved a pod between queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueCause {
    /// It was created, or its gates were lifted.
    PodAdd,
    /// Its own spec changed.
    PodUpdate,
    /// An attempt failed.
    ScheduleAttemptFailure,
    /// Its back-off ended.
    BackoffComplete,
    /// A node appeared or changed for the better.
    NodeChange,
    /// A pod on some node ended or was forgotten.
    AssignedPodDelete,
    /// A pod came to some node, or changed there.
    AssignedPodAdd,
    /// A namespace came, went or changed.
    NamespaceChange,
    /// The place that was kept for it is another's now.
    PreemptionByOther,
    /// A pod that was to go for it could not be ended.
    EvictionRefused,
    /// Such pods need no longer keep away from some node.
    StandoffEnd,
    /// A claim, a volume or something else about storage came, went or changed.
    StorageChange,
}

impl QueueCause {
    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            QueueCause::PodAdd => "PodAdd",
            QueueCause::PodUpdate => "PodUpdate",
            QueueCause::ScheduleAttemptFailure => "ScheduleAttemptFailure",
            QueueCause::BackoffComplete => "BackoffComplete",
            QueueCause::NodeChange => "NodeChange",
            QueueCause::AssignedPodDelete => "AssignedPodDelete",
            QueueCause::AssignedPodAdd => "AssignedPodAdd",
            QueueCause::NamespaceChange => "NamespaceChange",
            QueueCause::PreemptionByOther => "PreemptionByOther",
            QueueCause::EvictionRefused => "EvictionRefused",
            QueueCause::StandoffEnd => "StandoffEnd",
            QueueCause::StorageChange => "StorageChange",
        }
    }
}
