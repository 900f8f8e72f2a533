//! Durations as Kubernetes writes them in its own files: `15s`, `1m30s`, `500ms`, `1.5h`.
//!
//! Invariant: `parse(format(d)) == d` for every duration of whole nanoseconds that `parse` can return. The grammar is
//! that of Go's `time.ParseDuration` without signs, in whole numbers: no rounding by floating point.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// Units with their length in nanoseconds, the longest first as `format` writes them.
const UNITS: [(&str, u64); 8] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ns", 1),
];

/// The grammar as a pattern, for the schema.
const PATTERN: &str = r"^(0|((\d+\.?\d*|\.\d+)(h|m|s|ms|us|µs|μs|ns))+)$";

/// A duration in the wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        let mut rest = self.0.as_nanos();
        for (unit, length) in UNITS {
            let count = rest / u128::from(length);
            rest %= u128::from(length);
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// The duration that `text` spells, or None.
fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut nanos, mut rest) = parse_term(text)?;
    while !rest.is_empty() {
        let (term, after) = parse_term(rest)?;
        nanos = nanos.checked_add(term)?;
        rest = after;
    }
    Some(Duration::from_nanos(nanos))
}

/// One number with its unit in nanoseconds, and the text after it.
fn parse_term(text: &str) -> Option<(u64, &str)> {
    let in_number = |c: char| c.is_ascii_digit() || c == '.';
    let (number, rest) = text.split_at(text.find(|c| !in_number(c))?);
    let (unit, rest) = rest.split_at(rest.find(in_number).unwrap_or(rest.len()));
    let (_, length) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let nanos = digits(whole)?.checked_mul(length)?;
    Some((nanos.checked_add(parse_fraction(fraction, length)?)?, rest))
}

/// `0.fraction` of a unit in nanoseconds; what is finer than a nanosecond is cut off, as Go does.
fn parse_fraction(fraction: &str, length: u64) -> Option<u64> {
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Digits beyond the 18th are below a nanosecond even of an hour, and 10^18 × 3.6 × 10^12 fits a u128.
    let used = &fraction[..fraction.len().min(18)];
    let scale = 10_u128.pow(used.len() as u32);
    u64::try_from(u128::from(digits(used)?) * u128::from(length) / scale).ok()
}

/// A run of decimal digits as a number; an absent run (`.5s`, `5.s`) is zero.
fn digits(text: &str) -> Option<u64> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

/// Takes a string and nothing else: a bare `15` has no unit, and guessing one would be off by a factor of 10^9.
struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a duration; write for example "15s" or "1m30s""#)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        parse(text).map(GoDuration).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration: numbers with the units h, m, s, ms, us or ns, such as \"1m30s\".",
            "pattern": PATTERN,
        })
    }
}
