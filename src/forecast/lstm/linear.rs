//! The linear map that the network starts from: what is left for it to learn is what a line cannot say.
//!
//! On most usage series a linear autoregression is hard to beat, and a network trained for an hour only comes near it. So the
//! map is solved exactly (ridge regression) and the network adds to it; before its first step of training it is the map.

use crate::forecast::LabelledWindows;

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
        let mut squares = vec![0.0f64; look_back * look_back];
        let mut products = vec![0.0f64; horizon * look_back];
        for (at, unit) in (0..windows.len()).zip(units) {
            let input = windows.windows.input(at);
            let last = input[look_back - 1];
            let relative = |value: &f32| f64::from((value - last) / unit);
            let x: Vec<f64> = input.iter().map(relative).collect();
            for (row, x_row) in x.iter().enumerate() {
                let squares = &mut squares[row * look_back..][..=row];
                squares.iter_mut().zip(&x).for_each(|(sum, x)| *sum += x_row * x);
            }
            for (row, y) in windows.target(at).iter().map(relative).enumerate() {
                let products = &mut products[row * look_back..][..look_back];
                products.iter_mut().zip(&x).for_each(|(sum, x)| *sum += y * x);
            }
        }
        let trace: f64 = (0..look_back).map(|at| squares[at * look_back + at]).sum();
        let ridge = (trace / look_back as f64 * RIDGE).max(f64::MIN_POSITIVE);
        (0..look_back).for_each(|at| squares[at * look_back + at] += ridge);
        factor(&mut squares, look_back);
        products.chunks_exact_mut(look_back).for_each(|products| substitute(&squares, products));
        Linear { look_back, weights: products.into_iter().map(|weight| weight as f32).collect() }
    }

    /// What the map adds to the last value, one number a step ahead.
    pub fn apply<'a>(&'a self, input: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        let last = input.last().copied().unwrap_or(0.0);
        self.weights.chunks_exact(self.look_back).map(move |weights| {
            weights.iter().zip(input).map(|(weight, value)| weight * (value - last)).sum()
        })
    }
}

/// The Cholesky factor of a symmetric matrix with a positive diagonal, in its lower triangle.
fn factor(matrix: &mut [f64], size: usize) {
    for row in 0..size {
        for column in 0..=row {
            let before: f64 = (0..column).map(|k| matrix[row * size + k] * matrix[column * size + k]).sum();
            let left = matrix[row * size + column] - before;
            matrix[row * size + column] = match row == column {
                true => left.max(f64::MIN_POSITIVE).sqrt(),
                false => left / matrix[column * size + column],
            };
        }
    }
}

/// Solves for the right-hand side `x` in place, given the Cholesky factor.
fn substitute(lower: &[f64], x: &mut [f64]) {
    let size = x.len();
    for row in 0..size {
        let before: f64 = (0..row).map(|k| lower[row * size + k] * x[k]).sum();
        x[row] = (x[row] - before) / lower[row * size + row];
    }
    for row in (0..size).rev() {
        let after: f64 = (row + 1..size).map(|k| lower[k * size + row] * x[k]).sum();
        x[row] = (x[row] - after) / lower[row * size + row];
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
