//! Which of the nodes that can take a pod, and fulfil its wishes equally well, is best: least fragmentation, then best fit. Of
//! nodes that are equal to a GPU the one with more of the pod's images on its disk is better.
//!
//! Invariant: scores are whole numbers compared field by field, lower is better, so that a choice is the same on every
//! machine and a tie is decided by the node's position.

use std::collections::BTreeMap;

use crate::cache::NodeInfo;
use crate::mig::{GpuModel, ProfileName};
use crate::model::{DevicePlacement, Node, Partitioning, PodSpec};
use crate::solver::fitting::{Fitting, Preference, fit};
use crate::solver::fragmentation::{DemandMix, FragmentationTable};

/// How nodes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scoring {
    /// Least demand-weighted fragmentation, then best fit.
    LeastFragmentation,
    /// Best fit alone: the fullest GPU, then the fullest node. A baseline.
    BestFit,
    /// The emptiest node, as kube-scheduler prefers it by default. A baseline.
    Spread,
}

impl Scoring {
    fn preference(self) -> Preference {
        match self {
            Scoring::LeastFragmentation => Preference::LeastFragmentation,
            Scoring::BestFit => Preference::FullestGpu,
            Scoring::Spread => Preference::EmptiestGpu,
        }
    }
}

/// How well a node suits a pod; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// 1 if a pod without need of a GPU would take CPU and memory of a node that has one.
    spoils_gpu: u8,
    /// Rise of fragmentation in 1/1024 slices.
    fragmentation: i64,
    /// Slices free where the pod goes: on its GPUs after it, or now among the node's instances.
    free_slices: i64,
    /// How little of the pod's images is on the node, in hundredths.
    cold: u8,
    /// CPU and memory left free on the node, each in 1/1024 of what it offers, added.
    free_share: i64,
}

/// The fragmentation tables of every GPU model whose instances are created on demand.
#[derive(Clone, Debug, Default)]
pub struct FragmentationTables {
    by_model: BTreeMap<&'static GpuModel, FragmentationTable>,
}

impl FragmentationTables {
    /// Makes sure that a model's table exists.
    pub fn add(&mut self, model: &'static GpuModel, mix: &DemandMix) {
        self.by_model.entry(model).or_insert_with(|| FragmentationTable::new(model, mix));
    }

    /// Takes over another mix of demand. Returns whether there was any table to change.
    pub fn reweigh(&mut self, mix: &DemandMix) -> bool {
        self.by_model.values_mut().for_each(|table| table.reweigh(mix));
        !self.by_model.is_empty()
    }

    /// Whether any of the models has this profile.
    pub fn know(&self, profile: ProfileName) -> bool {
        self.by_model.keys().any(|model| model.profile(profile).is_ok())
    }

    /// The table of a model that was added.
    pub fn get(&self, model: &'static GpuModel) -> Option<&FragmentationTable> {
        self.by_model.get(model)
    }
}

/// Finds room for the pod's MIG instances on a node, or says that there is none. Where they exist already, kubelet's device
/// plugin chooses and the answer is an empty list.
fn fitting(
    tables: &FragmentationTables,
    scoring: Scoring,
    pod: &PodSpec,
    info: &NodeInfo,
) -> Option<Fitting> {
    let on_demand = match info.node()?.partitioning {
        Partitioning::OnDemand { model, .. } if !pod.mig.is_empty() => Some(model),
        _ => None,
    };
    let Some(model) = on_demand else {
        return Some(Fitting { placements: Vec::new(), fragmentation: 0, free_slices: info.free_slices() });
    };
    if info.has_unaccounted_instances() {
        return None;
    }
    fit(tables.get(model)?, scoring.preference(), info.gpus(), &pod.mig)
}

/// The instances to create for the pod on a node, empty where they exist already; `None` if there is no room.
pub(super) fn placements(
    tables: &FragmentationTables,
    scoring: Scoring,
    pod: &PodSpec,
    info: &NodeInfo,
) -> Option<Vec<DevicePlacement>> {
    fitting(tables, scoring, pod, info).map(|fitting| fitting.placements)
}

/// Scores a node that can take the pod; `None` if its GPUs cannot after all.
pub(super) fn score(
    tables: &FragmentationTables,
    scoring: Scoring,
    pod: &PodSpec,
    info: &NodeInfo,
    node: &Node,
) -> Option<Score> {
    let fitting = fitting(tables, scoring, pod, info)?;
    let free = |taken: u64, wanted: u64, offered: u64| {
        // Amounts are below 2^64 / 1024 (see `MAX_QUANTITY`), and offered is what one node has.
        let left = offered.saturating_sub(taken).saturating_sub(wanted);
        i64::try_from(left.saturating_mul(1024) / offered.max(1)).unwrap_or(i64::MAX)
    };
    let (taken, wanted, offered) = (info.requested(), &pod.requests, &node.allocatable);
    let free_share = free(taken.cpu_milli, wanted.cpu_milli, offered.cpu_milli)
        + free(taken.memory, wanted.memory, offered.memory);
    let free_slices = i64::try_from(fitting.free_slices).unwrap_or(i64::MAX);
    let spoils_gpu = u8::from(!pod.needs_gpu() && has_gpu(info, node));
    let cold = cold(pod, node);
    Some(match scoring {
        Scoring::LeastFragmentation => {
            Score { spoils_gpu, fragmentation: fitting.fragmentation, free_slices, cold, free_share }
        }
        Scoring::BestFit => Score { spoils_gpu, fragmentation: 0, free_slices, cold, free_share },
        Scoring::Spread => {
            Score { spoils_gpu: 0, fragmentation: 0, free_slices: 0, cold: 0, free_share: -free_share }
        }
    })
}

/// Below this size an image is there in no time (kube-scheduler's bounds).
const SMALL_IMAGES: u64 = 23 << 20;

/// Above this size an image counts no more than one of just this size.
const LARGE_IMAGE: u64 = 1000 << 20;

/// How little of the pod's images is on the node: 100 for nothing worth mentioning, 0 for all of them or more than is counted.
/// Unlike kube-scheduler's term it does not depend on how many other nodes have them: a few packed nodes are what we want.
fn cold(pod: &PodSpec, node: &Node) -> u8 {
    let most = LARGE_IMAGE * pod.images.len() as u64;
    if node.images.is_empty() || most == 0 {
        return 100;
    }
    let present = pod
        .images
        .iter()
        .filter_map(|image| node.images.get(image))
        .fold(0, |sum: u64, size| sum.saturating_add(*size));
    let counted = present.clamp(SMALL_IMAGES, most);
    u8::try_from(100 - 100 * (counted - SMALL_IMAGES) / (most - SMALL_IMAGES)).unwrap_or(100)
}

fn has_gpu(info: &NodeInfo, node: &Node) -> bool {
    !info.gpus().is_empty() || node.allocatable.extended().iter().any(|(name, _)| name.is_nvidia())
}
