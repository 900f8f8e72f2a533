//! The scheduler or the API server goes away in the middle of the work and comes back: nothing is lost, nothing done twice.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cluster::{self, Cluster};
use crate::election::wait_until_it_leads;
use crate::fixtures::{self, PodFixture};
use crate::harness::{Component, Options};
use crate::history::History;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

const LONG: Duration = Duration::from_secs(120);

/// 20 machines of 8 GPUs, each cut into seven: 1,120 instances.
fn machines() -> Vec<fixtures::MigNode> {
    cluster::nodes(20, 8, &[("1g.5gb", 56)])
}

fn pods(count: usize) -> Vec<PodFixture> {
    let pod =
        |i| PodFixture::new(format!("pod-{i}")).mig("1g.5gb").scheduler(SCHEDULER_NAME).label("app", "many");
    (0..count).map(pod).collect()
}

/// The first process dies with binds in flight, and with it all that it had assumed. Its successor waits for the lease and
/// starts from what the API server holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_a_thousand_pods_binds_none_twice() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    let history = History::watch(&client).await?;
    fixtures::create_pods(&client, &pods(1_000)).await?;

    let mut first = Scheduler::launch(&cluster.plane, "first", Lease::Short)?;
    history.wait_for_bound(300, LONG).await?;
    first.kill();
    let killed = Instant::now();
    let before = history.bound();
    ensure!(before < 1_000, "all pods were bound before the kill, so it showed nothing");
    let mut second = Scheduler::start(&cluster.plane, "second", Lease::Short).await?;
    history.wait_for_bound(1_000, LONG).await?;
    println!("killed after {before} binds; all bound {:?} later", killed.elapsed());
    fixtures::wait_for_phase(&client, "app=many", 1_000, "Running", LONG).await?;
    history.each_bound_once(1_000)?;
    second.stop().await?;
    cluster.finish().await
}

/// The leader is asked to stop with binds in flight, as a rollout does. It waits for their answers, frees the lease and ends in
/// order; the standby, which has watched all the while, does the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_in_the_middle_of_a_thousand_pods_binds_none_twice() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    let history = History::watch(&client).await?;
    // A busy machine must not cost it the lease; that is another test's matter.
    let mut first = Scheduler::start(&cluster.plane, "first", Lease::Long).await?;
    wait_until_it_leads(&first).await?;
    let mut second = Scheduler::start(&cluster.plane, "second", Lease::Long).await?;

    let many = pods(1_000);
    let created = fixtures::create_pods(&client, &many);
    let stopped = async {
        history.wait_for_bound(300, LONG).await?;
        first.stop().await?;
        Ok(history.bound())
    };
    let (_, before) = tokio::try_join!(created, stopped)?;
    ensure!(before < 1_000, "all pods were bound before the first had stopped, so it showed nothing");
    wait_until_it_leads(&second).await?;
    history.wait_for_bound(1_000, LONG).await?;
    println!("{before} bound when the first had stopped, the rest by the second");
    fixtures::wait_for_phase(&client, "app=many", 1_000, "Running", LONG).await?;
    history.each_bound_once(1_000)?;
    ensure!(!first.log().contains("Binds are left"), "{}", first.log());
    second.stop().await?;
    cluster.finish().await
}

/// The API server dies with binds in flight and pods waiting, and is away for a few seconds. A bind whose answer was lost is
/// neither forgotten nor made anew somewhere else, and the watches catch up by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_wait_out_a_stopped_api_server() -> Result<()> {
    let mut cluster = Cluster::start(Options::default(), &machines()).await?;
    let client = cluster.client.clone();
    let history = History::watch(&client).await?;
    fixtures::create_pods(&client, &pods(1_000)).await?;

    // Its renew deadline has to outlast the outage on a busy machine; a lease that is lost is another test's matter.
    let mut scheduler = Scheduler::launch(&cluster.plane, "ours", Lease::Long)?;
    history.wait_for_bound(200, LONG).await?;
    cluster.plane.stop(Component::ApiServer);
    let stopped = Instant::now();
    let before = history.bound();
    ensure!(before < 1_000, "all pods were bound before the outage, so it showed nothing");
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(scheduler.page("/livez")?.0 == 200, "an outage is no reason to be restarted");
    cluster.plane.start_api_server().await?;
    let away = stopped.elapsed();

    history.wait_for_bound(1_000, LONG).await?;
    println!("{before} bound, then away for {away:?}; all bound after {:?}", stopped.elapsed());
    fixtures::wait_for_phase(&client, "app=many", 1_000, "Running", LONG).await?;
    history.each_bound_once(1_000)?;
    ensure!(scheduler.page("/readyz")?.0 == 200);
    scheduler.stop().await?;
    cluster.finish().await
}
