//! Where usage is read from, and what is made of it: the settings of Prometheus and of the forecaster.
//!
//! Invariant: `step` is a whole number of seconds that every other period of these settings is a sensible multiple of;
//! `validate/usage.rs` says of which.

use std::time::Duration;

use super::{ConfigError, v1alpha1, validate};

/// What stands in a query for the step, so that a window always is as long as the step it belongs to.
pub const STEP_PLACEHOLDER: &str = "$step";

/// The connection to Prometheus, and what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prometheus {
    /// None: no Prometheus, no forecasts. `http` or `https`, without user, query and fragment; a path is kept.
    pub url: Option<String>,
    /// Time-out of a single request.
    pub request_timeout: Duration,
    /// Certificates, for `https` only.
    pub tls: PrometheusTls,
    /// How a request says who sends it.
    pub auth: PrometheusAuth,
    /// Distance between two samples of a series, in seconds: 15 to 300.
    pub step_seconds: u32,
    /// How far back the series reach: 24 to 72 hours.
    pub look_back: Duration,
    /// A series whose newest sample is older than this is not forecast; at least two steps.
    pub staleness: Duration,
    /// What is asked for.
    pub queries: Queries,
}

/// Certificate files in PEM form; read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrometheusTls {
    /// Who may have signed the server's certificate; None: the authorities that the system trusts.
    pub ca_file: Option<String>,
    /// Our own certificate and its key.
    pub client: Option<ClientCertificate>,
}

/// A certificate to show, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, with those between it and the authority.
    pub cert_file: String,
    /// The key.
    pub key_file: String,
}

/// How a request to Prometheus says who sends it. Files are read again for each poll, so that a rotated secret is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrometheusAuth {
    /// It does not.
    #[default]
    None,
    /// By the token in a file.
    Bearer {
        /// The file.
        token_file: String,
    },
    /// By a name and the password in a file.
    Basic {
        /// The name.
        username: String,
        /// The file.
        password_file: String,
    },
}

/// PromQL, with [`STEP_PLACEHOLDER`] for the length of a step. An optional one that is not wanted is None.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queries {
    /// Activity of each GPU or MIG instance, 0 to 1, relative to itself.
    pub activity: String,
    /// Memory used on each GPU or MIG instance, in MiB.
    pub memory_used: Option<String>,
    /// Requests a second of each service.
    pub request_rate: Option<String>,
    /// Latency of each service, in seconds.
    pub latency: Option<String>,
    /// Restarts of each workload within a step.
    pub restarts: Option<String>,
}

/// The forecaster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecasting {
    /// False: usage is not looked at even where Prometheus is configured.
    pub enabled: bool,
    /// Weights to begin with; None: those that the program brings along.
    pub model_file: Option<String>,
    /// Pause between two looks at Prometheus, at most the staleness.
    pub poll_interval: Duration,
    /// Pause between two updates of the weights from the cluster's own data; None: never.
    pub update_interval: Option<Duration>,
    /// The ConfigMap that keeps updated weights, in the Lease's namespace.
    pub config_map: String,
}

impl Prometheus {
    /// The default settings for the server at `url`. The error names the field as the configuration file has it.
    pub fn at(url: &str) -> Result<Prometheus, ConfigError> {
        let wire = v1alpha1::Prometheus { url: url.to_owned(), ..v1alpha1::Prometheus::default() };
        validate::prometheus(wire)
    }
}

impl Default for Prometheus {
    fn default() -> Self {
        Prometheus {
            url: None,
            // A chunk of the first look back over a thousand GPUs takes seconds on a busy server.
            request_timeout: Duration::from_secs(30),
            tls: PrometheusTls::default(),
            auth: PrometheusAuth::None,
            step_seconds: 60,
            look_back: Duration::from_secs(48 * 3600),
            // Prometheus itself looks back five minutes for a sample.
            staleness: Duration::from_secs(300),
            queries: Queries::default(),
        }
    }
}

impl Default for Queries {
    fn default() -> Self {
        // Averages over the step rather than its last sample: a value that Prometheus only remembers would hide a gap.
        let averaged = |metric: &str| format!("avg_over_time({metric}[{STEP_PLACEHOLDER}])");
        Queries {
            activity: averaged("DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
            memory_used: Some(averaged("DCGM_FI_DEV_FB_USED")),
            request_rate: None,
            latency: None,
            restarts: None,
        }
    }
}

impl Default for Forecasting {
    fn default() -> Self {
        Forecasting {
            enabled: true,
            model_file: None,
            poll_interval: Duration::from_secs(60),
            update_interval: Some(Duration::from_secs(3600)),
            config_map: "mig-scheduler-forecast".to_owned(),
        }
    }
}
