//! kube-scheduler on a real API server, one pod at a time.
//!
//! Invariants: kube-scheduler has seen every node and bound pod before it is offered a pod, because a pod that fits nowhere
//! has first been told so about all of them; it holds no pod of an earlier scenario; and it looks at all nodes for every pod
//! (opportunistic batching, which would try the node of the last equal pod alone, is off, and so is preemption).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::http::{Method, Request};
use futures::future::try_join_all;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::SCHEDULER;
use super::extender::{Call, Extender};
use super::scenario::{list, text};
use crate::harness::{ClientLimits, ControlPlane, Options};

/// Namespaces of the pods, with their labels.
pub const NAMESPACES: [(&str, &str, &str); 3] =
    [("default", "core", "prod"), ("team-a", "a", "prod"), ("team-b", "b", "test")];

/// The driver of all volumes.
pub const DRIVER: &str = "csi.example.com";
/// A storage class whose claims wait for their first consumer, and then for a volume that somebody made.
pub const WAITING: &str = "waiting";
/// One whose volumes are made for the first consumer, in zones a and b.
pub const PROVISIONED: &str = "provisioned";

/// The label that tells the nodes of one run of a scenario from those before.
const RUN: &str = "parity.test/run";
/// A resource that no node has.
const NOTHING: &str = "parity.test/nothing";
/// A pod is decided in milliseconds; on a machine that is starved even a TLS handshake has taken longer than a minute.
const DECIDED_WITHIN: Duration = Duration::from_secs(300);
/// A watch tells of an object in milliseconds.
const SEEN_WITHIN: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(3);

/// What kube-scheduler made of a pod.
pub enum Attempt {
    /// It waits for the test's choice among these nodes.
    Feasible(Call),
    /// It has told the pod why it fits nowhere.
    Refused(String),
}

pub struct Peer {
    plane: ControlPlane,
    client: Client,
    extender: Extender,
    run: u64,
    /// Whether volumes have been created.
    stored: bool,
    /// Pods for which no node was chosen. Until their deletion is known they may be tried again.
    dismissed: BTreeSet<String>,
}

impl Peer {
    pub async fn start() -> Result<Peer> {
        let mut plane = ControlPlane::start(Options::default()).await?;
        let client = plane.client();
        prepare(&client).await?;
        let extender = Extender::start().await?;
        let profile = json!({
            "schedulerName": SCHEDULER,
            "percentageOfNodesToScore": 100,
            "plugins": {"postFilter": {"disabled": [{"name": "*"}]}},
        });
        let fields = BTreeMap::from([
            ("profiles", json!([profile])),
            ("extenders", json!([extender.configuration()])),
        ]);
        plane
            .start_kube_scheduler_with(
                ClientLimits::UNLIMITED,
                fields,
                &["--feature-gates=OpportunisticBatching=false"],
            )
            .await?;
        Ok(Peer { plane, client, extender, run: 0, stored: false, dismissed: BTreeSet::new() })
    }

    pub fn finish(self) -> Result<()> {
        self.plane.finish()
    }

    /// Creates volumes, claims and what nodes say of their volumes; as the API server returns them.
    pub async fn create_storage(&mut self, objects: &[Value]) -> Result<Vec<Value>> {
        self.stored |= !objects.is_empty();
        let made = try_join_all(objects.iter().map(|object| self.create_one_stored(object))).await;
        if !objects.is_empty() {
            // No probe shows that kube-scheduler has seen these; each kind has a watch of its own.
            sleep(SEEN_WITHIN).await;
        }
        made
    }

    async fn create_one_stored(&self, object: &Value) -> Result<Value> {
        let kind = text(object, "/kind");
        let path = match kind {
            "PersistentVolume" => "/api/v1/persistentvolumes".to_owned(),
            "CSINode" => "/apis/storage.k8s.io/v1/csinodes".to_owned(),
            "CSIDriver" => "/apis/storage.k8s.io/v1/csidrivers".to_owned(),
            "CSIStorageCapacity" => {
                "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities".to_owned()
            }
            _ => format!("/api/v1/namespaces/{}/persistentvolumeclaims", text(object, "/metadata/namespace")),
        };
        let mut made = self.create(&path, object).await?;
        if made.pointer("/metadata/finalizers").is_some() {
            // Put there for a controller that does not run here; it would never be deleted.
            let path = format!("{path}/{}", text(object, "/metadata/name"));
            made = self.patch(&path, &json!({"metadata": {"finalizers": null}})).await?;
        }
        if kind == "PersistentVolume" && made.pointer("/spec/claimRef").is_none() {
            // So would the controller say.
            let path = format!("{path}/{}/status", text(object, "/metadata/name"));
            made = self.patch(&path, &json!({"status": {"phase": "Available"}})).await?;
        }
        made["kind"] = json!(kind);
        Ok(made)
    }

    /// Creates the nodes, all at once; as the API server returns them.
    pub async fn create_nodes(&mut self, nodes: &[Value]) -> Result<Vec<Value>> {
        self.run += 1;
        let run = self.run.to_string();
        let made = nodes.iter().map(|node| {
            let mut node = node.clone();
            node["metadata"]["labels"][RUN] = json!(run);
            self.create_owned("/api/v1/nodes".to_owned(), node)
        });
        try_join_all(made).await
    }

    /// Creates pods that are bound already, all at once, with their statuses; as the API server returns them.
    pub async fn create_bound(&self, pods: &[Value]) -> Result<Vec<Value>> {
        try_join_all(pods.iter().map(|pod| self.create_one_bound(pod))).await
    }

    async fn create_one_bound(&self, pod: &Value) -> Result<Value> {
        let mut made = self.create_pod(pod).await?;
        let path = pod_path(&made);
        if let Some(status) = pod.get("status") {
            made = self.patch(&format!("{path}/status"), &json!({"status": status})).await?;
        }
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            made = self.send(Method::DELETE, &path, Some(&json!({"gracePeriodSeconds": 3600}))).await?;
        }
        Ok(made)
    }

    /// Creates a pod to be placed, gated or not.
    pub async fn create_pod(&self, pod: &Value) -> Result<Value> {
        let mut pod = pod.clone();
        if let Some(fields) = pod.as_object_mut() {
            fields.remove("status");
        }
        super::scenario::remove(&mut pod, "/metadata/deletionTimestamp");
        let path = format!("/api/v1/namespaces/{}/pods", text(&pod, "/metadata/namespace"));
        self.create_owned(path, pod).await
    }

    /// Waits for what kube-scheduler makes of the pod.
    pub async fn attempt(&mut self, pod: &Value) -> Result<Attempt> {
        let uid = text(pod, "/metadata/uid");
        let (client, path) = (self.client.clone(), pod_path(pod));
        let refused = refusal(&client, &path);
        tokio::pin!(refused);
        loop {
            tokio::select! {
                call = self.extender.call() => {
                    let call = call?;
                    if call.uid == uid {
                        return Ok(Attempt::Feasible(call));
                    }
                    let known = self.dismissed.contains(&call.uid);
                    ensure!(known, "kube-scheduler tried the pod {} instead of {path}", call.uid);
                    call.refuse();
                }
                refusal = &mut refused => return Ok(Attempt::Refused(refusal?)),
            }
        }
    }

    /// Lets no node remain for the pod, and deletes it.
    pub async fn dismiss(&mut self, pod: &Value, call: Call) -> Result<()> {
        self.dismissed.insert(call.uid.clone());
        call.refuse();
        self.delete_pod(pod).await
    }

    /// Waits until the pod is bound, which must be to `node`; the pod as it is then.
    pub async fn wait_bound(&self, pod: &Value, node: &str) -> Result<Value> {
        let path = pod_path(pod);
        let deadline = Instant::now() + DECIDED_WITHIN;
        loop {
            let now = get(&self.client, &path).await?;
            match text(&now, "/spec/nodeName") {
                "" => ensure!(Instant::now() < deadline, "{path} was not bound to {node}: {now}"),
                bound => {
                    ensure!(bound == node, "{path} was bound to {bound} instead of {node}");
                    return Ok(now);
                }
            }
            sleep(POLL).await;
        }
    }

    /// Takes the scheduling gates away; the pod as it is then.
    pub async fn lift_gates(&self, pod: &Value) -> Result<Value> {
        self.patch(&pod_path(pod), &json!({"spec": {"schedulingGates": null}})).await
    }

    pub async fn delete_pod(&self, pod: &Value) -> Result<()> {
        self.send(Method::DELETE, &pod_path(pod), Some(&json!({"gracePeriodSeconds": 0}))).await.map(drop)
    }

    /// Returns once kube-scheduler knows all `nodes` of this run and no other, and everything about pods that was written
    /// before; and has taken up every pod created before that it takes up at all.
    pub async fn catch_up(&mut self, nodes: usize) -> Result<()> {
        let mut probe = json!({
            "metadata": {"name": "probe", "namespace": "default"},
            "spec": {
                "schedulerName": SCHEDULER,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "example.invalid/c"}],
            },
        });
        let amounts = json!({NOTHING: "1"});
        probe["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
        let labelled = json!({"key": RUN, "operator": "In", "values": [self.run.to_string()]});
        let terms = list(
            &mut probe,
            &[
                "spec",
                "affinity",
                "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
                "nodeSelectorTerms",
            ],
        );
        terms.push(json!({"matchExpressions": [labelled]}));
        let deadline = Instant::now() + DECIDED_WITHIN;
        loop {
            let made = self.create_pod(&probe).await?;
            let Attempt::Refused(message) = self.attempt(&made).await? else {
                bail!("kube-scheduler found a node with {NOTHING}");
            };
            self.delete_pod(&made).await?;
            let all = format!("0/{nodes} nodes are available: ");
            let caught_up = message == "no nodes available to schedule pods" && nodes == 0
                || message.starts_with(&all) && message.contains(&format!("{nodes} Insufficient {NOTHING}"));
            if caught_up {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "kube-scheduler does not know the {nodes} nodes: {message}");
            sleep(POLL).await;
        }
    }

    /// Deletes everything that a scenario creates.
    pub async fn clear(&self) -> Result<()> {
        let namespaced = |kind: &'static str| {
            NAMESPACES.iter().map(move |(name, ..)| format!("/api/v1/namespaces/{name}/{kind}"))
        };
        let mut paths: Vec<String> = namespaced("pods").collect();
        paths.push("/api/v1/nodes".to_owned());
        if self.stored {
            paths.extend(namespaced("persistentvolumeclaims"));
            let others = [
                "/api/v1/persistentvolumes",
                "/apis/storage.k8s.io/v1/csinodes",
                "/apis/storage.k8s.io/v1/csidrivers",
                "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
            ];
            paths.extend(others.map(str::to_owned));
        }
        let now = json!({"gracePeriodSeconds": 0});
        try_join_all(paths.iter().map(|path| self.send(Method::DELETE, path, Some(&now)))).await.map(drop)
    }

    async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.send(Method::POST, path, Some(object)).await
    }

    async fn create_owned(&self, path: String, object: Value) -> Result<Value> {
        self.create(&path, &object).await
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.send(Method::PATCH, path, Some(patch)).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        send(&self.client, method, path, body).await
    }
}

/// What every scenario finds: namespaces, runtime classes and storage classes.
async fn prepare(client: &Client) -> Result<()> {
    for (name, team, env) in NAMESPACES {
        let labels = json!({"team": team, "env": env});
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        match name {
            "default" => send(client, Method::PATCH, "/api/v1/namespaces/default", Some(&namespace)).await?,
            _ => send(client, Method::POST, "/api/v1/namespaces", Some(&namespace)).await?,
        };
    }
    for (name, cpu, memory) in [("light", "250m", "128Mi"), ("heavy", "1500m", "2Gi")] {
        let class = json!({
            "metadata": {"name": name},
            "handler": "runc",
            "overhead": {"podFixed": {"cpu": cpu, "memory": memory}},
        });
        send(client, Method::POST, "/apis/node.k8s.io/v1/runtimeclasses", Some(&class)).await?;
    }
    for class in storage_classes() {
        send(client, Method::POST, "/apis/storage.k8s.io/v1/storageclasses", Some(&class)).await?;
    }
    Ok(())
}

/// The storage classes of every scenario.
pub fn storage_classes() -> [Value; 2] {
    let zones = json!([{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]);
    let class = |name: &str, provisioner: &str, topologies: Value| {
        json!({
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": topologies,
        })
    };
    [
        class(WAITING, "kubernetes.io/no-provisioner", json!([])),
        class(PROVISIONED, DRIVER, json!([{"matchLabelExpressions": zones}])),
    ]
}

/// The API server refused an object: the scenario is not valid.
pub fn is_invalid(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422))
}

async fn send(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let bytes = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
    let request = Request::builder().method(method.clone()).uri(path).header("content-type", kind);
    let answer = client.request(request.body(bytes)?).await;
    let mut object: Value = answer
        .with_context(|| format!("{method} {path} {}", body.map(Value::to_string).unwrap_or_default()))?;
    // Most of the text, and nobody reads it.
    super::scenario::remove(&mut object, "/metadata/managedFields");
    Ok(object)
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    client.request(Request::get(path).body(Vec::new())?).await.with_context(|| format!("GET {path}"))
}

/// Waits until the pod has been told that it fits nowhere.
async fn refusal(client: &Client, path: &str) -> Result<String> {
    let deadline = Instant::now() + DECIDED_WITHIN;
    loop {
        sleep(POLL).await;
        let pod = get(client, path).await?;
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let mut told = conditions.filter(|condition| condition["type"] == "PodScheduled");
        if let Some(condition) = told.find(|condition| condition["reason"] == "Unschedulable") {
            return Ok(text(condition, "/message").to_owned());
        }
        ensure!(Instant::now() < deadline, "kube-scheduler did not try {path}: {pod}");
    }
}

fn pod_path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
}
