//! How careful changes are: plain values with the product's defaults.

use std::time::Duration;

use thiserror::Error;

use super::observe::Rule;
use super::window::{LONGEST, MaintenanceWindow};

/// How careful changes are.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Least time from one forward change of a node, or its rollback, to the next.
    pub cool_down: Duration,
    /// Least difference between forecast and present activity, as a share of the present, for a change that activity asks for.
    pub dead_band: f64,
    /// Share of the eligible nodes on which a new policy acts first; at least one node.
    pub canary_share: f64,
    /// Changes of these nodes that must hold before the policy acts everywhere.
    pub canary_changes: usize,
    /// Share of the eligible nodes that may be changing at once; at least one node.
    pub budget_share: f64,
    /// When changes may begin; always, if there are none. A rollback may begin at any time.
    pub windows: Vec<MaintenanceWindow>,
    /// Plan and report, change nothing.
    pub dry_run: bool,
    /// How long each step of a change may take.
    pub timings: Timings,
    /// When a change counts as harmful.
    pub rule: Rule,
}

/// How long each step of a change may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// From publishing a layout until mig-manager's pod is sure to see it: kubelet's sync period of a minute, and a half.
    pub propagation: Duration,
    /// From an eviction until the successor is ready; also for emptying the GPUs before a rollback.
    pub replacement: Duration,
    /// From the instruction until everything shows the new layout: pausing six operands takes mig-manager up to five minutes
    /// each in the worst case it survives, and commonly two minutes in all.
    pub apply: Duration,
    /// From the instruction until the actuator has begun at the latest, and the device plugin should show its success, after
    /// which that one's pod is restarted once.
    pub readvertise: Duration,
    /// From the new layout being advertised until it is measured: models load in 10 to 30 seconds.
    pub warm_up: Duration,
    /// Between two samples.
    pub step: Duration,
    /// How long a slot of the budget that no journal speaks of stays taken.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cool_down: Duration::from_secs(3_600),
            dead_band: 0.10,
            canary_share: 0.10,
            canary_changes: 3,
            budget_share: 0.10,
            windows: Vec::new(),
            dry_run: false,
            timings: Timings::default(),
            rule: Rule::default(),
        }
    }
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            propagation: Duration::from_secs(90),
            replacement: Duration::from_secs(300),
            apply: Duration::from_secs(720),
            readvertise: Duration::from_secs(150),
            warm_up: Duration::from_secs(120),
            step: Duration::from_secs(60),
            grace: Duration::from_secs(300),
        }
    }
}

impl Timings {
    /// From a change's beginning until the new layout must show: what has to fit into a maintenance window.
    pub const fn disruption(&self) -> Duration {
        self.propagation.saturating_add(self.replacement).saturating_add(self.apply)
    }

    /// From the new layout being advertised until its last sample can be there: two steps are for the exporter and Prometheus.
    pub fn observation(&self, rule: &Rule) -> Duration {
        let steps = u32::try_from(rule.samples).unwrap_or(u32::MAX).saturating_add(2);
        self.warm_up.saturating_add(self.step.saturating_mul(steps))
    }
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {value} {fix}")]
pub struct SettingError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub fix: &'static str,
}

impl Settings {
    /// Refuses what would make a change unsafe or impossible.
    pub fn validate(&self) -> Result<(), SettingError> {
        let share = |field, value: f64| {
            let good = value > 0.0 && value <= 1.0;
            good.then_some(()).ok_or(SettingError {
                field,
                value: value.to_string(),
                fix: "is not a share: write more than 0 and at most 1",
            })
        };
        share("canaryShare", self.canary_share)?;
        share("budgetShare", self.budget_share)?;
        share("rule.fall", self.rule.fall)?;
        let refuse = |field, value: String, fix| Err(SettingError { field, value, fix });
        if self.cool_down < Duration::from_secs(3_600) {
            return refuse(
                "coolDown",
                format!("{:?}", self.cool_down),
                "is too short: write one hour or more, since every change pauses the whole node",
            );
        }
        if !(0.0..=1.0).contains(&self.dead_band) {
            return refuse("deadBand", self.dead_band.to_string(), "is not a share: write 0 to 1");
        }
        if self.canary_changes == 0 {
            return refuse("canaryChanges", "0".to_owned(), "proves nothing: write 1 or more");
        }
        if self.rule.least == 0 || self.rule.least > self.rule.samples {
            return refuse("rule.least", self.rule.least.to_string(), "must be 1 to the number of samples");
        }
        if self.timings.step.is_zero() || self.timings.apply.is_zero() {
            return refuse("timings", "0s".to_owned(), "ends before it begins: write a positive duration");
        }
        for window in &self.windows {
            if window.length < self.timings.disruption() || window.length > LONGEST {
                return refuse(
                    "windows.length",
                    format!("{:?}", window.length),
                    "must be long enough for a whole change, and at most 24 hours",
                );
            }
            if window.days.is_empty() {
                return refuse("windows.days", "[]".to_owned(), "never opens: name at least one day");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        let settings = Settings::default();
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(settings.timings.observation(&settings.rule), Duration::from_secs(840));
    }

    #[test]
    fn refusals_name_field_value_and_fix() {
        let check = |edit: fn(&mut Settings), expected: &str| {
            let mut settings = Settings::default();
            edit(&mut settings);
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        check(|s| s.canary_share = 0.0, "canaryShare: 0 is not a share");
        check(|s| s.budget_share = f64::NAN, "budgetShare: NaN is not");
        check(|s| s.rule.fall = 1.5, "rule.fall: 1.5 is not");
        check(|s| s.cool_down = Duration::from_secs(1_800), "coolDown: 1800s is too short: write one hour");
        check(|s| s.dead_band = -0.1, "deadBand: -0.1 is not a share");
        check(|s| s.canary_changes = 0, "canaryChanges: 0 proves nothing");
        check(|s| s.rule.least = 11, "rule.least: 11 must be");
        check(|s| s.timings.apply = Duration::ZERO, "timings: 0s ends");
        let window = |days: &[jiff::civil::Weekday], hours: u64| MaintenanceWindow {
            days: days.to_vec(),
            begins: jiff::civil::Time::midnight(),
            length: Duration::from_secs(hours * 3_600),
            zone: jiff::tz::TimeZone::UTC,
        };
        for (window, expected) in [
            (window(&[jiff::civil::Weekday::Monday], 25), "windows.length: 90000s must be"),
            (window(&[], 1), "windows.days: [] never opens"),
        ] {
            let settings = Settings { windows: vec![window], ..Settings::default() };
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
