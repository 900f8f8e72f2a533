//! What a test puts into a cluster and how it waits for the answer: virtual MIG nodes, pods, bounded
//! concurrency, waiting with a reason, and readers for events and conditions.
//!
//! Invariant: nothing here waits for ever, and a wait that fails says what it saw last.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Requests under way at once when a test fills a cluster.
const IN_FLIGHT: usize = 64;
const POLL: Duration = Duration::from_millis(100);

/// Runs `task` over `items`, at most [`IN_FLIGHT`] at a time, and keeps the order of the results. The first
/// error ends it.
pub async fn concurrently<I, T, F>(
    items: impl IntoIterator<Item = I>,
    task: impl Fn(I) -> F,
) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    stream::iter(items.into_iter().map(task)).buffered(IN_FLIGHT).try_collect().await
}

/// What a probe saw: the value waited for, or why it is not there yet.
pub type Seen<T> = std::result::Result<T, String>;

/// Probes until the value is there. After `limit` the error says what was awaited and what the last probe
/// saw.
pub async fn wait_until<T, F>(what: &str, limit: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Seen<T>>>,
{
    let deadline = Instant::now() + limit;
    loop {
        let not_yet = match probe().await.with_context(|| format!("while waiting until {what}"))? {
            Ok(value) => return Ok(value),
            Err(not_yet) => not_yet,
        };
        if Instant::now() >= deadline {
            bail!("not within {limit:?}: {what}; last seen: {not_yet}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A virtual machine with A100 GPUs, all of them cut, labelled as the GPU Operator does under the `mixed`
/// strategy.
#[derive(Clone, Debug)]
pub struct MigNode {
    pub name: String,
    pub gpus: u32,
    /// Instances on the whole machine by profile, such as `1g.5gb`.
    pub instances: BTreeMap<String, u32>,
    pub cpu: String,
    pub memory: String,
    pub pods: u32,
    /// Added to the usual labels, or put in their place.
    pub labels: BTreeMap<String, String>,
    /// Without the usual labels: nobody has described the machine yet.
    pub unlabelled: bool,
    /// Taints in the API's own form.
    pub taints: Vec<Value>,
}

impl MigNode {
    pub fn new(name: impl Into<String>, gpus: u32, instances: &[(&str, u32)]) -> Self {
        MigNode {
            name: name.into(),
            gpus,
            instances: instances.iter().map(|&(profile, count)| (profile.to_owned(), count)).collect(),
            cpu: "128".to_owned(),
            memory: "1Ti".to_owned(),
            pods: 250,
            labels: BTreeMap::new(),
            unlabelled: false,
            taints: Vec::new(),
        }
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    fn labels(&self) -> BTreeMap<String, String> {
        if self.unlabelled {
            return self.labels.clone();
        }
        let mut labels: BTreeMap<String, String> = [
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/hostname", &self.name),
            ("kubernetes.io/os", "linux"),
            ("nvidia.com/gpu.count", &self.gpus.to_string()),
            ("nvidia.com/gpu.family", "ampere"),
            ("nvidia.com/gpu.memory", "40960"),
            ("nvidia.com/gpu.present", "true"),
            ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB"),
            // GPUs that are not cut, and so are offered whole.
            ("nvidia.com/gpu.replicas", "0"),
            ("nvidia.com/mig.capable", "true"),
            ("nvidia.com/mig.config.state", "success"),
            ("nvidia.com/mig.strategy", "mixed"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        labels.extend(instance_labels(&self.instances));
        labels.extend(self.labels.clone());
        labels
    }

    fn resources(&self) -> BTreeMap<String, String> {
        let own =
            [("cpu", self.cpu.clone()), ("memory", self.memory.clone()), ("pods", self.pods.to_string())];
        let mut resources: BTreeMap<_, _> = own.map(|(name, amount)| (name.to_owned(), amount)).into();
        if self.gpus > 0 {
            resources.insert("nvidia.com/gpu".to_owned(), "0".to_owned());
        }
        resources.extend(instance_resources(&self.instances));
        resources
    }

    /// The object. The API server keeps the status that a node is created with, as it does for kubelet.
    pub fn build(&self) -> Result<Node> {
        let resources = self.resources();
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": self.labels(),
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": self.taints},
            "status": {"allocatable": resources, "capacity": resources},
        }))
        .context("build a node")
    }
}

/// What GPU feature discovery says of each profile, as far as a scheduler could read it.
fn instance_labels(instances: &BTreeMap<String, u32>) -> impl Iterator<Item = (String, String)> {
    instances.iter().flat_map(|(profile, count)| {
        [
            (format!("nvidia.com/mig-{profile}.count"), count.to_string()),
            (format!("nvidia.com/mig-{profile}.product"), format!("NVIDIA-A100-SXM4-40GB-MIG-{profile}")),
        ]
    })
}

fn instance_resources(instances: &BTreeMap<String, u32>) -> impl Iterator<Item = (String, String)> {
    instances.iter().map(|(profile, count)| (mig_resource(profile), count.to_string()))
}

/// The resource name of a profile.
pub fn mig_resource(profile: &str) -> String {
    format!("nvidia.com/mig-{profile}")
}

/// Creates the nodes and waits until KWOK has made each of them Ready.
pub async fn create_nodes(client: &Client, nodes: &[MigNode]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    create_idle_nodes(client, nodes).await?;
    let limit = Duration::from_secs(30) + Duration::from_millis(20) * u32::try_from(nodes.len())?;
    wait_until("every node is Ready", limit, || async {
        let list = api.list(&ListParams::default()).await?;
        let waiting = list.iter().filter(|node| !is_ready(node)).count();
        Ok(if waiting == 0 { Ok(()) } else { Err(format!("{waiting} of {} are not", list.items.len())) })
    })
    .await
}

/// Creates the nodes and leaves them as they are. Without a controller manager nothing taints them, so a scheduler takes
/// them, and nothing ever writes to them.
pub async fn create_idle_nodes(client: &Client, nodes: &[MigNode]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    concurrently(nodes, |node| {
        let api = api.clone();
        async move {
            let made = api.create(&PostParams::default(), &node.build()?).await;
            made.with_context(|| format!("create the node {}", node.name))
        }
    })
    .await
    .map(drop)
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    ready && !taints.into_iter().any(|taint| taint.key == "node.kubernetes.io/not-ready")
}

/// Changes what a node offers, as the device plugin does after its GPUs were cut anew. Profiles that are not
/// named any more go to null: kubelet keeps a vanished resource in capacity, and takes it out of allocatable.
pub async fn set_instances(client: &Client, node: &str, instances: &BTreeMap<String, u32>) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let before = api.get(node).await.with_context(|| format!("read the node {node}"))?;
    let known = before.status.and_then(|status| status.allocatable).unwrap_or_default();
    let mut allocatable = serde_json::Map::new();
    let mut capacity = serde_json::Map::new();
    for resource in known.into_keys().filter(|resource| resource.starts_with("nvidia.com/mig-")) {
        capacity.insert(resource.clone(), json!("0"));
        allocatable.insert(resource, Value::Null);
    }
    for (resource, count) in instance_resources(instances) {
        capacity.insert(resource.clone(), json!(count));
        allocatable.insert(resource, json!(count));
    }
    let patch = json!({"status": {"allocatable": allocatable, "capacity": capacity}});
    let patched = api.patch_status(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("change the instances of {node}"))
}

/// Cordons a node, or lifts its cordon.
pub async fn cordon(client: &Client, node: &str, cordoned: bool) -> Result<()> {
    patch_node(client, node, json!({"spec": {"unschedulable": cordoned}})).await
}

/// Merges a patch into a node.
pub async fn patch_node(client: &Client, node: &str, patch: Value) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let patched = api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("patch the node {node}"))
}

/// A pod with one container, built up field by field.
#[derive(Clone, Debug)]
pub struct PodFixture {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    requests: BTreeMap<String, String>,
    host_port: Option<usize>,
    spec: serde_json::Map<String, Value>,
}

impl PodFixture {
    /// Goes to the default scheduler, asks for nothing and stops at once when deleted.
    pub fn new(name: impl Into<String>) -> Self {
        PodFixture {
            name: name.into(),
            namespace: "default".to_owned(),
            labels: BTreeMap::new(),
            requests: BTreeMap::new(),
            host_port: None,
            spec: serde_json::Map::from_iter([("terminationGracePeriodSeconds".to_owned(), json!(0))]),
        }
    }

    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.to_owned();
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// One instance of a profile such as `1g.5gb`.
    pub fn mig(self, profile: &str) -> Self {
        self.request(&mig_resource(profile), "1")
    }

    pub fn request(mut self, resource: &str, amount: &str) -> Self {
        self.requests.insert(resource.to_owned(), amount.to_owned());
        self
    }

    /// A port of the node itself.
    pub fn port(mut self, port: usize) -> Self {
        self.host_port = Some(port);
        self
    }

    pub fn scheduler(self, name: &str) -> Self {
        self.spec("schedulerName", json!(name))
    }

    /// Any other field of the pod's spec, in the API's own form.
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.spec.insert(field.to_owned(), value);
        self
    }

    pub fn build(&self) -> Result<Pod> {
        let mut spec = self.spec.clone();
        // Extended resources are taken from the limits, and must equal the requests.
        let resources = json!({"requests": self.requests, "limits": self.requests});
        let ports: Vec<_> =
            self.host_port.iter().map(|port| json!({"containerPort": port, "hostPort": port})).collect();
        spec.insert(
            "containers".to_owned(),
            json!([{"name": "main", "image": "example.invalid/main", "resources": resources, "ports": ports}]),
        );
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": self.labels},
            "spec": spec,
        }))
        .context("build a pod")
    }
}

/// Creates the pods; the API server's answer for each, in order.
pub async fn create_pods(client: &Client, pods: &[PodFixture]) -> Result<Vec<Pod>> {
    concurrently(pods, |fixture| {
        let api: Api<Pod> = Api::namespaced(client.clone(), &fixture.namespace);
        async move {
            let made = api.create(&PostParams::default(), &fixture.build()?).await;
            made.with_context(|| format!("create the pod {}", fixture.name))
        }
    })
    .await
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown")
}

/// The node that a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().find(|condition| condition.type_ == kind)
}

/// Waits until `count` pods that carry the labels of `selector` are in `wanted` phase; those pods.
pub async fn wait_for_phase(
    client: &Client,
    selector: &str,
    count: usize,
    wanted: &str,
    limit: Duration,
) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().labels(selector);
    wait_until(&format!("{count} pods with {selector:?} are {wanted}"), limit, || async {
        let pods = api.list(&params).await?.items;
        let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in &pods {
            *phases.entry(phase(pod)).or_default() += 1;
        }
        if phases.get(wanted) == Some(&count) {
            return Ok(Ok(pods.into_iter().filter(|pod| phase(pod) == wanted).collect()));
        }
        let example = pods.iter().find(|pod| phase(pod) != wanted).map(explain).unwrap_or_default();
        Ok(Err(format!("{phases:?}; for example {example}")))
    })
    .await
}

/// A pod in one line, for error messages.
fn explain(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref()).unwrap_or("no reason");
    let waiting = condition(pod, "PodScheduled").and_then(|condition| condition.message.as_deref());
    let node = node_of(pod).unwrap_or("no node");
    format!("{} ({}, {node}, {reason}, {})", pod.name_any(), phase(pod), waiting.unwrap_or("no message"))
}

/// The events about one pod with this reason, oldest first.
pub async fn events(client: &Client, pod: &Pod, reason: &str) -> Result<Vec<Event>> {
    let api: Api<Event> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let about = format!("regarding.uid={},reason={reason}", pod.uid().unwrap_or_default());
    let mut found =
        api.list(&ListParams::default().fields(&about)).await.context("list the events of a pod")?.items;
    found.sort_by_key(|event| event.event_time.clone());
    Ok(found)
}

/// Waits for the first event of this reason about a pod.
pub async fn wait_for_event(client: &Client, pod: &Pod, reason: &str, limit: Duration) -> Result<Event> {
    let name = pod.name_any();
    wait_until(&format!("{name} has a {reason} event"), limit, || async {
        Ok(events(client, pod, reason).await?.into_iter().next().ok_or_else(|| "no such event".to_owned()))
    })
    .await
}
