//! The HTTP server: is it alive, is it ready, what does it count, what is it configured with.
//!
//! | path | answers |
//! |---|---|
//! | `/livez`, `/healthz` | 200 while the engine's loop turns |
//! | `/readyz` | 200 once nodes, pods and namespaces are listed, until shutdown begins; a standby is ready. `?verbose` says what forecasts lack |
//! | `/metrics` | the metrics, OpenMetrics text |
//! | `/configz` | the effective configuration |
//! | `/statusz` | version, uptime, identity, leadership, forecasts |
//!
//! Invariant: read-only. No request changes anything, waits for the engine or takes a lock that the engine needs, so the
//! pages answer while it hangs; that is when they matter.

mod health;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use crate::config::{Config, v1alpha1};
use crate::shell::lease::LeaderToken;
use crate::shell::metrics::{self, Metrics};

pub use health::{Forecasts, Health};

/// How long open requests may take after shutdown began. The longest page is a scrape, far below a second.
const DRAIN: Duration = Duration::from_secs(5);

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is taken, not ours, or not allowed.
    #[error("cannot listen on {address} (http.bindAddress): {source}")]
    Bind {
        /// As configured.
        address: SocketAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The configuration cannot be shown.
    #[error("cannot render the configuration for /configz: {0}")]
    Configz(#[from] serde_json::Error),
    /// Listening failed later.
    #[error("the HTTP server failed: {0}")]
    Serve(std::io::Error),
}

/// What the pages show.
#[derive(Debug)]
pub struct Pages {
    health: Health,
    metrics: Arc<Metrics>,
    token: LeaderToken,
    identity: String,
    configz: String,
    started: Instant,
}

impl Pages {
    /// The pages of a process that starts now.
    pub fn new(
        config: &Config,
        identity: &str,
        health: Health,
        metrics: Arc<Metrics>,
        token: LeaderToken,
    ) -> Result<Pages, HttpError> {
        let wire = v1alpha1::MigSchedulerConfiguration::from(config);
        let configz = serde_json::to_string(&json!({ "mig-scheduler.io": wire }))?;
        let identity = identity.to_owned();
        Ok(Pages { health, metrics, token, identity, configz, started: Instant::now() })
    }
}

/// Takes the address. Separate from [`serve`], so that a port in use ends the process before it does anything.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address).await.map_err(|source| HttpError::Bind { address, source })
}

/// Serves until `shutdown` is ready and open requests have ended, or [`DRAIN`] later.
pub async fn serve(
    listener: TcpListener,
    pages: Pages,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    let (begun, drain) = tokio::sync::oneshot::channel::<()>();
    let signal = async move {
        shutdown.await;
        drop(begun);
    };
    let server = axum::serve(listener, router(pages)).with_graceful_shutdown(signal);
    let too_late = async move {
        // Ends with an error when the sender is dropped, which is the signal.
        let _ = drain.await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = async { server.await } => ended.map_err(HttpError::Serve),
        () = too_late => Ok(()),
    }
}

/// The pages by path.
pub fn router(pages: Pages) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .route("/configz", get(configz))
        .route("/statusz", get(statusz))
        .with_state(Arc::new(pages))
}

async fn livez(State(pages): State<Arc<Pages>>, RawQuery(query): RawQuery) -> Response {
    health_page("livez", &pages.health.live(Instant::now()), "", query)
}

async fn readyz(State(pages): State<Arc<Pages>>, RawQuery(query): RawQuery) -> Response {
    health_page("readyz", &pages.health.ready(), &pages.health.forecast_state().line(), query)
}

/// Checks in the form kube-apiserver and kube-scheduler give them: `ok`, or a line each where one failed or `?verbose`
/// asks for it, with a note that no check is.
fn health_page(name: &str, checks: &[health::Check], note: &str, query: Option<String>) -> Response {
    let passed = checks.iter().all(|check| check.passed);
    let status = if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let body = if passed && !is_verbose(query.as_deref()) {
        "ok".to_owned()
    } else {
        let lines: String = checks.iter().map(health::Check::line).collect();
        let verdict = if passed { "passed" } else { "failed" };
        format!("{lines}{note}{name} check {verdict}\n")
    };
    (status, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], body).into_response()
}

fn is_verbose(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|part| part.split('=').next() == Some("verbose"))
}

async fn metrics_page(State(pages): State<Arc<Pages>>) -> Response {
    // Asked at the scrape: a task that hangs cannot leave an old answer standing.
    pages.metrics.set_leader(pages.token.is_valid());
    match pages.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn configz(State(pages): State<Arc<Pages>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], pages.configz.clone()).into_response()
}

async fn statusz(State(pages): State<Arc<Pages>>) -> Response {
    let forecasts = pages.health.forecast_state();
    axum::Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptimeSeconds": pages.started.elapsed().as_secs(),
        "identity": pages.identity,
        "leader": pages.token.is_valid(),
        "forecasts": {"ok": forecasts.as_wanted, "message": forecasts.message},
    }))
    .into_response()
}

#[cfg(test)]
mod tests;
