//! The status lane: what stands in the way of each pod, as its `PodScheduled` condition.
//!
//! Invariant: the latest report of a pod wins. At most one patch of a pod is under way; a report that arrives meanwhile
//! replaces the one that waits, and one that would change nothing is not sent. There is one entry a pod of ours that is
//! not bound, so the lane needs no limit of its own and never makes the engine wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::api::{Caller, NoAnswer, Pause, STRATEGIC_MERGE, pod_path};
use super::{FIELD_MANAGER, observe};
use crate::effect::UnschedulableReport;
use crate::model::PodUid;
use crate::shell::convert::Condition;
use crate::shell::metrics::{CallType, Metrics};

/// Attempts at one report, and the pauses between them: a minute in all. After that the pod keeps its old condition until
/// there is something new to say.
const ATTEMPTS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The engine loop's end of the lane. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StatusLane(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    changed: Notify,
}

/// The reports that wait, and what is known to be written.
#[derive(Debug, Default)]
struct Table {
    pods: BTreeMap<PodUid, Entry>,
    /// Pods with a report to send, in order. Each at most once.
    ready: VecDeque<PodUid>,
}

#[derive(Debug, Default)]
struct Entry {
    /// What the pod says now.
    written: Option<Condition>,
    /// Whether it was we who wrote that. If so the watch has nothing newer to tell.
    by_us: bool,
    /// What it is to say.
    wanted: Option<UnschedulableReport>,
    /// Whether a patch of it waits or is under way.
    busy: bool,
}

/// One patch to send.
#[derive(Debug)]
struct Job {
    report: UnschedulableReport,
    /// Whether the condition's status is `False` already, so that its transition time stays.
    was_false: bool,
}

impl StatusLane {
    /// The lane, taken up by [`run`].
    pub fn new() -> StatusLane {
        StatusLane::default()
    }

    /// Takes note of what a pod's condition says.
    pub fn observe(&self, uid: &PodUid, condition: Condition) {
        let mut table = self.table();
        let entry = table.pods.entry(uid.clone()).or_default();
        if !entry.by_us {
            entry.written = Some(condition);
        }
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

    /// Reports that wait.
    pub fn waiting(&self) -> usize {
        self.table().ready.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code panics while it holds the lock; were it to, the table would still be whole.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Whether the lane has something new to do.
    fn report(&mut self, report: UnschedulableReport) -> bool {
        let uid = report.pod.uid.clone();
        let entry = self.pods.entry(uid.clone()).or_default();
        if entry.written == Some(condition_of(&report)) && !entry.busy {
            return false;
        }
        entry.wanted = Some(report);
        if !entry.busy {
            entry.busy = true;
            self.ready.push_back(uid);
        }
        true
    }

    fn take(&mut self) -> Option<Job> {
        while let Some(uid) = self.ready.pop_front() {
            let Some(entry) = self.pods.get_mut(&uid) else { continue };
            let was_false = entry.written.is_some_and(|condition| condition.is_false);
            match entry.wanted.take() {
                Some(report) if entry.written != Some(condition_of(&report)) => {
                    return Some(Job { report, was_false });
                }
                _ => entry.busy = false,
            }
        }
        None
    }

    /// A patch has ended; `written` if the pod now says so. What arrived meanwhile is next.
    fn finish(&mut self, report: &UnschedulableReport, written: bool) {
        let uid = &report.pod.uid;
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if written {
            entry.written = Some(condition_of(report));
            entry.by_us = true;
        }
        entry.busy = entry.wanted.is_some();
        if entry.busy {
            self.ready.push_back(uid.clone());
        }
    }

    fn is_superseded(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_none_or(|entry| entry.wanted.is_some())
    }
}

fn condition_of(report: &UnschedulableReport) -> Condition {
    Condition::not_scheduled(report.reason.as_str(), &report.message, report.generation)
}

/// Sends patches, `concurrency` at once, until this replica no longer leads.
pub async fn run(lane: StatusLane, caller: Caller, concurrency: usize, metrics: Arc<Metrics>) {
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < concurrency
            && let Some(job) = lane.table().take()
        {
            running.push(send(&lane, &caller, job, &metrics));
        }
        tokio::select! {
            Some(ended) = running.next() => if ended.is_err() { return },
            () = lane.0.changed.notified() => {}
        }
    }
}

/// This replica no longer leads.
struct Stopped;

async fn send(lane: &StatusLane, caller: &Caller, job: Job, metrics: &Metrics) -> Result<(), Stopped> {
    let started = Instant::now();
    let outcome = patch(lane, caller, &job, metrics).await?;
    observe(metrics, CallType::PodStatusPatch, outcome != Outcome::GivenUp, started.elapsed());
    lane.table().finish(&job.report, outcome == Outcome::Written);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Written,
    /// The pod is gone or a newer report replaces this one.
    Moot,
    GivenUp,
}

async fn patch(lane: &StatusLane, caller: &Caller, job: &Job, metrics: &Metrics) -> Result<Outcome, Stopped> {
    let pod = &job.report.pod;
    let path = format!("{}/status?fieldManager={FIELD_MANAGER}", pod_path(pod));
    let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut problem = String::new();
    for _ in 0..ATTEMPTS {
        let answer =
            caller.call(Method::PATCH, &path, STRATEGIC_MERGE, body(job).to_string().into_bytes()).await;
        let retry_after = match answer {
            Ok(answer) if answer.status.is_success() => return Ok(Outcome::Written),
            // Gone, or another pod has its name.
            Ok(answer) if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::CONFLICT) => {
                return Ok(Outcome::Moot);
            }
            Err(NoAnswer::NotLeader) => return Err(Stopped),
            Ok(answer) if !answer.is_temporary() => {
                problem = answer.text();
                break;
            }
            Ok(answer) => {
                problem = answer.text();
                answer.retry_after
            }
            Err(error) => {
                problem = error.to_string();
                None
            }
        };
        tokio::time::sleep(pause.next(retry_after)).await;
        if lane.table().is_superseded(&pod.uid) {
            return Ok(Outcome::Moot);
        }
    }
    metrics.count_drop(CallType::PodStatusPatch);
    tracing::warn!(%pod, error = problem, "Pod condition could not be written.");
    Ok(Outcome::GivenUp)
}

/// The patch. Conditions merge by type; a transition time that is left out stays as it was.
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
    json!({"metadata": {"uid": report.pod.uid.as_str()}, "status": {"conditions": [condition]}})
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
            publish: true,
        }
    }

    fn take(lane: &StatusLane) -> Option<(String, bool)> {
        lane.table().take().map(|job| (job.report.message, job.was_false))
    }

    fn finish(lane: &StatusLane, message: &str, written: bool) {
        lane.table().finish(&report("u", message), written);
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
        finish(&lane, "two", true);
        assert_eq!(take(&lane), sends("four", true));
        finish(&lane, "four", true);
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
        finish(&lane, "two", true);
        lane.observe(&"u".into(), condition_of(&report("u", "one")));
        lane.report(report("u", "two"));
        assert_eq!(take(&lane), None, "an echo from before our write does not count");
        lane.report(report("u", "one"));
        assert_eq!(take(&lane), sends("one", true));
    }

    #[test]
    fn a_failed_patch_leaves_the_old_condition() {
        let lane = StatusLane::new();
        lane.report(report("u", "one"));
        assert_eq!(take(&lane), sends("one", false));
        finish(&lane, "one", false);
        lane.report(report("u", "one"));
        assert_eq!(take(&lane), sends("one", false));
    }

    #[test]
    fn a_pod_that_is_bound_or_gone_is_forgotten() {
        let lane = StatusLane::new();
        lane.report(report("u", "one"));
        lane.forget(&"u".into());
        assert_eq!(take(&lane), None);
        finish(&lane, "one", true);
        assert!(lane.table().pods.is_empty() && lane.table().ready.is_empty());
    }

    #[test]
    fn patches_merge_into_the_pod_they_mean() {
        let mut job = Job { report: report("u-1", "no \"room\""), was_false: true };
        assert_eq!(
            body(&job),
            json!({"metadata": {"uid": "u-1"}, "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no \"room\"",
                "observedGeneration": 1}]}})
        );
        job.was_false = false;
        let time = body(&job)["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap().to_owned();
        assert!(time.ends_with('Z') && !time.contains('.'), "{time}");
    }
}
