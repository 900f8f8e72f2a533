//! The event lane: what happened to a pod, for people, in kube-scheduler's words.
//!
//! Invariant: events never hold anything else up. The lane takes what fits its queue and drops the rest, counted; few
//! requests are under way at once, since each costs the API server as much as a bind does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::{Call, Caller, NoAnswer, Pause};
use super::observe;
use crate::model::{NodeName, PodId};
use crate::shell::metrics::{CallType, Metrics};

/// The API's limit on an event's note, in bytes.
const NOTE_LIMIT: usize = 1024;

/// What kube-scheduler ends a cut note with.
const ELLIPSIS: &str = " ...";

/// The API's limit on a name, and what is left of it for the pod's name before `.` and sixteen hexadecimal digits.
const NAME_LIMIT: usize = 253 - 17;

/// The API's limit on `reportingInstance`.
const INSTANCE_LIMIT: usize = 128;

/// Attempts at one event.
const ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Who speaks.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// `reportingController`: the scheduler's name.
    pub controller: String,
    /// `reportingInstance`: this replica.
    pub instance: String,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The pod was bound.
    Scheduled(NodeName),
    /// It was not, and why.
    FailedScheduling(String),
    /// Its node turned it away after it was bound, and what follows.
    Rejected(String),
    /// It ends in favour of another pod.
    Preempted {
        /// Of this.
        by: PodId,
        /// Where.
        node: NodeName,
    },
}

/// One event.
#[derive(Clone, Debug)]
struct Note {
    pod: PodId,
    said: Said,
    time: Timestamp,
    /// Tells events apart: nanoseconds since 1970, made unique.
    number: u64,
}

/// The engine loop's end of the lane.
#[derive(Debug)]
pub struct EventLane {
    queue: mpsc::Sender<Note>,
    writing: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    last_number: u64,
}

/// The lane's task.
pub struct Worker {
    caller: Caller,
    reporter: Reporter,
    concurrency: usize,
    queue: mpsc::Receiver<Note>,
    /// How many requests are under way.
    writing: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

/// A lane of `concurrency` requests at once and `capacity` waiting, and its task.
pub fn lane(
    caller: Caller,
    reporter: Reporter,
    (concurrency, capacity): (usize, usize),
    metrics: Arc<Metrics>,
) -> (EventLane, Worker) {
    let (sender, receiver) = mpsc::channel(capacity);
    let writing = Arc::new(AtomicUsize::new(0));
    let lane =
        EventLane { queue: sender, writing: writing.clone(), metrics: metrics.clone(), last_number: 0 };
    (lane, Worker { caller, reporter, concurrency, queue: receiver, writing, metrics })
}

impl EventLane {
    /// Takes up an event, or drops it when the queue is full.
    pub fn publish(&mut self, pod: PodId, said: Said) {
        let time = Timestamp::now();
        let number = u64::try_from(time.as_nanosecond()).unwrap_or(0).max(self.last_number + 1);
        self.last_number = number;
        if self.queue.try_send(Note { pod, said, time, number }).is_err() {
            self.metrics.count_drop(CallType::Event);
        }
    }

    /// Events that wait or are being written.
    pub fn pending(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity() + self.writing.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Writes events until the engine loop is gone and the queue is empty, or this replica no longer leads.
    pub async fn run(mut self) {
        let (caller, reporter, metrics) = (&self.caller, &self.reporter, &*self.metrics);
        let mut running = FuturesUnordered::new();
        let mut open = true;
        while open || !running.is_empty() {
            self.writing.store(running.len(), Ordering::Relaxed);
            tokio::select! {
                Some(ended) = running.next() => if ended == Err(NoAnswer::NotLeader) { return },
                note = self.queue.recv(), if open && running.len() < self.concurrency => match note {
                    Some(note) => running.push(write(caller, reporter, metrics, note)),
                    None => open = false,
                },
            }
        }
    }
}

async fn write(caller: &Caller, reporter: &Reporter, metrics: &Metrics, note: Note) -> Result<(), NoAnswer> {
    let started = Instant::now();
    let result = attempt(caller, reporter, &note).await;
    observe(metrics, CallType::Event, result.is_ok(), started.elapsed());
    match result {
        Ok(()) => {}
        Err(Failed::NotLeader) => return Err(NoAnswer::NotLeader),
        Err(Failed::Refused(text)) => {
            metrics.count_drop(CallType::Event);
            tracing::debug!(pod = %note.pod, error = text, "Event could not be written.");
        }
    }
    Ok(())
}

enum Failed {
    NotLeader,
    Refused(String),
}

async fn attempt(caller: &Caller, reporter: &Reporter, note: &Note) -> Result<(), Failed> {
    let document = body(reporter, note).to_string().into_bytes();
    let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut problem = String::new();
    for at in 0..ATTEMPTS {
        if at > 0 {
            tokio::time::sleep(pause.next(None)).await;
        }
        match caller.call(Call::CreateEvent, &note.pod, document.clone()).await {
            // A conflict is the echo of an attempt that had succeeded.
            Ok(answer) if answer.status.is_success() || answer.status.as_u16() == 409 => return Ok(()),
            Ok(answer) if !answer.is_temporary() => return Err(Failed::Refused(answer.text())),
            Ok(answer) => problem = answer.text(),
            Err(NoAnswer::NotLeader) => return Err(Failed::NotLeader),
            Err(error) => problem = error.to_string(),
        }
    }
    Err(Failed::Refused(problem))
}

fn body(reporter: &Reporter, note: &Note) -> Value {
    let pod = &note.pod;
    let (kind, action, reason, text) = match &note.said {
        Said::Scheduled(node) => (
            "Normal",
            "Binding",
            "Scheduled",
            format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name),
        ),
        Said::Rejected(text) => ("Warning", "Binding", "RejectedByNode", cut_note(text)),
        Said::Preempted { by, node } => {
            ("Normal", "Preempting", "Preempted", format!("Preempted by pod {} on node {node}", by.uid))
        }
        Said::FailedScheduling(text) => ("Warning", "Scheduling", "FailedScheduling", cut_note(text)),
    };
    let mut document = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": &*pod.namespace, "name": event_name(&pod.name, note.number)},
        "eventTime": format!("{:.6}", note.time),
        "reportingController": reporter.controller,
        "reportingInstance": cut(&reporter.instance, INSTANCE_LIMIT),
        "action": action,
        "reason": reason,
        "type": kind,
        "note": text,
        "regarding": reference(pod),
    });
    if let Said::Preempted { by, .. } = &note.said {
        document["related"] = reference(by);
    }
    document
}

fn reference(pod: &PodId) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": &*pod.namespace,
        "name": &*pod.name,
        "uid": pod.uid.as_str(),
    })
}

fn event_name(pod: &str, number: u64) -> String {
    format!("{}.{number:x}", cut(pod, NAME_LIMIT).trim_end_matches(['-', '.']))
}

fn cut_note(text: &str) -> String {
    if text.len() <= NOTE_LIMIT {
        return text.to_owned();
    }
    format!("{}{ELLIPSIS}", cut(text, NOTE_LIMIT - ELLIPSIS.len()))
}

/// The longest beginning of `text` within `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pod: &str, said: Said) -> Note {
        Note {
            pod: PodId { namespace: "ns".into(), name: pod.into(), uid: "u-1".into() },
            said,
            time: "2026-11-30T10:00:00.1234567Z".parse().unwrap(),
            number: 0x18ab_cdef,
        }
    }

    fn reporter() -> Reporter {
        Reporter { controller: "mig-scheduler".to_owned(), instance: "host_1".to_owned() }
    }

    #[test]
    fn says_what_kube_scheduler_says() {
        let document = body(&reporter(), &note("p", Said::Scheduled("n0".into())));
        assert_eq!(
            document,
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event",
                "metadata": {"namespace": "ns", "name": "p.18abcdef"},
                "eventTime": "2026-11-30T10:00:00.123456Z",
                "reportingController": "mig-scheduler", "reportingInstance": "host_1",
                "action": "Binding", "reason": "Scheduled", "type": "Normal",
                "note": "Successfully assigned ns/p to n0",
                "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u-1"},
            })
        );
        let document = body(&reporter(), &note("p", Said::FailedScheduling("0/1 nodes".to_owned())));
        assert_eq!(
            [&document["type"], &document["action"], &document["reason"], &document["note"]],
            ["Warning", "Scheduling", "FailedScheduling", "0/1 nodes"]
        );
    }

    #[test]
    fn a_victim_hears_of_its_preemptor() {
        let by = PodId { namespace: "ns".into(), name: "q".into(), uid: "u-2".into() };
        let document = body(&reporter(), &note("p", Said::Preempted { by, node: "n0".into() }));
        assert_eq!(
            [&document["type"], &document["action"], &document["reason"], &document["note"]],
            ["Normal", "Preempting", "Preempted", "Preempted by pod u-2 on node n0"]
        );
        assert_eq!([&document["regarding"]["name"], &document["related"]["name"]], ["p", "q"]);
    }

    #[test]
    fn notes_are_cut_as_upstream_cuts_them() {
        assert_eq!(cut_note(&"x".repeat(1024)), "x".repeat(1024));
        assert_eq!(cut_note(&"x".repeat(1025)), format!("{} ...", "x".repeat(1020)));
        let umlauts = cut_note(&format!("x{}", "ü".repeat(600)));
        assert!(umlauts.len() <= NOTE_LIMIT && umlauts.ends_with("ü ..."), "{}", umlauts.len());
    }

    #[test]
    fn long_names_stay_legal() {
        assert_eq!(event_name(&"a".repeat(253), u64::MAX).len(), 253);
        assert_eq!(event_name(&format!("{}-b", "a".repeat(235)), 1), format!("{}.1", "a".repeat(235)));
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts() {
        let (service, _handle) = tower_test::mock::pair::<
            axum::http::Request<kube::client::Body>,
            axum::http::Response<kube::client::Body>,
        >();
        let caller = Caller::new(
            kube::Client::new(service, "default"),
            crate::shell::lease::LeaderToken::unelected(),
            Duration::from_secs(1),
        );
        let metrics = Arc::new(Metrics::new("test"));
        let (mut events, _worker) = lane(caller, reporter(), (1, 2), metrics.clone());
        for _ in 0..5 {
            events.publish(note("p", Said::Scheduled("n".into())).pod, Said::Scheduled("n".into()));
        }
        assert_eq!(events.pending(), 2);
        let drops = metrics.encode().unwrap();
        assert!(drops.contains("async_api_call_drops_total{call_type=\"event\"} 3"), "{drops}");
    }
}
