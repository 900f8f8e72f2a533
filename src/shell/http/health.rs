//! What the process knows about its own health, written by the parts that do the work, read by the pages.
//!
//! Invariant: atomics only; a reader never waits for a writer. Liveness is proved by doing, not claimed: the engine's loop
//! leaves a mark at each turn, and silence for [`MAX_SILENCE`] counts as death.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the engine's loop may go without a turn. The longest honest one, a full list of 15,000 nodes, takes a second
/// or two; the loop has to turn by a timer of its own when nothing happens.
pub const MAX_SILENCE: Duration = Duration::from_secs(60);

/// The shared record. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(Arc<Marks>);

#[derive(Debug)]
struct Marks {
    start: Instant,
    /// Milliseconds after `start` of the engine loop's last turn.
    turned: AtomicU64,
    synced: AtomicBool,
    stopping: AtomicBool,
    /// The state of the forecasts and since when it lasts, in one word: [`Forecasts::pack`].
    forecasts: AtomicU64,
}

/// Whether usage is forecast, or what is missing. None of it makes a scheduler less ready: pods are bound all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Forecasts {
    /// No Prometheus is configured.
    NoServer,
    /// They are turned off.
    Off,
    /// Another replica makes them.
    Standby,
    /// The first look at Prometheus is under way.
    Starting,
    /// A file that the configuration names cannot be used.
    BadFile,
    /// No connection, or no answer in time.
    Unreachable,
    /// Prometheus does not know us.
    Refused,
    /// Prometheus answers with errors, or something else answers in its place.
    Failing,
    /// Prometheus has no series of ours.
    NoSeries,
    /// Its newest samples are too old.
    Stale,
    /// No forecaster is good enough on this cluster's data, or there is too little of it.
    Untrusted,
    /// The forecaster has ended.
    Ended,
    /// They are made and trusted.
    Trusted,
}

/// The bits of the seconds in a packed state; they last for 2 billion years.
const SINCE_BITS: u32 = 56;

impl Forecasts {
    const ALL: [Forecasts; 13] = [
        Forecasts::NoServer,
        Forecasts::Off,
        Forecasts::Standby,
        Forecasts::Starting,
        Forecasts::BadFile,
        Forecasts::Unreachable,
        Forecasts::Refused,
        Forecasts::Failing,
        Forecasts::NoSeries,
        Forecasts::Stale,
        Forecasts::Untrusted,
        Forecasts::Ended,
        Forecasts::Trusted,
    ];

    /// In a few words.
    pub fn text(self) -> &'static str {
        match self {
            Forecasts::NoServer => "prometheus.url is not set",
            Forecasts::Off => "forecasting.enabled is false",
            Forecasts::Standby => "left to the replica that leads",
            Forecasts::Starting => "Prometheus is being read",
            Forecasts::BadFile => "a file for Prometheus cannot be used (see the log)",
            Forecasts::Unreachable => "Prometheus unreachable",
            Forecasts::Refused => "Prometheus refuses our credentials",
            Forecasts::Failing => "Prometheus answers with errors",
            Forecasts::NoSeries => "Prometheus has no usage of GPUs",
            Forecasts::Stale => "usage in Prometheus is out of date",
            Forecasts::Untrusted => "no forecaster is trusted",
            Forecasts::Ended => "the forecaster has ended (see the log)",
            Forecasts::Trusted => "trusted",
        }
    }

    /// Whether this is as it was configured, and nothing is missing.
    fn is_as_wanted(self) -> bool {
        use Forecasts::{NoServer, Off, Standby, Trusted};
        matches!(self, NoServer | Off | Standby | Trusted)
    }

    fn pack(self, since: i64) -> u64 {
        u64::from(self as u8) << SINCE_BITS | u64::try_from(since).unwrap_or(0)
    }

    fn unpack(word: u64) -> (Forecasts, i64) {
        let state = Forecasts::ALL.into_iter().find(|state| u64::from(*state as u8) == word >> SINCE_BITS);
        let since = word & ((1 << SINCE_BITS) - 1);
        (state.unwrap_or(Forecasts::NoServer), i64::try_from(since).unwrap_or(0))
    }
}

/// The state of the forecasts as the pages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForecastState {
    /// Whether nothing is missing.
    pub as_wanted: bool,
    /// `Prometheus unreachable since 2026-11-30T10:00:00Z; static scheduling`.
    pub message: String,
}

impl ForecastState {
    /// As a line beside the checks, none of which it is.
    pub fn line(&self) -> String {
        let (sign, verdict) = if self.as_wanted { ('+', "ok") } else { ('-', "missing") };
        format!("[{sign}]forecasts {verdict}: {}\n", self.message)
    }
}

/// One check and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check {
    /// The name operators see.
    pub name: &'static str,
    /// Whether it passed.
    pub passed: bool,
}

impl Check {
    /// As Kubernetes' own components print it.
    pub fn line(&self) -> String {
        if self.passed {
            format!("[+]{} ok\n", self.name)
        } else {
            format!("[-]{} failed: reason withheld\n", self.name)
        }
    }
}

impl Health {
    /// The record of a process that starts now: alive, not ready.
    pub fn new() -> Health {
        Health(Arc::new(Marks {
            start: Instant::now(),
            turned: AtomicU64::new(0),
            synced: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            forecasts: AtomicU64::new(Forecasts::NoServer.pack(0)),
        }))
    }

    /// The engine's loop has turned. To be called at each turn, at least every few seconds.
    pub fn turn(&self) {
        self.turn_at(Instant::now());
    }

    /// Nodes, pods and namespaces have been listed completely.
    pub fn synced(&self) {
        self.0.synced.store(true, Ordering::Release);
    }

    /// Shutdown has begun.
    pub fn stopping(&self) {
        self.0.stopping.store(true, Ordering::Release);
    }

    /// The forecasts are in this state at `now`, unix seconds.
    pub fn forecasts(&self, state: Forecasts, now: i64) {
        let (before, _) = Forecasts::unpack(self.0.forecasts.load(Ordering::Acquire));
        if before != state {
            self.0.forecasts.store(state.pack(now), Ordering::Release);
        }
    }

    /// The state of the forecasts.
    pub(super) fn forecast_state(&self) -> ForecastState {
        let (state, since) = Forecasts::unpack(self.0.forecasts.load(Ordering::Acquire));
        let since = match jiff::Timestamp::from_second(since) {
            Ok(time) if since > 0 => format!(" since {time}"),
            _ => String::new(),
        };
        let rest = if state == Forecasts::Trusted { "" } else { "; static scheduling" };
        ForecastState { as_wanted: state.is_as_wanted(), message: format!("{}{since}{rest}", state.text()) }
    }

    pub(super) fn turn_at(&self, now: Instant) {
        self.0.turned.store(self.millis(now), Ordering::Release);
    }

    /// Whether the process should live on.
    pub(super) fn live(&self, now: Instant) -> [Check; 2] {
        let silence = self.millis(now).saturating_sub(self.0.turned.load(Ordering::Acquire));
        let turns = Duration::from_millis(silence) < MAX_SILENCE;
        [PING, Check { name: "engine-loop", passed: turns }]
    }

    /// Whether it does its work, or stands by to.
    pub(super) fn ready(&self) -> [Check; 3] {
        let synced = self.0.synced.load(Ordering::Acquire);
        let stopping = self.0.stopping.load(Ordering::Acquire);
        [PING, Check { name: "informer-sync", passed: synced }, Check { name: "shutdown", passed: !stopping }]
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.0.start).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Default for Health {
    fn default() -> Self {
        Health::new()
    }
}

/// The server answers at all.
const PING: Check = Check { name: "ping", passed: true };
