//! Each model on series whose answer is known.

use std::sync::Arc;

use super::*;
use crate::forecast::{Series, SeriesKey, Shape};

const SHAPE: Shape = Shape { look_back: 30, horizon: 10, step_seconds: 60 };

/// Numbers that look random, the same in every run, around zero with a variance of about 1.
fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect()
}

fn series(values: impl IntoIterator<Item = f64>) -> Arc<[Series]> {
    let values = values.into_iter().map(|value| value as f32).collect();
    [Series { key: SeriesKey::new("g", "s"), start: 0, step_seconds: 60, values }].into()
}

/// An autoregression of order one around 5.
fn ar1(keep: f64, count: usize) -> Vec<f64> {
    let mut value = 0.0;
    let next = |noise: f64| {
        value = keep * value + noise;
        value + 5.0
    };
    noise(count, 7).into_iter().map(next).collect()
}

fn sine(count: usize, period: usize) -> Vec<f64> {
    (0..count).map(|at| 3.0 * (at as f64 / period as f64 * std::f64::consts::TAU).sin()).collect()
}

/// The mean that a model forecasts for the newest window.
fn newest(point: &impl Point, series: &Arc<[Series]>) -> Vec<f64> {
    let windows = Windows::latest(SHAPE, series).unwrap();
    let mut mean = vec![0.0; SHAPE.horizon];
    finite_mean(point, &windows, 0, &mut mean);
    mean
}

#[track_caller]
fn near(found: &[f64], expected: impl Fn(usize) -> f64, within: f64) {
    for (step, &found) in found.iter().enumerate() {
        let expected = expected(step + 1);
        assert!((found - expected).abs() <= within, "step {}: {found} instead of {expected}", step + 1);
    }
}

fn rolling(series: &Arc<[Series]>) -> LabelledWindows {
    LabelledWindows::rolling(SHAPE, series, 1).unwrap()
}

#[test]
fn every_model_holds_a_constant() {
    let constant = series(vec![4.0; 400]);
    let learnt = rolling(&constant);
    near(&newest(&Persistence, &constant), |_| 4.0, 0.0);
    near(&newest(&WindowMean, &constant), |_| 4.0, 1e-9);
    near(&newest(&SeasonalNaive, &constant), |_| 4.0, 0.0);
    near(&newest(&Linear::pooled(&learnt), &constant), |_| 4.0, 1e-9);
    near(&newest(&Linear::own(&learnt), &constant), |_| 4.0, 1e-9);
    near(&newest(&Seasonal::fit(&learnt), &constant), |_| 4.0, 1e-9);
    near(&newest(&Ets, &constant), |_| 4.0, 1e-9);
    near(&newest(&Arima, &constant), |_| 4.0, 1e-9);
}

#[test]
fn a_trend_goes_on() {
    let trend = series((0..400).map(|at| 0.5 * f64::from(at)));
    let next = |step: usize| 0.5 * (399 + step) as f64;
    near(&newest(&Linear::pooled(&rolling(&trend)), &trend), next, 0.1);
    near(&newest(&Ets, &trend), next, 0.1);
}

#[test]
fn an_autoregression_returns_to_its_mean() {
    for keep in [0.5, 0.9] {
        let values = ar1(keep, 5_000);
        let last = values[4_999] - 5.0;
        let series = series(values);
        let next = |step: usize| 5.0 + last * keep.powi(step as i32);
        near(&newest(&Arima, &series), next, 0.6);
        // The pooled map sees the mean of the window for the mean of the series.
        near(&newest(&Linear::pooled(&rolling(&series)), &series), next, 0.6);
    }
}

/// The part of persistence's squared error that a model leaves.
fn against_persistence(point: &impl Point, tested: &LabelledWindows) -> f64 {
    let squares = |point: &dyn Fn(&mut [f64], usize)| -> f64 {
        let mut mean = vec![0.0; SHAPE.horizon];
        let of = |at: usize| {
            point(&mut mean, at);
            mean.iter()
                .zip(tested.target(at))
                .map(|(mean, &target)| (mean - f64::from(target)).powi(2))
                .sum::<f64>()
        };
        (0..tested.len()).map(of).sum()
    };
    squares(&|mean, at| finite_mean(point, &tested.windows, at, mean))
        / squares(&|mean, at| Persistence.mean(&tested.windows, at, mean))
}

#[test]
fn noise_around_a_level_is_smoothed() {
    let all = rolling(&series(noise(3_000, 3)));
    // Half is what can be had: the error of the mean against that of the difference of two draws.
    assert!(against_persistence(&WindowMean, &all) < 0.53);
    assert!(against_persistence(&Linear::pooled(&all), &all) < 0.53);
    let some = all.select(&(0..all.len()).step_by(17).collect::<Vec<_>>());
    assert!(against_persistence(&Ets, &some) < 0.55);
    assert!(against_persistence(&Arima, &some) < 0.55);
}

#[test]
fn moving_averages_are_found() {
    let noise = noise(4_000, 9);
    let all = rolling(&series(noise.windows(2).map(|pair| pair[1] + 0.8 * pair[0])));
    let some = all.select(&(400..all.len()).step_by(17).collect::<Vec<_>>());
    assert!(against_persistence(&Arima, &some) < against_persistence(&WindowMean, &some));
}

#[test]
fn a_random_walk_is_left_alone() {
    let mut sum = 0.0;
    let walk = noise(4_000, 5).into_iter().map(|step| {
        sum += step;
        sum
    });
    let all = rolling(&series(walk.collect::<Vec<_>>()));
    let some = all.select(&(400..all.len()).step_by(17).collect::<Vec<_>>());
    for (model, share) in [
        ("linear", against_persistence(&Linear::pooled(&all), &some)),
        ("ets", against_persistence(&Ets, &some)),
        ("arima", against_persistence(&Arima, &some)),
    ] {
        assert!(share < 1.1, "{model}: {share}");
    }
}

#[test]
fn yesterday_comes_again() {
    let day = sine(3 * 1_440 + 700, 1_440);
    let known = series(day[..3 * 1_440 + 690].iter().copied());
    let next = |step: usize| day[3 * 1_440 + 689 + step];
    near(&newest(&SeasonalNaive, &known), next, 1e-5);
    near(&newest(&Seasonal::fit(&rolling(&known)), &known), next, 0.01);
    // Without a day before there is just the last value.
    let short = series(day[..500].iter().copied());
    near(&newest(&SeasonalNaive, &short), |_| f64::from(day[499] as f32), 0.0);
}

#[test]
fn days_help_where_the_past_repeats_and_the_window_shows_nothing() {
    // A step at an hour of the day that only other days tell of.
    let noise = noise(8 * 1_440, 11);
    let value = |at: usize| if (600..900).contains(&(at % 1_440)) { 20.0 } else { 0.0 };
    let all = series((0..8 * 1_440).map(|at| value(at) + noise[at]));
    let split = 7 * 1_440;
    let (learnt, tested): (Vec<usize>, Vec<usize>) =
        (0..rolling(&all).len()).partition(|at| at + SHAPE.look_back + SHAPE.horizon < split);
    let (learnt, tested) = (rolling(&all).select(&learnt), rolling(&all).select(&tested));
    let seasonal = against_persistence(&Seasonal::fit(&learnt), &tested);
    let linear = against_persistence(&Linear::pooled(&learnt), &tested);
    assert!(seasonal < 0.9 * linear, "{seasonal} against {linear}");
}

#[test]
fn a_series_of_its_own_kind_gets_its_own_map() {
    // Two series that alternate with opposite signs: one rises after a fall, the other falls on.
    let returns = ar1(-0.9, 1_500);
    let stays = ar1(0.98, 1_500);
    let of = |name: &str, values: &[f64]| Series {
        key: SeriesKey::new("g", name),
        start: 0,
        step_seconds: 60,
        values: values.iter().map(|&value| value as f32).collect(),
    };
    let all: Arc<[Series]> = [of("returns", &returns), of("stays", &stays)].into();
    let all = rolling(&all);
    let (pooled, own) = (Linear::pooled(&all), Linear::own(&all));
    assert!(against_persistence(&own, &all) < 0.98 * against_persistence(&pooled, &all));
    assert_eq!((pooled.name(), own.name()), ("linear", "linear-own"));
}

#[test]
fn learning_in_parts_is_learning_at_once() {
    let all = rolling(&series(ar1(0.7, 600)));
    let half = all.len() / 2;
    let part = |range: std::ops::Range<usize>| all.select(&range.collect::<Vec<_>>());
    let mut parts = Linear::own(&part(0..half));
    parts.learn(&part(half..all.len())).unwrap();
    let whole = Linear::own(&all);
    let newest = |model: &Linear| newest(model, &series(ar1(0.7, 700)));
    near(&newest(&parts), |step| newest(&whole)[step - 1], 1e-9);
    let other = Shape { look_back: 5, ..SHAPE };
    let wrong = LabelledWindows::rolling(other, &series(ar1(0.7, 60)), 1).unwrap();
    assert!(parts.learn(&wrong).is_err());
}

#[test]
fn nothing_but_numbers_comes_out() {
    let mut jump = noise(500, 1);
    jump[450] = 1e30;
    let mut gap = noise(500, 2);
    gap[300] = f64::NAN;
    let extremes = (0..500).map(|at| if at % 2 == 0 { 3e38 } else { -3e38 }).collect();
    let tiny = noise(500, 4).into_iter().map(|value| value * 1e-30).collect();
    for values in [jump, gap, extremes, tiny, vec![0.0; 500], vec![1.0; 41]] {
        let all = rolling(&series(values.clone()));
        for model in super::all(&all, &all) {
            let forecasts = model.forecast(&all.windows).unwrap();
            assert!(forecasts.is_finite(), "{} on {:?}", model.name(), &values[..3]);
            assert_eq!(forecasts.len(), all.len());
            let ordered =
                |at: usize| (0..2).all(|q| forecasts.quantiles[q][at] <= forecasts.quantiles[q + 1][at]);
            assert!((0..forecasts.mean.len()).all(ordered), "{}", model.name());
        }
    }
}

#[test]
fn quantiles_hold_what_they_say() {
    let all = rolling(&series(ar1(0.9, 8_000)));
    let half = all.len() / 2;
    let part = |range: std::ops::Range<usize>| all.select(&range.collect::<Vec<_>>());
    // The first day has none before it.
    let (learnt, tested) = (part(1_440..half), part(half..all.len()));
    for model in super::all(&learnt, &learnt) {
        let forecasts = model.forecast(&tested.windows).unwrap();
        for (which, expected) in crate::forecast::QUANTILES.into_iter().enumerate() {
            let below =
                forecasts.quantiles[which].iter().zip(&tested.targets).filter(|(q, y)| y <= q).count();
            let share = below as f32 / tested.targets.len() as f32;
            assert!((share - expected).abs() < 0.06, "{}: {share} below q{expected}", model.name());
        }
    }
}

#[test]
fn a_forecast_does_not_depend_on_the_rest_of_the_batch_nor_on_the_future() {
    let values = ar1(0.8, 2_000);
    let mut changed = values.clone();
    changed[1_800..].iter_mut().for_each(|value| *value = 1e6);
    let windows = |values: Vec<f64>| {
        let origins = [crate::forecast::window::Origin { series: 0, last: 1_799 }];
        Windows::at(SHAPE, &series(values), &origins).unwrap()
    };
    let learnt = rolling(&series(values[..1_000].iter().copied()));
    for model in super::all(&learnt, &learnt) {
        let seen = model.forecast(&windows(values.clone())).unwrap();
        assert_eq!(seen, model.forecast(&windows(changed.clone())).unwrap(), "{}", model.name());
    }
}
