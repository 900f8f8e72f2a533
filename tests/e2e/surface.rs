//! What operators see of a running scheduler: its pages, its metrics, its log.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cluster::{self, Cluster};
use crate::fixtures::{self, PodFixture};
use crate::harness::Options;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler, samples};

/// Names that dashboards and alerts are built on.
const PROMISED: [&str; 15] = [
    "mig_scheduler_schedule_attempts_total",
    "mig_scheduler_scheduling_attempt_duration_seconds_bucket",
    "mig_scheduler_scheduling_algorithm_duration_seconds_bucket",
    "mig_scheduler_pod_scheduling_sli_duration_seconds_bucket",
    "mig_scheduler_pod_scheduling_attempts_bucket",
    "mig_scheduler_pending_pods",
    "mig_scheduler_queue_incoming_pods_total",
    "mig_scheduler_cache_size",
    "mig_scheduler_async_api_call_execution_total",
    "mig_scheduler_async_api_call_execution_duration_seconds_bucket",
    "mig_scheduler_pending_async_api_calls",
    "mig_scheduler_async_api_call_drops_total",
    "mig_scheduler_watch_restarts_total",
    "mig_scheduler_leader",
    "mig_scheduler_build_info",
];

/// The pages answer, and what they say agrees with what was done: two machines, five pods of which four fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_say_what_was_done() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &cluster::nodes(2, 1, &[("3g.20gb", 2)])).await?;
    let client = &cluster.client;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    for path in ["/livez", "/healthz", "/readyz"] {
        let (code, body) = scheduler.page(path)?;
        ensure!(code == 200 && body == "ok", "{path}: {code} {body:?}");
    }
    ensure!(scheduler.page("/readyz?verbose")?.1.contains("readyz check passed"));
    ensure!(scheduler.page("/nothing")?.0 == 404);
    let configz: Value = serde_json::from_str(&scheduler.page("/configz")?.1).context("read /configz")?;
    let lease = &configz["mig-scheduler.io"]["leaderElection"]["leaseDuration"];
    ensure!(lease == "15s", "/configz: {configz}");

    let pod =
        |i| PodFixture::new(format!("pod-{i}")).mig("3g.20gb").scheduler(SCHEDULER_NAME).label("app", "some");
    let made = fixtures::create_pods(client, &(0..5).map(pod).collect::<Vec<_>>()).await?;
    fixtures::wait_for_phase(client, "app=some", 4, "Running", Duration::from_secs(20)).await?;
    // Gauges are brought up to date every second.
    let settled = "the pages have caught up";
    fixtures::wait_until(settled, Duration::from_secs(5), || async {
        let waiting = scheduler.metric("mig_scheduler_pending_pods", &["queue=\"unschedulable\""])?;
        let assumed = scheduler.metric("mig_scheduler_cache_size", &["type=\"assumed_pods\""])?;
        let settled = waiting == 1.0 && assumed == 0.0;
        Ok(if settled { Ok(()) } else { Err(format!("{waiting} wait, {assumed} assumed")) })
    })
    .await?;
    let (_, text) = scheduler.page("/metrics")?;
    let missing: Vec<_> = PROMISED.iter().filter(|name| samples(&text, name).next().is_none()).collect();
    ensure!(missing.is_empty(), "/metrics lacks {missing:?}:\n{text}");
    let expected = [
        ("mig_scheduler_schedule_attempts_total", "result=\"scheduled\"", 4.0),
        ("mig_scheduler_schedule_attempts_total", "result=\"error\"", 0.0),
        ("mig_scheduler_cache_size", "type=\"nodes\"", 2.0),
        ("mig_scheduler_cache_size", "type=\"pods\"", 4.0),
        ("mig_scheduler_async_api_call_drops_total", "", 0.0),
        ("mig_scheduler_leader", "", 1.0),
    ];
    for (name, label, value) in expected {
        let found = scheduler.metric(name, &[label])?;
        ensure!(found == value, "{name}{{{label}}} is {found}, not {value}");
    }

    let named = made.iter().filter_map(|pod| pod.metadata.name.as_deref());
    let log = scheduler.log();
    let unnamed: Vec<_> = named.filter(|name| !log.contains(&format!("default/{name}"))).collect();
    ensure!(unnamed.is_empty(), "the log does not name {unnamed:?}:\n{log}");
    scheduler.stop().await?;
    cluster.finish().await
}
