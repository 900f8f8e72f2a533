//! The rules of Prometheus and the forecaster.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use reqwest::Url;

use super::{optional, refuse, subdomain};
use crate::config::duration::GoDuration;
use crate::config::error::{ConfigError, quote};
use crate::config::usage::STEP_PLACEHOLDER;
use crate::config::v1alpha1;
use crate::config::{ClientCertificate, Forecasting, Prometheus, PrometheusAuth, PrometheusTls, Queries};

/// Below it exporters have no new value to show; above it ten minutes ahead are hardly a series.
const STEP: RangeInclusive<Duration> = Duration::from_secs(15)..=Duration::from_secs(300);

/// A day holds the daily pattern once; beyond three the first look at the server costs more than it tells.
const LOOK_BACK: RangeInclusive<Duration> = hours(24)..=hours(72);

const MAX_STALENESS: Duration = hours(1);
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
const MIN_POLL: Duration = Duration::from_secs(1);
const UPDATE: RangeInclusive<Duration> = Duration::from_secs(60)..=hours(24);

/// The longest query: it travels in the body of a request, and people have to read it.
const QUERY_LIMIT: usize = 8192;

const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

/// The settings of Prometheus that the document describes.
pub(crate) fn prometheus(wire: v1alpha1::Prometheus) -> Result<Prometheus, ConfigError> {
    let url = url(&wire.url)?;
    let secure = url.as_ref().is_some_and(|url| url.scheme() == "https");
    within(at("requestTimeout"), wire.request_timeout, Duration::from_millis(1)..=MAX_REQUEST_TIMEOUT)?;
    let tls = tls(wire.tls, url.is_some() && !secure)?;
    let auth = auth(wire.bearer_token_file, wire.basic_auth)?;
    within(at("step"), wire.step, STEP)?;
    whole_seconds(at("step"), wire.step)?;
    within(at("lookBack"), wire.look_back, LOOK_BACK)?;
    whole_seconds(at("lookBack"), wire.look_back)?;
    within(at("staleness"), wire.staleness, wire.step.0 * 2..=MAX_STALENESS)?;
    Ok(Prometheus {
        url: optional(wire.url),
        request_timeout: wire.request_timeout.0,
        tls,
        auth,
        // At most 300.
        step_seconds: u32::try_from(wire.step.0.as_secs()).unwrap_or(u32::MAX),
        look_back: wire.look_back.0,
        staleness: wire.staleness.0,
        queries: queries(wire.queries)?,
    })
}

/// The settings of the forecaster; `staleness` is that of the series.
pub(super) fn forecasting(
    wire: v1alpha1::Forecasting,
    staleness: Duration,
) -> Result<Forecasting, ConfigError> {
    let at = |field: &str| format!("forecasting.{field}");
    within(at("pollInterval"), wire.poll_interval, MIN_POLL..=staleness)?;
    let never = wire.update_interval.0.is_zero();
    if !never && !UPDATE.contains(&wire.update_interval.0) {
        let fix = "is out of range; write 1m to 24h, or 0s for never";
        return refuse(at("updateInterval"), wire.update_interval, fix);
    }
    subdomain(at("configMap"), &wire.config_map)?;
    Ok(Forecasting {
        enabled: wire.enabled,
        model_file: optional(wire.model_file),
        poll_interval: wire.poll_interval.0,
        update_interval: (!never).then_some(wire.update_interval.0),
        config_map: wire.config_map,
    })
}

fn url(text: &str) -> Result<Option<Url>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = |fix: &str| refuse(at("url"), quote(text), fix);
    let Ok(url) = Url::parse(text) else {
        return bad(r#"is not a URL; write for example "http://prometheus.monitoring:9090", or "" for none"#);
    };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return bad(r#"is not an http or https URL; write for example "http://prometheus.monitoring:9090""#);
    }
    if !url.username().is_empty() || url.password().is_some() {
        // The value is not shown: it holds a password.
        let fix = "holds a user or password; write them into prometheus.basicAuth";
        return refuse(at("url"), "it", fix);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return bad("has a query or fragment; write it without what follows '?' or '#'");
    }
    Ok(Some(url))
}

fn tls(wire: v1alpha1::PrometheusTls, insecure: bool) -> Result<PrometheusTls, ConfigError> {
    let files = [("caFile", &wire.ca_file), ("certFile", &wire.cert_file), ("keyFile", &wire.key_file)];
    if let Some((field, file)) = files.into_iter().find(|(_, file)| insecure && !file.is_empty()) {
        let fix = "is for https only; write an https URL, or remove it";
        return refuse(at(&format!("tls.{field}")), quote(file), fix);
    }
    let client = match (optional(wire.cert_file), optional(wire.key_file)) {
        (None, None) => None,
        (Some(cert_file), Some(key_file)) => Some(ClientCertificate { cert_file, key_file }),
        (Some(file), None) => {
            return refuse(
                at("tls.keyFile"),
                quote(""),
                format!("is missing; write the key of {}", quote(&file)),
            );
        }
        (None, Some(file)) => {
            let fix = format!("is missing; write the certificate of {}", quote(&file));
            return refuse(at("tls.certFile"), quote(""), fix);
        }
    };
    Ok(PrometheusTls { ca_file: optional(wire.ca_file), client })
}

fn auth(token_file: String, basic: v1alpha1::BasicAuth) -> Result<PrometheusAuth, ConfigError> {
    let v1alpha1::BasicAuth { username, password_file } = basic;
    if !token_file.is_empty() && !username.is_empty() {
        let fix = "is given beside bearerTokenFile; keep one of the two";
        return refuse(at("basicAuth.username"), quote(&username), fix);
    }
    if username.is_empty() && !password_file.is_empty() {
        return refuse(at("basicAuth.username"), quote(""), "is missing; write the name for passwordFile");
    }
    if !username.is_empty() && password_file.is_empty() {
        return refuse(
            at("basicAuth.passwordFile"),
            quote(""),
            "is missing; write the file with the password",
        );
    }
    // A colon ends the name in the header.
    if username.contains(':') || username.contains(char::is_control) {
        return refuse(
            at("basicAuth.username"),
            quote(&username),
            "has a ':' or control character; write it without",
        );
    }
    Ok(match (token_file.is_empty(), username.is_empty()) {
        (false, _) => PrometheusAuth::Bearer { token_file },
        (true, false) => PrometheusAuth::Basic { username, password_file },
        (true, true) => PrometheusAuth::None,
    })
}

fn queries(wire: v1alpha1::Queries) -> Result<Queries, ConfigError> {
    if wire.activity.trim().is_empty() {
        let fix = "is empty; write a query for the activity of each GPU or MIG instance";
        return refuse(at("queries.activity"), quote(&wire.activity), fix);
    }
    Ok(Queries {
        activity: query("activity", wire.activity)?,
        memory_used: optional(query("memoryUsed", wire.memory_used)?),
        request_rate: optional(query("requestRate", wire.request_rate)?),
        latency: optional(query("latency", wire.latency)?),
        restarts: optional(query("restarts", wire.restarts)?),
    })
}

/// A query as it stands. Its grammar is the server's affair; a placeholder that nobody replaces is not.
fn query(field: &str, text: String) -> Result<String, ConfigError> {
    let at = at(&format!("queries.{field}"));
    if text.len() > QUERY_LIMIT {
        return refuse(at, quote(&text), format!("is too long; write at most {QUERY_LIMIT} bytes"));
    }
    if text.replace(STEP_PLACEHOLDER, "").contains("$_") {
        return refuse(
            at,
            quote(&text),
            format!("has a variable of Grafana's; write {STEP_PLACEHOLDER} for the step"),
        );
    }
    Ok(text)
}

fn within(at: impl Display, value: GoDuration, range: RangeInclusive<Duration>) -> Result<(), ConfigError> {
    if range.contains(&value.0) {
        return Ok(());
    }
    let (least, most) = (GoDuration(*range.start()), GoDuration(*range.end()));
    refuse(at, value, format!("is out of range; write {least} to {most}"))
}

fn whole_seconds(at: impl Display, value: GoDuration) -> Result<(), ConfigError> {
    if value.0.subsec_nanos() == 0 {
        return Ok(());
    }
    refuse(at, value, "is not a number of whole seconds; write for example 60s")
}

fn at(field: &str) -> String {
    format!("prometheus.{field}")
}
