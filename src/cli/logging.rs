//! The log of this process, on stderr.
//!
//! Invariant: started once, by the subcommand that runs, before its first entry; stdout stays free for results.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Logging};

/// Starts the log as configured; the form given on the command line wins.
pub(super) fn start(logging: Logging, format: Option<LogFormat>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&logging.level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match format.unwrap_or(logging.format) {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(anyhow::Error::from_boxed)
}
