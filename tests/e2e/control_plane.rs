//! The harness itself, with kube-scheduler in the place of the scheduler under test: what the other tests rely on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::emulator::{Admission, Emulator, Machines};
use crate::fixtures::{self, MigNode, PodFixture};
use crate::harness::{ClientLimits, Component, ControlPlane, MIG_SCHEDULER, Options};

/// The whole arrangement at once, with kube-scheduler in the place of the scheduler under test: bound pods
/// are admitted and run, and one that fits nowhere is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smoke_kube_scheduler_fills_a_mig_cluster() -> Result<()> {
    let plane = ControlPlane::start(Options {
        kwok: true,
        kube_scheduler: Some(ClientLimits::UNLIMITED),
        ..Options::default()
    })
    .await?;
    println!("control plane ready in {:?}", plane.started_in());
    let client = plane.client();

    let nodes: Vec<_> =
        (0..20).map(|i| MigNode::new(format!("node-{i}"), 1, &[("1g.5gb", 2), ("2g.10gb", 1)])).collect();
    fixtures::create_nodes(&client, &nodes).await?;
    let emulator = Emulator::start(client.clone(), Machines::default());

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
    plane.finish()
}

/// The emulator refuses as kubelet does, remembers it, and gives instances back; a pod that was never
/// admitted does not run, and a changed layout counts at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emulated_nodes_admit_by_what_they_have() -> Result<()> {
    const SOON: Duration = Duration::from_secs(20);
    let plane = ControlPlane::start(Options { kwok: true, ..Options::default() }).await?;
    let client = plane.client();
    fixtures::create_nodes(&client, &[MigNode::new("node-0", 1, &[("3g.20gb", 1)])]).await?;
    let emulator = Emulator::start(client.clone(), Machines::default());

    let bound = |name: &str, profile: &str, app: &str| {
        PodFixture::new(name)
            .mig(profile)
            .label("app", app)
            .scheduler("nobody")
            .spec("nodeName", json!("node-0"))
    };
    fixtures::create_pods(&client, &[bound("first", "3g.20gb", "fits")]).await?;
    fixtures::wait_for_phase(&client, "app=fits", 1, "Running", SOON).await?;
    fixtures::create_pods(&client, &[bound("second", "3g.20gb", "refused")]).await?;
    let refused = fixtures::wait_for_phase(&client, "app=refused", 1, "Failed", SOON).await?;
    let status = refused[0].status.clone().context("a refused pod has a status")?;
    ensure!(status.reason.as_deref() == Some("UnexpectedAdmissionError"), "{status:?}");
    let violations = emulator.report().violations;
    ensure!(violations.len() == 1 && violations[0].pod == "default/second", "{violations:?}");

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("first", &DeleteParams::default()).await?;
    fixtures::wait_until("the deleted pod is gone", SOON, || async {
        Ok(pods.get_opt("first").await?.map_or(Ok(()), |_| Err("it is there".to_owned())))
    })
    .await?;
    fixtures::set_instances(&client, "node-0", &[("1g.5gb".to_owned(), 1)].into()).await?;
    let node = Api::<Node>::all(client.clone()).get("node-0").await?;
    emulator.with(|admission| admission.observe(&node));
    let third = [bound("third", "3g.20gb", "late"), bound("fourth", "1g.5gb", "after")];
    fixtures::create_pods(&client, &third).await?;
    let late = fixtures::wait_for_phase(&client, "app=late", 1, "Failed", SOON).await?;
    let reason = late[0].status.as_ref().and_then(|status| status.reason.as_deref());
    ensure!(reason == Some("UnexpectedAdmissionError"), "{reason:?}");
    fixtures::wait_for_phase(&client, "app=after", 1, "Running", SOON).await?;
    plane.finish()
}

/// Workloads get their pods and nodes lose their not-ready taint; and all of it goes on after the API server
/// was killed and started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_outlive_a_restart_of_the_api_server() -> Result<()> {
    const SOON: Duration = Duration::from_secs(60);
    let mut plane = ControlPlane::start(Options {
        kwok: true,
        kube_scheduler: Some(ClientLimits::UNLIMITED),
        controller_manager: true,
    })
    .await?;
    let client = plane.client();
    fixtures::create_nodes(&client, &[MigNode::new("node-0", 1, &[("1g.5gb", 7)])]).await?;
    let emulator = Emulator::start(client.clone(), Machines::default());

    let template =
        PodFixture::new("").mig("1g.5gb").label("app", "web").spec("terminationGracePeriodSeconds", json!(0));
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), "kube-public");
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template.namespace("kube-public").build()?,
        },
    });
    sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
    fixtures::wait_for_phase(&client, "app=web", 2, "Running", SOON).await?;

    plane.stop(Component::ApiServer);
    ensure!(sets.list(&ListParams::default()).await.is_err(), "a stopped API server does not answer");
    let stopped = std::time::Instant::now();
    plane.start_api_server().await?;
    println!("API server ready again after {:?}", stopped.elapsed());
    let more = Patch::Merge(json!({"spec": {"replicas": 5}}));
    sets.patch("web", &PatchParams::default(), &more).await?;
    fixtures::wait_for_phase(&client, "app=web", 5, "Running", SOON).await?;

    let report = emulator.report();
    ensure!(report.violations.is_empty() && report.errors.is_empty(), "{report:?}");
    plane.finish()
}

/// The user of the scheduler under test starts without rights, so a test that passes proves the shipped RBAC
/// rules; and a control plane takes its processes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_restricted_and_processes_end() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let nodes: Api<Node> = Api::all(plane.client_for(MIG_SCHEDULER).await?);
    match nodes.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => ensure!(status.code == 403, "{status:?}"),
        other => anyhow::bail!("expected to be refused, got {other:?}"),
    }
    ensure!(plane.kubeconfig_for("nobody").is_err(), "an unknown user has no kubeconfig");
    let metrics = plane.fetch(Component::ApiServer, "/metrics").await?;
    ensure!(metrics.contains("apiserver_request_total"), "the API server's metrics can be read");

    let server = |component| plane.pid(component).map(|pid| std::path::PathBuf::from(format!("/proc/{pid}")));
    let running: Vec<_> = [Component::Etcd, Component::ApiServer].into_iter().filter_map(server).collect();
    ensure!(running.len() == 2 && running.iter().all(|process| process.exists()), "{running:?}");
    plane.finish()?;
    ensure!(!running.iter().any(|process| process.exists()), "still there: {running:?}");
    Ok(())
}
