//! The evaluation times of range queries: multiples of the step, so that what is asked for again falls on what is known.

/// Times `start`, `start + step`, … `end` in unix seconds, both ends multiples of the step. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The first time.
    pub start: i64,
    /// The last one.
    pub end: i64,
    /// Seconds between two, not zero.
    pub step: u32,
}

impl Grid {
    /// The times after or at `from` up to and with `to`; a lone one where there is none between them.
    pub fn between(from: i64, to: i64, step: u32) -> Grid {
        let width = i64::from(step.max(1));
        let end = to.div_euclid(width) * width;
        let start = (from.saturating_add(width - 1).div_euclid(width) * width).min(end);
        Grid { start, end, step: step.max(1) }
    }

    /// How many times there are.
    pub fn points(&self) -> usize {
        ((self.end - self.start) / i64::from(self.step)) as usize + 1
    }

    /// The index of a time; `None` outside the grid. A time between two belongs to the earlier one.
    pub fn index(&self, time: i64) -> Option<usize> {
        let inside = (self.start..self.end.saturating_add(self.step.into())).contains(&time);
        inside.then(|| ((time - self.start) / i64::from(self.step)) as usize)
    }

    /// The first `points` times, at least one, and the rest.
    pub fn split(&self, points: usize) -> (Grid, Option<Grid>) {
        let points = points.max(1);
        if points >= self.points() {
            return (*self, None);
        }
        let next = self.start + points as i64 * i64::from(self.step);
        let first = Grid { end: next - i64::from(self.step), ..*self };
        (first, Some(Grid { start: next, ..*self }))
    }
}

/// Whether a server refuses a query for its length, and the number of points that it names as its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No more points than these.
    Points(usize),
    /// Fewer than were asked for.
    Fewer,
}

/// What such refusals say: Prometheus' own limits of points and samples, those of Thanos, Mimir and VictoriaMetrics.
const TOO_LONG: [&str; 6] = [
    "exceeded maximum resolution of",
    "too many points",
    "too many samples",
    "query length",
    "time range exceeds the limit",
    "response size",
];

/// The limit that a refusal is about; `None` for one of another kind.
pub fn limit(message: &str) -> Option<Limit> {
    let message = message.to_ascii_lowercase();
    let phrase = TOO_LONG.iter().find(|phrase| message.contains(*phrase))?;
    let (_, after) = message.split_once(phrase)?;
    let number: String = after.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    let named = number.replace(',', "").parse().ok().filter(|points| *points > 0);
    let of_points = *phrase == TOO_LONG[0];
    Some(named.filter(|_| of_points).map_or(Limit::Fewer, Limit::Points))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_multiples_of_the_step() {
        let check = |from, to, step, expected: (i64, i64, usize)| {
            let grid = Grid::between(from, to, step);
            assert_eq!((grid.start, grid.end, grid.points()), expected);
        };
        check(61, 299, 60, (120, 240, 3));
        check(120, 240, 60, (120, 240, 3));
        check(241, 299, 60, (240, 240, 1));
        check(-61, 59, 60, (-60, 0, 2));
        check(0, 100, 15, (0, 90, 7));
    }

    #[test]
    fn times_find_their_place() {
        let grid = Grid::between(120, 240, 60);
        let places = [119, 120, 179, 180, 240, 299, 300, i64::MAX].map(|time| grid.index(time));
        assert_eq!(places, [None, Some(0), Some(0), Some(1), Some(2), Some(2), None, None]);
    }

    #[test]
    fn a_long_range_is_asked_for_in_parts() {
        let mut rest = Some(Grid::between(0, 600, 60));
        let mut parts = Vec::new();
        while let Some(grid) = rest {
            let (first, after) = grid.split(4);
            parts.push((first.start, first.end, first.points()));
            rest = after;
        }
        assert_eq!(parts, [(0, 180, 4), (240, 420, 4), (480, 600, 3)]);
        assert_eq!(Grid::between(0, 60, 60).split(0).0.points(), 1);
    }

    #[test]
    fn limits_are_understood() {
        let check = |message: &str, expected| assert_eq!(limit(message), expected, "{message}");
        check(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
            Some(Limit::Points(11_000)),
        );
        check("exceeded maximum resolution of 500 points per timeseries", Some(Limit::Points(500)));
        check(
            "query processing would load too many samples into memory in query execution",
            Some(Limit::Fewer),
        );
        check("the query time range exceeds the limit (query length: 48h, limit: 24h)", Some(Limit::Fewer));
        check(
            "too many points for the given step=15, start=1 and end=2: 17281; cannot exceed 3000",
            Some(Limit::Fewer),
        );
        check("1:5: parse error: unexpected identifier", None);
        check("", None);
    }
}
