//! The network on a block of sixteen windows, forwards.
//!
//! ```text
//!   x[t] ─► layer 0 ─► h0[t] ─► layer 1 ─► h1[t] ... h1[T-1] ─► head ─► out
//!           ▲      │            ▲      │
//!           └ h,c ◄┘            └ h,c ◄┘
//! ```
//!
//! A cell's four gates are summed in registers over everything that it reads (the layer below and its own last state: the two
//! matrix products of an LSTM in one), and bent and combined before they leave them. The lanes are windows, so odd numbers of
//! cells or features waste nothing. A block's tape (some megabytes) stays in the second-level cache between its forward and its
//! backward pass.
//!
//! Invariant: every sum runs in one order, whatever the width of the vectors and the number of threads.

use pulp::Simd;

use super::block::{Block, Tape, at_step_mut, below};
use super::lanes::{Kernel, LANES, Row, add_scaled, mul, mul_add, rows, rows_mut, sigmoid, splat, tanh};
use super::sizes::{GROUP, Sizes};

/// Runs the network over the sequences of a block.
pub(super) struct Forward<'a> {
    pub sizes: &'a Sizes,
    pub weights: &'a [f32],
    pub block: &'a mut Block,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, simd: S) {
        let Forward { sizes, weights, block } = self;
        let hidden = sizes.hidden * LANES;
        for tape in &mut block.layers {
            tape.h[..hidden].fill(0.0);
            tape.c[..hidden].fill(0.0);
        }
        for step in 0..sizes.steps {
            for layer in 0..sizes.layers {
                let (lower, tape) = block.layers.split_at_mut(layer);
                let below = below(sizes, &block.x, lower, step);
                layer_step::<S, N>(simd, sizes.layer(layer).of(weights), below, &mut tape[0], hidden, step);
            }
        }
        let Some(top) = block.layers.last() else { return };
        let last = rows::<S, N>(&top.h[sizes.steps * hidden..]);
        let (head, _) = sizes.head().of(weights).as_chunks::<GROUP>();
        let (out, _) = rows_mut::<S, N>(&mut block.out).as_chunks_mut::<GROUP>();
        for (weights, out) in head.chunks_exact(sizes.hidden + 1).zip(out) {
            [*out] = affine(simd, weights, last, &[]);
        }
    }
}

/// One step of a layer: from its state before to its state after `step`.
#[inline(always)]
fn layer_step<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    below: &[f32],
    tape: &mut Tape,
    hidden: usize,
    step: usize,
) {
    let (h_past, h_next) = tape.h.split_at_mut((step + 1) * hidden);
    let (c_past, c_next) = tape.c.split_at_mut((step + 1) * hidden);
    let inputs = (rows::<S, N>(below), rows::<S, N>(&h_past[step * hidden..]));
    let (weights, _) = weights.as_chunks::<GROUP>();
    let each = inputs.0.len() + inputs.1.len() + 1;
    let mut cells = Cells {
        weights,
        gates: rows_mut::<S, N>(at_step_mut(&mut tape.gates, hidden * GROUP, step)).as_chunks_mut().0,
        c_before: rows::<S, N>(&c_past[step * hidden..]),
        c: rows_mut::<S, N>(&mut c_next[..hidden]),
        h: rows_mut::<S, N>(&mut h_next[..hidden]),
    };
    // As many cells at a time as fill the registers with sums: 20 of 32 for AVX-512, 8 of 16 for AVX2, 16 of 32 for NEON.
    if N == 1 {
        while cells.h.len() >= 5 {
            cells = cells.advance::<5>(simd, each, inputs);
        }
    }
    while !cells.h.is_empty() {
        cells = cells.advance::<1>(simd, each, inputs);
    }
}

/// The cells of a step that are still to do.
struct Cells<'a, S: Simd, const N: usize> {
    weights: &'a [[f32; GROUP]],
    gates: &'a mut [[Row<S, N>; GROUP]],
    c_before: &'a [Row<S, N>],
    c: &'a mut [Row<S, N>],
    h: &'a mut [Row<S, N>],
}

impl<'a, S: Simd, const N: usize> Cells<'a, S, N> {
    /// Does the first `U` cells and returns the rest.
    #[inline(always)]
    fn advance<const U: usize>(self, simd: S, each: usize, inputs: (&[Row<S, N>], &[Row<S, N>])) -> Self {
        let (weights, weights_left) = self.weights.split_at(U * each);
        let (gates, gates_left) = self.gates.split_at_mut(U);
        let (c_before, c_before_left) = self.c_before.split_at(U);
        let (c, c_left) = self.c.split_at_mut(U);
        let (h, h_left) = self.h.split_at_mut(U);
        let sums: [[Row<S, N>; GROUP]; U] = affine(simd, weights, inputs.0, inputs.1);
        for u in 0..U {
            let [input, forget, cell, output] = sums[u];
            let bent = [sigmoid(simd, input), sigmoid(simd, forget), tanh(simd, cell), sigmoid(simd, output)];
            c[u] = mul_add(simd, bent[1], c_before[u], mul(simd, bent[0], bent[2]));
            h[u] = mul(simd, bent[3], tanh(simd, c[u]));
            gates[u] = bent;
        }
        Cells { weights: weights_left, gates: gates_left, c_before: c_before_left, c: c_left, h: h_left }
    }
}

/// `U` groups of affine functions of two tables of inputs.
#[inline(always)]
fn affine<S: Simd, const N: usize, const U: usize>(
    simd: S,
    weights: &[[f32; GROUP]],
    first: &[Row<S, N>],
    second: &[Row<S, N>],
) -> [[Row<S, N>; GROUP]; U] {
    let (one, two) = (first.len(), second.len());
    let each = one + two + 1;
    let mut sums = [[splat(simd, 0.0); GROUP]; U];
    let mut of_first: [&[[f32; GROUP]]; U] = [&[]; U];
    let mut of_second: [&[[f32; GROUP]]; U] = [&[]; U];
    for u in 0..U {
        let group = &weights[u * each..(u + 1) * each];
        for g in 0..GROUP {
            sums[u][g] = splat(simd, group[one + two][g]);
        }
        of_first[u] = &group[..one];
        of_second[u] = &group[one..one + two];
    }
    accumulate(simd, &mut sums, &of_first, first);
    accumulate(simd, &mut sums, &of_second, second);
    sums
}

#[inline(always)]
fn accumulate<S: Simd, const N: usize, const U: usize>(
    simd: S,
    sums: &mut [[Row<S, N>; GROUP]; U],
    weights: &[&[[f32; GROUP]]; U],
    inputs: &[Row<S, N>],
) {
    for (k, input) in inputs.iter().enumerate() {
        for u in 0..U {
            let weights = &weights[u][k];
            for g in 0..GROUP {
                add_scaled(simd, &mut sums[u][g], weights[g], input);
            }
        }
    }
}
