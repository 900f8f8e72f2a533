//! Carries out what the engine asks for, in lanes that do not wait for each other, but for one thing: a bind waits for a patch
//! of the same pod that is under way.
//!
//! ```text
//!   effects ──┬─► bind lane      64 at once, each to a definite answer ──► BindFinished
//!             ├─► claim lane     for which node or volume claims are meant ────► ClaimsWritten
//!             ├─► status lane    latest report a pod wins, tried until written
//!             ├─► eviction lane  a condition, then a deletion, until there is an answer ──► EvictionFinished
//!             ├─► event lane     bounded queue, dropped and counted when full
//!             └─► facts          a log line and a metric
//! ```
//!
//! Invariant: no effect makes the engine loop wait. The lanes of binds and of claims are never handed more than they have room for, the status lane
//! holds one report a pod, the event lane drops. Each lane has its own connections, and every write asks the leader token
//! first, so all lanes close by themselves when the lease runs out.

mod api;
mod bind;
mod claims;
mod event;
mod evict;
mod status;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::config::Config;
use crate::effect::{Binding, Effect, UnschedulableReason, UnschedulableReport};
use crate::event::{BindOutcome, Event, EvictionOutcome};
use crate::model::PodUid;
use crate::shell::convert::{Condition, Unreadable};
use crate::shell::lease::LeaderToken;
use crate::shell::log;
use crate::shell::metrics::{AttemptResult, CallResult, CallType, Metrics};

pub use api::Call;
use api::Caller;
use bind::{BindLane, Finished};
use claims::{ClaimLane, Written};
pub use event::Reporter;
use event::{EventLane, Said};
use evict::{EvictLane, Evicted};
use status::StatusLane;

/// The owner of what we write, in the objects' managed fields.
const FIELD_MANAGER: &str = "mig-scheduler";

/// A connection pool for each lane.
pub struct Clients {
    /// For binds.
    pub binds: kube::Client,
    /// For claims and volumes.
    pub claims: kube::Client,
    /// For conditions and evictions.
    pub status: kube::Client,
    /// For events.
    pub events: kube::Client,
}

/// The engine loop's end of all lanes.
pub struct Dispatcher {
    lanes: Lanes,
    metrics: Arc<Metrics>,
}

enum Lanes {
    Open {
        binds: BindLane,
        claims: ClaimLane,
        status: StatusLane,
        evictions: EvictLane,
        events: EventLane,
    },
    /// Nothing is written. Every bind succeeds at once, so that what would follow is decided too.
    Dry {
        finished: Vec<Binding>,
    },
}

/// Binds that a dry run decides about at a time.
const DRY_ROOM: usize = 64;

impl Dispatcher {
    /// Opens the lanes; their tasks run in `tasks` and end when the dispatcher is dropped or the token runs out.
    pub fn open(
        clients: Clients,
        config: &Config,
        token: &LeaderToken,
        reporter: Reporter,
        metrics: Arc<Metrics>,
        tasks: &mut JoinSet<&'static str>,
    ) -> Dispatcher {
        let caller = |client| Caller::new(client, token.clone(), config.client_connection.request_timeout);
        let status = StatusLane::new();
        let bind_size = size(config.bind_lane.concurrency);
        let (binds, binder) = bind::lane(caller(clients.binds), status.clone(), bind_size);
        let (claims, claimer) = claims::lane(caller(clients.claims), bind_size);
        let event_sizes = (size(config.event_lane.concurrency), size(config.event_lane.capacity));
        let (events, writer) = event::lane(caller(clients.events), reporter, event_sizes, metrics.clone());
        let (evictions, evictor) = evict::lane(caller(clients.status.clone()), config.scheduler_name.clone());
        let patcher = status::run(
            status.clone(),
            caller(clients.status),
            size(config.status_lane.concurrency),
            metrics.clone(),
        );
        tasks.spawn(async {
            binder.run().await;
            "bind lane"
        });
        tasks.spawn(async {
            claimer.run().await;
            "claim lane"
        });
        tasks.spawn(async {
            patcher.await;
            "status lane"
        });
        tasks.spawn(async {
            evictor.run().await;
            "eviction lane"
        });
        tasks.spawn(async {
            writer.run().await;
            "event lane"
        });
        Dispatcher { lanes: Lanes::Open { binds, claims, status, evictions, events }, metrics }
    }

    /// Lanes that write nothing.
    pub fn dry(metrics: Arc<Metrics>) -> Dispatcher {
        Dispatcher { lanes: Lanes::Dry { finished: Vec::new() }, metrics }
    }

    /// How many binds may be decided on now; some of them may need their claims written first.
    pub fn room(&self) -> usize {
        match &self.lanes {
            Lanes::Open { binds, claims, .. } => binds.room().min(claims.room()),
            Lanes::Dry { finished } => DRY_ROOM.saturating_sub(finished.len()),
        }
    }

    /// Binds, and writes about claims, without an answer yet.
    pub fn binds_in_flight(&self) -> usize {
        match &self.lanes {
            Lanes::Open { binds, claims, .. } => binds.in_flight() + claims.in_flight(),
            Lanes::Dry { finished } => finished.len(),
        }
    }

    /// Carries out one effect, or begins to.
    pub fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Fact(fact) => {
                log::fact(&fact);
                self.metrics.record(&fact);
            }
            Effect::Bind(binding) => match &mut self.lanes {
                Lanes::Open { binds, status, .. } => {
                    status.hold(&binding.pod.uid);
                    binds.submit(binding);
                }
                Lanes::Dry { finished } => finished.push(binding),
            },
            Effect::WriteClaims(writes) => match &mut self.lanes {
                Lanes::Open { claims, .. } => claims.submit(writes),
                Lanes::Dry { finished } => {
                    finished.push(Binding { pod: writes.pod, node: writes.node, placements: Vec::new() });
                }
            },
            Effect::ReportUnschedulable(report) => self.report(report),
            Effect::Evict(eviction) => {
                if let Lanes::Open { evictions, .. } = &mut self.lanes {
                    evictions.submit(eviction);
                }
            }
            Effect::ReportRejected { pod, explanation } => {
                if let Lanes::Open { events, .. } = &mut self.lanes {
                    events.publish(pod, Said::Rejected(explanation));
                }
            }
            Effect::ReportScheduled { pod, node } => {
                if let Lanes::Open { status, events, .. } = &mut self.lanes {
                    status.forget(&pod.uid);
                    events.publish(pod, Said::Scheduled(node));
                }
            }
        }
    }

    fn report(&mut self, report: UnschedulableReport) {
        if let Lanes::Open { status, events, .. } = &mut self.lanes {
            if report.publish {
                events.publish(report.pod.clone(), Said::FailedScheduling(report.message.clone()));
            }
            status.report(report);
        }
    }

    /// Tells a pod that it cannot be read. Repeated at each change of the pod; only a new message is written.
    pub fn report_unreadable(&mut self, unreadable: Unreadable) {
        tracing::warn!(pod = %unreadable.pod, error = %unreadable.error, "Pod cannot be read.");
        let Lanes::Open { status, events, .. } = &mut self.lanes else { return };
        let message = unreadable.to_string();
        let (pod, generation) = (unreadable.pod, unreadable.generation);
        let report = UnschedulableReport {
            pod: pod.clone(),
            generation,
            reason: UnschedulableReason::SchedulerError,
            message: message.clone(),
            nominated: None,
            publish: true,
        };
        if status.report(report) {
            events.publish(pod, Said::FailedScheduling(message));
        }
    }

    /// Takes note of what a pod's condition says.
    pub fn observe_condition(&mut self, uid: &PodUid, condition: Condition) {
        if let Lanes::Open { status, .. } = &mut self.lanes {
            status.observe(uid, condition);
        }
    }

    /// Nothing more is to be said about a pod's scheduling.
    pub fn forget(&mut self, uid: &PodUid) {
        if let Lanes::Open { status, .. } = &mut self.lanes {
            status.forget(uid);
        }
    }

    /// The next bind, eviction or write about claims to end, as the engine hears of it. Waits for ever while none is in flight; may
    /// be dropped while it waits.
    pub async fn next_finished(&mut self) -> Event {
        let ended = match &mut self.lanes {
            Lanes::Open { binds, claims, evictions, .. } => tokio::select! {
                finished = binds.next() => finished.map(Ended::Bind),
                written = claims.next() => written.map(Ended::Claims),
                evicted = evictions.next() => evicted.map(Ended::Eviction),
            },
            Lanes::Dry { finished } => finished.pop().map(bound).map(Ended::Bind),
        };
        match ended {
            Some(ended) => self.tell(ended),
            None => std::future::pending().await,
        }
    }

    /// The next of them that has ended already.
    pub fn try_next_finished(&mut self) -> Option<Event> {
        let ended = match &mut self.lanes {
            Lanes::Open { binds, claims, evictions, .. } => {
                let bind = binds.try_next().map(Ended::Bind);
                let written = || claims.try_next().map(Ended::Claims);
                bind.or_else(written).or_else(|| evictions.try_next().map(Ended::Eviction))
            }
            Lanes::Dry { finished } => finished.pop().map(bound).map(Ended::Bind),
        };
        ended.map(|ended| self.tell(ended))
    }

    fn tell(&mut self, ended: Ended) -> Event {
        match ended {
            Ended::Bind(finished) => self.conclude(finished),
            Ended::Claims(Written { pod, attempt, outcome, took }) => {
                observe(&self.metrics, CallType::Claims, outcome.is_ok(), took);
                Event::ClaimsWritten { uid: pod.uid, attempt, outcome }
            }
            Ended::Eviction(evicted) => self.conclude_eviction(evicted),
        }
    }

    fn conclude(&self, finished: Finished) -> Event {
        let bound = finished.outcome == BindOutcome::Bound;
        observe(&self.metrics, CallType::PodBinding, bound, finished.took);
        let result = if bound { AttemptResult::Scheduled } else { AttemptResult::Error };
        self.metrics.observe_attempt(result, finished.took);
        self.speak_again(&finished);
        Event::BindFinished {
            uid: finished.binding.pod.uid,
            node: finished.binding.node,
            outcome: finished.outcome,
        }
    }

    fn conclude_eviction(&mut self, evicted: Evicted) -> Event {
        let Evicted { eviction, outcome, took } = evicted;
        let ends = outcome == EvictionOutcome::Ends;
        observe(&self.metrics, CallType::PodEviction, ends, took);
        let victim = eviction.victim.uid.clone();
        if let Lanes::Open { events, .. } = &mut self.lanes
            && ends
        {
            events.publish(eviction.victim, Said::Preempted { by: eviction.preemptor, node: eviction.node });
        }
        Event::EvictionFinished { victim, outcome }
    }

    /// After its bind a pod may be spoken of again. Unless it is to be tried once more, nothing is to be said of it.
    fn speak_again(&self, finished: &Finished) {
        let Lanes::Open { status, .. } = &self.lanes else { return };
        let uid = &finished.binding.pod.uid;
        if !matches!(finished.outcome, BindOutcome::Refused(_)) {
            status.forget(uid);
        }
        status.release(uid);
    }

    /// Updates the gauges of the lanes.
    pub fn publish_gauges(&self) {
        if let Lanes::Open { binds, claims, status, evictions, events } = &self.lanes {
            self.metrics.set_pending_calls(CallType::PodBinding, binds.in_flight());
            self.metrics.set_pending_calls(CallType::Claims, claims.in_flight());
            self.metrics.set_pending_calls(CallType::PodStatusPatch, status.pending());
            self.metrics.set_pending_calls(CallType::PodEviction, evictions.in_flight());
            self.metrics.set_pending_calls(CallType::Event, events.pending());
        }
    }

    /// Takes no more effects; whether there are lanes whose tasks now finish what they have.
    pub fn close(&mut self) -> bool {
        matches!(std::mem::replace(&mut self.lanes, Lanes::Dry { finished: Vec::new() }), Lanes::Open { .. })
    }
}

/// What has ended in a lane that answers.
enum Ended {
    Bind(Finished),
    Claims(Written),
    Eviction(Evicted),
}

fn bound(binding: Binding) -> Finished {
    Finished { binding, outcome: BindOutcome::Bound, took: Duration::ZERO }
}

fn observe(metrics: &Metrics, call: CallType, succeeded: bool, took: Duration) {
    let result = if succeeded { CallResult::Success } else { CallResult::Error };
    metrics.observe_call(call, result, took);
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
