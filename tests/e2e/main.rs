//! End-to-end tests against a real Kubernetes control plane. `harness` starts it, `emulator` plays the nodes' kubelets
//! and device plugins, `fixtures` fills it; see `tests/controlplane` for how the binaries come about.
//!
//! The tests take turns (the harness holds a lock), so any number of test threads gives the same result.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

mod emulator;
mod fixtures;
mod harness;

use emulator::{CountingAdmission, Emulator};
use fixtures::{MigNode, PodFixture};
use harness::{ClientLimits, ControlPlane, Options};

/// The whole arrangement at once, with kube-scheduler in the place of the scheduler under test: bound pods are admitted
/// and run, and one that fits nowhere is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smoke_kube_scheduler_fills_a_mig_cluster() -> Result<()> {
    let started = std::time::Instant::now();
    let mut plane = ControlPlane::start(Options {
        kwok: true,
        kube_scheduler: Some(ClientLimits::UNLIMITED),
        ..Options::default()
    })
    .await?;
    println!("control plane ready in {:?}", started.elapsed());
    let client = plane.client();

    let nodes: Vec<_> =
        (0..20).map(|i| MigNode::new(format!("node-{i}"), 1, &[("1g.5gb", 2), ("2g.10gb", 1)])).collect();
    fixtures::create_nodes(&client, &nodes).await?;
    let emulator = Emulator::start(client.clone(), CountingAdmission::default());

    // 20 machines offer 40 + 20 instances; leave ten small ones free.
    let small = (0..30).map(|i| PodFixture::new(format!("small-{i}")).mig("1g.5gb"));
    let large = (0..20).map(|i| PodFixture::new(format!("large-{i}")).mig("2g.10gb"));
    let pods: Vec<_> = small.chain(large).map(|pod| pod.label("app", "fits")).collect();
    let created = std::time::Instant::now();
    fixtures::create_pods(&client, &pods).await?;
    let running =
        fixtures::wait_for_phase(&client, "app=fits", 50, "Running", Duration::from_secs(60)).await?;
    println!("50 pods running after {:?}", created.elapsed());
    let scheduled =
        fixtures::wait_for_event(&client, &running[0], "Scheduled", Duration::from_secs(10)).await?;
    ensure!(scheduled.note.as_deref().is_some_and(|note| note.starts_with("Successfully assigned default/")));

    let one_too_many = [PodFixture::new("one-too-many").mig("2g.10gb")];
    let waiting = fixtures::create_pods(&client, &one_too_many).await?.remove(0);
    let event =
        fixtures::wait_for_event(&client, &waiting, "FailedScheduling", Duration::from_secs(10)).await?;
    let note = event.note.context("the event says why")?;
    println!("{note}");
    ensure!(note.starts_with("0/20 nodes are available: 20 Insufficient nvidia.com/mig-2g.10gb."), "{note}");

    let report = emulator.report();
    ensure!(report.violations.is_empty(), "oversubscribed: {}", report.violations[0]);
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    ensure!(report.admitted == 50, "{report:?}");
    plane.check_alive()
}
