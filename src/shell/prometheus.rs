//! Usage of the GPUs from Prometheus: asked for in bounded parts, put together to series without a guess.
//!
//! ```text
//!   server ──range query──► answer ──► feed: history on one grid ──► usage: device rows ──combine──► Series
//!   (TLS, token, limits)   (distrusted)   (look-back, then only news)   (labels of all exporters)
//! ```
//!
//! Invariants: nothing here is waited for by a decision; whatever the server sends costs bounded time and memory; a gap stays a
//! gap. Only `client` does I/O: the rest is a function of what was answered.

pub mod answer;
pub mod client;
pub mod combine;
pub mod device;
pub mod feed;
pub mod grid;
pub mod history;
pub mod usage;

use crate::config;
use crate::forecast::Series;

pub use client::{QueryError, Server};
pub use feed::FeedError;
pub use usage::{GpuReading, Reading, Usage};

/// Reads the usage of the configured look-back up to `now` (unix seconds), once: for commands, which have no worker. The second
/// part tells what was left out, and why.
pub async fn fetch(config: &config::Prometheus, now: i64) -> Result<(Vec<Series>, Vec<String>), FeedError> {
    let server = Server::new(config)?;
    let mut usage = Usage::new(config);
    let mut problems = usage.refresh(&server, now).await?;
    let reading = usage.read();
    problems.extend(reading.problems);
    Ok((reading.series, problems))
}
