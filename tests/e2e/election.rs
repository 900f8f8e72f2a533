//! Several replicas: one acts, another takes over, and one that has lost the lease is gone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::cluster::{self, Cluster};
use crate::fixtures::{self, PodFixture};
use crate::harness::Options;
use crate::history::History;
use crate::rights::NAMESPACE;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

const SOON: Duration = Duration::from_secs(20);

fn leases(client: &Client) -> Api<LeaseObject> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn holder(client: &Client) -> Result<String> {
    let lease = leases(client).get("mig-scheduler").await.context("read the lease")?;
    Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

pub async fn wait_until_it_leads(scheduler: &Scheduler) -> Result<Duration> {
    let started = Instant::now();
    fixtures::wait_until("it leads", SOON, || async {
        Ok(if scheduler.leads()? { Ok(()) } else { Err("it stands by".to_owned()) })
    })
    .await?;
    Ok(started.elapsed())
}

/// Ten pods more, all of which have to run.
async fn run_ten(client: &Client, app: &str) -> Result<()> {
    let pod =
        |i| PodFixture::new(format!("{app}-{i}")).mig("1g.5gb").scheduler(SCHEDULER_NAME).label("app", app);
    fixtures::create_pods(client, &(0..10).map(pod).collect::<Vec<_>>()).await?;
    fixtures::wait_for_phase(client, &format!("app={app}"), 10, "Running", SOON).await.map(drop)
}

fn binds(scheduler: &Scheduler) -> Result<f64> {
    scheduler.metric("mig_scheduler_async_api_call_execution_total", &["call_type=\"pod_binding\""])
}

/// The leader stops in order: it frees the lease and the standby, which is ready all the time, acts within a second or two
/// instead of a lease duration later. The next leader loses its lease to a thief and is gone at once, with an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_replicas_acts_and_the_other_takes_over() -> Result<()> {
    let cluster = Cluster::start(Options::default(), &cluster::nodes(2, 4, &[("1g.5gb", 28)])).await?;
    let client = cluster.client.clone();
    let history = History::watch(&client).await?;
    let mut first = Scheduler::start(&cluster.plane, "first", Lease::Short).await?;
    wait_until_it_leads(&first).await?;
    let mut second = Scheduler::start(&cluster.plane, "second", Lease::Short).await?;
    let first_holder = holder(&client).await?;

    run_ten(&client, "one").await?;
    ensure!(first.leads()? && !second.leads()?, "exactly one leads");
    ensure!(
        binds(&first)? == 10.0 && binds(&second)? == 0.0,
        "{} and {} binds",
        binds(&first)?,
        binds(&second)?
    );
    ensure!(
        second.metric("mig_scheduler_leader", &[])? == 0.0
            && first.metric("mig_scheduler_leader", &[])? == 1.0
    );

    first.stop().await?;
    let took_over = wait_until_it_leads(&second).await?;
    println!("the standby led {took_over:?} after the leader had ended");
    // Its retry period is 0.5 s, stretched by at most a fifth.
    ensure!(
        took_over < Duration::from_secs(3),
        "it took {took_over:?}, as if the lease had not been released"
    );
    run_ten(&client, "two").await?;
    ensure!(binds(&second)? == 10.0);
    ensure!(holder(&client).await? != first_holder);

    let steal = json!({"spec": {
        "holderIdentity": "thief",
        "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    }});
    leases(&client).patch("mig-scheduler", &PatchParams::default(), &Patch::Merge(steal)).await?;
    let status = second.exit(Duration::from_secs(10)).await?;
    ensure!(status.code() == Some(1), "a lost lease ends the process with an error, and it said {status}");
    ensure!(second.log().contains("Leadership lost"), "{}", second.log());

    // Nobody renews what was stolen, so it runs out, and a third replica finishes the work.
    let mut third = Scheduler::start(&cluster.plane, "third", Lease::Short).await?;
    run_ten(&client, "three").await?;
    third.stop().await?;
    ensure!(holder(&client).await?.is_empty(), "the lease is free");
    history.each_bound_once(30)?;
    cluster.finish().await
}
