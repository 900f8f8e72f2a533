//! Weeks of LLM inference load, minute by minute: no trace of such weeks may be redistributed, so they are drawn from published
//! statistics of one (a public 2024 trace of a large provider's LLM services, a coding and a conversation service).
//!
//! ```text
//!   rate(t) = mean rate x day profile(hour) x weekend factor x (1 + slow + fast)
//!   requests in a minute ~ Poisson(rate x share of the traffic)
//!   activity = requests / requests that keep the GPUs fully busy
//! ```
//!
//! Calibrated, and held by the tests below: requests a week, peak to trough of working days, the weekend's drop, the coefficient
//! of variation of hourly counts and their autocorrelation at 24 hours. Assumed, because nothing is published: that the hourly
//! profile is joined by straight lines, that what differs from day to day fades within hours (`slow`), and that minutes scatter
//! like Poisson counts with a few per cent more (`fast`). There is no structure within the hour.
//!
//! Invariant: a function of its arguments, without `exp`, `ln` or `cos`: the same seed gives the same series everywhere.

use super::rng::Rng;

/// A kind of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Code completion: nights and weekends are nearly empty.
    Coding,
    /// Chat: busy all day, less at weekends.
    Conversation,
}

/// What a service's week looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Profile {
    /// Requests in a mean week.
    requests: f64,
    /// Load at each hour of a working day against the trough.
    hours: [f64; 24],
    /// Load of a weekend day against a working day.
    weekend: f64,
    /// Standard deviation of what differs from day to day, relative to the load.
    slow: f64,
}

/// Working day of the coding service, 1 at the trough and 10 at the peak.
const CODING: Profile = Profile {
    requests: 16.8e6,
    hours: [
        1.64, 1.35, 1.16, 1.05, 1.0, 1.10, 1.35, 2.10, 4.32, 7.37, 9.28, 10.0, 9.28, 8.57, 9.59, 9.79, 8.77,
        6.97, 4.87, 3.78, 3.25, 3.0, 2.58, 2.10,
    ],
    weekend: 0.32,
    slow: 0.10,
};

/// Working day of the conversation service, 1 at the trough and 2 at the peak.
const CONVERSATION: Profile = Profile {
    requests: 27.3e6,
    hours: [
        1.71, 1.62, 1.50, 1.36, 1.0, 1.28, 1.45, 1.63, 1.77, 1.87, 1.93, 1.97, 1.98, 1.98, 2.0, 1.99, 1.98,
        1.95, 1.93, 1.92, 1.91, 1.89, 1.85, 1.78,
    ],
    weekend: 0.57,
    slow: 0.13,
};

/// Minutes in which the slow part fades to a third: six hours.
const SLOW_MINUTES: f64 = 360.0;

/// The same for the fast part, and its standard deviation relative to the load.
const FAST_MINUTES: f64 = 5.0;
const FAST: f64 = 0.03;

/// Activity in the mean hour of the peak: the rest is room for bursts.
const PEAK_ACTIVITY: f64 = 85.0;

/// Minutes of a week.
pub const WEEK: usize = 7 * 1_440;

impl Service {
    /// Its name in keys and tables.
    pub fn name(self) -> &'static str {
        match self {
            Service::Coding => "coding",
            Service::Conversation => "conversation",
        }
    }

    fn profile(self) -> &'static Profile {
        match self {
            Service::Coding => &CODING,
            Service::Conversation => &CONVERSATION,
        }
    }

    /// Requests in each of `minutes` minutes from Monday midnight on, of a `share` (0 to 1) of the service's traffic. Services and
    /// seeds are independent of each other.
    pub fn requests(self, minutes: usize, share: f64, seed: u64) -> Vec<u32> {
        let profile = self.profile();
        let scale = share.clamp(0.0, 1.0) * profile.mean_rate();
        let mut rng = Rng::new(seed, 0x4C4C_4D00 + self as u64);
        let (mut slow, mut fast) = (0.0, 0.0);
        let minute = |minute: usize| {
            slow = drift(slow, profile.slow, SLOW_MINUTES, &mut rng);
            fast = drift(fast, FAST, FAST_MINUTES, &mut rng);
            let rate = scale * profile.at(minute) * (1.0 + slow + fast).max(0.0);
            count(rate, &mut rng)
        };
        (0..minutes).map(minute).collect()
    }

    /// Activity in per cent, 0 to 100, of the GPUs that serve a `share` of the traffic and are 85 % busy in the peak hour.
    pub fn activity(self, minutes: usize, share: f64, seed: u64) -> Vec<f32> {
        let profile = self.profile();
        let peak = profile.hours.iter().fold(0.0, |most: f64, &hour| most.max(hour)) / profile.mean();
        let full = share.clamp(0.0, 1.0) * profile.mean_rate() * peak * 100.0 / PEAK_ACTIVITY;
        let percent =
            |requests: u32| (f64::from(requests) / full.max(f64::MIN_POSITIVE) * 100.0).min(100.0) as f32;
        self.requests(minutes, share, seed).into_iter().map(percent).collect()
    }
}

impl Profile {
    /// Requests a minute of the mean week.
    fn mean_rate(&self) -> f64 {
        self.requests / WEEK as f64
    }

    /// The mean of the profile over a week, in units of the trough.
    fn mean(&self) -> f64 {
        let day = self.hours.iter().sum::<f64>() / 24.0;
        day * (5.0 + 2.0 * self.weekend) / 7.0
    }

    /// Load at a minute from Monday midnight on, against the mean of a week. Hours hold at their middle, straight lines join
    /// them, and the weekend's factor comes and goes within the hour around midnight.
    fn at(&self, minute: usize) -> f64 {
        let middle = (minute % WEEK) as f64 / 60.0 - 0.5;
        let before = middle.floor();
        let part = middle - before;
        let hour = |hour: f64| {
            let hour = (hour as i64).rem_euclid(7 * 24) as usize;
            let factor = if hour / 24 < 5 { 1.0 } else { self.weekend };
            self.hours[hour % 24] * factor
        };
        (hour(before) * (1.0 - part) + hour(before + 1.0) * part) / self.mean()
    }
}

/// The next value of a process that returns to zero within about `minutes` and has the standard deviation `deviation`.
fn drift(value: f64, deviation: f64, minutes: f64, rng: &mut Rng) -> f64 {
    let keep = 1.0 - 1.0 / minutes;
    keep * value + deviation * (1.0 - keep * keep).sqrt() * normal(rng)
}

/// A count around `rate` that scatters like a Poisson count; near zero it is cut off instead.
fn count(rate: f64, rng: &mut Rng) -> u32 {
    (rate + rate.sqrt() * normal(rng)).round().max(0.0) as u32
}

/// A standard normal number, as the sum of twelve uniform ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics of hourly counts over weeks: requests a week, peak to trough of the mean working day, weekend against working
    /// day, coefficient of variation, autocorrelation at 24 hours (both within a week, averaged over weeks).
    fn statistics(service: Service) -> [f64; 5] {
        const WEEKS: usize = 12;
        let minutes = service.requests(WEEKS * WEEK, 1.0, 5);
        let hours: Vec<f64> =
            minutes.chunks(60).map(|hour| hour.iter().map(|&count| f64::from(count)).sum()).collect();
        let day_of = |hour: usize| (hour / 24) % 7;
        let mean = |picked: &dyn Fn(usize) -> bool| {
            let picked: Vec<f64> =
                (0..hours.len()).filter(|&hour| picked(hour)).map(|hour| hours[hour]).collect();
            picked.iter().sum::<f64>() / picked.len() as f64
        };
        let working: Vec<f64> =
            (0..24).map(|of_day| mean(&|hour| day_of(hour) < 5 && hour % 24 == of_day)).collect();
        let peak = working.iter().copied().fold(f64::MIN, f64::max);
        let trough = working.iter().copied().fold(f64::MAX, f64::min);
        let weekend = mean(&|hour| day_of(hour) >= 5) / mean(&|hour| day_of(hour) < 5);
        let (mut variation, mut correlation) = (0.0, 0.0);
        for week in hours.chunks(7 * 24) {
            let mean = week.iter().sum::<f64>() / week.len() as f64;
            let squares: f64 = week.iter().map(|hour| (hour - mean).powi(2)).sum();
            variation += (squares / week.len() as f64).sqrt() / mean / WEEKS as f64;
            let lagged: f64 = week.iter().zip(&week[24..]).map(|(a, b)| (a - mean) * (b - mean)).sum();
            correlation += lagged / squares / WEEKS as f64;
        }
        [hours.iter().sum::<f64>() / WEEKS as f64, peak / trough, weekend, variation, correlation]
    }

    /// Each statistic within its bounds.
    #[track_caller]
    fn check(service: Service, bounds: [(f64, f64); 5]) {
        let found = statistics(service);
        for (at, (low, high)) in bounds.into_iter().enumerate() {
            assert!((low..=high).contains(&found[at]), "{}: statistic {at} of {found:?}", service.name());
        }
    }

    /// Published: 16.8 million, 8.6 to 11.3, 0.32, 0.85, 0.75.
    #[test]
    fn the_coding_week_is_as_published() {
        check(Service::Coding, [(16.3e6, 17.3e6), (8.6, 11.3), (0.29, 0.35), (0.80, 0.90), (0.70, 0.80)]);
    }

    /// Published: 27.3 million, 2, 0.57, 0.29, 0.40. No profile with this weekend and this variation comes down to 0.40 at 24
    /// hours; the drawn weeks stay above it.
    #[test]
    fn the_conversation_week_is_as_published() {
        check(
            Service::Conversation,
            [(26.5e6, 28.1e6), (1.8, 2.2), (0.53, 0.61), (0.26, 0.32), (0.35, 0.52)],
        );
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let draw = |seed| Service::Coding.requests(2_000, 0.1, seed);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1), Service::Conversation.requests(2_000, 0.1, 1));
    }

    #[test]
    fn activity_is_a_percentage_that_peaks_where_it_should() {
        let week = Service::Coding.activity(WEEK, 1.0, 3);
        assert!(week.iter().all(|percent| (0.0..=100.0).contains(percent)));
        let noon: f32 = week[11 * 60..12 * 60].iter().sum::<f32>() / 60.0;
        assert!((65.0..=100.0).contains(&noon), "{noon}");
        assert_eq!(Service::Coding.activity(3, 0.0, 3), [0.0; 3]);
    }
}
