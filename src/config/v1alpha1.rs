//! The configuration file as users write it, version `mig-scheduler.io/v1alpha1`.
//!
//! Invariant: a field that is not listed here is refused, never ignored: a misspelt limit must not pass for one that
//! holds. Names are those of the default scheduler's own configuration wherever the meaning is the same. What a file
//! leaves out comes from `Config::default()`. The documentation comments are the descriptions in the JSON schema.

mod usage;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use usage::{BasicAuth, Forecasting, Prometheus, PrometheusTls, Queries};

pub use super::duration::GoDuration;
use super::validate::SCHEDULER_NAME_LIMIT;
use super::{Config, MAX_CONCURRENCY, MAX_WAITING_EVENTS};

/// Configuration of mig-scheduler.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind"]))]
pub struct MigSchedulerConfiguration {
    /// The version of this file's form.
    pub api_version: ApiVersion,
    /// What this file is.
    pub kind: Kind,
    /// The names the scheduler answers to. Exactly one for now.
    #[schemars(length(equal = 1))]
    pub profiles: Vec<Profile>,
    /// Which of several replicas acts.
    pub leader_election: LeaderElection,
    /// The connection to the API server.
    pub client_connection: ClientConnection,
    /// Seconds a pod waits after its first failed attempt; doubled at each further one.
    #[schemars(range(min = 1))]
    pub pod_initial_backoff_seconds: u32,
    /// The most seconds a pod waits between two attempts; at least podInitialBackoffSeconds.
    #[schemars(range(min = 1))]
    pub pod_max_backoff_seconds: u32,
    /// How binds are sent to the API server.
    pub bind_lane: BindLane,
    /// How pod status patches are sent to the API server.
    pub status_lane: StatusLane,
    /// How events are sent to the API server.
    pub event_lane: EventLane,
    /// The Prometheus that knows the usage of the GPUs.
    pub prometheus: Prometheus,
    /// What is made of that usage.
    pub forecasting: Forecasting,
    /// The server of health, metrics and configuration pages.
    pub http: Http,
    /// What is logged to stderr, and in which form.
    pub logging: Logging,
}

/// The head of the document, read first: a file of another kind is named as such, and not for its first odd field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TypeMeta {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: Kind,
}

/// The version of the file's form.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The only one so far.
    #[serde(rename = "mig-scheduler.io/v1alpha1")]
    V1alpha1,
}

/// What the file is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// The only kind of document this program reads its configuration from.
    MigSchedulerConfiguration,
}

/// One name the scheduler answers to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Profile {
    /// Pods with this spec.schedulerName are scheduled here, all others are left alone. At most 63 characters.
    #[schemars(length(max = SCHEDULER_NAME_LIMIT))]
    pub scheduler_name: String,
}

/// Leader election by a Lease. leaseDuration > renewDeadline > retryPeriod × 1.2.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct LeaderElection {
    /// False runs without a Lease: safe only while a single replica can exist.
    pub leader_elect: bool,
    /// A standby takes over when the Lease was not renewed for this long.
    pub lease_duration: GoDuration,
    /// The leader stops writing when it could not renew the Lease for this long.
    pub renew_deadline: GoDuration,
    /// Pause between two attempts to get or renew the Lease.
    pub retry_period: GoDuration,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// The connection to the API server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ClientConnection {
    /// Path of a kubeconfig file. Empty: $KUBECONFIG, or else the pod's own service account, or else ~/.kube/config.
    pub kubeconfig: String,
    /// Time-out of a single request; below leaseDuration minus renewDeadline, so that a request sent by a leader has
    /// ended before the next one leads.
    pub request_timeout: GoDuration,
}

/// How binds are sent to the API server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct BindLane {
    /// Requests in flight at once.
    #[schemars(range(min = 1, max = MAX_CONCURRENCY))]
    pub concurrency: u32,
}

/// How pod status patches are sent to the API server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct StatusLane {
    /// Requests in flight at once.
    #[schemars(range(min = 1, max = MAX_CONCURRENCY))]
    pub concurrency: u32,
}

/// How events are sent to the API server. What does not fit is dropped and counted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct EventLane {
    /// Requests in flight at once.
    #[schemars(range(min = 1, max = MAX_CONCURRENCY))]
    pub concurrency: u32,
    /// Events that may wait to be sent.
    #[schemars(range(min = 1, max = MAX_WAITING_EVENTS))]
    pub capacity: u32,
}

/// The server of health, metrics and configuration pages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Http {
    /// IP address and port to listen on. Empty: no server.
    pub bind_address: String,
}

/// What is logged to stderr, and in which form.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Logging {
    /// Text for people, json for collectors.
    pub format: LogFormat,
    /// A level (error, warn, info, debug, trace, off), with exceptions by module where wanted: info,kube=warn.
    pub level: String,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// One readable line an entry.
    Text,
    /// One JSON object an entry.
    Json,
}

impl From<&Config> for MigSchedulerConfiguration {
    fn from(config: &Config) -> Self {
        MigSchedulerConfiguration {
            api_version: ApiVersion::V1alpha1,
            kind: Kind::MigSchedulerConfiguration,
            profiles: vec![Profile { scheduler_name: config.scheduler_name.clone() }],
            leader_election: (&config.leader_election).into(),
            client_connection: (&config.client_connection).into(),
            pod_initial_backoff_seconds: config.pod_initial_backoff_seconds,
            pod_max_backoff_seconds: config.pod_max_backoff_seconds,
            bind_lane: BindLane { concurrency: config.bind_lane.concurrency },
            status_lane: StatusLane { concurrency: config.status_lane.concurrency },
            event_lane: EventLane {
                concurrency: config.event_lane.concurrency,
                capacity: config.event_lane.capacity,
            },
            prometheus: (&config.prometheus).into(),
            forecasting: (&config.forecasting).into(),
            http: (&config.http).into(),
            logging: (&config.logging).into(),
        }
    }
}

impl From<&super::LeaderElection> for LeaderElection {
    fn from(election: &super::LeaderElection) -> Self {
        LeaderElection {
            leader_elect: election.leader_elect,
            lease_duration: GoDuration(election.lease_duration),
            renew_deadline: GoDuration(election.renew_deadline),
            retry_period: GoDuration(election.retry_period),
            resource_name: election.resource_name.clone(),
            resource_namespace: election.resource_namespace.clone(),
        }
    }
}

impl From<&super::ClientConnection> for ClientConnection {
    fn from(connection: &super::ClientConnection) -> Self {
        ClientConnection {
            kubeconfig: connection.kubeconfig.clone().unwrap_or_default(),
            request_timeout: GoDuration(connection.request_timeout),
        }
    }
}

impl From<&super::Http> for Http {
    fn from(http: &super::Http) -> Self {
        Http { bind_address: http.bind_address.map(|address| address.to_string()).unwrap_or_default() }
    }
}

impl From<&super::Logging> for Logging {
    fn from(logging: &super::Logging) -> Self {
        let format = match logging.format {
            super::LogFormat::Text => LogFormat::Text,
            super::LogFormat::Json => LogFormat::Json,
        };
        Logging { format, level: logging.level.clone() }
    }
}

impl Default for MigSchedulerConfiguration {
    fn default() -> Self {
        MigSchedulerConfiguration::from(&Config::default())
    }
}

/// Gives the part of a file that is left out, or written in part only, the values of the whole default file.
macro_rules! default_from_whole {
    ($($part:ident . $field:ident),+ $(,)?) => {$(
        impl Default for $part {
            fn default() -> Self {
                MigSchedulerConfiguration::default().$field
            }
        }
    )+};
}

default_from_whole!(
    LeaderElection.leader_election,
    ClientConnection.client_connection,
    BindLane.bind_lane,
    StatusLane.status_lane,
    EventLane.event_lane,
    Http.http,
    Logging.logging,
);

impl Default for Profile {
    fn default() -> Self {
        Profile { scheduler_name: Config::default().scheduler_name }
    }
}
