//! A pod as a scheduling decision sees it.
//!
//! Invariant: a [`PodSpec`] holds everything in a pod that decides where it may run and nothing else, so that pods with equal
//! specs are interchangeable: a verdict about one holds for all of them.

use std::fmt;
use std::sync::Arc;

use super::{
    ClaimUse, Disk, Labels, NodeName, NodeSelector, NodeSelectorTerm, PodId, Relations, ResourceName,
    Resources, Taint, Time, Toleration,
};
use crate::mig::{Placement, ProfileName};

/// Transport protocol of a host port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port that a container takes on the node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The port number, never zero.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The address; `None` for every address of the node (`0.0.0.0`).
    pub address: Option<Arc<str>>,
}

impl HostPort {
    /// Whether both cannot be taken on one node.
    pub fn conflicts(&self, other: &HostPort) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address.is_none() || other.address.is_none() || self.address == other.address)
    }
}

/// A number of MIG instances of one profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MigRequest {
    /// The profile.
    pub profile: ProfileName,
    /// The resource that names it in the pod.
    pub resource: ResourceName,
    /// How many, at least one.
    pub count: u64,
}

/// One MIG instance on one GPU of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicePlacement {
    /// Index of the GPU in the node.
    pub gpu: u16,
    /// Where the instance lies on it.
    pub placement: Placement,
}

/// Something a pod may ask for that this scheduler does not honour yet. Such a pod is never bound: ignoring what it asks for
/// would break a promise that kube-scheduler keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unsupported {
    /// `spec.resourceClaims` (dynamic resource allocation).
    ResourceClaims,
    /// An extended resource that names a device class, and so stands for a resource claim.
    DeviceClassResource,
    /// `spec.schedulingGroup`: pods to be placed together or not at all.
    SchedulingGroup,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsupported::ResourceClaims => "resourceClaims",
            Unsupported::DeviceClassResource => "an extended resource of a device class",
            Unsupported::SchedulingGroup => "a scheduling group",
        })
    }
}

/// Where a pod may run and what it takes there. Ordered with the fields that differ most first, so that comparing two is
/// cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSpec {
    /// What it takes of a node.
    pub requests: Resources,
    /// The MIG instances among `requests`, largest profile first; names that are no MIG profile stay in `requests` alone.
    pub mig: Vec<MigRequest>,
    /// The nodes it allows.
    pub selector: NodeSelector,
    /// The taints it tolerates.
    pub tolerations: Vec<Toleration>,
    /// The host ports it takes, sorted.
    pub host_ports: Vec<HostPort>,
    /// What it asks for that is not honoured, sorted.
    pub unsupported: Vec<Unsupported>,
    /// What it wants of other pods; `None` for nothing.
    pub relations: Option<Arc<Relations>>,
    /// The nodes it likes, with the weight of each term.
    pub preferred_nodes: Vec<(i64, NodeSelectorTerm)>,
    /// What its node's kubelet must be able to do (`status.declaredFeatures`), sorted.
    pub features: Vec<Arc<str>>,
    /// The images of its containers and image volumes, one entry each, with their tags.
    pub images: Vec<Arc<str>>,
    /// The disks that it names itself and that not every two pods may mount on one node.
    pub disks: Vec<Disk>,
    /// Whether it holds MIG instances and is known to be movable by itself alone: it has no claims, whose volumes might not
    /// follow.
    pub movable: bool,
}

impl PodSpec {
    /// Whether it tolerates `taint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }

    /// Whether it needs anything of NVIDIA's device plugin.
    pub fn needs_gpu(&self) -> bool {
        self.requests.extended().iter().any(|(name, _)| name.is_nvidia())
    }
}

/// What a pod's owner says about its being moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// `metadata.uid` of the ReplicaSet that controls it and would make a successor.
    pub replica_set: Option<Arc<str>>,
    /// Whether it must not be moved (the annotation `mig-scheduler.io/movable` is `false`).
    pub opted_out: bool,
}

/// One pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Its name and uid.
    pub id: PodId,
    /// `spec.schedulerName`.
    pub scheduler_name: Arc<str>,
    /// `spec.nodeName`, once bound.
    pub node: Option<NodeName>,
    /// `spec.priority`.
    pub priority: i32,
    /// Whether others may have to go for it (`spec.preemptionPolicy` is not `Never`).
    pub preempts: bool,
    /// `status.nominatedNodeName`: the node that it is to have once there is room.
    pub nominated: Option<NodeName>,
    /// `status.startTime`, once a kubelet has taken it up.
    pub started: Option<Time>,
    /// `metadata.creationTimestamp`.
    pub created: Time,
    /// `metadata.labels`, by which the rules of other pods select it.
    pub labels: Arc<Labels>,
    /// What decides where it may run.
    pub spec: Arc<PodSpec>,
    /// Its volumes with a claim behind them, in their order. No part of the spec: what decides is what the claims are bound to,
    /// and pods of one StatefulSet each have their own.
    pub volumes: Option<Arc<[ClaimUse]>>,
    /// Whether `spec.schedulingGates` is not empty.
    pub gated: bool,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Whether a scheduler has asked for its end in favour of another (its `DisruptionTarget` condition).
    pub preempted: bool,
    /// Whether it has succeeded or failed and so holds nothing any more.
    pub finished: bool,
    /// Who would replace it if it had to go.
    pub upkeep: Upkeep,
    /// Whether a container of it keeps crashing (`CrashLoopBackOff`).
    pub crashing: bool,
    /// `metadata.generation`, quoted in the condition that is written about it; zero when absent.
    pub generation: i64,
    /// The instances it holds, where the scheduler chose them ([`super::Partitioning::OnDemand`]).
    pub placements: Vec<DevicePlacement>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ports_conflict_as_in_kubernetes() {
        let port = |port, protocol, address: Option<&str>| HostPort {
            port,
            protocol,
            address: address.map(Arc::from),
        };
        let any = port(80, Protocol::Tcp, None);
        assert!(any.conflicts(&any));
        assert!(any.conflicts(&port(80, Protocol::Tcp, Some("10.0.0.1"))));
        assert!(!any.conflicts(&port(80, Protocol::Udp, None)));
        assert!(!any.conflicts(&port(81, Protocol::Tcp, None)));
        let one = port(80, Protocol::Tcp, Some("10.0.0.1"));
        assert!(one.conflicts(&one));
        assert!(!one.conflicts(&port(80, Protocol::Tcp, Some("10.0.0.2"))));
    }
}
