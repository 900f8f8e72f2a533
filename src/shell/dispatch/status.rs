//! The status lane: what stands in the way of each pod, as its `PodScheduled` condition, and where a place is kept for it.
//!
//! ```text
//!   report ──► wanted ──► ready ──► under way ──► written
//!                ▲                      │
//!                └──── after a pause ◄──┴──────► refused: this document is wrong, whoever sends it
//! ```
//!
//! Invariant: a report stays until it is written, a later one takes its place or the pod is forgotten. The engine says a thing
//! once, and the pod that waits longest for its reason is the one whose API server was away. Only a refusal of the document
//! itself ends it otherwise. At most one patch of a pod is under way, one that would change nothing is not sent, and a report
//! that pauses takes up none of the lane's places. No patch of a pod is under way while its bind is: one that overtook the bind
//! would say of a running pod that it found no place. There is one entry a pod of ours that is not bound, so the lane needs no
//! limit of its own and never makes the engine wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::api::{Answer, Call, Caller, NoAnswer, Pause};
use super::observe;
use crate::effect::UnschedulableReport;
use crate::model::{NodeName, PodId, PodUid};
use crate::shell::convert::Condition;
use crate::shell::metrics::{CallType, Metrics};

/// Pauses between attempts at a pod's condition.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The engine loop's end of the lane. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StatusLane(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    changed: Notify,
    /// A patch has ended.
    ended: Notify,
}

/// The reports that wait, and what is known to be written.
#[derive(Debug, Default)]
struct Table {
    pods: BTreeMap<PodUid, Entry>,
    /// Pods with a report to send, in order. A pod that was forgotten may stand here still, and then twice.
    ready: VecDeque<PodUid>,
    /// Pods with a report to send after a pause, by its end.
    later: BTreeSet<(Instant, PodUid)>,
    /// Pods of which a patch is under way. Kept apart from the entries: to forget a pod ends no request.
    sending: BTreeSet<PodUid>,
    /// Pods whose bind is under way: what is said of them waits.
    held: BTreeSet<PodUid>,
}

#[derive(Debug, Default)]
struct Entry {
    /// What the pod says now.
    written: Option<Condition>,
    /// Whether it was we who wrote that. If so the watch has nothing newer to tell.
    by_us: bool,
    /// What was last asked for, or is written when nothing was; a repetition of it is nothing new.
    said: Option<Condition>,
    /// What it is to say.
    wanted: Option<UnschedulableReport>,
    /// When `wanted` may be sent; `None` for now.
    due: Option<Instant>,
    /// The pauses since the last success.
    pause: Option<Pause>,
}

/// One patch to send.
#[derive(Debug)]
struct Job {
    report: UnschedulableReport,
    /// Whether the condition's status is `False` already, so that its transition time stays.
    was_false: bool,
}

/// How one patch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    /// Worth another attempt, not before this time where the server names one.
    Later(Option<Duration>),
    /// The document itself is refused.
    Refused,
}

impl StatusLane {
    /// The lane, taken up by [`run`].
    pub fn new() -> StatusLane {
        StatusLane::default()
    }

    /// Takes note of what a pod's condition says.
    pub fn observe(&self, uid: &PodUid, condition: Condition) {
        self.table().observe(uid, condition);
    }

    /// Takes up a report; whether it says anything new.
    pub fn report(&self, report: UnschedulableReport) -> bool {
        let new = self.table().report(report);
        if new {
            self.0.changed.notify_one();
        }
        new
    }

    /// The pod is bound or gone.
    pub fn forget(&self, uid: &PodUid) {
        self.table().pods.remove(uid);
    }

    /// The pod's bind is under way from now on: what was to be said of it is out of date, and nothing more is sent.
    pub fn hold(&self, uid: &PodUid) {
        self.table().hold(uid);
    }

    /// The pod's bind has ended.
    pub fn release(&self, uid: &PodUid) {
        if self.table().release(uid) {
            self.0.changed.notify_one();
        }
    }

    /// Waits until no patch of the pod is under way: for a request's time at most.
    pub async fn settled(&self, uid: &PodUid) {
        loop {
            let ended = self.0.ended.notified();
            tokio::pin!(ended);
            // From here on no end is missed.
            ended.as_mut().enable();
            if !self.table().sending.contains(uid) {
                return;
            }
            ended.await;
        }
    }

    /// Reports that wait or are being written.
    pub fn pending(&self) -> usize {
        let table = self.table();
        table.ready.len() + table.later.len() + table.sending.len()
    }

    fn finish(&self, report: UnschedulableReport, outcome: Outcome) -> Option<Duration> {
        let pause = self.table().finish(report, outcome, Instant::now());
        self.0.ended.notify_waiters();
        pause
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code panics while it holds the lock; were it to, the table would still be whole.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn observe(&mut self, uid: &PodUid, condition: Condition) {
        let open = self.sending.contains(uid) || self.held.contains(uid);
        let entry = self.pods.entry(uid.clone()).or_default();
        if entry.by_us {
            return;
        }
        entry.written = Some(condition);
        if entry.wanted.is_none() && !open {
            entry.said = entry.written;
        }
    }

    /// Whether the report says anything new.
    fn report(&mut self, report: UnschedulableReport) -> bool {
        let uid = report.pod.uid.clone();
        let entry = self.pods.entry(uid.clone()).or_default();
        let said = Some(condition_of(&report));
        if entry.said == said {
            return false;
        }
        entry.said = said;
        if entry.wanted.replace(report).is_none() {
            self.enqueue(uid);
        }
        true
    }

    fn hold(&mut self, uid: &PodUid) {
        self.held.insert(uid.clone());
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.wanted = None;
            entry.due = None;
            entry.said = None;
        }
    }

    /// Whether there is something to send.
    fn release(&mut self, uid: &PodUid) -> bool {
        self.held.remove(uid);
        self.enqueue(uid.clone());
        self.may_send(uid)
    }

    /// Puts a pod in line whose report may be sent now.
    fn enqueue(&mut self, uid: PodUid) {
        if self.may_send(&uid) {
            self.ready.push_back(uid);
        }
    }

    fn may_send(&self, uid: &PodUid) -> bool {
        let waits = |entry: &Entry| entry.wanted.is_some() && entry.due.is_none();
        let quiet = !self.sending.contains(uid) && !self.held.contains(uid);
        quiet && self.pods.get(uid).is_some_and(waits)
    }

    /// The next patch to send; it is under way from now on.
    fn take(&mut self, now: Instant) -> Option<Job> {
        self.end_pauses(now);
        while let Some(uid) = self.ready.pop_front() {
            if !self.may_send(&uid) {
                continue;
            }
            let Some(entry) = self.pods.get_mut(&uid) else { continue };
            let was_false = entry.written.is_some_and(|condition| condition.is_false);
            let wanted = entry.wanted.take();
            if let Some(report) = wanted.filter(|report| entry.written != Some(condition_of(report))) {
                self.sending.insert(uid);
                return Some(Job { report, was_false });
            }
        }
        None
    }

    fn end_pauses(&mut self, now: Instant) {
        while let Some((due, uid)) = self.later.pop_first() {
            if due > now {
                self.later.insert((due, uid));
                return;
            }
            if let Some(entry) = self.pods.get_mut(&uid)
                && entry.due == Some(due)
            {
                entry.due = None;
                self.enqueue(uid);
            }
        }
    }

    /// A patch has ended. What arrived meanwhile is next; otherwise what failed for now is tried again after the pause that
    /// is returned.
    fn finish(&mut self, report: UnschedulableReport, outcome: Outcome, now: Instant) -> Option<Duration> {
        let uid = report.pod.uid.clone();
        self.sending.remove(&uid);
        let entry = self.pods.get_mut(&uid)?;
        let pause = match outcome {
            Outcome::Written => {
                entry.written = Some(condition_of(&report));
                entry.by_us = true;
                entry.pause = None;
                None
            }
            Outcome::Refused => None,
            Outcome::Later(retry_after) => Some(entry.put_off(report, retry_after, now)),
        };
        match entry.due {
            Some(due) => drop(self.later.insert((due, uid))),
            None => self.enqueue(uid),
        }
        pause
    }
}

impl Entry {
    /// The pod's next patch waits. A report that arrived meanwhile waits in the place of `failed`: it would meet the same.
    fn put_off(
        &mut self,
        failed: UnschedulableReport,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> Duration {
        if self.wanted.is_none() && self.said == Some(condition_of(&failed)) {
            self.wanted = Some(failed);
        }
        let pause =
            self.pause.get_or_insert_with(|| Pause::new(FIRST_PAUSE, LONGEST_PAUSE)).next(retry_after);
        self.due = self.wanted.is_some().then(|| now + pause);
        pause
    }
}

fn condition_of(report: &UnschedulableReport) -> Condition {
    Condition::not_scheduled(report.reason.as_str(), &report.message, report.generation)
        .with_node(report.nominated.as_ref().map(NodeName::as_str))
}

/// Sends patches, `concurrency` at once, until this replica no longer leads.
pub async fn run(lane: StatusLane, caller: Caller, concurrency: usize, metrics: Arc<Metrics>) {
    let mut running = FuturesUnordered::new();
    // Whether it was said that the API server keeps refusing.
    let mut failing = false;
    loop {
        while running.len() < concurrency
            && let Some(job) = lane.table().take(Instant::now())
        {
            running.push(send(&caller, job, &metrics));
        }
        let pauses_end = lane.table().later.first().map(|(due, _)| *due);
        tokio::select! {
            Some(ended) = running.next() => {
                let Ok(Sent { report, outcome, problem }) = ended else { return };
                let pod = report.pod.clone();
                let pause = lane.finish(report, outcome);
                failing = log_outcome(&pod, outcome, &problem, pause, failing);
            }
            () = lane.0.changed.notified() => {}
            () = until(pauses_end), if running.len() < concurrency => {}
        }
    }
}

/// Waits until then; for ever without a time.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Says what became of a patch, and once that none gets through for long; whether that holds still.
fn log_outcome(pod: &PodId, outcome: Outcome, problem: &str, pause: Option<Duration>, failing: bool) -> bool {
    match outcome {
        Outcome::Written => false,
        Outcome::Refused => {
            tracing::warn!(%pod, error = problem, "Pod condition is refused and left out.");
            failing
        }
        Outcome::Later(_) => {
            let long = pause.is_some_and(|pause| pause >= LONGEST_PAUSE);
            if long && !failing {
                tracing::warn!(%pod, error = problem, "Pod condition cannot be written for long; it is tried on.");
            } else {
                tracing::debug!(%pod, error = problem, "Pod condition cannot be written yet.");
            }
            failing || long
        }
    }
}

/// This replica no longer leads.
struct Stopped;

/// A patch that has ended.
struct Sent {
    report: UnschedulableReport,
    outcome: Outcome,
    /// What the server said against it.
    problem: String,
}

async fn send(caller: &Caller, job: Job, metrics: &Metrics) -> Result<Sent, Stopped> {
    let started = Instant::now();
    let document = body(&job).to_string().into_bytes();
    let (outcome, problem) = match caller.call(Call::PatchStatus, &job.report.pod, document).await {
        Ok(answer) => (judge(&answer), answer.text()),
        Err(NoAnswer::NotLeader) => return Err(Stopped),
        Err(error) => (Outcome::Later(None), error.to_string()),
    };
    observe(metrics, CallType::PodStatusPatch, outcome == Outcome::Written, started.elapsed());
    if outcome == Outcome::Refused {
        metrics.count_drop(CallType::PodStatusPatch);
    }
    Ok(Sent { report: job.report, outcome, problem })
}

/// What an answer is worth. Whatever does not speak of the document may pass: a server that was just restarted knows neither
/// accounts (401) nor roles (403), one that is busy conflicts with itself (409), and what stands before it answers anything
/// (404). Where the pod is indeed gone, the watch says so and the report is forgotten.
fn judge(answer: &Answer) -> Outcome {
    match answer.status {
        status if status.is_success() => Outcome::Written,
        StatusCode::BAD_REQUEST
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::NOT_ACCEPTABLE
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::URI_TOO_LONG
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => Outcome::Refused,
        _ => Outcome::Later(answer.retry_after),
    }
}

/// The patch. Conditions merge by type; a transition time that is left out stays as it was. Where no place is kept for the pod
/// any more, the node it named goes.
fn body(job: &Job) -> Value {
    let report = &job.report;
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": report.reason.as_str(),
        "message": report.message,
    });
    if report.generation > 0 {
        condition["observedGeneration"] = json!(report.generation);
    }
    if !job.was_false {
        // The API's times have whole seconds.
        let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
        condition["lastTransitionTime"] = json!(now.to_string());
    }
    let nominated = report.nominated.as_ref().map(NodeName::as_str);
    let status = json!({"conditions": [condition], "nominatedNodeName": nominated});
    json!({"metadata": {"uid": report.pod.uid.as_str()}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::UnschedulableReason;
    use crate::model::PodId;

    fn report(uid: &str, message: &str) -> UnschedulableReport {
        UnschedulableReport {
            pod: PodId { namespace: "ns".into(), name: "p".into(), uid: uid.into() },
            generation: 1,
            reason: UnschedulableReason::Unschedulable,
            message: message.to_owned(),
            nominated: None,
            publish: true,
        }
    }

    fn take(lane: &StatusLane) -> Option<(String, bool)> {
        take_at(lane, Instant::now())
    }

    fn take_at(lane: &StatusLane, now: Instant) -> Option<(String, bool)> {
        lane.table().take(now).map(|job| (job.report.message, job.was_false))
    }

    fn finish(lane: &StatusLane, message: &str, outcome: Outcome) {
        lane.finish(report("u", message), outcome);
    }

    fn sends(message: &str, was_false: bool) -> Option<(String, bool)> {
        Some((message.to_owned(), was_false))
    }

    #[test]
    fn the_latest_report_wins() {
        let lane = StatusLane::new();
        lane.report(report("u", "one"));
        lane.report(report("u", "two"));
        assert_eq!(take(&lane), sends("two", false));
        assert_eq!(take(&lane), None, "one patch a pod at a time");
        lane.report(report("u", "three"));
        lane.report(report("u", "four"));
        assert_eq!(take(&lane), None);
        finish(&lane, "two", Outcome::Written);
        assert_eq!(take(&lane), sends("four", true));
        finish(&lane, "four", Outcome::Written);
        assert_eq!(take(&lane), None);
    }

    #[test]
    fn what_is_written_already_is_not_written_again() {
        let lane = StatusLane::new();
        lane.observe(&"u".into(), condition_of(&report("u", "one")));
        lane.report(report("u", "one"));
        assert_eq!(take(&lane), None);
        lane.report(report("u", "two"));
        assert_eq!(take(&lane), sends("two", true), "after a restart the transition time stays too");
        finish(&lane, "two", Outcome::Written);
        lane.observe(&"u".into(), condition_of(&report("u", "one")));
        lane.report(report("u", "two"));
        assert_eq!(take(&lane), None, "an echo from before our write does not count");
        lane.report(report("u", "one"));
        assert_eq!(take(&lane), sends("one", true));
    }

    /// Moments at which a failed patch is tried again, in milliseconds after the failure before.
    fn check_pauses(outcome: Outcome, expected: &[u64]) {
        let (lane, mut now) = (StatusLane::new(), Instant::now());
        lane.report(report("u", "one"));
        for millis in expected {
            assert_eq!(take_at(&lane, now), sends("one", false), "{millis}");
            assert_eq!(lane.pending(), 1);
            lane.table().finish(report("u", "one"), outcome, now);
            now += Duration::from_millis(*millis);
            assert!(!lane.report(report("u", "one")), "a repetition changes nothing");
            assert_eq!(take_at(&lane, now - Duration::from_millis(1)), None);
            assert_eq!(lane.pending(), 1);
        }
        assert_eq!(take_at(&lane, now), sends("one", false));
    }

    #[test]
    fn a_report_stays_until_it_is_written() {
        let pauses = [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000];
        check_pauses(Outcome::Later(None), &pauses);
        check_pauses(Outcome::Later(Some(Duration::from_secs(3))), &[3000, 3000, 3000, 3000, 3200]);
    }

    #[test]
    fn a_report_that_is_refused_is_not_repeated() {
        let lane = StatusLane::new();
        lane.report(report("u", "one"));
        assert_eq!(take(&lane), sends("one", false));
        finish(&lane, "one", Outcome::Refused);
        assert!(!lane.report(report("u", "one")));
        assert_eq!((take(&lane), lane.pending()), (None, 0));
        assert!(lane.report(report("u", "two")));
        assert_eq!(take(&lane), sends("two", false));
    }

    #[test]
    fn what_takes_the_place_of_a_failed_report_waits_its_pause() {
        let (lane, now) = (StatusLane::new(), Instant::now());
        lane.report(report("u", "one"));
        assert_eq!(take_at(&lane, now), sends("one", false));
        lane.report(report("u", "two"));
        lane.table().finish(report("u", "one"), Outcome::Later(None), now);
        lane.report(report("u", "three"));
        assert_eq!(take_at(&lane, now), None);
        assert_eq!(take_at(&lane, now + FIRST_PAUSE), sends("three", false));
        assert_eq!(lane.pending(), 1, "each pod is in one place");
    }

    #[test]
    fn a_pod_that_is_bound_or_gone_is_forgotten() {
        for outcome in [Outcome::Written, Outcome::Later(None), Outcome::Refused] {
            let lane = StatusLane::new();
            lane.report(report("u", "zero"));
            lane.forget(&"u".into());
            assert_eq!(take(&lane), None);
            lane.report(report("u", "one"));
            assert_eq!(take(&lane), sends("one", false));
            lane.forget(&"u".into());
            finish(&lane, "one", outcome);
            assert_eq!(take_at(&lane, Instant::now() + LONGEST_PAUSE), None);
            assert_eq!(lane.pending(), 0);
            assert!(lane.table().pods.is_empty());
        }
    }

    #[test]
    fn a_pod_that_comes_back_waits_for_the_patch_under_way() {
        let lane = StatusLane::new();
        lane.report(report("u", "one"));
        assert_eq!(take(&lane), sends("one", false));
        lane.forget(&"u".into());
        lane.report(report("u", "two"));
        lane.report(report("u", "three"));
        assert_eq!(take(&lane), None, "one patch a pod at a time");
        finish(&lane, "one", Outcome::Written);
        assert_eq!(take(&lane), sends("three", true));
        assert_eq!(take(&lane), None);
    }

    #[test]
    fn nothing_is_said_while_a_bind_is_under_way() {
        let lane = StatusLane::new();
        let uid = "u".into();
        lane.report(report("u", "one"));
        lane.hold(&uid);
        assert_eq!(take(&lane), None, "it is out of date");
        lane.report(report("u", "two"));
        assert_eq!(take(&lane), None);
        lane.release(&uid);
        assert_eq!(take(&lane), sends("two", false));
        lane.hold(&uid);
        finish(&lane, "two", Outcome::Later(None));
        lane.release(&uid);
        assert_eq!(take_at(&lane, Instant::now() + LONGEST_PAUSE), None);
        assert!(lane.report(report("u", "two")), "it was not written");
        assert_eq!(take(&lane), sends("two", false));
    }

    #[tokio::test]
    async fn a_pod_is_settled_when_its_patch_has_ended() {
        let lane = StatusLane::new();
        let uid = PodUid::from("u");
        lane.settled(&uid).await;
        lane.report(report("u", "one"));
        assert!(take(&lane).is_some());
        lane.hold(&uid);
        let moment = Duration::from_millis(20);
        assert!(tokio::time::timeout(moment, lane.settled(&uid)).await.is_err());
        let end = async { finish(&lane, "one", Outcome::Written) };
        tokio::join!(lane.settled(&uid), end);
    }

    #[test]
    fn patches_merge_into_the_pod_they_mean() {
        let mut job = Job { report: report("u-1", "no \"room\""), was_false: true };
        assert_eq!(
            body(&job),
            json!({"metadata": {"uid": "u-1"}, "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no \"room\"",
                "observedGeneration": 1}], "nominatedNodeName": null}})
        );
        job.report.nominated = Some("n0".into());
        assert_eq!(body(&job)["status"]["nominatedNodeName"], json!("n0"));
        job.was_false = false;
        let time = body(&job)["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap().to_owned();
        assert!(time.ends_with('Z') && !time.contains('.'), "{time}");
    }
}
