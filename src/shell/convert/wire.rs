//! The parts of the API's objects that a scheduler reads, as they stand in its JSON.
//!
//! Invariant: what is not named here is skipped while parsing and never allocated. A pod's managed fields, environment,
//! probes and volumes are nine tenths of its text; k8s-openapi's own types would build all of them for every event.

pub mod storage;

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// Amounts by resource name, as text.
pub type Amounts = BTreeMap<String, String>;

/// A Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodView {
    /// Name, namespace, uid, version, generation, times.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// What was asked for.
    pub spec: PodSpecView,
    /// What became of it.
    pub status: PodStatusView,
}

/// `spec` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecView {
    /// Whose it is to schedule.
    pub scheduler_name: Option<String>,
    /// Where it was bound to.
    pub node_name: Option<String>,
    /// Its rank.
    pub priority: Option<i32>,
    /// `PreemptLowerPriority` when absent, or `Never`.
    pub preemption_policy: Option<String>,
    /// Each holds it back.
    pub scheduling_gates: Option<Vec<IgnoredAny>>,
    /// Its ordinary containers.
    pub containers: Vec<ContainerView>,
    /// Those that run before, and sidecars.
    pub init_containers: Option<Vec<ContainerView>>,
    /// What its RuntimeClass adds.
    pub overhead: Option<Amounts>,
    /// What the pod as a whole asks for.
    pub resources: Option<ResourcesView>,
    /// Labels its node must have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Where it may run, in more words.
    pub affinity: Option<AffinityView>,
    /// Taints it bears.
    pub tolerations: Option<Vec<TolerationView>>,
    /// How it is spread.
    pub topology_spread_constraints: Option<Vec<SpreadView>>,
    /// Devices by claim.
    pub resource_claims: Option<Vec<IgnoredAny>>,
    /// Its volumes.
    pub volumes: Option<Vec<VolumeView>>,
    /// The pods it is to be placed together with.
    pub scheduling_group: Option<IgnoredAny>,
    /// Whether it uses the node's network.
    pub host_network: Option<bool>,
    /// Whether it uses the node's users.
    pub host_users: Option<bool>,
}

/// `status` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatusView {
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: Option<String>,
    /// Why it is in this phase, in one word.
    pub reason: Option<String>,
    /// Why, for people.
    pub message: Option<String>,
    /// What has been said about it.
    pub conditions: Option<Vec<ConditionView>>,
    /// Where a place is kept for it.
    pub nominated_node_name: Option<String>,
    /// When a kubelet took it up.
    pub start_time: Option<Time>,
    /// Its ordinary containers on their node.
    pub container_statuses: Option<Vec<ContainerStatusView>>,
    /// Its init containers on their node.
    pub init_container_statuses: Option<Vec<ContainerStatusView>>,
    /// What is in force of what the pod as a whole asks for.
    pub resources: Option<ResourcesView>,
    /// What the node has granted of that.
    pub allocated_resources: Option<Amounts>,
}

/// What a node says of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatusView {
    /// Which one.
    pub name: String,
    /// What is in force.
    pub resources: Option<ResourcesView>,
    /// What the node has granted.
    pub allocated_resources: Option<Amounts>,
    /// What it is doing.
    pub state: ContainerStateView,
}

/// `state` of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStateView {
    /// Set while it does not run.
    pub waiting: Option<WaitingView>,
}

/// Why a container does not run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WaitingView {
    /// In one word.
    pub reason: Option<String>,
}

/// One condition of a Pod or a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionView {
    /// Its name.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: Option<String>,
    /// Why, for people.
    pub message: Option<String>,
    /// The generation it speaks of.
    pub observed_generation: Option<i64>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    /// Its name, unique in the pod.
    pub name: String,
    /// What it asks for.
    pub resources: Option<ResourcesView>,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    /// The ports it names.
    pub ports: Option<Vec<PortView>>,
    /// The image it runs.
    pub image: Option<String>,
    /// What its exit leads to.
    pub restart_policy_rules: Option<Vec<RestartRuleView>>,
}

/// One rule of what a container's exit leads to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RestartRuleView {
    /// `Restart`, `RestartAllContainers`.
    pub action: String,
}

/// `resources` of a container or pod. The API server fills requests in from limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourcesView {
    /// Amounts asked for.
    pub requests: Option<Amounts>,
}

/// A container's port. With `hostNetwork` the API server sets `hostPort` itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortView {
    /// The node's port; absent or zero for none.
    pub host_port: Option<i32>,
    /// The node's address.
    #[serde(rename = "hostIP")]
    pub host_ip: Option<String>,
    /// `TCP` when absent.
    pub protocol: Option<String>,
}

/// `affinity`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AffinityView {
    /// To nodes.
    pub node_affinity: Option<NodeAffinityView>,
    /// To pods.
    pub pod_affinity: Option<PodAffinityView>,
    /// Against pods.
    pub pod_anti_affinity: Option<PodAffinityView>,
}

/// `nodeAffinity`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeAffinityView {
    /// The terms of which one must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelectorView>,
    /// The terms that are better met.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<PreferredTermView>>,
}

/// One term that is better met.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PreferredTermView {
    /// How much better, 1 to 100.
    pub weight: i32,
    /// The term.
    pub preference: TermView,
}

/// A node selector.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorView {
    /// Its alternatives.
    pub node_selector_terms: Option<Vec<TermView>>,
}

/// One alternative of a node selector.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TermView {
    /// On labels.
    pub match_expressions: Option<Vec<RequirementView>>,
    /// On fields.
    pub match_fields: Option<Vec<RequirementView>>,
}

/// One requirement.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequirementView {
    /// Label or field.
    pub key: String,
    /// The comparison.
    pub operator: String,
    /// Its operands.
    pub values: Option<Vec<String>>,
}

/// `podAffinity` or `podAntiAffinity`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodAffinityView {
    /// The terms that must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<Vec<AffinityTermView>>,
    /// The terms that are better met.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<WeightedTermView>>,
}

/// A term of pod affinity. The API server has merged its label keys into the selector.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AffinityTermView {
    /// The pods looked for, by label.
    pub label_selector: Option<LabelSelectorView>,
    /// Their namespaces by name.
    pub namespaces: Option<Vec<String>>,
    /// Their namespaces by label.
    pub namespace_selector: Option<LabelSelectorView>,
    /// The node label that makes the domains.
    pub topology_key: String,
}

/// A term of pod affinity that is better met.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedTermView {
    /// How much better, 1 to 100.
    pub weight: i32,
    /// The term.
    pub pod_affinity_term: AffinityTermView,
}

/// A selector by label.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorView {
    /// Labels that must have these values.
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Requirements besides.
    pub match_expressions: Option<Vec<RequirementView>>,
}

/// A toleration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TolerationView {
    /// The taint's key.
    pub key: Option<String>,
    /// `Equal` when absent.
    pub operator: Option<String>,
    /// The taint's value.
    pub value: Option<String>,
    /// The taint's effect.
    pub effect: Option<String>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadView {
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// How uneven is allowed.
    pub max_skew: i32,
    /// The node label that makes the domains.
    pub topology_key: String,
    /// The pods counted.
    pub label_selector: Option<LabelSelectorView>,
    /// Labels whose values the pods counted share with the pod.
    pub match_label_keys: Option<Vec<String>>,
    /// With fewer domains the emptiest counts as empty; 1 when absent.
    pub min_domains: Option<i32>,
    /// `Honor` (when absent) or `Ignore`.
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore` (when absent).
    pub node_taints_policy: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeView {
    /// Its name in the pod.
    pub name: String,
    /// Bound to a claim.
    pub persistent_volume_claim: Option<ClaimVolumeView>,
    /// With a claim made for it.
    pub ephemeral: Option<IgnoredAny>,
    /// An image as a volume.
    pub image: Option<ImageVolumeView>,
    /// A disk of Google's cloud.
    pub gce_persistent_disk: Option<DiskView>,
    /// A disk of Amazon's cloud.
    pub aws_elastic_block_store: Option<DiskView>,
    /// A disk by iSCSI.
    pub iscsi: Option<DiskView>,
    /// A Ceph image.
    pub rbd: Option<DiskView>,
}

/// A disk that a pod names itself; each kind has some of the fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskView {
    /// Google's name.
    pub pd_name: String,
    /// Amazon's name.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// The name by iSCSI.
    pub iqn: String,
    /// Ceph's monitors.
    pub monitors: Option<Vec<String>>,
    /// Ceph's pool.
    pub pool: String,
    /// Ceph's name.
    pub image: String,
    /// Whether it is only read.
    pub read_only: bool,
}

/// A claim as a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolumeView {
    /// The claim's name.
    pub claim_name: String,
}

/// An image as a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ImageVolumeView {
    /// Its name.
    pub reference: Option<String>,
}

/// A Namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceView {
    /// Name, version, labels.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
}

/// A Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeView {
    /// Name, version, labels.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// What people set.
    pub spec: NodeSpecView,
    /// What kubelet reports.
    pub status: NodeStatusView,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpecView {
    /// Cordoned.
    pub unschedulable: Option<bool>,
    /// What keeps pods away.
    pub taints: Option<Vec<TaintView>>,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TaintView {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Option<String>,
    /// Its effect.
    pub effect: String,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatusView {
    /// What pods may take.
    pub allocatable: Option<Amounts>,
    /// What is known of its state.
    pub conditions: Option<Vec<ConditionView>>,
    /// What its kubelet can do.
    pub declared_features: Option<Vec<String>>,
    /// The images on its disk.
    pub images: Option<Vec<ImageView>>,
}

/// A container image on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageView {
    /// Every name it goes by.
    pub names: Option<Vec<String>>,
    /// Its size on disk.
    pub size_bytes: Option<i64>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BudgetView {
    /// Name and namespace.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// Whose it is.
    pub spec: BudgetSpecView,
    /// What is left of it.
    pub status: BudgetStatusView,
}

/// `spec` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BudgetSpecView {
    /// Its pods.
    pub selector: Option<LabelSelectorView>,
}

/// `status` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatusView {
    /// How many more of its pods may be missed now.
    pub disruptions_allowed: i32,
    /// Pods that were evicted and are still there, by name.
    pub disrupted_pods: Option<BTreeMap<String, IgnoredAny>>,
}

/// The fields of `metadata` that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetadataView {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// What the names of our own annotations begin with.
const OURS: &str = "mig-scheduler.io/";

/// Reads `metadata` into kube's type, leaving out everything large: of the annotations only our own stay.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let view = MetadataView::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: view.name,
        namespace: view.namespace,
        uid: view.uid,
        resource_version: view.resource_version,
        generation: view.generation,
        creation_timestamp: view.creation_timestamp,
        deletion_timestamp: view.deletion_timestamp,
        labels: view.labels,
        annotations: view
            .annotations
            .map(|all| all.into_iter().filter(|(name, _)| name.starts_with(OURS)).collect()),
        owner_references: view.owner_references,
        ..ObjectMeta::default()
    })
}

macro_rules! resource {
    ($view:ty, $group:expr, $kind:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $view {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

use resource;

resource!(PodView, "", "Pod", "pods", NamespaceResourceScope);
resource!(NodeView, "", "Node", "nodes", ClusterResourceScope);
resource!(NamespaceView, "", "Namespace", "namespaces", ClusterResourceScope);
resource!(BudgetView, "policy", "PodDisruptionBudget", "poddisruptionbudgets", NamespaceResourceScope);
