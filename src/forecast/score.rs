//! How good forecasts were: MSE, MAE, MASE and weighted quantile loss.
//!
//! Sums are kept, so that scores of parts add up to the score of the whole whatever the order of the windows.

use serde::Serialize;

use super::{Forecasts, QUANTILES};

/// Errors of many windows, averaged over windows and steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Windows scored.
    pub windows: usize,
    /// Mean squared error of the mean, in the square of the series' unit.
    pub mse: f64,
    /// Mean absolute error of the median, in the series' unit.
    pub mae: f64,
    /// Mean absolute scaled error (Hyndman and Koehler 2006): the absolute error of the median, divided by what one-step
    /// persistence makes in that series' training data; windows of series that never move there are left out.
    pub mase: f64,
    /// Weighted quantile loss: twice the pinball loss, summed over all steps, divided by the summed magnitude of the targets,
    /// averaged over the quantiles 0.1, 0.5 and 0.9. For a perfect median alone it is the mean absolute percentage error.
    pub wql: f64,
}

/// Adds up errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scorer {
    windows: usize,
    steps: f64,
    squares: f64,
    magnitudes: f64,
    scaled: f64,
    scaled_steps: f64,
    pinball: f64,
    targets: f64,
}

impl Scorer {
    /// Adds window `at` of some forecasts. `one_step` is the mean absolute one-step change of the series' training data.
    pub fn add(&mut self, forecasts: &Forecasts, at: usize, target: &[f32], one_step: f64) {
        self.windows += 1;
        for (step, &target) in target.iter().enumerate() {
            let target = f64::from(target);
            let mean = f64::from(forecasts.mean_of(at)[step]);
            let median = f64::from(forecasts.quantile_of(1, at)[step]);
            self.steps += 1.0;
            self.squares += (target - mean).powi(2);
            self.magnitudes += (target - median).abs();
            if one_step > 0.0 {
                self.scaled += (target - median).abs() / one_step;
                self.scaled_steps += 1.0;
            }
            self.targets += target.abs();
            for (which, &quantile) in QUANTILES.iter().enumerate() {
                let over = target - f64::from(forecasts.quantile_of(which, at)[step]);
                let quantile = f64::from(quantile);
                self.pinball += 2.0 * (quantile * over).max((quantile - 1.0) * over);
            }
        }
    }

    /// The averages; zero where nothing was added.
    pub fn scores(&self) -> Scores {
        let ratio = |sum: f64, of: f64| if of > 0.0 { sum / of } else { 0.0 };
        Scores {
            windows: self.windows,
            mse: ratio(self.squares, self.steps),
            mae: ratio(self.magnitudes, self.steps),
            mase: ratio(self.scaled, self.scaled_steps),
            wql: ratio(self.pinball, self.targets) / QUANTILES.len() as f64,
        }
    }
}

/// Mean absolute change from one value to the next, over neighbours that are both known; zero without any.
pub fn one_step_change(values: &[f32]) -> f64 {
    let changes = values.windows(2).map(|pair| f64::from((pair[1] - pair[0]).abs()));
    let (sum, count) = changes
        .filter(|change| change.is_finite())
        .fold((0.0, 0.0), |(sum, count), change| (sum + change, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_by_hand() {
        let forecasts = Forecasts {
            horizon: 2,
            mean: vec![1.0, 2.0, 3.0, 4.0],
            quantiles: [vec![0.0; 4], vec![1.0, 1.0, 3.0, 3.0], vec![10.0; 4]],
        };
        let mut scorer = Scorer::default();
        scorer.add(&forecasts, 1, &[4.0, 4.0], 0.5);
        let scores = scorer.scores();
        assert_eq!((scores.windows, scores.mse, scores.mae, scores.mase), (1, 0.5, 1.0, 2.0));
        // Pinball, doubled: q10 2 x 0.1 x 4 twice, q50 1 twice, q90 2 x 0.1 x 6 twice; targets sum to 8.
        assert!((scores.wql - (1.6 + 2.0 + 2.4) / 8.0 / 3.0).abs() < 1e-6, "{scores:?}");
        assert_eq!(Scorer::default().scores(), Scores::default());
    }

    #[test]
    fn series_that_never_move_have_no_scaled_error() {
        let forecasts =
            Forecasts { horizon: 1, mean: vec![1.0], quantiles: [vec![1.0], vec![1.0], vec![1.0]] };
        let mut scorer = Scorer::default();
        scorer.add(&forecasts, 0, &[2.0], 0.0);
        assert_eq!((scorer.scores().mae, scorer.scores().mase), (1.0, 0.0));
        assert_eq!(one_step_change(&[1.0, 2.0, f32::NAN, 5.0, 8.0]), 2.0);
        assert_eq!(one_step_change(&[1.0]), 0.0);
    }
}
