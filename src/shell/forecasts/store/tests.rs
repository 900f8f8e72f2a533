//! The ConfigMap against an API server that answers as told.

use axum::http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

type Handle = tower_test::mock::Handle<Request<Body>, Response<Body>>;

fn store(token: LeaderToken) -> (Store, Handle) {
    let (service, handle) = tower_test::mock::pair();
    let client = kube::Client::new(service, "default");
    (Store::new(client, ("ns", "weights"), token, Duration::from_secs(1), "host_1"), handle)
}

/// Takes one request; its method and path, and its document.
async fn answer(handle: &mut Handle, status: u16, body: Value) -> (String, Value) {
    let (request, send) = handle.next_request().await.unwrap();
    let asked = format!("{} {}", request.method(), request.uri().path());
    let sent = request.into_body().collect_bytes().await.unwrap();
    let status = StatusCode::from_u16(status).unwrap();
    let bytes = serde_json::to_vec(&body).unwrap();
    send.send_response(Response::builder().status(status).body(Body::from(bytes)).unwrap());
    (asked, serde_json::from_slice(&sent).unwrap_or(Value::Null))
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

/// Something learnt.
fn learnt(weights: &[u8]) -> Kept {
    Kept { model: "{}".to_owned(), gate: "[]".to_owned(), weights: weights.to_vec() }
}

fn map(version: &str, weights: &[u8]) -> Value {
    let (store, _handle) = store(LeaderToken::unelected());
    let mut map = store.map(learnt(weights));
    map.metadata.resource_version = Some(version.to_owned());
    serde_json::to_value(map).unwrap()
}

#[tokio::test]
async fn weights_come_back_as_they_were_saved() {
    let (mut store, mut handle) = store(LeaderToken::unelected());
    let server = async {
        let missing = answer(&mut handle, 404, failure(404, "NotFound")).await.0;
        let (created, document) = answer(&mut handle, 201, map("1", b"abc")).await;
        let (replaced, second) = answer(&mut handle, 200, map("2", b"abcd")).await;
        ([missing, created, replaced], document, second)
    };
    let client = async {
        store.save(learnt(b"abc")).await?;
        store.save(learnt(b"abcd")).await
    };
    let ((asked, document, second), saved) = tokio::join!(server, client);
    saved.unwrap();
    let path = "/api/v1/namespaces/ns/configmaps";
    assert_eq!(asked, [format!("GET {path}/weights"), format!("POST {path}"), format!("PUT {path}/weights")]);
    assert_eq!(second["metadata"]["resourceVersion"], "1", "only over what was read");

    let (mut successor, mut handle) = self::store(LeaderToken::unelected());
    let server = answer(&mut handle, 200, document);
    let (_, loaded) = tokio::join!(server, successor.load());
    assert_eq!(loaded.unwrap().unwrap(), learnt(b"abc"));
}

#[tokio::test]
async fn what_somebody_else_wrote_is_not_overwritten() {
    let (mut store, mut handle) = store(LeaderToken::unelected());
    let server = async {
        answer(&mut handle, 200, map("7", b"abc")).await;
        answer(&mut handle, 409, failure(409, "Conflict")).await.0
    };
    let client = async {
        store.load().await.unwrap();
        store.save(learnt(b"new")).await
    };
    let (asked, saved) = tokio::join!(server, client);
    assert_eq!(
        (asked.as_str(), saved),
        ("PUT /api/v1/namespaces/ns/configmaps/weights", Err(StoreError::Conflict))
    );
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let (mut store, mut handle) = store(LeaderToken::standby());
    let server = answer(&mut handle, 404, failure(404, "NotFound"));
    let (_, saved) = tokio::join!(server, store.save(learnt(b"abc")));
    assert_eq!(saved, Err(StoreError::NotLeader));
    let large = store.save(learnt(&vec![0; SIZE_LIMIT])).await;
    assert_eq!(large, Err(StoreError::TooLarge(SIZE_LIMIT + 4)));
    store.tell_refused("x").await;
    drop(store);
    assert!(handle.next_request().await.is_none());
}

#[track_caller]
fn refused(change: impl Fn(&mut ConfigMap), expected: &str) {
    let mut map: ConfigMap = serde_json::from_value(map("1", b"abc")).unwrap();
    assert!(kept(map.clone()).is_ok());
    change(&mut map);
    assert_eq!(kept(map).unwrap_err(), expected);
}

#[tokio::test]
async fn what_was_not_written_by_us_is_refused() {
    let set = |key: &'static str, value: &'static str| {
        move |map: &mut ConfigMap| {
            map.data.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
        }
    };
    refused(set("schema", "v9"), r#"its schema is "v9", not "mig-scheduler.io/forecast-v1""#);
    refused(|map| map.data = None, r#"its schema is "", not "mig-scheduler.io/forecast-v1""#);
    refused(set("model", "{ }"), "its parts do not have the hash that stands beside them");
    refused(set("sha256", "00"), "its parts do not have the hash that stands beside them");
    refused(|map| map.binary_data = None, "it has no binaryData.weights");
    let torn = |map: &mut ConfigMap| {
        map.binary_data = Some([("weights".to_owned(), ByteString(b"ab".to_vec()))].into());
    };
    refused(torn, "its parts do not have the hash that stands beside them");
}

#[tokio::test]
async fn people_are_told() {
    let (store, mut handle) = store(LeaderToken::unelected());
    let server = answer(&mut handle, 201, json!({"metadata": {}, "eventTime": null}));
    let ((asked, event), ()) = tokio::join!(server, store.tell_refused("its schema is odd"));
    assert_eq!(asked, "POST /apis/events.k8s.io/v1/namespaces/ns/events");
    assert_eq!(event["reason"], "ForecastStateRefused");
    // The API server takes a prefix that would be a name itself, but for a dash at its end.
    assert_eq!(event["metadata"]["generateName"], "weights-");
    assert_eq!(event["note"], "What the forecaster had learnt is not used: its schema is odd");
    assert_eq!(event["regarding"]["name"], "weights");
}
