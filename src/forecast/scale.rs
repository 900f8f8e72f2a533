//! MinMax scaling: what a series spans in the training data becomes 0 to 1.
//!
//! Invariant: the bounds come from the values that [`MinMax::fit`] saw and from nowhere else, so that a scaler fitted on training
//! data knows nothing of what follows. Later values may lie outside 0 to 1.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Series, SeriesKey};

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

/// Series in units of their own span, and how to get back.
#[derive(Clone, Debug)]
pub struct Scaled {
    /// Those that have a scale, in their order.
    pub series: Arc<[Series]>,
    /// The scaler of each.
    pub scalers: BTreeMap<SeriesKey, MinMax>,
    /// Those that are constant in the training data, or unknown there.
    pub without_scale: Vec<SeriesKey>,
}

impl Scaled {
    /// Scales each series by what its first `share` (0 to 1) spans. Pieces of one key, which a layout change left, are scaled by
    /// the first.
    pub fn by_training(series: &[Series], share: f64) -> Scaled {
        let mut scaled = Vec::new();
        let mut scalers: BTreeMap<SeriesKey, MinMax> = BTreeMap::new();
        let mut without_scale = Vec::new();
        for piece in series {
            let training = (piece.values.len() as f64 * share.clamp(0.0, 1.0)) as usize;
            let known = scalers.get(&piece.key).copied();
            let Some(scaler) = known.or_else(|| MinMax::fit(&piece.values[..training])) else {
                without_scale.push(piece.key.clone());
                continue;
            };
            scalers.insert(piece.key.clone(), scaler);
            let values = piece.values.iter().map(|&value| scaler.scale(value)).collect();
            scaled.push(Series { values, ..piece.clone() });
        }
        Scaled { series: scaled.into(), scalers, without_scale }
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

    #[test]
    fn the_scale_is_that_of_the_training_part() {
        let of = |name: &str, values: &[f32]| Series {
            key: SeriesKey::new("g", name),
            start: 0,
            step_seconds: 60,
            values: values.to_vec(),
        };
        let all = [of("a", &[0.0, 2.0, 8.0, 9.0]), of("flat", &[1.0, 1.0, 5.0, 7.0])];
        let scaled = Scaled::by_training(&all, 0.5);
        assert_eq!(scaled.series[0].values, [0.0, 1.0, 4.0, 4.5]);
        assert_eq!((scaled.series.len(), scaled.without_scale), (1, vec![SeriesKey::new("g", "flat")]));
    }
}
