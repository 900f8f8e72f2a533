//! Whether a forecast may be acted upon.
//!
//! ```text
//!   Unproven ──► Trusted ◄──► Worse than persistence
//!                  │ ▲
//!                  ▼ │
//!                 Stale
//! ```

use std::fmt;

use serde::Serialize;

/// Steps over which errors have to be known: two hours of minutes.
const PROVEN: f64 = 120.0;

/// Trust ends beyond this share of persistence's squared error, and comes back at parity, within the per cent that a blend costs
/// which leaves others some thousandths of the word: a series that persistence forecasts best is forecast by it, and must not
/// flicker.
const LOST: f64 = 1.05;
const REGAINED: f64 = 1.01;

/// Whether to act upon a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Trust {
    /// It may be acted upon.
    Trusted,
    /// Leave things as they are.
    NotTrusted(Distrust),
}

/// Why a forecast is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Distrust {
    /// The last value of the series is too old.
    Stale {
        /// Its age.
        age_seconds: i64,
    },
    /// Too few errors are known.
    Unproven {
        /// Steps known.
        steps: u32,
        /// Steps needed.
        needed: u32,
    },
    /// The models that had proven themselves gave no numbers.
    Failed {
        /// The share of the word that they had.
        share: f32,
    },
    /// The forecasts were worse than the last value.
    WorseThanPersistence {
        /// Their squared error against persistence's.
        ratio: f32,
    },
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trust::Trusted => write!(f, "trusted"),
            Trust::NotTrusted(Distrust::Stale { age_seconds }) => {
                write!(f, "not trusted: the last value is {age_seconds} s old")
            }
            Trust::NotTrusted(Distrust::Unproven { steps, needed }) => {
                write!(f, "not trusted: errors of {steps} steps are known, {needed} are needed")
            }
            Trust::NotTrusted(Distrust::Failed { share }) => {
                write!(f, "not trusted: models with {:.0} % of the word gave no numbers", share * 100.0)
            }
            Trust::NotTrusted(Distrust::WorseThanPersistence { ratio }) => {
                write!(f, "not trusted: its squared error is {ratio:.2} times that of the last value")
            }
        }
    }
}

/// Judges a forecast of a series that is `age` seconds old, with errors known over so many steps, which were `against` those of
/// persistence; `was` is whether the series was trusted before.
pub(super) fn judge(age: i64, stale_after: i64, steps: f64, against: Option<f64>, was: bool) -> Trust {
    if age > stale_after {
        return Trust::NotTrusted(Distrust::Stale { age_seconds: age });
    }
    match against.filter(|_| steps >= PROVEN) {
        None => Trust::NotTrusted(Distrust::Unproven { steps: steps as u32, needed: PROVEN as u32 }),
        Some(ratio) if ratio <= if was { LOST } else { REGAINED } => Trust::Trusted,
        Some(ratio) => Trust::NotTrusted(Distrust::WorseThanPersistence { ratio: ratio as f32 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_by_age_proof_and_error() {
        let check = |age, steps, against, was, expected: &str| {
            assert_eq!(judge(age, 300, steps, against, was).to_string(), expected);
        };
        check(60, 500.0, Some(0.8), false, "trusted");
        check(301, 500.0, Some(0.8), true, "not trusted: the last value is 301 s old");
        check(60, 119.0, Some(0.8), true, "not trusted: errors of 119 steps are known, 120 are needed");
        check(60, 500.0, None, true, "not trusted: errors of 500 steps are known, 120 are needed");
        check(60, 500.0, Some(1.04), true, "trusted");
        let worse = "not trusted: its squared error is 1.04 times that of the last value";
        check(60, 500.0, Some(1.04), false, worse);
        check(
            60,
            500.0,
            Some(1.06),
            true,
            "not trusted: its squared error is 1.06 times that of the last value",
        );
        check(
            60,
            500.0,
            Some(f64::NAN),
            true,
            "not trusted: its squared error is NaN times that of the last value",
        );
    }
}
