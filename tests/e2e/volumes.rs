//! Pods with volumes on a real API server: they go where their volumes can be reached and attached, wait in kube-scheduler's
//! words, and are woken by what their claims become.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::http::{Method, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, nodes};
use crate::fixtures::{self, MigNode, PodFixture, condition, node_of};
use crate::harness::Options;
use crate::placing::told_why;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

const SOON: Duration = Duration::from_secs(20);
const DRIVER: &str = "csi.example.com";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";

/// One machine in zone `a`, one in zone `b`.
fn machines() -> Vec<MigNode> {
    let zones = ["a", "b"];
    nodes(2, 1, &[("1g.5gb", 7)])
        .into_iter()
        .zip(zones)
        .map(|(node, zone)| node.label("topology.kubernetes.io/zone", zone))
        .collect()
}

/// A pod that mounts a claim.
fn pod(name: &str, claim: &str) -> PodFixture {
    let volume = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    PodFixture::new(name).mig("1g.5gb").scheduler(SCHEDULER_NAME).spec("volumes", volume)
}

async fn create(client: &Client, fixture: PodFixture) -> Result<Pod> {
    Ok(fixtures::create_pods(client, &[fixture]).await?.remove(0))
}

/// Sends a document; the answer.
async fn send(client: &Client, method: Method, path: &str, document: &Value) -> Result<Value> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method.clone()).uri(path).header("content-type", kind);
    let request = request.body(serde_json::to_vec(document)?).context("build a request")?;
    client.request(request).await.with_context(|| format!("{method} {path} {document}"))
}

/// Creates a volume that can be reached from `zone`, or from everywhere.
async fn volume(client: &Client, name: &str, class: &str, zone: Option<&str>) -> Result<()> {
    let mut volume = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
        "csi": {"driver": DRIVER, "volumeHandle": name}}});
    if let Some(zone) = zone {
        let expression = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] =
            json!([{"matchExpressions": [expression]}]);
    }
    send(client, Method::POST, VOLUMES, &volume).await.map(drop)
}

/// Creates a claim.
async fn claim(client: &Client, name: &str, class: &str, mode: &str) -> Result<()> {
    let claim = json!({"metadata": {"name": name}, "spec": {
        "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class}});
    send(client, Method::POST, CLAIMS, &claim).await.map(drop)
}

/// Binds a claim to a volume as the controller does.
async fn bind(client: &Client, claim: &str, volume: &str) -> Result<()> {
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume}});
    send(client, Method::PATCH, &format!("{CLAIMS}/{claim}"), &bound).await.map(drop)
}

/// Where a pod runs, once it does.
async fn place(client: &Client, pod: &Pod) -> Result<String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let name = pod.name_any();
    fixtures::wait_until(&format!("{name} is bound"), SOON, || async {
        let pod = pods.get(&name).await?;
        Ok(node_of(&pod).map(str::to_owned).ok_or_else(|| format!("{:?}", pod.status)))
    })
    .await
}

/// Waits until the pod is told just that.
async fn waits(client: &Client, pod: &Pod, words: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let name = pod.name_any();
    fixtures::wait_until(&format!("{name} is told {words:?}"), SOON, || async {
        let pod = pods.get(&name).await?;
        let said = condition(&pod, "PodScheduled").and_then(|said| said.message.clone()).unwrap_or_default();
        Ok(if said == words { Ok(()) } else { Err(said) })
    })
    .await
}

async fn delete(client: &Client, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete(name, &DeleteParams::default()).await.map(drop).with_context(|| format!("delete {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_follow_their_bound_volumes() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;

    // Each step of a claim's way is told, and the last one ends the wait.
    let member = create(&client, pod("member", "data")).await?;
    let words = "0/2 nodes are available: persistentvolumeclaim \"data\" not found.";
    ensure!(told_why(&client, &member).await? == words);
    claim(&client, "data", "", "ReadWriteOnce").await?;
    waits(&client, &member, "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
        .await?;
    volume(&client, "in-b", "", Some("b")).await?;
    bind(&client, "data", "in-b").await?;
    ensure!(place(&client, &member).await? == "node-1");

    // A claim for one pod alone is free again when that pod goes.
    volume(&client, "single", "", None).await?;
    claim(&client, "single", "", "ReadWriteOncePod").await?;
    bind(&client, "single", "single").await?;
    place(&client, &create(&client, pod("first", "single")).await?).await?;
    let second = create(&client, pod("second", "single")).await?;
    let words = "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with \
        ReadWriteOncePod access mode already in-use by another pod.";
    ensure!(told_why(&client, &second).await? == words);
    delete(&client, "first").await?;
    place(&client, &second).await?;
    scheduler.stop().await?;
    cluster.finish().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_attaches_no_more_than_it_can() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    let driver =
        |node: &str, count: u32| json!({"name": DRIVER, "nodeID": node, "allocatable": {"count": count}});
    for node in ["node-0", "node-1"] {
        let csi = json!({"metadata": {"name": node}, "spec": {"drivers": [driver(node, 1)]}});
        send(&client, Method::POST, CSI_NODES, &csi).await?;
    }
    for name in ["v0", "v1", "v2", "v3"] {
        volume(&client, name, "", None).await?;
        claim(&client, name, "", "ReadWriteOnce").await?;
        bind(&client, name, name).await?;
    }
    // Attached for a pod that is gone already.
    let attachment = json!({"metadata": {"name": "left-over"}, "spec": {"attacher": DRIVER, "nodeName": "node-1",
        "source": {"persistentVolumeName": "v3"}}});
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    send(&client, Method::POST, attachments, &attachment).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;

    ensure!(place(&client, &create(&client, pod("p0", "v0")).await?).await? == "node-0");
    // The same volume is attached once.
    ensure!(place(&client, &create(&client, pod("p0-again", "v0")).await?).await? == "node-0");
    let next = create(&client, pod("p1", "v1")).await?;
    let words = "0/2 nodes are available: 2 node(s) exceed max volume count.";
    ensure!(told_why(&client, &next).await? == words);
    send(&client, Method::DELETE, &format!("{attachments}/left-over"), &json!({})).await?;
    ensure!(place(&client, &next).await? == "node-1");
    let last = create(&client, pod("p2", "v2")).await?;
    ensure!(told_why(&client, &last).await? == words);
    let larger = json!({"spec": {"drivers": [driver("node-0", 2)]}});
    send(&client, Method::PATCH, &format!("{CSI_NODES}/node-0"), &larger).await?;
    ensure!(place(&client, &last).await? == "node-0");
    scheduler.stop().await?;
    cluster.finish().await
}

/// The controllers that bind claims and make those of ephemeral volumes.
const BINDERS: [&str; 2] = ["persistentvolume-binder-controller", "ephemeral-volume-controller"];

/// A storage class whose claims wait for their first consumer.
async fn class(client: &Client, name: &str, provisioner: &str) -> Result<()> {
    let class = json!({"metadata": {"name": name}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer"});
    send(client, Method::POST, "/apis/storage.k8s.io/v1/storageclasses", &class).await.map(drop)
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    client.request(Request::get(path).body(Vec::new())?).await.with_context(|| format!("GET {path}"))
}

/// Waits until a node is selected for a claim; that node.
async fn selected(client: &Client, claim: &str) -> Result<String> {
    fixtures::wait_until(&format!("a node is selected for {claim}"), SOON, || async {
        // One that a controller makes may not be there yet.
        Ok(match get(client, &format!("{CLAIMS}/{claim}")).await {
            Ok(claim) => {
                let node = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
                node.as_str().map(str::to_owned).ok_or_else(|| claim.to_string())
            }
            Err(error) => Err(format!("{error:#}")),
        })
    })
    .await
}

/// Makes the volume that a claim waits for, as a driver's provisioner does, where it can be reached from that zone.
async fn provision(client: &Client, claim: &str, zone: &str) -> Result<()> {
    let object = get(client, &format!("{CLAIMS}/{claim}")).await?;
    let name = format!("made-for-{claim}");
    let class = object["spec"]["storageClassName"].as_str().context("the claim has a class")?;
    let expression = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
    let volume = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim,
                "uid": object["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    });
    send(client, Method::POST, VOLUMES, &volume).await.map(drop)
}

fn zone_of(node: &str) -> &'static str {
    if node == "node-0" { "a" } else { "b" }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_wait_for_their_first_consumer_are_bound_before_the_pod() -> Result<()> {
    let mut cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    cluster.plane.start_controllers(&BINDERS).await?;
    class(&client, "local", "kubernetes.io/no-provisioner").await?;
    class(&client, "made", DRIVER).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::Short).await?;

    // Volumes that somebody made: the pod waits for one, goes where it is, and the claim is bound to it.
    claim(&client, "local", "local", "ReadWriteOnce").await?;
    let local = create(&client, pod("local", "local")).await?;
    let words = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    ensure!(told_why(&client, &local).await? == words);
    volume(&client, "lies-in-b", "local", Some("b")).await?;
    ensure!(place(&client, &local).await? == "node-1");
    let bound = get(&client, &format!("{CLAIMS}/local")).await?;
    ensure!(bound["spec"]["volumeName"] == "lies-in-b" && bound["status"]["phase"] == "Bound", "{bound}");
    let kept = get(&client, &format!("{VOLUMES}/lies-in-b")).await?;
    ensure!(kept["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes", "{kept}");

    // A volume that is made for the chosen node: nothing is bound before it is there.
    claim(&client, "made", "made", "ReadWriteOnce").await?;
    let made = create(&client, pod("made", "made")).await?;
    let node = selected(&client, "made").await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(node_of(&pods.get("made").await?).is_none(), "its claim is not bound yet");
    // Whoever was to make it could not: the pod is told, and tried again.
    let back = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    send(&client, Method::PATCH, &format!("{CLAIMS}/made"), &back).await?;
    waits(
        &client,
        &made,
        "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"made\"",
    )
    .await?;
    let again = selected(&client, "made").await?;
    ensure!(again == node, "{again}");
    // Killed in between: whoever comes next goes on with what the claim says.
    scheduler.kill();
    let mut next = Scheduler::start(&cluster.plane, "next", Lease::Short).await?;
    provision(&client, "made", zone_of(&node)).await?;
    ensure!(place(&client, &made).await? == node);

    // A claim that is made for the pod.
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "made",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    let fixture = PodFixture::new("own").mig("1g.5gb").scheduler(SCHEDULER_NAME).spec("volumes", volumes);
    let own = create(&client, fixture).await?;
    let node = selected(&client, "own-scratch").await?;
    provision(&client, "own-scratch", zone_of(&node)).await?;
    ensure!(place(&client, &own).await? == node);
    next.stop().await?;
    cluster.finish().await
}
