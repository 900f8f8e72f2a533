//! Rolling origin: models and the gate go through the past as if it were the present.
//!
//! ```text
//!   ├── learnt ──┤── held out ──┤────────────── replayed ──────────────►
//!   models learn   quantiles,     origin after origin: models forecast, the gate blends;
//!                  gate's first   once a day models learn from what has become known
//!                  errors
//! ```
//!
//! Invariant: what is said at an origin depends on nothing after it. The bounds are times, the same for all series of a kind, or an
//! index each where series do not overlap.

use std::sync::Arc;

use super::gate::{Gate, Verdict};
use super::window::Origin;
use super::{ForecastError, Forecasts, LabelledWindows, Model, Series, Shape, Windows};

/// Where the past is divided: shares of each series' length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Models learn up to here.
    pub learnt: f64,
    /// Replaying begins here.
    pub tested: f64,
}

impl Default for Split {
    /// The last 30 % are replayed; of what is before, the last seventh is held out.
    fn default() -> Split {
        Split { learnt: 0.6, tested: 0.7 }
    }
}

/// One series divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Index of the first value that is held out.
    pub held_out: usize,
    /// Index of the first value that is a target of a replayed window.
    pub tested: usize,
}

impl Split {
    /// The bounds of a series of so many values.
    pub fn bounds(&self, values: usize) -> Bounds {
        let at = |share: f64| (values as f64 * share.clamp(0.0, 1.0)) as usize;
        Bounds { held_out: at(self.learnt.min(self.tested)), tested: at(self.tested) }
    }

    /// The windows that models may learn from (all targets before the bound), one every `stride` steps.
    ///
    /// # Errors
    /// When a series has another step than `shape`.
    pub fn learnt(
        &self,
        shape: Shape,
        series: &Arc<[Series]>,
        stride: usize,
    ) -> Result<LabelledWindows, ForecastError> {
        windows(shape, series, stride, |series| 0..self.bounds(series.values.len()).held_out)
    }

    /// The windows that are held out: all inputs may be known before, all targets are not.
    ///
    /// # Errors
    /// When a series has another step than `shape`.
    pub fn held_out(
        &self,
        shape: Shape,
        series: &Arc<[Series]>,
        stride: usize,
    ) -> Result<LabelledWindows, ForecastError> {
        let range = |series: &Series| {
            let bounds = self.bounds(series.values.len());
            bounds.held_out.saturating_sub(shape.look_back)..bounds.tested
        };
        windows(shape, series, stride, range)
    }
}

/// Windows whose inputs and targets lie within a range of each series.
fn windows(
    shape: Shape,
    series: &Arc<[Series]>,
    stride: usize,
    range: impl Fn(&Series) -> std::ops::Range<usize>,
) -> Result<LabelledWindows, ForecastError> {
    let origins = |(index, series): (usize, &Series)| {
        let range = range(series);
        let ends = range.start + shape.look_back - 1..range.end.saturating_sub(shape.horizon);
        ends.step_by(stride.max(1)).map(move |last| Origin { series: index, last })
    };
    let origins: Vec<Origin> = series.iter().enumerate().flat_map(origins).collect();
    LabelledWindows::at(shape, series, &origins)
}

/// How the past is gone through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Steps from origin to origin.
    pub stride: usize,
    /// Steps after which models learn again; zero: never.
    pub relearn: usize,
}

impl Plan {
    /// Every horizon an origin, learning once a day.
    pub fn daily(shape: Shape) -> Plan {
        Plan { stride: shape.horizon, relearn: shape.steps_per_day() }
    }
}

/// What was said, window by window in order of time.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The windows with what followed.
    pub windows: LabelledWindows,
    /// Every model's name and forecasts.
    pub models: Vec<(&'static str, Forecasts)>,
    /// The gate's forecasts.
    pub gated: Forecasts,
    /// And what it thought of them.
    pub verdicts: Vec<Verdict>,
}

impl Replay {
    /// The name and forecasts of each model, and at the end of the gate.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Forecasts)> {
        self.models.iter().map(|(name, forecasts)| (*name, forecasts)).chain([("gated", &self.gated)])
    }

    /// Each model's share of the word, averaged over the chosen windows.
    pub fn votes(&self, chosen: &[usize]) -> Vec<f64> {
        let mut votes = vec![0.0; self.models.len()];
        for &at in chosen {
            votes
                .iter_mut()
                .zip(&self.verdicts[at].weights)
                .for_each(|(vote, weight)| *vote += f64::from(*weight));
        }
        votes.iter().map(|vote| vote / chosen.len().max(1) as f64).collect()
    }
}

/// Replays every series from the index of its held-out part on. `progress` is told how many of how many windows are done.
///
/// # Errors
/// When a series has another step than `shape`, or a model that is not the gate's fails for good.
pub fn replay(
    models: &mut [Model],
    gate: &mut Gate,
    shape: Shape,
    series: &Arc<[Series]>,
    split: Split,
    plan: Plan,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Replay, ForecastError> {
    let from = |series: &Series| split.bounds(series.values.len()).held_out.max(shape.look_back);
    let ends = |(index, of): (usize, &Series)| {
        let ends = (from(of) - 1..of.values.len()).step_by(plan.stride.max(1));
        ends.map(move |last| Origin { series: index, last })
    };
    let mut origins: Vec<Origin> = series.iter().enumerate().flat_map(ends).collect();
    let end = |origin: &Origin| series[origin.series].time_of(origin.last);
    origins.sort_by_key(|origin| (end(origin), *origin));
    let windows = LabelledWindows::at(shape, series, &origins)?;
    let mut replay = Replay {
        models: models.iter().map(|model| (model.name(), empty(shape))).collect(),
        gated: empty(shape),
        verdicts: Vec::new(),
        windows,
    };
    let step = i64::from(shape.step_seconds);
    let mut known =
        replay.windows.windows.ends.first().map_or(0, |first| first - shape.horizon as i64 * step);
    for part in parts(&replay.windows.windows, plan.relearn as i64 * step) {
        progress(part.start, replay.windows.len());
        if plan.relearn > 0 && part.start > 0 {
            // Targets before the part's first origin are known.
            let until = replay.windows.windows.ends[part.start] - shape.horizon as i64 * step;
            let learnt = between(shape, series, known, until)?;
            models.iter_mut().try_for_each(|model| model.learn(&learnt))?;
            known = until;
        }
        said(models, gate, part, &mut replay)?;
    }
    progress(replay.windows.len(), replay.windows.len());
    Ok(replay)
}

/// Everything said about one part: the models at once, the gate origin by origin.
fn said(
    models: &[Model],
    gate: &mut Gate,
    part: std::ops::Range<usize>,
    replay: &mut Replay,
) -> Result<(), ForecastError> {
    let chosen: Vec<usize> = part.collect();
    let windows = replay.windows.windows.select(&chosen);
    let forecasts: Vec<_> = models.iter().map(|model| model.forecast(&windows)).collect();
    let mut from = 0;
    while from < windows.len() {
        let now = windows.ends[from];
        let same = windows.ends[from..].iter().take_while(|end| **end == now).count();
        let at_once: Vec<usize> = (from..from + same).collect();
        let of = |model: &Result<Forecasts, ForecastError>| {
            model.as_ref().map(|model| select(model, &at_once)).map_err(Clone::clone)
        };
        let models: Vec<_> = forecasts.iter().map(of).collect();
        let gated = gate.step(now, &windows.select(&at_once), &models)?;
        append(&mut replay.gated, &gated.forecasts);
        replay.verdicts.extend(gated.verdicts);
        from += same;
    }
    for ((_, all), forecasts) in replay.models.iter_mut().zip(forecasts) {
        append(all, &forecasts?);
    }
    Ok(())
}

fn empty(shape: Shape) -> Forecasts {
    Forecasts { horizon: shape.horizon, ..Forecasts::default() }
}

fn append(all: &mut Forecasts, more: &Forecasts) {
    all.mean.extend(&more.mean);
    all.quantiles.iter_mut().zip(&more.quantiles).for_each(|(all, more)| all.extend(more));
}

fn select(forecasts: &Forecasts, which: &[usize]) -> Forecasts {
    let quantile =
        |quantile| which.iter().flat_map(|&at| forecasts.quantile_of(quantile, at)).copied().collect();
    Forecasts {
        horizon: forecasts.horizon,
        mean: which.iter().flat_map(|&at| forecasts.mean_of(at)).copied().collect(),
        quantiles: std::array::from_fn(quantile),
    }
}

/// Windows in order of time, cut wherever `seconds` have gone by since the last cut; zero: not at all.
fn parts(windows: &Windows, seconds: i64) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    let mut from = 0;
    for at in 1..=windows.len() {
        let over = at == windows.len() || (seconds > 0 && windows.ends[at] - windows.ends[from] >= seconds);
        if over {
            parts.push(from..at);
            from = at;
        }
    }
    parts
}

/// The windows of every series that end after `from` and not after `until`.
fn between(
    shape: Shape,
    series: &Arc<[Series]>,
    from: i64,
    until: i64,
) -> Result<LabelledWindows, ForecastError> {
    let ends = |(index, of): (usize, &Series)| {
        let step = i64::from(of.step_seconds.max(1));
        let index_of = |time: i64| (time - of.start).div_euclid(step).clamp(-1, of.values.len() as i64 - 1);
        (index_of(from) + 1..index_of(until) + 1)
            .map(move |last| Origin { series: index, last: last as usize })
    };
    let origins: Vec<Origin> = series.iter().enumerate().flat_map(ends).collect();
    LabelledWindows::at(shape, series, &origins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::SeriesKey;
    use crate::forecast::baselines;
    use crate::forecast::gate::Memory;

    const SHAPE: Shape = Shape { look_back: 5, horizon: 3, step_seconds: 60 };

    /// A saw with a period of 7, and one of 11 that begins later.
    fn saws() -> Vec<Series> {
        let saw = |name: &str, start: i64, period: usize| Series {
            key: SeriesKey::new("g", name),
            start,
            step_seconds: 60,
            values: (0..800).map(|at| (at % period) as f32).collect(),
        };
        vec![saw("a", 0, 7), saw("b", 6_000, 11)]
    }

    fn run(series: Vec<Series>) -> Replay {
        let series: Arc<[Series]> = series.into();
        let split = Split::default();
        let learnt = split.learnt(SHAPE, &series, 1).unwrap();
        let held_out = split.held_out(SHAPE, &series, 1).unwrap();
        let mut models = baselines::all(&learnt, &held_out);
        let names = models.iter().map(|model| model.name()).collect();
        let mut gate = Gate::new(names, Memory::default(), 600);
        let plan = Plan { stride: 2, relearn: 60 };
        replay(&mut models, &mut gate, SHAPE, &series, split, plan, &mut |_, _| ()).unwrap()
    }

    #[test]
    fn parts_do_not_overlap() {
        let series: Arc<[Series]> = saws().into();
        let split = Split::default();
        let bounds = split.bounds(800);
        assert_eq!((bounds.held_out, bounds.tested), (480, 560));
        let last_target = |windows: &LabelledWindows| {
            let ends = (0..windows.len()).map(|at| windows.windows.origin(at).unwrap().last + SHAPE.horizon);
            ends.max().unwrap()
        };
        let held_out = split.held_out(SHAPE, &series, 1).unwrap();
        assert_eq!(last_target(&split.learnt(SHAPE, &series, 1).unwrap()), 479);
        assert_eq!(last_target(&held_out), 559);
        assert_eq!(held_out.windows.origin(0).unwrap().last + 1, 480);
    }

    #[test]
    fn the_gate_finds_what_models_know() {
        let replay = run(saws());
        let squares = |forecasts: &Forecasts| -> f64 {
            let from = replay.windows.len() / 2 * SHAPE.horizon;
            let errors = forecasts.mean[from..].iter().zip(&replay.windows.targets[from..]);
            errors.map(|(mean, target)| f64::from(mean - target).powi(2)).sum()
        };
        assert!(squares(&replay.gated) < 0.5 * squares(&replay.models[0].1));
        assert_eq!((replay.models[0].0, replay.all().last().unwrap().0), ("persistence", "gated"));
        assert_eq!(replay.verdicts.len(), replay.windows.len());
        assert!(replay.windows.windows.ends.is_sorted());
        let votes = replay.votes(&(0..replay.windows.len()).collect::<Vec<_>>());
        assert!((votes.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn it_repeats() {
        let (first, second) = (run(saws()), run(saws()));
        assert_eq!((first.gated, first.verdicts), (second.gated, second.verdicts));
    }

    #[test]
    fn the_future_changes_nothing_that_was_said_before() {
        let mut changed = saws();
        let turn = changed[0].time_of(700);
        changed.iter_mut().for_each(|series| {
            let from = ((turn - series.start) / 60) as usize;
            series.values[from..].iter_mut().for_each(|value| *value = 1e4 - *value);
        });
        let (first, second) = (run(saws()), run(changed));
        let before = first.windows.windows.ends.iter().filter(|end| **end < turn).count();
        assert!(before > 100);
        let same = |a: &Forecasts, b: &Forecasts| a.mean[..before * 3] == b.mean[..before * 3];
        for ((name, a), (_, b)) in first.all().zip(second.all()) {
            assert!(same(a, b), "{name} saw the future");
        }
        assert_eq!(first.verdicts[..before], second.verdicts[..before]);
    }
}
