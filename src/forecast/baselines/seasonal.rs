//! The linear map with a longer memory: the window, the means of the last hours, and what followed at the same time of earlier
//! days. A day or a week that is not known counts as one in which nothing changed.

use std::collections::BTreeMap;

use super::linear::{Features, Lags, Sums, apply};
use super::{Point, last};
use crate::forecast::{ForecastError, LabelledWindows, SeriesKey, Windows};

/// Lengths of the means before a window's end, in steps, rising.
const MEANS: [usize; 5] = [60, 120, 300, 720, 1_440];

/// Days ago.
const DAYS: [usize; 3] = [1, 2, 7];

/// Features of each of [`DAYS`]: where the series stood, and how it moved on in half and in all of the horizon.
const PER_DAY: usize = 3;

/// Steps to either side that earlier days are averaged over.
const BLUR: usize = 5;

/// The window and what came before it.
#[derive(Clone, Copy, Debug)]
struct LongMemory;

impl Features for LongMemory {
    fn width(look_back: usize) -> usize {
        Lags::width(look_back) + MEANS.len() + DAYS.len() * PER_DAY
    }

    fn fill(windows: &Windows, at: usize, features: &mut Vec<f64>) {
        Lags::fill(windows, at, features);
        let (history, last) = (windows.history(at), last(windows, at));
        means(history, last, features);
        let horizon = windows.shape.horizon;
        let now = mean(&history[history.len().saturating_sub(BLUR)..]).unwrap_or(last);
        for days in DAYS {
            let before = days * windows.shape.steps_per_day();
            let then = around(history, before, 0);
            let moved = |steps| Some(around(history, before, steps)? - then?);
            features.push(then.map_or(0.0, |then| then - now));
            features.push(moved(horizon.div_ceil(2)).unwrap_or(0.0));
            features.push(moved(horizon).unwrap_or(0.0));
        }
    }
}

/// The mean of the last steps for each of [`MEANS`], against the last value.
fn means(history: &[f32], last: f64, features: &mut Vec<f64>) {
    let (mut sum, mut count, mut from) = (0.0, 0.0, history.len());
    for length in MEANS {
        let to = history.len().saturating_sub(length);
        for &value in history[to..from].iter().filter(|value| value.is_finite()) {
            sum += f64::from(value);
            count += 1.0;
        }
        from = to;
        features.push(if count > 0.0 { sum / count - last } else { 0.0 });
    }
}

/// The mean around `ahead` steps after the time `before` steps ago, as far as that is past.
fn around(history: &[f32], before: usize, ahead: usize) -> Option<f64> {
    let middle = (history.len() + ahead).checked_sub(before + 1)?;
    mean(history.get(middle.checked_sub(BLUR)?..=middle + BLUR)?)
}

/// The mean of the values that are known.
fn mean(values: &[f32]) -> Option<f64> {
    let known = values.iter().filter(|value| value.is_finite());
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), &value| (sum + f64::from(value), count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The linear autoregression with a longer memory, a map for each series.
#[derive(Clone, Debug)]
pub struct Seasonal {
    sums: Sums,
    pooled: Vec<f64>,
    own: BTreeMap<SeriesKey, Vec<f64>>,
}

impl Seasonal {
    /// Learns from training windows.
    pub fn fit(learnt: &LabelledWindows) -> Seasonal {
        let sums = Sums::of::<LongMemory>(learnt);
        Seasonal { pooled: sums.pooled(), own: sums.own(), sums }
    }
}

impl Point for Seasonal {
    fn name(&self) -> &'static str {
        "seasonal-linear"
    }

    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]) {
        let own = windows.key(at).and_then(|key| self.own.get(key));
        apply::<LongMemory>(own.unwrap_or(&self.pooled), windows, at, mean);
    }

    fn learn(&mut self, known: &LabelledWindows) -> Result<(), ForecastError> {
        self.sums.add::<LongMemory>(known)?;
        self.pooled = self.sums.pooled();
        self.own = self.sums.own();
        Ok(())
    }
}
