//! Pods of a higher priority have others go: as few and as unimportant ones as possible, no budget broken while there is
//! another way, and the place that comes free is theirs, whatever happens meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::election::wait_until_it_leads;
use crate::fixtures::{self, MigNode, PodFixture, condition, node_of};
use crate::harness::Options;
use crate::placing::told_why;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(60);
/// Long enough for anything wrong to happen.
const MOMENT: Duration = Duration::from_secs(3);

async fn create_classes(client: &Client) -> Result<()> {
    let classes = [
        ("middle", 500, "PreemptLowerPriority"),
        ("high", 1_000, "PreemptLowerPriority"),
        ("meek", 1_000, "Never"),
    ];
    for (name, value, policy) in classes {
        let class: PriorityClass = serde_json::from_value(json!({
            "metadata": {"name": name}, "value": value, "preemptionPolicy": policy,
        }))?;
        Api::all(client.clone()).create(&PostParams::default(), &class).await.context("create a class")?;
    }
    Ok(())
}

/// A budget for pods with `app=web` of which none may be missed. No controller runs, so its status is written here.
async fn create_budget(client: &Client) -> Result<()> {
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
    let budget = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    budgets.create(&PostParams::default(), &budget).await.context("create a budget")?;
    let status = json!({"status": {
        "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    }});
    budgets.patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn ours(name: &str, profile: &str) -> PodFixture {
    PodFixture::new(name).mig(profile).scheduler(SCHEDULER_NAME)
}

fn of_class(pod: PodFixture, class: &str) -> PodFixture {
    pod.spec("priorityClassName", json!(class))
}

fn on(pod: PodFixture, machine: &str) -> PodFixture {
    pod.spec("nodeSelector", json!({"kubernetes.io/hostname": machine}))
}

/// A pod that is being deleted stays until [`let_go`], as one does that takes its time.
async fn hold(client: &Client, name: &str) -> Result<()> {
    patch(client, name, json!({"metadata": {"finalizers": ["example.invalid/hold"]}})).await
}

async fn let_go(client: &Client, name: &str) -> Result<()> {
    patch(client, name, json!({"metadata": {"finalizers": null}})).await
}

async fn patch(client: &Client, name: &str, patch: Value) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let patched = pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("patch {name}"))
}

fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref())
}

async fn wait_for_nomination(client: &Client, name: &str, node: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    fixtures::wait_until(&format!("{name} is nominated for {node}"), SOON, || async {
        let pod = pods.get(name).await?;
        Ok(if nominated(&pod) == Some(node) { Ok(()) } else { Err(format!("{:?}", pod.status)) })
    })
    .await
}

/// Three machines of one instance each, all taken: by an unimportant pod, by a more important one, and by an unimportant one
/// whose budget is used up. The first goes, and nobody else; while it takes its time neither an equal nor a lesser pod gets its
/// place, nor does a restart change anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_important_goes_and_its_place_is_kept() -> Result<()> {
    let machine = |name: &str| MigNode::new(name, 1, &[("1g.5gb", 1)]);
    let nodes = ["a", "b", "c"].map(machine);
    let cluster = Cluster::start(Options::default(), &nodes).await?;
    let client = cluster.client.clone();
    create_classes(&client).await?;
    create_budget(&client).await?;
    let mut first = Scheduler::start(&cluster.plane, "first", Lease::Short).await?;
    let running = [
        on(of_class(ours("dear", "1g.5gb"), "middle"), "a").label("app", "holder"),
        on(ours("cheap", "1g.5gb"), "b").label("app", "holder"),
        on(ours("web", "1g.5gb"), "c").label("app", "web"),
    ];
    let running = fixtures::create_pods(&client, &running).await?;
    fixtures::wait_for_phase(&client, "app=holder", 2, "Running", SOON).await?;
    fixtures::wait_for_phase(&client, "app=web", 1, "Running", SOON).await?;
    hold(&client, "cheap").await?;

    let urgent = of_class(ours("urgent", "1g.5gb"), "high").label("app", "urgent");
    fixtures::create_pods(&client, &[urgent]).await?;
    wait_for_nomination(&client, "urgent", "b").await?;
    fixtures::wait_for_event(&client, &running[1], "Preempted", SOON).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let cheap = pods.get("cheap").await?;
    let told = condition(&cheap, "DisruptionTarget").context("the victim is told why")?;
    ensure!(is_ending(&cheap) && told.reason.as_deref() == Some("PreemptionByScheduler"), "{told:?}");
    ensure!(first.metric("mig_scheduler_preemption_attempts_total", &[])? >= 1.0);
    ensure!(first.metric("mig_scheduler_preemption_victims_sum", &[])? == 1.0);

    let late = fixtures::create_pods(
        &client,
        &[
            of_class(ours("late", "1g.5gb"), "meek").label("app", "late"),
            ours("small", "1g.5gb").label("app", "late"),
        ],
    )
    .await?;
    let told = told_why(&client, &late[0]).await?;
    ensure!(told.ends_with("preemption: not eligible due to preemptionPolicy=Never."), "{told}");
    told_why(&client, &late[1]).await?;
    first.kill();
    let mut second = Scheduler::start(&cluster.plane, "second", Lease::Short).await?;
    wait_until_it_leads(&second).await?;
    tokio::time::sleep(MOMENT).await;
    for name in ["dear", "web"] {
        ensure!(!is_ending(&pods.get(name).await?), "{name} goes for nothing");
    }
    let_go(&client, "cheap").await?;
    let urgent = fixtures::wait_for_phase(&client, "app=urgent", 1, "Running", SOON).await?;
    ensure!(node_of(&urgent[0]) == Some("b"), "{:?}", node_of(&urgent[0]));
    tokio::time::sleep(MOMENT).await;
    for pod in ["late", "small"] {
        ensure!(node_of(&pods.get(pod).await?).is_none(), "{pod} has taken a place");
    }
    for name in ["dear", "web"] {
        ensure!(!is_ending(&pods.get(name).await?), "{name} goes for nothing");
    }
    second.stop().await?;
    cluster.finish().await
}

/// Where there is no other way a budget gives way, the important pod first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_gives_way_only_where_nothing_else_does() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &[MigNode::new("a", 1, &[("1g.5gb", 2)])]).await?;
    let client = cluster.client.clone();
    create_classes(&client).await?;
    create_budget(&client).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    let holders = [
        of_class(ours("dear", "1g.5gb"), "middle").label("app", "dear"),
        ours("web", "1g.5gb").label("app", "web"),
    ];
    fixtures::create_pods(&client, &holders).await?;
    for app in ["app=dear", "app=web"] {
        fixtures::wait_for_phase(&client, app, 1, "Running", SOON).await?;
    }
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for (name, victim) in [("first", "dear"), ("second", "web")] {
        let urgent = of_class(ours(name, "1g.5gb"), "high").label("app", name);
        fixtures::create_pods(&client, &[urgent]).await?;
        fixtures::wait_for_phase(&client, &format!("app={name}"), 1, "Running", SOON).await?;
        ensure!(pods.get_opt(victim).await?.is_none(), "{victim} is still there");
        ensure!(
            name == "second" || pods.get_opt("web").await?.is_some(),
            "the budget was broken for nothing"
        );
    }
    scheduler.stop().await?;
    cluster.finish().await
}

/// A machine's GPUs are cut into instances of several profiles. For a large one only the holder of a large one goes, though the
/// holders of small ones matter less; and kubelet then finds the instance for the pod that came for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_is_usable_when_its_holder_has_gone() -> Result<()> {
    let instances = [("3g.20gb", 2), ("1g.5gb", 7)];
    let cluster = Cluster::start(Options::default(), &[MigNode::new("a", 2, &instances)]).await?;
    let client = cluster.client.clone();
    create_classes(&client).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    let small = (0..7).map(|at| ours(&format!("small-{at}"), "1g.5gb").label("app", "small"));
    let large =
        (0..2).map(|at| of_class(ours(&format!("large-{at}"), "3g.20gb"), "middle").label("app", "large"));
    fixtures::create_pods(&client, &small.chain(large).collect::<Vec<_>>()).await?;
    fixtures::wait_for_phase(&client, "app=small", 7, "Running", SOON).await?;
    fixtures::wait_for_phase(&client, "app=large", 2, "Running", SOON).await?;
    let urgent: Vec<_> = (0..2)
        .map(|at| of_class(ours(&format!("urgent-{at}"), "3g.20gb"), "high").label("app", "urgent"))
        .collect();
    fixtures::create_pods(&client, &urgent).await?;
    fixtures::wait_for_phase(&client, "app=urgent", 2, "Running", LONG).await?;
    fixtures::wait_for_phase(&client, "app=small", 7, "Running", SOON).await?;
    // A plan may name a pod that is going already; that one is not asked again.
    let evictions = ["call_type=\"pod_eviction\"", "result=\"success\""];
    ensure!(scheduler.metric("mig_scheduler_async_api_call_execution_total", &evictions)? == 2.0);
    scheduler.stop().await?;
    cluster.finish().await
}
