//! The eviction lane: ends pods in favour of others, as kube-scheduler does.
//!
//! ```text
//!   PATCH DisruptionTarget ── 2xx ──► DELETE ── 2xx ──► Ends
//!     ▲    │                            │
//!     │    └──── no such pod, another of its name ────► Ends
//!     └─ pause ◄── no answer, 5xx, 429, a few times 4xx ─┘
//!                                       4xx once more ─► Refused
//! ```
//!
//! Invariant: each eviction ends with exactly one answer. A pod is told why before it is ended; it ends within its own grace
//! period, and the uid keeps its successor safe. While the API server is away there is no limit to the attempts. A refusal is
//! asked about a few times, since a server that has just been restarted refuses everything until it has read its roles; then it
//! is somebody's word, such as an admission webhook's. Bound: one entry a pod, since the engine asks once.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::{Answer, Call, Caller, NoAnswer, Pause};
use crate::effect::Eviction;
use crate::event::EvictionOutcome;

/// Evictions under way at once: a pod seldom needs more victims, and each is two requests.
const AT_ONCE: usize = 16;

/// Refusals that are taken for passing.
const PATIENCE: u32 = 4;

/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// An eviction that has ended.
#[derive(Debug)]
pub struct Evicted {
    /// What was asked for.
    pub eviction: Eviction,
    /// What came of it.
    pub outcome: EvictionOutcome,
    /// From when it was taken up until now.
    pub took: Duration,
}

/// The engine loop's end of the lane.
#[derive(Debug)]
pub struct EvictLane {
    requests: mpsc::UnboundedSender<Eviction>,
    finished: mpsc::UnboundedReceiver<Evicted>,
    in_flight: usize,
}

/// The lane's task.
pub struct Worker {
    caller: Caller,
    /// Who speaks in the condition.
    scheduler: String,
    requests: mpsc::UnboundedReceiver<Eviction>,
    finished: mpsc::UnboundedSender<Evicted>,
}

/// The lane of the scheduler of this name, and its task.
pub fn lane(caller: Caller, scheduler: String) -> (EvictLane, Worker) {
    let (requests, incoming) = mpsc::unbounded_channel();
    let (outgoing, finished) = mpsc::unbounded_channel();
    let worker = Worker { caller, scheduler, requests: incoming, finished: outgoing };
    (EvictLane { requests, finished, in_flight: 0 }, worker)
}

impl EvictLane {
    /// Evictions that wait or are under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes up an eviction.
    pub fn submit(&mut self, eviction: Eviction) {
        match self.requests.send(eviction) {
            Ok(()) => self.in_flight += 1,
            // The task has ended: it panicked or the lease is lost, and either ends the process.
            Err(error) => tracing::error!(%error, "Eviction lane takes nothing more."),
        }
    }

    /// The next eviction to end; `None` when the lane's task is gone. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<Evicted> {
        let evicted = self.finished.recv().await?;
        self.in_flight -= 1;
        Some(evicted)
    }

    /// The next eviction that has ended already.
    pub fn try_next(&mut self) -> Option<Evicted> {
        let evicted = self.finished.try_recv().ok()?;
        self.in_flight -= 1;
        Some(evicted)
    }
}

impl Worker {
    /// Carries out evictions until the engine loop is gone or this replica no longer leads.
    pub async fn run(mut self) {
        let (caller, scheduler) = (&self.caller, &*self.scheduler);
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(ended) = running.next() => {
                    let Some(evicted) = ended else { return };
                    if self.finished.send(evicted).is_err() {
                        return;
                    }
                }
                request = self.requests.recv(), if running.len() < AT_ONCE => {
                    let Some(eviction) = request else { return };
                    running.push(carry_out(caller, scheduler, eviction));
                }
            }
        }
    }
}

async fn carry_out(caller: &Caller, scheduler: &str, eviction: Eviction) -> Option<Evicted> {
    let started = Instant::now();
    let outcome = evict(caller, scheduler, &eviction).await?;
    Some(Evicted { eviction, outcome, took: started.elapsed() })
}

/// Ends the pod; `None` when this replica no longer leads.
async fn evict(caller: &Caller, scheduler: &str, eviction: &Eviction) -> Option<EvictionOutcome> {
    let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut refusals = 0;
    loop {
        let retry_after = match attempt(caller, scheduler, eviction).await {
            Attempt::Ends => return Some(EvictionOutcome::Ends),
            Attempt::Stop => return None,
            Attempt::Refused(text) if refusals == PATIENCE => return Some(EvictionOutcome::Refused(text)),
            Attempt::Refused(_) => {
                refusals += 1;
                None
            }
            Attempt::Later(retry_after) => retry_after,
        };
        tokio::time::sleep(pause.next(retry_after)).await;
    }
}

/// How one attempt ended.
enum Attempt {
    Ends,
    Refused(String),
    Later(Option<Duration>),
    Stop,
}

/// Both requests. The second is not sent before the first has succeeded.
async fn attempt(caller: &Caller, scheduler: &str, eviction: &Eviction) -> Attempt {
    for (call, document) in [
        (Call::PatchStatus, disruption_target(scheduler, eviction)),
        (Call::DeletePod, delete_options(eviction)),
    ] {
        match caller.call(call, &eviction.victim, document.to_string().into_bytes()).await {
            Ok(answer) if answer.status.is_success() => {}
            Ok(answer) => return judge(&answer, eviction),
            Err(NoAnswer::NotLeader) => return Attempt::Stop,
            Err(_) => return Attempt::Later(None),
        }
    }
    Attempt::Ends
}

/// What an answer that is no success is worth.
fn judge(answer: &Answer, eviction: &Eviction) -> Attempt {
    match answer.status {
        _ if answer.says_missing(&eviction.victim.name) => Attempt::Ends,
        // Another pod has taken the name, or the pod changed meanwhile: the next attempt tells.
        StatusCode::CONFLICT if !answer.text().contains("modified") => Attempt::Ends,
        StatusCode::CONFLICT => Attempt::Later(None),
        _ if answer.is_temporary() => Attempt::Later(answer.retry_after),
        _ => Attempt::Refused(answer.text()),
    }
}

/// Says why the pod ends, in kube-scheduler's words.
fn disruption_target(scheduler: &str, eviction: &Eviction) -> Value {
    // The API's times have whole seconds.
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let mut condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": now.to_string(),
    });
    if eviction.generation > 0 {
        condition["observedGeneration"] = json!(eviction.generation);
    }
    json!({"metadata": {"uid": eviction.victim.uid.as_str()}, "status": {"conditions": [condition]}})
}

/// The pod's own grace period holds, since none is named.
fn delete_options(eviction: &Eviction) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": eviction.victim.uid.as_str()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PodId;

    #[test]
    fn a_pod_is_told_why_it_ends() {
        let pod = |uid: &str| PodId { namespace: "ns".into(), name: "p".into(), uid: uid.into() };
        let eviction =
            Eviction { victim: pod("u-1"), generation: 2, preemptor: pod("u-2"), node: "n0".into() };
        let mut body = disruption_target("mig-scheduler", &eviction);
        let condition = &mut body["status"]["conditions"][0];
        let time = condition["lastTransitionTime"].take();
        assert!(time.as_str().is_some_and(|time| time.ends_with('Z') && !time.contains('.')), "{time}");
        assert_eq!(
            body,
            json!({"metadata": {"uid": "u-1"}, "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "mig-scheduler: preempting to accommodate a higher priority pod",
                "observedGeneration": 2, "lastTransitionTime": null}]}})
        );
        assert_eq!(delete_options(&eviction)["preconditions"], json!({"uid": "u-1"}));
    }
}
