//! Everything the engine can learn.
//!
//! Invariant: the sequence of `(Time, Event)` determines every decision. Whoever records it can replay a run exactly.

use std::sync::Arc;

use crate::forecast::Outlook;
use crate::model::{
    Budget, BudgetId, Labels, Node, NodeName, Pod, PodId, PodSpec, PodUid, StorageKey, StorageObject, Time,
};

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Nodes, pods, namespaces and storage have been listed completely once: decisions may begin.
    Synced,
    /// A node appeared or changed.
    NodeApplied(Node),
    /// A node is gone.
    NodeDeleted(NodeName),
    /// A pod appeared or changed, whoever it belongs to.
    PodApplied(Pod),
    /// A pod is gone.
    PodDeleted(PodUid),
    /// A namespace appeared or changed.
    NamespaceApplied {
        /// Its name.
        name: Arc<str>,
        /// Its labels, by which affinity terms select it.
        labels: Labels,
    },
    /// A namespace is gone.
    NamespaceDeleted(Arc<str>),
    /// A claim, a volume or something else about storage appeared or changed.
    StorageApplied(StorageObject),
    /// The same is gone.
    StorageDeleted(StorageKey),
    /// A bind that the engine asked for has ended, with a definite answer.
    BindFinished {
        /// The pod.
        uid: PodUid,
        /// The node it was to be bound to.
        node: NodeName,
        /// What came of it.
        outcome: BindOutcome,
    },
    /// A kubelet has turned away a pod of ours that was bound to its node.
    PodRejected(Rejection),
    /// A disruption budget appeared or changed.
    BudgetApplied {
        /// Which.
        id: BudgetId,
        /// What it says now.
        budget: Budget,
    },
    /// A disruption budget is gone.
    BudgetDeleted(BudgetId),
    /// A pod was asked to end, or could not be.
    EvictionFinished {
        /// The pod.
        victim: PodUid,
        /// What came of it.
        outcome: EvictionOutcome,
    },
    /// Writes about a pod's claims that the engine asked for have ended.
    ClaimsWritten {
        /// The pod.
        uid: PodUid,
        /// The attempt that asked for them.
        attempt: u64,
        /// The version of each object after its write; or why one was refused, or did not get through for long.
        outcome: Result<Vec<u64>, String>,
    },
    /// What the forecaster expects, in the place of what it said before. Nobody asks for it and nobody waits for it.
    Forecast(Arc<Outlook>),
    /// Time has passed. The engine takes up what is due and decides about at most `budget` pods: as many as the shell has
    /// room for binds in flight.
    Tick {
        /// Number of decisions allowed.
        budget: usize,
    },
}

/// How a bind ended. There is no "unknown": the shell repeats the request, which is idempotent, until the API server has
/// given a definite answer, since a guess either way could put two pods on one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindOutcome {
    /// The pod is bound to the node asked for.
    Bound,
    /// The pod is gone, is being deleted, or was replaced by another of its name.
    Gone,
    /// Somebody else bound it to another node.
    BoundElsewhere(NodeName),
    /// The API server refuses this bind, for the reason given; it may accept a later one.
    Refused(String),
}

/// How a request that a pod end was answered. There is no "unknown": it is repeated until there is an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod is ending or gone. The watch tells when it is.
    Ends,
    /// The API server refuses, for the reason given.
    Refused(String),
}

/// A bound pod that its node's kubelet did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The pod.
    pub pod: PodId,
    /// The node.
    pub node: NodeName,
    /// What the pod asked for.
    pub spec: Arc<PodSpec>,
    /// When the kubelet took it up, or when it was created where that is not known.
    pub at: Time,
    /// `status.reason`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
}
