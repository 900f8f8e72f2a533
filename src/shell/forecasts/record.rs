//! What was said, held against what came: the figures that people see beside each kind of series.
//!
//! Invariant: only words about steps that have come since are judged, and each only once. What is kept is bounded: the words of
//! the last horizon, and the errors of the last [`JUDGED`] steps.

use std::collections::{BTreeMap, VecDeque};

use crate::forecast::{Prospect, Series, SeriesKey, Shape};

/// Steps whose errors count: an hour of minutes.
const JUDGED: usize = 60;

/// Words and errors of each group.
#[derive(Debug)]
pub struct Record {
    shape: Shape,
    groups: BTreeMap<String, Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// Oldest first, one entry for each step at which something new was said.
    said: VecDeque<Words>,
    errors: VecDeque<Errors>,
    newest: Option<Errors>,
}

/// What was said at one step.
#[derive(Debug)]
struct Words {
    /// Unix seconds of the newest value that was known.
    end: i64,
    prospects: BTreeMap<SeriesKey, Prospect>,
}

/// Sums over the series of one step.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    values: usize,
    ours: f64,
    persistence: f64,
    series: usize,
    said: f64,
    actual: f64,
}

/// How a group does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Mean absolute error over the horizon.
    pub error: Option<f32>,
    /// The same of the last value that was known.
    pub persistence_error: Option<f32>,
    /// The mean of what was said a horizon ahead.
    pub said: Option<f32>,
    /// The mean of what came of it.
    pub actual: Option<f32>,
}

impl Record {
    /// Nothing said yet.
    pub fn new(shape: Shape) -> Record {
        Record { shape, groups: BTreeMap::new() }
    }

    /// Remembers what was said, unless the newest value is the same as the last time.
    pub fn remember(&mut self, group: &str, prospects: &BTreeMap<SeriesKey, Prospect>) {
        let Some(end) = prospects.values().map(|prospect| prospect.end).max() else { return };
        let past = self.groups.entry(group.to_owned()).or_default();
        if past.said.back().is_none_or(|words| words.end < end) {
            past.said.push_back(Words { end, prospects: prospects.clone() });
        }
        // One more than can wait to be judged; a jump of the clock must not let it grow.
        while past.said.len() > self.shape.horizon + 1 {
            past.said.pop_front();
        }
    }

    /// Judges what has come to pass in `series`, and gives the score.
    pub fn settle(&mut self, group: &str, series: &[Series]) -> Score {
        let Some(past) = self.groups.get_mut(group) else { return Score::default() };
        let horizon = self.shape.horizon as i64 * i64::from(self.shape.step_seconds);
        let known = series.iter().filter_map(|series| Some(series.time_of(series.last_known()?))).max();
        let has_come = |words: &Words| known.is_some_and(|known| words.end + horizon <= known);
        while let Some(words) = past.said.pop_front_if(|words| has_come(words)) {
            past.newest = Some(judge(&words, series));
            past.errors.extend(past.newest.filter(|errors| errors.values > 0));
            while past.errors.len() > JUDGED {
                past.errors.pop_front();
            }
        }
        past.score()
    }
}

impl Past {
    fn score(&self) -> Score {
        let values: usize = self.errors.iter().map(|errors| errors.values).sum();
        let mean = |sum: f64, of: usize| (of > 0).then(|| (sum / of as f64) as f32);
        let newest = self.newest.unwrap_or_default();
        Score {
            error: mean(self.errors.iter().map(|errors| errors.ours).sum(), values),
            persistence_error: mean(self.errors.iter().map(|errors| errors.persistence).sum(), values),
            said: mean(newest.said, newest.series),
            actual: mean(newest.actual, newest.series),
        }
    }
}

fn judge(words: &Words, series: &[Series]) -> Errors {
    let mut errors = Errors::default();
    for series in series {
        let Some(prospect) = words.prospects.get(&series.key) else { continue };
        let step = i64::from(series.step_seconds);
        for (ahead, &said) in (1..).zip(&prospect.mean) {
            let index = usize::try_from((prospect.end - series.start) / step + ahead).ok();
            let actual = index.and_then(|index| series.values.get(index)).filter(|value| value.is_finite());
            let Some(&actual) = actual else { continue };
            errors.values += 1;
            errors.ours += f64::from((said - actual).abs());
            errors.persistence += f64::from((prospect.last - actual).abs());
            if ahead as usize == prospect.mean.len() {
                errors.series += 1;
                errors.said += f64::from(said);
                errors.actual += f64::from(actual);
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { look_back: 3, horizon: 2, step_seconds: 60 };

    fn series(values: &[f32]) -> Vec<Series> {
        vec![Series { key: SeriesKey::new("g", "a"), start: 60, step_seconds: 60, values: values.to_vec() }]
    }

    fn say(record: &mut Record, end: i64, last: f32, mean: [f32; 2]) {
        let prospect = Prospect { end, last, mean: mean.to_vec(), ..Prospect::default() };
        record.remember("g", &[(SeriesKey::new("g", "a"), prospect)].into());
    }

    #[test]
    fn words_are_judged_when_their_time_has_come() {
        let mut record = Record::new(SHAPE);
        assert_eq!(record.settle("g", &series(&[1.0])), Score::default());
        say(&mut record, 60, 1.0, [2.0, 3.0]);
        say(&mut record, 60, 9.0, [9.0, 9.0]);
        assert_eq!(record.settle("g", &series(&[1.0, 2.0])), Score::default());
        let score = record.settle("g", &series(&[1.0, 2.5, 4.0]));
        assert_eq!((score.error, score.persistence_error), (Some(0.75), Some(2.25)));
        assert_eq!((score.said, score.actual), (Some(3.0), Some(4.0)));
        say(&mut record, 180, 4.0, [4.0, 4.0]);
        let score = record.settle("g", &series(&[1.0, 2.5, 4.0, f32::NAN, 5.0]));
        assert_eq!(score.error, Some((0.5 + 1.0 + 1.0) / 3.0));
        assert_eq!(record.settle("g", &series(&[])), score, "nothing is judged twice");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut record = Record::new(SHAPE);
        for step in 1..100 {
            say(&mut record, step * 60, 1.0, [1.0, 1.0]);
        }
        let past = &record.groups["g"];
        assert_eq!((past.said.len(), past.said[0].end), (3, 97 * 60));
        let values = vec![1.0; 500];
        record.settle("g", &series(&values));
        for step in 100..400 {
            say(&mut record, step * 60, 1.0, [1.0, 1.0]);
            record.settle("g", &series(&values));
        }
        assert_eq!(record.groups["g"].errors.len(), JUDGED);
    }
}
