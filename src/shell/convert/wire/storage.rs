//! Claims, volumes and what else the API says of storage.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Deserializer};

use super::{Amounts, LabelSelectorView, NodeSelectorView, metadata, resource};

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimView {
    /// Name, namespace, uid, version, annotations, owners.
    #[serde(deserialize_with = "annotated")]
    pub metadata: ObjectMeta,
    /// What was asked for.
    pub spec: ClaimSpecView,
    /// What became of it.
    pub status: PhaseView,
}

/// `spec` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpecView {
    /// How the volume is to be mounted.
    pub access_modes: Option<Vec<String>>,
    /// How large it is to be.
    pub resources: Option<ClaimResourcesView>,
    /// The volumes it may be bound to.
    pub selector: Option<LabelSelectorView>,
    /// The storage class.
    pub storage_class_name: Option<String>,
    /// The attributes class.
    pub volume_attributes_class_name: Option<String>,
    /// `Filesystem` (when absent) or `Block`.
    pub volume_mode: Option<String>,
    /// The volume it is bound to.
    pub volume_name: Option<String>,
}

/// `resources` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimResourcesView {
    /// Amounts asked for; `storage` alone.
    pub requests: Option<Amounts>,
}

/// The phase of a claim or volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PhaseView {
    /// `Pending`, `Available`, `Bound`, `Released`, `Failed`, `Lost`.
    pub phase: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeView {
    /// Name, version, labels, annotations.
    #[serde(deserialize_with = "annotated")]
    pub metadata: ObjectMeta,
    /// What it is.
    pub spec: PersistentVolumeSpecView,
    /// What became of it.
    pub status: PhaseView,
}

/// `spec` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpecView {
    /// How it can be mounted.
    pub access_modes: Option<Vec<String>>,
    /// How large it is.
    pub capacity: Option<Amounts>,
    /// The claim it is bound to or kept for.
    pub claim_ref: Option<ClaimRefView>,
    /// Its CSI driver.
    pub csi: Option<CsiSourceView>,
    /// The nodes it can be reached from.
    pub node_affinity: Option<VolumeAffinityView>,
    /// The storage class.
    pub storage_class_name: Option<String>,
    /// The attributes class.
    pub volume_attributes_class_name: Option<String>,
    /// `Filesystem` (when absent) or `Block`.
    pub volume_mode: Option<String>,
}

/// `claimRef` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRefView {
    /// The claim's namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its uid, once it is known.
    pub uid: Option<String>,
}

/// `csi` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSourceView {
    /// The driver.
    pub driver: String,
    /// What the driver calls the volume.
    pub volume_handle: String,
}

/// `nodeAffinity` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeAffinityView {
    /// The terms of which one must hold.
    pub required: Option<NodeSelectorView>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClassView {
    /// Name, version.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// Who makes its volumes.
    pub provisioner: String,
    /// `Immediate` or `WaitForFirstConsumer`.
    pub volume_binding_mode: Option<String>,
    /// Where volumes can be made.
    pub allowed_topologies: Option<Vec<TopologyTermView>>,
}

/// One term of `allowedTopologies`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTermView {
    /// All of these must hold.
    pub match_label_expressions: Option<Vec<TopologyRequirementView>>,
}

/// One requirement of a term of `allowedTopologies`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TopologyRequirementView {
    /// A node's label.
    pub key: String,
    /// The values it may have.
    pub values: Option<Vec<String>>,
}

/// A CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeView {
    /// The node's name, version.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// Its drivers.
    pub spec: CsiNodeSpecView,
}

/// `spec` of a CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpecView {
    /// The drivers that run on the node.
    pub drivers: Option<Vec<NodeDriverView>>,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeDriverView {
    /// Its name.
    pub name: String,
    /// What it can do there.
    pub allocatable: Option<DriverLimitView>,
}

/// What a driver can do on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DriverLimitView {
    /// Volumes it can attach.
    pub count: Option<i32>,
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiDriverView {
    /// Name, version.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// What it can do.
    pub spec: CsiDriverSpecView,
}

/// `spec` of a CSIDriver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpecView {
    /// Whether it says how much room is left.
    pub storage_capacity: Option<bool>,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageCapacityView {
    /// Name, namespace, version.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// Where there is room; nowhere when absent.
    pub node_topology: Option<LabelSelectorView>,
    /// For which class.
    pub storage_class_name: String,
    /// How much.
    pub capacity: Option<String>,
    /// How much in one volume; takes precedence.
    pub maximum_volume_size: Option<String>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AttachmentView {
    /// Name, version.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// What is attached where.
    pub spec: AttachmentSpecView,
}

/// `spec` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpecView {
    /// The driver.
    pub attacher: String,
    /// The node.
    pub node_name: String,
    /// What is attached.
    pub source: AttachmentSourceView,
}

/// `source` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSourceView {
    /// The name of a PersistentVolume; absent for a volume of a pod's own.
    pub persistent_volume_name: Option<String>,
}

/// The fields of a claim's or volume's `metadata` that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnnotatedView {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reads `metadata` into kube's type, leaving out everything large but the annotations.
fn annotated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let view = AnnotatedView::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: view.name,
        namespace: view.namespace,
        uid: view.uid,
        resource_version: view.resource_version,
        deletion_timestamp: view.deletion_timestamp,
        labels: view.labels,
        annotations: view.annotations,
        owner_references: view.owner_references,
        ..ObjectMeta::default()
    })
}

const STORAGE: &str = "storage.k8s.io";

resource!(ClaimView, "", "PersistentVolumeClaim", "persistentvolumeclaims", NamespaceResourceScope);
resource!(PersistentVolumeView, "", "PersistentVolume", "persistentvolumes", ClusterResourceScope);
resource!(StorageClassView, STORAGE, "StorageClass", "storageclasses", ClusterResourceScope);
resource!(CsiNodeView, STORAGE, "CSINode", "csinodes", ClusterResourceScope);
resource!(CsiDriverView, STORAGE, "CSIDriver", "csidrivers", ClusterResourceScope);
resource!(StorageCapacityView, STORAGE, "CSIStorageCapacity", "csistoragecapacities", NamespaceResourceScope);
resource!(AttachmentView, STORAGE, "VolumeAttachment", "volumeattachments", ClusterResourceScope);
