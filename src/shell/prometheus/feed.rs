//! One query and its samples so far: the whole look-back at first, afterwards what is new and a little before it.
//!
//! Invariant: whatever part of a long question was answered stays, so that a server that fails in between is asked only for the
//! rest the next time.

use super::answer::Vector;
use super::client::{QueryError, Server};
use super::grid::Grid;
use super::history::{History, Part, TooMany};

/// Steps that are asked for again: samples that arrived late, such as those of a remote write that was behind.
const OVERLAP: i64 = 5;

/// Why a query brought nothing new.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// The server gave no answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// It gave too much.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

/// A query and what is known of its answer.
#[derive(Debug)]
pub struct Feed<K, A> {
    query: String,
    look_back: i64,
    step: u32,
    history: Option<History<K, A>>,
    /// Unix seconds of the newest sample. What an answer lacked after it is asked for again: the server may have it by now.
    newest: Option<i64>,
    /// What the server had to say beside the last answer.
    warnings: Vec<String>,
    parts: fn(Vec<Vector>) -> Vec<Part<K, A>>,
}

impl<K: Ord + Clone, A: Clone> Feed<K, A> {
    /// A query that has not been asked yet; `parts` says whose each series of an answer is.
    pub fn new(
        query: String,
        look_back: i64,
        step: u32,
        parts: fn(Vec<Vector>) -> Vec<Part<K, A>>,
    ) -> Feed<K, A> {
        Feed { query, look_back, step, history: None, newest: None, warnings: Vec::new(), parts }
    }

    /// What is known.
    pub fn history(&self) -> Option<&History<K, A>> {
        self.history.as_ref()
    }

    /// What the server had to say beside its last answer.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Asks for what is missing up to `now` (unix seconds).
    pub async fn refresh(&mut self, server: &Server, now: i64) -> Result<(), FeedError> {
        let mut rest = Some(self.question(now));
        self.warnings.clear();
        while let Some(grid) = rest {
            let (asked, answer, after) = server.query_some(&self.query, grid).await?;
            let partial = !answer.warnings.is_empty();
            self.warnings.extend(answer.warnings);
            self.take_in(asked, partial, answer.vectors)?;
            rest = after;
        }
        Ok(())
    }

    /// The times to ask for.
    pub(super) fn question(&mut self, now: i64) -> Grid {
        let whole = Grid::between(now.saturating_sub(self.look_back), now, self.step);
        self.history.get_or_insert_with(|| History::new(whole)).advance(whole.end);
        let overlap = OVERLAP * i64::from(self.step);
        let new = self.newest.map_or(whole.start, |newest| newest.saturating_sub(overlap));
        Grid::between(new.max(whole.start), now, self.step)
    }

    /// An answer for some of these times.
    pub(super) fn take_in(
        &mut self,
        asked: Grid,
        partial: bool,
        vectors: Vec<Vector>,
    ) -> Result<(), TooMany> {
        let history = self.history.get_or_insert_with(|| History::new(asked));
        let newest = vectors.iter().filter_map(|vector| vector.samples.last()).map(|(time, _)| *time).max();
        history.merge(asked, partial, (self.parts)(vectors))?;
        self.newest = self.newest.max(newest.map(|time| time.min(asked.end)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(vectors: Vec<Vector>) -> Vec<Part<String, ()>> {
        let part = |vector: Vector| Part {
            key: vector.labels.into_values().collect(),
            about: (),
            samples: vector.samples,
        };
        vectors.into_iter().map(part).collect()
    }

    fn vector(name: &str, samples: &[(i64, f32)]) -> Vector {
        Vector { labels: [("name".to_owned(), name.to_owned())].into(), samples: samples.to_vec() }
    }

    fn range(grid: Grid) -> (i64, i64) {
        (grid.start, grid.end)
    }

    #[test]
    fn only_what_is_new_is_asked_for_again() {
        let mut feed = Feed::new("x".to_owned(), 3_600, 60, parts);
        let first = feed.question(7_230);
        assert_eq!(range(first), (3_660, 7_200));
        // The server stops half-way.
        let (half, _) = first.split(30);
        feed.take_in(half, false, vec![vector("a", &[(3_660, 1.0), (5_400, 2.0)])]).unwrap();
        let next = feed.question(7_290);
        assert_eq!(range(next), (5_100, 7_260));
        feed.take_in(next, false, vec![vector("a", &[(7_260, 3.0)])]).unwrap();
        assert_eq!(range(feed.question(7_320)), (6_960, 7_320));
        // An answer without samples is no news.
        let empty = feed.question(7_860);
        assert_eq!(range(empty), (6_960, 7_860));
        feed.take_in(empty, false, vec![vector("a", &[])]).unwrap();
        assert_eq!(range(feed.question(7_920)), (6_960, 7_920));
        // After a long silence all is new.
        assert_eq!(range(feed.question(1_000_000)), (996_420, 999_960));
    }
}
