//! The configuration the scheduler runs with: complete and validated.
//!
//! ```text
//! file ──yaml──► v1alpha1 (wire form, strict) ──validate──► Config ──► shell, cli
//!                     ▲                                       │
//!                     └──────────────── From ─────────────────┘   (config default)
//! ```
//!
//! Invariant: a `Config` that came out of [`Config::load`] satisfies every rule of `validate.rs`, so nobody checks
//! again. The defaults live here alone; the wire form takes its own from them. The wire form is a promise to users and
//! changes by version, this one changes as the code likes: hence two.

mod duration;
pub(crate) mod error;
mod explain;
mod usage;
pub mod v1alpha1;
mod validate;
pub(crate) mod yaml;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

pub use error::ConfigError;
pub use usage::{
    ClientCertificate, Forecasting, Prometheus, PrometheusAuth, PrometheusTls, Queries, STEP_PLACEHOLDER,
};
pub(crate) use validate::{label, subdomain};

/// The most requests one lane may have in flight. Each has a connection of its own, since the client speaks HTTP/1.1, and an
/// API server works on 600 requests at once by default, so more would only queue elsewhere.
pub const MAX_CONCURRENCY: u32 = 1024;

/// The most events that may wait: about 1 KiB each, so 1 GiB.
pub const MAX_WAITING_EVENTS: u32 = 1 << 20;

/// Everything an operator may choose. `Config::default()` is what `config default` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Pods that carry this `spec.schedulerName` are ours, all others are not (`profiles[0].schedulerName`).
    pub scheduler_name: String,
    /// Who of several replicas acts.
    pub leader_election: LeaderElection,
    /// How the Kubernetes API is reached.
    pub client_connection: ClientConnection,
    /// Seconds a pod waits after its first failed attempt, at least 1; doubled at each further one.
    pub pod_initial_backoff_seconds: u32,
    /// The most seconds a pod waits between two attempts; never below the initial ones.
    pub pod_max_backoff_seconds: u32,
    /// Binds in flight.
    pub bind_lane: Lane,
    /// Pod status patches in flight.
    pub status_lane: Lane,
    /// Kubernetes events in flight and waiting.
    pub event_lane: EventLane,
    /// Where the usage of the GPUs is known.
    pub prometheus: Prometheus,
    /// What is made of it.
    pub forecasting: Forecasting,
    /// Health, metrics and configuration pages.
    pub http: Http,
    /// What is logged and in which form.
    pub logging: Logging,
}

/// Leader election by a Lease. Always `lease_duration > renew_deadline > retry_period × 1.2`, all above zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// False runs without a Lease: only safe while a single replica can exist.
    pub leader_elect: bool,
    /// A standby takes the Lease over when it was not renewed for this long.
    pub lease_duration: Duration,
    /// The leader stops acting (all lanes close) when it could not renew for this long.
    pub renew_deadline: Duration,
    /// Pause between two attempts to get or renew the Lease.
    pub retry_period: Duration,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// The connection to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConnection {
    /// Path of a kubeconfig file. None: `$KUBECONFIG`, or else the pod's service account, or else
    /// `~/.kube/config`.
    pub kubeconfig: Option<String>,
    /// Time-out of a single request. Always below `lease_duration - renew_deadline`, so that a request begun as
    /// leader has ended before another replica can lead.
    pub request_timeout: Duration,
}

/// A lane of API writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Requests in flight at once, 1 to [`MAX_CONCURRENCY`].
    pub concurrency: u32,
}

/// The lane of Kubernetes events; what does not fit is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLane {
    /// Requests in flight at once, 1 to [`MAX_CONCURRENCY`].
    pub concurrency: u32,
    /// Events that may wait, 1 to [`MAX_WAITING_EVENTS`].
    pub capacity: u32,
}

/// The HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// None: no server.
    pub bind_address: Option<SocketAddr>,
}

/// Logging to stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// Text for people, JSON for collectors.
    pub format: LogFormat,
    /// A directive string that `tracing_subscriber::EnvFilter` accepts, such as `info` or `info,kube=warn`.
    pub level: String,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One readable line an entry.
    #[default]
    Text,
    /// One JSON object an entry.
    Json,
}

impl Config {
    /// Reads and validates the file at `path`. The error is one line that says what to change.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let named = |error: ConfigError| error.in_file(path);
        let text = yaml::read(path, &yaml::CONFIGURATION).map_err(named)?;
        Config::from_yaml(&text).map_err(named)
    }

    /// Decodes and validates a document; [`Config::load`] without the file.
    pub fn from_yaml(text: &str) -> Result<Config, ConfigError> {
        validate::validate(yaml::decode_configuration(text)?)
    }

    /// The document that loads as this configuration, with every field written out.
    pub fn to_yaml(&self) -> Result<String, ConfigError> {
        yaml::encode(&v1alpha1::MigSchedulerConfiguration::from(self))
    }
}

/// The JSON schema of the configuration file, as indented JSON.
pub fn schema() -> String {
    format!("{:#}\n", schemars::schema_for!(v1alpha1::MigSchedulerConfiguration).as_value())
}

impl Default for Config {
    fn default() -> Self {
        Config {
            scheduler_name: "mig-scheduler".to_owned(),
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            // The default scheduler's own two values: users know them.
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            // A bind takes 5-20 ms on a loaded API server: 64 in flight carry 3,000-12,000 binds a second.
            bind_lane: Lane { concurrency: 64 },
            // A status patch follows a failed attempt only, and the latest one of a pod wins.
            status_lane: Lane { concurrency: 16 },
            event_lane: EventLane::default(),
            prometheus: Prometheus::default(),
            forecasting: Forecasting::default(),
            http: Http::default(),
            logging: Logging::default(),
        }
    }
}

/// The default scheduler's own times, 15 s > 10 s > 2 s × 1.2.
impl Default for LeaderElection {
    fn default() -> Self {
        LeaderElection {
            leader_elect: true,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: "mig-scheduler".to_owned(),
            resource_namespace: "mig-scheduler".to_owned(),
        }
    }
}

impl Default for ClientConnection {
    fn default() -> Self {
        // 15 s lease - 10 s renew deadline = 5 s; a second less leaves room for a late timer.
        ClientConnection { kubeconfig: None, request_timeout: Duration::from_secs(4) }
    }
}

impl Default for EventLane {
    fn default() -> Self {
        // 16,384 events of about 1 KiB: 16 MiB at worst, a burst of 5,000 pods with three events each at best.
        EventLane { concurrency: 8, capacity: 16_384 }
    }
}

impl Default for Http {
    fn default() -> Self {
        // The default scheduler has 10259; 10261 is free beside it on one host network.
        Http { bind_address: Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 10261))) }
    }
}

impl Default for Logging {
    fn default() -> Self {
        Logging { format: LogFormat::Text, level: "info".to_owned() }
    }
}
