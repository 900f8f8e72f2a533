//! The policy as values: thresholds, targets, horizon and what a change costs.

use std::time::Duration;

use thiserror::Error;

use super::proposal::{Actuator, Load};
use crate::mig::parted::content_hash;
use crate::mig::{GpuModel, ProfileGeometry};

/// Memory of the smallest instance ever made, in GB: that of 1g.5gb.
const SMALLEST_GB: u16 = 5;

/// Equal instances that a trigger asks for, whatever the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// How many, as far as they fit.
    pub instances: u8,
    /// Compute slices of each: 1 is 1g.5gb on an A100-40GB and 1g.6gb on an A30.
    pub compute_slices: u8,
}

/// The policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// A GPU that will be used less than this is split.
    pub split_below: f64,
    /// A GPU that will be used more than this is merged.
    pub merge_above: f64,
    /// What splitting makes.
    pub split_target: Target,
    /// What merging makes.
    pub merge_target: Target,
    /// How far ahead the forecast is averaged.
    pub horizon: Duration,
    /// For how long a waiting pod's instance is counted as a gain: as long as the layout stays at least.
    pub hold: Duration,
    /// What a change costs.
    pub costs: Costs,
}

/// Capacity lost by a change, as time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The whole node with mig-manager: from stopping its operands until the new instances are advertised. Measured on A100s: 80
    /// to 121 s.
    pub mig_manager: Duration,
    /// An instance with the agent.
    pub agent_instance: Duration,
    /// A pod that is evicted: until its successor serves.
    pub drain: Duration,
}

/// What a load asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// Smaller instances.
    Split,
    /// The layout as it is.
    Keep,
    /// Larger instances.
    Merge,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            split_below: 0.40,
            merge_above: 0.80,
            split_target: Target { instances: 4, compute_slices: 1 },
            merge_target: Target { instances: 2, compute_slices: 2 },
            horizon: Duration::from_secs(600),
            hold: Duration::from_secs(3_600),
            costs: Costs::default(),
        }
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            mig_manager: Duration::from_secs(120),
            agent_instance: Duration::from_secs(3),
            drain: Duration::from_secs(60),
        }
    }
}

/// A value of the policy that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {value} {fix}")]
pub struct PolicyError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub fix: &'static str,
}

impl Policy {
    /// Refuses thresholds that overlap, targets that nothing can meet and a horizon that ends before the change does.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let refuse = |field, value: String, fix| Err(PolicyError { field, value, fix });
        if !(self.split_below > 0.0 && self.split_below < self.merge_above && self.merge_above < 1.0) {
            return refuse(
                "splitBelow",
                format!("{} with mergeAbove {}", self.split_below, self.merge_above),
                "leaves no band between: write 0 < splitBelow < mergeAbove < 1",
            );
        }
        for (field, target) in [("splitTarget", self.split_target), ("mergeTarget", self.merge_target)] {
            if !(1..=7).contains(&target.instances) || !(1..=7).contains(&target.compute_slices) {
                let value = format!("{} × {} slices", target.instances, target.compute_slices);
                return refuse(field, value, "fits no GPU: write 1 to 7 instances of 1 to 7 slices");
            }
        }
        if self.horizon <= self.costs.mig_manager {
            let value = format!("{:?}", self.horizon);
            return refuse("horizon", value, "ends before a change does: write more than costs.migManager");
        }
        Ok(())
    }

    /// What a load asks for; a load that is not a number asks for nothing.
    pub fn band(&self, load: Load) -> Band {
        if load.forecast < self.split_below {
            Band::Split
        } else if load.forecast > self.merge_above {
            Band::Merge
        } else {
            Band::Keep
        }
    }

    /// The profile of a target on a model: of the base profiles with so many compute slices the one with the least memory.
    pub fn target_profile(
        &self,
        model: &'static GpuModel,
        target: Target,
    ) -> Option<&'static ProfileGeometry> {
        let fits = |profile: &&ProfileGeometry| {
            let name = profile.name;
            name.is_base()
                && name.compute_slices() == target.compute_slices
                && name.memory_gb() >= SMALLEST_GB
        };
        model.profiles.iter().filter(fits).min_by_key(|profile| profile.memory_slices)
    }

    /// Seconds of lost capacity for each slice of a node that a change stops.
    pub const fn outage(&self, actuator: Actuator) -> Duration {
        match actuator {
            Actuator::MigManager => self.costs.mig_manager,
            Actuator::Agent => Duration::ZERO,
        }
    }

    /// A name for exactly this policy, acted on by this program with these weights: the unit of the canary.
    pub fn fingerprint(&self, weights: &str, program: &str) -> String {
        format!("{:016x}", content_hash(&format!("{self:?} {weights} {program}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_open_at_their_thresholds() {
        let check = |forecast, expected| {
            assert_eq!(Policy::default().band(Load { present: 0.5, forecast }), expected, "{forecast}");
        };
        check(0.0, Band::Split);
        check(0.399, Band::Split);
        check(0.4, Band::Keep);
        check(0.8, Band::Keep);
        check(0.801, Band::Merge);
        check(f64::NAN, Band::Keep);
    }

    #[test]
    fn targets_have_a_profile_on_every_model() {
        let policy = Policy::default();
        let check = |model: &str, split: &str, merge: &str| {
            let model = GpuModel::by_name(model).unwrap();
            let of = |target| policy.target_profile(model, target).unwrap().name.to_string();
            assert_eq!((of(policy.split_target), of(policy.merge_target)), (split.into(), merge.into()));
        };
        check("A100-40GB", "1g.5gb", "2g.10gb");
        check("A100-80GB", "1g.10gb", "2g.20gb");
        check("A30-24GB", "1g.6gb", "2g.12gb");
        check("RTX-PRO-6000-96GB", "1g.24gb", "2g.48gb");
        let a30 = GpuModel::by_name("A30-24GB").unwrap();
        assert_eq!(policy.target_profile(a30, Target { instances: 1, compute_slices: 3 }), None);
    }

    #[test]
    fn nonsense_is_named() {
        let check = |edit: fn(&mut Policy), expected: &str| {
            let mut policy = Policy::default();
            edit(&mut policy);
            let error = policy.validate().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        assert_eq!(Policy::default().validate(), Ok(()));
        check(|p| p.split_below = 0.9, "splitBelow: 0.9 with mergeAbove 0.8 leaves no band between");
        check(|p| p.merge_above = f64::NAN, "splitBelow: 0.4 with mergeAbove NaN");
        check(|p| p.merge_target.instances = 0, "mergeTarget: 0 × 2 slices fits no GPU");
        check(|p| p.horizon = Duration::from_secs(60), "horizon: 60s ends before a change does");
    }

    #[test]
    fn another_policy_has_another_name() {
        let policy = Policy::default();
        let other = Policy { split_below: 0.3, ..policy.clone() };
        let names = [
            policy.fingerprint("w", "1"),
            other.fingerprint("w", "1"),
            policy.fingerprint("v", "1"),
            policy.fingerprint("w", "2"),
        ];
        assert_eq!(policy.fingerprint("w", "1"), names[0]);
        assert!((1..4).all(|at| names[at] != names[0]));
    }
}
