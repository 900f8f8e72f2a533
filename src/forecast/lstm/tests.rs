//! The network against candle's stock LSTM, against differences, and against itself on fewer threads and narrower vectors.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::rnn::{LSTM, LSTMConfig, RNN};
use candle_nn::{Init, VarBuilder};

use super::Network;
use super::backward::Backward;
use super::block::{Block, PartGradient};
use super::forward::Forward;
use super::lanes::dispatch_on;
use super::passes::Threads;
use super::sizes::{Affine, GROUP, Sizes};
use crate::model::rng::Rng;

/// Steps, features, hidden, layers, horizon; batches go with each.
const SIZES: &[(Sizes, &[usize])] = &[
    (Sizes { steps: 30, features: 5, hidden: 50, layers: 2, horizon: 10 }, &[1, 16, 33]),
    (Sizes { steps: 1, features: 1, hidden: 1, layers: 1, horizon: 1 }, &[1, 2, 17]),
    (Sizes { steps: 7, features: 3, hidden: 13, layers: 3, horizon: 4 }, &[1, 5, 31, 70]),
    (Sizes { steps: 4, features: 2, hidden: 32, layers: 1, horizon: 3 }, &[32, 48]),
];

fn uniform(rng: &mut Rng, count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|_| (rng.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
}

struct Case {
    sizes: Sizes,
    batch: usize,
    sequences: Vec<f32>,
    weights: Vec<f32>,
    /// The loss is the mean of the outputs, each times its factor.
    factors: Vec<f32>,
}

impl Case {
    fn new(sizes: Sizes, batch: usize) -> Case {
        let rng = &mut Rng::new(batch as u64, 7);
        let sequences = uniform(rng, batch * sizes.inputs(), 1.0);
        let weights = uniform(rng, sizes.weights(), 1.0 / (sizes.hidden as f32).sqrt());
        let factors = uniform(rng, batch * sizes.outputs(), 1.0);
        Case { sizes, batch, sequences, weights, factors }
    }

    fn all() -> impl Iterator<Item = Case> {
        SIZES.iter().flat_map(|(sizes, batches)| batches.iter().map(|batch| Case::new(*sizes, *batch)))
    }

    fn loss(&self, outputs: &Tensor) -> Tensor {
        let factors = Tensor::from_slice(&self.factors, outputs.shape(), &Device::Cpu).unwrap();
        (outputs * factors).unwrap().mean_all().unwrap()
    }

    /// Outputs, and the gradients of sequences and weights.
    fn run(&self, threads: Threads) -> [Vec<f32>; 3] {
        let network = Network::new(self.sizes, threads);
        let Sizes { steps, features, .. } = self.sizes;
        let sequences =
            Var::from_slice(&self.sequences, (self.batch, steps, features), &Device::Cpu).unwrap();
        let weights = Var::from_slice(&self.weights, self.weights.len(), &Device::Cpu).unwrap();
        let outputs = network.record(&sequences, &weights).unwrap();
        let inferred = network.infer(&sequences, &weights).unwrap();
        assert_eq!(flat(&outputs), flat(&inferred));
        let gradients = self.loss(&outputs).backward().unwrap();
        let again = self.loss(&outputs).backward().unwrap();
        let of = |var: &Var| flat(gradients.get(var).unwrap());
        assert_eq!(of(&weights), flat(again.get(&weights).unwrap()));
        [flat(&outputs), of(&sequences), of(&weights)]
    }

    /// The same by candle's own layers.
    fn run_stock(&self) -> [Vec<f32>; 3] {
        let Sizes { steps, features, hidden, layers, horizon } = self.sizes;
        let sequences =
            Var::from_slice(&self.sequences, (self.batch, steps, features), &Device::Cpu).unwrap();
        let mut vars = HashMap::new();
        for layer in 0..layers {
            let part = self.sizes.layer(layer);
            let below = part.inputs - hidden;
            vars.insert(format!("{layer}.weight_ih_l0"), self.matrix(&part, 0..below));
            vars.insert(format!("{layer}.weight_hh_l0"), self.matrix(&part, below..part.inputs));
            vars.insert(format!("{layer}.bias_ih_l0"), self.matrix(&part, part.inputs..part.inputs + 1));
        }
        let head = self.sizes.head();
        vars.insert("head".to_owned(), self.matrix(&head, 0..hidden));
        vars.insert("bias".to_owned(), self.matrix(&head, hidden..hidden + 1));
        let tensors = vars.iter().map(|(name, var)| match name.ends_with("bias_ih_l0") {
            true => (name.clone(), var.flatten_all().unwrap()),
            false => (name.clone(), var.as_tensor().clone()),
        });
        let builder = VarBuilder::from_tensors(tensors.collect(), DType::F32, &Device::Cpu);
        let mut states = sequences.as_tensor().clone();
        for layer in 0..layers {
            let config =
                LSTMConfig { b_hh_init: None, b_ih_init: Some(Init::Const(0.0)), ..Default::default() };
            let inputs = self.sizes.layer(layer).inputs - hidden;
            let lstm = LSTM::new(inputs, hidden, config, builder.pp(layer.to_string())).unwrap();
            states = lstm.states_to_tensor(&lstm.seq(&states).unwrap()).unwrap();
        }
        let last = states.narrow(1, steps - 1, 1).unwrap().squeeze(1).unwrap().contiguous().unwrap();
        let outputs = last.matmul(&vars["head"].t().unwrap()).unwrap();
        let outputs = outputs.broadcast_add(&vars["bias"].flatten_all().unwrap()).unwrap();
        // Candle's rows go output by output, ours step by step.
        let outputs = outputs.reshape((self.batch, GROUP, horizon)).unwrap().transpose(1, 2).unwrap();
        let gradients = self.loss(&outputs.contiguous().unwrap()).backward().unwrap();
        let mut of_weights = vec![f32::NAN; self.weights.len()];
        let mut put = |part: &Affine, columns: std::ops::Range<usize>, name: &str| {
            let values = flat(gradients.get(&vars[name]).unwrap());
            part.matrix(columns).zip(values).for_each(|(index, value)| of_weights[index] = value);
        };
        for layer in 0..layers {
            let part = self.sizes.layer(layer);
            let below = part.inputs - hidden;
            put(&part, 0..below, &format!("{layer}.weight_ih_l0"));
            put(&part, below..part.inputs, &format!("{layer}.weight_hh_l0"));
            put(&part, part.inputs..part.inputs + 1, &format!("{layer}.bias_ih_l0"));
        }
        put(&head, 0..hidden, "head");
        put(&head, hidden..hidden + 1, "bias");
        [flat(&outputs), flat(gradients.get(&sequences).unwrap()), of_weights]
    }

    /// Columns of a part as a matrix in candle's order: a row for each output of each group, output by output.
    fn matrix(&self, part: &Affine, columns: std::ops::Range<usize>) -> Var {
        let (rows, width) = (part.groups * GROUP, columns.len());
        let values: Vec<f32> = part.matrix(columns).map(|index| self.weights[index]).collect();
        Var::from_vec(values, (rows, width), &Device::Cpu).unwrap()
    }
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| if a.is_finite() && b.is_finite() { (a - b).abs() } else { f32::INFINITY })
        .fold(0.0, f32::max)
}

#[test]
fn it_is_the_stock_network() {
    for case in Case::all() {
        let ours = case.run(Threads::Two);
        let stock = case.run_stock();
        for (what, (ours, stock)) in ["outputs", "sequences", "weights"].iter().zip(ours.iter().zip(&stock)) {
            let difference = largest_difference(ours, stock);
            assert!(difference <= 1e-5, "{:?} x {}: {what} differ by {difference}", case.sizes, case.batch);
        }
    }
}

#[test]
fn gradients_are_those_of_differences() {
    for case in [Case::new(SIZES[2].0, 5), Case::new(SIZES[1].0, 17)] {
        let [_, of_sequences, of_weights] = case.run(Threads::One);
        let network = Network::new(case.sizes, Threads::One);
        let shape = (case.batch, case.sizes.steps, case.sizes.features);
        let loss = |sequences: &[f32], weights: &[f32]| {
            let sequences = Tensor::from_slice(sequences, shape, &Device::Cpu).unwrap();
            let weights = Tensor::from_slice(weights, weights.len(), &Device::Cpu).unwrap();
            let outputs = flat(&network.infer(&sequences, &weights).unwrap());
            let sum: f64 =
                outputs.iter().zip(&case.factors).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            sum / outputs.len() as f64
        };
        let rng = &mut Rng::new(3, 1);
        let step = 1e-2;
        let mut check = |what: &str, gradient: &[f32], loss: &dyn Fn(usize, f32) -> f64| {
            for _ in 0..60 {
                let at = rng.below(gradient.len() as u64) as usize;
                // Fourth-order differences: the loss is smooth, and f32 forbids small steps.
                let (near, far) =
                    (loss(at, step) - loss(at, -step), loss(at, 2.0 * step) - loss(at, -2.0 * step));
                let difference = (8.0 * near - far) / (12.0 * f64::from(step));
                let error = (difference - f64::from(gradient[at])).abs();
                assert!(error < 2e-5, "{what} {at}: {difference} by differences, {} by the op", gradient[at]);
            }
        };
        let moved = |values: &[f32], at: usize, by: f32| {
            let mut values = values.to_vec();
            values[at] += by;
            values
        };
        check("sequence", &of_sequences, &|at, by| loss(&moved(&case.sequences, at, by), &case.weights));
        check("weight", &of_weights, &|at, by| loss(&case.sequences, &moved(&case.weights, at, by)));
    }
}

#[test]
fn threads_change_no_bit() {
    for case in Case::all() {
        assert_eq!(case.run(Threads::One), case.run(Threads::Two), "{:?} x {}", case.sizes, case.batch);
    }
}

#[test]
fn wrong_tensors_are_refused() {
    let network = Network::new(SIZES[0].0, Threads::One);
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let weights = zeros(&[network.sizes().weights()]);
    let refused = |sequences: &Tensor, weights: &Tensor, part: &str| {
        let error = network.infer(sequences, weights).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(&zeros(&[3, 29, 5]), &weights, "[3, 29, 5]; the network takes [batch, 30, 5]");
    refused(&zeros(&[3, 30, 5]), &zeros(&[7]), "the weights are [7]");
    refused(&zeros(&[3, 5, 30]).transpose(1, 2).unwrap(), &weights, "contiguous");
    let doubles = weights.to_dtype(DType::F64).unwrap();
    assert!(network.infer(&zeros(&[3, 30, 5]), &doubles).is_err());
    let none = Network::new(Sizes { layers: 0, ..SIZES[0].0 }, Threads::One);
    assert!(none.infer(&zeros(&[3, 30, 5]), &weights).unwrap_err().to_string().contains("layers: 0"));
    assert_eq!(network.infer(&zeros(&[0, 30, 5]), &weights).unwrap().dims(), [0, 10, 4]);
}

/// A forward and a backward pass over one block, on instructions of the test's choice.
fn on<S: pulp::Simd>(simd: S, case: &Case) -> [Vec<f32>; 3] {
    let mut block = Block::new(&case.sizes);
    let mut gradient = PartGradient::zeros(&case.sizes);
    let mut outputs = vec![0.0; case.batch * case.sizes.outputs()];
    let mut inputs = vec![0.0; case.sequences.len()];
    block.load(&case.sequences);
    dispatch_on(simd, Forward { sizes: &case.sizes, weights: &case.weights, block: &mut block });
    block.unload(&mut outputs);
    block.load_gradient(&case.factors);
    dispatch_on(
        simd,
        Backward {
            sizes: &case.sizes,
            weights: &case.weights,
            block: &mut block,
            gradient: &mut gradient,
            inputs: Some(&mut inputs),
        },
    );
    let mut of_weights = vec![0.0; case.sizes.weights()];
    gradient.iter().for_each(|part| part.add_to(&mut of_weights));
    [outputs, inputs, of_weights]
}

#[test]
fn plain_numbers_come_close_to_vectors() {
    for case in SIZES.iter().map(|(sizes, _)| Case::new(*sizes, 16)) {
        let plain = on(pulp::Scalar::new(), &case);
        let vectors = pulp::Arch::new().dispatch(Best(&case));
        for (plain, vectors) in plain.iter().zip(&vectors) {
            let largest = plain.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
            assert!(largest_difference(plain, vectors) < 1e-5 * largest, "{:?}", case.sizes);
        }
    }
}

/// Everything on the best instructions there are.
struct Best<'a>(&'a Case);

impl pulp::WithSimd for Best<'_> {
    type Output = [Vec<f32>; 3];

    fn with_simd<S: pulp::Simd>(self, simd: S) -> Self::Output {
        on(simd, self.0)
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_width_of_vectors_changes_no_bit() {
    let (Some(narrow), Some(wide)) = (pulp::x86::V3::try_new(), pulp::x86::V4::try_new()) else {
        println!("NOT CHECKED: this processor has no AVX-512.");
        return;
    };
    for case in SIZES.iter().map(|(sizes, _)| Case::new(*sizes, 16)) {
        assert_eq!(on(narrow, &case), on(wide, &case), "{:?}", case.sizes);
    }
}
