//! Exponential smoothing with additive errors (Hyndman, Koehler, Ord and Snyder 2008): simple, with a trend, or with a trend that
//! is damped, whichever has the least corrected Akaike criterion on the last values.
//!
//! ```text
//!   e = y - (level + φ·trend)      level' = level + φ·trend + α·e      trend' = φ·trend + α·β·e
//!   h steps ahead: level + (φ + φ² + … + φʰ)·trend
//! ```
//!
//! The parameters come from a grid; all values of α are tried side by side in one pass over the values.

use super::{FITTED_HISTORY, Point};
use crate::forecast::Windows;

const ALPHAS: [f64; 8] = [0.02, 0.08, 0.16, 0.3, 0.45, 0.65, 0.85, 1.0];
const BETAS: [f64; 4] = [0.01, 0.05, 0.15, 0.4];

/// Damping; 1 is a trend for ever.
const PHIS: [f64; 4] = [0.8, 0.9, 0.97, 1.0];

/// Values that the first level is the mean of.
const WARM_UP: usize = 10;

/// Fewer values than these are not fitted: the last value stays.
const FEWEST: usize = 20;

/// Exponential smoothing, chosen and fitted window by window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ets;

/// What a pass over the values leaves, for each of [`ALPHAS`].
struct Pass {
    squares: [f64; ALPHAS.len()],
    level: [f64; ALPHAS.len()],
    trend: [f64; ALPHAS.len()],
}

fn pass(values: &[f32], beta: f64, phi: f64) -> Pass {
    let first = &values[..WARM_UP.min(values.len())];
    let start = first.iter().map(|&value| f64::from(value)).sum::<f64>() / first.len() as f64;
    let (mut squares, mut trend) = ([0.0; ALPHAS.len()], [0.0; ALPHAS.len()]);
    let mut level = [start; ALPHAS.len()];
    for &value in values {
        let value = f64::from(value);
        for lane in 0..ALPHAS.len() {
            let expected = level[lane] + phi * trend[lane];
            let error = value - expected;
            squares[lane] += error * error;
            level[lane] = expected + ALPHAS[lane] * error;
            trend[lane] = phi * trend[lane] + ALPHAS[lane] * beta * error;
        }
    }
    Pass { squares, level, trend }
}

/// Corrected Akaike criterion of `free` parameters.
pub(super) fn criterion(squares: f64, count: f64, free: f64) -> f64 {
    let free = free + 1.0;
    count * (squares / count).ln() + 2.0 * free * count / (count - free - 1.0).max(1.0)
}

impl Point for Ets {
    fn name(&self) -> &'static str {
        "ets"
    }

    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]) {
        let values = windows.recent(at, FITTED_HISTORY);
        mean.fill(f64::NAN);
        if values.len() < FEWEST {
            return;
        }
        let simple = [(0.0, 0.0, 2.0)];
        let trends = PHIS.iter().flat_map(|&phi| {
            let free = if phi < 1.0 { 5.0 } else { 4.0 };
            BETAS.iter().map(move |&beta| (beta, phi, free))
        });
        let mut least = f64::INFINITY;
        for (beta, phi, free) in simple.into_iter().chain(trends) {
            let pass = pass(values, beta, phi);
            for lane in 0..ALPHAS.len() {
                let criterion = criterion(pass.squares[lane], values.len() as f64, free);
                if criterion < least {
                    least = criterion;
                    ahead(pass.level[lane], pass.trend[lane], phi, mean);
                }
            }
        }
    }
}

fn ahead(level: f64, trend: f64, phi: f64, mean: &mut [f64]) {
    let (mut damped, mut power) = (0.0, 1.0);
    for mean in mean {
        power *= phi;
        damped += power;
        *mean = level + damped * trend;
    }
}
