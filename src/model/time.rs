//! A point in time as the engine sees it: an argument, never a reading.
//!
//! Invariant: the engine owns no clock. The shell passes wall-clock time advanced by a monotonic clock, the simulation its
//! virtual time; both only ever move forward.

use std::time::Duration;

/// Microseconds since the Unix epoch (in a simulation: since its start).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// The point `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Time {
        Time(micros)
    }

    /// The point `seconds` seconds after the origin; saturates at the far end of the axis.
    pub const fn from_secs(seconds: u64) -> Time {
        Time(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whole seconds since the origin.
    pub const fn as_unix_secs(self) -> i64 {
        // A u64 of microseconds has at most 1.9e13 seconds.
        (self.0 / 1_000_000) as i64
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(micros))
    }
}
