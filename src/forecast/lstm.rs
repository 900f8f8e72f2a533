//! The LSTM forecaster: one global model over all series.
//!
//! ```text
//!   window ─► centred, MinMax-scaled, calendar ─► two LSTM layers ─► dense head ─┐ times the window's spread
//!      │                                                                         ▼
//!      └────► last value + linear map of the window relative to it ─────────────(+)──► mean, q10, q50, q90
//! ```
//!
//! For each step ahead the head gives four numbers: what to add for the mean, what to add for the median, and how far the outer
//! quantiles lie from it (through a softplus, so that they never cross). The sequence runs as one fused operation of candle
//! ([`Network`]); training is in [`super::train`], files in [`super::weights`].
//!
//! Invariant: the forecast of a window does not depend on the batch that it comes in, nor on the number of threads.

mod backward;
mod block;
mod features;
mod forward;
mod lanes;
mod linear;
mod op;
mod passes;
mod sizes;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

pub use features::{FEATURES, Range, Scaler};
pub use op::Network;
pub use passes::Threads;
pub use sizes::{GROUP, Sizes};

pub(super) use features::{CALENDAR, Encoded, Scale, encode};
pub(super) use lanes::{Kernel, dispatch};
pub(super) use linear::Linear;
pub(super) use sizes::Affine;

use super::train::{self, TrainError, TrainOptions};
use super::{ForecastError, Forecaster, Forecasts, LabelledWindows, Shape, Windows};

/// The model's name in reports and metrics.
const NAME: &str = "lstm";

/// Cells of a layer, and layers.
const HIDDEN: usize = 50;
const LAYERS: usize = 2;

/// Windows that are encoded at a time: bounds the memory of a large batch.
const BATCH: usize = 1_024;

/// A trained model.
#[derive(Clone, Debug)]
pub struct Lstm {
    pub(super) shape: Shape,
    pub(super) scaler: Scaler,
    pub(super) linear: Linear,
    pub(super) network: Network,
    /// `[Sizes::weights]`.
    pub(super) weights: Tensor,
    pub(super) training: Training,
}

/// Where a model's weights come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Training {
    /// SHA-256 of the windows that it was last trained on, as hexadecimal digits.
    pub data_sha256: String,
    /// How many windows those were, validation apart.
    pub windows: usize,
    /// How many windows decided which epoch was best.
    pub validation_windows: usize,
    /// Epochs of the full training.
    pub epochs: usize,
    /// Updates since the full training.
    pub updates: usize,
    /// Chooses the first weights, the sampled windows and their order.
    pub seed: u64,
    /// Mean squared errors on the validation windows, in squared units of what persistence misses.
    pub mse: Scores,
}

/// An error of the model and of what it is held against, on the same windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scores {
    /// The model.
    pub lstm: f32,
    /// Its own linear map alone.
    pub linear: f32,
    /// The last value.
    pub persistence: f32,
}

/// The sizes of the network for windows of a shape.
pub fn sizes(shape: Shape) -> Sizes {
    let features = FEATURES.len();
    Sizes { steps: shape.look_back, features, hidden: HIDDEN, layers: LAYERS, horizon: shape.horizon }
}

impl Lstm {
    /// The shape of the windows that it takes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where its weights come from.
    pub fn training(&self) -> &Training {
        &self.training
    }

    /// The same model on another number of threads.
    pub fn with_threads(self, threads: Threads) -> Lstm {
        Lstm { network: Network::new(*self.network.sizes(), threads), ..self }
    }

    /// The same model with the ranges of groups that it does not know yet taken from `windows`: what is
    /// small or large in one unit says nothing about another.
    pub fn acquaint(mut self, windows: &LabelledWindows) -> Lstm {
        if !windows.is_empty() {
            for (group, range) in Scaler::of(windows).groups {
                self.scaler.groups.entry(group).or_insert(range);
            }
        }
        self
    }

    /// The same model with all ranges taken from `windows`: for values in another unit than those it was trained on.
    pub fn rescale(mut self, windows: &LabelledWindows) -> Lstm {
        if !windows.is_empty() {
            self.scaler = Scaler::of(windows);
        }
        self
    }

    /// The four numbers for each step ahead of each encoded window: `[n, horizon, GROUP]`.
    pub(super) fn answers(&self, encoded: Encoded) -> candle_core::Result<Vec<f32>> {
        let shape = (encoded.scales.len(), self.shape.look_back, FEATURES.len());
        let inputs = Tensor::from_vec(encoded.inputs, shape, &Device::Cpu)?;
        self.network.infer(&inputs, &self.weights)?.flatten_all()?.to_vec1()
    }

    fn forecast_batch(&self, windows: &Windows, forecasts: &mut Forecasts) -> candle_core::Result<()> {
        let encoded = encode(&self.scaler, windows);
        let scales = encoded.scales.clone();
        let answers = self.answers(encoded)?;
        for (at, (scale, answers)) in
            scales.iter().zip(answers.chunks_exact(self.shape.horizon * GROUP)).enumerate()
        {
            let (answers, _) = answers.as_chunks::<GROUP>();
            for (line, &[mean, below, median, above]) in self.linear.apply(windows.input(at)).zip(answers) {
                let value = |answer: f32| (scale.last + line + scale.spread * answer).max(scale.floor);
                forecasts.mean.push(value(mean));
                for (quantile, answer) in forecasts.quantiles.iter_mut().zip([
                    median - softplus(below),
                    median,
                    median + softplus(above),
                ]) {
                    quantile.push(value(answer));
                }
            }
        }
        Ok(())
    }
}

/// `ln(1 + e^x)`: never negative, and without overflow.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

impl Forecaster for Lstm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forecast(&self, windows: &Windows) -> Result<Forecasts, ForecastError> {
        if windows.shape != self.shape {
            let (expected, found) = (self.shape, windows.shape);
            return Err(ForecastError::OtherShape { model: NAME, expected, found });
        }
        let mut forecasts = Forecasts { horizon: self.shape.horizon, ..Forecasts::default() };
        let all: Vec<usize> = (0..windows.len()).collect();
        for batch in all.chunks(BATCH) {
            self.forecast_batch(&windows.select(batch), &mut forecasts).map_err(failed)?;
        }
        match forecasts.is_finite() {
            true => Ok(forecasts),
            false => Err(failed("a forecast is not finite")),
        }
    }

    /// A small update; of too few windows nothing is learnt.
    fn learn(&mut self, known: &LabelledWindows) -> Result<(), ForecastError> {
        let options = TrainOptions { threads: self.network.threads(), ..TrainOptions::update() };
        match train::update(self, known, &options, &mut |_| ControlFlow::Continue(())) {
            Ok(updated) => *self = updated,
            Err(TrainError::TooFew { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }
}

fn failed(error: impl ToString) -> ForecastError {
    ForecastError::Model { model: NAME, problem: error.to_string() }
}
