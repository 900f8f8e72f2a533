//! What the forecaster tells the engine: the next minutes of every series, and who says so with what right.
//!
//! Invariants: an outlook runs out by itself, so that silence is the only sign of failure that anybody has to look for; what is
//! not trusted is in it all the same, for the eye alone, with the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Series, SeriesKey};

/// All forecasts of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlook {
    /// Unix seconds at which it was made.
    pub at: i64,
    /// Seconds after which it is as if it had never come.
    pub valid_seconds: u32,
    /// Seconds of a step.
    pub step_seconds: u32,
    /// One entry for each kind of series.
    pub groups: Vec<GroupOutlook>,
    /// The next steps of each series, with the kind of series in its key. Series that are stale or too short have none.
    pub prospects: BTreeMap<SeriesKey, Prospect>,
    /// Where each GPU is and what it is cut into, by its id.
    pub gpus: BTreeMap<Arc<str>, GpuUse>,
}

/// The next steps of a series, in its unit; step 0 follows the last value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prospect {
    /// Unix seconds of the last value.
    pub end: i64,
    /// The last value.
    pub last: f32,
    /// The mean, one value a step.
    pub mean: Vec<f32>,
    /// The quantiles 0.1, 0.5 and 0.9, one value a step each.
    pub quantiles: [Vec<f32>; 3],
    /// Whether it may be acted upon.
    pub trusted: bool,
}

/// How the forecasts of one kind of series do.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupOutlook {
    /// The kind, `gpu-activity`.
    pub group: String,
    /// Series that have a prospect.
    pub series: usize,
    /// Those of them whose prospect may be acted upon.
    pub trusted: usize,
    /// Series whose newest value is too old to go on from.
    pub stale: usize,
    /// Each model's share of what is said, the largest first; they sum to one.
    pub models: Vec<(&'static str, f32)>,
    /// Why no prospect of the group is trusted; None where one is.
    pub distrust: Option<String>,
    /// Mean absolute error of what was said for the steps that have come in the last hour; None before the first of them.
    pub error: Option<f32>,
    /// The same of persistence, which has to be beaten.
    pub persistence_error: Option<f32>,
    /// What was said, a horizon ago, for now; the mean of all series.
    pub said: Option<f32>,
    /// What is now, of the same series.
    pub actual: Option<f32>,
}

/// A GPU as its exporter describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    /// The node it is in.
    pub node: Arc<str>,
    /// Its MIG instances by their id; none for a GPU that is not cut.
    pub instances: BTreeMap<Arc<str>, InstanceUse>,
}

/// A MIG instance in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceUse {
    /// The profile in NVIDIA's spelling.
    pub profile: Arc<str>,
    /// `namespace/name` of the pod that holds it, where the exporter says so.
    pub pod: Option<Arc<str>>,
}

impl Outlook {
    /// Whether it still holds at `now`, unix seconds.
    pub fn holds_at(&self, now: i64) -> bool {
        now <= self.at.saturating_add(self.valid_seconds.into())
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&GroupOutlook> {
        self.groups.iter().find(|group| group.group == name)
    }

    /// The next steps of a series, if they may be acted upon.
    pub fn trusted(&self, key: &SeriesKey) -> Option<&Prospect> {
        self.prospects.get(key).filter(|prospect| prospect.trusted)
    }
}

impl GroupOutlook {
    /// The model that has the largest share of what is said.
    pub fn speaker(&self) -> &'static str {
        self.models.first().map_or("none", |(model, _)| model)
    }
}

/// Whether a series can be gone on from at `now`: its newest value is at most `staleness` seconds old.
pub fn is_fresh(series: &Series, now: i64, staleness: i64) -> bool {
    series.age_seconds(now).is_some_and(|age| age <= staleness)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlook_runs_out() {
        let outlook = Outlook { at: 100, valid_seconds: 60, ..Outlook::default() };
        assert!(outlook.holds_at(100) && outlook.holds_at(160) && !outlook.holds_at(161));
    }

    #[test]
    fn only_what_is_trusted_is_handed_out() {
        let keys = ["a", "b"].map(|name| SeriesKey::new("g", name));
        let prospect = |trusted| Prospect { trusted, ..Prospect::default() };
        let prospects = [(keys[0].clone(), prospect(true)), (keys[1].clone(), prospect(false))].into();
        let outlook = Outlook { prospects, ..Outlook::default() };
        assert_eq!(keys.map(|key| outlook.trusted(&key).is_some()), [true, false]);
        assert!(outlook.trusted(&SeriesKey::new("g", "c")).is_none());
    }

    #[test]
    fn freshness_is_the_age_of_the_last_value() {
        let series = Series { start: 0, step_seconds: 60, values: vec![1.0, f32::NAN], ..Series::default() };
        assert!(is_fresh(&series, 60, 60) && !is_fresh(&series, 61, 60));
        assert!(!is_fresh(&Series { values: vec![f32::NAN], ..series }, 0, 60));
    }
}
