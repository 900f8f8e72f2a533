//! What is to be packed: demand, the GPUs in their present state, and what may be done to them.
//!
//! Invariant: what cannot be planned is named before anything is searched. A demand that no model could ever meet is an error;
//! a GPU whose reported instances contradict its table is left out and listed in the answer.

use thiserror::Error;

use crate::mig::tables::MODELS;
use crate::mig::{GpuModel, LayoutError, Placement, ProfileName};
use crate::solver::fragmentation::DemandMix;

/// Most waiting pods, and most GPUs, that one problem may have: ten times the largest cluster that is measured, and small enough
/// that every sum of the objective stays exact.
pub const MAX_ITEMS: u64 = 1_000_000;

/// Pods that want one instance each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The instance that each of them wants. It is met by this profile's instances on every model that has it.
    pub profile: ProfileName,
    /// Pods of a higher priority are placed first, as in Kubernetes.
    pub priority: i32,
    /// How many.
    pub count: u32,
}

/// Who holds an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// Nobody: it can be used as it is, or destroyed where the layout may change.
    Free,
    /// A pod that must stay where it is.
    Pinned,
    /// A pod that may be moved to another instance of the same profile, at this cost in slice-seconds.
    Movable {
        /// Work lost by the move, in slice-seconds.
        cost: u32,
    },
}

/// An instance that exists now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its profile and start.
    pub placement: Placement,
    /// Who holds it.
    pub holder: Holder,
}

/// What changing a GPU's layout costs in capacity, in slice-seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeCost {
    /// Once for a node on which any GPU changes: mig-manager stops the device plugin of the whole node for 40–120 s, so this
    /// is that time multiplied by the node's slices. Zero with the node agent.
    pub node: u32,
    /// For every instance created or destroyed: what the node agent takes for one, multiplied by the slices.
    pub instance: u32,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its model.
    pub model: &'static GpuModel,
    /// GPUs with the same number share one node, and with it the cost of a change.
    pub node: u32,
    /// The instances that exist on it.
    pub instances: Vec<Instance>,
    /// What it costs to create or destroy instances on it; `None` where the layout must stay as it is.
    pub change: Option<ChangeCost>,
}

/// How far an answer may go, and how much work may be spent on it. No limit is a time: an answer must be the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most pods that may be moved.
    pub moves: u32,
    /// Whether emptying a GPU is worth moves. Otherwise pods are moved only to place others, or to open fewer GPUs for them.
    pub consolidate: bool,
    /// Most nodes of the branch-and-bound search.
    pub nodes: u32,
    /// Most pivots of all linear programs together.
    pub pivots: u32,
}

impl Default for Limits {
    /// Movable pods may all be moved but not merely to empty a GPU; enough work for a proof on small clusters and for a small
    /// gap on the largest.
    fn default() -> Limits {
        Limits { moves: u32::MAX, consolidate: false, nodes: 100, pivots: 200_000 }
    }
}

/// A cluster and what is wanted of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Pods to place, forecast ones included.
    pub demand: Vec<Demand>,
    /// The GPUs, those that must not change included.
    pub gpus: Vec<Gpu>,
    /// The recent demand, by which the fragmentation left behind is judged.
    pub mix: DemandMix,
    /// Limits.
    pub limits: Limits,
}

/// Why nothing can be packed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PackError {
    /// A cluster without GPUs.
    #[error("gpus: the cluster has no GPU: give at least one with MIG")]
    NoGpus,
    /// A profile that exists on no model at all.
    #[error(
        "demand[{at}].profile: no known GPU model has `{profile}`: correct it, or add its model to the tables"
    )]
    UnknownProfile {
        /// Position in [`Problem::demand`].
        at: usize,
        /// The profile.
        profile: ProfileName,
    },
    /// More pods or GPUs than can be meant.
    #[error(
        "{field}: {count} are more than the {MAX_ITEMS} that one problem may have: correct the count, or divide it"
    )]
    TooMany {
        /// `demand` or `gpus`.
        field: &'static str,
        /// How many there are.
        count: u64,
    },
    /// The answer failed its own check: a fault of the solver.
    #[error(
        "the planned layout of a GPU is not legal, which is a fault of the solver, please report it: {0}"
    )]
    Unsound(LayoutError),
}

impl Problem {
    /// Refuses what makes no sense as a whole; a GPU that contradicts its table is left out of the answer instead.
    pub fn validate(&self) -> Result<(), PackError> {
        if self.gpus.is_empty() {
            return Err(PackError::NoGpus);
        }
        Problem::check_demand(&self.demand)?;
        few_enough("gpus", self.gpus.len() as u64)
    }

    /// Refuses a demand that makes no sense whatever the GPUs are, so that it can be asked before they are made up.
    pub fn check_demand(demand: &[Demand]) -> Result<(), PackError> {
        let known = |profile| MODELS.iter().any(|model| model.profile(profile).is_ok());
        if let Some((at, demand)) = demand.iter().enumerate().find(|(_, demand)| !known(demand.profile)) {
            return Err(PackError::UnknownProfile { at, profile: demand.profile });
        }
        few_enough("demand", demand.iter().map(|demand| u64::from(demand.count)).sum())
    }
}

fn few_enough(field: &'static str, count: u64) -> Result<(), PackError> {
    if count > MAX_ITEMS { Err(PackError::TooMany { field, count }) } else { Ok(()) }
}
