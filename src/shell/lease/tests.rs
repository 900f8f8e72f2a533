//! The election task against an API server of our own making, in real time with short periods.

use std::sync::{Arc, Mutex};

use axum::http::{Method, Request as HttpRequest, Response};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::client::Body;
use serde_json::json;

use super::*;

/// Longer than any test waits for something that does happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the server treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    Failing,
    Silent,
}

/// An API server that knows one Lease.
#[derive(Clone)]
struct FakeApi(Arc<Mutex<State>>);

struct State {
    lease: Option<Lease>,
    version: u64,
    mood: Mood,
    /// Requests that are never answered.
    ignored: Vec<tower_test::mock::SendResponse<Response<Body>>>,
}

impl FakeApi {
    fn new(lease: Option<Lease>) -> FakeApi {
        let state = State { lease: None, version: 0, mood: Mood::Well, ignored: Vec::new() };
        let api = FakeApi(Arc::new(Mutex::new(state)));
        if let Some(lease) = lease {
            api.0.lock().unwrap().store(lease);
        }
        api
    }

    /// A client of this server.
    fn client(&self) -> kube::Client {
        let (mock, mut handle) = tower_test::mock::pair::<HttpRequest<Body>, Response<Body>>();
        let api = self.clone();
        tokio::spawn(async move {
            while let Some((request, send)) = handle.next_request().await {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let mut state = api.0.lock().unwrap();
                match state.mood {
                    Mood::Silent => state.ignored.push(send),
                    Mood::Failing => send.send_response(status(500, "InternalError")),
                    Mood::Well => send.send_response(state.answer(&parts.method, parts.uri.path(), &bytes)),
                }
            }
        });
        kube::Client::new(mock, "default")
    }

    fn stand(&self, identity: &str) -> LeaseTask {
        LeaseTask::spawn(self.client(), &settings(), Duration::from_millis(300), identity.to_owned())
    }

    fn set_mood(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    fn spec(&self) -> LeaseSpec {
        self.0.lock().unwrap().lease.clone().unwrap().spec.unwrap()
    }

    /// Somebody else's write.
    fn edit(&self, change: impl FnOnce(&mut Lease)) {
        let mut state = self.0.lock().unwrap();
        let mut lease = state.lease.clone().unwrap();
        change(&mut lease);
        state.store(lease);
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Response<Body> {
        let all = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
        let sent = || serde_json::from_slice::<Lease>(body).unwrap();
        match (method.as_str(), path.strip_prefix(all), &self.lease) {
            ("GET", Some("/election"), Some(lease)) => reply(200, json!(lease)),
            ("GET" | "PUT", Some("/election"), None) => status(404, "NotFound"),
            ("POST", Some(""), Some(_)) => status(409, "AlreadyExists"),
            ("POST", Some(""), None) => {
                assert_eq!(sent().metadata.name.as_deref(), Some("election"));
                self.store(sent())
            }
            ("PUT", Some("/election"), Some(lease)) => {
                let version =
                    |lease: &Lease| lease.metadata.resource_version.clone().expect("a guarded write");
                if version(&sent()) == version(lease) { self.store(sent()) } else { status(409, "Conflict") }
            }
            other => panic!("unexpected request {other:?}"),
        }
    }

    fn store(&mut self, mut lease: Lease) -> Response<Body> {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        reply(200, json!(lease))
    }
}

fn reply(code: u16, value: serde_json::Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(value.to_string().into_bytes())).unwrap()
}

fn status(code: u16, reason: &str) -> Response<Body> {
    reply(
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"}),
    )
}

fn settings() -> config::LeaderElection {
    config::LeaderElection {
        leader_elect: true,
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(50),
        resource_name: "election".to_owned(),
        resource_namespace: "ns".to_owned(),
    }
}

/// A Lease that somebody holds, by a clock that is years ahead of ours.
fn held_by(holder: &str) -> Lease {
    let ahead = Timestamp::from_second(9_000_000_000).unwrap();
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(1),
        lease_transitions: Some(6),
        acquire_time: Some(MicroTime(ahead)),
        renew_time: Some(MicroTime(ahead)),
        ..LeaseSpec::default()
    };
    Lease { spec: Some(spec), ..Lease::default() }
}

async fn wait_for(task: &LeaseTask, wanted: impl FnMut(&Leadership) -> bool) -> Leadership {
    let mut leadership = task.leadership();
    let found = tokio::time::timeout(PATIENCE, leadership.wait_for(wanted)).await;
    *found.expect("in time").expect("a living task")
}

async fn wait_to_lead(task: &LeaseTask) -> Instant {
    match wait_for(task, |leadership| matches!(leadership, Leadership::Leading { .. })).await {
        Leadership::Leading { deadline } => deadline,
        other => panic!("{other:?}"),
    }
}

async fn ended(task: &mut LeaseTask) -> Ended {
    tokio::time::timeout(PATIENCE, task.ended()).await.expect("in time")
}

/// Tests that a Lease is created where there is none, and renewed without changing hands.
#[tokio::test]
async fn acquires_and_renews() {
    let api = FakeApi::new(None);
    let task = api.stand("a");
    let first = wait_to_lead(&task).await;
    assert!(task.token().is_valid());
    let acquired = api.spec();
    assert_eq!(acquired.holder_identity.as_deref(), Some("a"));
    assert_eq!((acquired.lease_duration_seconds, acquired.lease_transitions), (Some(3), Some(0)));
    wait_for(&task, |now| matches!(now, Leadership::Leading { deadline } if *deadline > first)).await;
    let renewed = api.spec();
    assert_eq!(renewed.acquire_time, acquired.acquire_time);
    assert!(renewed.renew_time > acquired.renew_time);
    assert_eq!(renewed.lease_transitions, Some(0));
}

/// Tests that a dead holder is replaced after its term by our clock, though its own clock says it renewed in the future.
#[tokio::test]
async fn takes_over_from_a_dead_holder() {
    let api = FakeApi::new(Some(held_by("dead")));
    let begun = Instant::now();
    let task = api.stand("a");
    wait_to_lead(&task).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "took over within the holder's term");
    assert_eq!((api.spec().holder_identity.as_deref(), api.spec().lease_transitions), (Some("a"), Some(7)));
}

/// Tests that of two candidates one leads, and the other as soon as the first has released.
#[tokio::test]
async fn the_second_leads_after_the_first_released() {
    let api = FakeApi::new(None);
    let first = api.stand("a");
    wait_to_lead(&first).await;
    let second = api.stand("b");
    let token = first.token();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(token.is_valid() && !second.token().is_valid());

    assert_eq!(first.release().await, Ended::Released);
    assert!(!token.is_valid());
    wait_to_lead(&second).await;
    assert!(second.token().is_valid());
    assert_eq!((api.spec().holder_identity.as_deref(), api.spec().lease_transitions), (Some("b"), Some(1)));
}

/// Tests that a released Lease has the form client-go gives it.
#[tokio::test]
async fn releases_in_client_go_s_form() {
    let api = FakeApi::new(None);
    let task = api.stand("a");
    wait_to_lead(&task).await;
    // A foreign write in between: the release has to read again.
    api.edit(|lease| lease.metadata.labels = Some([("by".to_owned(), "hand".to_owned())].into()));
    assert_eq!(task.release().await, Ended::Released);
    assert_eq!(api.spec().holder_identity.as_deref(), Some(""));
    assert_eq!(api.spec().lease_duration_seconds, Some(1));
}

/// Tests that a conflict that took nothing from us does not end the leadership.
#[tokio::test]
async fn survives_a_harmless_conflict() {
    let api = FakeApi::new(None);
    let task = api.stand("a");
    let first = wait_to_lead(&task).await;
    api.edit(|lease| lease.metadata.labels = Some([("by".to_owned(), "hand".to_owned())].into()));
    wait_for(&task, |now| matches!(now, Leadership::Leading { deadline } if *deadline > first)).await;
    let lease = api.0.lock().unwrap().lease.clone().unwrap();
    assert!(lease.metadata.labels.is_some(), "our write keeps what others wrote");
}

/// Tests that a leader stops at once when it finds another's name.
#[tokio::test]
async fn another_holder_ends_it() {
    let api = FakeApi::new(None);
    let mut task = api.stand("a");
    wait_to_lead(&task).await;
    api.edit(|lease| lease.spec = held_by("b").spec);
    assert_eq!(ended(&mut task).await, Ended::Lost);
    assert!(!task.token().is_valid());
    assert_eq!(*task.leadership().borrow(), Leadership::Lost);
}

/// Tests that errors and silence alike end the leadership at the deadline, not before and not much later.
#[tokio::test]
async fn without_answers_lost_at_the_deadline() {
    for mood in [Mood::Failing, Mood::Silent] {
        let api = FakeApi::new(None);
        let mut task = api.stand("a");
        wait_to_lead(&task).await;
        api.set_mood(mood);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(task.token().is_valid(), "{mood:?}");
        assert_eq!(ended(&mut task).await, Ended::Lost, "{mood:?}");
        assert!(!task.token().is_valid(), "{mood:?}");
        // Asking again is allowed.
        assert_eq!(ended(&mut task).await, Ended::Lost, "{mood:?}");
    }
}

/// Tests that the token runs out although the task cannot run at all, as in a stopped process.
#[tokio::test(flavor = "current_thread")]
async fn token_runs_out_while_the_task_is_starved() {
    let api = FakeApi::new(None);
    let task = api.stand("a");
    let deadline = wait_to_lead(&task).await;
    let token = task.token();
    // Blocks the only thread there is.
    std::thread::sleep(deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    while token.is_valid() {
        // A renewal may have been under way and moved the deadline before the thread was blocked: not more than one.
        assert!(deadline.elapsed() < Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Tests that a candidate outlives failures: it has nothing to lose.
#[tokio::test]
async fn a_standby_waits_for_a_failing_server() {
    let api = FakeApi::new(None);
    api.set_mood(Mood::Failing);
    let task = api.stand("a");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(*task.leadership().borrow(), Leadership::Standby);
    api.set_mood(Mood::Well);
    wait_to_lead(&task).await;
}

/// Tests that a task that died is noticed, and that nobody leads then.
#[tokio::test]
async fn a_dead_task_is_noticed() {
    let api = FakeApi::new(None);
    let mut task = api.stand("a");
    wait_to_lead(&task).await;
    task.task.abort();
    assert!(matches!(ended(&mut task).await, Ended::Died(_)));
    assert!(!task.token().is_valid());
}
