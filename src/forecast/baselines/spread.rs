//! Quantiles from past errors.
//!
//! Errors are counted in units of how much the series moves just then (root mean square of its recent one-step changes), so that
//! one table serves calm and lively series alike.

use super::{FITTED_HISTORY, Point, finite_mean};
use crate::forecast::{Forecasts, LabelledWindows, QUANTILES};

/// The 0.9 quantile of the standard normal distribution.
const NORMAL_90: f64 = 1.2816;

/// Steps of the common movement that count beside a series' own: a series that stood still for an hour will not do so for ever.
const PRIOR_STEPS: f64 = 10.0;

/// Windows that are looked at in fitting: enough for a 0.1 quantile to within some per cent.
const MOST_WINDOWS: usize = 4_000;

/// Fewer errors than these say little about quantiles.
const FEWEST_WINDOWS: usize = 30;

/// The quantiles of a model's errors, by step.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Mean square of the one-step changes over all series.
    common: f64,
    /// Errors in units of movement, a table by step for each quantile; rising from quantile to quantile.
    units: [Vec<f64>; 3],
}

impl Spread {
    /// The errors of a normal random walk: what is assumed where no errors are known.
    fn of_random_walk(horizon: usize) -> Spread {
        let at = |normal: f64| (1..=horizon).map(|step| normal * (step as f64).sqrt()).collect();
        Spread { common: 0.0, units: [at(-NORMAL_90), at(0.0), at(NORMAL_90)] }
    }

    /// The errors that `point` makes on `past`.
    pub(super) fn fit<P: Point>(point: &P, past: &LabelledWindows) -> Spread {
        let horizon = past.windows.shape.horizon;
        let mut spread = Spread::of_random_walk(horizon);
        let stride = past.len().div_ceil(MOST_WINDOWS).max(1);
        let chosen: Vec<usize> = (0..past.len()).step_by(stride).collect();
        if chosen.len() < FEWEST_WINDOWS {
            return spread;
        }
        let moved = chosen.iter().map(|&at| squared_changes(past.windows.recent(at, FITTED_HISTORY)));
        let (sum, steps) = moved.fold((0.0, 0.0), |(sum, steps), (more, count)| (sum + more, steps + count));
        spread.common = if steps > 0.0 { sum / steps } else { 0.0 };
        let mut errors = vec![Vec::with_capacity(chosen.len()); horizon];
        let mut mean = vec![0.0; horizon];
        for at in chosen {
            finite_mean(point, &past.windows, at, &mut mean);
            let unit = spread.movement(past.windows.recent(at, FITTED_HISTORY));
            for (step, errors) in errors.iter_mut().enumerate() {
                if unit > 0.0 {
                    errors.push((f64::from(past.target(at)[step]) - mean[step]) / unit);
                }
            }
        }
        for (step, errors) in errors.iter_mut().enumerate() {
            errors.sort_by(f64::total_cmp);
            for (units, quantile) in spread.units.iter_mut().zip(QUANTILES) {
                if let Some(&error) = errors.get((errors.len() as f64 * f64::from(quantile)) as usize) {
                    units[step] = error;
                }
            }
        }
        spread
    }

    /// Root mean square one-step change of the last values, with the common movement as a prior.
    fn movement(&self, recent: &[f32]) -> f64 {
        let (sum, steps) = squared_changes(recent);
        ((sum + PRIOR_STEPS * self.common) / (steps + PRIOR_STEPS)).sqrt()
    }

    /// Appends a window's mean and quantiles.
    pub(super) fn extend(&self, forecasts: &mut Forecasts, recent: &[f32], mean: &[f64]) {
        let unit = self.movement(recent);
        for (step, &mean) in mean.iter().enumerate() {
            forecasts.mean.push(mean as f32);
            for (quantile, units) in forecasts.quantiles.iter_mut().zip(&self.units) {
                let bound = f64::from(f32::MAX);
                quantile.push((mean + unit * units[step]).clamp(-bound, bound) as f32);
            }
        }
    }
}

/// Sum of the squared one-step changes, and how many there are.
fn squared_changes(values: &[f32]) -> (f64, f64) {
    let squares = values.windows(2).map(|pair| (f64::from(pair[1]) - f64::from(pair[0])).powi(2)).sum();
    (squares, values.len().saturating_sub(1) as f64)
}
