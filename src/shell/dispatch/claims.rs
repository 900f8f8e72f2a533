//! The claim lane: writes for which node or volume the claims of a pod are meant.
//!
//! Invariant: each write names the version of its object, so it lands on what the decision was made from or not at all; what
//! lands late, or after it was given up, is the same write that the next decision would make or take into account. So, unlike a
//! bind, one without a definite answer may be given up: the pod is decided about anew by what the watches show.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::{Call, Caller, NoAnswer, Pause};
use crate::effect::{ClaimWrite, ClaimWrites};
use crate::model::PodId;
use crate::shell::convert::SELECTED_NODE;

/// Set on a volume that was not bound to its claim by a person.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Pauses between attempts, and how many there are: some ten seconds together.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 10;

/// Writes about the claims of a pod that have ended.
#[derive(Debug)]
pub struct Written {
    /// The pod.
    pub pod: PodId,
    /// The attempt that asked for them.
    pub attempt: u64,
    /// The version of each object after its write, or the first refusal.
    pub outcome: Result<Vec<u64>, String>,
    /// From when they were handed in until now.
    pub took: Duration,
}

/// The engine loop's end of the lane.
#[derive(Debug)]
pub struct ClaimLane {
    requests: mpsc::Sender<(ClaimWrites, Instant)>,
    written: mpsc::Receiver<Written>,
    capacity: usize,
    in_flight: usize,
}

/// The lane's task.
pub struct Worker {
    caller: Caller,
    capacity: usize,
    requests: mpsc::Receiver<(ClaimWrites, Instant)>,
    written: mpsc::Sender<Written>,
}

/// A lane for `capacity` pods at once, and its task. Both channels hold as many, so neither ever waits.
pub fn lane(caller: Caller, capacity: usize) -> (ClaimLane, Worker) {
    let (requests, incoming) = mpsc::channel(capacity);
    let (outgoing, written) = mpsc::channel(capacity);
    let worker = Worker { caller, capacity, requests: incoming, written: outgoing };
    (ClaimLane { requests, written, capacity, in_flight: 0 }, worker)
}

impl ClaimLane {
    /// How many pods it can take up now.
    pub fn room(&self) -> usize {
        self.capacity - self.in_flight
    }

    /// How many it is busy with.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes up the writes for a pod. Only while there is room.
    pub fn submit(&mut self, writes: ClaimWrites) {
        match self.requests.try_send((writes, Instant::now())) {
            Ok(()) => self.in_flight += 1,
            // The task has ended: it panicked or the lease is lost, and either ends the process.
            Err(error) => tracing::error!(%error, "Claim lane takes nothing more."),
        }
    }

    /// The next pod whose writes end; `None` when the lane's task is gone. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<Written> {
        let written = self.written.recv().await?;
        self.in_flight -= 1;
        Some(written)
    }

    /// The next pod whose writes have ended already.
    pub fn try_next(&mut self) -> Option<Written> {
        let written = self.written.try_recv().ok()?;
        self.in_flight -= 1;
        Some(written)
    }
}

impl Worker {
    /// Writes until the engine loop is gone or this replica no longer leads.
    pub async fn run(mut self) {
        let caller = &self.caller;
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(ended) = running.next() => {
                    let Some(written) = ended else { return };
                    if self.written.send(written).await.is_err() {
                        return;
                    }
                }
                request = self.requests.recv(), if running.len() < self.capacity => {
                    let Some((writes, submitted)) = request else { return };
                    running.push(carry_out(caller, writes, submitted));
                }
            }
        }
    }
}

/// Writes one after the other up to the first refusal; `None` when this replica no longer leads.
async fn carry_out(caller: &Caller, writes: ClaimWrites, submitted: Instant) -> Option<Written> {
    let mut versions = Vec::with_capacity(writes.writes.len());
    let mut outcome = Ok(());
    for write in &writes.writes {
        match send(caller, write, writes.node.as_str()).await {
            Ok(version) => versions.push(version),
            Err(Failed::NotLeader) => return None,
            Err(Failed::Refused(why)) => {
                outcome = Err(why);
                break;
            }
        }
    }
    let outcome = outcome.map(|()| versions);
    Some(Written { pod: writes.pod, attempt: writes.attempt, outcome, took: submitted.elapsed() })
}

enum Failed {
    NotLeader,
    Refused(String),
}

/// Writes; the object's version from then on.
async fn send(caller: &Caller, write: &ClaimWrite, node: &str) -> Result<u64, Failed> {
    let document = body(write, node).to_string().into_bytes();
    let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut problem = String::new();
    let mut retry_after = None;
    for at in 0..ATTEMPTS {
        if at > 0 {
            tokio::time::sleep(pause.next(retry_after.take())).await;
        }
        let (call, namespace, name) = match write {
            ClaimWrite::SelectNode { claim, .. } => (Call::PatchClaim, &*claim.namespace, &*claim.name),
            ClaimWrite::Reserve { volume, .. } => (Call::PatchVolume, "", &**volume),
        };
        match caller.call_for(call, namespace, name, document.clone()).await {
            Ok(answer) if answer.status.is_success() => return Ok(version(&answer.body)),
            Ok(answer) if !answer.is_temporary() => return Err(Failed::Refused(answer.text())),
            Ok(answer) => {
                retry_after = answer.retry_after;
                problem = answer.text();
            }
            Err(NoAnswer::NotLeader) => return Err(Failed::NotLeader),
            Err(error) => problem = error.to_string(),
        }
    }
    Err(Failed::Refused(problem))
}

/// The version of the object in an answer. Zero, which every state of it is as new as, where there is none.
fn version(body: &[u8]) -> u64 {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        resource_version: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: Metadata,
    }
    let object: Object = serde_json::from_slice(body).unwrap_or_default();
    object.metadata.resource_version.parse().unwrap_or_default()
}

/// The patch. Version and uid make the API server refuse it for anything but the object that was decided about.
fn body(write: &ClaimWrite, node: &str) -> Value {
    match write {
        ClaimWrite::SelectNode { uid, version, .. } => json!({"metadata": {
            "uid": &**uid,
            "resourceVersion": version.to_string(),
            "annotations": {SELECTED_NODE: node},
        }}),
        ClaimWrite::Reserve { version, claim, uid, chosen, .. } => {
            let mut metadata = json!({"resourceVersion": version.to_string()});
            if *chosen {
                metadata["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
            let claim = json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": &*claim.namespace,
                "name": &*claim.name,
                "uid": &**uid,
            });
            json!({"metadata": metadata, "spec": {"claimRef": claim}})
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use kube::client::Body;
    use tower_test::mock;

    use super::*;
    use crate::model::ClaimKey;
    use crate::shell::lease::LeaderToken;

    /// Sends both kinds of write to a server that answers with these statuses; the requests, and what came of them.
    async fn written(statuses: &[u16]) -> (Vec<(String, Value)>, Result<Vec<u64>, String>) {
        let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
        let client = kube::Client::new(service, "default");
        let caller = Caller::new(client, LeaderToken::unelected(), Duration::from_secs(1));
        let (mut lane, worker) = lane(caller, 2);
        let claim = ClaimKey { namespace: "ns".into(), name: "data".into() };
        let select = ClaimWrite::SelectNode { claim: claim.clone(), uid: "u".into(), version: 7 };
        let reserve =
            ClaimWrite::Reserve { volume: "v".into(), version: 8, claim, uid: "u".into(), chosen: true };
        let pod = PodId { namespace: "ns".into(), name: "p".into(), uid: "u-1".into() };
        lane.submit(ClaimWrites { pod, node: "n0".into(), attempt: 3, writes: vec![select, reserve] });
        let server = async {
            let mut seen = Vec::new();
            for status in statuses {
                let (request, send) = handle.next_request().await.unwrap();
                let line = format!("{} {}", request.method(), request.uri().path());
                let body = request.into_body().collect_bytes().await.unwrap();
                seen.push((line, serde_json::from_slice(&body).unwrap()));
                let answer = json!({"metadata": {"resourceVersion": "9"}, "message": "no"}).to_string();
                let response = Response::builder().status(*status).body(Body::from(answer.into_bytes()));
                send.send_response(response.unwrap());
            }
            seen
        };
        let ended = async {
            let written = lane.next().await.unwrap();
            assert_eq!((written.attempt, lane.in_flight()), (3, 0));
            drop(lane);
            written.outcome
        };
        let (seen, outcome, ()) = tokio::join!(server, ended, worker.run());
        (seen, outcome)
    }

    #[tokio::test]
    async fn writes_name_the_version_that_was_decided_about() {
        let (seen, outcome) = written(&[200, 200]).await;
        assert_eq!(outcome, Ok(vec![9, 9]));
        let annotations = json!({"volume.kubernetes.io/selected-node": "n0"});
        let claim = json!({"uid": "u", "resourceVersion": "7", "annotations": annotations});
        assert_eq!(
            seen[0],
            (
                "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/data".to_owned(),
                json!({"metadata": claim})
            )
        );
        assert_eq!(seen[1].0, "PATCH /api/v1/persistentvolumes/v");
        assert_eq!(seen[1].1["spec"]["claimRef"]["uid"], "u");
        let annotations = json!({"pv.kubernetes.io/bound-by-controller": "yes"});
        assert_eq!(seen[1].1["metadata"], json!({"resourceVersion": "8", "annotations": annotations}));
    }

    #[tokio::test]
    async fn a_refusal_ends_them_and_a_busy_server_is_asked_again() {
        let (seen, outcome) = written(&[503, 200, 409]).await;
        assert_eq!((seen.len(), outcome), (3, Err("no".to_owned())));
        assert_eq!(seen[0], seen[1]);
    }
}
