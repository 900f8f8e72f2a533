//! What a pass over a block of sixteen windows reads and leaves.

use super::lanes::LANES;
use super::sizes::{Affine, GROUP, Sizes};

/// What a forward pass leaves for the backward pass; `[.., LANES]` row-major, a lane a window.
#[derive(Debug)]
pub(super) struct Block {
    /// `[steps, features]`: the inputs.
    pub x: Vec<f32>,
    pub layers: Vec<Tape>,
    /// `[horizon, GROUP]`: what the head said; for the backward pass, the gradient of that.
    pub out: Vec<f32>,
    pub scratch: Scratch,
}

/// The course of a layer.
#[derive(Debug)]
pub(super) struct Tape {
    /// `[steps, hidden, GROUP]`: the gates after their bend; the backward pass puts the gradients before the bend there.
    pub gates: Vec<f32>,
    /// `[1 + steps, hidden]`: the outputs, from the zeros before the first step on.
    pub h: Vec<f32>,
    /// `[1 + steps, hidden]`: the cells, likewise.
    pub c: Vec<f32>,
}

/// Gradients on their way.
#[derive(Debug)]
pub(super) struct Scratch {
    /// `[layers, hidden]`: of each layer's output, and of its cells.
    pub dh: Vec<Vec<f32>>,
    pub dc: Vec<Vec<f32>>,
    /// `[inputs]` of the widest part: of what it reads.
    pub below: Vec<f32>,
    /// `[CHUNK, LANES, padded inputs]` of the widest part: its inputs with the windows outermost.
    pub transposed: Vec<f32>,
}

/// Steps whose share of the weights' gradient is added up in one go: their inputs fit in the first-level cache.
pub(super) const CHUNK: usize = 4;

/// Gradients of a part's weights: `[groups, GROUP, padded inputs]`, the bias after the last input, then zeros.
#[derive(Debug)]
pub(super) struct PartGradient {
    pub part: Affine,
    pub values: Vec<f32>,
}

/// Length of a row of inputs and bias, in whole vectors.
pub(super) fn padded(part: &Affine) -> usize {
    (part.inputs + 1).next_multiple_of(LANES)
}

impl PartGradient {
    /// Zeros for every part.
    pub fn zeros(sizes: &Sizes) -> Vec<PartGradient> {
        let zeros =
            |part: Affine| PartGradient { part, values: vec![0.0; part.groups * GROUP * padded(&part)] };
        sizes.parts().into_iter().map(zeros).collect()
    }

    /// Adds it to `gradient`, which has the order of the weights.
    pub fn add_to(&self, gradient: &mut [f32]) {
        let part = &self.part;
        let outputs = self.values.chunks_exact(padded(part));
        for (output, values) in outputs.enumerate() {
            let first = part.index(output / GROUP, output % GROUP, 0);
            let targets = gradient[first..].iter_mut().step_by(GROUP);
            targets.zip(&values[..=part.inputs]).for_each(|(target, value)| *target += value);
        }
    }
}

impl Block {
    /// Room for a block.
    pub fn new(sizes: &Sizes) -> Block {
        let lanes = |rows: usize| vec![0.0; rows * LANES];
        let Sizes { steps, features, hidden, layers, horizon } = *sizes;
        let tape = |_| Tape {
            gates: lanes(steps * hidden * GROUP),
            h: lanes((1 + steps) * hidden),
            c: lanes((1 + steps) * hidden),
        };
        let parts = sizes.parts();
        let widest = parts.iter().map(|part| part.inputs).max().unwrap_or(0);
        let longest = parts.iter().map(padded).max().unwrap_or(0);
        Block {
            x: lanes(steps * features),
            layers: (0..layers).map(tape).collect(),
            out: lanes(horizon * GROUP),
            scratch: Scratch {
                dh: vec![lanes(hidden); layers],
                dc: vec![lanes(hidden); layers],
                below: lanes(widest),
                transposed: lanes(CHUNK * longest),
            },
        }
    }

    /// Takes in up to [`LANES`] sequences of `[steps, features]`; the lanes left over show zeros.
    pub fn load(&mut self, sequences: &[f32]) {
        scatter(sequences, &mut self.x);
    }

    /// Writes out as many windows' outputs as `outputs`, `[.., horizon, GROUP]`, has room for.
    pub fn unload(&self, outputs: &mut [f32]) {
        gather(&self.out, outputs);
    }

    /// Takes in the gradients of the outputs of the same windows, zeros for the lanes left over.
    pub fn load_gradient(&mut self, gradients: &[f32]) {
        scatter(gradients, &mut self.out);
    }
}

/// Turns `[windows, n]` into `[n, LANES]`.
fn scatter(windows: &[f32], lanes: &mut [f32]) {
    let length = lanes.len() / LANES;
    lanes.fill(0.0);
    for (lane, window) in windows.chunks_exact(length).enumerate() {
        let places = lanes[lane..].iter_mut().step_by(LANES);
        places.zip(window).for_each(|(place, value)| *place = *value);
    }
}

/// Turns `[n, LANES]` into `[windows, n]`.
pub(super) fn gather(lanes: &[f32], windows: &mut [f32]) {
    let length = lanes.len() / LANES;
    for (lane, window) in windows.chunks_exact_mut(length).enumerate() {
        let values = lanes[lane..].iter().step_by(LANES);
        window.iter_mut().zip(values).for_each(|(place, value)| *place = *value);
    }
}

/// What a layer reads at `step` from beneath: `lower` are the layers beneath it.
#[inline(always)]
pub(super) fn below<'a>(sizes: &Sizes, x: &'a [f32], lower: &'a [Tape], step: usize) -> &'a [f32] {
    match lower.last() {
        None => at_step(x, sizes.features * LANES, step),
        Some(tape) => at_step(&tape.h, sizes.hidden * LANES, step + 1),
    }
}

#[inline(always)]
pub(super) fn at_step(values: &[f32], length: usize, step: usize) -> &[f32] {
    &values[step * length..(step + 1) * length]
}

#[inline(always)]
pub(super) fn at_step_mut(values: &mut [f32], length: usize, step: usize) -> &mut [f32] {
    &mut values[step * length..(step + 1) * length]
}
