//! A node whose device plugin is broken turns away every pod that is bound to it, and a ReplicaSet makes a new one each time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::fixtures::{self, MigNode, phase};
use crate::harness::Options;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

/// Long enough for three pauses.
const BROKEN: Duration = Duration::from_secs(25);
const LONG: Duration = Duration::from_secs(90);

/// Seven replicas for seven instances. As long as the plugin is broken they burn in a first burst and then one by one, further
/// and further apart; when it is repaired all of them run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_device_plugin_burns_few_pods() -> Result<()> {
    let options = Options { controller_manager: true, ..Options::default() };
    let cluster = Cluster::start(options, &[MigNode::new("a", 1, &[("1g.5gb", 7)])]).await?;
    let client = cluster.client.clone();
    cluster.emulator.with(|machines| machines.set_broken("a", true));
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    let resources = json!({"limits": {"nvidia.com/mig-1g.5gb": "1"}});
    let replicas: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "many"},
        "spec": {
            "replicas": 7,
            "selector": {"matchLabels": {"app": "many"}},
            "template": {
                "metadata": {"labels": {"app": "many"}},
                "spec": {
                    "schedulerName": SCHEDULER_NAME,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "example.invalid/main", "resources": resources}],
                },
            },
        },
    }))?;
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    sets.create(&PostParams::default(), &replicas).await.context("create a ReplicaSet")?;
    tokio::time::sleep(BROKEN).await;

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let all = pods.list(&ListParams::default().labels("app=many")).await?.items;
    let burnt: Vec<_> = all.iter().filter(|pod| phase(pod) == "Failed").collect();
    println!("{} pods were turned away in {BROKEN:?}", burnt.len());
    ensure!((7..=30).contains(&burnt.len()), "{} pods were turned away", burnt.len());
    let label = ["reason=\"UnexpectedAdmissionError\""];
    fixtures::wait_until("each is counted", LONG, || async {
        let counted = scheduler.metric("mig_scheduler_kubelet_rejections_total", &label)?;
        Ok(if counted >= burnt.len() as f64 { Ok(()) } else { Err(format!("{counted}")) })
    })
    .await?;
    let event = fixtures::wait_for_event(&client, burnt[0], "RejectedByNode", LONG).await?;
    let note = event.note.unwrap_or_default();
    ensure!(
        note.starts_with("Node a turned the pod away after it was bound (UnexpectedAdmissionError)"),
        "{note}"
    );

    cluster.emulator.with(|machines| machines.set_broken("a", false));
    fixtures::wait_until("all replicas run", LONG, || async {
        let all = pods.list(&ListParams::default().labels("app=many")).await?.items;
        let running = all.iter().filter(|pod| phase(pod) == "Running").count();
        Ok(if running == 7 { Ok(()) } else { Err(format!("{running} run")) })
    })
    .await?;
    scheduler.stop().await?;
    cluster.check_sums().await?;
    cluster.plane.finish()
}
