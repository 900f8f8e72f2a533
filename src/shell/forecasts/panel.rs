//! The models that compete for the word about one kind of series, learnt from its own past.
//!
//! ```text
//!   ├───────── learn ─────────┼── calibrate ──┼── replay: the gate sees what each would have said ──┤ now
//! ```
//!
//! Invariant: what a model has learnt from never judges it. The gate sees only forecasts of times after those that were learnt.

use std::sync::Arc;

use crate::forecast::baselines;
use crate::forecast::lstm::Lstm;
use crate::forecast::window::Origin;
use crate::forecast::{ForecastError, Forecaster, Forecasts, LabelledWindows, Model, Series, Shape, Windows};

/// The models in the order of the gate: persistence first, then from simple to complex.
pub const MODELS: [&str; 9] = [
    "persistence",
    "window-mean",
    "seasonal-naive",
    "linear",
    "linear-own",
    "ets",
    "seasonal-linear",
    "arima",
    "lstm",
];

/// Windows of a kind of series that are learnt from, and as many more for the calibration: a second's work.
const MOST_WINDOWS: usize = 4_000;

/// Steps of the newest past that are left for the gate: twice what it needs to trust anybody.
const REPLAYED: i64 = 240;

/// Steps between two of the replayed forecasts.
const REPLAY_STRIDE: usize = 5;

/// The models but the network, which all kinds of series share.
pub struct Panel {
    models: Vec<Model>,
    /// What they have learnt from; the network takes the ranges of the group from it.
    pub learnt: LabelledWindows,
}

/// The times that a kind of series is known for, as unix seconds, cut as the module's picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    first: i64,
    calibrate: i64,
    replay: i64,
    last: i64,
}

impl Times {
    fn of(series: &[Series]) -> Option<Times> {
        let step = i64::from(series.first()?.step_seconds);
        let first = series.iter().map(|series| series.start).min()?;
        let last = series.iter().filter_map(|series| Some(series.time_of(series.last_known()?))).max()?;
        let span = last - first;
        let replay = last - (REPLAYED * step).min(span / 2);
        Some(Times { first, calibrate: replay - (replay - first) / 4, replay, last })
    }
}

impl Panel {
    /// Learns from all but the newest past of the series. Models without anything to learn from say the last value.
    pub fn learn(shape: Shape, series: &Arc<[Series]>) -> Result<Panel, ForecastError> {
        let none = Times { first: 0, calibrate: 0, replay: 0, last: 0 };
        let times = Times::of(series).unwrap_or(none);
        let learnt = labelled(shape, series, times.first, times.calibrate)?;
        let past = labelled(shape, series, times.calibrate, times.replay)?;
        Ok(Panel { models: baselines::all(&learnt, &past), learnt })
    }

    /// What each of [`MODELS`] says.
    pub fn forecast(
        &self,
        windows: &Windows,
        network: Option<&Lstm>,
    ) -> Vec<Result<Forecasts, ForecastError>> {
        let lstm = match network {
            Some(network) => network.forecast(windows),
            None => Err(ForecastError::Model { model: "lstm", problem: "there are no weights".to_owned() }),
        };
        self.models.iter().map(|model| model.forecast(windows)).chain([lstm]).collect()
    }
}

/// Windows whose inputs and targets lie between two times, thinned out to [`MOST_WINDOWS`].
fn labelled(
    shape: Shape,
    series: &Arc<[Series]>,
    from: i64,
    to: i64,
) -> Result<LabelledWindows, ForecastError> {
    let step = i64::from(shape.step_seconds);
    let (first, last) = (from + (shape.look_back as i64 - 1) * step, to - shape.horizon as i64 * step);
    let all: usize = series.iter().map(|series| series.values.len()).sum();
    let stride = all.div_ceil(MOST_WINDOWS).max(1);
    let origins: Vec<Origin> = series
        .iter()
        .enumerate()
        .flat_map(|(at, series)| (0..series.values.len()).map(move |last| Origin { series: at, last }))
        .filter(|origin| (first..=last).contains(&series[origin.series].time_of(origin.last)))
        .step_by(stride)
        .collect();
    LabelledWindows::at(shape, series, &origins)
}

/// The windows of each replayed time, oldest first, with that time.
pub fn replay(shape: Shape, series: &Arc<[Series]>) -> impl Iterator<Item = (i64, Windows)> {
    let series = Arc::clone(series);
    let step = i64::from(shape.step_seconds);
    let times = Times::of(&series).map(|times| times.replay..times.last).unwrap_or_default();
    times.step_by(REPLAY_STRIDE * shape.step_seconds as usize).filter_map(move |time| {
        let origin = |(at, of): (usize, &Series)| {
            let last = usize::try_from((time - of.start).div_euclid(step)).ok()?;
            (last < of.values.len()).then_some(Origin { series: at, last })
        };
        let origins: Vec<Origin> = series.iter().enumerate().filter_map(origin).collect();
        let windows = Windows::at(shape, &series, &origins).ok()?;
        (!windows.is_empty()).then_some((time, windows))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_models() {
        let none: Arc<[Series]> = Vec::new().into();
        let panel = Panel::learn(Shape::default(), &none).unwrap();
        let names: Vec<_> = panel.models.iter().map(|model| model.name()).chain(["lstm"]).collect();
        assert_eq!(names, MODELS);
    }
}
