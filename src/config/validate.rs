//! From the wire form to a `Config`: every rule that a type cannot carry.
//!
//! Invariant: the first broken rule, in the order of the fields, is the error; its path is the field the user has to
//! change, its text what to write there. A pure function of the document.

mod usage;

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

pub(super) use usage::prometheus;

use super::duration::GoDuration;
use super::error::{ConfigError, quote};
use super::{
    ClientConnection, Config, EventLane, Http, Lane, LeaderElection, LogFormat, Logging, MAX_CONCURRENCY,
    MAX_WAITING_EVENTS, v1alpha1,
};

/// A name of an object has at most this many characters, a part between two dots and a namespace at most 63.
const NAME_LIMIT: usize = 253;
const LABEL_LIMIT: usize = 63;

/// Events carry the scheduler's name as `reportingController`, a qualified name: the API server refuses a longer one.
pub(super) const SCHEDULER_NAME_LIMIT: usize = 63;

/// Longest times that still make sense: a Lease counts whole seconds in an int32, and a failover is waited for.
const MAX_LEASE: Duration = Duration::from_secs(3600);

/// Retries are spread by up to 20 %: the renew deadline has to leave room for one full, stretched period.
const JITTER_PERCENT: u32 = 120;

/// The levels a directive without a target may name.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The configuration that the document describes.
pub(super) fn validate(document: v1alpha1::MigSchedulerConfiguration) -> Result<Config, ConfigError> {
    let scheduler_name = only_profile(&document.profiles)?;
    let leader_election = leader_election(document.leader_election)?;
    let prometheus = prometheus(document.prometheus)?;
    Ok(Config {
        scheduler_name,
        client_connection: client_connection(document.client_connection, &leader_election)?,
        leader_election,
        pod_initial_backoff_seconds: initial_backoff(document.pod_initial_backoff_seconds)?,
        pod_max_backoff_seconds: max_backoff(
            document.pod_max_backoff_seconds,
            document.pod_initial_backoff_seconds,
        )?,
        bind_lane: Lane { concurrency: concurrency("bindLane", document.bind_lane.concurrency)? },
        status_lane: Lane { concurrency: concurrency("statusLane", document.status_lane.concurrency)? },
        event_lane: event_lane(&document.event_lane)?,
        forecasting: usage::forecasting(document.forecasting, prometheus.staleness)?,
        prometheus,
        http: Http { bind_address: bind_address(&document.http.bind_address)? },
        logging: logging(document.logging)?,
    })
}

fn only_profile(profiles: &[v1alpha1::Profile]) -> Result<String, ConfigError> {
    let [profile] = profiles else {
        let problem = format!("has {} entries; write exactly one, with its schedulerName", profiles.len());
        return Err(ConfigError::at("profiles", problem));
    };
    let (at, name) = ("profiles[0].schedulerName", &profile.scheduler_name);
    subdomain(at, name)?;
    if name.len() > SCHEDULER_NAME_LIMIT {
        let fix = format!("is too long; write at most {SCHEDULER_NAME_LIMIT} characters");
        return refuse(at, quote(name), fix);
    }
    Ok(name.clone())
}

fn leader_election(wire: v1alpha1::LeaderElection) -> Result<LeaderElection, ConfigError> {
    let (lease, renew, retry) = (wire.lease_duration.0, wire.renew_deadline.0, wire.retry_period.0);
    let field = |name: &str| format!("leaderElection.{name}");
    if lease > MAX_LEASE {
        return refuse(field("leaseDuration"), wire.lease_duration, "is too long; write at most 1h");
    }
    if lease.is_zero() || lease.subsec_nanos() != 0 {
        return refuse(
            field("leaseDuration"),
            wire.lease_duration,
            "is not a number of whole seconds; write for example 15s",
        );
    }
    if renew >= lease {
        let fix = format!("is too long; write less than leaseDuration, {}", wire.lease_duration);
        return refuse(field("renewDeadline"), wire.renew_deadline, fix);
    }
    if retry.is_zero() {
        return refuse(field("retryPeriod"), wire.retry_period, "is too short; write more than zero");
    }
    if retry * JITTER_PERCENT / 100 >= renew {
        let fix =
            format!("is too long; 1.2 times it must be less than renewDeadline, {}", wire.renew_deadline);
        return refuse(field("retryPeriod"), wire.retry_period, fix);
    }
    subdomain(field("resourceName"), &wire.resource_name)?;
    label(field("resourceNamespace"), &wire.resource_namespace)?;
    Ok(LeaderElection {
        leader_elect: wire.leader_elect,
        lease_duration: lease,
        renew_deadline: renew,
        retry_period: retry,
        resource_name: wire.resource_name,
        resource_namespace: wire.resource_namespace,
    })
}

fn client_connection(
    wire: v1alpha1::ClientConnection,
    election: &LeaderElection,
) -> Result<ClientConnection, ConfigError> {
    let room = election.lease_duration.saturating_sub(election.renew_deadline);
    let at = "clientConnection.requestTimeout";
    if wire.request_timeout.0.is_zero() {
        return refuse(at, wire.request_timeout, "is too short; write more than zero");
    }
    if wire.request_timeout.0 >= room {
        let fix = format!("is too long; write less than leaseDuration - renewDeadline, {}", GoDuration(room));
        return refuse(at, wire.request_timeout, fix);
    }
    let kubeconfig = optional(wire.kubeconfig);
    Ok(ClientConnection { kubeconfig, request_timeout: wire.request_timeout.0 })
}

fn initial_backoff(seconds: u32) -> Result<u32, ConfigError> {
    match seconds {
        0 => refuse("podInitialBackoffSeconds", 0, "is too small; write at least 1"),
        _ => Ok(seconds),
    }
}

fn max_backoff(seconds: u32, initial: u32) -> Result<u32, ConfigError> {
    if seconds < initial {
        let fix = format!("is too small; write at least podInitialBackoffSeconds, {initial}");
        return refuse("podMaxBackoffSeconds", seconds, fix);
    }
    Ok(seconds)
}

fn event_lane(wire: &v1alpha1::EventLane) -> Result<EventLane, ConfigError> {
    Ok(EventLane {
        concurrency: concurrency("eventLane", wire.concurrency)?,
        capacity: within("eventLane.capacity", wire.capacity, 1..=MAX_WAITING_EVENTS)?,
    })
}

fn concurrency(lane: &str, value: u32) -> Result<u32, ConfigError> {
    within(format!("{lane}.concurrency"), value, 1..=MAX_CONCURRENCY)
}

fn within(at: impl Display, value: u32, range: RangeInclusive<u32>) -> Result<u32, ConfigError> {
    if range.contains(&value) {
        return Ok(value);
    }
    refuse(at, value, format!("is out of range; write {} to {}", range.start(), range.end()))
}

fn bind_address(text: &str) -> Result<Option<SocketAddr>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).or_else(|_| {
        let fix = r#"is not an IP address and port; write for example "0.0.0.0:10261", or "" for no server"#;
        refuse("http.bindAddress", quote(text), fix)
    })
}

fn logging(wire: v1alpha1::Logging) -> Result<Logging, ConfigError> {
    let format = match wire.format {
        v1alpha1::LogFormat::Text => LogFormat::Text,
        v1alpha1::LogFormat::Json => LogFormat::Json,
    };
    // Targets are module paths. With other letters behind a blank the filter's parser cuts one in two and panics.
    let known = wire.level.is_ascii()
        && stray_level(&wire.level).is_none()
        && EnvFilter::try_new(&wire.level).is_ok();
    if !known {
        let fix = r#"is not a log level; write error, warn, info, debug, trace or off, or for example "info,kube=warn""#;
        return refuse("logging.level", quote(&wire.level), fix);
    }
    Ok(Logging { format, level: wire.level })
}

/// A word that names neither a level nor, by `target=level` or `[span]=level`, where one applies. The filter would
/// take it, so `inf`, for a module whose every line is wanted and log nothing else.
fn stray_level(level: &str) -> Option<&str> {
    let plain = |word: &&str| !word.contains(['=', '[', ']', '{', '}', '"']);
    let known = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    level.split(',').filter(plain).map(str::trim).find(|word| !known(word))
}

/// A text that may be left empty for none.
fn optional(text: String) -> Option<String> {
    Some(text).filter(|text| !text.trim().is_empty())
}

/// A DNS-1123 subdomain, the form of most object names.
pub(crate) fn subdomain(at: impl Display, name: &str) -> Result<(), ConfigError> {
    if name.len() <= NAME_LIMIT && name.split('.').all(is_label) {
        return Ok(());
    }
    let fix = "is not a DNS-1123 name; write lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit";
    refuse(at, quote(name), fix)
}

/// A DNS-1123 label, the form of a namespace's name.
pub(crate) fn label(at: impl Display, name: &str) -> Result<(), ConfigError> {
    if is_label(name) {
        return Ok(());
    }
    let fix = "is not a DNS-1123 label; write up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit";
    refuse(at, quote(name), fix)
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=LABEL_LIMIT).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The error `at: value problem`.
fn refuse<T>(at: impl Display, value: impl Display, problem: impl Display) -> Result<T, ConfigError> {
    Err(ConfigError::at(at, format!("{value} {problem}")))
}
