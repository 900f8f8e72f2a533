//! The lanes against an API server that follows a script.
//!
//! A script is a list of exchanges `METHOD answer`. Answers: a status with an optional text (`409 already bound`), `drop` (the
//! connection breaks), `hang` (no answer), `429 after` (with `Retry-After: 1`), and for `GET` the pod: `pod NODE` (`-` for
//! none), `other` (another uid), `dying` (being deleted), `garbage`, `gone` (the API server's own 404).

use std::time::Instant;

use axum::http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower_test::mock;

use super::api::Answer;
use super::*;
use crate::model::{NodeName, PodId};

type Handle = mock::Handle<Request<Body>, Response<Body>>;

/// Long enough for a machine that is busy with other tests, and waited for where a script says `hang`.
const TIMEOUT: Duration = Duration::from_millis(500);

fn pod() -> PodId {
    PodId { namespace: "ns".into(), name: "p".into(), uid: "u-1".into() }
}

fn binding() -> Binding {
    Binding { pod: pod(), node: "n0".into(), placements: Vec::new() }
}

fn caller(token: LeaderToken) -> (Caller, Handle) {
    let (service, handle) = mock::pair();
    (Caller::new(kube::Client::new(service, "default"), token, TIMEOUT), handle)
}

fn document(answer: &str) -> Value {
    let view = |uid: &str, node: &str| json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}});
    match answer {
        "other" => view("u-2", ""),
        "dying" => {
            let mut view = view("u-1", "");
            view["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
            view
        }
        "pod -" => view("u-1", ""),
        _ => view("u-1", answer.trim_start_matches("pod ")),
    }
}

fn response(answer: &str) -> Response<Body> {
    let builder = Response::builder();
    let built = match answer.split_once(' ').unwrap_or((answer, "")) {
        ("other" | "dying" | "pod", _) => builder.body(Body::from(document(answer).to_string().into_bytes())),
        ("gone", _) => {
            let status =
                json!({"kind": "Status", "reason": "NotFound", "details": {"name": "p", "kind": "pods"}});
            builder.status(404).body(Body::from(status.to_string().into_bytes()))
        }
        ("garbage", _) => builder.body(Body::from(b"<html>".to_vec())),
        (code, "after") => builder.status(code).header("Retry-After", "1").body(Body::empty()),
        (code, "") => builder.status(code).body(Body::empty()),
        (code, text) => {
            builder.status(code).body(Body::from(json!({"message": text}).to_string().into_bytes()))
        }
    };
    built.unwrap()
}

/// Serves the script and returns the bodies it was sent.
async fn serve(mut handle: Handle, script: &[&str]) -> Vec<Value> {
    let mut bodies = Vec::new();
    let mut hanging = Vec::new();
    for exchange in script {
        let (method, answer) = exchange.split_once(' ').unwrap();
        let (request, send) = handle.next_request().await.unwrap();
        assert_eq!(request.method().as_str(), method, "{script:?}");
        assert!(request.uri().path().starts_with("/api/v1/namespaces/ns/pods/p"), "{}", request.uri());
        let body = request.into_body().collect_bytes().await.unwrap();
        bodies.push(serde_json::from_slice(&body).unwrap_or_default());
        match answer {
            "drop" => send.send_error("connection reset"),
            "hang" => hanging.push(send),
            answer => send.send_response(response(answer)),
        }
    }
    bodies
}

/// Runs one bind through its lane.
async fn bind_by(script: &[&str]) -> (BindOutcome, Vec<Value>) {
    let (caller, handle) = caller(LeaderToken::unelected());
    let (mut lane, worker) = bind::lane(caller, StatusLane::new(), 2);
    lane.submit(binding());
    assert_eq!((lane.room(), lane.in_flight()), (1, 1));
    let finished = async {
        let finished = lane.next().await.unwrap();
        assert_eq!(lane.in_flight(), 0);
        drop(lane);
        finished
    };
    let all = async { tokio::join!(finished, worker.run(), serve(handle, script)) };
    let (finished, (), bodies) = tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
    assert_eq!(bodies.len(), script.len());
    (finished.outcome, bodies)
}

async fn check(script: &[&str], expected: BindOutcome) {
    assert_eq!(bind_by(script).await.0, expected, "{script:?}");
}

fn elsewhere() -> BindOutcome {
    BindOutcome::BoundElsewhere(NodeName::from("n1"))
}

#[tokio::test]
async fn a_bind_names_the_pod_by_uid() {
    let (outcome, bodies) = bind_by(&["POST 201"]).await;
    assert_eq!(outcome, BindOutcome::Bound);
    assert_eq!(
        bodies,
        [json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"namespace": "ns", "name": "p", "uid": "u-1"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"},
        })]
    );
}

#[tokio::test]
async fn a_conflict_is_told_apart_by_looking() {
    check(&["POST 409 taken", "GET pod n0"], BindOutcome::Bound).await;
    check(&["POST 409 taken", "GET pod n1"], elsewhere()).await;
    check(&["POST 409 uid", "GET other"], BindOutcome::Gone).await;
    check(&["POST 409 gone", "GET gone"], BindOutcome::Gone).await;
    check(&["POST 409 dying", "GET dying"], BindOutcome::Gone).await;
    check(&["POST 409 no reason", "GET pod -"], BindOutcome::Refused("no reason".to_owned())).await;
    check(&["POST 409 text", "GET 403", "GET pod -"], BindOutcome::Refused("text".to_owned())).await;
}

#[tokio::test]
async fn refusals_are_passed_on() {
    check(&["POST 403 may not bind"], BindOutcome::Refused("may not bind".to_owned())).await;
    check(&["POST 422"], BindOutcome::Refused("422 Unprocessable Entity".to_owned())).await;
}

#[tokio::test]
async fn what_broke_off_is_looked_at_and_repeated() {
    check(&["POST drop", "GET pod n0"], BindOutcome::Bound).await;
    check(&["POST drop", "GET pod -", "POST 201"], BindOutcome::Bound).await;
    check(&["POST 500 broken", "GET pod n1"], elsewhere()).await;
    check(&["POST hang", "GET pod -", "POST 201"], BindOutcome::Bound).await;
    check(&["POST hang", "GET hang", "GET drop", "GET 503", "GET other"], BindOutcome::Gone).await;
    check(&["POST 500", "GET garbage", "GET pod n0"], BindOutcome::Bound).await;
    check(&["POST drop", "GET pod -", "POST 409 taken", "GET pod n0"], BindOutcome::Bound).await;
}

/// A proxy that has lost its server answers 404 as well, and the slice of a pod that is taken for gone is given away.
#[tokio::test]
async fn a_pod_is_gone_when_the_api_server_says_so() {
    check(&["POST gone", "GET gone"], BindOutcome::Gone).await;
    check(&["POST 404", "GET pod n0"], BindOutcome::Bound).await;
    check(&["POST drop", "GET 404 page not found", "GET pod n0"], BindOutcome::Bound).await;
    check(&["POST 404", "GET pod -", "POST 201"], BindOutcome::Bound).await;
    check(&["POST 408", "GET 408", "GET pod n0"], BindOutcome::Bound).await;
}

/// An API server that has just been restarted refuses everything until it has read its roles. A bind that landed before and
/// whose answer was lost must not be taken for refused: its slice would be given away.
#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_no_answer() {
    check(&["POST drop", "GET 403", "GET pod n0"], BindOutcome::Bound).await;
    check(&["POST drop", "GET pod -", "POST 403 not yet", "GET 401", "GET pod n0"], BindOutcome::Bound).await;
    check(&["POST drop", "GET pod -", "POST 403 no", "GET pod -"], BindOutcome::Refused("no".to_owned()))
        .await;
}

#[tokio::test]
async fn a_busy_server_is_given_the_time_it_asks_for() {
    let started = Instant::now();
    check(&["POST 429 after", "POST 201"], BindOutcome::Bound).await;
    assert!(started.elapsed() >= Duration::from_secs(1));
    check(&["POST 429", "POST 429", "POST 201"], BindOutcome::Bound).await;
}

#[tokio::test]
async fn nothing_is_sent_without_leadership() {
    let (caller, mut handle) = caller(LeaderToken::standby());
    let answer = caller.call(Call::ReadPod, &pod(), Vec::new()).await;
    assert!(matches!(answer, Err(api::NoAnswer::NotLeader)));
    let (mut lane, worker) = bind::lane(caller, StatusLane::new(), 1);
    lane.submit(binding());
    worker.run().await;
    assert!(lane.next().await.is_none(), "the lane ends without an answer, as the process does");
    drop(lane);
    assert!(handle.next_request().await.is_none());
}

#[tokio::test]
async fn refusals_come_in_the_servers_words() {
    let text = |body: &str| {
        let answer = Answer {
            status: axum::http::StatusCode::BAD_REQUEST,
            retry_after: None,
            body: body.to_owned().into(),
        };
        answer.text()
    };
    assert_eq!(text(r#"{"kind":"Status","message":"no"}"#), "no");
    assert_eq!(text(" plain\n"), "plain");
    assert_eq!(text(""), "400 Bad Request");
    assert_eq!(text(&"x".repeat(5000)).len(), 1024);
}

/// Has one report written by the lane, which meets these answers.
async fn patch_by(script: &[&str]) -> Vec<Value> {
    let metrics = Arc::new(Metrics::new("test"));
    let (caller, handle) = caller(LeaderToken::unelected());
    let lane = StatusLane::new();
    lane.report(UnschedulableReport {
        pod: pod(),
        generation: 2,
        reason: UnschedulableReason::Unschedulable,
        message: "one".to_owned(),
        nominated: None,
        publish: false,
    });
    let served = tokio::time::timeout(Duration::from_secs(20), serve(handle, script));
    tokio::select! {
        served = served => served.unwrap(),
        () = status::run(lane.clone(), caller, 1, metrics) => unreachable!("it leads"),
    }
}

#[tokio::test]
async fn conditions_are_patched_until_written() {
    let script = ["PATCH 503", "PATCH drop", "PATCH hang", "PATCH 403 not yet", "PATCH 200"];
    for body in patch_by(&script).await {
        assert_eq!(body["status"]["conditions"][0]["message"], "one");
        assert_eq!(body["status"]["conditions"][0]["observedGeneration"], 2);
    }
}

/// None of these answers says that the pod's condition is not wanted.
#[tokio::test]
async fn a_condition_outlasts_what_may_pass() {
    for status in ["401", "403", "404", "408", "409 busy", "429", "500", "502"] {
        let refusal = format!("PATCH {status}");
        assert_eq!(patch_by(&[&refusal, "PATCH 200"]).await.len(), 2, "{status}");
    }
}

/// A lane of one place: a pod whose patch fails does not keep the next one waiting.
#[tokio::test]
async fn a_report_that_pauses_holds_no_place() {
    let (caller, mut handle) = caller(LeaderToken::unelected());
    let lane = StatusLane::new();
    for name in ["first", "second"] {
        lane.report(UnschedulableReport {
            pod: PodId { namespace: "ns".into(), name: name.into(), uid: name.into() },
            generation: 0,
            reason: UnschedulableReason::Unschedulable,
            message: "no room".to_owned(),
            nominated: None,
            publish: false,
        });
    }
    let order = async {
        let mut paths = Vec::new();
        for answer in ["503", "200", "200"] {
            let (request, send) = handle.next_request().await.unwrap();
            paths.push(request.uri().path().to_owned());
            send.send_response(response(answer));
        }
        paths
    };
    let paths = tokio::select! {
        paths = order => paths,
        () = status::run(lane.clone(), caller, 1, Arc::new(Metrics::new("test"))) => unreachable!("it leads"),
    };
    let of = |name| format!("/api/v1/namespaces/ns/pods/{name}/status");
    assert_eq!(paths, [of("first"), of("second"), of("first")]);
}

#[tokio::test]
async fn a_condition_that_is_refused_is_counted() {
    let metrics = Arc::new(Metrics::new("test"));
    let (caller, handle) = caller(LeaderToken::unelected());
    let lane = StatusLane::new();
    lane.report(UnschedulableReport {
        pod: pod(),
        generation: 0,
        reason: UnschedulableReason::SchedulerError,
        message: "m".to_owned(),
        nominated: None,
        publish: false,
    });
    let served = async {
        serve(handle, &["PATCH 422 bad"]).await;
        while !metrics
            .encode()
            .unwrap()
            .contains("async_api_call_drops_total{call_type=\"pod_status_patch\"} 1")
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        served = tokio::time::timeout(Duration::from_secs(5), served) => served.unwrap(),
        () = status::run(lane.clone(), caller, 2, metrics.clone()) => unreachable!("it leads"),
    }
}

/// A dispatcher whose lanes all talk to one server.
fn dispatcher(tasks: &mut JoinSet<&'static str>) -> (Dispatcher, Handle) {
    let (service, handle) = mock::pair();
    let client = kube::Client::new(service, "default");
    let clients =
        Clients { binds: client.clone(), claims: client.clone(), status: client.clone(), events: client };
    let reporter = Reporter { controller: "mig-scheduler".to_owned(), instance: "test".to_owned() };
    let (token, metrics) = (LeaderToken::unelected(), Arc::new(Metrics::new("test")));
    (Dispatcher::open(clients, &Config::default(), &token, reporter, metrics, tasks), handle)
}

/// A patch is under way and the pod finds a place: were the patch to land after the bind, the running pod would be called
/// unschedulable.
#[tokio::test]
async fn a_bind_waits_for_the_patch_under_way() {
    let mut tasks = JoinSet::new();
    let (mut dispatcher, mut handle) = dispatcher(&mut tasks);
    dispatcher.carry_out(Effect::ReportUnschedulable(UnschedulableReport {
        pod: pod(),
        generation: 0,
        reason: UnschedulableReason::Unschedulable,
        message: "no room".to_owned(),
        nominated: None,
        publish: false,
    }));
    let (patch, answer) = handle.next_request().await.unwrap();
    assert_eq!(patch.method(), Method::PATCH);
    dispatcher.carry_out(Effect::Bind(binding()));
    let moment = Duration::from_millis(50);
    assert!(tokio::time::timeout(moment, handle.next_request()).await.is_err(), "the patch is under way");
    answer.send_response(response("503"));
    let served = tokio::join!(serve(handle, &["POST 201"]), dispatcher.next_finished());
    assert!(matches!(served.1, Event::BindFinished { outcome: BindOutcome::Bound, .. }));
}

#[tokio::test]
async fn a_dry_run_binds_on_paper() {
    let mut dispatcher = Dispatcher::dry(Arc::new(Metrics::new("test")));
    let room = dispatcher.room();
    dispatcher.carry_out(Effect::Bind(binding()));
    assert_eq!((dispatcher.room(), dispatcher.binds_in_flight()), (room - 1, 1));
    let expected = Event::BindFinished { uid: "u-1".into(), node: "n0".into(), outcome: BindOutcome::Bound };
    assert_eq!(dispatcher.next_finished().await, expected);
    assert_eq!(dispatcher.try_next_finished(), None);
}
