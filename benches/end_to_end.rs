//! Throughput beside kube-scheduler: the same API server, the same nodes, the same backlog, one scheduler after the other.
//!
//! ```text
//!   nodes ─► for each round, for each scheduler:
//!              create the pods ─► start it ─► first bind … last bind … last event ─► stop it, delete the pods
//!                                 │◄─────────────────────────────────────────► CPU, memory
//! ```
//!
//! One JSON line a size on stdout, progress on stderr. For each scheduler, the median of the rounds (of two: their mean):
//!
//! - `pods_per_s`: pods by the time from the first to the last bind that a watch shows.
//! - `pods_per_s_from_start`: pods by the time from the start of the process, its lists of nodes and pods included.
//! - `cpu_ms_per_pod`, `rss_mib`: user and system time, and peak resident memory, of the process from its start until its
//!   events are written.
//! - `apiserver_cpu_ms_per_pod`: what the API server spent in the same time, on whomever.
//! - `events_written_s`: from the first bind until the last `Scheduled` event is there; `events_dropped`: pods without one.
//!   For ours the API is checked against the drops that it counts itself.
//!
//! Conditions, the same for both: nothing else writes (no KWOK, no emulator, so no pod ever runs); pods are there before the
//! scheduler starts; each acts as a user of its own with just its own rights (nobody is exempt from priority and fairness);
//! every round reverses the order; pods, events and namespace of a run are new. kube-scheduler has no leader election and a
//! client limit of 5,000 requests a second; ours runs as shipped but for its port: with leader election, and no limit other
//! than its lanes.
//!
//! What differs and cannot be made alike: kube-scheduler's own user has a larger share under priority and fairness than a service
//! account, and looks at a sample of the nodes of a large cluster, where ours looks at all; ours logs a line a pod. etcd's CPU is
//! in no column, and `events_written_s` is looked at every 100 ms.
//!
//! How to read it: compare the two on one line, never across machines. On few cores the API server and etcd take most of the
//! time, so both schedulers slow down with what a pod costs *them*: a bind that does nothing else reaches some 2,000 pods/s on
//! two cores, and each event written meanwhile takes from that. What a scheduler can do about it is to need little CPU itself
//! and to let binds go first.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures real processes in real time"
)]

use std::collections::BTreeSet;
use std::fs;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, PostParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinHandle;

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/e2e/fixtures.rs"]
mod fixtures;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/e2e/harness.rs"]
mod harness;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/e2e/rights.rs"]
mod rights;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/e2e/scheduler.rs"]
mod scheduler;

use fixtures::{MigNode, PodFixture};
use harness::{ClientLimits, Component, ControlPlane, Options};
use scheduler::{Lease, SCHEDULER_NAME, Scheduler};

/// Beyond this a scheduler hangs: the slowest figure known, 344 pods/s, drains 5,000 pods in 15 s.
const DRAINED_WITHIN: Duration = Duration::from_secs(600);
/// Events are complete when their number has not grown for so long.
const EVENTS_REST: Duration = Duration::from_secs(5);
/// How often events are counted: one request that returns one object.
const EVENTS_POLL: Duration = Duration::from_millis(100);
/// Of user and system time in /proc; the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Each GPU is cut into 3g + 2g + 1g + 1g, each node has eight of them. Pods ask in the same proportion.
const GPUS: u32 = 8;
const CUT: [(&str, u32); 3] = [("3g.20gb", 8), ("2g.10gb", 8), ("1g.5gb", 16)];
const MIX: [&str; 4] = ["1g.5gb", "2g.10gb", "1g.5gb", "3g.20gb"];

/// Measures ours and kube-scheduler in turn on one API server.
#[derive(Debug, Parser)]
struct Args {
    /// Sizes of the cluster.
    #[arg(long, num_args = 1.., default_values_t = [500, 5_000])]
    nodes: Vec<usize>,
    /// Pods of the backlog.
    #[arg(long, default_value_t = 5_000)]
    pods: usize,
    /// Drains of each scheduler at each size.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Ours,
    KubeScheduler,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Ours => "ours",
            Contender::KubeScheduler => "kube-scheduler",
        }
    }

    fn scheduler_name(self) -> &'static str {
        match self {
            Contender::Ours => SCHEDULER_NAME,
            Contender::KubeScheduler => "default-scheduler",
        }
    }
}

/// One drain.
#[derive(Clone, Copy, Debug)]
struct Drain {
    pods: usize,
    first_bind: Duration,
    last_bind: Duration,
    last_event: Duration,
    events: usize,
    cpu: f64,
    apiserver_cpu: f64,
    rss_mib: f64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args = Args::parse();
    for &nodes in &args.nodes {
        let line = measure(nodes, args.pods, args.rounds).await.with_context(|| format!("{nodes} nodes"))?;
        println!("{}", serde_json::to_string(&line).context("write a line")?);
    }
    Ok(())
}

async fn measure(nodes: usize, pods: usize, rounds: u32) -> Result<Line> {
    let mut plane = ControlPlane::start(Options::default()).await?;
    rights::apply(&plane).await?;
    let machines: Vec<_> = (0..nodes).map(|i| MigNode::new(format!("node-{i:05}"), GPUS, &CUT)).collect();
    let offered: usize = CUT.iter().map(|&(_, count)| count as usize).sum::<usize>() * nodes;
    ensure!(
        pods <= offered * 3 / 4,
        "{nodes} nodes offer {offered} instances, too few for {pods} pods of any mix"
    );
    eprintln!("{nodes} nodes, {pods} pods: creating the nodes");
    fixtures::create_idle_nodes(&plane.client(), &machines).await?;

    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut order = [Contender::Ours, Contender::KubeScheduler];
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let drain = run(&mut plane, contender, round, pods).await;
            let drain = drain.with_context(|| format!("{} in round {}", contender.name(), round + 1))?;
            let figures = serde_json::to_string(&Figures::of(&[drain])).context("write the figures")?;
            eprintln!("{nodes} nodes, round {}, {}: {figures}", round + 1, contender.name());
            match contender {
                Contender::Ours => ours.push(drain),
                Contender::KubeScheduler => peer.push(drain),
            }
        }
    }
    plane.finish()?;
    Ok(Line { nodes, pods, rounds, ours: Figures::of(&ours), kube_scheduler: Figures::of(&peer) })
}

/// Creates the backlog, lets one scheduler drain it, and cleans up.
async fn run(plane: &mut ControlPlane, contender: Contender, round: u32, pods: usize) -> Result<Drain> {
    let client = plane.client();
    let namespace = format!("{}-{round}", contender.name());
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
    let backlog: Vec<_> = (0..pods)
        .map(|i| {
            PodFixture::new(format!("pod-{i}"))
                .namespace(&namespace)
                .scheduler(contender.scheduler_name())
                .mig(MIX[i % MIX.len()])
                .request("cpu", "1")
                .request("memory", "1Gi")
        })
        .collect();
    fixtures::create_pods(&client, &backlog).await?;
    let binds = Binds::watch(&client, &namespace).await?;
    let apiserver = plane.pid(Component::ApiServer).context("the API server runs")?;
    let before = cpu_seconds(apiserver)?;

    let started = Instant::now();
    let mut ours = None;
    match contender {
        Contender::Ours => ours = Some(Scheduler::launch(plane, &namespace, Lease::AsShipped)?),
        Contender::KubeScheduler => plane.start_kube_scheduler(ClientLimits::UNLIMITED).await?,
    }
    let pid = ours.as_ref().map_or_else(|| plane.pid(Component::KubeScheduler), Scheduler::pid);
    let pid = pid.context("the scheduler runs")?;
    let (first, last) = binds.wait_for(pods).await?;
    let (events, last_event) = count_events(&client, &namespace, pods).await?;
    let drain = Drain {
        pods,
        first_bind: first - started,
        last_bind: last - started,
        last_event: last_event.max(last) - started,
        events,
        cpu: cpu_seconds(pid)?,
        apiserver_cpu: cpu_seconds(apiserver)? - before,
        rss_mib: peak_memory_mib(pid)?,
    };

    match ours {
        Some(mut scheduler) => {
            let label = ["call_type=\"event\""];
            let dropped = scheduler.metric("mig_scheduler_async_api_call_drops_total", &label)?;
            ensure!(
                dropped == pods.saturating_sub(events) as f64,
                "{events} events of {pods}, {dropped} counted as dropped"
            );
            scheduler.stop().await?;
        }
        None => plane.stop(Component::KubeScheduler),
    }
    clean_up(&client, &namespace).await?;
    Ok(drain)
}

/// A line of the output.
#[derive(Debug, Serialize)]
struct Line {
    nodes: usize,
    pods: usize,
    rounds: u32,
    ours: Figures,
    kube_scheduler: Figures,
}

/// What the drains of one scheduler come to; the module's comment defines each.
#[derive(Debug, Serialize)]
struct Figures {
    pods_per_s: f64,
    pods_per_s_from_start: f64,
    cpu_ms_per_pod: f64,
    rss_mib: f64,
    apiserver_cpu_ms_per_pod: f64,
    events_written_s: f64,
    events_dropped: f64,
}

impl Figures {
    fn of(drains: &[Drain]) -> Self {
        let of_pods = |drain: &Drain| drain.pods as f64;
        Figures {
            pods_per_s: median(drains, 0, |d| of_pods(d) / (d.last_bind - d.first_bind).as_secs_f64()),
            pods_per_s_from_start: median(drains, 0, |d| of_pods(d) / d.last_bind.as_secs_f64()),
            cpu_ms_per_pod: median(drains, 3, |d| 1_000.0 * d.cpu / of_pods(d)),
            rss_mib: median(drains, 1, |d| d.rss_mib),
            apiserver_cpu_ms_per_pod: median(drains, 3, |d| 1_000.0 * d.apiserver_cpu / of_pods(d)),
            events_written_s: median(drains, 2, |d| (d.last_event - d.first_bind).as_secs_f64()),
            events_dropped: median(drains, 1, |d| d.pods.saturating_sub(d.events) as f64),
        }
    }
}

/// Of an even number of drains the mean of the middle two; rounded to so many digits.
fn median(drains: &[Drain], digits: i32, figure: impl Fn(&Drain) -> f64) -> f64 {
    let mut figures: Vec<f64> = drains.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let middle = (figures[(figures.len() - 1) / 2] + figures[figures.len() / 2]) / 2.0;
    let scale = 10_f64.powi(digits);
    (middle * scale).round() / scale
}

/// When pods were bound, from a watch that carries their metadata alone, to cost the API server little.
struct Binds {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    uids: BTreeSet<String>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Binds {
    async fn watch(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), namespace);
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (listed, ready) = tokio::sync::oneshot::channel();
        let task = tokio::spawn({
            let seen = seen.clone();
            async move {
                let mut listed = Some(listed);
                let mut events = pin!(watcher(api, bound));
                while let Some(event) = events.next().await {
                    match event {
                        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                            note(&seen, pod.uid())
                        }
                        Ok(watcher::Event::InitDone) => drop(listed.take().map(|listed| listed.send(()))),
                        _ => {}
                    }
                }
            }
        });
        ready.await.context("the first list of bound pods")?;
        Ok(Binds { seen, task })
    }

    /// When the first and the last of `pods` were bound.
    async fn wait_for(&self, pods: usize) -> Result<(Instant, Instant)> {
        let deadline = Instant::now() + DRAINED_WITHIN;
        loop {
            let (count, times) = {
                let seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                (seen.uids.len(), seen.first.zip(seen.last))
            };
            match times {
                Some(times) if count >= pods => return Ok(times),
                _ => ensure!(
                    Instant::now() < deadline,
                    "{count} of {pods} pods are bound after {DRAINED_WITHIN:?}"
                ),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Binds {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note(seen: &Mutex<Seen>, uid: Option<String>) {
    let mut seen = seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if uid.is_some_and(|uid| seen.uids.insert(uid)) {
        let now = Instant::now();
        seen.first.get_or_insert(now);
        seen.last = Some(now);
    }
}

/// How many events there are in the end, and when the last one was seen to be there.
async fn count_events(client: &Client, namespace: &str, expected: usize) -> Result<(usize, Instant)> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let (mut count, mut grown) = (0, Instant::now());
    while count < expected && grown.elapsed() < EVENTS_REST {
        let page = api.list(&ListParams::default().limit(1)).await?;
        let found = page.items.len() + usize::try_from(page.metadata.remaining_item_count.unwrap_or(0))?;
        if found > count {
            (count, grown) = (found, Instant::now());
        }
        tokio::time::sleep(EVENTS_POLL).await;
    }
    Ok((count, grown))
}

/// Deletes what a run has left, so that the next one finds the nodes as this one did.
async fn clean_up(client: &Client, namespace: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    // One call may time out on the server before it has deleted everything.
    fixtures::wait_until("pods and events are deleted", Duration::from_secs(120), || async {
        let _ = pods.delete_collection(&now, &all).await;
        let _ = events.delete_collection(&now, &all).await;
        let one = ListParams::default().limit(1);
        let left = pods.list(&one).await?.items.len() + events.list(&one).await?.items.len();
        Ok(if left == 0 { Ok(()) } else { Err("some are left".to_owned()) })
    })
    .await
}

/// User and system time of a process so far.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read the CPU time of a process")?;
    // The name, in parentheses, may contain anything; utime and stime are the 12th and 13th fields after it.
    let after = stat.rsplit_once(')').context("find the name of a process")?.1;
    let fields: Vec<_> = after.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).context("find the CPU time of a process")?;
    Ok((user + system) / TICKS_PER_SECOND)
}

/// The most memory that a process had resident at once.
fn peak_memory_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read the memory of a process")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("find VmHWM")?;
    let kib = line.trim().trim_end_matches("kB").trim().parse::<f64>().context("read VmHWM")?;
    Ok(kib / 1_024.0)
}
