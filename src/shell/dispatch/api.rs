//! One request to the API server, and what its answer is worth.
//!
//! Invariant: nothing is sent without a valid leader token, and every request ends within its time limit. kube's own
//! retries are off (see `run`): only the lanes know what repeating means, and they need to see `Retry-After`.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;

use super::FIELD_MANAGER;
use crate::model::PodId;
use crate::shell::connect::causes;
use crate::shell::lease::LeaderToken;

/// The longest `Retry-After` that is obeyed; a server that asks for more is asked again then.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Longest refusal that is passed on to people.
const LONGEST_TEXT: usize = 1024;

/// Sends requests on one connection pool of its own, so that lanes do not wait for each other's.
#[derive(Clone)]
pub struct Caller {
    client: kube::Client,
    token: LeaderToken,
    timeout: Duration,
}

/// What the API server answered.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// When to come again, if it says so.
    pub retry_after: Option<Duration>,
    /// The document.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Another replica may be leading; nothing was sent.
    #[error("this replica does not lead")]
    NotLeader,
    /// Whether the request was carried out is unknown.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Whether the request was carried out is unknown.
    #[error("{0}")]
    Transport(String),
}

impl Caller {
    /// A caller that gives each request `timeout`.
    pub fn new(client: kube::Client, token: LeaderToken, timeout: Duration) -> Caller {
        Caller { client, token, timeout }
    }

    /// Sends a document about a pod; an empty one to read.
    pub async fn call(&self, call: Call, pod: &PodId, body: Vec<u8>) -> Result<Answer, NoAnswer> {
        self.call_for(call, &pod.namespace, &pod.name, body).await
    }

    /// Sends a document about an object of that name; what has no namespace leaves it out of account.
    pub async fn call_for(
        &self,
        call: Call,
        namespace: &str,
        name: &str,
        body: Vec<u8>,
    ) -> Result<Answer, NoAnswer> {
        if !self.token.is_valid() {
            return Err(NoAnswer::NotLeader);
        }
        match tokio::time::timeout(self.timeout, self.send(call, namespace, name, body)).await {
            Ok(result) => result.map_err(NoAnswer::Transport),
            Err(_) => Err(NoAnswer::TimedOut(self.timeout)),
        }
    }

    async fn send(&self, call: Call, namespace: &str, name: &str, body: Vec<u8>) -> Result<Answer, String> {
        let request = Request::builder()
            .method(call.method())
            .uri(call.path(namespace, name))
            .header(header::CONTENT_TYPE, call.content_type())
            .header(header::ACCEPT, JSON)
            .body(Body::from(body))
            .map_err(|error| error.to_string())?;
        let response = self.client.send(request).await.map_err(|error| causes(&error))?;
        let (parts, body) = response.into_parts();
        let retry_after = parts.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let seconds = retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        // Read to its end: only then does the connection serve the next request.
        let body = body.collect_bytes().await.map_err(|error| causes(&error))?;
        Ok(Answer {
            status: parts.status,
            retry_after: seconds.map(|wait| wait.min(LONGEST_RETRY_AFTER)),
            body,
        })
    }
}

/// Everything the lanes ask of the API server. Method and path follow from the right that the request needs, so that no
/// request can be sent that [`Call::ALL`] does not show to whoever writes the roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Bind a pod.
    Bind,
    /// Look at a pod.
    ReadPod,
    /// Change a pod's condition.
    PatchStatus,
    /// End a pod.
    DeletePod,
    /// Write an event about a pod.
    CreateEvent,
    /// Choose a node for a claim.
    PatchClaim,
    /// Keep a volume for a claim.
    PatchVolume,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 7] = [
        Call::Bind,
        Call::ReadPod,
        Call::PatchStatus,
        Call::DeletePod,
        Call::CreateEvent,
        Call::PatchClaim,
        Call::PatchVolume,
    ];

    /// The right it needs: API group, resource, verb.
    pub const fn right(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Call::Bind => ("", "pods/binding", "create"),
            Call::ReadPod => ("", "pods", "get"),
            Call::PatchStatus => ("", "pods/status", "patch"),
            Call::DeletePod => ("", "pods", "delete"),
            Call::CreateEvent => ("events.k8s.io", "events", "create"),
            Call::PatchClaim => ("", "persistentvolumeclaims", "patch"),
            Call::PatchVolume => ("", "persistentvolumes", "patch"),
        }
    }

    fn method(self) -> Method {
        match self.right().2 {
            "create" => Method::POST,
            "patch" => Method::PATCH,
            "delete" => Method::DELETE,
            _ => Method::GET,
        }
    }

    /// Names come from the API and hold nothing that a path would not.
    fn path(self, namespace: &str, name: &str) -> String {
        let (group, resource, _) = self.right();
        let api = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
        let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
        let path = match (self, part) {
            (Call::CreateEvent, _) => format!("{api}/namespaces/{namespace}/{kind}"),
            (Call::PatchVolume, _) => format!("{api}/{kind}/{name}"),
            (_, "") => format!("{api}/namespaces/{namespace}/{kind}/{name}"),
            (_, part) => format!("{api}/namespaces/{namespace}/{kind}/{name}/{part}"),
        };
        match self {
            Call::Bind | Call::ReadPod | Call::DeletePod => path,
            _ => format!("{path}?fieldManager={FIELD_MANAGER}"),
        }
    }

    /// A status patch merges lists by key.
    fn content_type(self) -> &'static str {
        match self {
            Call::PatchStatus => "application/strategic-merge-patch+json",
            Call::PatchClaim | Call::PatchVolume => "application/merge-patch+json",
            _ => JSON,
        }
    }
}

/// The type of ordinary documents.
const JSON: &str = "application/json";

impl Answer {
    /// Whether the same request may succeed later: the server is overloaded, broken or on its way up.
    pub fn is_temporary(&self) -> bool {
        let busy = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        busy || self.status.is_server_error()
    }

    /// Whether the API server itself says that there is no object of this name. A proxy before it, or a server that does not
    /// serve the path yet, answers 404 in other words.
    pub fn says_missing(&self, name: &str) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            reason: String,
            details: Details,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Details {
            name: String,
        }
        let status: Status = serde_json::from_slice(&self.body).unwrap_or_default();
        self.status == StatusCode::NOT_FOUND && status.reason == "NotFound" && status.details.name == name
    }

    /// The API server's own words, or what stands in their place.
    pub fn text(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            message: String,
        }
        let text = match serde_json::from_slice::<Status>(&self.body) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(&self.body).trim().to_owned(),
        };
        match text.as_str() {
            "" => self.status.to_string(),
            text => text.chars().take(LONGEST_TEXT).collect(),
        }
    }
}

/// Pauses between attempts at one thing: doubling from a first to a longest, never shorter than the server asks for.
/// Without chance: there is one of us, not a herd.
#[derive(Debug)]
pub struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    /// Pauses from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Pause {
        Pause { next: first, longest }
    }

    /// How long to wait now.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause.max(retry_after.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_follow_from_rights() {
        let pod = PodId { namespace: "ns".into(), name: "p".into(), uid: "u".into() };
        let requests =
            Call::ALL.map(|call| format!("{} {}", call.method(), call.path(&pod.namespace, &pod.name)));
        assert_eq!(
            requests,
            [
                "POST /api/v1/namespaces/ns/pods/p/binding",
                "GET /api/v1/namespaces/ns/pods/p",
                "PATCH /api/v1/namespaces/ns/pods/p/status?fieldManager=mig-scheduler",
                "DELETE /api/v1/namespaces/ns/pods/p",
                "POST /apis/events.k8s.io/v1/namespaces/ns/events?fieldManager=mig-scheduler",
                "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/p?fieldManager=mig-scheduler",
                "PATCH /api/v1/persistentvolumes/p?fieldManager=mig-scheduler",
            ]
        );
    }
}
