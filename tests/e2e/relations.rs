//! Pods that want something of other pods: near, apart, evenly spread, across namespaces; woken by what helps them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, nodes};
use crate::fixtures::{self, MigNode, PodFixture, node_of};
use crate::harness::Options;
use crate::placing::told_why;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

const SOON: Duration = Duration::from_secs(20);
const HOST: &str = "kubernetes.io/hostname";

fn pod(name: &str, app: &str) -> PodFixture {
    PodFixture::new(name).mig("1g.5gb").scheduler(SCHEDULER_NAME).label("app", app)
}

fn term(key: &str, app: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn required(kind: &str, term: Value) -> Value {
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

async fn create(client: &Client, fixture: PodFixture) -> Result<Pod> {
    Ok(fixtures::create_pods(client, &[fixture]).await?.remove(0))
}

/// Where a pod runs, once it does.
async fn place(client: &Client, pod: &Pod) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    fixtures::wait_until(&format!("{name} is bound"), SOON, || async {
        let pod = pods.get(&name).await?;
        Ok(node_of(&pod).map(str::to_owned).ok_or_else(|| format!("{:?}", pod.status)))
    })
    .await
}

/// One machine in zone `a`, two in zone `b`.
fn machines() -> Vec<MigNode> {
    let zones = ["a", "b", "b"];
    nodes(3, 1, &[("1g.5gb", 7)])
        .into_iter()
        .zip(zones)
        .map(|(node, zone)| node.label("zone", zone))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_go_where_other_pods_let_them() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;

    let db = create(&client, pod("db", "db").spec("nodeSelector", json!({"zone": "a"}))).await?;
    ensure!(place(&client, &db).await? == "node-0");
    let near = pod("near", "web").spec("affinity", required("podAffinity", term("zone", "db")));
    ensure!(place(&client, &create(&client, near).await?).await? == "node-0");
    let apart = pod("apart", "web").spec("affinity", required("podAntiAffinity", term("zone", "db")));
    ensure!(place(&client, &create(&client, apart).await?).await? != "node-0");

    // Three that keep apart take a machine each; the fourth waits, and takes the place of one that goes.
    let guard =
        |name: &str| pod(name, "guard").spec("affinity", required("podAntiAffinity", term(HOST, "guard")));
    let mut taken = Vec::new();
    for name in ["guard-0", "guard-1", "guard-2"] {
        taken.push(place(&client, &create(&client, guard(name)).await?).await?);
    }
    let first = taken[0].clone();
    taken.sort();
    taken.dedup();
    ensure!(taken.len() == 3, "{taken:?}");
    let fourth = create(&client, guard("guard-3")).await?;
    let words = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.";
    ensure!(told_why(&client, &fourth).await? == words);
    // What running pods hold against newcomers counts for pods that say nothing themselves.
    let plain = create(&client, pod("plain", "guard")).await?;
    let words = "0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules.";
    ensure!(told_why(&client, &plain).await? == words);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("plain", &DeleteParams::default()).await.context("delete plain")?;
    pods.delete("guard-0", &DeleteParams::default()).await.context("delete guard-0")?;
    ensure!(place(&client, &fourth).await? == first);

    // Zone b has two machines, but no more pods than zone a.
    let constraint = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}}, "matchLabelKeys": ["rev"]}]);
    let even = |name: &str, rev: &str| {
        pod(name, "even").label("rev", rev).spec("topologySpreadConstraints", constraint.clone())
    };
    let mut zones = [0_u32; 2];
    for nth in 0..4 {
        let at = place(&client, &create(&client, even(&format!("even-{nth}"), "1")).await?).await?;
        zones[usize::from(at != "node-0")] += 1;
        ensure!(zones[0].abs_diff(zones[1]) <= 1, "{zones:?}");
    }
    // Another revision is counted by itself.
    let only_a = even("even-new", "2").spec("nodeSelector", json!({"zone": "a"}));
    ensure!(place(&client, &create(&client, only_a).await?).await? == "node-0");
    scheduler.stop().await?;
    cluster.finish().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_are_selected_by_labels_that_change() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let other: Namespace = serde_json::from_value(json!({"metadata": {"name": "other"}}))?;
    namespaces.create(&PostParams::default(), &other).await.context("create a namespace")?;
    let db = pod("db", "db").namespace("other").spec("nodeSelector", json!({"zone": "a"}));
    ensure!(place(&client, &create(&client, db).await?).await? == "node-0");

    let mut near = term("zone", "db");
    near["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
    let waiting = create(&client, pod("near", "web").spec("affinity", required("podAffinity", near))).await?;
    let words = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.";
    ensure!(told_why(&client, &waiting).await? == words);
    let labelled = json!({"metadata": {"labels": {"team": "x"}}});
    namespaces.patch("other", &PatchParams::default(), &Patch::Merge(labelled)).await.context("label it")?;
    ensure!(place(&client, &waiting).await? == "node-0");
    scheduler.stop().await?;
    cluster.finish().await
}
