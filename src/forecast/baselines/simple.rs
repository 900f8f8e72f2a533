//! Models without anything to learn.

use super::{Point, last};
use crate::forecast::Windows;

/// The last value stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Persistence;

impl Point for Persistence {
    fn name(&self) -> &'static str {
        "persistence"
    }

    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]) {
        mean.fill(last(windows, at));
    }
}

/// The mean of the window stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowMean;

impl Point for WindowMean {
    fn name(&self) -> &'static str {
        "window-mean"
    }

    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]) {
        let input = windows.input(at);
        mean.fill(input.iter().map(|&value| f64::from(value)).sum::<f64>() / input.len() as f64);
    }
}

/// Yesterday comes again; the last value where yesterday is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeasonalNaive;

impl Point for SeasonalNaive {
    fn name(&self) -> &'static str {
        "seasonal-naive"
    }

    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]) {
        let history = windows.history(at);
        let day = windows.shape.steps_per_day();
        let last = last(windows, at);
        for (step, mean) in mean.iter_mut().enumerate() {
            // A horizon of more than a day would look into the future; the last value stands in there, too.
            let ago = (history.len() + step).checked_sub(day).and_then(|index| history.get(index));
            *mean = ago.filter(|value| value.is_finite()).map_or(last, |&value| f64::from(value));
        }
    }
}
