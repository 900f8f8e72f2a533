//! Maintenance windows: when a change may begin.
//!
//! Invariant: a window is as long as it says on every day, also where its time zone moves the clock: its beginning is a
//! time on the wall, its length is a duration. The time zone is a value; whoever reads the settings looks it up.

use std::time::Duration;

use jiff::civil::{Date, Time as WallTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::model::Time;

/// The longest window: begun on one day, it ends on the next at the latest.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A window that comes again every week.
#[derive(Clone, Debug, PartialEq)]
pub struct MaintenanceWindow {
    /// The days on which it begins.
    pub days: Vec<Weekday>,
    /// When it begins, on the wall in `zone`. A time that a jump of the clock skips is taken as the same distance after the jump.
    pub begins: WallTime,
    /// How long it is open, at most [`LONGEST`].
    pub length: Duration,
    /// Whose days and times these are.
    pub zone: TimeZone,
}

impl MaintenanceWindow {
    /// How long it is still open; `None` while it is closed.
    pub fn left(&self, now: Time) -> Option<Duration> {
        let now = timestamp(now)?;
        let today = now.to_zoned(self.zone.clone()).date();
        [today.yesterday().ok(), Some(today)]
            .into_iter()
            .flatten()
            .filter_map(|date| self.left_of(date, now))
            .max()
    }

    /// How long it will stay closed; zero while it is open, `None` where it never opens.
    pub fn opens_in(&self, now: Time) -> Option<Duration> {
        if self.left(now).is_some() {
            return Some(Duration::ZERO);
        }
        let now = timestamp(now)?;
        let today = now.to_zoned(self.zone.clone()).date();
        let beginnings = (0..=7).filter_map(|days| self.beginning(today.checked_add(days.days()).ok()?));
        let ahead = beginnings.filter_map(|beginning| Duration::try_from(beginning.duration_since(now)).ok());
        ahead.min()
    }

    fn left_of(&self, date: Date, now: Timestamp) -> Option<Duration> {
        let open = Duration::try_from(now.duration_since(self.beginning(date)?)).ok()?;
        self.length.min(LONGEST).checked_sub(open).filter(|left| !left.is_zero())
    }

    /// When the window of one day opens.
    fn beginning(&self, date: Date) -> Option<Timestamp> {
        if !self.days.contains(&date.weekday()) {
            return None;
        }
        Some(date.to_datetime(self.begins).to_zoned(self.zone.clone()).ok()?.timestamp())
    }
}

/// How long changes may still begin by any of the windows; without windows there is no end.
pub fn open_for(windows: &[MaintenanceWindow], now: Time) -> Option<Duration> {
    if windows.is_empty() {
        return Some(Duration::MAX);
    }
    windows.iter().filter_map(|window| window.left(now)).max()
}

fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_second(time.as_unix_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Berlin's rule, as POSIX writes it: no database of time zones is read.
    const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

    fn at(text: &str) -> Time {
        Time::from_secs(text.parse::<Timestamp>().unwrap().as_second() as u64)
    }

    fn window(days: &[Weekday], begins: &str, minutes: u64) -> MaintenanceWindow {
        MaintenanceWindow {
            days: days.to_vec(),
            begins: begins.parse().unwrap(),
            length: Duration::from_secs(60 * minutes),
            zone: TimeZone::posix(BERLIN).unwrap(),
        }
    }

    /// Minutes left and minutes until it opens.
    fn check(window: &MaintenanceWindow, now: &str, left: Option<u64>, opens_in: u64) {
        let minutes = |duration: Duration| duration.as_secs() / 60;
        let found = (window.left(at(now)).map(minutes), window.opens_in(at(now)).map(minutes));
        assert_eq!(found, (left, Some(opens_in)), "{now}");
    }

    #[test]
    fn opens_by_the_wall_clock_of_its_zone() {
        let window = window(&[Weekday::Tuesday], "22:00", 240);
        // Winter: 22:00 in Berlin is 21:00 UTC. 2026-01-06 is a Tuesday.
        check(&window, "2026-01-06T20:59:00Z", None, 1);
        check(&window, "2026-01-06T21:00:00Z", Some(240), 0);
        // Past midnight it is still Tuesday's window, and no longer Tuesday.
        check(&window, "2026-01-07T00:59:00Z", Some(1), 0);
        check(&window, "2026-01-07T01:00:00Z", None, 7 * 1440 - 240);
        // Summer: an hour earlier.
        check(&window, "2026-07-07T20:00:00Z", Some(240), 0);
    }

    #[test]
    fn is_as_long_as_it_says_when_the_clock_moves() {
        let night = window(&[Weekday::Sunday], "01:00", 180);
        // 2026-03-29 jumps from 02:00 to 03:00, 2026-10-25 goes back from 03:00 to 02:00.
        check(&night, "2026-03-29T02:59:00Z", Some(1), 0);
        check(&night, "2026-03-29T03:00:00Z", None, 7 * 1440 - 240);
        check(&night, "2026-10-25T01:59:00Z", Some(1), 0);
        // A beginning that the jump skips comes as much later.
        check(&window(&[Weekday::Sunday], "02:30", 60), "2026-03-29T01:29:00Z", None, 1);
    }

    #[test]
    fn none_means_always_and_any_is_enough() {
        let now = at("2026-01-06T12:00:00Z");
        assert_eq!(open_for(&[], now), Some(Duration::MAX));
        let closed = window(&[Weekday::Friday], "12:00", 60);
        assert_eq!(open_for(std::slice::from_ref(&closed), now), None);
        let open = window(&[Weekday::Tuesday], "12:30", 60);
        assert_eq!(open_for(&[closed.clone(), open], now), Some(Duration::from_secs(1_800)));
        let never = MaintenanceWindow { days: Vec::new(), ..closed };
        assert_eq!((never.left(now), never.opens_in(now)), (None, None));
    }
}
