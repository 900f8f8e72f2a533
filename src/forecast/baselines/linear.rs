//! A linear map from the window to the steps ahead, by ridge regression: for each step a weight for every value before the last,
//! as its difference from the last, and a constant. That is 30 weights a step for a window of 30.
//!
//! What is learnt are sums (normal equations), so that new windows are added as they come and old ones never read again. A series
//! may have a map of its own: its sums together with those of all series, which count as [`PRIOR_WINDOWS`] windows.

use std::collections::BTreeMap;

use super::{Point, last};
use crate::forecast::solve::Normal;
use crate::forecast::{ForecastError, LabelledWindows, SeriesKey, Shape, Windows};

/// How many windows' worth all other series count in a series' own map. Windows overlap, so that 300 are ten independent ones.
const PRIOR_WINDOWS: f64 = 300.0;

/// Shrinkage, as a share of the mean square of a feature: next to nothing where there are windows, and a bound where there are few.
const RIDGE: f64 = 1e-3;

/// What a linear model sees of a window.
pub(super) trait Features {
    /// Number of features that [`Features::fill`] writes.
    fn width(look_back: usize) -> usize;

    /// Appends the features of window `at`; all are in the unit of the series and relative to its last value.
    fn fill(windows: &Windows, at: usize, features: &mut Vec<f64>);
}

/// The window itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lags;

impl Features for Lags {
    fn width(look_back: usize) -> usize {
        look_back - 1
    }

    fn fill(windows: &Windows, at: usize, features: &mut Vec<f64>) {
        let (input, last) = (windows.input(at), last(windows, at));
        features.extend(input[..input.len() - 1].iter().map(|&value| f64::from(value) - last));
    }
}

/// The sums that linear maps follow from.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    shape: Shape,
    all: Normal,
    by_series: BTreeMap<SeriesKey, Normal>,
}

impl Sums {
    /// Adds windows.
    ///
    /// # Errors
    /// When their shape is not that of the first ones.
    pub(super) fn add<F: Features>(&mut self, learnt: &LabelledWindows) -> Result<(), ForecastError> {
        if learnt.windows.shape != self.shape {
            let (expected, found) = (self.shape, learnt.windows.shape);
            return Err(ForecastError::OtherShape { model: "linear", expected, found });
        }
        let mut features = Vec::new();
        for at in 0..learnt.len() {
            features.clear();
            F::fill(&learnt.windows, at, &mut features);
            features.push(1.0);
            let last = last(&learnt.windows, at);
            let targets: Vec<f64> =
                learnt.target(at).iter().map(|&target| f64::from(target) - last).collect();
            self.all.add(&features, &targets);
            if let Some(key) = learnt.windows.key(at) {
                if !self.by_series.contains_key(key) {
                    self.by_series.insert(key.clone(), Normal::new(features.len(), targets.len()));
                }
                if let Some(own) = self.by_series.get_mut(key) {
                    own.add(&features, &targets);
                }
            }
        }
        Ok(())
    }

    /// The sums over windows.
    pub(super) fn of<F: Features>(learnt: &LabelledWindows) -> Sums {
        let shape = learnt.windows.shape;
        let all = Normal::new(F::width(shape.look_back) + 1, shape.horizon);
        let mut sums = Sums { shape, all, by_series: BTreeMap::new() };
        // The shape is the windows' own.
        let added = sums.add::<F>(learnt);
        debug_assert_eq!(added, Ok(()));
        sums
    }

    /// `[horizon, width + 1]`.
    pub(super) fn pooled(&self) -> Vec<f64> {
        self.all.solve(RIDGE)
    }

    /// A map for each series. Sums of other series are brought to the series' scale first.
    pub(super) fn own(&self) -> BTreeMap<SeriesKey, Vec<f64>> {
        let size = |normal: &Normal| normal.trace() / normal.count.max(1.0);
        let map = |(key, own): (&SeriesKey, &Normal)| {
            let mut normal = own.clone();
            let scale = if size(&self.all) > 0.0 { size(own) / size(&self.all) } else { 0.0 };
            normal.add_scaled(&self.all, scale * PRIOR_WINDOWS / self.all.count.max(1.0));
            (key.clone(), normal.solve(RIDGE))
        };
        self.by_series.iter().map(map).collect()
    }
}

/// Applies `[horizon, width + 1]` weights to a window.
pub(super) fn apply<F: Features>(weights: &[f64], windows: &Windows, at: usize, mean: &mut [f64]) {
    let mut features = Vec::with_capacity(weights.len() / mean.len().max(1));
    F::fill(windows, at, &mut features);
    features.push(1.0);
    let last = last(windows, at);
    for (mean, weights) in mean.iter_mut().zip(weights.chunks(features.len())) {
        *mean = last + weights.iter().zip(&features).map(|(weight, feature)| weight * feature).sum::<f64>();
    }
}

/// The linear autoregression.
#[derive(Clone, Debug)]
pub struct Linear {
    sums: Sums,
    pooled: Vec<f64>,
    /// Empty for the pooled model.
    own: Option<BTreeMap<SeriesKey, Vec<f64>>>,
}

impl Linear {
    /// One map for all series, from training windows.
    pub fn pooled(learnt: &LabelledWindows) -> Linear {
        let sums = Sums::of::<Lags>(learnt);
        Linear { pooled: sums.pooled(), sums, own: None }
    }

    /// A map for each series, and the pooled one for series not seen.
    pub fn own(learnt: &LabelledWindows) -> Linear {
        let sums = Sums::of::<Lags>(learnt);
        Linear { pooled: sums.pooled(), own: Some(sums.own()), sums }
    }
}

impl Point for Linear {
    fn name(&self) -> &'static str {
        if self.own.is_some() { "linear-own" } else { "linear" }
    }

    fn mean(&self, windows: &Windows, at: usize, mean: &mut [f64]) {
        let own = self.own.as_ref().zip(windows.key(at)).and_then(|(own, key)| own.get(key));
        apply::<Lags>(own.unwrap_or(&self.pooled), windows, at, mean);
    }

    fn learn(&mut self, known: &LabelledWindows) -> Result<(), ForecastError> {
        self.sums.add::<Lags>(known)?;
        self.pooled = self.sums.pooled();
        self.own = self.own.is_some().then(|| self.sums.own());
        Ok(())
    }
}
