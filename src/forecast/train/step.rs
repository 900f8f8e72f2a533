//! One step of training: the gradient of a batch, shortened, and Adam (Kingma and Ba 2015).

use candle_core::{Device, Result, Tensor, Var};
use pulp::Simd;

use super::WEIGHTS;
use crate::forecast::lstm::{GROUP, Kernel, Network, Sizes, dispatch};
use crate::model::rng::Rng;

/// A network's weights on their way.
#[derive(Debug)]
pub struct Trainer {
    network: Network,
    weights: Vec<f32>,
    /// Running means of the gradient and of its square.
    moments: [Vec<f32>; 2],
    steps: i32,
    descent: Descent,
}

/// What bounds a step.
#[derive(Clone, Copy, Debug)]
pub struct Descent {
    /// A longer gradient is shortened to this.
    pub longest_gradient: f64,
    /// The share of a weight that is taken away at a rate of one (Loshchilov and Hutter 2019).
    pub weight_decay: f64,
}

/// How fast the running means forget, and what keeps the step bounded where the gradient vanishes.
const DECAYS: [f64; 2] = [0.9, 0.999];
const EPSILON: f32 = 1e-7;

impl Trainer {
    /// Begins at `weights`, `[Sizes::weights]`.
    pub fn new(network: Network, weights: Vec<f32>, descent: Descent) -> Trainer {
        let zeros = || vec![0.0; weights.len()];
        Trainer { moments: [zeros(), zeros()], network, weights, steps: 0, descent }
    }

    /// The weights.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Goes one step, `rate` long, down the gradient of `loss` of the network's answers to `inputs`. Gives the loss before the
    /// step, or `None`, and goes nowhere, when the gradient is not finite.
    ///
    /// # Errors
    /// When the tensor library fails, because the inputs do not fit the network or `loss` does.
    pub fn step(
        &mut self,
        inputs: &Tensor,
        rate: f64,
        loss: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Option<f32>> {
        let weights = Var::from_slice(&self.weights, self.weights.len(), &Device::Cpu)?;
        let loss = loss(&self.network.record(inputs, &weights)?)?;
        let gradients = loss.backward()?;
        let Some(gradient) = gradients.get(&weights) else { return Ok(None) };
        let gradient = gradient.to_vec1::<f32>()?;
        let length = length(&gradient);
        if !length.is_finite() {
            return Ok(None);
        }
        self.steps = self.steps.saturating_add(1);
        let [first, second] = DECAYS.map(|decay| 1.0 - decay.powi(self.steps));
        let [mean, square] = &mut self.moments;
        dispatch(Adam {
            weights: &mut self.weights,
            gradient: &gradient,
            mean,
            square,
            shorter: (self.descent.longest_gradient / length).min(1.0) as f32,
            kept: (1.0 - rate * self.descent.weight_decay) as f32,
            rate: (rate * second.sqrt() / first) as f32,
        });
        loss.to_scalar().map(Some)
    }
}

/// The Euclidean length, summed in one order whatever the processor.
fn length(values: &[f32]) -> f64 {
    const SUMS: usize = 16;
    let (chunks, rest) = values.as_chunks::<SUMS>();
    let mut sums = [0.0f32; SUMS];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value * value);
    }
    let squares = sums.iter().copied().chain(rest.iter().map(|value| value * value));
    squares.map(f64::from).sum::<f64>().sqrt()
}

/// The update of all weights, in one pass.
struct Adam<'a> {
    weights: &'a mut [f32],
    gradient: &'a [f32],
    mean: &'a mut [f32],
    square: &'a mut [f32],
    /// What the gradient is multiplied with.
    shorter: f32,
    /// What the weights are multiplied with.
    kept: f32,
    /// The rate with the correction of the means' bias.
    rate: f32,
}

impl Kernel for Adam<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, simd: S) {
        let Adam { weights, gradient, mean, square, shorter, kept, rate } = self;
        let factors = [shorter, kept, rate];
        let (weights, weights_rest) = S::as_mut_simd_f32s(weights);
        let (gradient, gradient_rest) = S::as_simd_f32s(gradient);
        let (mean, mean_rest) = S::as_mut_simd_f32s(mean);
        let (square, square_rest) = S::as_mut_simd_f32s(square);
        let all = weights.iter_mut().zip(gradient).zip(mean.iter_mut().zip(square));
        for ((weight, gradient), (mean, square)) in all {
            adam(simd, weight, *gradient, mean, square, factors);
        }
        let rest = weights_rest.iter_mut().zip(gradient_rest).zip(mean_rest.iter_mut().zip(square_rest));
        for ((weight, gradient), (mean, square)) in rest {
            adam(pulp::Scalar::new(), weight, *gradient, mean, square, factors);
        }
    }
}

/// One weight of [`Adam`], or as many as fit a register. Without fused products, so that the rest that fills no register is
/// treated alike.
#[inline(always)]
fn adam<S: Simd>(
    simd: S,
    weight: &mut S::f32s,
    gradient: S::f32s,
    mean: &mut S::f32s,
    square: &mut S::f32s,
    [shorter, kept, rate]: [f32; 3],
) {
    let [first, second] = DECAYS.map(|decay| decay as f32);
    let times = |value, factor: f32| simd.mul_f32s(value, simd.splat_f32s(factor));
    let gradient = times(gradient, shorter);
    *mean = simd.add_f32s(times(*mean, first), times(gradient, 1.0 - first));
    *square = simd.add_f32s(times(*square, second), times(simd.mul_f32s(gradient, gradient), 1.0 - second));
    let root = simd.add_f32s(simd.sqrt_f32s(*square), simd.splat_f32s(EPSILON));
    *weight = simd.sub_f32s(times(*weight, kept), simd.div_f32s(times(*mean, rate), root));
}

/// Uniform weights after Glorot and Bengio (2010), the forget gates' bias one, every other bias zero; the head a tenth of that,
/// so that the model begins as its linear map.
pub(super) fn first_weights(sizes: &Sizes, seed: u64) -> Vec<f32> {
    /// A cell's second gate.
    const FORGET: usize = 1;
    let rng = &mut Rng::new(seed, WEIGHTS);
    let mut weights = vec![0.0; sizes.weights()];
    for (index, part) in sizes.parts().iter().enumerate() {
        let head = index == sizes.layers;
        let scale = if head { 0.1 } else { 1.0 };
        let own = part.inputs.saturating_sub(sizes.hidden);
        for group in 0..part.groups {
            for input in 0..part.inputs {
                let fan_in = if input < own { own } else { sizes.hidden };
                let bound = scale * (6.0f32 / (fan_in + part.groups * GROUP) as f32).sqrt();
                for output in 0..GROUP {
                    let uniform = rng.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0;
                    weights[part.index(group, output, input)] = bound * uniform;
                }
            }
            if !head {
                weights[part.index(group, FORGET, part.inputs)] = 1.0;
            }
        }
    }
    weights
}
