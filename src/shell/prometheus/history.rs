//! The samples of one query on one grid, as long as the look-back and no longer.
//!
//! Invariants: all rows share one grid; a step for which a row has no sample is NaN; what was asked for again replaces what was
//! known. Two series of one row (two exporters, a pod that took over within a step) are averaged where both have a sample, so
//! that the order of an answer does not matter.

use std::collections::BTreeMap;

use super::grid::Grid;

/// Values that may be held: 1 GiB of them, 10,000 instances over 48 hours being a tenth of it.
const MOST_VALUES: usize = 256 << 20;

/// The rows of a query by their key, with what the newest sample's labels say of each.
#[derive(Clone, Debug)]
pub struct History<K, A> {
    grid: Grid,
    rows: BTreeMap<K, Row<A>>,
}

/// The values of one row.
#[derive(Clone, Debug)]
pub struct Row<A> {
    /// One for each time of the grid.
    pub values: Vec<f32>,
    /// What its labels say.
    pub about: A,
    /// Unix seconds of the newest sample.
    pub seen: i64,
}

/// More series than can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{rows} series of {points} steps are too many; select fewer in the query, or shorten prometheus.lookBack"
)]
pub struct TooMany {
    rows: usize,
    points: usize,
}

/// What a series brings to a row.
pub struct Part<K, A> {
    /// The row.
    pub key: K,
    /// What its labels say.
    pub about: A,
    /// Unix seconds and values.
    pub samples: Vec<(i64, f32)>,
}

impl<K: Ord + Clone, A: Clone> History<K, A> {
    /// No rows, on this grid.
    pub fn new(grid: Grid) -> History<K, A> {
        History { grid, rows: BTreeMap::new() }
    }

    /// The times of the values.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// The rows, in the order of their keys.
    pub fn rows(&self) -> &BTreeMap<K, Row<A>> {
        &self.rows
    }

    /// Moves the grid on, so that it ends at `end` and is as long as before.
    pub fn advance(&mut self, end: i64) {
        let next = self.grid.end.saturating_add(self.grid.step.into());
        if end < next {
            return;
        }
        let by = Grid::between(next, end, self.grid.step).points();
        let points = self.grid.points();
        for row in self.rows.values_mut() {
            row.values.drain(..by.min(points));
            row.values.resize(points, f32::NAN);
        }
        let shift = by as i64 * i64::from(self.grid.step);
        self.grid.start += shift;
        self.grid.end += shift;
        self.forget_empty();
    }

    /// Takes in what was answered for `asked`, which lies within the grid. Where the answer may lack something (`partial`), what
    /// it does not hold stays as it was.
    pub fn merge(&mut self, asked: Grid, partial: bool, parts: Vec<Part<K, A>>) -> Result<(), TooMany> {
        let mut parts = parts;
        // A stable sort: of two that saw a sample at the same time, the later in the answer's own order, which is sorted.
        parts.sort_by_key(|part| part.samples.last().map(|(time, _)| *time));
        let mut fresh: BTreeMap<K, (Vec<f32>, Vec<u16>)> = BTreeMap::new();
        for part in parts.into_iter().filter(|part| !part.samples.is_empty()) {
            self.note(&part)?;
            let empty = || (vec![0.0; asked.points()], vec![0; asked.points()]);
            let (sums, counts) = fresh.entry(part.key).or_insert_with(empty);
            for (time, value) in part.samples {
                if let Some(at) = asked.index(time) {
                    sums[at] += value;
                    counts[at] = counts[at].saturating_add(1);
                }
            }
        }
        let Some(offset) = self.grid.index(asked.start) else { return Ok(()) };
        for (key, row) in &mut self.rows {
            let target = &mut row.values[offset..];
            match fresh.get(key) {
                Some((sums, counts)) => fill(target, sums, counts, partial),
                None if !partial => {
                    target.iter_mut().take(asked.points()).for_each(|value| *value = f32::NAN)
                }
                None => {}
            }
        }
        self.forget_empty();
        Ok(())
    }

    /// Makes sure that there is a row, and that it says what the newest labels say.
    fn note(&mut self, part: &Part<K, A>) -> Result<(), TooMany> {
        let newest = part.samples.last().map_or(i64::MIN, |(time, _)| *time);
        let (rows, points) = (self.rows.len(), self.grid.points());
        if let Some(row) = self.rows.get_mut(&part.key) {
            if newest >= row.seen {
                (row.about, row.seen) = (part.about.clone(), newest);
            }
            return Ok(());
        }
        if (rows + 1).saturating_mul(points) > MOST_VALUES {
            return Err(TooMany { rows: rows + 1, points });
        }
        let row = Row { values: vec![f32::NAN; points], about: part.about.clone(), seen: newest };
        self.rows.insert(part.key.clone(), row);
        Ok(())
    }

    fn forget_empty(&mut self) {
        self.rows.retain(|_, row| row.values.iter().any(|value| value.is_finite()));
    }
}

fn fill(target: &mut [f32], sums: &[f32], counts: &[u16], partial: bool) {
    for ((value, sum), count) in target.iter_mut().zip(sums).zip(counts) {
        match count {
            0 if partial => {}
            0 => *value = f32::NAN,
            count => *value = sum / f32::from(*count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(from: i64, to: i64) -> Grid {
        Grid::between(from, to, 60)
    }

    fn part(
        key: &'static str,
        about: &'static str,
        samples: &[(i64, f32)],
    ) -> Part<&'static str, &'static str> {
        Part { key, about, samples: samples.to_vec() }
    }

    /// Each row as `key(about): values`, `-` for a gap.
    fn text(history: &History<&str, &str>) -> Vec<String> {
        let value = |value: &f32| if value.is_finite() { value.to_string() } else { "-".to_owned() };
        let row = |(key, row): (&&str, &Row<&str>)| {
            let values: Vec<_> = row.values.iter().map(value).collect();
            format!("{key}({}): {}", row.about, values.join(" "))
        };
        history.rows().iter().map(row).collect()
    }

    #[test]
    fn what_is_asked_for_again_replaces_what_was_known() {
        let mut history = History::new(grid(60, 240));
        let first = [(60, 1.0), (120, 2.0), (180, 3.0)];
        history
            .merge(grid(60, 240), false, vec![part("a", "x", &first), part("b", "x", &[(60, 9.0)])])
            .unwrap();
        assert_eq!(text(&history), ["a(x): 1 2 3 -", "b(x): 9 - - -"]);
        history.advance(300);
        assert_eq!(text(&history), ["a(x): 2 3 - -"]);
        assert_eq!((history.grid().start, history.grid().end), (120, 300));
        history.merge(grid(180, 300), false, vec![part("a", "y", &[(240, 4.0), (300, 5.0)])]).unwrap();
        assert_eq!(text(&history), ["a(y): 2 - 4 5"]);
        history.advance(10_000);
        assert!(text(&history).is_empty());
    }

    #[test]
    fn a_partial_answer_takes_nothing_away() {
        let mut history = History::new(grid(60, 180));
        history.merge(grid(60, 180), false, vec![part("a", "x", &[(60, 1.0), (120, 2.0)])]).unwrap();
        history.merge(grid(120, 180), true, vec![]).unwrap();
        history.merge(grid(60, 180), true, vec![part("a", "x", &[(180, 3.0)])]).unwrap();
        assert_eq!(text(&history), ["a(x): 1 2 3"]);
    }

    #[test]
    fn two_series_of_one_row_are_averaged_in_any_order() {
        let one = [(60, 0.2), (120, 0.5)];
        let other = [(120, 0.7), (180, 0.9)];
        for swapped in [false, true] {
            let mut parts = vec![part("a", "old", &one), part("a", "new", &other)];
            if swapped {
                parts.reverse();
            }
            let mut history = History::new(grid(60, 180));
            history.merge(grid(60, 180), false, parts).unwrap();
            assert_eq!(text(&history), ["a(new): 0.2 0.6 0.9"]);
        }
    }

    #[test]
    fn samples_outside_the_question_are_left_out() {
        let mut history = History::new(grid(60, 180));
        let samples = [(0, 1.0), (60, 2.0), (i64::MAX, 3.0)];
        history.merge(grid(60, 180), false, vec![part("a", "x", &samples), part("b", "x", &[])]).unwrap();
        assert_eq!(text(&history), ["a(x): 2 - -"]);
    }
}
