//! Which running pods may be moved: stateless inference pods alone.
//!
//! Invariant: whatever is not known to be movable stays. A pod without the label, of another owner or with a volume that one node
//! alone can mount is never evicted, whatever that costs.

use std::fmt;

use crate::model::Labels;

/// The label that says what a pod is for.
pub const TASK_LABEL: &str = "ai.task.type";

/// The value of [`TASK_LABEL`] of pods that may be moved.
pub const INFERENCE: &str = "inference";

/// What decides whether a pod may be moved.
#[derive(Clone, Copy, Debug)]
pub struct PodFacts<'a> {
    /// `metadata.labels`.
    pub labels: &'a Labels,
    /// Whether its controller is a ReplicaSet, which makes a successor at once.
    pub has_replica_set: bool,
    /// Whether it mounts a volume that one node alone can mount (`ReadWriteOnce`, `ReadWriteOncePod`, a disk of its own), or one of
    /// which that is not known.
    pub has_node_bound_volume: bool,
    /// Whether its owner has forbidden it by annotation.
    pub opted_out: bool,
}

/// Why a pod may not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Immovable {
    /// Not labelled as inference: training, or nobody knows.
    NotInference,
    /// Nobody would make a successor.
    NoReplicaSet,
    /// Its volume cannot follow.
    NodeBoundVolume,
    /// Its owner does not want it.
    OptedOut,
}

/// Whether a pod may be moved, or the first reason why not.
pub fn movable(pod: &PodFacts<'_>) -> Result<(), Immovable> {
    if pod.labels.get(TASK_LABEL).map(|value| &**value) != Some(INFERENCE) {
        Err(Immovable::NotInference)
    } else if !pod.has_replica_set {
        Err(Immovable::NoReplicaSet)
    } else if pod.has_node_bound_volume {
        Err(Immovable::NodeBoundVolume)
    } else if pod.opted_out {
        Err(Immovable::OptedOut)
    } else {
        Ok(())
    }
}

impl fmt::Display for Immovable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Immovable::NotInference => write!(f, "it is not labelled {TASK_LABEL}={INFERENCE}"),
            Immovable::NoReplicaSet => f.write_str("no ReplicaSet owns it"),
            Immovable::NodeBoundVolume => f.write_str("it has a volume that one node alone can mount"),
            Immovable::OptedOut => f.write_str("its owner has forbidden it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stateless_inference_moves() {
        let labels = |task: &str| Labels::from([(TASK_LABEL.into(), task.into())]);
        let [inference, training, capital] = ["inference", "training", "Inference"].map(labels);
        let good = PodFacts {
            labels: &inference,
            has_replica_set: true,
            has_node_bound_volume: false,
            opted_out: false,
        };
        assert_eq!(movable(&good), Ok(()));
        let bad = [
            (PodFacts { labels: &training, ..good }, Immovable::NotInference),
            (PodFacts { labels: &capital, ..good }, Immovable::NotInference),
            (PodFacts { labels: &Labels::new(), ..good }, Immovable::NotInference),
            (PodFacts { has_replica_set: false, ..good }, Immovable::NoReplicaSet),
            (PodFacts { has_node_bound_volume: true, ..good }, Immovable::NodeBoundVolume),
            (PodFacts { opted_out: true, ..good }, Immovable::OptedOut),
        ];
        for (pod, why) in bad {
            assert_eq!(movable(&pod), Err(why));
            assert!(!why.to_string().is_empty());
        }
    }
}
