//! The parts of the file that name Prometheus and the forecaster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GoDuration, MigSchedulerConfiguration};
use crate::config;

/// The Prometheus that knows the usage of the GPUs, and what is asked of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Prometheus {
    /// Its address, such as http://prometheus.monitoring:9090. Empty: no Prometheus, no forecasts, static scheduling.
    pub url: String,
    /// Time-out of a single request.
    pub request_timeout: GoDuration,
    /// Certificates, for https only. The files are read again when they change.
    pub tls: PrometheusTls,
    /// A file with a bearer token; read again when it changes. Empty: none.
    pub bearer_token_file: String,
    /// A name and a password, in the place of a token.
    pub basic_auth: BasicAuth,
    /// Distance between two samples of a series: 15s to 5m, whole seconds, not below the scrape interval.
    pub step: GoDuration,
    /// How far back the series reach: 24h to 72h.
    pub look_back: GoDuration,
    /// A series whose newest sample is older is not forecast; at least two steps and at most 1h.
    pub staleness: GoDuration,
    /// PromQL; $step stands for the length of a step.
    pub queries: Queries,
}

/// Certificates, for https only.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PrometheusTls {
    /// Authorities that may have signed the server's certificate, PEM. Empty: those that the system trusts.
    pub ca_file: String,
    /// A certificate to show to the server, PEM. Empty: none.
    pub cert_file: String,
    /// The key of certFile, PEM.
    pub key_file: String,
}

/// A name and a password.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct BasicAuth {
    /// The name. Empty: none.
    pub username: String,
    /// A file with the password; read again when it changes.
    pub password_file: String,
}

/// PromQL; $step stands for the length of a step.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Queries {
    /// Activity of each GPU or MIG instance, 0 to 1, relative to itself, with DCGM's labels.
    pub activity: String,
    /// Memory used on each GPU or MIG instance in MiB, with DCGM's labels. Empty: not asked for.
    pub memory_used: String,
    /// Requests a second of each service, told apart by their labels. Empty: not asked for.
    pub request_rate: String,
    /// Latency of each service in seconds. Empty: not asked for.
    pub latency: String,
    /// Restarts of each workload within a step. Empty: not asked for.
    pub restarts: String,
}

/// The forecaster.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Forecasting {
    /// False: usage is not looked at even where Prometheus is configured.
    pub enabled: bool,
    /// Weights to begin with. Empty: those that the program brings along.
    pub model_file: String,
    /// Pause between two looks at Prometheus: 1s to prometheus.staleness.
    pub poll_interval: GoDuration,
    /// Pause between two updates of the weights from the cluster's own data: 1m to 24h, or 0s for never.
    pub update_interval: GoDuration,
    /// The ConfigMap that keeps updated weights, in leaderElection.resourceNamespace. The role names it, too.
    pub config_map: String,
}

impl From<&config::Prometheus> for Prometheus {
    fn from(prometheus: &config::Prometheus) -> Self {
        let (token_file, username, password_file) = match prometheus.auth.clone() {
            config::PrometheusAuth::None => Default::default(),
            config::PrometheusAuth::Bearer { token_file } => (token_file, String::new(), String::new()),
            config::PrometheusAuth::Basic { username, password_file } => {
                (String::new(), username, password_file)
            }
        };
        Prometheus {
            url: prometheus.url.clone().unwrap_or_default(),
            request_timeout: GoDuration(prometheus.request_timeout),
            tls: (&prometheus.tls).into(),
            bearer_token_file: token_file,
            basic_auth: BasicAuth { username, password_file },
            step: GoDuration(std::time::Duration::from_secs(prometheus.step_seconds.into())),
            look_back: GoDuration(prometheus.look_back),
            staleness: GoDuration(prometheus.staleness),
            queries: (&prometheus.queries).into(),
        }
    }
}

impl From<&config::PrometheusTls> for PrometheusTls {
    fn from(tls: &config::PrometheusTls) -> Self {
        let client = tls.client.clone();
        let (cert_file, key_file) =
            client.map(|client| (client.cert_file, client.key_file)).unwrap_or_default();
        PrometheusTls { ca_file: tls.ca_file.clone().unwrap_or_default(), cert_file, key_file }
    }
}

impl From<&config::Queries> for Queries {
    fn from(queries: &config::Queries) -> Self {
        let optional = |query: &Option<String>| query.clone().unwrap_or_default();
        Queries {
            activity: queries.activity.clone(),
            memory_used: optional(&queries.memory_used),
            request_rate: optional(&queries.request_rate),
            latency: optional(&queries.latency),
            restarts: optional(&queries.restarts),
        }
    }
}

impl From<&config::Forecasting> for Forecasting {
    fn from(forecasting: &config::Forecasting) -> Self {
        Forecasting {
            enabled: forecasting.enabled,
            model_file: forecasting.model_file.clone().unwrap_or_default(),
            poll_interval: GoDuration(forecasting.poll_interval),
            update_interval: GoDuration(forecasting.update_interval.unwrap_or_default()),
            config_map: forecasting.config_map.clone(),
        }
    }
}

impl Default for Prometheus {
    fn default() -> Self {
        MigSchedulerConfiguration::default().prometheus
    }
}

impl Default for PrometheusTls {
    fn default() -> Self {
        Prometheus::default().tls
    }
}

impl Default for BasicAuth {
    fn default() -> Self {
        Prometheus::default().basic_auth
    }
}

impl Default for Queries {
    fn default() -> Self {
        Prometheus::default().queries
    }
}

impl Default for Forecasting {
    fn default() -> Self {
        MigSchedulerConfiguration::default().forecasting
    }
}
