//! Logs to stderr, as text for people or as JSON for collectors.
//!
//! Invariant: a message is a fixed sentence; whatever varies is a field, so that lines can be counted and searched. stdout
//! belongs to the command's result and never carries a log line.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{self, LogFormat};
use crate::fact::Fact;
use crate::forecast::GroupOutlook;

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is no filter.
    #[error("logging.level {level:?} is not a log filter: {source}")]
    Level {
        /// As configured.
        level: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody has set it up before.
    #[error("logging is set up already")]
    Twice,
}

/// Begins to log, for the rest of the process.
pub fn init(settings: &config::Logging) -> Result<(), LogError> {
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let subscriber = subscriber(settings, color, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)
}

/// The subscriber that writes to `writer`.
fn subscriber<W>(
    settings: &config::Logging,
    color: bool,
    writer: W,
) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&settings.level)?)
        .with_ansi(color)
        // A log that cannot be written must not become a panic on stderr.
        .log_internal_errors(false)
        .with_writer(writer);
    Ok(match settings.format {
        LogFormat::Text => Box::new(builder.finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    })
}

/// kube reports every failed request on its own account, at level ERROR and without its cause; we report what came of it.
/// A directive of the operator for the same target wins.
const QUIET: &str = "kube_client::client::builder=off,kube_client::client=error,kube_runtime::watcher=off";

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    // The operator's own text alone is judged, so that the error quotes nothing that is not in the file.
    EnvFilter::try_new(level)
        .and_then(|_| EnvFilter::try_new(format!("{QUIET},{level}")))
        .map_err(|source| LogError::Level { level: level.to_owned(), source })
}

/// Writes a fact as one line.
pub fn fact(fact: &Fact) {
    match fact {
        Fact::PodQueued { queue, cause } => {
            tracing::trace!(queue = queue.as_str(), event = cause.as_str(), "Pod queued.");
        }
        Fact::PodAssumed { pod, node, feasible } => {
            tracing::debug!(%pod, uid = %pod.uid, %node, feasible, "Node chosen for pod.");
        }
        Fact::PodUnschedulable { pod, message } => {
            tracing::info!(%pod, uid = %pod.uid, reason = message, "Pod is unschedulable.");
        }
        Fact::PodBound { pod, node, attempts, waited } => {
            let waited_seconds = waited.as_secs_f64();
            tracing::info!(%pod, uid = %pod.uid, %node, attempt = attempts, waited_seconds, "Pod bound.");
        }
        Fact::BindFailed { pod, node, message } => {
            tracing::warn!(%pod, uid = %pod.uid, %node, error = message, "Bind failed.");
        }
        Fact::Preemption { pod, chosen: Some((node, victims, violations)) } => {
            tracing::info!(%pod, uid = %pod.uid, %node, victims, violations, "Pods are preempted for pod.");
        }
        Fact::Preemption { pod, chosen: None } => {
            tracing::debug!(%pod, uid = %pod.uid, "Preemption does not help pod.");
        }
        Fact::PodRejected { pod, node, reason, message, pause } => {
            let pause_seconds = pause.map(|pause| pause.as_secs());
            tracing::warn!(%pod, uid = %pod.uid, %node, reason, message, pause_seconds, "Node turned a bound pod away.");
        }
        Fact::EvictionRefused { victim, message } => {
            tracing::warn!(uid = %victim, error = message, "Pod could not be preempted.");
        }
        Fact::Forecast { group, changed, .. } => forecast(group, *changed),
    }
}

/// News at level info: whether forecasts are trusted decides what the scheduler may do beyond binding.
fn forecast(told: &GroupOutlook, changed: bool) {
    let GroupOutlook { group, series, trusted, stale, distrust, error, persistence_error, .. } = told;
    let model = told.speaker();
    match (changed, distrust) {
        (true, None) => tracing::info!(
            group,
            model,
            series,
            trusted,
            stale,
            error,
            persistence_error,
            "Forecasts are trusted."
        ),
        (true, Some(reason)) => tracing::info!(
            group,
            model,
            series,
            stale,
            error,
            persistence_error,
            reason,
            "Forecasts are not trusted."
        ),
        (false, distrust) => tracing::debug!(
            group,
            model,
            series,
            trusted,
            stale,
            error,
            persistence_error,
            distrust,
            "Series are forecast."
        ),
    }
}

#[cfg(test)]
mod tests;
