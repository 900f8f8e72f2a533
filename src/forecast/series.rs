//! Evenly spaced series of usage.
//!
//! Invariants: a gap is NaN, never zero and never filled in; values belong to one unbroken state of the world, so that a layout
//! change ends a series and begins another ([`Series::cut`]).

use std::fmt;

/// Who a series belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// The kind of series, for example `gpu-activity`: errors are tracked by group.
    pub group: String,
    /// The name within the group.
    pub name: String,
}

impl SeriesKey {
    /// A key.
    pub fn new(group: impl Into<String>, name: impl Into<String>) -> SeriesKey {
        SeriesKey { group: group.into(), name: name.into() }
    }
}

impl fmt::Display for SeriesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.name)
    }
}

/// An evenly spaced series; anything that is not finite counts as a gap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Whose it is.
    pub key: SeriesKey,
    /// Unix seconds of `values[0]`.
    pub start: i64,
    /// Seconds between two values, not zero.
    pub step_seconds: u32,
    /// The values, NaN where there is none.
    pub values: Vec<f32>,
}

/// The longest series that is built from samples: ten years of minutes. Beyond it lies a wrong timestamp.
const MOST_STEPS: i64 = 10 * 366 * 1_440;

impl Series {
    /// Puts samples of any order and spacing, `(unix seconds, value)`, onto the grid of multiples of `step_seconds`: the latest
    /// sample of a step counts, and a step without one is a gap. The first and the last step have a value. Samples that are not
    /// finite, and those more than ten years of minutes older than the newest, are left out; without any the series is empty.
    pub fn from_samples(
        key: SeriesKey,
        step_seconds: u32,
        samples: impl IntoIterator<Item = (i64, f32)>,
    ) -> Series {
        let step = i64::from(step_seconds.max(1));
        let mut samples: Vec<_> = samples.into_iter().filter(|(_, value)| value.is_finite()).collect();
        samples.sort_by_key(|(time, _)| *time);
        let last = samples.last().map_or(0, |(time, _)| time.div_euclid(step));
        samples.retain(|(time, _)| last.saturating_sub(time.div_euclid(step)) < MOST_STEPS);
        let Some(first) = samples.first().map(|(time, _)| time.div_euclid(step)) else {
            return Series { key, start: 0, step_seconds, values: Vec::new() };
        };
        let mut values = vec![f32::NAN; (last - first + 1) as usize];
        for (time, value) in samples {
            values[(time.div_euclid(step) - first) as usize] = value;
        }
        Series { key, start: first * step, step_seconds, values }
    }

    /// Unix seconds of the value at `index`.
    pub fn time_of(&self, index: usize) -> i64 {
        self.start + index as i64 * i64::from(self.step_seconds)
    }

    /// The index of the last value that is not a gap.
    pub fn last_known(&self) -> Option<usize> {
        self.values.iter().rposition(|value| value.is_finite())
    }

    /// How many seconds old the last value is at `now`; `None` without any value. A value from the future is 0 s old.
    pub fn age_seconds(&self, now: i64) -> Option<i64> {
        self.last_known().map(|index| (now - self.time_of(index)).max(0))
    }

    /// The pieces between layout changes: a value at or after one of the `changes` (unix seconds) belongs to a later piece than
    /// a value before it. Pieces without a value are left out; each keeps the key.
    pub fn cut(&self, changes: &[i64]) -> Vec<Series> {
        let mut changes = changes.to_vec();
        changes.sort_unstable();
        let piece_of = |index: usize| changes.partition_point(|&change| change <= self.time_of(index));
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in 1..=self.values.len() {
            if to < self.values.len() && piece_of(to) == piece_of(from) {
                continue;
            }
            let values = &self.values[from..to];
            if values.iter().any(|value| value.is_finite()) {
                let (key, start) = (self.key.clone(), self.time_of(from));
                pieces.push(Series { key, start, step_seconds: self.step_seconds, values: values.to_vec() });
            }
            from = to;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;

    fn series(start: i64, values: &[f32]) -> Series {
        Series { key: SeriesKey::new("g", "s"), start, step_seconds: 60, values: values.to_vec() }
    }

    /// Values as text, `-` for a gap.
    fn text(series: &Series) -> String {
        let value = |value: &f32| if value.is_finite() { value.to_string() } else { "-".to_owned() };
        format!("{}: {}", series.start, series.values.iter().map(value).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn samples_fall_onto_the_grid() {
        let check = |samples: &[(i64, f32)], expected: &str| {
            let key = SeriesKey::new("g", "s");
            assert_eq!(text(&Series::from_samples(key, 60, samples.iter().copied())), expected);
        };
        check(&[(120, 1.0), (180, 2.0), (300, 3.0)], "120: 1 2 - 3");
        check(&[(305, 3.0), (125, 1.0), (185, 2.0)], "120: 1 2 - 3");
        check(&[(120, 1.0), (150, 5.0)], "120: 5");
        check(&[(0, NAN), (60, 0.0), (120, f32::INFINITY)], "60: 0");
        check(&[(-90, 1.0), (0, 2.0)], "-120: 1 - 2");
        check(&[(i64::MIN, 1.0), (600, 2.0)], "600: 2");
        check(&[], "0: ");
    }

    #[test]
    fn a_layout_change_cuts() {
        let check = |changes: &[i64], expected: &[&str]| {
            let pieces = series(0, &[1.0, 2.0, NAN, 4.0]).cut(changes);
            assert_eq!(pieces.iter().map(text).collect::<Vec<_>>(), expected);
        };
        check(&[], &["0: 1 2 - 4"]);
        check(&[60], &["0: 1", "60: 2 - 4"]);
        check(&[61], &["0: 1 2", "120: - 4"]);
        check(&[180, 120], &["0: 1 2", "180: 4"]);
        check(&[-5, 0, 1_000], &["0: 1 2 - 4"]);
        assert!(series(0, &[NAN, NAN]).cut(&[60]).is_empty());
    }

    #[test]
    fn the_age_is_that_of_the_last_value() {
        assert_eq!(series(0, &[1.0, 2.0, NAN]).age_seconds(200), Some(140));
        assert_eq!(series(600, &[1.0]).age_seconds(0), Some(0));
        assert_eq!(series(0, &[NAN]).age_seconds(0), None);
    }
}
