//! The one clock of the process: what `Engine::step` is told as *now*.
//!
//! Invariant: it never runs backwards. The wall clock is read once, at the start; from then on a monotonic clock advances
//! it, so that a correction by NTP or by an operator neither ends a back-off early nor holds one for hours.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use crate::model::Time;

/// Wall-clock time as it was at the start, advanced by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    offset: Time,
}

impl Clock {
    /// Reads the wall clock.
    pub fn start() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { started: Instant::now(), offset: Time::ZERO + since_epoch }
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.offset + self.started.elapsed()
    }

    /// When `time` comes, on the clock that timers understand; the past is now.
    pub fn instant(&self, time: Time) -> Instant {
        self.started + time.since(self.offset)
    }
}

/// A time stamp of the API; one before 1970 becomes the epoch.
pub fn from_timestamp(timestamp: Timestamp) -> Time {
    Time::from_micros(u64::try_from(timestamp.as_microsecond()).unwrap_or(0))
}

/// The time stamp that the API is told. Times beyond the year 9999, which no clock shows, become the epoch.
pub fn to_timestamp(time: Time) -> Timestamp {
    i64::try_from(time.as_micros())
        .ok()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moves_forward_and_agrees_with_timers() {
        let clock = Clock::start();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second);
        let later = clock.instant(second + Duration::from_secs(5));
        let ahead = later.saturating_duration_since(Instant::now());
        assert!(ahead > Duration::from_secs(4) && ahead <= Duration::from_secs(5), "{ahead:?}");
    }

    #[test]
    fn time_stamps_survive_the_way_there_and_back() {
        let stamp: Timestamp = "2026-11-30T10:00:00.123456Z".parse().unwrap();
        assert_eq!(to_timestamp(from_timestamp(stamp)), stamp);
        assert_eq!(from_timestamp("1960-01-01T00:00:00Z".parse().unwrap()), Time::ZERO);
    }
}
