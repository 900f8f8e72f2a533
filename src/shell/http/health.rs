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
        }))
    }

    /// The engine's loop has turned. To be called at each turn, at least every few seconds.
    pub fn turn(&self) {
        self.turn_at(Instant::now());
    }

    /// Nodes and pods have been listed completely.
    pub fn synced(&self) {
        self.0.synced.store(true, Ordering::Release);
    }

    /// Shutdown has begun.
    pub fn stopping(&self) {
        self.0.stopping.store(true, Ordering::Release);
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
