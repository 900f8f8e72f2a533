//! What is known of a group of series: how the models did on all of them, and how wide its quantiles have to be.

use serde::{Deserialize, Serialize};

use super::errors::Errors;

/// All of a group that has to outlive the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) errors: Errors,
    /// Factors on the distance of q10 and q90 from the median, so that they hold what they say.
    pub(super) stretch: [f64; 2],
    /// Series that are tracked.
    #[serde(skip)]
    pub(super) series: u32,
}

impl Group {
    pub(super) fn new(models: usize) -> Group {
        Group { errors: Errors::new(models), stretch: [1.0; 2], series: 0 }
    }

    /// Whether this is of so many models and can be used.
    pub(super) fn is_sound(&self, models: usize) -> bool {
        self.errors.is_sound(models) && self.stretch.iter().all(|stretch| (0.1..=10.0).contains(stretch))
    }

    /// Adds a series' products in units of that series' own recent error, so that every series counts alike.
    pub(super) fn learn(&mut self, series: &Errors, products: &[f64], elapsed: f64, memory: f64) {
        let unit = series.persistence().filter(|unit| *unit > 0.0);
        // The first errors of a series have no unit yet but themselves.
        let unit = unit.unwrap_or(products[0]);
        if unit > 0.0 {
            let damping = series.damping();
            let models = damping.len();
            let damped = |(at, product): (usize, &f64)| match at {
                // The last one is the blend's.
                at if at == models * models => product / unit,
                at => product * damping[at / models] * damping[at % models] / unit,
            };
            let scaled: Vec<f64> = products.iter().enumerate().map(damped).collect();
            self.errors.learn(&scaled, elapsed, memory);
        }
    }

    /// Widens or narrows the outer quantiles towards one target in ten beyond each.
    pub(super) fn stretch(&mut self, blend: &[Vec<f32>; 3], targets: &[f32], rate: f64) {
        const SPEED: f64 = 0.02;
        let steps = targets.len() as f64;
        let below = targets.iter().zip(&blend[1]).filter(|(target, low)| target < low).count() as f64;
        let above = targets.iter().zip(&blend[2]).filter(|(target, high)| target > high).count() as f64;
        for (stretch, beyond) in self.stretch.iter_mut().zip([below, above]) {
            *stretch = (*stretch * (1.0 + SPEED * rate * (beyond / steps - 0.1))).clamp(0.2, 5.0);
        }
    }
}
