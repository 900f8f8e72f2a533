//! What the network sees of a window, and how its answer becomes a forecast.
//!
//! A window's values are centred on the last one and divided by the window's own spread, so that a level shift or another scale
//! is the same window to the network. Beside them it sees where the value lies between the least and the greatest of the
//! training data (MinMax scaling), and the hour and the weekday. Its answer, times the spread, is added to the last value and
//! the linear map of [`super::linear`].

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use crate::forecast::{LabelledWindows, Windows};

/// The features of a step, in order; a weights file that was made for others is refused.
pub const FEATURES: [&str; 6] = ["centred", "min-max", "day-sin", "day-cos", "week-sin", "week-cos"];

/// Those of the features that say when it was.
pub(in crate::forecast) const CALENDAR: std::ops::Range<usize> = 2..6;

/// The range of a group of series in the training data, and the unit its errors are measured in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Range {
    /// The least value.
    pub min: f32,
    /// The greatest value.
    pub max: f32,
    /// Root mean square of what persistence misses. Errors in this unit weigh alike, whatever the group measures.
    pub unit: f32,
}

/// The ranges of all groups, and of all together for a group that was not among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scaler {
    /// By the group's name.
    pub groups: BTreeMap<String, Range>,
    /// Of all windows.
    pub all: Range,
}

/// The least spread of a window, in units of its group: what is flatter is noise.
const LEAST_SPREAD: f32 = 0.2;

/// The least unit, in parts of the range: a group that never moved is not divided by zero.
const LEAST_UNIT: f32 = 1e-4;

impl Range {
    fn of<'a>(windows: impl Iterator<Item = (&'a [f32], &'a [f32])>) -> Range {
        let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
        let (mut squares, mut count) = (0.0f64, 0.0f64);
        for (input, target) in windows {
            for value in input.iter().chain(target) {
                (min, max) = (min.min(*value), max.max(*value));
            }
            let Some(last) = input.last() else { continue };
            squares += target.iter().map(|value| f64::from(value - last).powi(2)).sum::<f64>();
            count += target.len() as f64;
        }
        let floor = ((max - min) * LEAST_UNIT).max(f32::MIN_POSITIVE);
        let unit = (squares / count.max(1.0)).sqrt() as f32;
        Range { min, max, unit: if unit >= floor { unit } else { floor } }
    }

    /// Whether it can be used to scale.
    fn is_sound(&self) -> bool {
        self.min.is_finite()
            && self.max.is_finite()
            && self.min <= self.max
            && self.unit.is_normal()
            && self.unit > 0.0
    }
}

impl Scaler {
    /// The ranges of these windows; of none, ranges that are not sound.
    pub fn of(windows: &LabelledWindows) -> Scaler {
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for at in 0..windows.len() {
            groups.entry(group(&windows.windows, at)).or_default().push(at);
        }
        let range = |which: &[usize]| {
            Range::of(which.iter().map(|&at| (windows.windows.input(at), windows.target(at))))
        };
        let all: Vec<usize> = (0..windows.len()).collect();
        let groups = groups.iter().map(|(group, which)| ((*group).to_owned(), range(which))).collect();
        Scaler { groups, all: range(&all) }
    }

    fn range(&self, group: &str) -> Range {
        self.groups.get(group).copied().unwrap_or(self.all)
    }

    /// A range that cannot be used, by its place in the header.
    pub(in crate::forecast) fn unsound(&self) -> Option<String> {
        let groups = self.groups.iter().map(|(group, range)| (format!("groups.{group}"), range));
        let mut ranges = groups.chain([("all".to_owned(), &self.all)]);
        ranges.find(|(_, range)| !range.is_sound()).map(|(name, _)| name)
    }
}

/// The group of a window; windows without a series belong to the group without a name.
fn group(windows: &Windows, at: usize) -> &str {
    windows.key(at).map_or("", |key| key.group.as_str())
}

/// Windows as the network sees them.
#[derive(Debug, Default)]
pub(in crate::forecast) struct Encoded {
    /// `[n, steps, FEATURES]`.
    pub inputs: Vec<f32>,
    /// How each of the n answers is read.
    pub scales: Vec<Scale>,
}

/// How an answer is read.
#[derive(Clone, Copy, Debug)]
pub(in crate::forecast) struct Scale {
    /// The window's last value.
    pub last: f32,
    /// The window's spread: what an answer of one stands for.
    pub spread: f32,
    /// The unit of the window's group.
    pub unit: f32,
    /// The least value that makes sense.
    pub floor: f32,
}

/// Encodes windows.
pub(in crate::forecast) fn encode(scaler: &Scaler, windows: &Windows) -> Encoded {
    let mut encoded = Encoded::default();
    encoded.inputs.reserve(windows.inputs.len() * FEATURES.len());
    for at in 0..windows.len() {
        let (values, range) = (windows.input(at), scaler.range(group(windows, at)));
        let scale = scale(values, &range);
        let step = i64::from(windows.shape.step_seconds);
        let first = windows.ends[at] - step * (values.len() as i64 - 1);
        for (index, &value) in values.iter().enumerate() {
            let [day, week] = [86_400, 604_800].map(|period| angle(first + step * index as i64, period));
            encoded.inputs.extend([
                (value - scale.last) / scale.spread,
                min_max(value, &range),
                day.sin() as f32,
                day.cos() as f32,
                week.sin() as f32,
                week.cos() as f32,
            ]);
        }
        encoded.scales.push(scale);
    }
    encoded
}

fn scale(values: &[f32], range: &Range) -> Scale {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let greatest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let spread = (greatest - least).max(LEAST_SPREAD * range.unit).clamp(f32::MIN_POSITIVE, f32::MAX);
    let never_negative = range.min >= 0.0 && least >= 0.0;
    Scale {
        last: values.last().copied().unwrap_or(0.0),
        spread,
        unit: range.unit,
        floor: if never_negative { 0.0 } else { f32::MIN },
    }
}

/// Between -1 and 1 over the range of the training data, and at most twice that far beyond it.
fn min_max(value: f32, range: &Range) -> f32 {
    let width = (range.max - range.min).max(f32::MIN_POSITIVE);
    (2.0 * ((value - range.min) / width) - 1.0).clamp(-3.0, 3.0)
}

fn angle(time: i64, period: i64) -> f64 {
    time.rem_euclid(period) as f64 / period as f64 * TAU
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::forecast::{Series, SeriesKey, Shape};

    const SHAPE: Shape = Shape { look_back: 3, horizon: 1, step_seconds: 3_600 };

    fn windows(values: &[(&str, [f32; 4])]) -> LabelledWindows {
        let one = |(group, values): &(&str, [f32; 4])| Series {
            key: SeriesKey::new(*group, "s"),
            start: 0,
            step_seconds: SHAPE.step_seconds,
            values: values.to_vec(),
        };
        let series: Arc<[Series]> = values.iter().map(one).collect();
        LabelledWindows::rolling(SHAPE, &series, 1).unwrap()
    }

    #[test]
    fn a_window_is_centred_scaled_and_dated() {
        let windows = windows(&[("a", [1.0, 5.0, 3.0, 2.0]), ("b", [-10.0, 10.0, 0.0, 30.0])]);
        let scaler = Scaler::of(&windows);
        assert_eq!(scaler.groups["a"], Range { min: 1.0, max: 5.0, unit: 1.0 });
        assert_eq!(scaler.groups["b"], Range { min: -10.0, max: 30.0, unit: 30.0 });
        assert_eq!((scaler.all.min, scaler.all.max), (-10.0, 30.0));
        let encoded = encode(&scaler, &windows.windows);
        let column = |column: usize| -> Vec<f32> {
            encoded.inputs.iter().skip(column).step_by(FEATURES.len()).copied().collect()
        };
        // The spread of the first window is 4, that of the second 20.
        assert_eq!(column(0), [-0.5, 0.5, 0.0, -0.5, 0.5, 0.0]);
        assert_eq!(column(1), [-1.0, 1.0, 0.0, -1.0, 0.0, -0.5]);
        let hour = std::f32::consts::TAU / 24.0;
        for (at, (sin, cos)) in column(2).into_iter().zip(column(3)).enumerate() {
            let angle = hour * (at % 3) as f32;
            assert!((sin - angle.sin()).abs() < 1e-6 && (cos - angle.cos()).abs() < 1e-6);
        }
        assert!((column(4)[2] - (hour * 2.0 / 7.0).sin()).abs() < 1e-6);
        assert_eq!((encoded.scales[0].floor, encoded.scales[1].floor), (0.0, f32::MIN));
    }

    #[test]
    fn flat_windows_and_strange_levels_stay_finite() {
        let known = windows(&[("a", [0.0, 1.0, 0.0, 1.0])]);
        let scaler = Scaler::of(&known);
        let strange = windows(&[("a", [7.0; 4]), ("new", [1e6, -1e6, 1e6, 0.0]), ("new", [0.0; 4])]);
        let encoded = encode(&scaler, &strange.windows);
        assert!(encoded.inputs.iter().all(|value| value.abs() <= 3.0), "{:?}", encoded.inputs);
        assert!(encoded.scales.iter().all(|scale| scale.spread.is_normal()));
        assert!(Scaler::of(&windows(&[("flat", [2.0; 4])])).unsound().is_none());
        assert_eq!(Scaler::of(&windows(&[])).unsound().as_deref(), Some("all"));
    }
}
