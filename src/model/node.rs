//! A node as a scheduling decision sees it.
//!
//! Invariant: two nodes that compare equal take every pod alike, so a watch event that leaves the value unchanged (a
//! heartbeat) needs no reaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Labels, NodeName, Resources, Taint};
use crate::mig::GpuModel;

/// What the GPU Operator's mig-manager says of the node's last layout change (`nvidia.com/mig.config.state`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigConfigState {
    /// No such label: nothing on the node changes layouts by label.
    Absent,
    /// `success`: the layout in force is the one asked for.
    Success,
    /// `pending`, `rebooting`, `failed` or a word unknown to us: the device plugin may be stopped and `allocatable` out of
    /// date, so nothing that needs a GPU is sent there.
    Unsettled(Arc<str>),
}

/// How MIG instances come to be on the node's GPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Partitioning {
    /// They exist already; `allocatable` counts them by profile, and kubelet's device plugin picks one.
    Fixed,
    /// They are created when a pod is placed, at the GPU and start that the scheduler picks. Virtual nodes only, until the
    /// node agent acts.
    OnDemand {
        /// The model of every GPU of the node.
        model: &'static GpuModel,
        /// How many there are.
        gpus: u16,
    },
}

/// Which pods with MIG instances a node takes while its layout changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admission {
    /// All.
    #[default]
    All,
    /// Those that can be moved away should the change have to be undone.
    Movable,
    /// None.
    None,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// `metadata.name`.
    pub name: NodeName,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`: the node is cordoned.
    pub unschedulable: bool,
    /// Whether the cordon is this scheduler's own, set for a change of the layout.
    pub our_cordon: bool,
    /// Which pods with MIG instances it takes.
    pub admission: Admission,
    /// `status.allocatable`. (`capacity` keeps profiles that are gone, with zero.)
    pub allocatable: Resources,
    /// The state of the last layout change.
    pub mig_config_state: MigConfigState,
    /// The model named by `nvidia.com/gpu.product`, where the geometry tables know it.
    pub gpu_model: Option<&'static GpuModel>,
    /// How its instances come to be.
    pub partitioning: Partitioning,
    /// `status.declaredFeatures`: what its kubelet says it can do.
    pub features: BTreeSet<Arc<str>>,
    /// `status.images`: the container images on its disk, by each of their names, with their size in bytes.
    pub images: BTreeMap<Arc<str>, u64>,
}
