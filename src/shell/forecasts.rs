//! The forecaster inside the scheduler: one thread of low priority that reads usage, forecasts it and tells the engine.
//!
//! ```text
//!            ┌──────── thread "forecasts", nice 19 ────────┐
//!   Prometheus ──► usage ──► voice ──► Outlook ────────────┼──► Event::Forecast ──► engine
//!            │                │                            │
//!            │             learning ◄──► store ────────────┼──► ConfigMap
//!            └── health (/readyz), metrics, log ◄──────────┘
//! ```
//!
//! Invariants:
//! - The thread has a runtime of its own. Whatever it does, however long it takes and however it ends, no bind waits for it: its
//!   events come or do not come.
//! - It works while this replica leads and rests otherwise; every write asks the leader token first.
//! - A failure is told once, by a log line when it begins and one when it ends; how long it lasts is in the readiness page.

mod learning;
mod panel;
mod record;
mod store;
mod voice;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::Config;
use crate::event::Event;
use crate::forecast::Outlook;
use crate::forecast::lstm::{Lstm, Threads};
use crate::shell::connect;
use crate::shell::http::{Forecasts, Health};
use crate::shell::lease::LeaderToken;
use crate::shell::metrics::{CallResult, Metrics};
use crate::shell::prometheus::{FeedError, QueryError, Server, Usage};
use crate::shell::weights;
use learning::Learning;
pub use store::RIGHTS;
use store::Store;
use voice::Voice;

/// Outlooks that may wait for the engine's loop, which takes one in milliseconds.
const CHANNEL_CAPACITY: usize = 4;

/// How often the thread looks whether this replica leads.
const BEAT: Duration = Duration::from_secs(1);

/// The lowest priority there is: forecasts are made of the time that nobody else wants.
const NICE: i32 = 19;

/// What the forecaster works with.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// Who keeps what is learnt; `None` where nothing may be written.
    pub kube: Option<kube::Config>,
    /// This replica, in events.
    pub identity: String,
    /// Whether this replica leads.
    pub token: LeaderToken,
    /// Where the state is shown.
    pub health: Health,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
}

/// Starts the forecaster, if one is configured. The events for the engine; without a forecaster none ever comes.
pub fn start(parts: Parts) -> mpsc::Receiver<Event> {
    let (events, outlooks) = mpsc::channel(CHANNEL_CAPACITY);
    let (health, now) = (parts.health.clone(), unix_now());
    let state = match Server::new(&parts.config.prometheus) {
        Err(_) => Forecasts::NoServer,
        Ok(_) if !parts.config.forecasting.enabled => Forecasts::Off,
        Ok(server) => {
            let worker = Worker::new(parts, server, events);
            let spawned = std::thread::Builder::new().name("forecasts".to_owned()).spawn(|| worker.run());
            match spawned {
                Ok(_) => Forecasts::Starting,
                Err(error) => {
                    tracing::error!(%error, "Forecaster cannot start; scheduling is static.");
                    Forecasts::Ended
                }
            }
        }
    };
    match state {
        Forecasts::NoServer => tracing::info!("prometheus.url is not set: no forecasts, static scheduling."),
        Forecasts::Off => tracing::info!("forecasting.enabled is false: no forecasts, static scheduling."),
        _ => {}
    }
    health.forecasts(state, now);
    outlooks
}

struct Worker {
    parts: Parts,
    server: Server,
    usage: Usage,
    voice: Voice,
    events: mpsc::Sender<Event>,
    /// What was told last of failures and of what was left out.
    told: Told,
}

#[derive(Default)]
struct Told {
    failure: Option<String>,
    problems: Vec<String>,
}

/// Says on its way out, by a panic above all, that the thread has ended; not when the process is to end anyway.
struct Farewell {
    health: Health,
    events: mpsc::Sender<Event>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if !self.events.is_closed() {
            tracing::error!("Forecaster ended; scheduling is static.");
            self.health.forecasts(Forecasts::Ended, unix_now());
        }
    }
}

impl Worker {
    fn new(parts: Parts, server: Server, events: mpsc::Sender<Event>) -> Worker {
        let usage = Usage::new(&parts.config.prometheus);
        let voice = Voice::new(&parts.config.prometheus, network(&parts.config));
        Worker { parts, server, usage, voice, events, told: Told::default() }
    }

    /// The thread.
    fn run(self) {
        let _farewell = Farewell { health: self.parts.health.clone(), events: self.events.clone() };
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::warn!(%error, "Forecaster runs at normal priority.");
        }
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.work()),
            Err(error) => tracing::error!(%error, "Forecaster has no runtime."),
        }
    }

    async fn work(mut self) {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let interval = self.parts.config.forecasting.update_interval;
        let (shape, token) = (voice::shape(&self.parts.config.prometheus), self.parts.token.clone());
        let mut learning = Learning::new(shape, token, self.store(), interval);
        // None while this replica does not lead.
        let mut due = None;
        while !self.events.is_closed() {
            beat.tick().await;
            if !self.parts.token.is_valid() {
                self.parts.health.forecasts(Forecasts::Standby, unix_now());
                due = None;
                continue;
            }
            if due.is_none() {
                self.parts.health.forecasts(Forecasts::Starting, unix_now());
                learning.begin(&mut self.voice).await;
            }
            if due.is_none_or(|due| Instant::now() >= due) {
                self.poll(unix_now()).await;
                due = Some(Instant::now() + self.parts.config.forecasting.poll_interval);
            }
            let usage = || self.usage.read().series;
            if let Some(renewed) = learning.renew(&mut self.voice, usage).await {
                let result = if renewed { CallResult::Success } else { CallResult::Error };
                self.parts.metrics.count_forecast_update(result);
            }
        }
    }

    /// Where to keep what is learnt; its client belongs to this thread's runtime.
    fn store(&self) -> Option<Store> {
        let client = connect::client(self.parts.kube.as_ref()?);
        let client = client.inspect_err(|error| tracing::warn!(%error, "What is learnt will not be kept."));
        let config = &self.parts.config;
        let place =
            (config.leader_election.resource_namespace.as_str(), config.forecasting.config_map.as_str());
        let (token, timeout) = (self.parts.token.clone(), config.client_connection.request_timeout);
        Some(Store::new(client.ok()?, place, token, timeout, &self.parts.identity))
    }

    /// Looks at Prometheus once.
    async fn poll(&mut self, now: i64) {
        let state = match self.usage.refresh(&self.server, now).await {
            Ok(problems) => {
                self.parts.metrics.count_usage_poll(CallResult::Success);
                self.told.recovered();
                self.forecast(problems, now)
            }
            Err(error) => {
                self.parts.metrics.count_usage_poll(CallResult::Error);
                self.told.failed(&error);
                state(&error)
            }
        };
        self.parts.health.forecasts(state, now);
    }

    fn forecast(&mut self, mut problems: Vec<String>, now: i64) -> Forecasts {
        let reading = self.usage.read();
        problems.extend(reading.problems.iter().cloned());
        self.told.problems(problems);
        let outlook = self.voice.speak(reading, now);
        let state = standing(&outlook);
        // A loop that is too busy to take four outlooks gets the next one.
        let _ = self.events.try_send(Event::Forecast(Arc::new(outlook)));
        state
    }
}

impl Told {
    fn failed(&mut self, error: &FeedError) {
        let text = error.to_string();
        if self.failure.as_ref() != Some(&text) {
            tracing::warn!(error = text, "Usage cannot be read; pods are bound without forecasts.");
        }
        self.failure = Some(text);
    }

    fn recovered(&mut self) {
        if self.failure.take().is_some() {
            tracing::info!("Usage can be read again.");
        }
    }

    fn problems(&mut self, problems: Vec<String>) {
        for problem in problems.iter().filter(|problem| !self.problems.contains(problem)) {
            tracing::warn!(problem, "Usage is incomplete.");
        }
        self.problems = problems;
    }
}

/// The network to begin with; without one, the simple models are by themselves.
fn network(config: &Config) -> Option<Lstm> {
    let shape = voice::shape(&config.prometheus);
    let file = config.forecasting.model_file.as_deref().map(Path::new);
    match weights::load(file, shape, Threads::One) {
        Ok(network) => Some(network),
        Err(error) => {
            tracing::warn!(%error, "The network is not used; the simple models forecast without it.");
            None
        }
    }
}

/// What a failure to read usage is on the readiness page.
fn state(error: &FeedError) -> Forecasts {
    match error {
        FeedError::Query(QueryError::NoServer) => Forecasts::NoServer,
        FeedError::Query(QueryError::File { .. }) => Forecasts::BadFile,
        FeedError::Query(QueryError::Unreachable { .. } | QueryError::Late { .. }) => Forecasts::Unreachable,
        FeedError::Query(QueryError::Unauthorized { .. }) => Forecasts::Refused,
        FeedError::Query(QueryError::Failed { .. } | QueryError::TooLarge) | FeedError::TooMany(_) => {
            Forecasts::Failing
        }
    }
}

/// What an outlook is on the readiness page.
fn standing(outlook: &Outlook) -> Forecasts {
    if outlook.groups.iter().any(|group| group.distrust.is_none()) {
        Forecasts::Trusted
    } else if outlook.groups.iter().any(|group| group.series > 0) {
        Forecasts::Untrusted
    } else if outlook.groups.iter().any(|group| group.stale > 0) {
        Forecasts::Stale
    } else if outlook.groups.is_empty() {
        Forecasts::NoSeries
    } else {
        Forecasts::Untrusted
    }
}

/// Unix seconds now.
pub fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
