//! What one look at a node object shows of its layout and of a change under way.
//!
//! Invariant: all of it is of one resourceVersion, under which whatever follows from it is written.

use std::sync::Arc;

use super::document::Reading;
use super::journal::Journal;
use super::world::Answer;
use crate::mig::{Counts, GpuModel};
use crate::model::NodeName;
use crate::planner::Actuator;

/// A node with GPUs that MIG instances can be made on, as its object shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSight {
    /// Its name.
    pub name: NodeName,
    /// `metadata.resourceVersion`.
    pub version: Arc<str>,
    /// The model of all its GPUs.
    pub model: &'static GpuModel,
    /// How many GPUs it has.
    pub gpus: u16,
    /// Who acts on it.
    pub actuator: Actuator,
    /// Whether the operator of the cluster lets us change it, by the configured node selector.
    pub selected: bool,
    /// The journal's annotation.
    pub journal: Reading<Journal>,
    /// Whether kubelet is ready.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Whether the annotation stands that says the cordon is ours.
    pub our_cordon: bool,
    /// Whether an admin has paused it.
    pub paused: bool,
    /// The value of the label that mig-manager obeys.
    pub told: Option<String>,
    /// What mig-manager says.
    pub answer: Answer,
    /// Instances per profile in `status.allocatable`, without zeros.
    pub allocatable: Counts,
    /// Instances per profile by GPU feature discovery's labels, without zeros.
    pub discovered: Counts,
}
