//! A waiting pod is bound as soon as something changes so that it can be.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::json;

use crate::cluster::Cluster;
use crate::fixtures::{self, MigNode, PodFixture, node_of};
use crate::harness::Options;
use crate::placing::told_why;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

/// The shipped back-off after a first failed attempt.
const BACKOFF: Duration = Duration::from_secs(1);
/// What a change may take to be noticed and acted on, beyond the back-off.
const PROMPT: Duration = Duration::from_secs(5);

/// Which change lets the waiting pod of a machine run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    HolderDeleted,
    InstancesAdded,
    Uncordoned,
    NodeCreated,
    Untainted,
}

impl Change {
    const ALL: [Change; 5] = [
        Change::HolderDeleted,
        Change::InstancesAdded,
        Change::Uncordoned,
        Change::NodeCreated,
        Change::Untainted,
    ];

    fn machine(self) -> &'static str {
        match self {
            Change::HolderDeleted => "held",
            Change::InstancesAdded => "grows",
            Change::Uncordoned => "cordoned",
            Change::NodeCreated => "late",
            Change::Untainted => "tainted",
        }
    }

    fn node(self) -> MigNode {
        let instances: &[(&str, u32)] = match self {
            Change::InstancesAdded => &[],
            _ => &[("3g.20gb", 1)],
        };
        let mut node = MigNode::new(self.machine(), 1, instances);
        if self == Change::Untainted {
            node.taints.push(json!({"key": "maintenance", "effect": "NoSchedule"}));
        }
        node
    }

    /// The change itself.
    async fn make(self, client: &Client) -> Result<()> {
        let machine = self.machine();
        match self {
            Change::HolderDeleted => {
                let pods: Api<Pod> = Api::default_namespaced(client.clone());
                pods.delete("holder", &DeleteParams::default()).await.map(drop).context("delete the holder")
            }
            Change::InstancesAdded => {
                let instances = [("3g.20gb".to_owned(), 1)].into();
                fixtures::set_instances(client, machine, &instances).await
            }
            Change::Uncordoned => fixtures::cordon(client, machine, false).await,
            Change::NodeCreated => fixtures::create_nodes(client, &[self.node()]).await,
            Change::Untainted => {
                fixtures::patch_node(client, machine, json!({"spec": {"taints": null}})).await
            }
        }
    }
}

fn pod(name: &str, machine: &str) -> PodFixture {
    PodFixture::new(name)
        .mig("3g.20gb")
        .scheduler(SCHEDULER_NAME)
        .spec("nodeSelector", json!({"kubernetes.io/hostname": machine}))
}

/// How long the pod takes to be bound from now on.
async fn bound_after(client: &Client, name: &str) -> Result<Duration> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let started = Instant::now();
    loop {
        if node_of(&pods.get(name).await?).is_some() {
            return Ok(started.elapsed());
        }
        ensure!(started.elapsed() < Duration::from_secs(30), "{name} still waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Once while the pod's back-off still runs, and once when it is over and nothing but the change is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_pod_is_bound_promptly_after_the_change_that_helps_it() -> Result<()> {
    let there = Change::ALL.into_iter().filter(|&change| change != Change::NodeCreated);
    let nodes: Vec<_> = there.map(Change::node).collect();
    let cluster = Cluster::start(Options::default(), &nodes).await?;
    let client = cluster.client.clone();
    fixtures::cordon(&client, Change::Uncordoned.machine(), true).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    fixtures::create_pods(&client, &[pod("holder", "held").label("app", "holder")]).await?;
    fixtures::wait_for_phase(&client, "app=holder", 1, "Running", Duration::from_secs(20)).await?;

    for change in Change::ALL {
        let name = format!("waits-{}", change.machine());
        let waiting = pod(&name, change.machine()).label("app", "waits");
        let waiting = fixtures::create_pods(&client, &[waiting]).await?.remove(0);
        told_why(&client, &waiting).await.with_context(|| format!("{change:?}"))?;
        let in_backoff = matches!(change, Change::HolderDeleted | Change::NodeCreated);
        if !in_backoff {
            tokio::time::sleep(BACKOFF).await;
        }
        change.make(&client).await?;
        let took = bound_after(&client, &name).await.with_context(|| format!("{change:?}"))?;
        println!("{change:?}: bound after {took:?}");
        let limit = if in_backoff { BACKOFF + PROMPT } else { PROMPT };
        ensure!(took < limit, "{change:?}: bound after {took:?}, more than {limit:?}");
    }
    fixtures::wait_for_phase(&client, "app=waits", 5, "Running", Duration::from_secs(20)).await?;
    scheduler.stop().await?;
    cluster.finish().await
}
