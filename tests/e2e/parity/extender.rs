//! A filter extender of kube-scheduler's: it hears which nodes passed every filter, and says which one remains.
//!
//! Invariant: each call waits for one answer of the test, so kube-scheduler binds nothing that the test has not chosen.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::scenario::text;

/// kube-scheduler has filtered the nodes for a pod and waits.
#[derive(Debug)]
pub struct Call {
    /// The pod's uid.
    pub uid: String,
    /// The nodes that it found feasible.
    pub nodes: BTreeSet<String>,
    answer: oneshot::Sender<Option<String>>,
}

impl Call {
    /// Lets one node remain.
    pub fn answer(self, node: &str) {
        self.send(Some(node));
    }

    /// Lets none remain.
    pub fn refuse(self) {
        self.send(None);
    }

    fn send(self, node: Option<&str>) {
        // A scheduler that does not wait any more has been stopped, and the test knows.
        let _ = self.answer.send(node.map(str::to_owned));
    }
}

pub struct Extender {
    address: SocketAddr,
    calls: mpsc::UnboundedReceiver<Call>,
    server: JoinHandle<()>,
}

impl Extender {
    pub async fn start() -> Result<Extender> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for kube-scheduler")?;
        let address = listener.local_addr()?;
        let (sender, calls) = mpsc::unbounded_channel();
        let routes = Router::new().route("/filter", post(filter)).with_state(sender);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                eprintln!("the extender ended: {error}");
            }
        });
        Ok(Extender { address, calls, server })
    }

    /// Its entry in the configuration of kube-scheduler.
    pub fn configuration(&self) -> Value {
        json!({
            "urlPrefix": format!("http://{}", self.address),
            "filterVerb": "filter",
            "nodeCacheCapable": true,
            "httpTimeout": "60s",
        })
    }

    /// The next call.
    pub async fn call(&mut self) -> Result<Call> {
        self.calls.recv().await.context("the extender has ended")
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn filter(State(calls): State<mpsc::UnboundedSender<Call>>, Json(args): Json<Value>) -> Json<Value> {
    let names = args["NodeNames"].as_array().into_iter().flatten();
    let nodes = names.filter_map(Value::as_str).map(str::to_owned).collect();
    let (answer, chosen) = oneshot::channel();
    let uid = text(&args, "/Pod/metadata/uid").to_owned();
    // Both fail only when the test has ended.
    let _ = calls.send(Call { uid, nodes, answer });
    let chosen = chosen.await.unwrap_or_default();
    Json(json!({"NodeNames": chosen.into_iter().collect::<Vec<_>>()}))
}
