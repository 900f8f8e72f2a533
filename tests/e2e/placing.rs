//! Pods find their places: a full cluster, with kube-scheduler at work on the same nodes, and what is said about it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::cluster::{self, Cluster};
use crate::emulator::Violation;
use crate::fixtures::{self, MigNode, PodFixture, condition, node_of, phase};
use crate::harness::{ClientLimits, Options};
use crate::history::History;
use crate::scheduler::{Lease, SCHEDULER_NAME, Scheduler};

const SOON: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(90);

fn both_schedulers() -> Options {
    Options { kube_scheduler: Some(ClientLimits::UNLIMITED), ..Options::default() }
}

/// Every instance of twenty machines is taken, by two hundred pods that also want CPU; at the same time kube-scheduler
/// fills the CPU that is left on the same machines, to the last core of each. Pods of ours come first by necessity, not by
/// order: a machine's CPU is enough for its ten instances and its five foreign pods only together, and foreign pods are kept
/// from taking more by a host port each. So both count what the other does, no race can end badly, and each pod has a place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_pods_run_beside_those_of_kube_scheduler() -> Result<()> {
    let instances = [("1g.5gb", 7), ("2g.10gb", 2), ("3g.20gb", 1)];
    let nodes: Vec<_> = cluster::nodes(20, 2, &instances)
        .into_iter()
        .map(|node| MigNode { cpu: "15".to_owned(), ..node })
        .collect();
    let cluster = Cluster::start(both_schedulers(), &nodes).await?;
    let client = cluster.client.clone();
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;
    let history = History::watch(&client).await?;

    let mut pods = Vec::new();
    for (profile, count) in instances {
        pods.extend((0..20 * count).map(|i| {
            let name = format!("mig-{}-{i}", profile.replace('.', "-"));
            ours(&name, profile).request("cpu", "1").label("app", "mig")
        }));
    }
    pods.extend((0..100).map(|i| foreign_with_port(i).label("app", "cpu")));
    interleave(&mut pods);
    fixtures::create_pods(&client, &pods).await?;
    let running = fixtures::wait_for_phase(&client, "app=mig", 200, "Running", LONG).await?;
    let others = fixtures::wait_for_phase(&client, "app=cpu", 100, "Running", LONG).await?;
    history.each_bound_once(300)?;
    let (mine, theirs) = (cluster::by_node(&running), cluster::by_node(&others));
    ensure!(mine.len() == 20 && mine.values().all(|&count| count == 10), "{mine:?}");
    ensure!(theirs.len() == 20 && theirs.values().all(|&count| count == 5), "{theirs:?}");

    for pod in &running {
        let scheduled = condition(pod, "PodScheduled").context("a bound pod has the condition")?;
        ensure!(scheduled.status == "True", "{scheduled:?}");
    }
    each_has_a_scheduled_event(&client, &running).await?;
    explained_as_kube_scheduler_does(&client).await?;

    ensure!(scheduler.metric("mig_scheduler_schedule_attempts_total", &["result=\"scheduled\""])? == 200.0);
    scheduler.stop().await?;
    cluster.finish().await
}

fn ours(name: &str, profile: &str) -> PodFixture {
    PodFixture::new(name).mig(profile).scheduler(SCHEDULER_NAME)
}

/// One of five foreign pods that a machine can take, since each port is wanted by twenty pods on twenty machines.
fn foreign_with_port(i: usize) -> PodFixture {
    PodFixture::new(format!("cpu-{i}")).request("cpu", "1").port(8_000 + i % 5)
}

/// Deals the pods out anew, so that those of both schedulers are created in turn.
fn interleave(pods: &mut Vec<PodFixture>) {
    let count = pods.len();
    // Coprime to the 300 and 80 pods of the tests: every index comes once.
    let order = (0..count).map(|i| i * 101 % count);
    *pods = order.map(|i| pods[i].clone()).collect();
}

/// Exactly one each, in kube-scheduler's words and under our name.
async fn each_has_a_scheduled_event(client: &Client, pods: &[Pod]) -> Result<()> {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let ours = ListParams::default().fields("reason=Scheduled,reportingController=mig-scheduler");
    let by_uid = fixtures::wait_until("every pod has its Scheduled event", SOON, || async {
        let mut by_uid: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        for event in events.list(&ours).await? {
            let about = event.regarding.as_ref().and_then(|regarding| regarding.uid.clone());
            by_uid.entry(about.unwrap_or_default()).or_default().push(event);
        }
        let missing = pods.iter().filter(|pod| !by_uid.contains_key(&pod.uid().unwrap_or_default())).count();
        Ok(if missing == 0 { Ok(by_uid) } else { Err(format!("{missing} have none")) })
    })
    .await?;
    ensure!(by_uid.len() == pods.len(), "events about {} pods", by_uid.len());
    for pod in pods {
        let [event] = &by_uid[&pod.uid().unwrap_or_default()][..] else {
            anyhow::bail!("{} has several Scheduled events", pod.name_any());
        };
        let note = format!(
            "Successfully assigned default/{} to {}",
            pod.name_any(),
            node_of(pod).context("a running pod has a node")?
        );
        ensure!(event.note.as_deref() == Some(note.as_str()), "{event:?}");
        ensure!(
            event.type_.as_deref() == Some("Normal") && event.action.as_deref() == Some("Binding"),
            "{event:?}"
        );
    }
    Ok(())
}

/// Two pods that fit nowhere and differ in their scheduler alone are told the same; only the sentence about preemption,
/// which we do not do, is missing.
async fn explained_as_kube_scheduler_does(client: &Client) -> Result<()> {
    let pair = [ours("one-too-many", "1g.5gb"), PodFixture::new("theirs-too-many").mig("1g.5gb")];
    let [ours, theirs] =
        fixtures::create_pods(client, &pair).await?.try_into().map_err(|_| anyhow::anyhow!("two pods"))?;
    let event = fixtures::wait_for_event(client, &ours, "FailedScheduling", SOON).await?;
    let note = event.note.clone().context("the event says why")?;
    let reporter = event.reporting_controller.as_deref();
    ensure!(
        event.type_.as_deref() == Some("Warning") && event.action.as_deref() == Some("Scheduling"),
        "{event:?}"
    );
    ensure!(reporter == Some(SCHEDULER_NAME) && event.reporting_instance.is_some(), "{event:?}");
    ensure!(note == "0/20 nodes are available: 20 Insufficient nvidia.com/mig-1g.5gb.", "{note}");

    let condition = told_why(client, &ours).await?;
    ensure!(condition == note, "the condition says {condition:?}, the event {note:?}");
    let reference = told_why(client, &theirs).await?;
    ensure!(reference.starts_with(&note), "kube-scheduler says {reference:?}, we say {note:?}");
    Ok(())
}

/// The message of a pod's condition PodScheduled=False, reason Unschedulable.
pub async fn told_why(client: &Client, pod: &Pod) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    fixtures::wait_until(&format!("{name} is told why it waits"), SOON, || async {
        let pod = pods.get(&name).await?;
        let said = condition(&pod, "PodScheduled")
            .filter(|said| said.status == "False" && said.reason.as_deref() == Some("Unschedulable"))
            .and_then(|said| said.message.clone());
        Ok(said.ok_or_else(|| format!("{:?}", condition(&pod, "PodScheduled"))))
    })
    .await
}

/// Two schedulers, twice as many pods as instances, all at once. Neither sees what the other decides before the watch shows
/// it, and a binding names no resources, so both may give away the same last instance: no scheduler can prevent that, and
/// the API server does not. What has to hold all the same:
///
/// * a node never runs more than it has, and who comes too late is refused by it: Failed, with kubelet's reason;
/// * no instance is lost by that: as long as pods wait, every instance is in use in the end;
/// * whoever waits is told why;
/// * a refusal of ours has a cause: a foreign pod that arrived on the node in the moments before. Our own pods never fight
///   each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_for_the_last_instances_costs_pods_but_no_instance() -> Result<()> {
    const INSTANCES: usize = 40;
    let nodes = cluster::nodes(20, 2, &[("7g.40gb", 2)]);
    let cluster = Cluster::start(both_schedulers(), &nodes).await?;
    let client = cluster.client.clone();
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;

    let mut pods: Vec<_> =
        (0..INSTANCES).map(|i| ours(&format!("ours-{i}"), "7g.40gb").label("app", "race")).collect();
    let theirs =
        (0..INSTANCES).map(|i| PodFixture::new(format!("theirs-{i}")).mig("7g.40gb").label("app", "race"));
    pods.extend(theirs);
    interleave(&mut pods);
    fixtures::create_pods(&client, &pods).await?;

    let all: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = fixtures::wait_until("every instance is in use and every bound pod decided", LONG, || async {
        let pods = all.list(&ListParams::default()).await?.items;
        let count = |wanted: &str| pods.iter().filter(|pod| phase(pod) == wanted).count();
        let (running, failed) = (count("Running"), count("Failed"));
        let undecided = pods.iter().filter(|pod| node_of(pod).is_some() && phase(pod) == "Pending").count();
        let done = running == INSTANCES.min(2 * INSTANCES - failed) && undecided == 0;
        Ok(if done {
            Ok(pods)
        } else {
            Err(format!("{running} run, {failed} refused, {undecided} undecided"))
        })
    })
    .await?;
    let report = cluster.emulator.report();
    let refused: Vec<_> = pods.iter().filter(|pod| phase(pod) == "Failed").collect();
    let by_us = report.violations.iter().filter(|violation| violation.pod.contains("/ours-")).count();
    println!("{} pods were refused, {by_us} of them ours", refused.len());
    ensure!(refused.len() == report.violations.len(), "{:?}", report.violations);
    for pod in &refused {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref()).unwrap_or_default();
        ensure!(reason == "UnexpectedAdmissionError", "{reason}");
    }
    for violation in report.violations.iter().filter(|violation| violation.pod.contains("/ours-")) {
        came_second(violation, &pods)?;
    }
    for pod in pods.iter().filter(|pod| node_of(pod).is_none() && pod.name_any().starts_with("ours-")) {
        told_why(&client, pod).await?;
    }
    scheduler.stop().await?;
    cluster.check_sums().await?;
    cluster.plane.finish()
}

/// A foreign pod was bound to the node before ours, and so recently that a slow machine may not have shown it to us yet.
fn came_second(violation: &Violation, pods: &[Pod]) -> Result<()> {
    let bound_at = |pod: &Pod| {
        let time = condition(pod, "PodScheduled").and_then(|bound| bound.last_transition_time.clone());
        time.map(|time| time.0.as_second()).context("a bound pod has a time")
    };
    let own = pods.iter().find(|pod| violation.pod.ends_with(&format!("/{}", pod.name_any())));
    let own = bound_at(own.context("the refused pod is there")?)?;
    for pod in pods.iter().filter(|pod| node_of(pod) == Some(violation.node.as_str())) {
        if pod.name_any().starts_with("theirs-") && (0..=10).contains(&(own - bound_at(pod)?)) {
            return Ok(());
        }
    }
    anyhow::bail!("no foreign pod explains it: {violation}")
}

/// Pods that differ in selectors, affinity, tolerations and host ports go where they may, and to no other node; one that may
/// go nowhere is told so in kube-scheduler's words. The emulator, which checks what kubelet checks, has to agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_go_only_where_they_may() -> Result<()> {
    let zone = |node: MigNode, zone: &str| {
        let labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        MigNode { labels, ..node }
    };
    let machine = |name: &str| MigNode::new(name, 1, &[("1g.5gb", 7)]);
    let tainted = MigNode {
        taints: vec![json!({"key": "gpu", "value": "a100", "effect": "NoSchedule"})],
        ..zone(machine("tainted"), "c")
    };
    let nodes = [zone(machine("a"), "a"), zone(machine("b"), "b"), tainted, machine("cordoned")];
    let cluster = Cluster::start(Options::default(), &nodes).await?;
    let client = cluster.client.clone();
    fixtures::cordon(&client, "cordoned", true).await?;
    let mut scheduler = Scheduler::start(&cluster.plane, "ours", Lease::AsShipped).await?;

    let affinity = |requirement: serde_json::Value, kind: &str| {
        let term = json!({kind: [requirement]});
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}})
    };
    let not_a =
        affinity(json!({"key": "zone", "operator": "NotIn", "values": ["a", "c"]}), "matchExpressions");
    let by_name = affinity(json!({"key": "metadata.name", "operator": "In", "values": ["b"]}), "matchFields");
    let tolerates = json!([{"key": "gpu", "operator": "Exists"}]);
    let pods = [
        ours("by-label", "1g.5gb").spec("nodeSelector", json!({"zone": "a"})),
        ours("by-expression", "1g.5gb").spec("affinity", not_a),
        ours("by-field", "1g.5gb").spec("affinity", by_name),
        ours("tolerant", "1g.5gb").spec("tolerations", tolerates).spec("nodeSelector", json!({"zone": "c"})),
        ours("intolerant", "1g.5gb").spec("nodeSelector", json!({"zone": "c"})),
        ours("port-1", "1g.5gb").port(9_000).spec("nodeSelector", json!({"zone": "a"})),
    ];
    let pods = fixtures::create_pods(&client, &pods.map(|pod| pod.label("app", "picky"))).await?;
    let running = fixtures::wait_for_phase(&client, "app=picky", 5, "Running", SOON).await?;
    let went: BTreeMap<_, _> =
        running.iter().map(|pod| (pod.name_any(), node_of(pod).unwrap_or_default())).collect();
    let expected = [
        ("by-expression", "b"),
        ("by-field", "b"),
        ("by-label", "a"),
        ("port-1", "a"),
        ("tolerant", "tainted"),
    ];
    ensure!(went.iter().map(|(name, node)| (name.as_str(), *node)).eq(expected), "{went:?}");

    let port_again = ours("port-2", "1g.5gb").port(9_000).spec("nodeSelector", json!({"zone": "a"}));
    let port_again = fixtures::create_pods(&client, &[port_again]).await?.remove(0);
    let told = told_why(&client, &port_again).await?;
    let words = "0/4 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, \
                 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, \
                 1 node(s) didn't match Pod's node affinity/selector.";
    ensure!(sorted(&told) == sorted(words), "{told}");
    let told = told_why(&client, &pods[4]).await?;
    ensure!(told.contains("1 node(s) had untolerated taint(s)"), "{told}");
    scheduler.stop().await?;
    cluster.finish().await
}

/// The reasons of a message, in an order of their own.
fn sorted(message: &str) -> Vec<&str> {
    let mut reasons: Vec<_> = message.trim_end_matches('.').split([':', ',']).map(str::trim).collect();
    reasons.sort_unstable();
    reasons
}
