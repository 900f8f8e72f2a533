//! The linear map that the network starts from: what is left for it to learn is what a line cannot say.
//!
//! On most usage series a linear autoregression is hard to beat, and a network trained for an hour only comes near it. So the
//! map is solved exactly (ridge regression) and the network adds to it; before its first step of training it is the map.

use crate::forecast::LabelledWindows;
use crate::forecast::solve::Normal;

/// For each step ahead the weights of the window's values, both taken relative to the last value: `[horizon, look_back]`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::forecast) struct Linear {
    pub look_back: usize,
    pub weights: Vec<f32>,
}

/// The penalty, in parts of the mean square of an input: enough for windows that are all alike, too little to matter else.
const RIDGE: f64 = 1e-4;

impl Linear {
    /// The map with the least squared error over `windows`, each divided by its unit.
    pub fn solve(windows: &LabelledWindows, units: impl Iterator<Item = f32>) -> Linear {
        let (look_back, horizon) = (windows.windows.shape.look_back, windows.windows.shape.horizon);
        let mut equations = Normal::new(look_back, horizon);
        for (at, unit) in (0..windows.len()).zip(units) {
            let input = windows.windows.input(at);
            let last = input[look_back - 1];
            let relative = |value: &f32| f64::from((value - last) / unit);
            let x: Vec<f64> = input.iter().map(relative).collect();
            let y: Vec<f64> = windows.target(at).iter().map(relative).collect();
            equations.add(&x, &y);
        }
        let weights = equations.solve(RIDGE);
        Linear { look_back, weights: weights.into_iter().map(|weight| weight as f32).collect() }
    }

    /// What the map adds to the last value, one number a step ahead.
    pub fn apply<'a>(&'a self, input: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        let last = input.last().copied().unwrap_or(0.0);
        self.weights.chunks_exact(self.look_back).map(move |weights| {
            weights.iter().zip(input).map(|(weight, value)| weight * (value - last)).sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::{Shape, Windows};

    /// Windows of three values and two targets.
    fn windows(rows: &[([f32; 3], [f32; 2])]) -> LabelledWindows {
        let shape = Shape { look_back: 3, horizon: 2, step_seconds: 60 };
        let inputs = rows.iter().flat_map(|(input, _)| *input).collect();
        let windows = Windows::new(shape, inputs, vec![0; rows.len()]).unwrap();
        LabelledWindows::new(windows, rows.iter().flat_map(|(_, target)| *target).collect()).unwrap()
    }

    #[test]
    fn it_finds_a_map_that_is_there() {
        // The next value goes on like the last two, the one after lies half way back to the first.
        let row = |a: f32, b: f32, c: f32| ([a, b, c], [2.0 * c - b, (a + c) / 2.0]);
        let rows = [row(1.0, 2.0, 5.0), row(-3.0, 4.0, 1.0), row(100.0, 101.0, 99.0), row(0.0, 7.0, 7.0)];
        let linear = Linear::solve(&windows(&rows), [1.0; 4].into_iter());
        for (input, target) in rows {
            for (added, target) in linear.apply(&input).zip(target) {
                assert!((input[2] + added - target).abs() < 0.01, "{input:?}: {added} for {target}");
            }
        }
    }

    #[test]
    fn windows_that_say_nothing_give_the_last_value() {
        for rows in [&[][..], &[([2.0, 2.0, 2.0], [2.0, 2.0])], &[([2.0, 2.0, 2.0], [5.0, 9.0])]] {
            let linear = Linear::solve(&windows(rows), rows.iter().map(|_| 1.0));
            assert!(linear.apply(&[1.0, 3.0, 2.0]).all(|added| added == 0.0), "{linear:?}");
        }
    }
}
