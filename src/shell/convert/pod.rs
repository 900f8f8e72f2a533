//! Pods.
//!
//! Invariant: an unbound pod is read completely or refused. A bound pod holds its node's resources whether we can read it
//! or not, so there an amount that cannot be read counts as the largest possible: the node takes nothing more, rather than
//! too much.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::wire::{
    Amounts, ContainerStatusView, ContainerView, PodView, PortView, RequirementView, ResourcesView, TermView,
    TolerationView, VolumeView,
};
use super::{ConvertError, Interner, convert_labels, resources};
use crate::mig::ProfileName;
use crate::model::{
    ClaimUse, ContainerRequests, Disk, HostPort, Labels, MAX_QUANTITY, MigRequest, NodeSelector,
    NodeSelectorTerm, OnNode, Operator, Pod, PodId, PodLevel, PodRequests, PodSpec, PodUid, Protocol,
    Requirement, ResourceName, Resources, TaintEffect, Time, Toleration, Unsupported, Upkeep,
};
use crate::planner::{PodFacts, movable};
use crate::shell::clock;

/// The annotation by which a pod's owner keeps it where it is.
const MOVABLE: &str = "mig-scheduler.io/movable";

/// What the API server assumes when a pod names no scheduler.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What the names of resources begin with that stand for a claim on a device class.
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// What the names of huge pages begin with.
const HUGE_PAGES: &str = "hugepages-";

/// A pod that asks for something in a way that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pod cannot be read: {error}")]
pub struct Unreadable {
    /// The pod.
    pub pod: PodId,
    /// Its `metadata.generation`.
    pub generation: i64,
    /// The first field that cannot be read.
    pub error: ConvertError,
}

/// What the pod's `PodScheduled` condition and its nominated node say, by fingerprint: enough to tell whether writing another would change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether its status is `False`: if so, its transition time stays as it is.
    pub is_false: bool,
    fingerprint: u64,
}

impl Condition {
    /// The condition that a report writes.
    pub fn not_scheduled(reason: &str, message: &str, generation: i64) -> Condition {
        let mut hasher = DefaultHasher::new();
        (reason, message, generation).hash(&mut hasher);
        Condition { is_false: true, fingerprint: hasher.finish() }
    }

    /// The same, beside the node on which a place is kept for the pod.
    pub fn with_node(self, node: Option<&str>) -> Condition {
        let Some(node) = node else { return self };
        let mut hasher = DefaultHasher::new();
        (self.fingerprint, node).hash(&mut hasher);
        Condition { fingerprint: hasher.finish(), ..self }
    }
}

/// The pod's `PodScheduled` condition, where it has one.
pub fn condition(view: &PodView) -> Option<Condition> {
    let found = view.status.conditions.iter().flatten().find(|condition| condition.kind == "PodScheduled")?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let said = Condition::not_scheduled(
        &text(&found.reason),
        &text(&found.message),
        found.observed_generation.unwrap_or_default(),
    )
    .with_node(nominated_node(view));
    Some(Condition { is_false: found.status == "False", ..said })
}

/// Whether the engine needs to know the pod: it is to be scheduled by us, or it takes something of a node.
pub fn is_ours_or_bound(view: &PodView, scheduler_name: &str) -> bool {
    bound_to(view).is_some()
        || view.spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER) == scheduler_name
}

/// The pod's name and uid.
pub fn pod_id(view: &PodView, interner: &mut Interner) -> PodId {
    let meta = &view.metadata;
    PodId {
        namespace: interner.text(meta.namespace.as_deref().unwrap_or_default()),
        name: meta.name.as_deref().unwrap_or_default().into(),
        uid: PodUid::from(meta.uid.as_deref().unwrap_or_default()),
    }
}

/// The pod of this name as the model has it.
pub fn convert_pod(view: &PodView, id: PodId, interner: &mut Interner) -> Result<Pod, Box<Unreadable>> {
    let node = bound_to(view).map(|name| interner.text(name).into());
    let generation = view.metadata.generation.unwrap_or_default();
    let labels = convert_labels(view.metadata.labels.as_ref(), interner);
    let mut reader = Reader::new(interner);
    let mut spec = reader.spec(view, &labels);
    if let (None, Some(error)) = (&node, reader.first_error) {
        return Err(Box::new(Unreadable { pod: id, generation, error }));
    }
    let (volumes, upkeep) = (claim_uses(view, interner), upkeep(view, interner));
    let facts = PodFacts {
        labels: &labels,
        has_replica_set: upkeep.replica_set.is_some(),
        has_node_bound_volume: volumes.is_some() || !spec.disks.is_empty(),
        opted_out: upkeep.opted_out,
    };
    spec.movable = !spec.mig.is_empty() && movable(&facts).is_ok();
    Ok(Pod {
        id,
        scheduler_name: interner.text(view.spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER)),
        node,
        priority: view.spec.priority.unwrap_or_default(),
        preempts: view.spec.preemption_policy.as_deref() != Some("Never"),
        nominated: nominated_node(view).map(|name| interner.text(name).into()),
        started: view.status.start_time.as_ref().map(|time| clock::from_timestamp(time.0)),
        created: view.metadata.creation_timestamp.as_ref().map_or(Time::ZERO, |t| clock::from_timestamp(t.0)),
        labels: interner.labels(labels),
        spec: interner.spec(spec),
        volumes,
        gated: view.spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        terminating: view.metadata.deletion_timestamp.is_some(),
        preempted: is_preempted(view),
        finished: matches!(view.status.phase.as_deref(), Some("Succeeded" | "Failed")),
        upkeep,
        crashing: is_crashing(view),
        generation,
        placements: Vec::new(),
    })
}

/// What its owner says about its being moved. A word that is not `true` or `false` keeps it where it is.
fn upkeep(view: &PodView, interner: &mut Interner) -> Upkeep {
    let mut owners = view.metadata.owner_references.iter().flatten();
    let controls = |owner: &&OwnerReference| owner.controller == Some(true) && owner.kind == "ReplicaSet";
    let said = view.metadata.annotations.as_ref().and_then(|all| all.get(MOVABLE));
    Upkeep {
        replica_set: owners.find(controls).map(|owner| interner.text(&owner.uid)),
        opted_out: said.is_some_and(|value| value != "true"),
    }
}

/// Whether kubelet has given a container of the pod a pause after several crashes.
fn is_crashing(view: &PodView) -> bool {
    let statuses = [&view.status.container_statuses, &view.status.init_container_statuses];
    let waiting = |status: &ContainerStatusView| status.state.waiting.as_ref()?.reason.clone();
    let mut reasons = statuses.into_iter().flatten().flatten().filter_map(waiting);
    reasons.any(|reason| reason == "CrashLoopBackOff")
}

/// The pod's volumes with a claim behind them, each claim once; `None` for a pod without any.
fn claim_uses(view: &PodView, interner: &mut Interner) -> Option<Arc<[ClaimUse]>> {
    let mut uses: Vec<ClaimUse> = Vec::new();
    for volume in view.spec.volumes.iter().flatten() {
        let used = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => ClaimUse { name: interner.text(&claim.claim_name), ephemeral: false },
            (None, Some(_)) => {
                let pod = view.metadata.name.as_deref().unwrap_or_default();
                ClaimUse { name: interner.text(&format!("{pod}-{}", volume.name)), ephemeral: true }
            }
            (None, None) => continue,
        };
        if !uses.contains(&used) {
            uses.push(used);
        }
    }
    (!uses.is_empty()).then(|| uses.into())
}

fn bound_to(view: &PodView) -> Option<&str> {
    view.spec.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Where a place is kept for a pod that has no node yet.
fn nominated_node(view: &PodView) -> Option<&str> {
    let name = view.status.nominated_node_name.as_deref().filter(|name| !name.is_empty());
    name.filter(|_| bound_to(view).is_none())
}

/// Whether a scheduler has said that the pod ends for another's sake.
fn is_preempted(view: &PodView) -> bool {
    view.status.conditions.iter().flatten().any(|condition| {
        condition.kind == "DisruptionTarget"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

/// What the pod's node says of its containers. One that has no node yet is not resized.
fn on_node<'a>(view: &PodView, statuses: &'a Option<Vec<ContainerStatusView>>) -> &'a [ContainerStatusView] {
    match bound_to(view) {
        Some(_) => statuses.as_deref().unwrap_or_default(),
        None => &[],
    }
}

/// Whether the pod's node will never grant the resize that is asked for.
fn is_resize_infeasible(view: &PodView) -> bool {
    let mut conditions = view.status.conditions.iter().flatten();
    let pending = conditions.find(|condition| condition.kind == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// Reads a spec to its end and remembers the first field that it could not read.
pub(super) struct Reader<'a> {
    interner: &'a mut Interner,
    first_error: Option<ConvertError>,
}

impl<'a> Reader<'a> {
    /// A reader that has not failed; it reads parts of other objects with the same words.
    pub(super) fn new(interner: &'a mut Interner) -> Reader<'a> {
        Reader { interner, first_error: None }
    }

    /// Whether a field could not be read.
    pub(super) fn has_failed(&self) -> bool {
        self.first_error.is_some()
    }

    /// What could not be read.
    pub(super) fn into_error(self) -> Option<ConvertError> {
        self.first_error
    }
}

impl Reader<'_> {
    pub(super) fn fail(&mut self, field: impl Into<String>, value: &str, problem: impl ToString) {
        self.first_error.get_or_insert_with(|| ConvertError::new(field, value, problem));
    }

    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        self.interner.text(text)
    }

    fn spec(&mut self, view: &PodView, labels: &Labels) -> PodSpec {
        let requests = self.requests(view);
        PodSpec {
            mig: mig_requests(&requests),
            unsupported: unsupported(view, &requests),
            requests,
            selector: self.selector(view),
            tolerations: self.tolerations(view.spec.tolerations.as_deref().unwrap_or_default()),
            host_ports: self.host_ports(view),
            relations: self.relations(view, labels),
            preferred_nodes: self.preferred_nodes(view),
            features: features(view).map(|name| self.text(name)).collect(),
            images: images(view).map(|name| self.text(&name)).collect(),
            disks: self.disks(view),
            movable: false,
        }
    }

    fn requests(&mut self, view: &PodView) -> Resources {
        let spec = &view.spec;
        let mut parts = PodRequests::default();
        for (at, container) in spec.containers.iter().enumerate() {
            let statuses = on_node(view, &view.status.container_statuses);
            parts.containers.push(self.container(&format!("containers[{at}]"), container, view, statuses));
        }
        for (at, container) in spec.init_containers.iter().flatten().enumerate() {
            // An ordinary init container is never resized.
            let statuses = on_node(view, &view.status.init_container_statuses);
            let statuses = if is_sidecar(container) { statuses } else { &[] };
            parts.init_containers.push(self.container(
                &format!("initContainers[{at}]"),
                container,
                view,
                statuses,
            ));
        }
        parts.overhead = self.amounts("spec.overhead", spec.overhead.as_ref());
        parts.pod_level = self.pod_level(view);
        parts.total()
    }

    fn container(
        &mut self,
        path: &str,
        container: &ContainerView,
        view: &PodView,
        statuses: &[ContainerStatusView],
    ) -> ContainerRequests {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let mut requests = self.amounts(&format!("spec.{path}.resources.requests"), requests);
        if let Some(status) = statuses.iter().find(|status| status.name == container.name) {
            let allocated = status.allocated_resources.as_ref();
            requests = self.held(&requests, view, status.resources.as_ref(), allocated);
        }
        ContainerRequests { requests, sidecar: is_sidecar(container) }
    }

    fn pod_level(&mut self, view: &PodView) -> PodLevel {
        let resources = view.spec.resources.as_ref();
        let Some(requests) = resources.and_then(|resources| resources.requests.as_ref()) else {
            return PodLevel::default();
        };
        let mut amounts = self.amounts("spec.resources.requests", Some(requests));
        if bound_to(view).is_some() {
            let (resources, allocated) = (&view.status.resources, &view.status.allocated_resources);
            amounts = self.held(&amounts, view, resources.as_ref(), allocated.as_ref());
        }
        let stated = |name| requests.contains_key(name);
        let huge_pages = requests.keys().filter(|name| name.starts_with(HUGE_PAGES));
        PodLevel {
            cpu_milli: stated("cpu").then_some(amounts.cpu_milli),
            memory: stated("memory").then_some(amounts.memory),
            huge_pages: huge_pages
                .map(|name| ResourceName::from(self.text(name)))
                .map(|name| (name.clone(), amounts.get(&name)))
                .collect(),
        }
    }

    /// What is held of `asked` on the node, which speaks of it once it runs.
    fn held(
        &mut self,
        asked: &Resources,
        view: &PodView,
        in_force: Option<&ResourcesView>,
        granted: Option<&Amounts>,
    ) -> Resources {
        let Some(in_force) = in_force else { return asked.clone() };
        let on_node = OnNode {
            granted: self.amounts("status", granted),
            in_force: self.amounts("status", in_force.requests.as_ref()),
            infeasible: is_resize_infeasible(view),
        };
        on_node.held(asked)
    }

    fn amounts(&mut self, path: &str, amounts: Option<&Amounts>) -> Resources {
        let first_error = &mut self.first_error;
        let mut read = resources(amounts, self.interner, |name, text, problem| {
            first_error.get_or_insert_with(|| ConvertError::new(format!("{path}[{name}]"), text, problem));
            MAX_QUANTITY
        });
        read.pods = 0;
        read
    }

    fn selector(&mut self, view: &PodView) -> NodeSelector {
        let labels = view.spec.node_selector.iter().flatten();
        let affinity = view.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        NodeSelector {
            labels: labels.map(|(key, value)| (self.text(key), self.text(value))).collect(),
            terms: required.map(|selector| {
                let terms = selector.node_selector_terms.as_deref().unwrap_or_default();
                let path = |at| format!("spec.affinity.nodeAffinity.required.nodeSelectorTerms[{at}]");
                terms.iter().enumerate().map(|(at, term)| self.term(&path(at), term)).collect()
            }),
        }
    }

    fn preferred_nodes(&mut self, view: &PodView) -> Vec<(i64, NodeSelectorTerm)> {
        let affinity = view.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let terms = affinity.and_then(|affinity| affinity.preferred.as_deref()).unwrap_or_default();
        let path = |at| format!("spec.affinity.nodeAffinity.preferred[{at}].preference");
        let terms = terms.iter().enumerate();
        terms.map(|(at, term)| (term.weight.into(), self.term(&path(at), &term.preference))).collect()
    }

    pub(super) fn term(&mut self, path: &str, term: &TermView) -> NodeSelectorTerm {
        let mut requirements = |kind: &str, views: &Option<Vec<RequirementView>>| {
            let views = views.iter().flatten().enumerate();
            views.filter_map(|(n, view)| self.requirement(&format!("{path}.{kind}[{n}]"), view)).collect()
        };
        NodeSelectorTerm {
            match_expressions: requirements("matchExpressions", &term.match_expressions),
            match_fields: requirements("matchFields", &term.match_fields),
        }
    }

    pub(super) fn requirement(&mut self, path: &str, view: &RequirementView) -> Option<Requirement> {
        let operator = match view.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            other => {
                self.fail(format!("{path}.operator"), other, "is not a known operator");
                return None;
            }
        };
        let values = view.values.iter().flatten().map(|value| self.text(value)).collect();
        Some(Requirement { key: self.text(&view.key), operator, values })
    }

    fn tolerations(&mut self, views: &[TolerationView]) -> Vec<Toleration> {
        views.iter().enumerate().filter_map(|(at, view)| self.toleration(at, view)).collect()
    }

    fn toleration(&mut self, at: usize, view: &TolerationView) -> Option<Toleration> {
        let given =
            |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
        let value = match given(&view.operator).as_deref() {
            None | Some("Equal") => Some(self.text(view.value.as_deref().unwrap_or_default())),
            Some("Exists") => None,
            Some(other) => {
                self.fail(format!("spec.tolerations[{at}].operator"), other, "is not a known operator");
                return None;
            }
        };
        let effect = match given(&view.effect) {
            None => None,
            Some(text) => {
                let effect = taint_effect(&text);
                if effect.is_none() {
                    self.fail(format!("spec.tolerations[{at}].effect"), &text, "is not a known effect");
                    return None;
                }
                effect
            }
        };
        Some(Toleration { key: given(&view.key).map(|key| self.text(&key)), value, effect })
    }

    fn disks(&mut self, view: &PodView) -> Vec<Disk> {
        let volumes = view.spec.volumes.iter().flatten();
        volumes.flat_map(|volume| self.disk(volume)).collect()
    }

    fn disk(&mut self, view: &VolumeView) -> Option<Disk> {
        if let Some(disk) = &view.gce_persistent_disk {
            return Some(Disk::Gce { name: self.text(&disk.pd_name), read_only: disk.read_only });
        }
        if let Some(disk) = &view.aws_elastic_block_store {
            return Some(Disk::Ebs { id: self.text(&disk.volume_id) });
        }
        if let Some(disk) = &view.iscsi {
            return Some(Disk::Iscsi { name: self.text(&disk.iqn), read_only: disk.read_only });
        }
        let disk = view.rbd.as_ref()?;
        Some(Disk::Rbd {
            monitors: disk.monitors.iter().flatten().map(|monitor| self.text(monitor)).collect(),
            image: (self.text(&disk.pool), self.text(&disk.image)),
            read_only: disk.read_only,
        })
    }

    /// Ports of ordinary containers and sidecars; an ordinary init container is gone before another pod could mind.
    fn host_ports(&mut self, view: &PodView) -> Vec<HostPort> {
        let sidecars = view.spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
        let ports = view
            .spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|container| container.ports.iter().flatten());
        let mut taken: Vec<HostPort> = ports.filter_map(|port| self.host_port(port)).collect();
        taken.sort();
        taken.dedup();
        taken
    }

    fn host_port(&mut self, view: &PortView) -> Option<HostPort> {
        const PATH: &str = "spec.containers.ports";
        let number = view.host_port.filter(|port| *port != 0)?;
        let Ok(port) = u16::try_from(number) else {
            self.fail(format!("{PATH}.hostPort"), &number.to_string(), "is not a port");
            return None;
        };
        let protocol = match view.protocol.as_deref() {
            None | Some("" | "TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            Some(other) => {
                self.fail(format!("{PATH}.protocol"), other, "is not a known protocol");
                return None;
            }
        };
        let address = view.host_ip.as_deref().filter(|ip| !matches!(*ip, "" | "0.0.0.0"));
        Some(HostPort { port, protocol, address: address.map(|ip| self.text(ip)) })
    }
}

/// A taint's effect; `None` for a word that Kubernetes does not know.
pub(super) fn taint_effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

fn is_sidecar(container: &ContainerView) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn mig_requests(requests: &Resources) -> Vec<MigRequest> {
    let profile = |name: &str| ProfileName::from_resource(name)?.ok();
    let mut found: Vec<MigRequest> = requests
        .extended()
        .iter()
        .filter_map(|(resource, count)| {
            let profile = profile(resource.as_str())?;
            Some(MigRequest { profile, resource: resource.clone(), count: *count })
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// What the pod's kubelet must declare, in order; the features that kube-scheduler v1.36 infers from a pod.
fn features(view: &PodView) -> impl Iterator<Item = &'static str> {
    let spec = &view.spec;
    let rules = containers(view).flat_map(|container| container.restart_policy_rules.iter().flatten());
    let restarts_all = rules.into_iter().any(|rule| rule.action == "RestartAllContainers");
    let own_users = spec.host_users == Some(false) && spec.host_network == Some(true);
    let restarts_all = restarts_all.then_some("RestartAllContainersOnContainerExits");
    restarts_all.into_iter().chain(own_users.then_some("UserNamespacesHostNetworkSupport"))
}

/// The images that the pod needs, named as nodes name them.
fn images(view: &PodView) -> impl Iterator<Item = String> {
    let run = containers(view).filter_map(|container| container.image.as_deref());
    let volumes = view.spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref());
    let images = run.chain(volumes.filter_map(|image| image.reference.as_deref()));
    images.filter(|name| !name.is_empty()).map(|name| match (name.rfind(':'), name.rfind('/')) {
        (Some(tag), path) if path.is_none_or(|path| tag > path) => name.to_owned(),
        _ => format!("{name}:latest"),
    })
}

fn containers(view: &PodView) -> impl Iterator<Item = &ContainerView> {
    view.spec.init_containers.iter().flatten().chain(&view.spec.containers)
}

fn unsupported(view: &PodView, requests: &Resources) -> Vec<Unsupported> {
    let spec = &view.spec;
    let claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
    let mut resources = requests.extended().iter();
    let mut found: Vec<Unsupported> = [
        (claims, Unsupported::ResourceClaims),
        (
            resources.any(|(name, _)| name.as_str().starts_with(DEVICE_CLASS)),
            Unsupported::DeviceClassResource,
        ),
        (spec.scheduling_group.is_some(), Unsupported::SchedulingGroup),
    ]
    .into_iter()
    .filter_map(|(asked, feature)| asked.then_some(feature))
    .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::NodeName;

    fn view(spec: Value) -> PodView {
        serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u-1", "generation": 3, "resourceVersion": "7",
                "creationTimestamp": "2026-11-30T10:00:00Z",
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }))
        .unwrap()
    }

    fn convert(view: &PodView, interner: &mut Interner) -> Result<Pod, Box<Unreadable>> {
        let id = pod_id(view, interner);
        convert_pod(view, id, interner)
    }

    fn pod(spec: Value) -> Pod {
        convert(&view(spec), &mut Interner::default()).unwrap()
    }

    fn error(spec: Value) -> String {
        convert(&view(spec), &mut Interner::default()).unwrap_err().error.to_string()
    }

    fn requesting(requests: Value) -> Value {
        json!({"containers": [{"resources": {"requests": requests}}]})
    }

    #[test]
    fn reads_what_identifies_a_pod() {
        let read =
            pod(json!({"schedulerName": "mig-scheduler", "priority": 5, "schedulingGates": [{"name": "g"}]}));
        assert_eq!((read.id.to_string().as_str(), read.id.uid.as_str()), ("ns/p", "u-1"));
        assert_eq!((&*read.scheduler_name, read.priority, read.generation), ("mig-scheduler", 5, 3));
        assert_eq!(read.created, Time::from_secs(1_796_032_800));
        assert!(read.gated && !read.terminating && !read.finished && read.node.is_none());
        assert!(view(json!({})).metadata.managed_fields.is_none());
        assert_eq!(&*pod(json!({"nodeName": "n1"})).scheduler_name, DEFAULT_SCHEDULER);
        assert_eq!(pod(json!({"nodeName": "n1"})).node, Some(NodeName::from("n1")));
        assert!(!pod(json!({"schedulingGates": []})).gated);
    }

    #[test]
    fn who_would_replace_a_pod_and_whether_it_may_go() {
        let slice = requesting(json!({"nvidia.com/mig-1g.5gb": "1"}));
        let read = |spec: &Value, edit: &dyn Fn(&mut PodView)| {
            let mut view = view(spec.clone());
            view.metadata.labels = Some([("ai.task.type".to_owned(), "inference".to_owned())].into());
            let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-1", "controller": true}]);
            view.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
            edit(&mut view);
            let pod = convert(&view, &mut Interner::default()).unwrap();
            (pod.spec.movable, pod.upkeep.replica_set.as_deref().map(str::to_owned), pod.upkeep.opted_out)
        };
        let owner = Some("rs-1".to_owned());
        let annotated = |value: &'static str| {
            move |view: &mut PodView| {
                view.metadata.annotations = Some([(MOVABLE.to_owned(), value.to_owned())].into());
            }
        };
        let owned_by = |kind: &'static str, controls: bool| {
            move |view: &mut PodView| {
                let owners = view.metadata.owner_references.as_mut().unwrap();
                (owners[0].kind, owners[0].controller) = (kind.to_owned(), Some(controls));
            }
        };
        assert_eq!(read(&slice, &|_| {}), (true, owner.clone(), false));
        assert_eq!(read(&slice, &annotated("true")), (true, owner.clone(), false));
        for value in ["false", "no", ""] {
            assert_eq!(read(&slice, &annotated(value)), (false, owner.clone(), true), "{value}");
        }
        assert_eq!(read(&slice, &|view| view.metadata.labels = None), (false, owner.clone(), false));
        assert_eq!(read(&slice, &owned_by("ReplicaSet", false)), (false, None, false));
        assert_eq!(read(&slice, &owned_by("Job", true)), (false, None, false));
        assert!(!read(&json!({"containers": [{}]}), &|_| {}).0, "it has nothing to move");
        let claim = json!({"containers": slice["containers"], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
        assert!(!read(&claim, &|_| {}).0, "its volume may not follow");
    }

    #[test]
    fn crash_loops() {
        let read = |statuses: Value| {
            let mut view = view(json!({}));
            view.status = serde_json::from_value(statuses).unwrap();
            convert(&view, &mut Interner::default()).unwrap().crashing
        };
        let waiting = |reason: &str| json!([{"name": "a", "state": {"running": {}}}, {"name": "b", "state": {"waiting": {"reason": reason}}}]);
        assert!(read(json!({"containerStatuses": waiting("CrashLoopBackOff")})));
        assert!(read(json!({"initContainerStatuses": waiting("CrashLoopBackOff")})));
        assert!(!read(json!({"containerStatuses": waiting("ContainerCreating")})));
        assert!(!read(json!({"phase": "Running"})));
    }

    #[test]
    fn phases_and_deletion() {
        let mut dying = view(json!({}));
        dying.metadata.deletion_timestamp = dying.metadata.creation_timestamp.clone();
        for (phase, finished) in
            [("Pending", false), ("Running", false), ("Succeeded", true), ("Failed", true)]
        {
            dying.status.phase = Some(phase.to_owned());
            let read = convert(&dying, &mut Interner::default()).unwrap();
            assert_eq!((read.finished, read.terminating), (finished, true), "{phase}");
        }
    }

    #[test]
    fn ours_and_bound_pods_concern_the_engine() {
        let check = |spec, expected| assert_eq!(is_ours_or_bound(&view(spec), "mig-scheduler"), expected);
        check(json!({"schedulerName": "mig-scheduler"}), true);
        check(json!({"schedulerName": "default-scheduler", "nodeName": "n"}), true);
        check(json!({"schedulerName": "default-scheduler"}), false);
        check(json!({"nodeName": ""}), false);
    }

    #[test]
    fn requests_by_kind() {
        let read = pod(requesting(json!({
            "cpu": "1500m", "memory": "2Gi", "ephemeral-storage": "1M", "nvidia.com/mig-1g.5gb": "2",
            "nvidia.com/mig-3g.20gb": "1", "nvidia.com/gpu": "0", "nvidia.com/mig-banana": "1", "hugepages-2Mi": "4Mi",
        })));
        let requests = &read.spec.requests;
        assert_eq!(
            (requests.cpu_milli, requests.memory, requests.ephemeral_storage),
            (1500, 2 << 30, 1_000_000)
        );
        assert_eq!(requests.pods, 1);
        assert_eq!(requests.get(&"hugepages-2Mi".into()), 4 << 20);
        assert_eq!(requests.get(&"nvidia.com/mig-banana".into()), 1, "kept, though it is no profile");
        assert!(!requests.extended().iter().any(|(name, _)| name.as_str() == "nvidia.com/gpu"));
        let mig: Vec<_> = read.spec.mig.iter().map(|mig| (mig.profile.to_string(), mig.count)).collect();
        assert_eq!(mig, [("3g.20gb".to_owned(), 1), ("1g.5gb".to_owned(), 2)], "largest first");
    }

    #[test]
    fn requests_over_the_pods_life() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let read = pod(json!({
            "containers": [{"resources": requests("100m")}, {}],
            "initContainers": [
                {"resources": requests("50m"), "restartPolicy": "Always"},
                {"resources": requests("400m")},
            ],
            "overhead": {"cpu": "5m", "memory": "1Ki"},
        }));
        assert_eq!((read.spec.requests.cpu_milli, read.spec.requests.memory), (455, 1024));
        let whole = pod(json!({"containers": [{"resources": requests("1")}], "resources": requests("250m")}));
        assert_eq!(whole.spec.requests.cpu_milli, 250);
    }

    #[test]
    fn absurd_amounts_are_cut_once_more_in_sum() {
        let container =
            json!({"resources": {"requests": {"cpu": "1Ei", "memory": "8Ei", "nvidia.com/gpu": "1E"}}});
        let read = pod(json!({"containers": [container, container]}));
        assert_eq!((read.spec.requests.cpu_milli, read.spec.requests.memory), (MAX_QUANTITY, MAX_QUANTITY));
        assert_eq!(read.spec.requests.get(&"nvidia.com/gpu".into()), MAX_QUANTITY);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (spec, expected) in [
            (
                requesting(json!({"cpu": "lots"})),
                "spec.containers[0].resources.requests[cpu]: \"lots\" is not a quantity",
            ),
            (
                requesting(json!({"nvidia.com/mig-1g.5gb": "-1"})),
                "spec.containers[0].resources.requests[nvidia.com/mig-1g.5gb]: \"-1\" is negative",
            ),
            (json!({"overhead": {"cpu": "x"}}), "spec.overhead[cpu]: \"x\" is not a quantity"),
            (
                json!({"tolerations": [{}, {"key": "a", "operator": "Like"}]}),
                "spec.tolerations[1].operator: \"Like\" is not a known operator",
            ),
            (
                json!({"tolerations": [{"effect": "Maybe"}]}),
                "spec.tolerations[0].effect: \"Maybe\" is not a known effect",
            ),
            (
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "Is"}]}]}}}}),
                "spec.affinity.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].operator: \
                 \"Is\" is not a known operator",
            ),
            (
                json!({"containers": [{"ports": [{"hostPort": 70000}]}]}),
                "spec.containers.ports.hostPort: \"70000\" is not a port",
            ),
        ] {
            assert_eq!(error(spec), expected);
        }
    }

    #[test]
    fn a_bound_pod_that_cannot_be_read_fills_its_node() {
        let mut spec = requesting(json!({"cpu": "lots", "memory": "1Ki"}));
        spec["nodeName"] = json!("n0");
        let read = pod(spec);
        assert_eq!((read.spec.requests.cpu_milli, read.spec.requests.memory), (MAX_QUANTITY, 1024));
    }

    #[test]
    fn selectors_and_affinity() {
        let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
        let expressions: Vec<_> = operators
            .iter()
            .map(|operator| json!({"key": "k", "operator": operator, "values": ["1"]}))
            .collect();
        let read = pod(json!({
            "nodeSelector": {"zone": "a"},
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": expressions},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]},
                ]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
            }},
        }));
        let selector = &read.spec.selector;
        assert_eq!(selector.labels.get("zone").map(|value| &**value), Some("a"));
        let terms = selector.terms.as_ref().unwrap();
        let read: Vec<_> =
            terms[0].match_expressions.iter().map(|requirement| requirement.operator).collect();
        use Operator::*;
        assert_eq!(read, [In, NotIn, Exists, DoesNotExist, Gt, Lt]);
        assert_eq!((terms.len(), &*terms[1].match_fields[0].key), (2, "metadata.name"));
        assert_eq!(pod(json!({"affinity": {}})).spec.selector, NodeSelector::default());
    }

    #[test]
    fn preferred_nodes_features_and_images() {
        let read = pod(json!({
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]}},
            "hostNetwork": true, "hostUsers": false,
            "initContainers": [{"image": "registry:5000/tools"}],
            "containers": [{"image": "server:1.2"}, {"image": "server:1.2"},
                {"restartPolicyRules": [{"action": "RestartAllContainers"}]}],
            "volumes": [{"image": {"reference": "model@sha256:ab"}}],
        }));
        let [(5, term)] = read.spec.preferred_nodes.as_slice() else {
            panic!("{:?}", read.spec.preferred_nodes)
        };
        assert_eq!((term.match_expressions.len(), &*term.match_expressions[0].key), (1, "zone"));
        let text = |texts: &[Arc<str>]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        let features = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"];
        assert_eq!(text(&read.spec.features), features);
        let images = ["registry:5000/tools:latest", "server:1.2", "server:1.2", "model@sha256:ab"];
        assert_eq!(text(&read.spec.images), images);
        assert!(pod(json!({"hostUsers": false})).spec.features.is_empty());
        assert!(pod(json!({"hostNetwork": true})).spec.features.is_empty());
    }

    #[test]
    fn labels_are_shared_and_not_part_of_the_spec() {
        let mut interner = Interner::default();
        let mut read = |label: &str| {
            let mut view = view(requesting(json!({"cpu": "1"})));
            view.metadata.labels = Some([("app".to_owned(), label.to_owned())].into());
            convert(&view, &mut interner).unwrap()
        };
        let (a, b, other) = (read("a"), read("a"), read("b"));
        assert!(Arc::ptr_eq(&a.labels, &b.labels) && Arc::ptr_eq(&a.spec, &other.spec));
        assert_eq!(other.labels.get("app").map(|label| &**label), Some("b"));
    }

    #[test]
    fn tolerations() {
        let read = pod(json!({"tolerations": [
            {"key": "a", "value": "1", "effect": "NoSchedule"},
            {"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"operator": "Exists"},
            {"key": "c", "operator": "Equal", "effect": "PreferNoSchedule"},
        ]}));
        let text = |text: &str| Some(Arc::from(text));
        let expected = [
            Toleration { key: text("a"), value: text("1"), effect: Some(TaintEffect::NoSchedule) },
            Toleration { key: text("b"), value: None, effect: Some(TaintEffect::NoExecute) },
            Toleration { key: None, value: None, effect: None },
            Toleration { key: text("c"), value: text(""), effect: Some(TaintEffect::PreferNoSchedule) },
        ];
        assert_eq!(read.spec.tolerations, expected);
    }

    #[test]
    fn host_ports() {
        let read = pod(json!({
            "hostNetwork": true,
            "containers": [{"ports": [
                {"containerPort": 80, "hostPort": 80, "protocol": "TCP", "hostIP": "0.0.0.0"},
                {"containerPort": 80, "hostPort": 80},
                {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
                {"containerPort": 9999},
            ]}],
            "initContainers": [
                {"ports": [{"hostPort": 1}]},
                {"restartPolicy": "Always", "ports": [{"hostPort": 2, "protocol": "SCTP"}]},
            ],
        }));
        let port = |port, protocol, address: Option<&str>| HostPort {
            port,
            protocol,
            address: address.map(Arc::from),
        };
        let expected = [
            port(2, Protocol::Sctp, None),
            port(53, Protocol::Udp, Some("10.0.0.1")),
            port(80, Protocol::Tcp, None),
        ];
        assert_eq!(read.spec.host_ports, expected);
    }

    #[test]
    fn claims_and_disks() {
        let pod = pod(json!({"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
            {"name": "d", "emptyDir": {}},
            {"name": "e", "gcePersistentDisk": {"pdName": "disk", "readOnly": true}},
            {"name": "f", "awsElasticBlockStore": {"volumeID": "vol-1"}},
            {"name": "g", "iscsi": {"iqn": "iqn.x", "targetPortal": "1.2.3.4", "lun": 0}},
            {"name": "h", "rbd": {"monitors": ["m"], "pool": "p", "image": "i"}},
        ]}));
        let used = |name: &str, ephemeral| ClaimUse { name: name.into(), ephemeral };
        assert_eq!(pod.volumes.as_deref(), Some(&[used("data", false), used("p-b", true)][..]));
        assert_eq!(
            pod.spec.disks,
            [
                Disk::Gce { name: "disk".into(), read_only: true },
                Disk::Ebs { id: "vol-1".into() },
                Disk::Iscsi { name: "iqn.x".into(), read_only: false },
                Disk::Rbd {
                    monitors: ["m".into()].into(),
                    image: ("p".into(), "i".into()),
                    read_only: false
                },
            ]
        );
        assert_eq!(super::tests::pod(json!({"volumes": [{"name": "d", "emptyDir": {}}]})).volumes, None);
    }

    #[test]
    fn unsupported_features() {
        for (spec, expected) in [
            (json!({"resourceClaims": [{"name": "c"}]}), vec![Unsupported::ResourceClaims]),
            (
                requesting(json!({"deviceclass.resource.kubernetes.io/gpu": "1"})),
                vec![Unsupported::DeviceClassResource],
            ),
            (
                json!({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}], "resourceClaims": [{}]}),
                vec![Unsupported::ResourceClaims],
            ),
            (json!({"schedulingGroup": {"podGroupName": "g"}}), vec![Unsupported::SchedulingGroup]),
            (json!({"volumes": [{"emptyDir": {}}, {"projected": {"sources": []}}]}), vec![]),
        ] {
            assert_eq!(pod(spec.clone()).spec.unsupported, expected, "{spec}");
        }
    }

    /// CPU, in thousandths, of a pod whose container asks for 1 CPU and whose sidecar asks for 100 m.
    fn check_resized(node: &str, status: Value, expected: u64) {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let mut view = view(json!({
            "nodeName": node,
            "containers": [{"name": "c", "resources": requests("1")}],
            "initContainers": [
                {"name": "i", "resources": requests("50m")},
                {"name": "s", "restartPolicy": "Always", "resources": requests("100m")},
            ],
        }));
        view.status = serde_json::from_value(status.clone()).unwrap();
        let read = convert(&view, &mut Interner::default()).unwrap();
        assert_eq!(read.spec.requests.cpu_milli, expected, "{node} {status}");
    }

    #[test]
    fn a_pod_holds_what_its_node_has_not_given_back() {
        let status = |name: &str, cpu: &str, granted: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": granted}});
        check_resized("n", json!({}), 1100);
        check_resized("n", json!({"containerStatuses": [status("c", "8", "8")]}), 8100);
        check_resized("n", json!({"containerStatuses": [status("c", "8", "1")]}), 8100);
        check_resized("n", json!({"containerStatuses": [status("c", "500m", "2")]}), 2100);
        check_resized("n", json!({"containerStatuses": [status("c", "500m", "500m")]}), 1100);
        check_resized("n", json!({"containerStatuses": [status("other", "8", "8")]}), 1100);
        check_resized(
            "n",
            json!({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "8"}}]}),
            1100,
        );
        check_resized(
            "n",
            json!({"initContainerStatuses": [status("s", "2", "2"), status("i", "9", "9")]}),
            3000,
        );
        check_resized("", json!({"containerStatuses": [status("c", "8", "8")]}), 1100);
        let pending = |reason: &str| {
            json!({
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [status("c", "500m", "500m")],
            })
        };
        check_resized("n", pending("Deferred"), 1100);
        check_resized("n", pending("Infeasible"), 600);
    }

    #[test]
    fn pods_state_huge_pages_and_resizes_as_a_whole() {
        let spec = json!({
            "nodeName": "n",
            "resources": {"requests": {"cpu": "1", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "3"}},
            "containers": [{"resources": {"requests": {"memory": "1Mi", "hugepages-2Mi": "2Mi"}}}],
        });
        let mut view = view(spec);
        let read = |view: &PodView| {
            let requests = convert(view, &mut Interner::default()).unwrap().spec.requests.clone();
            let pages = requests.get(&"hugepages-2Mi".into()) >> 20;
            (requests.cpu_milli, requests.memory >> 20, pages, requests.get(&"nvidia.com/gpu".into()))
        };
        assert_eq!(read(&view), (1000, 1, 4, 0));
        let status = json!({"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}});
        view.status = serde_json::from_value(status).unwrap();
        assert_eq!(read(&view), (3000, 1, 4, 0));
    }

    #[test]
    fn pods_of_one_template_share_their_spec() {
        let mut interner = Interner::default();
        let mut read = |name: &str| {
            let mut view = view(requesting(json!({"cpu": "1"})));
            view.metadata.name = Some(name.to_owned());
            convert(&view, &mut interner).unwrap()
        };
        let (a, b) = (read("a"), read("b"));
        assert!(Arc::ptr_eq(&a.spec, &b.spec) && Arc::ptr_eq(&a.id.namespace, &b.id.namespace));
    }

    #[test]
    fn conditions_compare_by_all_they_say() {
        let with = |status: &str, message: &str| {
            let mut view = view(json!({}));
            view.status = serde_json::from_value(json!({"conditions": [{"type": "Ready"}, {
                "type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": message,
                "observedGeneration": 3, "lastTransitionTime": "2026-11-30T10:00:00Z"}]}))
            .unwrap();
            condition(&view)
        };
        let wanted = Condition::not_scheduled("Unschedulable", "no room", 3);
        assert_eq!(with("False", "no room"), Some(wanted));
        assert_ne!(with("True", "no room"), Some(wanted));
        assert_ne!(with("False", "some room"), Some(wanted));
        assert_eq!(condition(&view(json!({}))), None);
    }
}
