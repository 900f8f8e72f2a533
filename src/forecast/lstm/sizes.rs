//! The sizes of a network and the order of its weights.

use std::ops::Range;

/// Sizes of a network: layers of LSTM cells over a sequence, then a dense head on the last layer's last state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Steps of a sequence.
    pub steps: usize,
    /// Numbers that each step shows.
    pub features: usize,
    /// Cells of a layer.
    pub hidden: usize,
    /// LSTM layers.
    pub layers: usize,
    /// Steps that the head forecasts, [`GROUP`] numbers each.
    pub horizon: usize,
}

/// Affine functions come in groups of four that share their inputs: a cell's gates (input, forget, cell, output), or the four
/// numbers of a step ahead.
pub const GROUP: usize = 4;

/// A part of the weights: `groups` times, for each input and then for the bias, [`GROUP`] weights side by side. This is the
/// order in which the kernels read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forecast) struct Affine {
    /// Where it begins in the weights.
    pub at: usize,
    /// Cells, or steps ahead.
    pub groups: usize,
    /// Inputs, without the bias.
    pub inputs: usize,
}

impl Affine {
    /// Weights of a group.
    pub fn group_len(&self) -> usize {
        (self.inputs + 1) * GROUP
    }

    /// Weights of all groups.
    pub fn len(&self) -> usize {
        self.groups * self.group_len()
    }

    /// Its part of the weights.
    pub fn of<'a>(&self, weights: &'a [f32]) -> &'a [f32] {
        &weights[self.at..self.at + self.len()]
    }

    /// Where the weight of `input` (the bias comes after the last) to `output` of `group` lies in the weights.
    pub fn index(&self, group: usize, output: usize, input: usize) -> usize {
        self.at + group * self.group_len() + input * GROUP + output
    }

    /// Where the weights of some inputs lie, in the order of a matrix as others keep it: a row for each output, of all groups
    /// the first output, then of all the second; a column for each input.
    pub fn matrix(&self, inputs: Range<usize>) -> impl Iterator<Item = usize> + use<> {
        let part = *self;
        (0..part.groups * GROUP).flat_map(move |row| {
            let (group, output) = (row % part.groups, row / part.groups);
            inputs.clone().map(move |input| part.index(group, output, input))
        })
    }
}

impl Sizes {
    /// What an LSTM layer reads: the features or the layer below, then its own last state.
    pub(in crate::forecast) fn layer(&self, layer: usize) -> Affine {
        let first = Affine { at: 0, groups: self.hidden, inputs: self.features + self.hidden };
        let other = Affine { at: 0, groups: self.hidden, inputs: 2 * self.hidden };
        match layer.checked_sub(1) {
            None => first,
            Some(others) => Affine { at: first.len() + others * other.len(), ..other },
        }
    }

    /// The dense head.
    pub(in crate::forecast) fn head(&self) -> Affine {
        Affine { at: self.layer(self.layers).at, groups: self.horizon, inputs: self.hidden }
    }

    /// All parts in order: the layers, then the head.
    pub(in crate::forecast) fn parts(&self) -> Vec<Affine> {
        (0..self.layers).map(|layer| self.layer(layer)).chain([self.head()]).collect()
    }

    /// Number of weights.
    pub fn weights(&self) -> usize {
        self.head().at + self.head().len()
    }

    /// Numbers that a sequence has.
    pub fn inputs(&self) -> usize {
        self.steps * self.features
    }

    /// Numbers that come out for a sequence.
    pub fn outputs(&self) -> usize {
        self.horizon * GROUP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_follow_each_other() {
        for (features, hidden, layers, horizon) in [(5, 50, 2, 10), (1, 3, 1, 2), (2, 7, 3, 1)] {
            let sizes = Sizes { steps: 4, features, hidden, layers, horizon };
            let mut end = 0;
            for part in sizes.parts() {
                assert_eq!(
                    (part.at, part.index(part.groups - 1, 3, part.inputs)),
                    (end, end + part.len() - 1)
                );
                end += part.len();
            }
            assert_eq!(sizes.weights(), end);
            let expected = 4 * hidden * (features + hidden + 1)
                + 4 * hidden * (2 * hidden + 1) * (layers - 1)
                + 4 * horizon * (hidden + 1);
            assert_eq!(end, expected);
        }
    }
}
