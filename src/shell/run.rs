//! The scheduler as a process: one loop owns the engine, everything else is a task that talks to it.
//!
//! ```text
//!   watches ──updates──►┐                          ┌──► bind lane ──finished──┐
//!   lease ──leadership──┤   engine loop: step,     ├──► status lane           │
//!   signals ────────────┤   Tick while a decision  ├──► event lane            │
//!   timer ──────────────┤   is due and the bind    └──► log, metrics          │
//!   forecaster ─────────┤   lane has room                                     │
//!      ┌────────────────┘                                                     │
//!      └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - No decision is taken before this replica leads *and* nodes, pods, namespaces, disruption budgets and storage have been listed
//!   from then on. Until then, and as a standby, the engine only learns.
//! - A task that ends ends the process: a scheduler that lacks a part must not look alive.
//! - SIGTERM stops decisions first, then waits for the binds under way, writes the events that are left and frees the lease,
//!   unless a bind is still without an answer: it may yet land, and the next leader must not list before. A lost lease does
//!   none of that: another replica may be at work already.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout, timeout_at};

use crate::config::Config;
use crate::cycle::Scoring;
use crate::effect::Effect;
use crate::engine::{Engine, Options};
use crate::event::Event;
use crate::fact::Fact;
use crate::shell::clock::Clock;
use crate::shell::connect::{self, ConnectError};
use crate::shell::convert::wire::storage::{
    AttachmentView, ClaimView, CsiDriverView, CsiNodeView, PersistentVolumeView, StorageCapacityView,
    StorageClassView,
};
use crate::shell::dispatch::{Clients, Dispatcher, Reporter};
use crate::shell::forecasts::{self, Parts};
use crate::shell::http::{self, Health, HttpError, Pages};
use crate::shell::lease::{self, Ended, LeaderToken, Leadership, LeaseTask};
use crate::shell::metrics::{AttemptResult, CacheSize, Metrics, Watched};
use crate::shell::watch::{self as watches, Update};

/// Updates taken in before the next decision: about a millisecond's work, so that binds do not wait for a long list.
const BATCH: usize = 1024;

/// Decisions taken before the next look at what has happened.
const LONGEST_TICK: usize = 64;

/// How long binds under way may take at shutdown: a request's time and one repetition.
const DRAIN_BINDS: Duration = Duration::from_secs(10);

/// How long the events that are left may take.
const DRAIN_EVENTS: Duration = Duration::from_secs(5);

/// How long freeing the lease may take: the renewal under way and the write of the release, where the API server is slow.
const RELEASE: Duration = Duration::from_secs(8);

/// The longest a shutdown takes; the pod's termination grace period has to be longer.
pub const LONGEST_STOP: Duration =
    Duration::from_secs(DRAIN_BINDS.as_secs() + DRAIN_EVENTS.as_secs() + RELEASE.as_secs());

/// A replica that can lead at once need not list twice.
const FIRST_LEADERSHIP: Duration = Duration::from_secs(1);

/// How often gauges are updated and the loop shows that it turns.
const PULSE: Duration = Duration::from_secs(1);

/// What `run` is told.
#[derive(Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Config,
    /// A kubeconfig that takes precedence over the configuration's.
    pub kubeconfig: Option<PathBuf>,
    /// Decide and report, write nothing.
    pub dry_run: bool,
}

/// Why the scheduler ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No way to the API server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No HTTP server.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// No signal handlers.
    #[error("cannot handle signals: {0}")]
    Signals(#[from] std::io::Error),
    /// Another replica may lead now.
    #[error("leadership lost: what this replica knows may be out of date")]
    LeadershipLost,
    /// The election's task failed.
    #[error("leader election failed: {0}")]
    ElectionDied(String),
    /// Another task failed.
    #[error("the {0} ended")]
    TaskEnded(String),
}

/// Runs the scheduler until it is told to stop.
pub async fn run(settings: Settings) -> Result<(), RunError> {
    let mut signals = Signals::listen()?;
    let mut process = Process::start(settings).await?;
    let ended = tokio::select! {
        ended = process.work() => ended,
        () = signals.next() => Ok(()),
    };
    match ended {
        Ok(()) => tokio::select! {
            () = process.stop() => Ok(()),
            () = signals.next() => Ok(()),
        },
        Err(error) => Err(error),
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, RunError> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// All parts of the running scheduler.
struct Process {
    core: Core,
    updates: mpsc::Receiver<Update>,
    /// What the forecaster says; nothing without one.
    forecasts: mpsc::Receiver<Event>,
    /// None without leader election.
    election: Option<LeaseTask>,
    leadership: watch::Receiver<Leadership>,
    token: LeaderToken,
    tasks: JoinSet<&'static str>,
}

impl Process {
    async fn start(settings: Settings) -> Result<Process, RunError> {
        let Settings { config, kubeconfig, dry_run } = settings;
        let kubeconfig =
            kubeconfig.or_else(|| config.client_connection.kubeconfig.clone().map(PathBuf::from));
        let kube = connect::kube_config(kubeconfig.as_deref()).await?;
        let metrics = Arc::new(Metrics::new(&config.scheduler_name));
        let health = Health::new();
        let identity = lease::identity();
        let mut tasks = JoinSet::new();
        // Before the election: a port in use is to end a process that holds nothing.
        let listener = listen(&config).await?;
        let election = elect(&config, &kube, &identity, dry_run)?;
        let token = election.as_ref().map_or_else(LeaderToken::unelected, LeaseTask::token);
        if let Some(listener) = listener {
            let pages = Pages::new(&config, &identity, health.clone(), metrics.clone(), token.clone())?;
            serve(listener, pages, &mut tasks);
        }
        let dispatcher = if dry_run {
            Dispatcher::dry(metrics.clone())
        } else {
            let clients = Clients {
                binds: connect::client(&kube)?,
                claims: connect::client(&kube)?,
                status: connect::client(&kube)?,
                events: connect::client(&kube)?,
            };
            let reporter = Reporter { controller: config.scheduler_name.clone(), instance: identity.clone() };
            Dispatcher::open(clients, &config, &token, reporter, metrics.clone(), &mut tasks)
        };
        let mut leadership = leadership(election.as_ref());
        let leads = election.is_none() || first_leadership(&mut leadership).await;
        let (wanted, asked) = watch::channel(FIRST_LIST);
        let updates = follow(connect::watch_client(&kube)?, &config, asked, &metrics, &mut tasks);
        let forecasts = forecasts::start(Parts {
            config: config.clone(),
            kube: (!dry_run).then(|| kube.clone()),
            identity: identity.clone(),
            token: token.clone(),
            health: health.clone(),
            metrics: metrics.clone(),
        });
        let version = env!("CARGO_PKG_VERSION");
        let (scheduler, server) = (&config.scheduler_name, &kube.cluster_url);
        tracing::info!(version, identity, scheduler, %server, leads, dry_run, "Scheduler started.");
        let core = Core {
            clock: Clock::start(),
            engine: Engine::new(options(&config)),
            dispatcher,
            gate: Gate { leads, required: FIRST_LIST, wanted, listed: BTreeMap::new(), synced: false },
            effects: Vec::new(),
            metrics,
            health,
        };
        Ok(Process { core, updates, forecasts, election, leadership, token, tasks })
    }

    /// Turns until something ends.
    async fn work(&mut self) -> Result<(), RunError> {
        let mut pulse = interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wakeup = self.core.wakeup();
            tokio::select! {
                biased;
                ended = ended(&mut self.election) => return Err(ended),
                Some(ended) = self.tasks.join_next() => return Err(self.explain(ended)),
                Ok(()) = self.leadership.changed(), if self.election.is_some() => {
                    let leads = is_leading(&self.leadership.borrow_and_update());
                    self.core.gate.lead(leads);
                }
                _ = pulse.tick() => self.core.pulse(),
                event = self.core.dispatcher.next_finished() => self.core.step(event),
                Some(update) = self.updates.recv() => self.core.take_in(update),
                Some(event) = self.forecasts.recv() => self.core.step(event),
                () = due(wakeup) => {}
            }
            self.turn();
        }
    }

    /// Takes in what else has happened, then decides.
    fn turn(&mut self) {
        while let Some(event) = self.core.dispatcher.try_next_finished() {
            self.core.step(event);
        }
        for _ in 0..BATCH {
            let Ok(update) = self.updates.try_recv() else { break };
            self.core.take_in(update);
        }
        self.core.decide();
    }

    fn explain(&self, ended: Result<&'static str, JoinError>) -> RunError {
        match ended {
            // Lanes end when they may no longer write.
            Ok(_) if !self.token.is_valid() => RunError::LeadershipLost,
            Ok(name) => RunError::TaskEnded(name.to_owned()),
            Err(error) => RunError::TaskEnded(format!("task failed ({error}) and so the process")),
        }
    }

    /// Ends in order.
    async fn stop(&mut self) {
        tracing::info!(binds = self.core.dispatcher.binds_in_flight(), "Scheduler stops.");
        self.core.health.stopping();
        self.drain_binds().await;
        let unanswered = self.core.dispatcher.binds_in_flight();
        self.drain_events().await;
        if let Some(election) = self.election.take() {
            free(election, unanswered, RELEASE).await;
        }
        tracing::info!("Scheduler stopped.");
    }

    async fn drain_binds(&mut self) {
        let deadline = Instant::now() + DRAIN_BINDS;
        while self.core.dispatcher.binds_in_flight() > 0 {
            match timeout_at(deadline.into(), self.core.dispatcher.next_finished()).await {
                Ok(event) => self.core.step(event),
                Err(_) => return,
            }
        }
    }

    async fn drain_events(&mut self) {
        if self.core.dispatcher.close() {
            let written =
                async { while !matches!(self.tasks.join_next().await, Some(Ok("event lane")) | None) {} };
            if timeout(DRAIN_EVENTS, written).await.is_err() {
                tracing::warn!("Some events are left unwritten.");
            }
        }
    }
}

/// The engine and all it is joined to.
struct Core {
    clock: Clock,
    engine: Engine,
    dispatcher: Dispatcher,
    gate: Gate,
    effects: Vec<Effect>,
    metrics: Arc<Metrics>,
    health: Health,
}

impl Core {
    fn take_in(&mut self, update: Update) {
        match update {
            Update::Event(event) => {
                match &event {
                    Event::PodDeleted(uid) => self.dispatcher.forget(uid),
                    Event::PodApplied(pod) if pod.node.is_some() => self.dispatcher.forget(&pod.id.uid),
                    _ => {}
                }
                self.step(event);
            }
            Update::Condition(uid, condition) => self.dispatcher.observe_condition(&uid, condition),
            Update::Unreadable(unreadable) => {
                // To the engine it is gone; what its condition says is still known, so that only news is written.
                self.step(Event::PodDeleted(unreadable.pod.uid.clone()));
                // A standby will hear of it again when it leads, since it lists anew.
                if self.gate.leads {
                    self.dispatcher.report_unreadable(*unreadable);
                }
            }
            Update::Listed(kind, number) => {
                if self.gate.list(kind, number) {
                    self.health.synced();
                    let (nodes, pods) = (self.engine.cache().node_count(), self.engine.cache().pod_count());
                    tracing::info!(nodes, pods, "Nodes, pods and what else decides are listed.");
                    self.step(Event::Synced);
                }
            }
        }
    }

    fn step(&mut self, event: Event) {
        self.engine.step(self.clock.now(), event, &mut self.effects);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for effect in self.effects.drain(..) {
            self.dispatcher.carry_out(effect);
        }
    }

    /// Takes the decisions that are due, as far as the bind lane has room.
    fn decide(&mut self) {
        if self.wakeup().is_none_or(|due| due > Instant::now()) {
            return;
        }
        let budget = self.dispatcher.room().min(LONGEST_TICK);
        let started = Instant::now();
        self.engine.step(self.clock.now(), Event::Tick { budget }, &mut self.effects);
        self.observe_decisions(started.elapsed());
        self.carry_out();
    }

    fn observe_decisions(&self, took: Duration) {
        let unschedulable = |effect: &&Effect| matches!(effect, Effect::Fact(Fact::PodUnschedulable { .. }));
        let placed = |effect: &&Effect| matches!(effect, Effect::Bind(_) | Effect::WriteClaims(_));
        let failed = self.effects.iter().filter(unschedulable).count();
        let decisions = failed + self.effects.iter().filter(placed).count();
        let each = took / u32::try_from(decisions.max(1)).unwrap_or(u32::MAX);
        for _ in 0..decisions {
            self.metrics.observe_algorithm(each);
        }
        for _ in 0..failed {
            self.metrics.observe_attempt(AttemptResult::Unschedulable, each);
        }
    }

    /// When to decide next; `None` while nothing is due or nothing may be decided.
    fn wakeup(&self) -> Option<Instant> {
        if !self.gate.is_open() || self.dispatcher.room() == 0 {
            return None;
        }
        self.engine.next_wakeup().map(|time| self.clock.instant(time))
    }

    fn pulse(&self) {
        self.health.turn();
        self.dispatcher.publish_gauges();
        for (queue, pods) in self.engine.queue_lengths() {
            self.metrics.set_pending(queue, pods);
        }
        let cache = self.engine.cache();
        self.metrics.set_cache(CacheSize {
            nodes: cache.node_count(),
            pods: cache.pod_count(),
            assumed_pods: cache.assumed_count(),
        });
    }
}

/// The number of the lists that are taken at the start.
const FIRST_LIST: u64 = 1;

/// Whether decisions may be taken.
struct Gate {
    leads: bool,
    /// Lists of this number or a later one are recent enough.
    required: u64,
    wanted: watch::Sender<u64>,
    /// The number of the last complete list of each kind.
    listed: BTreeMap<Watched, u64>,
    synced: bool,
}

impl Gate {
    fn is_open(&self) -> bool {
        self.leads && self.has_listed(self.required)
    }

    /// Leadership is what it is now. What was listed before it began may be older than the last write of the previous leader.
    fn lead(&mut self, leads: bool) {
        if leads && !self.leads {
            self.wanted.send_modify(|number| *number += 1);
            self.required = *self.wanted.borrow();
        }
        self.leads = leads;
    }

    /// A list is complete; whether with it everything is listed for the first time.
    fn list(&mut self, kind: Watched, number: u64) -> bool {
        self.listed.insert(kind, number);
        let first = !self.synced && self.has_listed(FIRST_LIST);
        self.synced |= first;
        first
    }

    /// Whether lists of this number or a later one are complete for every kind.
    fn has_listed(&self, least: u64) -> bool {
        self.listed.len() == Watched::ALL.len() && self.listed.values().all(|number| *number >= least)
    }
}

fn options(config: &Config) -> Options {
    Options {
        scheduler_name: config.scheduler_name.as_str().into(),
        initial_backoff: Duration::from_secs(config.pod_initial_backoff_seconds.into()),
        max_backoff: Duration::from_secs(config.pod_max_backoff_seconds.into()),
        scoring: Scoring::LeastFragmentation,
    }
}

/// Stands for election, unless there is none to stand for.
fn elect(
    config: &Config,
    kube: &kube::Config,
    identity: &str,
    dry_run: bool,
) -> Result<Option<LeaseTask>, ConnectError> {
    if dry_run || !config.leader_election.leader_elect {
        return Ok(None);
    }
    let timeout = config.client_connection.request_timeout;
    let client = connect::client(kube)?;
    Ok(Some(LeaseTask::spawn(client, &config.leader_election, timeout, identity.to_owned())))
}

fn is_leading(leadership: &Leadership) -> bool {
    matches!(leadership, Leadership::Leading { .. })
}

fn leadership(election: Option<&LeaseTask>) -> watch::Receiver<Leadership> {
    match election {
        Some(election) => election.leadership(),
        None => watch::channel(Leadership::Standby).1,
    }
}

/// Whether this replica leads at the start; waits a moment for the answer of the first attempt.
async fn first_leadership(leadership: &mut watch::Receiver<Leadership>) -> bool {
    let leading = timeout(FIRST_LEADERSHIP, leadership.wait_for(is_leading)).await;
    matches!(leading, Ok(Ok(_)))
}

/// Takes the address of the HTTP pages, if one is configured.
async fn listen(config: &Config) -> Result<Option<TcpListener>, HttpError> {
    match config.http.bind_address {
        Some(address) => http::bind(address).await.map(Some),
        None => Ok(None),
    }
}

/// Serves the HTTP pages.
fn serve(listener: TcpListener, pages: Pages, tasks: &mut JoinSet<&'static str>) {
    tasks.spawn(async move {
        if let Err(error) = http::serve(listener, pages, std::future::pending()).await {
            tracing::error!(%error, "HTTP server failed.");
        }
        "HTTP server"
    });
}

/// Starts the watches.
fn follow(
    client: kube::Client,
    config: &Config,
    wanted: watch::Receiver<u64>,
    metrics: &Arc<Metrics>,
    tasks: &mut JoinSet<&'static str>,
) -> mpsc::Receiver<Update> {
    let (sender, updates) = mpsc::channel(watches::CHANNEL_CAPACITY);
    let nodes = watches::nodes(client.clone(), sender.clone(), wanted.clone(), metrics.clone());
    tasks.spawn(async move {
        nodes.await;
        "watch of nodes"
    });
    let namespaces = watches::namespaces(client.clone(), sender.clone(), wanted.clone(), metrics.clone());
    tasks.spawn(async move {
        namespaces.await;
        "watch of namespaces"
    });
    let budgets = watches::budgets(client.clone(), sender.clone(), wanted.clone(), metrics.clone());
    tasks.spawn(async move {
        budgets.await;
        "watch of disruption budgets"
    });
    let (name, failed_metrics) = (config.scheduler_name.clone(), metrics.clone());
    let (failed_client, failed_sender, failed_wanted) = (client.clone(), sender.clone(), wanted.clone());
    tasks.spawn(async move {
        watches::rejections(failed_client, &name, failed_sender, failed_wanted, failed_metrics).await;
        "watch of failed pods"
    });
    follow_storage(&client, &sender, &wanted, metrics, tasks);
    let (name, metrics) = (config.scheduler_name.clone(), metrics.clone());
    tasks.spawn(async move {
        watches::pods(client, &name, sender, wanted, metrics).await;
        "watch of pods"
    });
    updates
}

/// Starts the watches of storage.
fn follow_storage(
    client: &kube::Client,
    sender: &mpsc::Sender<Update>,
    wanted: &watch::Receiver<u64>,
    metrics: &Arc<Metrics>,
    tasks: &mut JoinSet<&'static str>,
) {
    fn spawn<V: watches::Followed>(
        parts: (kube::Client, mpsc::Sender<Update>, watch::Receiver<u64>, Arc<Metrics>),
        tasks: &mut JoinSet<&'static str>,
    ) {
        let (client, sender, wanted, metrics) = parts;
        tasks.spawn(async {
            watches::storage::<V>(client, sender, wanted, metrics).await;
            "watch of storage"
        });
    }
    let parts = || (client.clone(), sender.clone(), wanted.clone(), metrics.clone());
    spawn::<ClaimView>(parts(), tasks);
    spawn::<PersistentVolumeView>(parts(), tasks);
    spawn::<StorageClassView>(parts(), tasks);
    spawn::<CsiNodeView>(parts(), tasks);
    spawn::<CsiDriverView>(parts(), tasks);
    spawn::<StorageCapacityView>(parts(), tasks);
    spawn::<AttachmentView>(parts(), tasks);
}

/// Frees the lease, if nothing of ours can land any more. Otherwise it runs out, which takes longer than any request.
async fn free(election: LeaseTask, unanswered: usize, limit: Duration) {
    if unanswered > 0 {
        return tracing::warn!(
            binds = unanswered,
            "Binds are left without an answer, so the lease is left to run out."
        );
    }
    match timeout(limit, election.release()).await {
        Ok(ended) => tracing::debug!(?ended, "Election ended."),
        Err(_) => tracing::warn!("The lease could not be freed in time and is left to run out."),
    }
}

/// Waits until the election is over; for ever without one.
async fn ended(election: &mut Option<LeaseTask>) -> RunError {
    match election {
        None => std::future::pending().await,
        Some(election) => match election.ended().await {
            Ended::Lost => RunError::LeadershipLost,
            Ended::Released => RunError::ElectionDied("it was released".to_owned()),
            Ended::Died(error) => RunError::ElectionDied(error),
        },
    }
}

/// Waits until then; for ever without a time.
async fn due(wakeup: Option<Instant>) {
    match wakeup {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use kube::client::Body;

    use super::*;
    use crate::model::PodId;
    use crate::shell::convert::{Condition, ConvertError, Unreadable};

    type Handle = tower_test::mock::Handle<Request<Body>, Response<Body>>;

    fn gate(leads: bool) -> Gate {
        Gate {
            leads,
            required: FIRST_LIST,
            wanted: watch::channel(FIRST_LIST).0,
            listed: BTreeMap::new(),
            synced: false,
        }
    }

    /// A core whose lanes all talk to one server.
    fn core(tasks: &mut JoinSet<&'static str>) -> (Core, Handle) {
        let (service, handle) = tower_test::mock::pair();
        let client = kube::Client::new(service, "default");
        let clients =
            Clients { binds: client.clone(), claims: client.clone(), status: client.clone(), events: client };
        let reporter = Reporter { controller: "mig-scheduler".to_owned(), instance: "test".to_owned() };
        let (config, token) = (Config::default(), LeaderToken::unelected());
        let metrics = Arc::new(Metrics::new("test"));
        let dispatcher = Dispatcher::open(clients, &config, &token, reporter, metrics.clone(), tasks);
        let core = Core {
            clock: Clock::start(),
            engine: Engine::new(options(&config)),
            dispatcher,
            gate: gate(true),
            effects: Vec::new(),
            metrics,
            health: Health::new(),
        };
        (core, handle)
    }

    /// Each patch of ours comes back as a change of the pod. Were it answered by another, the two would feed each other.
    #[tokio::test]
    async fn an_unreadable_pod_is_told_once() {
        let mut tasks = JoinSet::new();
        let (mut core, mut handle) = core(&mut tasks);
        let pod = PodId { namespace: "ns".into(), name: "p".into(), uid: "u".into() };
        let error =
            ConvertError { field: "spec.x".to_owned(), value: "y".to_owned(), problem: "is odd".to_owned() };
        let unreadable = Unreadable { pod, generation: 3, error };
        let mut methods = Vec::new();
        for _ in 0..3 {
            core.take_in(Update::Unreadable(Box::new(unreadable.clone())));
            let moment = Duration::from_millis(50);
            while let Ok(Some((request, send))) = timeout(moment, handle.next_request()).await {
                methods.push(request.method().to_string());
                send.send_response(Response::new(Body::empty()));
            }
            let said = Condition::not_scheduled("SchedulerError", &unreadable.to_string(), 3);
            core.take_in(Update::Condition("u".into(), said));
        }
        methods.sort();
        assert_eq!(methods, ["PATCH", "POST"]);
        let (mut successor, handle) = self::core(&mut tasks);
        let said = Condition::not_scheduled("SchedulerError", &unreadable.to_string(), 3);
        successor.take_in(Update::Condition("u".into(), said));
        successor.take_in(Update::Unreadable(Box::new(unreadable)));
        assert!(is_silent(handle).await, "the pod says so already");
    }

    async fn is_silent(mut handle: Handle) -> bool {
        !matches!(timeout(Duration::from_millis(50), handle.next_request()).await, Ok(Some(_)))
    }

    /// An election that holds its Lease as long as the server answers reads and creates.
    async fn leading() -> (LeaseTask, Handle) {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let client = kube::Client::new(service, "default");
        let settings = Config::default().leader_election;
        let task = LeaseTask::spawn(client, &settings, Duration::from_secs(4), "a".to_owned());
        let (_, send) = handle.next_request().await.unwrap();
        let missing = r#"{"kind":"Status","status":"Failure","code":404,"reason":"NotFound","message":"no"}"#;
        send.send_response(
            Response::builder().status(404).body(Body::from(missing.as_bytes().to_vec())).unwrap(),
        );
        let (request, send) = handle.next_request().await.unwrap();
        let lease = request.into_body().collect_bytes().await.unwrap().to_vec();
        send.send_response(Response::new(Body::from(lease)));
        task.leadership().wait_for(is_leading).await.unwrap();
        (task, handle)
    }

    #[tokio::test]
    async fn the_lease_is_freed_when_nothing_can_land_any_more() {
        let (task, mut handle) = leading().await;
        let token = task.token();
        let server = async { handle.next_request().await.unwrap().0.method().to_string() };
        let freed = free(task, 0, RELEASE);
        assert_eq!(tokio::join!(server, freed).0, "PUT");
        assert!(!token.is_valid());
    }

    #[tokio::test]
    async fn the_lease_runs_out_while_a_bind_may_land() {
        let (task, handle) = leading().await;
        let token = task.token();
        free(task, 1, RELEASE).await;
        assert!(!token.is_valid(), "nothing more is written");
        assert!(is_silent(handle).await, "nor is the lease");
    }

    #[test]
    fn opens_when_all_are_listed() {
        let mut gate = gate(true);
        let [rest @ .., last] = Watched::ALL;
        for kind in rest {
            assert!(!gate.list(kind, 1) && !gate.is_open());
        }
        assert!(gate.list(last, 1) && gate.is_open());
        assert!(!gate.list(last, 1), "only the first time is the first");
    }

    #[test]
    fn a_standby_lists_anew_when_it_leads() {
        let mut gate = gate(false);
        let firsts = Watched::ALL.map(|kind| gate.list(kind, 1));
        assert!(firsts.contains(&true), "a standby is ready");
        assert!(!gate.is_open());
        gate.lead(true);
        assert_eq!(*gate.wanted.borrow(), 2);
        gate.list(Watched::Nodes, 1);
        for kind in Watched::ALL.into_iter().filter(|kind| *kind != Watched::Nodes) {
            gate.list(kind, 2);
        }
        assert!(!gate.is_open(), "a list from before does not count");
        gate.list(Watched::Nodes, 2);
        assert!(gate.is_open());
        gate.lead(true);
        assert_eq!(*gate.wanted.borrow(), 2, "a renewal changes nothing");
    }
}
