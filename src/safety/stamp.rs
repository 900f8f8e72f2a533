//! Points in time that outlive the process.
//!
//! Invariant: a stamp was written by whichever clock ruled then, so it is never trusted further than [`TOLERANCE`]: what lies in
//! the future has age zero, and what lies further in it than that is cut back to the present by [`Stamp::cut`]. Either makes
//! a wait longer, never shorter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Time;

/// How far two clocks of the cluster may lie apart. A forward change begins only while ours is this close to the API server's.
pub const TOLERANCE: Duration = Duration::from_secs(60);

/// Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(u64);

impl Stamp {
    /// The present.
    pub const fn of(now: Time) -> Stamp {
        Stamp(now.as_micros() / 1_000_000)
    }

    /// How long ago it was; zero for the future.
    pub const fn age(self, now: Time) -> Duration {
        now.since(Time::from_secs(self.0))
    }

    /// The point itself.
    pub const fn time(self) -> Time {
        Time::from_secs(self.0)
    }

    /// The stamp, or the present where it lies further ahead than clocks may differ.
    pub fn cut(self, now: Time) -> Stamp {
        if self.time() > now + TOLERANCE { Stamp::of(now) } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_future_is_no_age() {
        let (now, early) = (Time::from_secs(1_000), Time::from_secs(400));
        assert_eq!(Stamp::of(early).age(now), Duration::from_secs(600));
        assert_eq!(Stamp::of(now).age(early), Duration::ZERO);
        assert_eq!(Stamp(u64::MAX).age(now), Duration::ZERO);
    }

    #[test]
    fn only_what_is_far_ahead_is_cut() {
        let now = Time::from_secs(1_000);
        for (stamp, expected) in [(0, 0), (1_000, 1_000), (1_060, 1_060), (1_061, 1_000), (u64::MAX, 1_000)] {
            assert_eq!(Stamp(stamp).cut(now), Stamp(expected), "{stamp}");
        }
    }
}
