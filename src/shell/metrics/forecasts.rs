//! How forecasts do, by kind of series. The kinds are those of `shell/prometheus/usage.rs`, so their number is fixed.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{CallResult, set};
use crate::forecast::GroupOutlook;

type Decimal = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabels {
    group: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    group: String,
    model: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PollLabels {
    result: CallResult,
}

/// The metrics of forecasts.
#[derive(Debug, Default)]
pub(super) struct ForecastMetrics {
    polls: Family<PollLabels, Counter>,
    updates: Family<PollLabels, Counter>,
    newest: Gauge,
    trusted: Family<GroupLabels, Gauge>,
    share: Family<ModelLabels, Decimal>,
    series: Family<GroupLabels, Gauge>,
    stale: Family<GroupLabels, Gauge>,
    error: Family<GroupLabels, Decimal>,
    persistence_error: Family<GroupLabels, Decimal>,
    said: Family<GroupLabels, Decimal>,
    actual: Family<GroupLabels, Decimal>,
    /// Who has a share in each kind now.
    speakers: Mutex<BTreeMap<String, Vec<&'static str>>>,
}

impl ForecastMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "usage_polls",
            "Number of times Prometheus was asked for the usage of GPUs, by the result",
            self.polls.clone(),
        );
        registry.register(
            "forecast_updates",
            "Number of times that what the forecaster has learnt was renewed and kept, by the result",
            self.updates.clone(),
        );
        registry.register_with_unit(
            "forecast_timestamp",
            "Unix time of the newest forecast, 0 before the first",
            Unit::Seconds,
            self.newest.clone(),
        );
        let mut group = |name: &str, help: &str, family: &Family<GroupLabels, Gauge>| {
            registry.register(name, help, family.clone());
        };
        group("forecast_series", "Number of series that are forecast", &self.series);
        group("forecast_trusted_series", "Number of series whose forecast may be acted upon", &self.trusted);
        group("forecast_stale_series", "Number of series whose newest value is too old", &self.stale);
        registry.register(
            "forecast_share",
            "Share that a model has in the forecasts of these series",
            self.share.clone(),
        );
        let mut decimal = |name: &str, help: &str, family: &Family<GroupLabels, Decimal>| {
            registry.register(name, help, family.clone());
        };
        decimal(
            "forecast_error",
            "Mean absolute error of what was forecast for the last hour, in the unit of the series",
            &self.error,
        );
        decimal(
            "forecast_persistence_error",
            "Mean absolute error that persistence would have made in the last hour",
            &self.persistence_error,
        );
        decimal(
            "forecast_said",
            "What was forecast for now a horizon ago, the mean of all series",
            &self.said,
        );
        decimal("forecast_actual", "What came of forecast_said, the mean of the same series", &self.actual);
    }

    pub(super) fn zero(&self) {
        for result in [CallResult::Success, CallResult::Error] {
            drop(self.polls.get_or_create(&PollLabels { result }));
            drop(self.updates.get_or_create(&PollLabels { result }));
        }
    }

    pub(super) fn count_update(&self, result: CallResult) {
        self.updates.get_or_create(&PollLabels { result }).inc();
    }

    pub(super) fn count_poll(&self, result: CallResult) {
        self.polls.get_or_create(&PollLabels { result }).inc();
    }

    /// A kind of series was forecast.
    pub(super) fn set(&self, at: i64, told: &GroupOutlook) {
        self.newest.set(at);
        let group = GroupLabels { group: told.group.clone() };
        set(&self.series.get_or_create(&group), told.series);
        set(&self.trusted.get_or_create(&group), told.trusted);
        set(&self.stale.get_or_create(&group), told.stale);
        let decimals = [
            (&self.error, told.error),
            (&self.persistence_error, told.persistence_error),
            (&self.said, told.said),
            (&self.actual, told.actual),
        ];
        for (family, value) in decimals {
            match value {
                Some(value) => drop(family.get_or_create(&group).set(value.into())),
                None => drop(family.remove(&group)),
            }
        }
        self.set_shares(told);
    }

    fn set_shares(&self, told: &GroupOutlook) {
        let mut speakers = self.speakers.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = |model| ModelLabels { group: told.group.clone(), model };
        let now = told.models.iter().map(|(model, _)| *model).collect();
        for model in speakers.insert(told.group.clone(), now).into_iter().flatten() {
            self.share.remove(&labels(model));
        }
        for &(model, share) in &told.models {
            self.share.get_or_create(&labels(model)).set(share.into());
        }
    }
}
