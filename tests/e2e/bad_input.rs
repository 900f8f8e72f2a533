//! Input that no scheduler would choose: odd pods, odd nodes, and pods that go while they are being bound. None of it is
//! lost, bound twice or put where it does not fit, and whoever waits is told why.
//!
//! All cases share one cluster and run at once. Each has a machine of its own, which its pods select by the label `case`.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::fixtures::{self, MigNode, PodFixture, condition, node_of};
use crate::harness::Options;
use crate::placing::told_why;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

const LONG: Duration = Duration::from_secs(60);
/// Long enough for a scheduler that does the wrong thing to have done it.
const A_WHILE: Duration = Duration::from_secs(2);

/// A pod for the machine of one case.
fn pod(name: &str, case: &str) -> PodFixture {
    PodFixture::new(name)
        .scheduler(SCHEDULER_NAME)
        .label("pod", name)
        .spec("nodeSelector", json!({"case": case}))
}

/// A machine for one case.
fn node(case: &str, instances: &[(&str, u32)]) -> MigNode {
    MigNode::new(case, 4, instances).label("case", case)
}

fn pods(client: &Client) -> Api<Pod> {
    Api::default_namespaced(client.clone())
}

async fn runs(client: &Client, name: &str) -> Result<()> {
    fixtures::wait_for_phase(client, &format!("pod={name}"), 1, "Running", LONG).await.map(drop)
}

/// Creates the pod and expects that it waits, with `why` among the reasons.
async fn waits(client: &Client, fixture: PodFixture, why: &str) -> Result<()> {
    let made = fixtures::create_pods(client, &[fixture]).await?.remove(0);
    let told = told_why(client, &made).await?;
    ensure!(told.contains(why), "{:?} is told {told:?}, not {why:?}", made.name_any());
    Ok(())
}

/// The cases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_pods_and_nodes_are_scheduled_or_told_why() -> Result<()> {
    let nodes = [
        node("mixed", &[("1g.5gb", 2), ("2g.10gb", 1)]),
        node("whole", &[("1g.5gb", 1)]),
        node("few", &[("1g.5gb", 3)]),
        MigNode { gpus: 0, unlabelled: true, ..node("no-gpu", &[]) },
        MigNode { unlabelled: true, ..node("undescribed", &[("1g.5gb", 1)]) },
        node("unheard-of", &[("1g.5gb", 1)]).label("nvidia.com/gpu.product", "NVIDIA-Z9000"),
        node("changing", &[("1g.5gb", 1)]).label("nvidia.com/mig.config.state", "pending"),
        node("gated", &[("1g.5gb", 1)]),
        node("demanding", &[("1g.5gb", 7)]),
        node("long-name", &[("1g.5gb", 1)]),
    ];
    let cluster = Cluster::start(Options::default(), &nodes).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    let client = &cluster.client;
    futures::try_join!(
        case("several profiles in one pod", several_profiles(client)),
        case("no whole GPU beside an instance", no_whole_gpu(client)),
        case("more than any node has", too_many(client)),
        case("requests that the API refuses", refused_by_the_api(client)),
        case("a node without GPUs", without_gpus(client)),
        case("nodes that nobody described", undescribed(client)),
        case("a layout that is being changed", layout_being_changed(client)),
        case("scheduling gates", gates(client, &scheduler)),
        case("demands that are not honoured", not_honoured(client)),
        case("the longest name", longest_name(client)),
    )?;
    scheduler.stop().await?;
    cluster.finish().await
}

async fn case(name: &str, result: impl Future<Output = Result<()>>) -> Result<()> {
    result.await.with_context(|| format!("case: {name}"))
}

/// Two profiles are two resources: a pod gets both from one machine, or waits for what is missing.
async fn several_profiles(client: &Client) -> Result<()> {
    let both = pod("both", "mixed").mig("1g.5gb").mig("2g.10gb");
    fixtures::create_pods(client, &[both]).await?;
    runs(client, "both").await?;
    let again = pod("both-again", "mixed").mig("1g.5gb").mig("2g.10gb");
    waits(client, again, "1 Insufficient nvidia.com/mig-2g.10gb").await
}

async fn no_whole_gpu(client: &Client) -> Result<()> {
    let zero = pod("zero", "whole").mig("1g.5gb").request("nvidia.com/gpu", "0");
    fixtures::create_pods(client, &[zero]).await?;
    runs(client, "zero").await
}

async fn too_many(client: &Client) -> Result<()> {
    let four = pod("four", "few").request("nvidia.com/mig-1g.5gb", "4");
    waits(client, four, "1 Insufficient nvidia.com/mig-1g.5gb").await?;
    let largest = pod("largest", "few").request("nvidia.com/mig-1g.5gb", &i64::MAX.to_string());
    waits(client, largest, "1 Insufficient nvidia.com/mig-1g.5gb").await?;
    let unknown = pod("unknown-profile", "few").mig("9g.99gb");
    waits(client, unknown, "1 Insufficient nvidia.com/mig-9g.99gb").await?;
    fixtures::create_pods(client, &[pod("three", "few").request("nvidia.com/mig-1g.5gb", "3")]).await?;
    runs(client, "three").await
}

async fn refused_by_the_api(client: &Client) -> Result<()> {
    for amount in ["-1", "500m", "many"] {
        let odd = pod("odd", "few").request("nvidia.com/mig-1g.5gb", amount).build()?;
        match pods(client).create(&PostParams::default(), &odd).await {
            Err(kube::Error::Api(status)) => ensure!(matches!(status.code, 400 | 422), "{status:?}"),
            other => bail!("{amount} was answered with {other:?}"),
        }
    }
    Ok(())
}

async fn without_gpus(client: &Client) -> Result<()> {
    waits(client, pod("gpu-wanted", "no-gpu").mig("1g.5gb"), "1 Insufficient nvidia.com/mig-1g.5gb").await?;
    fixtures::create_pods(client, &[pod("cpu-only", "no-gpu").request("cpu", "1")]).await?;
    runs(client, "cpu-only").await
}

/// What a machine advertises counts, whether its labels explain it or not.
async fn undescribed(client: &Client) -> Result<()> {
    for case in ["undescribed", "unheard-of"] {
        fixtures::create_pods(client, &[pod(case, case).mig("1g.5gb")]).await?;
        runs(client, case).await?;
        waits(
            client,
            pod(&format!("{case}-more"), case).mig("1g.5gb"),
            "1 Insufficient nvidia.com/mig-1g.5gb",
        )
        .await?;
    }
    Ok(())
}

async fn layout_being_changed(client: &Client) -> Result<()> {
    const STATE: &str = "nvidia.com/mig.config.state";
    let why = "1 node(s) had an unsettled MIG layout (nvidia.com/mig.config.state=pending)";
    waits(client, pod("patient", "changing").mig("1g.5gb"), why).await?;
    let cpu_only = pod("no-gpu-needed", "changing").request("cpu", "1");
    fixtures::create_pods(client, &[cpu_only]).await?;
    runs(client, "no-gpu-needed").await?;
    fixtures::patch_node(client, "changing", json!({"metadata": {"labels": {STATE: "success"}}})).await?;
    runs(client, "patient").await
}

async fn gates(client: &Client, scheduler: &Scheduler) -> Result<()> {
    let gated =
        pod("gated", "gated").mig("1g.5gb").spec("schedulingGates", json!([{"name": "example.com/wait"}]));
    fixtures::create_pods(client, &[gated]).await?;
    fixtures::wait_until("a pod is counted as gated", LONG, || async {
        let gated = scheduler.metric("mig_scheduler_pending_pods", &["queue=\"gated\""])?;
        Ok(if gated == 1.0 { Ok(()) } else { Err(format!("{gated} are")) })
    })
    .await?;
    let seen = pods(client).get("gated").await?;
    ensure!(node_of(&seen).is_none(), "it is bound");
    let said = condition(&seen, "PodScheduled").and_then(|said| said.reason.clone());
    ensure!(said.as_deref() == Some("SchedulingGated"), "{said:?}");
    ensure!(fixtures::events(client, &seen, "FailedScheduling").await?.is_empty(), "nothing has failed");
    let lift = json!({"spec": {"schedulingGates": null}});
    pods(client).patch("gated", &PatchParams::default(), &Patch::Merge(lift)).await?;
    runs(client, "gated").await
}

/// Seven instances are free for each of them; what keeps them waiting is what we cannot promise.
async fn not_honoured(client: &Client) -> Result<()> {
    let claim = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
    let demands: [(&str, &str, Value, &str); 1] = [("claims", "resourceClaims", claim, "resourceClaims")];
    for (name, field, value, word) in demands {
        waits(client, pod(name, "demanding").mig("1g.5gb").spec(field, value), word).await?;
    }
    tokio::time::sleep(A_WHILE).await;
    ensure!(node_of(&pods(client).get("claims").await?).is_none(), "it is bound");
    Ok(())
}

/// An event's name is made from the pod's and may not be longer than it.
async fn longest_name(client: &Client) -> Result<()> {
    let name =
        [&"a".repeat(63), &"b".repeat(63), &"c".repeat(63), &"d".repeat(61)].map(String::as_str).join(".");
    let fixture = PodFixture::new(&name)
        .scheduler(SCHEDULER_NAME)
        .spec("nodeSelector", json!({"case": "long-name"}))
        .spec("hostname", json!("short"))
        .mig("1g.5gb");
    let made = fixtures::create_pods(client, &[fixture]).await?.remove(0);
    fixtures::wait_for_event(client, &made, "Scheduled", LONG).await.map(drop)
}

/// Pods are deleted while they wait, while they are decided on and while they are being bound, and others take their names.
/// What a deleted pod was assumed to hold is free again: in the end exactly as many pods run as there are instances.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storms_of_deleted_pods_leave_nothing_behind() -> Result<()> {
    const INSTANCES: usize = 28;
    let cluster = Cluster::start(Options::default(), &[node("storm", &[("1g.5gb", 28)])]).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    let client = &cluster.client;

    for round in 0..3 {
        let storm = (0..120).map(|i| (i, pod(&format!("storm-{round}-{i}"), "storm").mig("1g.5gb")));
        fixtures::concurrently(storm, |(i, fixture)| async move {
            let made = fixtures::create_pods(client, &[fixture]).await?.remove(0);
            // Between at once and well after the bind, in no order.
            tokio::time::sleep(Duration::from_millis(i * 37 % 120)).await;
            delete(client, &made.name_any()).await
        })
        .await?;
    }
    for _ in 0..30 {
        fixtures::create_pods(client, &[pod("phoenix", "storm").mig("1g.5gb")]).await?;
        delete(client, "phoenix").await?;
    }
    // KWOK deletes by name, late, and so may hit the successor of the pod it means. Let it finish.
    tokio::time::sleep(A_WHILE).await;
    fixtures::create_pods(client, &[pod("phoenix", "storm").mig("1g.5gb")]).await?;
    runs(client, "phoenix").await?;

    let rest = (1..INSTANCES).map(|i| pod(&format!("last-{i}"), "storm").mig("1g.5gb").label("app", "last"));
    fixtures::create_pods(client, &rest.collect::<Vec<_>>()).await?;
    fixtures::wait_for_phase(client, "app=last", INSTANCES - 1, "Running", LONG).await?;
    waits(client, pod("one-more", "storm").mig("1g.5gb"), "1 Insufficient nvidia.com/mig-1g.5gb").await?;
    ensure!(scheduler.metric("mig_scheduler_cache_size", &["type=\"pods\""])? <= INSTANCES as f64);
    scheduler.stop().await?;
    cluster.finish().await
}

async fn delete(client: &Client, name: &str) -> Result<()> {
    match pods(client).delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop).with_context(|| format!("delete {name}")),
    }
}
