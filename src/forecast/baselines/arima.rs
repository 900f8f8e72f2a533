//! Small ARIMA models, fitted to the last values by the method of Hannan and Rissanen (1982).
//!
//! 1. *Difference?* When the level is not stationary by the test of Kwiatkowski, Phillips, Schmidt and Shin (1992), the changes are
//!    modelled instead of the values.
//! 2. *Innovations*: the residuals of a long autoregression (Yule-Walker equations).
//! 3. *Orders*: regression on past values and past innovations, for each pair of orders in [`ORDERS`]; the least corrected Akaike
//!    criterion wins. All pairs share one table of products.

use super::ets::criterion;
use super::{FITTED_HISTORY, Point};
use crate::forecast::Windows;
use crate::forecast::solve::{factor, substitute};

/// Orders that are tried: past values, past innovations.
const ORDERS: [(usize, usize); 10] =
    [(0, 0), (1, 0), (2, 0), (3, 0), (5, 0), (0, 1), (0, 2), (1, 1), (2, 1), (1, 2)];

/// The largest of either order, and both together.
const MOST_AR: usize = 5;
const MOST_MA: usize = 2;
const WIDTH: usize = MOST_AR + MOST_MA;

/// Order of the autoregression that the innovations come from.
const LONG_AR: usize = 10;

/// Fewer values than these are not fitted: the last value stays.
const FEWEST: usize = 30;

/// Critical value of the test for a stationary level, at 5 %.
const KPSS: f64 = 0.463;

/// A forecast that leaves this many times the span of the last values is no forecast.
const MOST_SPANS: f64 = 3.0;

/// ARIMA, chosen and fitted window by window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arima;

impl Point for Arima {
    fn name(&self) -> &'static str {
        "arima"
    }

    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]) {
        mean.fill(f64::NAN);
        let values: Vec<f64> =
            windows.recent(at, FITTED_HISTORY).iter().map(|&value| f64::from(value)).collect();
        if values.len() < FEWEST {
            return;
        }
        let differenced = statistic(&values) > KPSS;
        let level = if differenced { 0.0 } else { average(&values) };
        let stationary: Vec<f64> = if differenced {
            values.windows(2).map(|pair| pair[1] - pair[0]).collect()
        } else {
            values.iter().map(|value| value - level).collect()
        };
        let Some(model) = Model::fit(&stationary) else { return };
        model.ahead(&stationary, mean);
        let mut at_level = values[values.len() - 1];
        for mean in mean.iter_mut() {
            at_level += *mean;
            *mean = if differenced { at_level } else { *mean + level };
        }
        let (low, high) =
            values.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        let room = MOST_SPANS * (high - low);
        if mean.iter().any(|&mean| mean < low - room || mean > high + room) {
            mean.fill(f64::NAN);
        }
    }
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The test's statistic: the partial sums' size against the long-run variance. Zero for a constant.
fn statistic(values: &[f64]) -> f64 {
    let mean = average(values);
    let count = values.len() as f64;
    let centred: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let lags = (3.0 * count.sqrt() / 13.0) as usize;
    let mut variance = covariance(&centred, 0);
    for lag in 1..=lags {
        variance += 2.0 * (1.0 - lag as f64 / (lags + 1) as f64) * covariance(&centred, lag);
    }
    let (mut sum, mut squares) = (0.0, 0.0);
    for value in centred {
        sum += value;
        squares += sum * sum;
    }
    if variance > 0.0 { squares / (count * count * variance) } else { 0.0 }
}

/// Covariance of values around zero with those `lag` steps later.
fn covariance(centred: &[f64], lag: usize) -> f64 {
    centred.iter().zip(&centred[lag..]).map(|(a, b)| a * b).sum::<f64>() / centred.len() as f64
}

/// An ARMA model of values around zero.
struct Model {
    ar: Vec<f64>,
    ma: Vec<f64>,
}

impl Model {
    /// The best of all orders; `None` for values that do not move.
    fn fit(values: &[f64]) -> Option<Model> {
        let innovations = innovations(values)?;
        let products = Products::of(values, &innovations);
        let mut best: Option<(f64, Model)> = None;
        for (ar, ma) in ORDERS {
            let Some((squares, model)) = products.solve(ar, ma) else { continue };
            let criterion = criterion(squares, products.count, (ar + ma) as f64);
            if criterion.is_finite() && best.as_ref().is_none_or(|(least, _)| criterion < *least) {
                best = Some((criterion, model));
            }
        }
        best.map(|(_, model)| model)
    }

    /// Expected values of the steps after `values`.
    fn ahead(&self, values: &[f64], mean: &mut [f64]) {
        let mut known = values.to_vec();
        let mut innovations = vec![0.0; values.len()];
        for at in MOST_AR..values.len() {
            innovations[at] = values[at] - self.expected(&values[..at], &innovations[..at]);
        }
        for mean in mean {
            let next = self.expected(&known, &innovations);
            known.push(next);
            innovations.push(0.0);
            *mean = next;
        }
    }

    fn expected(&self, values: &[f64], innovations: &[f64]) -> f64 {
        let weigh = |weights: &[f64], past: &[f64]| -> f64 {
            weights.iter().zip(past.iter().rev()).map(|(weight, value)| weight * value).sum()
        };
        weigh(&self.ar, values) + weigh(&self.ma, innovations)
    }
}

/// Residuals of a long autoregression; `None` for values that do not move.
fn innovations(values: &[f64]) -> Option<Vec<f64>> {
    let covariances: Vec<f64> = (0..=LONG_AR).map(|lag| covariance(values, lag)).collect();
    let weights = levinson(&covariances)?;
    let residual = |at: usize| {
        let past = values[..at].iter().rev().zip(&weights);
        values[at] - past.map(|(value, weight)| value * weight).sum::<f64>()
    };
    Some((0..values.len()).map(residual).collect())
}

/// Solves the Yule-Walker equations by the recursion of Levinson and Durbin.
fn levinson(covariances: &[f64]) -> Option<Vec<f64>> {
    let mut error = covariances[0];
    let mut weights: Vec<f64> = Vec::new();
    for order in 1..covariances.len() {
        if error.is_nan() || error <= covariances[0] * 1e-12 {
            break;
        }
        let explained: f64 =
            weights.iter().enumerate().map(|(at, weight)| weight * covariances[order - 1 - at]).sum();
        let reflection = (covariances[order] - explained) / error;
        let before = weights.clone();
        weights
            .iter_mut()
            .zip(before.iter().rev())
            .for_each(|(weight, mirror)| *weight -= reflection * mirror);
        weights.push(reflection);
        error *= 1.0 - reflection * reflection;
    }
    (covariances[0] > 0.0 && weights.iter().all(|weight| weight.is_finite())).then_some(weights)
}

/// Sums of products of past values, past innovations and the present value.
struct Products {
    count: f64,
    gram: [[f64; WIDTH]; WIDTH],
    moments: [f64; WIDTH],
    squares: f64,
}

impl Products {
    fn of(values: &[f64], innovations: &[f64]) -> Products {
        let mut products =
            Products { count: 0.0, gram: [[0.0; WIDTH]; WIDTH], moments: [0.0; WIDTH], squares: 0.0 };
        for at in LONG_AR..values.len() {
            let past = |column: usize| match column.checked_sub(MOST_AR) {
                None => values[at - 1 - column],
                Some(column) => innovations[at - 1 - column],
            };
            let row: [f64; WIDTH] = std::array::from_fn(past);
            for (left, gram) in row.iter().zip(&mut products.gram) {
                gram.iter_mut().zip(row).for_each(|(sum, right)| *sum += left * right);
            }
            products.moments.iter_mut().zip(row).for_each(|(sum, left)| *sum += left * values[at]);
            products.squares += values[at] * values[at];
            products.count += 1.0;
        }
        products
    }

    /// The model of these orders and the sum of its squared errors.
    fn solve(&self, ar: usize, ma: usize) -> Option<(f64, Model)> {
        let columns: Vec<usize> = (0..ar).chain(MOST_AR..MOST_AR + ma).collect();
        let width = columns.len();
        let mut gram: Vec<f64> = columns
            .iter()
            .flat_map(|&row| columns.iter().map(move |&column| self.gram[row][column]))
            .collect();
        let mut weights: Vec<f64> = columns.iter().map(|&column| self.moments[column]).collect();
        if !factor(&mut gram, width) {
            return None;
        }
        substitute(&gram, &mut weights);
        let explained: f64 =
            weights.iter().zip(&columns).map(|(weight, &column)| weight * self.moments[column]).sum();
        let ma = weights.split_off(ar);
        Some((self.squares - explained, Model { ar: weights, ma }))
    }
}
