//! The gate on series for which one model is right, and on models that fail.

use std::sync::Arc;

use super::*;
use crate::forecast::window::Origin;
use crate::forecast::{Series, Shape};

const SHAPE: Shape = Shape { look_back: 3, horizon: 2, step_seconds: 60 };

/// Models by their names: the last value, zero, ten, and whatever is not a number.
const MODELS: [&str; 4] = ["persistence", "zero", "ten", "broken"];

fn forecasts(windows: &Windows) -> Vec<Result<Forecasts, ForecastError>> {
    let constant = |value: &dyn Fn(usize) -> f32| {
        let mean: Vec<f32> =
            (0..windows.len() * SHAPE.horizon).map(|index| value(index / SHAPE.horizon)).collect();
        let beside = |by: f32| mean.iter().map(|mean| mean + by).collect();
        Ok(Forecasts { horizon: SHAPE.horizon, quantiles: [beside(-1.0), beside(0.0), beside(1.0)], mean })
    };
    let failed = Err(ForecastError::Model { model: "broken", problem: "no".to_owned() });
    let last = |at: usize| windows.input(at)[SHAPE.look_back - 1];
    vec![constant(&last), constant(&|_| 0.0), constant(&|_| 10.0), failed]
}

fn gate() -> Gate {
    Gate::new(MODELS.to_vec(), Memory { series: 500.0, group: 1_000.0, prior: 50.0 }, 300)
}

fn series(name: &str, values: impl IntoIterator<Item = f32>) -> Series {
    let values = values.into_iter().collect();
    Series { key: SeriesKey::new("g", name), start: 0, step_seconds: 60, values }
}

/// Runs the gate over every step of the series from the third on, and returns what it said at the end.
fn run(gate: &mut Gate, series: &Arc<[Series]>, steps: std::ops::Range<usize>) -> Gated {
    let mut newest = None;
    for last in steps {
        let origins: Vec<Origin> = (0..series.len()).map(|series| Origin { series, last }).collect();
        let windows = Windows::at(SHAPE, series, &origins).unwrap();
        newest = Some(gate.step(last as i64 * 60, &windows, &forecasts(&windows)).unwrap());
    }
    newest.unwrap()
}

/// Values that jump about `level`, so that persistence is wrong and the level right.
fn around(level: f32) -> impl Iterator<Item = f32> + Clone {
    (0..600).map(move |at| level + [1.0, -1.0, -2.0, 2.0, 0.5][at % 5])
}

#[test]
fn the_right_model_gets_the_word_series_by_series() {
    let all: Arc<[Series]> = [series("zero", around(0.0)), series("ten", around(10.0))].into();
    let mut gate = gate();
    let gated = run(&mut gate, &all, 2..600);
    for (verdict, right) in gated.verdicts.iter().zip([1, 2]) {
        assert!(verdict.weights[right] > 0.8, "{verdict:?}");
        assert_eq!((verdict.trust, verdict.weights[3]), (Trust::Trusted, 0.0));
        assert!(verdict.against_persistence.unwrap() < 0.8 && verdict.recent_error.unwrap() < 2.0);
    }
    assert!(gated.forecasts.is_finite() && (gated.forecasts.mean[0]).abs() < 1.0);
    assert!((gated.forecasts.mean[2] - 10.0).abs() < 1.0);
}

#[test]
fn what_persistence_knows_best_is_left_to_it() {
    let walk = (0..600).map(|at| 5.0 + (at / 100) as f32);
    let gated = run(&mut gate(), &[series("steps", walk)].into(), 2..600);
    assert!(gated.verdicts[0].weights[0] > 0.95, "{:?}", gated.verdicts);
    assert_eq!(gated.verdicts[0].trust, Trust::Trusted);
}

#[test]
fn weights_follow_a_change() {
    let changed = around(0.0).take(300).chain(around(10.0).cycle().take(900));
    let all: Arc<[Series]> = [series("s", changed)].into();
    let mut gate = gate();
    assert!(run(&mut gate, &all, 2..300).verdicts[0].weights[1] > 0.8);
    let weights = run(&mut gate, &all, 300..1_200).verdicts.remove(0).weights;
    assert!(weights[1] < 0.1, "{weights:?}");
}

#[test]
fn nothing_is_trusted_before_its_errors_are_known() {
    let all: Arc<[Series]> = [series("s", around(0.0))].into();
    let mut gate = gate();
    let first = run(&mut gate, &all, 2..3);
    let unproven = Trust::NotTrusted(Distrust::Unproven { steps: 0, needed: 120 });
    assert_eq!((first.verdicts[0].trust, first.verdicts[0].recent_error), (unproven, None));
    assert_eq!(first.verdicts[0].weights, [1.0, 0.0, 0.0, 0.0]);
    assert!(matches!(run(&mut gate, &all, 3..110).verdicts[0].trust, Trust::NotTrusted(_)));
    assert_eq!(run(&mut gate, &all, 110..130).verdicts[0].trust, Trust::Trusted);
}

#[test]
fn an_error_counts_once_its_targets_are_known() {
    let all: Arc<[Series]> = [series("s", around(0.0))].into();
    let mut gate = gate();
    run(&mut gate, &all, 2..4);
    assert_eq!(run(&mut gate, &all, 4..5).verdicts[0].known_steps, 2);
    assert_eq!(run(&mut gate, &all, 5..6).verdicts[0].known_steps, 3);
}

#[test]
fn the_future_changes_nothing() {
    let mut changed: Vec<f32> = around(0.0).collect();
    changed[401..].iter_mut().for_each(|value| *value = 1e6);
    let said = |values: Vec<f32>| run(&mut gate(), &[series("s", values)].into(), 2..401);
    assert_eq!(said(around(0.0).collect()), said(changed));
}

#[test]
fn a_stale_series_is_not_trusted() {
    let all: Arc<[Series]> = [series("s", around(0.0))].into();
    let mut gate = gate();
    run(&mut gate, &all, 2..400);
    let windows = Windows::at(SHAPE, &all, &[Origin { series: 0, last: 400 }]).unwrap();
    let trust =
        |gate: &mut Gate, now| gate.step(now, &windows, &forecasts(&windows)).unwrap().verdicts[0].trust;
    assert_eq!(trust(&mut gate, 400 * 60 + 300), Trust::Trusted);
    let stale = Trust::NotTrusted(Distrust::Stale { age_seconds: 301 });
    assert_eq!(trust(&mut gate, 400 * 60 + 301), stale);
}

#[test]
fn when_the_proven_model_fails_trust_ends() {
    let all: Arc<[Series]> = [series("s", around(0.0))].into();
    let mut gate = gate();
    run(&mut gate, &all, 2..400);
    let windows = Windows::at(SHAPE, &all, &[Origin { series: 0, last: 400 }]).unwrap();
    for broken in [f32::NAN, f32::INFINITY] {
        let mut models = forecasts(&windows);
        if let Ok(zero) = &mut models[1] {
            zero.mean[1] = broken;
        }
        let gated = gate.step(400 * 60, &windows, &models).unwrap();
        assert!(gated.forecasts.is_finite() && gated.verdicts[0].weights[1] == 0.0);
        assert!(matches!(gated.verdicts[0].trust, Trust::NotTrusted(Distrust::Failed { .. })));
    }
    let nothing: Vec<_> = MODELS
        .iter()
        .map(|_| Err(ForecastError::Model { model: "broken", problem: "no".to_owned() }))
        .collect();
    let gated = gate.step(400 * 60, &windows, &nothing).unwrap();
    assert_eq!(gated.forecasts.mean, [windows.input(0)[2]; 2]);
}

#[test]
fn a_gap_in_the_targets_is_skipped() {
    let mut values: Vec<f32> = around(0.0).collect();
    values[50] = f32::NAN;
    let all: Arc<[Series]> = [series("s", values)].into();
    let mut gate = gate();
    for last in (2..50).chain(53..100) {
        run(&mut gate, &all, last..last + 1);
    }
    let verdict = run(&mut gate, &all, 100..101).verdicts.remove(0);
    assert!(verdict.recent_error.unwrap().is_finite() && verdict.known_steps >= 90, "{verdict:?}");
}

#[test]
fn what_groups_learnt_outlives_the_gate() {
    let mut first = gate();
    run(&mut first, &[series("s", around(0.0))].into(), 2..400);
    let text = serde_json::to_string(&first.state()).unwrap();
    assert!(text.len() < 2_000, "{}", text.len());
    let mut second = gate();
    assert!(second.restore(serde_json::from_str(&text).unwrap()));
    let verdict = run(&mut second, &[series("new", around(0.0))].into(), 2..3).verdicts.remove(0);
    assert!(verdict.weights[1] > 0.8, "{verdict:?}");
    let mut other = Gate::new(vec!["persistence", "else"], Memory::default(), 300);
    assert!(!other.restore(first.state()));
}

#[test]
fn wrong_sizes_are_refused() {
    let all: Arc<[Series]> = [series("s", around(0.0))].into();
    let windows = Windows::at(SHAPE, &all, &[Origin { series: 0, last: 10 }]).unwrap();
    let refused =
        |windows: &Windows, models: Vec<_>| gate().step(0, windows, &models).unwrap_err().to_string();
    assert_eq!(refused(&windows, Vec::new()), "models holds 0 values where 4 belong");
    let mut short = forecasts(&windows);
    if let Ok(model) = &mut short[2] {
        model.quantiles[1].pop();
    }
    assert_eq!(refused(&windows, short), "forecasts holds 1 values where 2 belong");
    let bare = Windows::new(SHAPE, vec![1.0, 2.0, 3.0], vec![60]).unwrap();
    assert_eq!(refused(&bare, forecasts(&bare)), "gate: window 0 does not say whose it is");
}
