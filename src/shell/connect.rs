//! How the API server is reached.
//!
//! Invariant: the first of these that is given decides, and a given one that does not work is an error rather than a reason
//! to try the next: the command line, the configuration file, `$KUBECONFIG`, the pod's service account, `~/.kube/config`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::USER_AGENT;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::shell::watch::WATCH_SECONDS;

/// How we introduce ourselves, for the server's log.
pub(super) const AGENT: &str = concat!("mig-scheduler/", env!("CARGO_PKG_VERSION"));

/// Connecting takes milliseconds where it works at all.
const CONNECT: Duration = Duration::from_secs(5);

/// A watch that shows nothing for this long, not even its end, is dead, and so is a list.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);

/// Why there are no credentials to connect with.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig that was named.
    #[error("cannot use kubeconfig {path}: {source}")]
    Kubeconfig {
        /// As given.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<KubeconfigError>,
    },
    /// The kubeconfig that was found.
    #[error(
        "cannot use the kubeconfig of $KUBECONFIG or ~/.kube/config, and there is no service account: {0}"
    )]
    Usual(Box<KubeconfigError>),
    /// They cannot be used.
    #[error("cannot set up a client for the API server: {0}")]
    Client(Box<kube::Error>),
}

/// Finds the API server and the credentials for it.
pub async fn kube_config(named: Option<&Path>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions::default();
    let mut config = match named {
        Some(path) => from_file(path, &options)
            .await
            .map_err(|source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) })?,
        None => usual(&options).await?,
    };
    // The lanes repeat what may be repeated, and see the server's answers.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    Ok(config)
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, options).await
}

async fn usual(options: &KubeConfigOptions) -> Result<Config, ConnectError> {
    let given = std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty());
    match Config::incluster() {
        Ok(config) if !given => Ok(config),
        _ => Config::from_kubeconfig(options).await.map_err(|error| ConnectError::Usual(Box::new(error))),
    }
}

/// A client with connections of its own, whose requests are limited in time by whoever sends them.
pub fn client(config: &Config) -> Result<kube::Client, ConnectError> {
    kube::Client::try_from(config.clone()).map_err(|error| ConnectError::Client(Box::new(error)))
}

/// A client for watches, which notices by silence that a connection is dead.
pub fn watch_client(config: &Config) -> Result<kube::Client, ConnectError> {
    let mut config = config.clone();
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    client(&config)
}

/// An error with its causes, each said once: kube's own text stops at "client error (Connect)".
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("request failed: connect")]
        struct Outer(#[source] Middle);
        #[derive(Debug, thiserror::Error)]
        #[error("connect")]
        struct Middle(#[source] std::io::Error);
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(causes(&Outer(Middle(refused))), "request failed: connect: connection refused");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_named_must_work() {
        let error = kube_config(Some(Path::new("/nowhere/kubeconfig"))).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot use kubeconfig /nowhere/kubeconfig: "), "{error}");
    }
}
