//! The network on a block of sixteen windows, backwards: through time, and at each step through the layers from the top.
//!
//! ```text
//!   gradient of out ─► head ─► dh ─► cells ─► gradient of the gates' sums ─┬─► of what the layer read: dh before, dh below
//!                              ▲                                           └─► times that: of the weights, some steps at once
//!                              └──────────── one step earlier ◄── dh, dc
//! ```
//!
//! Invariant: the gradient of a weight is one sum over steps and windows in one order, whatever the width of the vectors.

use pulp::Simd;

use super::block::{Block, CHUNK, PartGradient, Scratch, Tape, at_step, at_step_mut, below, gather, padded};
use super::lanes::{Kernel, LANES, Row, add_scaled, mul, mul_add, one_minus, rows, rows_mut, splat, tanh};
use super::sizes::{Affine, GROUP, Sizes};

/// Runs back over a block whose gradients of the outputs are loaded. Uses up its tape.
pub(super) struct Backward<'a> {
    pub sizes: &'a Sizes,
    pub weights: &'a [f32],
    pub block: &'a mut Block,
    /// Where the gradient of the weights is added, a part each.
    pub gradient: &'a mut [PartGradient],
    /// Where the gradient of the sequences is put, if anyone asks: `[.., steps, features]`.
    pub inputs: Option<&'a mut [f32]>,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, simd: S) {
        let Backward { sizes, weights, block, gradient, inputs } = self;
        let Block { x, layers, out, scratch } = block;
        let hidden = sizes.hidden * LANES;
        let Scratch { dh, dc, below: down, transposed } = scratch;
        let mut dx = vec![0.0; if inputs.is_some() { x.len() } else { 0 }];
        dh.iter_mut().chain(dc.iter_mut()).for_each(|rows| rows.fill(0.0));
        if let (Some(top), Some(dh)) = (layers.last(), dh.last_mut()) {
            let head = &mut gradient[sizes.layers];
            let last = at_step(&top.h, hidden, sizes.steps);
            transpose(last, &[], padded(&head.part), transposed);
            add_outer::<S, N>(simd, out, transposed, head, 1);
            inputs_gradient::<S, N>(simd, &sizes.head(), weights, out, 0, dh);
        }
        for step in (0..sizes.steps).rev() {
            for layer in (0..sizes.layers).rev() {
                let part = sizes.layer(layer);
                let gates = cells_gradient::<S, N>(
                    simd,
                    &mut layers[layer],
                    &dh[layer],
                    &mut dc[layer],
                    hidden,
                    step,
                );
                let own = part.inputs - sizes.hidden;
                // The lowest layer's own inputs are of interest only to whoever asks for their gradient.
                let from = if layer == 0 && inputs.is_none() { own } else { 0 };
                let down = &mut down[..(part.inputs - from) * LANES];
                inputs_gradient::<S, N>(simd, &part, weights, gates, from, down);
                let (read, own) = down.split_at((own - from) * LANES);
                dh[layer].copy_from_slice(own);
                match layer.checked_sub(1) {
                    Some(lower) => dh[lower].iter_mut().zip(read).for_each(|(sum, value)| *sum += value),
                    None if from == 0 => at_step_mut(&mut dx, read.len(), step).copy_from_slice(read),
                    None => {}
                }
            }
            if step % CHUNK == 0 {
                let steps = step..sizes.steps.min(step + CHUNK);
                weights_gradient::<S, N>(simd, sizes, x, layers, steps, transposed, gradient);
            }
        }
        if let Some(inputs) = inputs {
            gather(&dx, inputs);
        }
    }
}

/// Through the cells of a layer at `step`: takes the gradient of its outputs and cells, leaves that of its sums in the place of
/// the gates, and that of the cells before in `dc`. Returns the former, `[hidden, GROUP]`.
#[inline(always)]
fn cells_gradient<'a, S: Simd, const N: usize>(
    simd: S,
    tape: &'a mut Tape,
    dh: &[f32],
    dc: &mut [f32],
    hidden: usize,
    step: usize,
) -> &'a [f32] {
    let gates = at_step_mut(&mut tape.gates, hidden * GROUP, step);
    let c_before = rows::<S, N>(at_step(&tape.c, hidden, step));
    let c_now = rows::<S, N>(at_step(&tape.c, hidden, step + 1));
    let (cells, _) = rows_mut::<S, N>(gates).as_chunks_mut::<GROUP>();
    let cells = cells.iter_mut().zip(c_before.iter().zip(c_now));
    let gradients = rows::<S, N>(dh).iter().zip(rows_mut::<S, N>(dc));
    let one = splat(simd, 1.0);
    for ((gates, (&c_before, &c)), (&dh, dc)) in cells.zip(gradients) {
        let [input, forget, cell, output] = *gates;
        let tangent = tanh(simd, c);
        let through = mul(simd, mul(simd, dh, output), one_minus(simd, tangent, tangent));
        let d = mul_add(simd, one, *dc, through);
        *dc = mul(simd, d, forget);
        let bend = |gate| mul(simd, gate, one_minus(simd, gate, one));
        *gates = [
            mul(simd, mul(simd, d, cell), bend(input)),
            mul(simd, mul(simd, d, c_before), bend(forget)),
            mul(simd, mul(simd, d, input), one_minus(simd, cell, cell)),
            mul(simd, mul(simd, dh, tangent), bend(output)),
        ];
    }
    gates
}

/// The gradient of a part's inputs from `from` on, as many as `out` has rows, by the gradient of its sums.
#[inline(always)]
fn inputs_gradient<S: Simd, const N: usize>(
    simd: S,
    part: &Affine,
    weights: &[f32],
    sums: &[f32],
    from: usize,
    out: &mut [f32],
) {
    let (weights, _) = part.of(weights).as_chunks::<GROUP>();
    let (sums, _) = rows::<S, N>(sums).as_chunks::<GROUP>();
    let mut out = rows_mut::<S, N>(out);
    let mut at = from;
    // Sums in registers: 10 of 32 for AVX-512, 10 of 16 for AVX2, 20 of 32 for NEON.
    while !out.is_empty() {
        let done = match (N, out.len()) {
            (1, 10..) => inputs_tile::<S, N, 10>(simd, weights, part.inputs + 1, sums, at, out),
            (_, 5..) => inputs_tile::<S, N, 5>(simd, weights, part.inputs + 1, sums, at, out),
            _ => inputs_tile::<S, N, 1>(simd, weights, part.inputs + 1, sums, at, out),
        };
        out = &mut out[done..];
        at += done;
    }
}

/// `M` inputs of [`inputs_gradient`].
#[inline(always)]
fn inputs_tile<S: Simd, const N: usize, const M: usize>(
    simd: S,
    weights: &[[f32; GROUP]],
    each: usize,
    sums: &[[Row<S, N>; GROUP]],
    at: usize,
    out: &mut [Row<S, N>],
) -> usize {
    let mut tile = [splat(simd, 0.0); M];
    for (weights, sums) in weights.chunks_exact(each).zip(sums) {
        let weights = &weights[at..at + M];
        for g in 0..GROUP {
            for m in 0..M {
                add_scaled(simd, &mut tile[m], weights[m][g], &sums[g]);
            }
        }
    }
    out[..M].copy_from_slice(&tile);
    M
}

/// Adds the share of some steps to the gradient of all layers' weights.
#[inline(always)]
fn weights_gradient<S: Simd, const N: usize>(
    simd: S,
    sizes: &Sizes,
    x: &[f32],
    layers: &[Tape],
    steps: std::ops::Range<usize>,
    transposed: &mut [f32],
    gradient: &mut [PartGradient],
) {
    let hidden = sizes.hidden * LANES;
    for layer in 0..sizes.layers {
        let (lower, tape) = layers.split_at(layer);
        let gradient = &mut gradient[layer];
        let width = padded(&gradient.part);
        for (step, transposed) in steps.clone().zip(transposed.chunks_exact_mut(LANES * width)) {
            transpose(below(sizes, x, lower, step), at_step(&tape[0].h, hidden, step), width, transposed);
        }
        let sums = &tape[0].gates[steps.start * hidden * GROUP..];
        add_outer::<S, N>(simd, sums, transposed, gradient, steps.len());
    }
}

/// Puts the inputs of a step, a one for the bias, and zeros up to `width` into a row for each window.
#[inline(always)]
fn transpose(first: &[f32], second: &[f32], width: usize, out: &mut [f32]) {
    let (first, _) = first.as_chunks::<LANES>();
    let (second, _) = second.as_chunks::<LANES>();
    let inputs = first.len() + second.len();
    for (lane, row) in out.chunks_exact_mut(width).take(LANES).enumerate() {
        let (values, rest) = row.split_at_mut(inputs);
        let (of_first, of_second) = values.split_at_mut(first.len());
        of_first.iter_mut().zip(first).for_each(|(place, values)| *place = values[lane]);
        of_second.iter_mut().zip(second).for_each(|(place, values)| *place = values[lane]);
        rest.fill(0.0);
        rest[0] = 1.0;
    }
}

/// Adds the products of the gradient of a part's sums with its inputs, over the windows of some steps, to the gradient of its
/// weights. `sums` is `[steps, groups, GROUP]` rows, `transposed` is `[steps, LANES, width]`.
#[inline(always)]
fn add_outer<S: Simd, const N: usize>(
    simd: S,
    sums: &[f32],
    transposed: &[f32],
    gradient: &mut PartGradient,
    steps: usize,
) {
    let width = padded(&gradient.part);
    let group = GROUP * LANES;
    let stride = gradient.part.groups * group;
    for (at, gradient) in gradient.values.chunks_exact_mut(GROUP * width).enumerate() {
        let sums = (0..steps).map(|step| &sums[step * stride + at * group..][..group]);
        let mut column = 0;
        // Four rows of as many registers: 16 of 32 for AVX-512, 8 of 16 for AVX2, 16 of 32 for NEON.
        while column < width / LANES {
            let left = width / LANES - column;
            column += match (N, left) {
                (1, 4..) => outer_tile::<S, N, 4>(simd, sums.clone(), transposed, gradient, width, column),
                (1, 3) => outer_tile::<S, N, 3>(simd, sums.clone(), transposed, gradient, width, column),
                (1, 2) => outer_tile::<S, N, 2>(simd, sums.clone(), transposed, gradient, width, column),
                _ => outer_tile::<S, N, 1>(simd, sums.clone(), transposed, gradient, width, column),
            };
        }
    }
}

/// `M` rows' width of columns of [`add_outer`] for one group.
#[inline(always)]
fn outer_tile<'a, S: Simd, const N: usize, const M: usize>(
    simd: S,
    sums: impl Iterator<Item = &'a [f32]>,
    transposed: &[f32],
    gradient: &mut [f32],
    width: usize,
    column: usize,
) -> usize {
    let mut tile = [[splat(simd, 0.0); M]; GROUP];
    let at = |output: usize| output * width + column * LANES..output * width + (column + M) * LANES;
    for output in 0..GROUP {
        tile[output].copy_from_slice(rows::<S, N>(&gradient[at(output)]));
    }
    for (sums, windows) in sums.zip(transposed.chunks_exact(LANES * width)) {
        let (sums, _) = sums.as_chunks::<LANES>();
        for (lane, window) in windows.chunks_exact(width).enumerate() {
            let inputs = rows::<S, N>(&window[at(0)]);
            for m in 0..M {
                for output in 0..GROUP {
                    add_scaled(simd, &mut tile[output][m], sums[output][lane], &inputs[m]);
                }
            }
        }
    }
    for output in 0..GROUP {
        rows_mut::<S, N>(&mut gradient[at(output)]).copy_from_slice(&tile[output]);
    }
    M
}
