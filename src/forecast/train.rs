//! Training: a full one of fifty epochs, and small updates on what came in since.
//!
//! ```text
//!   windows ─► newest 15 % ─► validation ──────────────┐ (decides which epoch is kept, never trained on)
//!      └─────► the rest ─► sample ─► epochs of Adam ───┴─► the best epoch's weights
//! ```
//!
//! The length is known before it begins ([`Plan`]). The loss is the squared error of the mean and the pinball loss of the
//! quantiles, both in units of what persistence misses. Invariants: the same windows, options and machine give the same weights
//! bit for bit; what fails or diverges ends in an error and leaves the old model as it was.

mod examples;
mod sample;
mod step;
#[cfg(test)]
pub(super) mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use thiserror::Error;

pub use step::{Descent, Trainer};

use super::lstm::{Linear, Lstm, Network, Scaler, Threads, Training, encode, sizes};
use super::{ForecastError, LabelledWindows, Series, Shape};
use crate::model::rng::Rng;
use examples::{Examples, scores, shrink, validation_loss};
use sample::{shuffle, split};
use step::first_weights;

/// How a model is trained. The defaults are those of a full training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    /// Passes over the sampled windows at most.
    pub epochs: usize,
    /// Windows of a step.
    pub batch: usize,
    /// The first learning rate of Adam; it falls to a fiftieth along half a cosine.
    pub learning_rate: f64,
    /// Windows sampled at most for training; for validation, a quarter of that.
    pub most_windows: usize,
    /// Epochs without a better validation loss after which training ends.
    pub patience: usize,
    /// The longest gradient of a step; a longer one is shortened to it.
    pub longest_gradient: f64,
    /// The share of a weight that is taken away at a rate of one: what the data do not ask for fades.
    pub weight_decay: f64,
    /// Share of the windows, in each step others, that are shown without hour and weekday: with few days of data these say which
    /// window it is, and the network would learn it by heart.
    pub undated: f64,
    /// Chooses the first weights, the windows and their order.
    pub seed: u64,
    /// How many threads it may use.
    pub threads: Threads,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            epochs: 50,
            batch: 32,
            learning_rate: 1e-3,
            most_windows: 20_000,
            patience: 10,
            longest_gradient: 1.0,
            weight_decay: 0.01,
            undated: 0.5,
            seed: 1,
            threads: Threads::Two,
        }
    }
}

impl TrainOptions {
    /// A small update of a model on the newest windows: three epochs over fewer windows, at a lower rate, on one thread.
    pub fn update() -> TrainOptions {
        TrainOptions {
            epochs: 3,
            learning_rate: 2e-4,
            most_windows: 10_000,
            patience: 3,
            threads: Threads::One,
            ..TrainOptions::default()
        }
    }
}

/// What a training will do at most; known before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Windows it trains on.
    pub windows: usize,
    /// Windows that decide which epoch is kept.
    pub validation_windows: usize,
    /// Steps of an epoch.
    pub steps_per_epoch: usize,
    /// Epochs at most.
    pub epochs: usize,
}

/// How far a training is, told after each epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Epochs done.
    pub epoch: usize,
    /// Epochs at most.
    pub epochs: usize,
    /// Mean loss over the epoch's steps.
    pub loss: f32,
    /// Loss on the validation windows.
    pub validation_loss: f32,
    /// Whether no epoch before was better on them.
    pub best: bool,
}

/// Why there is no new model.
#[derive(Debug, Error)]
pub enum TrainError {
    /// Too little to learn from.
    #[error(
        "{found} windows are too few to train on: {needed} are needed; give a longer look-back or more series"
    )]
    TooFew {
        /// Windows given.
        found: usize,
        /// Windows needed.
        needed: usize,
    },
    /// An option that makes no sense.
    #[error("the option {field} is {value}; it must be {expected}")]
    Option {
        /// The field of [`TrainOptions`].
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// Windows of another shape than the model's.
    #[error("the model takes windows of {expected}, not of {found}; train a new one")]
    OtherShape {
        /// The model's.
        expected: Shape,
        /// The windows'.
        found: Shape,
    },
    /// The weights or the loss went beyond all bounds.
    #[error(
        "training diverged in epoch {epoch}: {what} is not finite; lower learning_rate ({rate}) or look for spikes in the data"
    )]
    Diverged {
        /// The epoch, from 1.
        epoch: usize,
        /// What is not finite.
        what: &'static str,
        /// The learning rate.
        rate: f64,
    },
    /// Someone asked it to stop.
    #[error("training was stopped after epoch {epoch}")]
    Stopped {
        /// Epochs done.
        epoch: usize,
    },
    /// The series are of no use.
    #[error(transparent)]
    Series(#[from] ForecastError),
    /// The tensor library failed.
    #[error("training failed: {0}")]
    Candle(#[from] candle_core::Error),
}

/// Share of the windows, the newest, that is kept for validation.
const VALIDATION: f64 = 0.15;

/// Windows without which nothing is learnt: some batches.
const FEWEST: usize = 256;

/// Streams of chance.
const WEIGHTS: u64 = 1;
const SAMPLE: u64 = 2;
const ORDER: u64 = 3;

/// Called after each epoch; `Break` ends the training with [`TrainError::Stopped`].
pub type OnProgress<'a> = &'a mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// Windows of series, evenly thinned out to about twice what `options` samples of them: all windows of a thousand series of three
/// days would take a gigabyte.
///
/// # Errors
/// When a series has another step than `shape`.
pub fn windows_of(
    shape: Shape,
    series: &Arc<[Series]>,
    options: &TrainOptions,
) -> Result<LabelledWindows, ForecastError> {
    let values: usize = series.iter().map(|series| series.values.len()).sum();
    LabelledWindows::rolling(shape, series, values.div_ceil(2 * options.most_windows.max(1)))
}

/// What [`train`] would do with these windows.
///
/// # Errors
/// When an option makes no sense or the windows are too few.
pub fn plan(windows: &LabelledWindows, options: &TrainOptions) -> Result<Plan, TrainError> {
    check(options)?;
    let (training, validation) = split(windows, options);
    Ok(plan_of(training.len(), validation.len(), options)).and_then(|plan| {
        if plan.windows < FEWEST || plan.validation_windows == 0 { Err(too_few(windows)) } else { Ok(plan) }
    })
}

/// Trains a new model.
///
/// # Errors
/// See [`TrainError`].
pub fn train(
    windows: &LabelledWindows,
    options: &TrainOptions,
    progress: OnProgress<'_>,
) -> Result<Lstm, TrainError> {
    plan(windows, options)?;
    let (training, validation) = split(windows, options);
    let training = windows.select(&training);
    let validation = windows.select(&validation);
    let shape = windows.windows.shape;
    let scaler = Scaler::of(&training);
    let units = encode(&scaler, &training.windows).scales;
    let linear = Linear::solve(&training, units.iter().map(|scale| scale.unit));
    let network = Network::new(sizes(shape), options.threads);
    let first = first_weights(network.sizes(), options.seed);
    let weights = Tensor::from_vec(first, network.sizes().weights(), &Device::Cpu)?;
    let model = Lstm { shape, scaler, linear, network, weights, training: Training::default() };
    let fitted = fit(Begin::Anew, &model, &training, &validation, options, progress)?;
    let training = Training { epochs: fitted.epochs, updates: 0, seed: options.seed, ..fitted.training };
    Ok(Lstm { weights: fitted.weights, training, ..model })
}

/// Tunes a model to newer windows; groups that it did not know are added to its scaler. Where no epoch is better on the
/// validation windows than the model as it was, it comes back unchanged.
///
/// # Errors
/// See [`TrainError`].
pub fn update(
    model: &Lstm,
    windows: &LabelledWindows,
    options: &TrainOptions,
    progress: OnProgress<'_>,
) -> Result<Lstm, TrainError> {
    if windows.windows.shape != model.shape {
        return Err(TrainError::OtherShape { expected: model.shape, found: windows.windows.shape });
    }
    plan(windows, options)?;
    let (training, validation) = split(windows, options);
    let (training, validation) = (windows.select(&training), windows.select(&validation));
    let model = model.clone().acquaint(&training);
    let fitted = fit(Begin::Trained, &model, &training, &validation, options, progress)?;
    if fitted.epochs == 0 {
        return Ok(model);
    }
    let old = &model.training;
    let training =
        Training { epochs: old.epochs, updates: old.updates + 1, seed: old.seed, ..fitted.training };
    Ok(Lstm { weights: fitted.weights, training, ..model })
}

fn too_few(windows: &LabelledWindows) -> TrainError {
    TrainError::TooFew { found: windows.len(), needed: (FEWEST as f64 / (1.0 - VALIDATION)).ceil() as usize }
}

fn check(options: &TrainOptions) -> Result<(), TrainError> {
    let refuse = |field, value: String, expected| Err(TrainError::Option { field, value, expected });
    if options.epochs == 0 {
        return refuse("epochs", options.epochs.to_string(), "1 at least");
    }
    if !(1..=1_024).contains(&options.batch) {
        return refuse("batch", options.batch.to_string(), "from 1 to 1024");
    }
    if options.most_windows < FEWEST {
        return refuse("most_windows", options.most_windows.to_string(), "256 at least");
    }
    if !(options.learning_rate > 0.0 && options.learning_rate <= 1.0) {
        return refuse("learning_rate", options.learning_rate.to_string(), "above 0 and at most 1");
    }
    for (field, value) in [("weight_decay", options.weight_decay), ("undated", options.undated)] {
        if !(0.0..=1.0).contains(&value) {
            return refuse(field, value.to_string(), "from 0 to 1");
        }
    }
    if options.longest_gradient.is_nan() || options.longest_gradient <= 0.0 {
        return refuse("longest_gradient", options.longest_gradient.to_string(), "above 0");
    }
    Ok(())
}

fn plan_of(windows: usize, validation_windows: usize, options: &TrainOptions) -> Plan {
    let steps_per_epoch = windows.div_ceil(options.batch);
    Plan { windows, validation_windows, steps_per_epoch, epochs: options.epochs }
}

/// What came of fitting.
struct Fitted {
    weights: Tensor,
    training: Training,
    /// Epochs up to the best; zero when none was better than the weights at the beginning.
    epochs: usize,
}

/// What there was before.
#[derive(Clone, Copy)]
enum Begin {
    /// Weights by chance: whatever comes of training is better.
    Anew,
    /// A model that has to be beaten.
    Trained,
}

fn fit(
    begin: Begin,
    model: &Lstm,
    training: &LabelledWindows,
    validation: &LabelledWindows,
    options: &TrainOptions,
    progress: OnProgress<'_>,
) -> Result<Fitted, TrainError> {
    let examples = Examples::new(model, training);
    let held_out = validation;
    let validation = Examples::new(model, held_out);
    let plan = plan_of(examples.len(), validation.len(), options);
    let network = Network::new(*model.network.sizes(), options.threads);
    let descent = Descent { longest_gradient: options.longest_gradient, weight_decay: options.weight_decay };
    let mut trainer = Trainer::new(network.clone(), model.weights.to_vec1()?, descent);
    let rng = &mut Rng::new(options.seed, ORDER);
    let to_beat = match begin {
        Begin::Anew => f32::INFINITY,
        Begin::Trained => validation_loss(&network, &validation, &model.weights)?,
    };
    let mut best = (to_beat, 0, model.weights.clone());
    let mut order: Vec<usize> = (0..examples.len()).collect();
    for epoch in 1..=plan.epochs {
        let diverged = |what| TrainError::Diverged { epoch, what, rate: options.learning_rate };
        shuffle(&mut order, rng);
        let mut sum = 0.0;
        for (step, which) in order.chunks(options.batch).enumerate() {
            let done = (epoch - 1) * plan.steps_per_epoch + step;
            let part = done as f64 / (plan.epochs * plan.steps_per_epoch) as f64;
            let batch = examples.batch(which, Some((&mut *rng, options.undated)))?;
            let rate = options.learning_rate * fall(part);
            let loss = trainer.step(&batch.inputs, rate, |answers| batch.loss(answers))?;
            sum += loss.ok_or_else(|| diverged("a gradient"))? * which.len() as f32;
        }
        let weights = Tensor::from_slice(trainer.weights(), trainer.weights().len(), &Device::Cpu)?;
        let loss = validation_loss(&network, &validation, &weights)?;
        if !loss.is_finite() {
            return Err(diverged("the loss"));
        }
        let better = loss < best.0;
        if better {
            best = (loss, epoch, weights);
        }
        let mean = sum / examples.len() as f32;
        let told = Progress { epoch, epochs: plan.epochs, loss: mean, validation_loss: loss, best: better };
        if progress(&told).is_break() {
            return Err(TrainError::Stopped { epoch });
        }
        if epoch - best.1 >= options.patience {
            break;
        }
    }
    let (_, epochs, weights) = best;
    let weights = shrink(&network, &validation, &weights)?;
    let training = Training {
        data_sha256: digest(training),
        windows: examples.len(),
        validation_windows: validation.len(),
        mse: scores(&network, held_out, &validation, &weights)?,
        ..Training::default()
    };
    Ok(Fitted { weights, training, epochs })
}

/// From one to a fiftieth along half a cosine.
fn fall(part: f64) -> f64 {
    0.02 + 0.98 * 0.5 * (1.0 + (std::f64::consts::PI * part).cos())
}

/// SHA-256 of windows, as hexadecimal digits.
fn digest(windows: &LabelledWindows) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut add = |values: &[f32]| values.iter().for_each(|value| context.update(&value.to_le_bytes()));
    add(&windows.windows.inputs);
    add(&windows.targets);
    windows.windows.ends.iter().for_each(|end| context.update(&end.to_le_bytes()));
    hexadecimal(context.finish().as_ref())
}

/// Bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
