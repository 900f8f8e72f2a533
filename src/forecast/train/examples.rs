//! Windows as examples, and the loss on them.

use candle_core::{Device, Tensor};

use crate::forecast::lstm::{CALENDAR, Encoded, FEATURES, GROUP, Lstm, Network, Scale, Scores, encode};
use crate::forecast::{LabelledWindows, QUANTILES};
use crate::model::rng::Rng;

/// Places of the mean and the median in a group of answers.
const MEAN: usize = 0;
const MEDIAN: usize = 2;

/// The weight of the quantiles beside the mean in the loss.
const PINBALL: f64 = 0.5;

/// Windows ready for the loss.
pub(super) struct Examples {
    encoded: Encoded,
    /// `[n, horizon]`: what the mean's answer should be.
    residuals: Vec<f32>,
    horizon: usize,
    steps: usize,
}

impl Examples {
    /// Windows as a model sees them.
    pub fn new(model: &Lstm, windows: &LabelledWindows) -> Examples {
        let encoded = encode(&model.scaler, &windows.windows);
        let residual = |(at, scale): (usize, &Scale)| {
            let line = model.linear.apply(windows.windows.input(at));
            let (last, spread) = (scale.last, scale.spread);
            let target = windows.target(at).iter().zip(line);
            target.map(move |(target, line)| (target - last - line) / spread).collect::<Vec<_>>()
        };
        let residuals = encoded.scales.iter().enumerate().flat_map(residual).collect();
        let shape = model.shape;
        Examples { encoded, residuals, horizon: shape.horizon, steps: shape.look_back }
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.encoded.scales.len()
    }

    /// Some of them; of these a share, chosen by chance, without hour and weekday.
    pub fn batch(&self, which: &[usize], undated: Option<(&mut Rng, f64)>) -> candle_core::Result<Batch> {
        let length = self.steps * FEATURES.len();
        let rows = |values: &[f32], length: usize| -> Vec<f32> {
            which.iter().flat_map(|&at| &values[at * length..(at + 1) * length]).copied().collect()
        };
        let scales = which.iter().map(|&at| &self.encoded.scales[at]);
        let weights: Vec<f32> = scales.map(|scale| scale.spread / scale.unit).collect();
        let mut inputs = rows(&self.encoded.inputs, length);
        if let Some((rng, share)) = undated {
            let bound = (share * 1e6) as u64;
            for window in inputs.chunks_exact_mut(length).filter(|_| rng.below(1_000_000) < bound) {
                window.chunks_exact_mut(FEATURES.len()).for_each(|step| step[CALENDAR].fill(0.0));
            }
        }
        let (n, device) = (which.len(), &Device::Cpu);
        Ok(Batch {
            inputs: Tensor::from_vec(inputs, (n, self.steps, FEATURES.len()), device)?,
            residuals: Tensor::from_vec(rows(&self.residuals, self.horizon), (n, self.horizon), device)?,
            weights: Tensor::from_vec(weights, (n, 1), device)?,
        })
    }
}

/// Examples of one step.
pub(super) struct Batch {
    /// `[n, steps, features]`.
    pub inputs: Tensor,
    residuals: Tensor,
    /// `[n, 1]`: the spread in units.
    weights: Tensor,
}

impl Batch {
    /// The loss of the network's answers, a scalar.
    pub fn loss(&self, answers: &Tensor) -> candle_core::Result<Tensor> {
        let answer = |which| answers.narrow(2, which, 1)?.squeeze(2)?.contiguous();
        let miss = |answer: &Tensor| (&self.residuals - answer)?.broadcast_mul(&self.weights);
        let (mean, median) = (answer(MEAN)?, answer(MEDIAN)?);
        let quantiles =
            [(&median - softplus(&answer(1)?)?)?, median.clone(), (&median + softplus(&answer(3)?)?)?];
        let mut loss = miss(&mean)?.sqr()?.mean_all()?;
        for (quantile, level) in quantiles.iter().zip(QUANTILES) {
            let miss = miss(quantile)?;
            let pinball = ((&miss * f64::from(level))? + miss.neg()?.relu()?)?;
            loss = (loss + (pinball.mean_all()? * PINBALL)?)?;
        }
        Ok(loss)
    }
}

fn softplus(x: &Tensor) -> candle_core::Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// Windows whose loss is taken at a time.
const VALIDATED: usize = 1_024;

/// Mean loss over all examples.
pub(super) fn validation_loss(
    network: &Network,
    examples: &Examples,
    weights: &Tensor,
) -> candle_core::Result<f32> {
    let all: Vec<usize> = (0..examples.len()).collect();
    let mut sum = 0.0;
    for which in all.chunks(VALIDATED) {
        let batch = examples.batch(which, None)?;
        let loss = batch.loss(&network.infer(&batch.inputs, weights)?)?.to_scalar::<f32>()?;
        sum += f64::from(loss) * which.len() as f64;
    }
    Ok((sum / examples.len() as f64) as f32)
}

/// Shrinks what the network adds for mean and median to the part that the examples bear out, from nothing to all of it: a
/// network that learnt noise falls back to its linear map.
pub(super) fn shrink(
    network: &Network,
    examples: &Examples,
    weights: &Tensor,
) -> candle_core::Result<Tensor> {
    let (mut products, mut squares) = (0.0f64, 0.0f64);
    each_answer(network, examples, weights, |at, step, answer| {
        let scale = &examples.encoded.scales[at];
        let weight = f64::from(scale.spread / scale.unit).powi(2);
        let residual = f64::from(examples.residuals[at * examples.horizon + step]);
        products += weight * residual * f64::from(answer);
        squares += weight * f64::from(answer).powi(2);
    })?;
    let part = if squares > 0.0 { (products / squares).clamp(0.0, 1.0) as f32 } else { 0.0 };
    let head = network.sizes().head();
    let mut values = weights.to_vec1::<f32>()?;
    for group in values[head.at..].chunks_exact_mut(GROUP) {
        group[MEAN] *= part;
        group[MEDIAN] *= part;
    }
    Tensor::from_vec(values, weights.shape(), &Device::Cpu)
}

/// Calls `each` with every example, step ahead and answer for the mean.
fn each_answer(
    network: &Network,
    examples: &Examples,
    weights: &Tensor,
    mut each: impl FnMut(usize, usize, f32),
) -> candle_core::Result<()> {
    let all: Vec<usize> = (0..examples.len()).collect();
    for which in all.chunks(VALIDATED) {
        let batch = examples.batch(which, None)?;
        let answers: Vec<f32> = network.infer(&batch.inputs, weights)?.flatten_all()?.to_vec1()?;
        let (answers, _) = answers.as_chunks::<GROUP>();
        for (at, answers) in which.iter().zip(answers.chunks_exact(examples.horizon)) {
            answers.iter().enumerate().for_each(|(step, answer)| each(*at, step, answer[MEAN]));
        }
    }
    Ok(())
}

/// Mean squared errors in squared units.
pub(super) fn scores(
    network: &Network,
    windows: &LabelledWindows,
    examples: &Examples,
    weights: &Tensor,
) -> candle_core::Result<Scores> {
    let (mut lstm, mut linear, mut persistence) = (0.0f64, 0.0f64, 0.0f64);
    each_answer(network, examples, weights, |at, step, answer| {
        let scale = &examples.encoded.scales[at];
        let square = |miss: f32| f64::from(miss / scale.unit).powi(2);
        let residual = examples.residuals[at * examples.horizon + step];
        lstm += square((residual - answer) * scale.spread);
        linear += square(residual * scale.spread);
        persistence += square(windows.target(at)[step] - scale.last);
    })?;
    let mean = |sum: f64| (sum / (examples.len() * examples.horizon) as f64) as f32;
    Ok(Scores { lstm: mean(lstm), linear: mean(linear), persistence: mean(persistence) })
}
