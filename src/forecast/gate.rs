//! The gate: who may speak for a series, by what each model has been worth there.
//!
//! ```text
//!   forecasts of all models ──► blend by weights ──► Gated (forecast, recent error, trust)
//!        │                        ▲
//!        └─► pending ─ targets ─► errors ─► weights of each series, its group as a prior
//!             (until they are known)
//! ```
//!
//! - *Errors* count once their targets are known: [`Gate::step`] finds them in the history of the windows it is given, which ends
//!   with their last inputs. Nothing else is ever looked at, so the gate cannot see ahead.
//! - *Weights* are not negative, sum to one and minimise the blend's squared error over the recent past of the series and of its
//!   group (Bates and Granger 1969). Models are given from simple to complex; at like errors the simpler has the word. A model
//!   that brings no number has none.
//! - *Trust* is a state of each forecast: a series that is stale, whose errors are not known yet, or that persistence would have
//!   forecast better is not to be acted upon.
//!
//! Bounds: a series keeps at most [`MOST_PENDING`] forecasts whose targets are to come, and [`MOST_SERIES`] series are kept; the
//! longest silent is forgotten first.

mod errors;
mod group;
mod trust;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{ForecastError, Forecasts, SeriesKey, Windows};
use errors::{Errors, lightest};
use group::Group;
pub use trust::{Distrust, Trust};

/// Forecasts of a series that wait for their targets: more than any horizon's steps.
const MOST_PENDING: usize = 256;

/// Series that are tracked: about a hundred thousand MIG instances would be more than one Prometheus serves.
const MOST_SERIES: usize = 100_000;

/// When models that had more than this share of the word fail, what the others say has not been proven.
const MOST_SILENT: f64 = 0.5;

/// What the gate remembers, in steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Within which errors of one series are averaged.
    pub series: f64,
    /// Within which errors of a group are averaged.
    pub group: f64,
    /// How many steps of its own a series needs for its errors to count as much as the group's.
    pub prior: f64,
}

impl Default for Memory {
    /// Four days of minutes for a series, a week for a group, half a day until a series goes its own way.
    fn default() -> Memory {
        Memory { series: 5_760.0, group: 10_080.0, prior: 720.0 }
    }
}

/// What is known of a series.
#[derive(Clone, Debug)]
struct Tracked {
    errors: Errors,
    pending: VecDeque<Pending>,
    weights: Vec<f64>,
    /// End of the newest window seen.
    newest: i64,
    trusted: bool,
}

/// A forecast whose targets are to come.
#[derive(Clone, Debug)]
struct Pending {
    end: i64,
    /// `[models, horizon]`.
    means: Vec<f32>,
    /// `[3, horizon]`: the blend's mean, q10 and q90.
    blend: [Vec<f32>; 3],
}

/// The groups' part of a gate, to be kept over a restart: some kilobytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateState {
    models: Vec<String>,
    groups: BTreeMap<String, Group>,
}

/// The forecasts to act upon.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// The blend.
    pub forecasts: Forecasts,
    /// What to think of each window's.
    pub verdicts: Vec<Verdict>,
}

/// What to think of one forecast.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether to act upon it.
    pub trust: Trust,
    /// Each model's part in it, in the order of the models; they sum to one.
    pub weights: Vec<f32>,
    /// Root mean square error of the series' recent forecasts in its own unit, if any is known.
    pub recent_error: Option<f32>,
    /// Their squared error against that of persistence on the same windows: below one is better.
    pub against_persistence: Option<f32>,
    /// Steps over which errors of its group are known.
    pub known_steps: u32,
}

/// Picks and blends models. The first one is persistence, the yardstick.
#[derive(Clone, Debug)]
pub struct Gate {
    models: Vec<&'static str>,
    memory: Memory,
    /// Seconds after which a series is stale.
    stale_after: i64,
    groups: BTreeMap<String, Group>,
    series: BTreeMap<SeriesKey, Tracked>,
}

impl Gate {
    /// A gate over `models`, persistence first, then from simple to complex. A series whose last value is older than `stale_after`
    /// seconds is stale.
    pub fn new(models: Vec<&'static str>, memory: Memory, stale_after: u32) -> Gate {
        let stale_after = i64::from(stale_after);
        Gate { models, memory, stale_after, groups: BTreeMap::new(), series: BTreeMap::new() }
    }

    /// The names of the models, in the order of all weights.
    pub fn models(&self) -> &[&'static str] {
        &self.models
    }

    /// The part that is worth keeping.
    pub fn state(&self) -> GateState {
        let models = self.models.iter().map(|&name| name.to_owned()).collect();
        GateState { models, groups: self.groups.clone() }
    }

    /// Takes over what an earlier gate learnt; `false`, and nothing happens, when it had other models or holds nonsense.
    pub fn restore(&mut self, state: GateState) -> bool {
        let sound = |group: &Group| group.is_sound(self.models.len());
        let fits = state.models == self.models && state.groups.values().all(sound);
        if fits {
            self.groups = state.groups;
            for key in self.series.keys() {
                self.groups
                    .entry(key.group.clone())
                    .or_insert_with(|| Group::new(self.models.len()))
                    .series += 1;
            }
        }
        fits
    }

    /// Learns from what has become known, then blends the models' forecasts of `windows`; `now` in unix seconds decides what is
    /// stale. A model that failed takes part with `Err`.
    ///
    /// # Errors
    /// When the number of models or the size of a forecast is not that of this gate, or a window does not know its series.
    pub fn step(
        &mut self,
        now: i64,
        windows: &Windows,
        forecasts: &[Result<Forecasts, ForecastError>],
    ) -> Result<Gated, ForecastError> {
        self.check(windows, forecasts)?;
        let horizon = windows.shape.horizon;
        let mut gated = Forecasts { horizon, ..Forecasts::default() };
        let mut verdicts = Vec::with_capacity(windows.len());
        for at in 0..windows.len() {
            let Some(key) = windows.key(at) else { continue };
            self.learn(key, windows, at);
            let present = presence(forecasts, at);
            let (weights, silent) = self.weights(key, &present);
            self.blend(key, &weights, windows, at, forecasts, &mut gated);
            let verdict = self.judge(key, weights, silent, now - windows.ends[at]);
            verdicts.push(verdict);
            self.remember(key, windows, at, forecasts, &gated);
        }
        self.forget();
        Ok(Gated { forecasts: gated, verdicts })
    }

    fn check(
        &self,
        windows: &Windows,
        forecasts: &[Result<Forecasts, ForecastError>],
    ) -> Result<(), ForecastError> {
        let length = |table, found, expected| Err(ForecastError::Length { table, found, expected });
        if forecasts.len() != self.models.len() {
            return length("models", forecasts.len(), self.models.len());
        }
        let expected = windows.len() * windows.shape.horizon;
        for forecast in forecasts.iter().flatten() {
            let mut tables = std::iter::once(&forecast.mean).chain(&forecast.quantiles);
            if let Some(table) = tables.find(|table| table.len() != expected) {
                return length("forecasts", table.len(), expected);
            }
        }
        match (0..windows.len()).find(|&at| windows.key(at).is_none()) {
            None => Ok(()),
            Some(at) => Err(ForecastError::Model {
                model: "gate",
                problem: format!("window {at} does not say whose it is"),
            }),
        }
    }

    /// Settles the forecasts of a series whose targets are in its history by now.
    fn learn(&mut self, key: &SeriesKey, windows: &Windows, at: usize) {
        let models = self.models.len();
        let Some(tracked) = self.series.get_mut(key) else { return };
        let horizon = windows.shape.horizon as i64;
        let step = i64::from(windows.shape.step_seconds);
        let end = windows.ends[at];
        let history = windows.history(at);
        while tracked.pending.front().is_some_and(|pending| pending.end + horizon * step <= end) {
            let Some(pending) = tracked.pending.pop_front() else { break };
            let ago = ((end - pending.end) / step) as usize;
            let Some(first) = history.len().checked_sub(ago) else { continue };
            let Some(targets) = history.get(first..first + horizon as usize) else { continue };
            if targets.iter().any(|target| !target.is_finite()) {
                continue;
            }
            let elapsed = ((pending.end - tracked.newest) / step).clamp(1, horizon) as f64;
            tracked.newest = pending.end;
            let group = self.groups.entry(key.group.clone()).or_insert_with(|| Group::new(models));
            let products = errors::products(&pending.means, &pending.blend[0], targets, models);
            // Together, the series of a group take as long to fill its memory as one would.
            let part = elapsed / f64::from(group.series.max(1));
            group.learn(&tracked.errors, &products, part, self.memory.group);
            group.stretch(&pending.blend, targets, part / horizon as f64);
            tracked.errors.learn(&products, elapsed, self.memory.series);
            let mixed = tracked.errors.with_prior(&group.errors, self.memory.prior);
            tracked.weights = lightest(&mixed, &tracked.weights);
        }
    }

    /// The weights of a series among the models that are `present`, and the weight that those had which are not. A series never
    /// seen has its group's weights, a group never seen persistence alone.
    fn weights(&self, key: &SeriesKey, present: &[bool]) -> (Vec<f64>, f64) {
        let persistence = || {
            let first = |at: usize| if at == 0 { 1.0 } else { 0.0 };
            (0..self.models.len()).map(first).collect::<Vec<f64>>()
        };
        let known = self.series.get(key).map(|tracked| tracked.weights.clone());
        let group = self.groups.get(&key.group);
        let mut weights = known.unwrap_or_else(|| match group {
            Some(group) => lightest(&group.errors, &persistence()),
            None => persistence(),
        });
        weights
            .iter_mut()
            .zip(present)
            .for_each(|(weight, present)| *weight *= f64::from(u8::from(*present)));
        let sum: f64 = weights.iter().sum();
        if sum > 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
            (weights, 1.0 - sum)
        } else {
            (persistence(), 1.0)
        }
    }

    /// Appends one window's blend.
    fn blend(
        &self,
        key: &SeriesKey,
        weights: &[f64],
        windows: &Windows,
        at: usize,
        forecasts: &[Result<Forecasts, ForecastError>],
        gated: &mut Forecasts,
    ) {
        let stretch = self.groups.get(&key.group).map_or([1.0; 2], |group| group.stretch);
        let last = windows.input(at).last().copied().unwrap_or(0.0);
        for step in 0..gated.horizon {
            let sum = |of: &dyn Fn(&Forecasts) -> f32| {
                let parts = weights.iter().zip(forecasts).filter(|(weight, _)| **weight > 0.0);
                let parts =
                    parts.filter_map(|(weight, model)| Some(weight * f64::from(of(model.as_ref().ok()?))));
                let sum = parts.fold(None, |sum: Option<f64>, part| Some(sum.unwrap_or(0.0) + part));
                // Nobody had a number, persistence included: the last value is what is left.
                sum.map_or(last, |sum| sum as f32)
            };
            let quantile = |which: usize| sum(&|model| model.quantile_of(which, at)[step]);
            let (low, middle, high) = (quantile(0), quantile(1), quantile(2));
            gated.mean.push(sum(&|model| model.mean_of(at)[step]));
            gated.quantiles[0].push(middle - stretch[0] as f32 * (middle - low));
            gated.quantiles[1].push(middle);
            gated.quantiles[2].push(middle + stretch[1] as f32 * (high - middle));
        }
    }

    fn judge(&mut self, key: &SeriesKey, weights: Vec<f64>, silent: f64, age: i64) -> Verdict {
        let tracked = self.series.get(key);
        let own = tracked.map(|tracked| &tracked.errors);
        let mixed = self.groups.get(&key.group).map(|group| match own {
            Some(own) => own.with_prior(&group.errors, self.memory.prior),
            None => group.errors.clone(),
        });
        let against = mixed.as_ref().and_then(Errors::against_persistence);
        let known = self.groups.get(&key.group).map_or(0.0, |group| group.errors.steps());
        let was = tracked.is_some_and(|tracked| tracked.trusted);
        let trust = if age > self.stale_after || silent <= MOST_SILENT {
            trust::judge(age, self.stale_after, known, against, was)
        } else {
            Trust::NotTrusted(Distrust::Failed { share: silent as f32 })
        };
        let recent_error = own.and_then(Errors::blend_error);
        if let Some(tracked) = self.series.get_mut(key) {
            tracked.trusted = trust == Trust::Trusted;
        }
        Verdict {
            trust,
            weights: weights.into_iter().map(|weight| weight as f32).collect(),
            recent_error: recent_error.map(|square| square.sqrt() as f32),
            against_persistence: against.map(|ratio| ratio as f32),
            known_steps: known as u32,
        }
    }

    /// Keeps the forecast just made until its targets are known. Of a model that failed NaN is kept.
    fn remember(
        &mut self,
        key: &SeriesKey,
        windows: &Windows,
        at: usize,
        forecasts: &[Result<Forecasts, ForecastError>],
        gated: &Forecasts,
    ) {
        let last = windows.input(at).last().copied().unwrap_or(0.0);
        let mean = |(index, model): (usize, &Result<Forecasts, ForecastError>)| match model {
            Ok(model) if is_number(model, at) => model.mean_of(at).to_vec(),
            // The yardstick never fails: what it says can be read off the window.
            _ => vec![if index == 0 { last } else { f32::NAN }; gated.horizon],
        };
        let means = forecasts.iter().enumerate().flat_map(mean).collect();
        let newest = gated.len() - 1;
        let blend = [
            gated.mean_of(newest).to_vec(),
            gated.quantile_of(0, newest).to_vec(),
            gated.quantile_of(2, newest).to_vec(),
        ];
        let end = windows.ends[at];
        let tracked = match self.series.get_mut(key) {
            Some(tracked) => tracked,
            None => {
                let step = i64::from(windows.shape.step_seconds);
                let (weights, _) = self.weights(key, &vec![true; self.models.len()]);
                let new = Tracked {
                    errors: Errors::new(self.models.len()),
                    pending: VecDeque::new(),
                    weights,
                    newest: end - step * windows.shape.horizon as i64,
                    trusted: false,
                };
                let group = self.groups.entry(key.group.clone());
                group.or_insert_with(|| Group::new(self.models.len())).series += 1;
                self.series.entry(key.clone()).or_insert(new)
            }
        };
        // The same window again, or an older one, teaches nothing new.
        if tracked.pending.back().is_none_or(|newest| newest.end < end) {
            tracked.pending.push_back(Pending { end, means, blend });
        }
        if tracked.pending.len() > MOST_PENDING {
            tracked.pending.pop_front();
        }
    }

    /// Keeps the number of series bounded.
    fn forget(&mut self) {
        while self.series.len() > MOST_SERIES {
            let silent = self.series.iter().min_by_key(|(_, tracked)| tracked.newest);
            let Some(key) = silent.map(|(key, _)| key.clone()) else { return };
            self.series.remove(&key);
            if let Some(group) = self.groups.get_mut(&key.group) {
                group.series = group.series.saturating_sub(1);
            }
        }
    }
}

/// Which models brought numbers for window `at`.
fn presence(forecasts: &[Result<Forecasts, ForecastError>], at: usize) -> Vec<bool> {
    forecasts.iter().map(|model| model.as_ref().is_ok_and(|model| is_number(model, at))).collect()
}

fn is_number(model: &Forecasts, at: usize) -> bool {
    let quantiles = (0..3).flat_map(|which| model.quantile_of(which, at));
    model.mean_of(at).iter().chain(quantiles).all(|value| value.is_finite())
}

#[cfg(test)]
mod tests;
