//! MinMax scaling: what a series spans in the training data becomes 0 to 1.
//!
//! Invariant: the bounds come from the values that [`MinMax::fit`] saw and from nowhere else, so that a scaler fitted on training
//! data knows nothing of what follows. Later values may lie outside 0 to 1.

use serde::{Deserialize, Serialize};

/// The bounds of one series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MinMax {
    /// Becomes 0.
    pub low: f32,
    /// Becomes 1.
    pub high: f32,
}

impl MinMax {
    /// The bounds of the finite values; `None` when there is none, or when they are all equal and so have no scale.
    pub fn fit(values: &[f32]) -> Option<MinMax> {
        let finite = values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = finite
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        (low < high && (high - low).is_finite()).then_some(MinMax { low, high })
    }

    /// A value in units of the series' span.
    pub fn scale(self, value: f32) -> f32 {
        (value - self.low) / (self.high - self.low)
    }

    /// The inverse of [`MinMax::scale`].
    pub fn unscale(self, value: f32) -> f32 {
        value * (self.high - self.low) + self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_and_back() {
        let scaler = MinMax::fit(&[3.0, f32::NAN, -1.0, 1.0]).unwrap();
        assert_eq!((scaler.scale(-1.0), scaler.scale(3.0), scaler.scale(5.0)), (0.0, 1.0, 1.5));
        assert_eq!(scaler.unscale(scaler.scale(2.0)), 2.0);
    }

    #[test]
    fn what_has_no_span_has_no_scale() {
        for values in [&[][..], &[f32::NAN], &[4.0, 4.0], &[f32::MIN, f32::MAX]] {
            assert_eq!(MinMax::fit(values), None, "{values:?}");
        }
    }
}
