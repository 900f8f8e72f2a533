//! How much one more free instance of a profile is wanted, and the layout that serves such wishes best.
//!
//! With x free instances beyond the waiting pods, one more of profile p serves a pod within a mean lifetime if demand rises by
//! more than x. Arrivals and ends within that time each have the variance λ, so that the rise is spread like σ = sqrt(2λ) around
//! zero, and
//!
//! ```text
//!   want(x) = size^(3/4) · (1 − u / sqrt(1 + u²)) / 2      u = x / (r·σ)
//! ```
//!
//! stands for its probability (a fraction whose tails are heavier than the normal distribution's), weighted so that large pods
//! are not starved by many small ones and yet small ones, of which more fit, come first.

use super::states::{LayoutStates, Spot, StateId};
use crate::mig::ProfileGeometry;

/// r: which part of the spread over a whole lifetime counts; instances are looked after more often than that.
const REACH: f64 = 0.1;

/// A change has to gain at least this: less than the smallest waiting pod served.
pub const THRESHOLD: f64 = 0.15;

/// What moving a pod has to gain.
pub const MOVE_COST: f64 = 0.3;

/// Wishes for instances, for one mix of arrivals.
#[derive(Clone, Debug)]
pub struct Wants {
    /// By profile: weight and spread.
    profiles: Vec<(f64, f64)>,
}

impl Wants {
    /// `arrivals` is by profile, in a mean lifetime.
    pub fn new(states: &LayoutStates, arrivals: &[f64]) -> Wants {
        let slices = f64::from(states.model().memory_slices);
        let profile = |(geometry, rate): (&&ProfileGeometry, &f64)| {
            let size = f64::from(geometry.memory_slices) / slices;
            (size.sqrt() * size.sqrt().sqrt(), REACH * (2.0 * rate).sqrt().max(1.0))
        };
        Wants { profiles: states.profiles().iter().zip(arrivals).map(profile).collect() }
    }

    /// Takes free instances out of the balance; what they were worth.
    pub fn take(&self, balance: &mut [i64], spots: impl Iterator<Item = Spot>) -> f64 {
        let mut worth = 0.0;
        for spot in spots {
            balance[usize::from(spot.profile)] -= 1;
            worth += self.want(spot.profile, balance[usize::from(spot.profile)]);
        }
        worth
    }

    /// The instances to add to `state` that are wanted most, and how much they are.
    pub fn fill(&self, states: &LayoutStates, state: StateId, balance: &[i64]) -> (f64, Vec<Spot>) {
        let mut search = Fill {
            wants: self,
            states,
            balance: balance.to_vec(),
            chosen: Vec::new(),
            best: (0.0, Vec::new()),
        };
        search.extend(state, 0, 0.0);
        search.best
    }

    fn want(&self, profile: u8, beyond: i64) -> f64 {
        let (weight, spread) = self.profiles[usize::from(profile)];
        let u = beyond as f64 / spread;
        weight * (1.0 - u / (1.0 + u * u).sqrt()) / 2.0
    }
}

struct Fill<'a> {
    wants: &'a Wants,
    states: &'a LayoutStates,
    balance: Vec<i64>,
    chosen: Vec<Spot>,
    best: (f64, Vec<Spot>),
}

impl Fill<'_> {
    fn extend(&mut self, state: StateId, from: u8, worth: f64) {
        if worth > self.best.0 {
            self.best = (worth, self.chosen.clone());
        }
        for &(spot, after) in self.states.additions(state).iter().filter(|(spot, _)| spot.profile >= from) {
            let last = self.chosen.last().filter(|last| last.profile == spot.profile);
            if last.is_some_and(|last| last.start > spot.start) {
                continue;
            }
            let at = usize::from(spot.profile);
            let want = self.wants.want(spot.profile, self.balance[at]);
            self.balance[at] += 1;
            self.chosen.push(spot);
            self.extend(after, spot.profile, worth + want);
            self.chosen.pop();
            self.balance[at] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::GpuModel;

    /// The layout of an empty GPU for a balance by profile, large ones first, as counts.
    fn check(balance: [i64; 6], expected: [usize; 6]) {
        let states = LayoutStates::new(GpuModel::by_name("A100-80GB").unwrap());
        let wants = Wants::new(&states, &[36.0; 6]);
        let (worth, layout) = wants.fill(&states, StateId::default(), &balance);
        let count = |profile| layout.iter().filter(|spot| spot.profile == profile).count();
        assert_eq!([0, 1, 2, 3, 4, 5].map(count), expected, "{balance:?}: {worth}");
        let state = layout.iter().try_fold(StateId::default(), |state, &spot| states.add(state, spot));
        assert!(state.is_some() && worth > 0.0, "{layout:?} fits");
        let mut after = balance;
        layout.iter().for_each(|spot| after[usize::from(spot.profile)] += 1);
        let undone = wants.take(&mut after, layout.iter().rev().copied());
        assert!((undone - worth).abs() < 1e-9 && after == balance, "{undone} instead of {worth}");
    }

    #[test]
    fn waiting_pods_get_what_they_wait_for() {
        let plenty = 1_000;
        check([-2, plenty, plenty, plenty, plenty, plenty], [1, 0, 0, 0, 0, 0]);
        check([plenty, -3, -3, plenty, plenty, plenty], [0, 1, 1, 0, 0, 0]);
        check([plenty, plenty, -5, plenty, plenty, plenty], [0, 0, 2, 0, 0, 0]);
        check([plenty, plenty, plenty, plenty, -9, plenty], [0, 0, 0, 0, 4, 0]);
    }

    #[test]
    fn what_waits_longer_is_wanted_more_and_less_of_it_afterwards() {
        let states = LayoutStates::new(GpuModel::by_name("A100-80GB").unwrap());
        let wants = Wants::new(&states, &[36.0; 6]);
        for profile in 0..6 {
            let falling =
                (-50..50).all(|beyond| wants.want(profile, beyond) > wants.want(profile, beyond + 1));
            assert!(falling && wants.want(profile, 1_000) > 0.0 && wants.want(profile, -1_000) < 1.0);
        }
    }
}
