//! The document that `pack` reads, as users write it in YAML or JSON.
//!
//! Invariant: a field that is not listed here is refused, never ignored. The documentation comments are the descriptions in the
//! JSON schema (`pack --schema`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::yaml::Form;

/// How errors speak of the document. 100,000 GPUs with seven instances each, written in full, are about 60 MiB.
pub(super) const FORM: Form = Form {
    name: "demand document",
    size_limit_mib: 128,
    example: "`mig-scheduler pack --help` shows one",
    head: "begin with `demand:`",
};

/// What is to be packed, and onto which GPUs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct PackRequest {
    /// Pods to place, forecast ones included. Each wants one instance.
    pub demand: Vec<Demand>,
    /// The GPUs with their present instances. Leave it out when the command line has --model.
    pub gpus: Vec<Gpu>,
    /// What was asked for lately: between equally good layouts, the one that leaves more room for this wins. Left out: the
    /// demand itself.
    pub recent_demand: Vec<RecentDemand>,
    /// Who is to change the layouts, which decides what may change. Left out: agent, and with --mig-parted mig-manager.
    #[schemars(with = "Actuator")]
    pub actuator: Option<Actuator>,
    /// What changing a layout costs, for every GPU that does not say otherwise. Left out: what the actuator usually costs.
    #[schemars(with = "ChangeCost")]
    pub change_cost: Option<ChangeCost>,
    /// How far the plan may go.
    pub limits: Limits,
}

/// Who changes layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Actuator {
    /// The node agent: it creates and destroys single free instances while the others run.
    Agent,
    /// NVIDIA's mig-manager: it destroys all instances of a GPU before it makes new ones. A GPU that holds any pod, movable or
    /// not, therefore keeps its layout.
    MigManager,
}

/// Pods that want one instance each.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Demand {
    /// The MIG profile, such as 1g.5gb, 1g.5gb+me or nvidia.com/mig-1g.5gb.
    pub profile: String,
    /// How many pods.
    #[serde(default = "one")]
    pub count: u32,
    /// Pods of a higher priority are placed first.
    #[serde(default)]
    pub priority: i32,
}

/// What was asked for lately.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RecentDemand {
    /// The MIG profile.
    pub profile: String,
    /// How often.
    #[serde(default = "one")]
    pub count: u32,
}

/// A GPU in MIG mode.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Gpu {
    /// The node's name in Kubernetes.
    pub node: String,
    /// The GPU's NVML index on its node, as nvidia-smi numbers them.
    pub index: u16,
    /// The model (A100-40GB), or the product label of the node (NVIDIA-A100-SXM4-40GB).
    pub model: String,
    /// The instances that exist now.
    #[serde(default)]
    pub instances: Vec<Instance>,
    /// True: its layout stays as it is. Free instances are used all the same.
    #[serde(default)]
    pub fixed: bool,
    /// What changing its layout costs.
    #[serde(default)]
    #[schemars(with = "ChangeCost")]
    pub change_cost: Option<ChangeCost>,
}

/// A GPU instance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Instance {
    /// Its MIG profile.
    pub profile: String,
    /// The memory slice at which it starts.
    pub start: u8,
    /// The pod that holds it, as namespace/name. Left out: it is free. A pod that is not movable may hold several instances of
    /// one node.
    #[serde(default)]
    #[schemars(with = "String")]
    pub pod: Option<String>,
    /// True: the pod may be moved to another instance of the same profile.
    #[serde(default)]
    pub movable: bool,
    /// Work lost by moving the pod, in slice-seconds, at most 1000000.
    #[serde(default = "move_cost")]
    pub move_cost: u32,
}

/// Capacity lost by changing layouts, in memory slices times seconds, each at most 1000000.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct ChangeCost {
    /// Once for each node on which any GPU changes. mig-manager stops the device plugin of the whole node for about 100
    /// seconds: 100 times the node's slices. The node agent stops nothing: 0.
    pub node: u32,
    /// For each instance that is created or destroyed.
    pub instance: u32,
}

impl Default for ChangeCost {
    /// The node agent: about a second for one instance of an eight-slice GPU.
    fn default() -> Self {
        ChangeCost { node: 0, instance: 8 }
    }
}

/// How far the plan may go, and how much work is spent on finding it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Limits {
    /// Most pods that may be moved.
    pub moves: u32,
    /// True: pods may also be moved only to empty a GPU.
    pub consolidate: bool,
    /// Most nodes of the branch-and-bound search.
    pub nodes: u32,
    /// Most pivots of all linear programs together.
    pub pivots: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let crate::solver::packing::Limits { moves, consolidate, nodes, pivots } = Default::default();
        Limits { moves, consolidate, nodes, pivots }
    }
}

fn one() -> u32 {
    1
}

/// A restart of about a minute on one slice.
fn move_cost() -> u32 {
    60
}
