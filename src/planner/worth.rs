//! What free instances are worth: the pods that they can be expected to serve.
//!
//! ```text
//!   worth = Σ_p slices_p · hold · E[min(free_p, d_p + N_p)]        N_p ~ Poisson(arrivals_p)
//! ```
//!
//! d are the pods that wait and those that a forecast says will come; arrivals are further pods that may come while the layout is
//! kept. A pod wants one instance of exactly its profile, so that counting is exact.
//!
//! Invariant: an instance that nobody asks for is worth nothing, and one more instance is never worth more than the one before.

use std::collections::BTreeMap;

use super::question::DemandOutlook;
use crate::mig::ProfileName;

/// Arrivals beyond which their spread no longer matters: e^-λ stays far above the smallest double.
const MANY: f64 = 500.0;

/// Instances by profile.
pub type Free = BTreeMap<ProfileName, u32>;

/// The worth of free instances for one demand.
#[derive(Clone, Debug)]
pub struct Worth {
    profiles: BTreeMap<ProfileName, Wanted>,
}

/// One profile.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    slices: f64,
    known: u32,
    waiting: u32,
    arrivals: f64,
}

impl Worth {
    /// For this demand; `slices` says how many memory slices an instance takes.
    pub fn new(demand: &DemandOutlook, slices: &BTreeMap<ProfileName, u8>) -> Worth {
        let mut profiles: BTreeMap<ProfileName, Wanted> = BTreeMap::new();
        let of = |profile: &ProfileName| Wanted {
            slices: slices.get(profile).copied().unwrap_or(0).into(),
            ..Wanted::default()
        };
        for waiting in &demand.waiting {
            let wanted = profiles.entry(waiting.profile).or_insert_with_key(of);
            wanted.waiting = wanted.waiting.saturating_add(waiting.count);
            wanted.known = wanted.known.saturating_add(waiting.count);
        }
        for (profile, count) in &demand.coming {
            let wanted = profiles.entry(*profile).or_insert_with_key(of);
            wanted.known = wanted.known.saturating_add(*count);
        }
        for (profile, rate) in demand.arrivals.iter().filter(|(_, rate)| rate.is_finite() && **rate > 0.0) {
            profiles.entry(*profile).or_insert_with_key(of).arrivals = *rate;
        }
        Worth { profiles }
    }

    /// Slices that will be served, on average.
    pub fn slices(&self, free: &Free) -> f64 {
        let served = |(profile, wanted): (&ProfileName, &Wanted)| {
            wanted.slices * wanted.served(free.get(profile).copied().unwrap_or(0))
        };
        self.profiles.iter().map(served).sum()
    }

    /// Pods that wait and find an instance among the free ones.
    pub fn placed(&self, free: &Free) -> u32 {
        let placed = |(profile, wanted): (&ProfileName, &Wanted)| {
            wanted.waiting.min(free.get(profile).copied().unwrap_or(0))
        };
        self.profiles.iter().map(placed).sum()
    }

    /// Pods that wait and find none, by profile.
    pub fn left_out(&self, free: &Free) -> BTreeMap<ProfileName, u32> {
        let left = |(profile, wanted): (&ProfileName, &Wanted)| {
            let left = wanted.waiting.saturating_sub(free.get(profile).copied().unwrap_or(0));
            (left > 0).then_some((*profile, left))
        };
        self.profiles.iter().filter_map(left).collect()
    }
}

impl Wanted {
    /// E[min(free, known + N)].
    fn served(&self, free: u32) -> f64 {
        let beyond = free.saturating_sub(self.known);
        f64::from(free.min(self.known)) + expected_least(beyond, self.arrivals)
    }
}

/// E[min(most, N)] = Σ_{k=1}^{most} P(N ≥ k) for N ~ Poisson(rate).
fn expected_least(most: u32, rate: f64) -> f64 {
    if rate > MANY {
        return rate.min(most.into());
    }
    let (mut chance, mut below, mut sum) = ((-rate).exp(), 0.0, 0.0);
    for k in 1..=most {
        below += chance;
        let at_least = 1.0 - below;
        if at_least <= f64::EPSILON {
            break;
        }
        sum += at_least;
        chance *= rate / f64::from(k);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::Waiting;

    fn profile(text: &str) -> ProfileName {
        text.parse().unwrap()
    }

    #[test]
    fn a_mean_of_the_least_by_hand() {
        let check = |most, rate: f64, expected: f64| {
            let found = expected_least(most, rate);
            assert!((found - expected).abs() < 1e-9, "{most} of {rate}: {found}, not {expected}");
        };
        check(0, 3.0, 0.0);
        check(5, 0.0, 0.0);
        check(1, 1.0, 1.0 - (-1.0f64).exp());
        // P(N ≥ 1) + P(N ≥ 2) = 2 − 3/e.
        check(2, 1.0, 2.0 - 3.0 * (-1.0f64).exp());
        check(1_000, 4.0, 4.0);
        check(600, 550.0, 550.0);
    }

    #[test]
    fn only_what_is_asked_for_counts() {
        let demand = DemandOutlook {
            waiting: vec![
                Waiting { profile: profile("3g.20gb"), priority: 0, count: 1 },
                Waiting { profile: profile("3g.20gb"), priority: 5, count: 1 },
            ],
            coming: [(profile("1g.5gb"), 2)].into(),
            arrivals: [(profile("1g.5gb"), 1.0), (profile("2g.10gb"), f64::NAN)].into(),
        };
        let slices = [(profile("3g.20gb"), 4), (profile("1g.5gb"), 1), (profile("7g.40gb"), 8)].into();
        let worth = Worth::new(&demand, &slices);
        let free = |text: &[(&str, u32)]| -> Free { text.iter().map(|(p, n)| (profile(p), *n)).collect() };
        let check = |list: &[(&str, u32)], slices: f64, placed: u32, left: u32| {
            let free = free(list);
            assert!((worth.slices(&free) - slices).abs() < 1e-9, "{list:?}: {}", worth.slices(&free));
            assert_eq!((worth.placed(&free), worth.left_out(&free).values().sum::<u32>()), (placed, left));
        };
        check(&[], 0.0, 0, 2);
        check(&[("7g.40gb", 9), ("2g.10gb", 3)], 0.0, 0, 2);
        check(&[("3g.20gb", 1)], 4.0, 1, 1);
        check(&[("3g.20gb", 9)], 8.0, 2, 0);
        check(&[("1g.5gb", 2)], 2.0, 0, 2);
        check(&[("1g.5gb", 3)], 3.0 - (-1.0f64).exp(), 0, 2);
    }
}
