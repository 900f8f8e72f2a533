//! Forecasts of usage: the next minutes of every series from its last ones, by models that have to earn their say.
//!
//! ```text
//!   Series ──► Windows ──► Forecaster ──► Forecasts
//!   (gaps are  (never over (one of many)  (mean and quantiles,
//!    NaN)       a gap)                     always finite)
//! ```
//!
//! Pure: a forecast is a function of the windows and of what a model learnt from earlier ones. No clock is read: whether a
//! series is stale follows from the time that the caller passes in.

pub mod backtest;
pub mod baselines;
pub mod decision;
pub mod gate;
pub mod lstm;
pub mod outlook;
pub mod scale;
pub mod score;
pub mod series;
mod solve;
pub mod train;
pub mod weights;
pub mod window;

use thiserror::Error;

pub use outlook::{GpuUse, GroupOutlook, InstanceUse, Outlook, Prospect};
pub use series::{Series, SeriesKey};
pub use window::{LabelledWindows, Shape, Windows};

/// The quantiles that every forecast has, in this order.
pub const QUANTILES: [f32; 3] = [0.1, 0.5, 0.9];

/// Forecasts of n windows; every table is `[n, horizon]`, row-major, in the unit of the series.
///
/// Invariant of what a [`Forecaster`] returns: all values are finite, and `q10 <= q50 <= q90` at every step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecasts {
    /// Steps ahead.
    pub horizon: usize,
    /// The mean.
    pub mean: Vec<f32>,
    /// One table for each of [`QUANTILES`].
    pub quantiles: [Vec<f32>; 3],
}

impl Forecasts {
    /// Number of windows.
    pub fn len(&self) -> usize {
        self.mean.len() / self.horizon.max(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.mean.is_empty()
    }

    /// The mean of window `at`, one value a step.
    pub fn mean_of(&self, at: usize) -> &[f32] {
        &self.mean[at * self.horizon..(at + 1) * self.horizon]
    }

    /// One quantile of window `at`; `quantile` counts in [`QUANTILES`].
    pub fn quantile_of(&self, quantile: usize, at: usize) -> &[f32] {
        &self.quantiles[quantile][at * self.horizon..(at + 1) * self.horizon]
    }

    /// Whether every value is a number.
    pub fn is_finite(&self) -> bool {
        self.mean.iter().chain(self.quantiles.iter().flatten()).all(|value| value.is_finite())
    }
}

/// Something that forecasts a batch of windows.
///
/// Deterministic: the same windows give the same forecasts, whatever else the batch holds. Windows whose values are not all
/// finite do not arise (see [`Windows`]), and nothing that is not finite ever comes out.
pub trait Forecaster {
    /// A short name that stays the same, for reports and metrics: `persistence`, `lstm`.
    fn name(&self) -> &'static str;

    /// Forecasts every window.
    fn forecast(&self, windows: &Windows) -> Result<Forecasts, ForecastError>;

    /// Learns from windows whose targets have become known; what has nothing to learn does nothing.
    ///
    /// # Errors
    /// When the windows are of another shape than those it was made from.
    fn learn(&mut self, _known: &LabelledWindows) -> Result<(), ForecastError> {
        Ok(())
    }
}

/// A model that may work on a thread of its own.
pub type Model = Box<dyn Forecaster + Send>;

/// Why there is no forecast.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ForecastError {
    /// A shape that makes no sense.
    #[error("{field} is {value}; it must be {expected}")]
    Shape {
        /// The field of [`Shape`].
        field: &'static str,
        /// Its value.
        value: usize,
        /// What it must be.
        expected: &'static str,
    },
    /// A table whose length does not follow from the number of windows.
    #[error("{table} holds {found} values where {expected} belong")]
    Length {
        /// The table.
        table: &'static str,
        /// Its length.
        found: usize,
        /// The length that follows from the others.
        expected: usize,
    },
    /// A table with a value that is not finite.
    #[error("{table} is not finite at position {position}")]
    NotFinite {
        /// The table.
        table: &'static str,
        /// Where, row-major.
        position: usize,
    },
    /// A series on another grid than the windows.
    #[error("series {series} has a step of {found} s; the forecaster works at {expected} s")]
    Step {
        /// The series.
        series: String,
        /// Its step.
        found: u32,
        /// The forecaster's step.
        expected: u32,
    },
    /// The model was made for other windows.
    #[error("{model} takes windows of {expected}, not of {found}")]
    OtherShape {
        /// The model.
        model: &'static str,
        /// What it takes.
        expected: Shape,
        /// What it was given.
        found: Shape,
    },
    /// The model itself failed.
    #[error("{model}: {problem}")]
    Model {
        /// The model.
        model: &'static str,
        /// What went wrong.
        problem: String,
    },
}
