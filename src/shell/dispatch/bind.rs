//! The bind lane.
//!
//! ```text
//!            2xx ─────────────────────────────────────────────► Bound
//!   POST ──  other 4xx, if it is the first answer ────────────► Refused
//!     ▲      409 ──────────────► GET ── bound to our node ────► Bound
//!     │      5xx, 404, 408,  ►   │      to another ───────────► BoundElsewhere
//!     │      no answer,          │      no such pod,
//!     │      4xx after these     │      other uid, deleted ───► Gone
//!     │        (after a pause)   │      unbound, after a 4xx ─► Refused
//!     │      429 ┐               │      anything else ────────► GET again
//!     └──────────┴───────────────┘      unbound, else: POST again
//! ```
//!
//! Invariant: each bind ends with exactly one answer, and the answer is what the API server holds, not what a broken
//! connection suggests. Once an attempt has ended without an answer it may have been carried out, so from then on only a look
//! at the pod ends the bind: a server that has just been restarted refuses everything (403) until it has read its roles.
//! A 404 may be a proxy's; only the API server's own word that there is no such pod ends a bind as that.
//! Repeating is safe: the binding names the pod by uid, and a second one to the same node is refused with a conflict that the
//! look afterwards tells apart. A bind is sent when no patch of its pod is under way (see `status`). There is no limit to the
//! attempts; while the server is away the lane is full of binds that wait for it, and the engine decides nothing more.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Serialize;
use tokio::sync::mpsc;

use super::api::{Answer, Call, Caller, NoAnswer, Pause};
use super::status::StatusLane;
use crate::effect::Binding;
use crate::event::BindOutcome;
use crate::model::{NodeName, PodId};
use crate::shell::convert::wire::PodView;

/// Pauses between attempts: a server that restarts is back in seconds, and a bind should not be late for it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A bind that has ended.
#[derive(Debug)]
pub struct Finished {
    /// What was asked for.
    pub binding: Binding,
    /// What came of it.
    pub outcome: BindOutcome,
    /// From when it was handed in until now.
    pub took: Duration,
}

/// The engine loop's end of the lane.
#[derive(Debug)]
pub struct BindLane {
    requests: mpsc::Sender<(Binding, Instant)>,
    finished: mpsc::Receiver<Finished>,
    capacity: usize,
    in_flight: usize,
}

/// The lane's task.
pub struct Worker {
    caller: Caller,
    status: StatusLane,
    capacity: usize,
    requests: mpsc::Receiver<(Binding, Instant)>,
    finished: mpsc::Sender<Finished>,
}

/// A lane of `capacity` binds at once, and its task, beside the lane of conditions. Both channels hold as many, so neither
/// ever waits.
pub fn lane(caller: Caller, status: StatusLane, capacity: usize) -> (BindLane, Worker) {
    let (requests, incoming) = mpsc::channel(capacity);
    let (outgoing, finished) = mpsc::channel(capacity);
    let worker = Worker { caller, status, capacity, requests: incoming, finished: outgoing };
    (BindLane { requests, finished, capacity, in_flight: 0 }, worker)
}

impl BindLane {
    /// How many binds it can take up now.
    pub fn room(&self) -> usize {
        self.capacity - self.in_flight
    }

    /// How many it is busy with.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes up a bind. Only while there is room.
    pub fn submit(&mut self, binding: Binding) {
        match self.requests.try_send((binding, Instant::now())) {
            Ok(()) => self.in_flight += 1,
            // The task has ended: it panicked or the lease is lost, and either ends the process.
            Err(error) => tracing::error!(%error, "Bind lane takes nothing more."),
        }
    }

    /// The next bind to end; `None` when the lane's task is gone. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<Finished> {
        let finished = self.finished.recv().await?;
        self.in_flight -= 1;
        Some(finished)
    }

    /// The next bind that has ended already.
    pub fn try_next(&mut self) -> Option<Finished> {
        let finished = self.finished.try_recv().ok()?;
        self.in_flight -= 1;
        Some(finished)
    }
}

impl Worker {
    /// Carries out binds until the engine loop is gone or this replica no longer leads.
    pub async fn run(mut self) {
        let (caller, status) = (&self.caller, &self.status);
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(ended) = running.next() => {
                    let Some(finished) = ended else { return };
                    if self.finished.send(finished).await.is_err() {
                        return;
                    }
                }
                request = self.requests.recv(), if running.len() < self.capacity => {
                    let Some((binding, submitted)) = request else { return };
                    running.push(carry_out(caller, status, binding, submitted));
                }
            }
        }
    }
}

async fn carry_out(
    caller: &Caller,
    status: &StatusLane,
    binding: Binding,
    submitted: Instant,
) -> Option<Finished> {
    status.settled(&binding.pod.uid).await;
    let outcome = bind(caller, &binding).await?;
    Some(Finished { binding, outcome, took: submitted.elapsed() })
}

/// What to do next about a bind.
enum Step {
    Done(BindOutcome),
    /// Ask for it.
    Post(Before),
    /// Look at the pod.
    Look(Cause),
    /// Wait first.
    Later(Box<Step>, Option<Duration>),
    /// Nothing more may be sent.
    Stop,
}

/// What is known of the attempts so far.
#[derive(Clone, Copy)]
enum Before {
    /// None of them was carried out.
    Nothing,
    /// One ended without an answer and may yet have been carried out.
    Unanswered,
}

/// Why a look is needed.
enum Cause {
    /// An attempt ended without an answer.
    NoAnswer,
    /// The API server refused, in these words, what may have been carried out before.
    Refusal(String),
}

/// Binds; `None` when this replica no longer leads.
async fn bind(caller: &Caller, binding: &Binding) -> Option<BindOutcome> {
    let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut step = Step::Post(Before::Nothing);
    let mut warned = false;
    loop {
        step = match step {
            Step::Done(outcome) => return Some(outcome),
            Step::Stop => return None,
            Step::Post(before) => after_post(post(caller, binding).await, before),
            Step::Look(cause) => after_look(look(caller, &binding.pod).await, binding, cause),
            Step::Later(next, retry_after) => {
                let pause = pause.next(retry_after);
                if pause >= LONGEST_PAUSE && !std::mem::replace(&mut warned, true) {
                    let (pod, node) = (&binding.pod, &binding.node);
                    tracing::warn!(%pod, %node, "Bind has no definite answer yet and goes on asking.");
                }
                tokio::time::sleep(pause).await;
                *next
            }
        };
    }
}

fn after_post(answer: Result<Answer, NoAnswer>, before: Before) -> Step {
    let look_later = |cause, retry_after| Step::Later(Box::new(Step::Look(cause)), retry_after);
    let answer = match answer {
        Ok(answer) => answer,
        Err(NoAnswer::NotLeader) => return Step::Stop,
        Err(_) => return look_later(Cause::NoAnswer, None),
    };
    match (answer.status, before) {
        (status, _) if status.is_success() => Step::Done(BindOutcome::Bound),
        (StatusCode::CONFLICT, _) => Step::Look(Cause::Refusal(answer.text())),
        // Refused before anything was done.
        (StatusCode::TOO_MANY_REQUESTS, _) => Step::Later(Box::new(Step::Post(before)), answer.retry_after),
        (StatusCode::NOT_FOUND, _) => look_later(Cause::NoAnswer, answer.retry_after),
        _ if answer.is_temporary() => look_later(Cause::NoAnswer, answer.retry_after),
        (_, Before::Unanswered) => look_later(Cause::Refusal(answer.text()), answer.retry_after),
        (_, Before::Nothing) => Step::Done(BindOutcome::Refused(answer.text())),
    }
}

fn after_look(answer: Result<Answer, NoAnswer>, binding: &Binding, cause: Cause) -> Step {
    let answer = match answer {
        Ok(answer) => answer,
        Err(NoAnswer::NotLeader) => return Step::Stop,
        Err(_) => return Step::Later(Box::new(Step::Look(cause)), None),
    };
    match answer.status {
        _ if answer.says_missing(&binding.pod.name) => Step::Done(BindOutcome::Gone),
        status if status.is_success() => match serde_json::from_slice(&answer.body) {
            Ok(view) => judge(&view, binding, cause),
            Err(_) => Step::Later(Box::new(Step::Look(cause)), None),
        },
        status => {
            let pod = &binding.pod;
            tracing::debug!(%pod, %status, error = answer.text(), "Pod cannot be looked at; its bind waits for that.");
            Step::Later(Box::new(Step::Look(cause)), answer.retry_after)
        }
    }
}

/// What the pod, as it stands now, says about the bind.
fn judge(view: &PodView, binding: &Binding, cause: Cause) -> Step {
    if view.metadata.uid.as_deref() != Some(binding.pod.uid.as_str()) {
        return Step::Done(BindOutcome::Gone);
    }
    match view.spec.node_name.as_deref() {
        Some(node) if node == binding.node.as_str() => Step::Done(BindOutcome::Bound),
        Some(node) if !node.is_empty() => Step::Done(BindOutcome::BoundElsewhere(NodeName::from(node))),
        _ if view.metadata.deletion_timestamp.is_some() => Step::Done(BindOutcome::Gone),
        _ => match cause {
            Cause::Refusal(text) => Step::Done(BindOutcome::Refused(text)),
            Cause::NoAnswer => Step::Post(Before::Unanswered),
        },
    }
}

async fn post(caller: &Caller, binding: &Binding) -> Result<Answer, NoAnswer> {
    let pod = &binding.pod;
    let body = BindingBody {
        api_version: "v1",
        kind: "Binding",
        metadata: BindingMetadata { namespace: &pod.namespace, name: &pod.name, uid: pod.uid.as_str() },
        target: Target { api_version: "v1", kind: "Node", name: binding.node.as_str() },
    };
    let body = serde_json::to_vec(&body).map_err(|error| NoAnswer::Transport(error.to_string()))?;
    caller.call(Call::Bind, pod, body).await
}

async fn look(caller: &Caller, pod: &PodId) -> Result<Answer, NoAnswer> {
    caller.call(Call::ReadPod, pod, Vec::new()).await
}

/// The document of `POST …/binding`. The uid makes the API server refuse a successor of the same name.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BindingBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: BindingMetadata<'a>,
    target: Target<'a>,
}

#[derive(Serialize)]
struct BindingMetadata<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Target<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
}
