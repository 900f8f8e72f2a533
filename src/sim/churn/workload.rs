//! Which pods arrive when, and how long they live.
//!
//! Times are in ticks, [`LIFETIME`] of which are one mean lifetime.

use crate::sim::rng::Rng;

/// One mean lifetime in ticks.
pub const LIFETIME: u64 = 1 << 32;

/// How lifetimes are distributed around their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Lifetimes {
    /// Uniform from nothing to twice the mean.
    Uniform,
    /// Exponential: what a pod has run says nothing about what is left.
    Exponential,
    /// Two kinds of pods: nine of ten live a fifth of the mean, one 8.2 times the mean, each exponentially.
    HeavyTailed,
}

/// When pods arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// One after the other at equal distances.
    Regular,
    /// A Poisson process.
    Poisson,
}

/// One pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// When it arrives.
    pub arrival: u64,
    /// How long it runs once it has started.
    pub lifetime: u64,
    /// Position of its profile, large ones first.
    pub profile: u8,
}

/// The endless stream of pods of one seed.
#[derive(Clone, Debug)]
pub struct Workload {
    weights: Vec<u64>,
    lifetimes: Lifetimes,
    arrivals: Arrivals,
    gap: u64,
    now: u64,
    choose: Rng,
    live: Rng,
    come: Rng,
}

impl Workload {
    /// `weights` and `sizes` (memory slices) are by profile; `slices` is the whole fleet's capacity, of which the pods ask for
    /// `load` on average.
    pub fn new(
        seed: u64,
        weights: &[u64],
        sizes: &[u8],
        slices: u64,
        load: f64,
        lifetimes: Lifetimes,
        arrivals: Arrivals,
    ) -> Workload {
        let total: u64 = weights.iter().sum();
        let size: u64 = weights.iter().zip(sizes).map(|(weight, &size)| weight * u64::from(size)).sum();
        let gap = LIFETIME as f64 * size as f64 / total as f64 / (load * slices as f64);
        Workload {
            weights: weights.to_vec(),
            lifetimes,
            arrivals,
            gap: gap as u64,
            now: 0,
            choose: Rng::new(seed, 1),
            live: Rng::new(seed, 2),
            come: Rng::new(seed, 3),
        }
    }
}

impl Iterator for Workload {
    type Item = Pod;

    fn next(&mut self) -> Option<Pod> {
        self.now += match self.arrivals {
            Arrivals::Regular => self.gap,
            Arrivals::Poisson => scaled(self.gap, exponential(&mut self.come)),
        };
        let lifetime = match self.lifetimes {
            Lifetimes::Uniform => self.live.below(2 * LIFETIME),
            Lifetimes::Exponential => exponential(&mut self.live),
            Lifetimes::HeavyTailed => {
                let long = self.live.below(10) == 0;
                scaled(if long { LIFETIME / 5 * 41 } else { LIFETIME / 5 }, exponential(&mut self.live))
            }
        };
        let profile = self.choose.weighted(&self.weights) as u8;
        Some(Pod { arrival: self.now, lifetime: lifetime.max(1), profile })
    }
}

/// `amount` times `factor`, which counts in units of `2^-32`.
fn scaled(amount: u64, factor: u64) -> u64 {
    ((u128::from(amount) * u128::from(factor)) >> 32) as u64
}

/// An exponential number with mean 1 in units of `2^-32`, by von Neumann's method (1951): only comparisons of uniform numbers,
/// so that it is the same on every platform. A falling run of odd length keeps its first number as the fraction, a run of even
/// length adds one to the whole part.
fn exponential(rng: &mut Rng) -> u64 {
    let mut whole = 0u64;
    loop {
        let first = rng.next_u64();
        let (mut last, mut run) = (first, 1u32);
        loop {
            let next = rng.next_u64();
            if next >= last {
                break;
            }
            last = next;
            run += 1;
        }
        if run % 2 == 1 {
            return (whole << 32) + (first >> 32);
        }
        whole += 1;
    }
}
