//! Simple models, each cheap enough to run beside the others on every window.
//!
//! ```text
//!   Point (the mean of one window) ──► Calibrated (quantiles from the model's own past errors) ──► Forecaster
//! ```
//!
//! | model | what it says |
//! |---|---|
//! | [`Persistence`] | the last value |
//! | [`WindowMean`] | the mean of the window |
//! | [`SeasonalNaive`] | the value of a day ago |
//! | [`Linear`] | a linear map of the window, learnt over all series or for one with all as a prior |
//! | [`Seasonal`] | the same, with the means of the last hours and what followed a day and a week ago |
//! | [`Ets`] | exponential smoothing, fitted to the last 300 values |
//! | [`Arima`] | ARMA of the values or their changes, fitted to the last 300 values |
//!
//! All are written here rather than taken from a library: `augurs-ets`, the one ETS crate, has no seasonal models, calls some of
//! its model types untested, and brings nalgebra, rand and rand_distr; ARIMA has no maintained crate. What a forecast of ten
//! steps needs of either is some hundred lines.

mod arima;
mod ets;
mod linear;
mod seasonal;
mod simple;
mod spread;

use super::{ForecastError, Forecaster, Forecasts, LabelledWindows, Model, Windows};

pub use arima::Arima;
pub use ets::Ets;
pub use linear::Linear;
pub use seasonal::Seasonal;
pub use simple::{Persistence, SeasonalNaive, WindowMean};
pub use spread::Spread;

/// Values before a window's end that models fitted window by window look at.
pub const FITTED_HISTORY: usize = 300;

/// A model of the mean of one window.
pub trait Point {
    /// A short name that stays the same.
    fn name(&self) -> &'static str;

    /// Writes the mean of window `at`, one value a step. What is not finite is replaced by the last input.
    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]);

    /// Learns from windows whose targets have become known.
    ///
    /// # Errors
    /// When the windows are of another shape than those it was made from.
    fn learn(&mut self, _known: &LabelledWindows) -> Result<(), ForecastError> {
        Ok(())
    }
}

/// Every model, from simple to complex: those that learn do so from `learnt`, and quantiles come from errors on `held_out`.
pub fn all(learnt: &LabelledWindows, held_out: &LabelledWindows) -> Vec<Model> {
    fn model<P: Point + Send + 'static>(point: P, held_out: &LabelledWindows) -> Model {
        Box::new(Calibrated::new(point, held_out))
    }
    vec![
        model(Persistence, held_out),
        model(WindowMean, held_out),
        model(SeasonalNaive, held_out),
        model(Linear::pooled(learnt), held_out),
        model(Linear::own(learnt), held_out),
        model(Ets, held_out),
        model(Seasonal::fit(learnt), held_out),
        model(Arima, held_out),
    ]
}

/// A model of the mean with quantiles from its past errors.
#[derive(Clone, Debug)]
pub struct Calibrated<P> {
    point: P,
    spread: Spread,
}

impl<P: Point> Calibrated<P> {
    /// Takes the quantiles from the errors that `point` makes on `past`, which should be data that it has not learnt from; without
    /// any, errors count as a normal random walk's.
    pub fn new(point: P, past: &LabelledWindows) -> Calibrated<P> {
        let spread = Spread::fit(&point, past);
        Calibrated { point, spread }
    }
}

impl<P: Point> Forecaster for Calibrated<P> {
    fn name(&self) -> &'static str {
        self.point.name()
    }

    fn forecast(&self, windows: &Windows) -> Result<Forecasts, ForecastError> {
        let horizon = windows.shape.horizon;
        let values = windows.len() * horizon;
        let mut forecasts = Forecasts {
            horizon,
            mean: Vec::with_capacity(values),
            quantiles: std::array::from_fn(|_| Vec::with_capacity(values)),
        };
        let mut mean = vec![0.0; horizon];
        for at in 0..windows.len() {
            finite_mean(&self.point, windows, at, &mut mean);
            self.spread.extend(&mut forecasts, windows.recent(at, FITTED_HISTORY), &mean);
        }
        Ok(forecasts)
    }

    fn learn(&mut self, known: &LabelledWindows) -> Result<(), ForecastError> {
        self.point.learn(known)
    }
}

/// The mean of one window, the last input where the model has no number, within what a single precision number holds.
fn finite_mean<P: Point>(point: &P, windows: &Windows, at: usize, mean: &mut [f64]) {
    point.mean(windows, at, mean);
    let last = last(windows, at);
    for value in mean {
        let representable = value.is_finite() && value.abs() <= f64::from(f32::MAX);
        *value = if representable { *value } else { last };
    }
}

/// The last input of window `at`.
fn last(windows: &Windows, at: usize) -> f64 {
    windows.input(at).last().map_or(0.0, |&value| f64::from(value))
}

#[cfg(test)]
mod tests;
