//! Kubernetes quantities (`100m`, `1.5`, `2Gi`, `1e3`) as whole numbers.
//!
//! Invariant: exact integer arithmetic, rounded up like Kubernetes' own `Value()` and `MilliValue()`, cut to
//! [`MAX_QUANTITY`]. A text that is no quantity, or one below zero, is an error and never a guess.

use crate::model::MAX_QUANTITY;

/// Decimal places that are looked at; the API keeps three, so nothing it sends has more.
const PLACES: usize = 15;

/// What is wrong with a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not follow the grammar.
    #[error("is not a quantity")]
    Malformed,
    /// Below zero.
    #[error("is negative")]
    Negative,
}

/// The amount in whole units.
pub fn units(text: &str) -> Result<u64, QuantityError> {
    parse(text, 0)
}

/// The amount in thousandths.
pub fn milli(text: &str) -> Result<u64, QuantityError> {
    parse(text, 3)
}

/// Reads `text` and returns it times 10^`places`, rounded up.
fn parse(text: &str, places: i32) -> Result<u64, QuantityError> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (mantissa, shift) = mantissa(number)?;
    let (binary, decimal) = exponents(suffix).ok_or(QuantityError::Malformed)?;
    match (negative, mantissa) {
        (_, 0) => Ok(0),
        (true, _) => Err(QuantityError::Negative),
        (false, _) => Ok(scale(mantissa, binary, decimal.saturating_add(places).saturating_sub(shift))),
    }
}

/// The digits of `number` without the point, and how many of them stand behind it. Places beyond [`PLACES`] round up.
fn mantissa(number: &str) -> Result<(u128, i32), QuantityError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(QuantityError::Malformed);
    }
    let fraction = fraction.trim_end_matches('0');
    let (kept, cut) = fraction.split_at(fraction.len().min(PLACES));
    let mut digits: u128 = 0;
    for digit in whole.bytes().chain(kept.bytes()) {
        digits = digits.saturating_mul(10).saturating_add(u128::from(digit - b'0'));
    }
    let round_up = u128::from(!cut.is_empty());
    Ok((digits.saturating_add(round_up), i32::try_from(kept.len()).unwrap_or(0)))
}

/// A suffix as a power of two and a power of ten.
fn exponents(suffix: &str) -> Option<(u32, i32)> {
    let decimal = |power| Some((0, power));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some((10, 0)),
        "Mi" => Some((20, 0)),
        "Gi" => Some((30, 0)),
        "Ti" => Some((40, 0)),
        "Pi" => Some((50, 0)),
        "Ei" => Some((60, 0)),
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok().and_then(decimal),
    }
}

/// `mantissa · 2^binary · 10^decimal`, rounded up and cut. What overflows 128 bits on the way is above the cut in any
/// case: at most [`PLACES`] of those 38 digits are taken away again.
fn scale(mantissa: u128, binary: u32, decimal: i32) -> u64 {
    let power = 10u128.checked_pow(decimal.unsigned_abs());
    let large = mantissa.saturating_mul(1 << binary);
    let value = match (decimal >= 0, power) {
        (true, power) => large.saturating_mul(power.unwrap_or(u128::MAX)),
        (false, Some(power)) => large.div_ceil(power),
        (false, None) => 1,
    };
    u64::try_from(value).unwrap_or(u64::MAX).min(MAX_QUANTITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        for (text, in_units, in_milli) in [
            ("0", 0, 0),
            ("-0", 0, 0),
            ("1", 1, 1000),
            ("+7", 7, 7000),
            ("100m", 1, 100),
            ("1500m", 2, 1500),
            ("1.5", 2, 1500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("0.5", 1, 500),
            ("0.1m", 1, 1),
            ("1n", 1, 1),
            ("2000000n", 1, 2),
            ("250u", 1, 1),
            ("1k", 1_000, 1_000_000),
            ("2M", 2_000_000, 2_000_000_000),
            ("1G", 1_000_000_000, 1_000_000_000_000),
            ("1e3", 1_000, 1_000_000),
            ("1E3", 1_000, 1_000_000),
            ("1.5e2", 150, 150_000),
            ("12e-1", 2, 1_200),
            ("1Ki", 1_024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("0.5Ki", 512, 512_000),
            ("2Gi", 1 << 31, (1u64 << 31) * 1000),
            ("1e-40", 1, 1),
        ] {
            assert_eq!((units(text), milli(text)), (Ok(in_units), Ok(in_milli)), "{text}");
        }
    }

    #[test]
    fn large_amounts_are_cut() {
        let digits = "9".repeat(60);
        for text in [
            "1Ei",
            "1E",
            "1e30",
            "1e2000000000",
            "9223372036854775807",
            "123456789.123456789123456789Ei",
            &digits,
        ] {
            assert_eq!((units(text), milli(text)), (Ok(MAX_QUANTITY), Ok(MAX_QUANTITY)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for text in [
            "", ".", "abc", "1.2.3", "1 Gi", "1gi", "1Kim", "--1", "1e", "1e1.5", "m", "1ki", "0x10", "NaN",
            "1µ",
        ] {
            assert_eq!(units(text), Err(QuantityError::Malformed), "{text}");
        }
        for text in ["-1", "-100m", "-0.001"] {
            assert_eq!(units(text), Err(QuantityError::Negative), "{text}");
        }
    }
}
