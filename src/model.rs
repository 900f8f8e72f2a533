//! What the scheduler knows of the world, as plain values: pods, nodes, resources, ids and time.
//!
//! Invariant: nothing here does I/O or knows Kubernetes' wire types. `shell::convert` builds these values from the API, the
//! simulation builds them from a trace, and the engine cannot tell the difference. They are compared and ordered by content,
//! so that a replay of the same values takes the same decisions.

mod budget;
mod ids;
mod node;
mod pod;
mod relation;
mod requests;
mod resources;
pub mod rng;
mod selector;
mod shun;
mod taint;
mod time;
mod volume;

pub use budget::{Budget, BudgetId, Budgets, Spending};
pub use ids::{NodeName, PodId, PodUid};
pub use node::{Admission, MigConfigState, Node, Partitioning};
pub use pod::{DevicePlacement, HostPort, MigRequest, Pod, PodSpec, Protocol, Unsupported, Upkeep};
pub use relation::{AffinityTerm, HeldTerm, PodKind, PodSelection, Relations, SpreadConstraint, Stance};
pub use requests::{ContainerRequests, OnNode, PodLevel, PodRequests};
pub use resources::{MAX_QUANTITY, ResourceName, Resources};
pub use selector::{LabelSelector, Labels, NodeSelector, NodeSelectorTerm, Operator, Requirement};
pub use shun::Shunned;
pub use taint::{Taint, TaintEffect, Toleration};
pub use time::Time;
pub use volume::{
    Attachment, BoundVolume, Claim, ClaimKey, ClaimUse, CsiDriver, CsiNode, Disk, HOST_LABEL, KeptVolume,
    StorageCapacity, StorageClass, StorageKey, StorageObject, Volume, VolumeId, VolumeNeeds, WaitingClaim,
    ZONE_LABELS,
};
