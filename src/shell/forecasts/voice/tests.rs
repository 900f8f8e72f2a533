//! A voice over made-up usage, told the time step by step.

use super::*;

const STEP: i64 = 60;

fn config() -> config::Prometheus {
    config::Prometheus::at("http://p").unwrap()
}

/// A wave of an hour with some noise, for `steps` up to `now`.
fn wave(group: &str, name: &str, now: i64, steps: i64) -> Series {
    let value = |time: i64| {
        let phase = time as f64 / 3_600.0 * std::f64::consts::TAU;
        let noise = ((time / STEP).wrapping_mul(2_654_435_761) % 1_000) as f64 / 1_000.0;
        (0.5 + 0.4 * phase.sin() + 0.02 * noise) as f32
    };
    let start = now - (steps - 1) * STEP;
    let values = (0..steps).map(|step| value(start + step * STEP)).collect();
    Series { key: SeriesKey::new(group, name), start, step_seconds: 60, values }
}

fn reading(series: Vec<Series>) -> Reading {
    Reading { series, ..Reading::default() }
}

#[test]
fn a_day_of_history_earns_trust_at_once() {
    let now = 1_796_040_000;
    let mut voice = Voice::new(&config(), None);
    let series = ["a", "b"].map(|name| wave("gpu-activity", name, now, 1_440));
    let outlook = voice.speak(reading(series.into()), now);
    let group = outlook.group("gpu-activity").unwrap();
    assert_eq!((group.series, group.trusted, group.stale, &group.distrust), (2, 2, 0, &None));
    assert_ne!(group.speaker(), "persistence", "{:?}", group.models);
    let shares: f32 = group.models.iter().map(|(_, share)| share).sum();
    assert!((shares - 1.0).abs() < 1e-3, "{:?}", group.models);
    // Ten minutes on, what was said is held against what came.
    let mut told = outlook;
    for step in 1..=11 {
        let now = now + step * STEP;
        let series = ["a", "b"].map(|name| wave("gpu-activity", name, now, 1_440));
        told = voice.speak(reading(series.into()), now);
    }
    let group = told.group("gpu-activity").unwrap();
    let (error, persistence) = (group.error.unwrap(), group.persistence_error.unwrap());
    assert!(error < 0.5 * persistence, "{error} against {persistence}");
    assert!((group.said.unwrap() - group.actual.unwrap()).abs() < 0.1);
}

#[test]
fn too_little_history_is_not_trusted() {
    let now = 1_796_040_000;
    let mut voice = Voice::new(&config(), None);
    let outlook = voice.speak(reading(vec![wave("g", "a", now, 60), wave("h", "b", now, 5)]), now);
    let group = outlook.group("g").unwrap();
    assert_eq!((group.series, group.trusted), (1, 0));
    assert!(group.distrust.as_deref().unwrap().contains("are needed"), "{:?}", group.distrust);
    let group = outlook.group("h").unwrap();
    assert_eq!((group.series, group.distrust.as_deref()), (0, Some("the series are too short")));
}

#[test]
fn what_is_stale_is_counted_and_not_forecast() {
    let now = 1_796_040_000;
    let mut voice = Voice::new(&config(), None);
    let series = || vec![wave("g", "a", now, 1_440), wave("g", "b", now - 600, 1_440)];
    let outlook = voice.speak(reading(series()), now);
    let group = outlook.group("g").unwrap();
    assert_eq!((group.series, group.stale), (1, 1));
    let outlook = voice.speak(reading(series()), now + 301);
    let group = outlook.group("g").unwrap();
    assert_eq!((group.series, group.stale, group.distrust.as_deref()), (0, 2, Some("usage is out of date")));
    assert!(outlook.prospects.is_empty() && !outlook.holds_at(now + 700));
}

#[test]
fn what_the_gate_has_learnt_survives() {
    let now = 1_796_040_000;
    let series = || vec![wave("g", "a", now, 1_440)];
    let mut first = Voice::new(&config(), None);
    first.speak(reading(series()), now);
    let kept = serde_json::to_string(&first.gate_state()).unwrap();
    let mut second = Voice::new(&config(), None);
    assert!(second.restore_gate(serde_json::from_str(&kept).unwrap()));
    let (numbers, expected) = (numbers(&second), numbers(&first));
    assert_eq!(numbers.len(), expected.len());
    // A number read from text may differ in its last bit.
    let near = |(one, other): (&f64, &f64)| (one - other).abs() <= 1e-12 * other.abs();
    assert!(numbers.len() > 80 && numbers.iter().zip(&expected).all(near), "{numbers:?} {expected:?}");
}

/// All numbers of what a voice keeps of its gate.
fn numbers(voice: &Voice) -> Vec<f64> {
    fn collect(value: &serde_json::Value, numbers: &mut Vec<f64>) {
        match value {
            serde_json::Value::Array(values) => values.iter().for_each(|value| collect(value, numbers)),
            serde_json::Value::Object(fields) => fields.values().for_each(|value| collect(value, numbers)),
            other => numbers.extend(other.as_f64()),
        }
    }
    let mut numbers = Vec::new();
    collect(&serde_json::to_value(voice.gate_state()).unwrap(), &mut numbers);
    numbers
}
