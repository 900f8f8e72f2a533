//! The election as a state machine: which request comes next, and whether we lead.
//!
//! ```text
//!   begin ─► Read ──Found / Missing──► Decide ──► Create / Replace ──Written──► Done
//!     │        ▲                         │  └─ held by another ────────────────► Done
//!     │        └────── Conflict, once ───┘
//!     └─ leading: straight to Decide, with the version we wrote last
//! ```
//!
//! Invariant: the times that stand in a Lease are written for people and never compared with ours. Whether a holder is
//! alive shows in its record *changing*, timed by our own monotonic clock from the moment we saw the change. Semantics
//! otherwise those of client-go, which other replicas or tools may run, but stricter in two points: the renew deadline
//! counts from when the last successful write was sent rather than from when it was retried, and a leader that reads
//! another holder's name stops at once.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::config;

/// Whether this process leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Another one leads, or nobody yet.
    Standby,
    /// We lead until the deadline, and longer if it is extended before.
    Leading {
        /// When to stop acting.
        deadline: Instant,
    },
    /// We led, and never will again.
    Lost,
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Read the Lease.
    Read,
    /// Create it with this spec; the name is the sender's to fill in.
    Create(Box<Lease>),
    /// Replace it, guarded by the resource version inside.
    Replace(Box<Lease>),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Send a request and report the answer by [`Election::observe`].
    Send(Request),
    /// Nothing more in this attempt.
    Wait,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The Lease, read.
    Found(Box<Lease>),
    /// There is no such Lease.
    Missing,
    /// The Lease as it stands after our write.
    Written(Box<Lease>),
    /// Somebody else wrote or created it first.
    Conflict,
    /// No usable answer; the write may or may not have happened.
    Failed,
}

/// One candidate's view of the election.
#[derive(Clone, Debug)]
pub struct Election {
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    /// The Lease as last seen; None before the first answer and while there is none.
    seen: Option<Seen>,
    state: Leadership,
    turn: Turn,
    /// Whether this attempt has read the Lease, and so treats a conflict as final.
    read: bool,
}

/// A Lease and how long its record has not changed.
#[derive(Clone, Debug)]
struct Seen {
    lease: Lease,
    /// When we first saw this spec.
    since: Instant,
}

/// Where an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Read,
    Decide,
    Done,
}

impl Election {
    /// A candidate that knows nothing yet.
    pub fn new(identity: String, settings: &config::LeaderElection) -> Election {
        Election {
            identity,
            lease_duration: settings.lease_duration,
            renew_deadline: settings.renew_deadline,
            seen: None,
            state: Leadership::Standby,
            turn: Turn::Done,
            read: false,
        }
    }

    /// The name this candidate stands under.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The holder as last seen.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().and_then(|seen| holder(&seen.lease))
    }

    /// Where we stand at `now`.
    pub fn leadership(&mut self, now: Instant) -> Leadership {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.state = Leadership::Lost;
        }
        self.state
    }

    /// The renew deadline while leading.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            Leadership::Leading { deadline } => Some(deadline),
            Leadership::Standby | Leadership::Lost => None,
        }
    }

    /// Begins an attempt. A leader writes at once, others look first.
    pub fn begin(&mut self) {
        self.read = false;
        self.turn = if self.deadline().is_some() { Turn::Decide } else { Turn::Read };
    }

    /// What to do next in this attempt. `wall` is only written down.
    pub fn next(&mut self, now: Instant, wall: Timestamp) -> Step {
        if self.leadership(now) == Leadership::Lost {
            return Step::Wait;
        }
        match self.turn {
            Turn::Read => Step::Send(Request::Read),
            Turn::Decide => self.decide(now, wall),
            Turn::Done => Step::Wait,
        }
    }

    /// Takes in the answer to the request sent at `sent`, received at `now`.
    pub fn observe(&mut self, sent: Instant, now: Instant, answer: Answer) {
        if self.leadership(now) == Leadership::Lost {
            return;
        }
        match answer {
            Answer::Found(lease) => self.found(*lease, now),
            Answer::Missing => {
                self.seen = None;
                self.turn = Turn::Decide;
            }
            Answer::Written(lease) => self.written(*lease, sent, now),
            Answer::Conflict if !self.read => self.turn = Turn::Read,
            Answer::Conflict | Answer::Failed => self.turn = Turn::Done,
        }
    }

    /// The write that frees the Lease, or None if it is not ours. We do not lead afterwards, whatever becomes of it.
    pub fn release(&mut self, wall: Timestamp) -> Option<Lease> {
        if self.state != Leadership::Lost {
            self.state = Leadership::Standby;
        }
        let lease = self.seen.as_ref().map(|seen| &seen.lease)?;
        if holder(lease) != Some(self.identity.as_str()) {
            return None;
        }
        let mut free = lease.clone();
        let spec = free.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        // The API refuses zero; a second is what client-go writes.
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time = Some(MicroTime(wall));
        spec.renew_time = Some(MicroTime(wall));
        Some(free)
    }

    fn found(&mut self, lease: Lease, now: Instant) {
        self.read = true;
        self.turn = Turn::Decide;
        let other = holder(&lease).is_some_and(|holder| holder != self.identity);
        if other && self.deadline().is_some() {
            self.state = Leadership::Lost;
        }
        self.see(lease, now);
    }

    fn written(&mut self, lease: Lease, sent: Instant, now: Instant) {
        self.turn = Turn::Done;
        self.see(lease, now);
        let deadline = sent + self.renew_deadline;
        self.state =
            if now < deadline { Leadership::Leading { deadline } } else { self.state_of_late_write() };
    }

    /// A write whose answer came after its own deadline gives nothing: as a standby we try again.
    fn state_of_late_write(&self) -> Leadership {
        if self.deadline().is_some() { Leadership::Lost } else { Leadership::Standby }
    }

    /// Remembers the Lease. Only a change of the spec is a sign of life: labels are anybody's to write.
    fn see(&mut self, lease: Lease, now: Instant) {
        let unchanged = self.seen.as_ref().filter(|seen| seen.lease.spec == lease.spec);
        let since = unchanged.map_or(now, |seen| seen.since);
        self.seen = Some(Seen { lease, since });
    }

    fn decide(&mut self, now: Instant, wall: Timestamp) -> Step {
        let Some(seen) = &self.seen else {
            let spec = self.claim(LeaseSpec::default(), 0, wall);
            let lease = Lease { spec: Some(spec), ..Lease::default() };
            return Step::Send(Request::Create(Box::new(lease)));
        };
        let spec = seen.lease.spec.clone().unwrap_or_default();
        let spec = match holder(&seen.lease) {
            Some(holder) if holder == self.identity => self.renewal(spec, wall),
            Some(_) if now < seen.since + self.term(&spec) => {
                self.turn = Turn::Done;
                return Step::Wait;
            }
            _ => {
                let transitions = spec.lease_transitions.unwrap_or(0).saturating_add(1);
                self.claim(spec, transitions, wall)
            }
        };
        let lease = Lease { spec: Some(spec), ..seen.lease.clone() };
        Step::Send(Request::Replace(Box::new(lease)))
    }

    /// How long a holder is trusted after a sign of life: what it promised, or as long as we would.
    fn term(&self, spec: &LeaseSpec) -> Duration {
        match spec.lease_duration_seconds.map(u64::try_from) {
            Some(Ok(seconds)) if seconds > 0 => Duration::from_secs(seconds),
            _ => self.lease_duration,
        }
    }

    fn claim(&self, spec: LeaseSpec, transitions: i32, wall: Timestamp) -> LeaseSpec {
        LeaseSpec {
            acquire_time: Some(MicroTime(wall)),
            lease_transitions: Some(transitions),
            ..self.renewal(spec, wall)
        }
    }

    fn renewal(&self, spec: LeaseSpec, wall: Timestamp) -> LeaseSpec {
        // Whole seconds by the rules of the configuration; rounded up, since another one must not come too early.
        let seconds = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            renew_time: Some(MicroTime(wall)),
            ..spec
        }
    }
}

/// Who holds the Lease; None when it is free.
fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

#[cfg(test)]
mod tests;
