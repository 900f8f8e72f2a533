//! Why one node rejects a pod, as data; its words are kube-scheduler's where kube-scheduler has any.

use std::fmt;
use std::sync::Arc;

use crate::model::{MigRequest, PodSpec, ResourceName};

/// Why one node rejects a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The node is cordoned.
    Cordoned,
    /// Its MIG layout is being changed, or was changed lately.
    LayoutChanging,
    /// It has a taint that the pod does not tolerate.
    UntoleratedTaint,
    /// The pod's node affinity names the nodes that it may go to, and this is none of them.
    NotNamed,
    /// The pod's node selector or required node affinity excludes it.
    NodeAffinity,
    /// Its kubelet has turned such a pod away.
    Shunned,
    /// A host port is taken.
    HostPorts,
    /// It runs as many pods as it may.
    TooManyPods,
    /// Too little CPU, memory or ephemeral storage is free.
    InsufficientBasic(&'static str),
    /// Too little of an extended resource is free.
    Insufficient(ResourceName),
    /// A disk that the pod names itself is mounted by a pod there, and not both may.
    DiskConflict,
    /// A claim that one pod is to have for itself is used by another.
    ClaimInUse,
    /// It cannot attach as many volumes as that.
    TooManyVolumes,
    /// A volume of the pod cannot be reached from it.
    VolumeAffinity,
    /// A claim that waits for its first consumer finds no volume there.
    NoVolumeToBind,
    /// There is no room for a volume that would have to be made.
    NotEnoughStorage,
    /// A claim of the pod is bound to a volume that does not exist.
    VolumeMissing,
    /// A volume's labels put it into another zone or region.
    VolumeZone,
    /// It lacks the label of a spread constraint's topology.
    SpreadLabelMissing,
    /// A spread constraint would be broken in its domain.
    Spread,
    /// The pods that required affinity looks for are not in its domain.
    PodAffinity,
    /// A pod that required anti-affinity looks for is in its domain.
    PodAntiAffinity,
    /// A running pod's required anti-affinity keeps the pod out of its domain.
    ExistingAntiAffinity,
    /// Its kubelet does not declare something that the pod needs.
    DeclaredFeatures,
    /// Its MIG layout is being changed, or the change failed.
    MigConfigUnsettled(Arc<str>),
    /// None of its GPUs has room for the instances, which are listed.
    NoFreeSlot(Arc<str>),
    /// Instances exist on its GPUs at unknown places.
    UnaccountedInstances,
    /// No pod on it has a lower priority.
    NoVictims,
    /// What it lacks no pod's end would bring.
    PreemptionInVain,
}

impl Reason {
    /// The pod's MIG instances find no room on a node.
    pub(super) fn no_free_slot(pod: &PodSpec) -> Reason {
        let wanted = |request: &MigRequest| match request.count {
            1 => request.profile.to_string(),
            count => format!("{count}x {}", request.profile),
        };
        Reason::NoFreeSlot(pod.mig.iter().map(wanted).collect::<Vec<_>>().join(" + ").into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Cordoned => f.write_str("node(s) were unschedulable"),
            Reason::LayoutChanging => f.write_str("node(s) were having their MIG layout changed"),
            Reason::UntoleratedTaint => f.write_str("node(s) had untolerated taint(s)"),
            // Such nodes are not even filtered; the words name the plugin that keeps them out.
            Reason::NotNamed => f.write_str("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
            Reason::NodeAffinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Reason::Shunned => f.write_str("node(s) lately turned such pods away after they were bound"),
            Reason::HostPorts => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Reason::TooManyPods => f.write_str("Too many pods"),
            Reason::InsufficientBasic(name) => write!(f, "Insufficient {name}"),
            Reason::Insufficient(name) => write!(f, "Insufficient {name}"),
            Reason::DiskConflict => f.write_str("node(s) had no available disk"),
            Reason::ClaimInUse => f.write_str(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            ),
            Reason::TooManyVolumes => f.write_str("node(s) exceed max volume count"),
            Reason::VolumeAffinity => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Reason::NoVolumeToBind => {
                f.write_str("node(s) didn't find available persistent volumes to bind")
            }
            Reason::NotEnoughStorage => f.write_str("node(s) did not have enough free storage"),
            Reason::VolumeMissing => {
                f.write_str("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
            }
            Reason::VolumeZone => f.write_str("node(s) had no available volume zone"),
            Reason::SpreadLabelMissing => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Reason::Spread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Reason::PodAffinity => f.write_str("node(s) didn't match pod affinity rules"),
            Reason::PodAntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Reason::ExistingAntiAffinity => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
            Reason::DeclaredFeatures => f.write_str("node(s) didn't match Pod's required features"),
            Reason::MigConfigUnsettled(state) => {
                write!(f, "node(s) had an unsettled MIG layout (nvidia.com/mig.config.state={state})")
            }
            Reason::NoFreeSlot(wanted) => write!(f, "no free {wanted} slot"),
            Reason::NoVictims => f.write_str("No preemption victims found for incoming pod"),
            Reason::PreemptionInVain => f.write_str("Preemption is not helpful for scheduling"),
            Reason::UnaccountedInstances => f.write_str("node(s) had MIG instances at unknown places"),
        }
    }
}
