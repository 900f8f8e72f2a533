//! The network over a batch: blocks of sixteen windows, on one thread or two.
//!
//! Invariant: a batch is always cut into the same two halves, whose gradients are added up in the same order; the number of
//! threads changes speed, never a bit of the result.

use std::sync::{Mutex, PoisonError};

use super::backward::Backward;
use super::block::{Block, PartGradient};
use super::forward::Forward;
use super::lanes::{LANES, dispatch};
use super::sizes::Sizes;

/// How many threads a pass may keep busy. Two at most: a forecaster must not take a node's processors from the scheduler's
/// neighbours, and at its sizes more would wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The caller's thread does all of the work.
    One,
    /// Two threads of the pool that candle uses.
    Two,
}

impl Threads {
    /// Does both, at the same time if there are two threads and both are worth it.
    fn join<A: Send, B: Send>(
        self,
        worth: bool,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        match self {
            Threads::Two if worth => rayon::join(first, second),
            _ => (first(), second()),
        }
    }
}

/// Blocks between uses. Fresh memory costs more than a pass over a small batch.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Block>>);

/// Blocks kept at most: those of a batch of 1,024.
const KEPT: usize = 64;

impl Pool {
    fn take(&self, sizes: &Sizes) -> Block {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| Block::new(sizes))
    }

    fn put(&self, blocks: impl IntoIterator<Item = Block>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT.saturating_sub(kept.len());
        kept.extend(blocks.into_iter().take(room));
    }
}

/// What the passes of one network share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass<'a> {
    pub sizes: &'a Sizes,
    pub weights: &'a [f32],
    pub threads: Threads,
    pub pool: &'a Pool,
}

impl Pass<'_> {
    /// Runs `sequences`, `[batch, steps, features]`, through the network and puts what comes out into `outputs`,
    /// `[batch, horizon, GROUP]`.
    pub fn infer(&self, sequences: &[f32], outputs: &mut [f32]) {
        let middle = self.middle(sequences);
        let (sequences, outputs) =
            (self.split(sequences, middle), outputs.split_at_mut(middle * self.sizes.outputs()));
        let half = |sequences: &[f32], outputs: &mut [f32]| {
            let mut block = self.pool.take(self.sizes);
            let blocks = sequences.chunks(LANES * self.sizes.inputs());
            for (sequences, outputs) in blocks.zip(outputs.chunks_mut(LANES * self.sizes.outputs())) {
                self.forward(&mut block, sequences, outputs);
            }
            self.pool.put([block]);
        };
        let worth = !sequences.1.is_empty();
        self.threads.join(worth, || half(sequences.0, outputs.0), || half(sequences.1, outputs.1));
    }

    /// Like [`Pass::infer`], and keeps the tapes for [`Pass::gradients`].
    pub fn record(&self, sequences: &[f32], outputs: &mut [f32]) -> Vec<Block> {
        let middle = self.middle(sequences);
        let (sequences, outputs) =
            (self.split(sequences, middle), outputs.split_at_mut(middle * self.sizes.outputs()));
        let half = |sequences: &[f32], outputs: &mut [f32]| {
            let blocks = sequences.chunks(LANES * self.sizes.inputs());
            let blocks = blocks.zip(outputs.chunks_mut(LANES * self.sizes.outputs()));
            let run = |(sequences, outputs): (&[f32], &mut [f32])| {
                let mut block = self.pool.take(self.sizes);
                self.forward(&mut block, sequences, outputs);
                block
            };
            blocks.map(run).collect::<Vec<Block>>()
        };
        let worth = !sequences.1.is_empty();
        let (mut first, second) =
            self.threads.join(worth, || half(sequences.0, outputs.0), || half(sequences.1, outputs.1));
        first.extend(second);
        first
    }

    /// The gradient of the weights, given that of the outputs and the tapes; that of the sequences goes into `inputs`.
    pub fn gradients(&self, mut tapes: Vec<Block>, outputs: &[f32], inputs: Option<&mut [f32]>) -> Vec<f32> {
        let middle = self.middle_block(tapes.len());
        let (first, second) = tapes.split_at_mut(middle);
        let outputs = outputs.split_at((middle * LANES * self.sizes.outputs()).min(outputs.len()));
        let (first_inputs, second_inputs) = match inputs {
            None => (None, None),
            Some(inputs) => {
                let middle = (middle * LANES * self.sizes.inputs()).min(inputs.len());
                let (first, second) = inputs.split_at_mut(middle);
                (Some(first), Some(second))
            }
        };
        let half = |blocks: &mut [Block], outputs: &[f32], inputs: Option<&mut [f32]>| {
            let mut gradient = PartGradient::zeros(self.sizes);
            let length = LANES * self.sizes.inputs();
            let mut inputs = inputs.map(|inputs| inputs.chunks_mut(length));
            for (block, outputs) in blocks.iter_mut().zip(outputs.chunks(LANES * self.sizes.outputs())) {
                block.load_gradient(outputs);
                let inputs = inputs.as_mut().and_then(Iterator::next);
                let (sizes, weights) = (self.sizes, self.weights);
                dispatch(Backward { sizes, weights, block, gradient: &mut gradient, inputs });
            }
            gradient
        };
        let worth = !second.is_empty();
        let (first, second) = self.threads.join(
            worth,
            || half(first, outputs.0, first_inputs),
            || half(second, outputs.1, second_inputs),
        );
        self.pool.put(tapes);
        let mut gradient = vec![0.0; self.sizes.weights()];
        first.iter().chain(&second).for_each(|part| part.add_to(&mut gradient));
        gradient
    }

    fn forward(&self, block: &mut Block, sequences: &[f32], outputs: &mut [f32]) {
        block.load(sequences);
        dispatch(Forward { sizes: self.sizes, weights: self.weights, block });
        block.unload(outputs);
    }

    /// Where a batch of sequences is cut in two: between two blocks.
    fn middle(&self, sequences: &[f32]) -> usize {
        let batch = sequences.len() / self.sizes.inputs();
        (self.middle_block(batch.div_ceil(LANES)) * LANES).min(batch)
    }

    fn middle_block(&self, blocks: usize) -> usize {
        blocks.div_ceil(2)
    }

    fn split<'a>(&self, sequences: &'a [f32], middle: usize) -> (&'a [f32], &'a [f32]) {
        sequences.split_at(middle * self.sizes.inputs())
    }
}
