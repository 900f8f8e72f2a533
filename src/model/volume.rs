//! Storage as a scheduling decision sees it: claims, volumes, their classes, and what nodes and drivers say of them.
//!
//! Invariant: everything the API says of a claim or volume that can decide where a pod runs, and nothing else, so an event
//! that leaves the value as it was needs no reaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{LabelSelector, Labels, NodeName, NodeSelectorTerm, PodUid};

/// The labels by which volumes of old say where they are, each with the name it goes by today.
pub const ZONE_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// The label by which volumes that lie on a node name it.
pub const HOST_LABEL: &str = "kubernetes.io/hostname";

/// How the API addresses a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// A volume of a pod behind which a claim stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimUse {
    /// The claim's name, in the pod's namespace.
    pub name: Arc<str>,
    /// Whether the claim is made for the pod (`ephemeral`), which then has to be its owner.
    pub ephemeral: bool,
}

/// A disk that a pod names itself, of the kinds that not every two pods may mount on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disk {
    /// `gcePersistentDisk`: shared by readers alone.
    Gce {
        /// `pdName`.
        name: Arc<str>,
        /// Whether it is only read.
        read_only: bool,
    },
    /// `awsElasticBlockStore`: never shared.
    Ebs {
        /// `volumeID`.
        id: Arc<str>,
    },
    /// `iscsi`: shared by readers alone.
    Iscsi {
        /// `iqn`.
        name: Arc<str>,
        /// Whether it is only read.
        read_only: bool,
    },
    /// `rbd`: shared by readers alone.
    Rbd {
        /// `monitors`; the same image is known to clusters that have one in common.
        monitors: BTreeSet<Arc<str>>,
        /// `pool` and `image`.
        image: (Arc<str>, Arc<str>),
        /// Whether it is only read.
        read_only: bool,
    },
}

impl Disk {
    /// Whether both cannot be mounted on one node.
    pub fn conflicts(&self, other: &Disk) -> bool {
        use Disk::{Ebs, Gce, Iscsi, Rbd};
        match (self, other) {
            (Ebs { id: a }, Ebs { id: b }) => a == b,
            (Gce { name: a, read_only: x }, Gce { name: b, read_only: y })
            | (Iscsi { name: a, read_only: x }, Iscsi { name: b, read_only: y }) => a == b && !(*x && *y),
            (
                Rbd { monitors: a, image: one, read_only: x },
                Rbd { monitors: b, image: other, read_only: y },
            ) => !a.is_disjoint(b) && one == other && !(*x && *y),
            _ => false,
        }
    }
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its namespace and name.
    pub key: ClaimKey,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`, which grows with every change of anything.
    pub version: u64,
    /// The storage class; empty for none.
    pub class: Arc<str>,
    /// Bytes asked for.
    pub size: Option<u64>,
    /// `spec.accessModes`.
    pub modes: BTreeSet<Arc<str>>,
    /// Whether a block device is asked for rather than a file system.
    pub block: bool,
    /// `spec.volumeAttributesClassName`; empty for none.
    pub attributes_class: Arc<str>,
    /// The volumes it may be bound to, by label.
    pub selector: Option<LabelSelector>,
    /// `spec.volumeName`.
    pub volume: Option<Arc<str>>,
    /// Whether the controller has finished binding it.
    pub bind_completed: bool,
    /// The node for which a volume is to be made (`volume.kubernetes.io/selected-node`).
    pub selected_node: Option<NodeName>,
    /// Whether its volume is gone for good.
    pub lost: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The uid of the object that controls it.
    pub controller: Option<PodUid>,
}

impl Claim {
    /// Whether nothing but the version tells both apart.
    pub fn is_like(&self, other: &Claim) -> bool {
        *self == Claim { version: self.version, ..other.clone() }
    }

    /// Whether a volume is bound to it once and for all.
    pub fn is_bound(&self) -> bool {
        self.volume.is_some() && self.bind_completed
    }

    /// Whether one pod is to have it for itself.
    pub fn is_exclusive(&self) -> bool {
        self.modes.contains("ReadWriteOncePod")
    }
}

/// What is attached to a node: a driver's volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeId {
    /// The CSI driver.
    pub driver: Arc<str>,
    /// The driver's name for the volume.
    pub handle: Arc<str>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.resourceVersion`, which grows with every change of anything.
    pub version: u64,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The storage class; empty for none.
    pub class: Arc<str>,
    /// Bytes it holds.
    pub capacity: u64,
    /// `spec.accessModes`.
    pub modes: BTreeSet<Arc<str>>,
    /// Whether it is a block device rather than a file system.
    pub block: bool,
    /// `spec.volumeAttributesClassName`; empty for none.
    pub attributes_class: Arc<str>,
    /// The nodes it can be reached from, by label; `None` for all.
    pub affinity: Option<Arc<[NodeSelectorTerm]>>,
    /// The claim it is bound to or kept for, and that claim's uid (empty where nobody has said).
    pub claim: Option<(ClaimKey, Arc<str>)>,
    /// Whether its phase is `Available`.
    pub available: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// What its driver calls it; `None` for a volume of no CSI driver.
    pub id: Option<VolumeId>,
}

impl Volume {
    /// Whether nothing but the version tells both apart.
    pub fn is_like(&self, other: &Volume) -> bool {
        *self == Volume { version: self.version, ..other.clone() }
    }
}

/// A StorageClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClass {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Who makes its volumes.
    pub provisioner: Arc<str>,
    /// Whether its claims wait for their first consumer.
    pub waits: bool,
    /// Where volumes can be made: nodes that one of these selects; everywhere if there are none.
    pub topologies: Vec<LabelSelector>,
}

/// A CSINode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiNode {
    /// The node.
    pub node: NodeName,
    /// How many volumes of a driver it can attach; a driver without a limit is left out.
    pub limits: BTreeMap<Arc<str>, u64>,
}

/// A CSIDriver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDriver {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Whether it says how much room is left (`spec.storageCapacity`).
    pub tracks_capacity: bool,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageCapacity {
    /// Its namespace and name.
    pub key: ClaimKey,
    /// The storage class it speaks of.
    pub class: Arc<str>,
    /// The nodes it speaks of.
    pub nodes: LabelSelector,
    /// The largest volume that can be made there, in bytes.
    pub limit: Option<u64>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The node.
    pub node: NodeName,
    /// The driver.
    pub driver: Arc<str>,
    /// The name of the PersistentVolume.
    pub volume: Arc<str>,
}

/// Anything the API says about storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageObject {
    /// A PersistentVolumeClaim.
    Claim(Claim),
    /// A PersistentVolume.
    Volume(Volume),
    /// A StorageClass.
    Class(StorageClass),
    /// What a node says of the volumes it can attach.
    Node(CsiNode),
    /// A CSIDriver.
    Driver(CsiDriver),
    /// A CSIStorageCapacity.
    Capacity(StorageCapacity),
    /// A VolumeAttachment.
    Attachment(Attachment),
}

impl StorageObject {
    /// How the API addresses it.
    pub fn key(&self) -> StorageKey {
        match self {
            StorageObject::Claim(claim) => StorageKey::Claim(claim.key.clone()),
            StorageObject::Volume(volume) => StorageKey::Volume(volume.name.clone()),
            StorageObject::Class(class) => StorageKey::Class(class.name.clone()),
            StorageObject::Node(node) => StorageKey::Node(node.node.clone()),
            StorageObject::Driver(driver) => StorageKey::Driver(driver.name.clone()),
            StorageObject::Capacity(capacity) => StorageKey::Capacity(capacity.key.clone()),
            StorageObject::Attachment(attachment) => StorageKey::Attachment(attachment.name.clone()),
        }
    }
}

/// How the API addresses an object of storage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageKey {
    /// A PersistentVolumeClaim.
    Claim(ClaimKey),
    /// A PersistentVolume.
    Volume(Arc<str>),
    /// A StorageClass.
    Class(Arc<str>),
    /// A CSINode.
    Node(NodeName),
    /// A CSIDriver.
    Driver(Arc<str>),
    /// A CSIStorageCapacity.
    Capacity(ClaimKey),
    /// A VolumeAttachment.
    Attachment(Arc<str>),
}

/// What a bound volume asks of its pod's node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundVolume {
    /// Whether the volume exists.
    pub exists: bool,
    /// The nodes it can be reached from; `None` for all.
    pub affinity: Option<Arc<[NodeSelectorTerm]>>,
    /// What its labels of zone and region say: the node's label of that key has to be one of these.
    pub zones: Vec<(Arc<str>, BTreeSet<Arc<str>>)>,
}

/// A volume that is kept for one claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptVolume {
    /// Its name.
    pub name: Arc<str>,
    /// The nodes it can be reached from; `None` for all.
    pub affinity: Option<Arc<[NodeSelectorTerm]>>,
}

/// A claim that waits for its first consumer, as far as it decides which volumes suit it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingClaim {
    /// Bytes asked for; first, since the smallest claim is served first.
    pub size: Option<u64>,
    /// The storage class.
    pub class: Arc<str>,
    /// Access modes that the volume must have.
    pub modes: BTreeSet<Arc<str>>,
    /// Whether a block device is asked for.
    pub block: bool,
    /// The attributes class; empty for none.
    pub attributes_class: Arc<str>,
    /// The volumes it may be bound to, by label.
    pub selector: Option<LabelSelector>,
    /// The node for which a volume is being made already.
    pub selected_node: Option<NodeName>,
    /// Volumes that are kept for just this claim and suit it.
    pub kept: Vec<KeptVolume>,
}

/// What a pod's volumes ask of a node: its claims, resolved by what is known of them now.
///
/// Invariant: a claim or volume is named only where others use it, too, or where it is kept for just this pod, so pods of one
/// StatefulSet have equal needs as long as their volumes can be reached from the same nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeNeeds {
    /// Why no node can take the pod, whatever the nodes are.
    pub blocked: Option<Arc<str>>,
    /// Whether another pod uses a claim that one pod is to have for itself.
    pub in_use: bool,
    /// The bound volumes, in the order of the pod's spec.
    pub bound: Vec<BoundVolume>,
    /// The claims to be bound once a node is chosen, the smallest first.
    pub waiting: Vec<WaitingClaim>,
    /// Volumes to attach by driver, as far as no other pod uses them.
    pub fresh: BTreeMap<Arc<str>, u64>,
    /// Volumes to attach that another pod may have brought to a node already.
    pub shared: BTreeSet<VolumeId>,
}

impl VolumeNeeds {
    /// Needs that no node fulfils.
    pub fn blocked(why: String) -> VolumeNeeds {
        VolumeNeeds { blocked: Some(why.into()), ..VolumeNeeds::default() }
    }

    /// Whether volumes have to be attached to the node.
    pub fn attaches(&self) -> bool {
        !self.fresh.is_empty() || !self.shared.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_conflict_as_in_kubernetes() {
        let gce = |name: &str, read_only| Disk::Gce { name: name.into(), read_only };
        let iscsi = |name: &str, read_only| Disk::Iscsi { name: name.into(), read_only };
        let ebs = |id: &str| Disk::Ebs { id: id.into() };
        let rbd = |monitors: &[&str], image: &str, read_only| Disk::Rbd {
            monitors: monitors.iter().map(|monitor| Arc::from(*monitor)).collect(),
            image: ("rbd".into(), image.into()),
            read_only,
        };
        for (one, other, expected) in [
            (gce("a", false), gce("a", true), true),
            (gce("a", true), gce("a", true), false),
            (gce("a", false), gce("b", false), false),
            (gce("a", false), iscsi("a", false), false),
            (iscsi("a", true), iscsi("a", false), true),
            (iscsi("a", true), iscsi("a", true), false),
            (ebs("a"), ebs("a"), true),
            (ebs("a"), ebs("b"), false),
            (rbd(&["x", "y"], "a", false), rbd(&["y", "z"], "a", true), true),
            (rbd(&["x"], "a", false), rbd(&["y"], "a", false), false),
            (rbd(&["x"], "a", false), rbd(&["x"], "b", false), false),
            (rbd(&["x"], "a", true), rbd(&["x"], "a", true), false),
        ] {
            assert_eq!(
                (one.conflicts(&other), other.conflicts(&one)),
                (expected, expected),
                "{one:?} {other:?}"
            );
        }
    }
}
