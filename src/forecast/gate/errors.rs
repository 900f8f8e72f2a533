//! Recent errors of all models, and the weights that would have served best.

use serde::{Deserialize, Serialize};

/// Where even the best model erred so many times its usual squared error, nobody could foresee what came: the window counts with
/// less weight, so that one jump does not drown days of better knowledge. A spike that only some could not follow counts in full.
const LARGEST: f64 = 25.0;

/// A model that errs farther than this many times persistence counts in its group as if it erred just so far: how useless it is on
/// one series says nothing about the others.
const WORST: f64 = 2.0;

/// By how much more a model's squared errors count than those of the next simpler one.
const COMPLEXITY: f64 = 0.005;

/// Pull towards equal weights, as a share of the best model's squared error: of models that say nearly the same none gets all of the
/// word by chance. The worst ones have no part in it, or they would drown what tells the good ones apart.
const RIDGE: f64 = 0.01;

/// Rounds of the search for weights: each moves weight between two models, so that some dozens settle nine of them.
const ROUNDS: usize = 60;

/// Averages over recent forecasts, weighted by the steps they stand for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Errors {
    models: usize,
    /// Steps known, at most the memory's length.
    steps: f64,
    /// `[models, models]` mean products of errors, then the blend's mean squared error.
    products: Vec<f64>,
}

/// Products of the models' errors on one window, averaged over its steps, and last the blend's squared error: the layout of
/// [`Errors`]. The first is persistence's squared error. A model without numbers counts as persistence with an error of its own
/// on top that nothing makes up for, so that every blend is better off with persistence in its place.
pub(super) fn products(means: &[f32], blend: &[f32], targets: &[f32], models: usize) -> Vec<f64> {
    let horizon = targets.len();
    let error = |mean: f32, target: f32| f64::from(mean) - f64::from(target);
    let errors: Vec<f64> =
        means.iter().enumerate().map(|(at, &mean)| error(mean, targets[at % horizon])).collect();
    let failed = |row: &[f64]| row.iter().any(|error| !error.is_finite());
    let rows: Vec<&[f64]> =
        errors.chunks(horizon).map(|row| if failed(row) { &errors[..horizon] } else { row }).collect();
    let product = |left: &[f64], right: &[f64]| {
        left.iter().zip(right).map(|(left, right)| left * right).sum::<f64>() / horizon as f64
    };
    let mut products = Vec::with_capacity(models * models + 1);
    for left in &rows {
        products.extend(rows.iter().map(|right| product(left, right)));
    }
    for (at, row) in errors.chunks(horizon).enumerate() {
        products[at * models + at] *= if failed(row) { 5.0 } else { 1.0 };
    }
    let blend: Vec<f64> = blend.iter().zip(targets).map(|(&mean, &target)| error(mean, target)).collect();
    products.push(product(&blend, &blend));
    products
}

impl Errors {
    pub(super) fn new(models: usize) -> Errors {
        Errors { models, steps: 0.0, products: vec![0.0; models * models + 1] }
    }

    /// Whether this is the errors of so many models, and nothing but numbers.
    pub(super) fn is_sound(&self, models: usize) -> bool {
        self.models == models
            && self.products.len() == models * models + 1
            && self.steps >= 0.0
            && self.products.iter().chain([&self.steps]).all(|value| value.is_finite())
    }

    /// Steps known.
    pub(super) fn steps(&self) -> f64 {
        self.steps
    }

    /// Persistence's mean squared error.
    pub(super) fn persistence(&self) -> Option<f64> {
        (self.steps > 0.0).then(|| self.products[0])
    }

    /// The blend's mean squared error.
    pub(super) fn blend_error(&self) -> Option<f64> {
        (self.steps > 0.0).then(|| self.products[self.models * self.models])
    }

    /// The blend's squared error against persistence's; one for a series that does not move.
    pub(super) fn against_persistence(&self) -> Option<f64> {
        let (blend, persistence) = (self.blend_error()?, self.persistence()?);
        Some(if persistence > 0.0 { blend / persistence } else { 1.0 })
    }

    /// Adds one window's products, which stand for `elapsed` steps.
    pub(super) fn learn(&mut self, products: &[f64], elapsed: f64, memory: f64) {
        if products.iter().any(|product| !product.is_finite()) {
            return;
        }
        let least = |table: &[f64]| {
            (0..self.models).map(|at| table[at * self.models + at]).fold(f64::INFINITY, f64::min)
        };
        let (usual, now) = (least(&self.products), least(products));
        let rare = self.steps > 0.0 && usual > 0.0 && now > LARGEST * usual;
        let counts = if rare { LARGEST * usual / now } else { 1.0 };
        self.steps = (self.steps + elapsed).min(memory);
        let gain = (elapsed * counts / self.steps).min(1.0);
        self.products.iter_mut().zip(products).for_each(|(mean, product)| *mean += gain * (product - *mean));
    }

    /// Each model's factor that makes its errors at most [`WORST`] times persistence's, as they have been so far.
    pub(super) fn damping(&self) -> Vec<f64> {
        let worst = WORST * WORST * self.products[0];
        let factor = |at: usize| {
            let own = self.products[at * self.models + at];
            if worst > 0.0 && own > worst { (worst / own).sqrt() } else { 1.0 }
        };
        (0..self.models).map(factor).collect()
    }

    /// These errors in units of their own persistence, together with a group's that count as `prior` steps.
    pub(super) fn with_prior(&self, group: &Errors, prior: f64) -> Errors {
        let unit = self.persistence().filter(|unit| *unit > 0.0);
        let (own, steps) = match unit {
            Some(unit) => (1.0 / unit, self.steps),
            None => (0.0, 0.0),
        };
        let group_unit = group.persistence().filter(|unit| *unit > 0.0).unwrap_or(1.0);
        let prior = prior.min(group.steps);
        let total = steps + prior;
        let mix = |(own_product, group_product): (&f64, &f64)| {
            let sum = steps * own * own_product + prior * group_product / group_unit;
            if total > 0.0 { sum / total } else { 0.0 }
        };
        let products = self.products.iter().zip(&group.products).map(mix).collect();
        Errors { models: self.models, steps: total, products }
    }
}

/// Weights that are not negative, sum to one and minimise the squared error of the blend; found by moving weight between pairs of
/// models, from `start`.
pub(super) fn lightest(errors: &Errors, start: &[f64]) -> Vec<f64> {
    let models = errors.models;
    let mut table = errors.products[..models * models].to_vec();
    let own = |table: &[f64], at: usize| table[at * models + at];
    if table.iter().any(|product| !product.is_finite()) || (0..models).all(|at| own(&table, at) <= 0.0) {
        return start.to_vec();
    }
    let level = (0..models).map(|at| own(&table, at)).fold(f64::INFINITY, f64::min);
    for at in 0..models {
        table[at * models + at] += COMPLEXITY * at as f64 * own(&table, at) + RIDGE * level;
    }
    let mut weights = start.to_vec();
    for _ in 0..ROUNDS {
        let row = |at: usize| &table[at * models..(at + 1) * models];
        let slope =
            |at: usize| row(at).iter().zip(&weights).map(|(product, weight)| product * weight).sum::<f64>();
        let slopes: Vec<f64> = (0..models).map(slope).collect();
        let by_slope = |a: &usize, b: &usize| slopes[*a].total_cmp(&slopes[*b]);
        let down = (0..models).min_by(by_slope);
        let up = (0..models).filter(|&at| weights[at] > 0.0).max_by(by_slope);
        let (Some(down), Some(up)) = (down, up) else { break };
        let bend = row(up)[up] + row(down)[down] - 2.0 * row(up)[down];
        if slopes[up] - slopes[down] <= 1e-6 * slopes[up] || bend <= 0.0 {
            break;
        }
        let moved = ((slopes[up] - slopes[down]) / bend).min(weights[up]);
        weights[up] -= moved;
        weights[down] += moved;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(models: usize, table: &[f64]) -> Errors {
        Errors { models, steps: 100.0, products: [table, &[0.0]].concat() }
    }

    #[track_caller]
    fn check(models: usize, table: &[f64], expected: &[f64]) {
        let mut start = vec![0.0; models];
        start[0] = 1.0;
        let found = lightest(&errors(models, table), &start);
        let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.03);
        assert!(near && (found.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn weights_are_those_of_the_least_error() {
        check(2, &[1.0, 0.0, 0.0, 1.0], &[0.5, 0.5]);
        check(2, &[1.0, 0.0, 0.0, 0.25], &[0.2, 0.8]);
        // The second does what the first does, only worse.
        check(2, &[1.0, 1.2, 1.2, 1.5], &[1.0, 0.0]);
        check(3, &[4.0, 0.0, 0.0, 0.0, 1.0, 0.9, 0.0, 0.9, 1.0], &[0.19, 0.41, 0.40]);
        check(2, &[0.0; 4], &[1.0, 0.0]);
        check(2, &[f64::NAN; 4], &[1.0, 0.0]);
    }

    #[test]
    fn at_like_errors_the_simpler_has_the_word() {
        let found = lightest(&errors(2, &[1.0, 0.999, 0.999, 1.0]), &[0.5, 0.5]);
        assert!(found[0] > found[1], "{found:?}");
    }

    #[test]
    fn one_jump_does_not_drown_the_rest_unless_others_saw_it() {
        let mut errors = Errors::new(2);
        for _ in 0..100 {
            errors.learn(&[1.0, 0.5, 0.5, 0.5, 0.4], 1.0, 1_000.0);
        }
        errors.learn(&[1e6, 1e6, 1e6, 1e6, 1e6], 1.0, 1_000.0);
        assert!(errors.persistence().unwrap() < 2.0, "{errors:?}");
        let mut seen = errors.clone();
        seen.learn(&[100.0, 5.0, 5.0, 0.5, 5.0], 1.0, 1_000.0);
        assert!(seen.persistence().unwrap() > errors.persistence().unwrap() + 0.9, "{seen:?}");
        errors.learn(&[f64::NAN, 0.0, 0.0, 0.0, 0.0], 1.0, 1_000.0);
        assert!(errors.is_sound(2) && !errors.is_sound(3));
    }

    #[test]
    fn a_new_series_follows_its_group() {
        let mut group = Errors::new(2);
        group.learn(&[2.0, 0.0, 0.0, 1.0, 1.0], 1_000.0, 1_000.0);
        let own = Errors::new(2);
        let mixed = own.with_prior(&group, 100.0);
        assert_eq!((mixed.steps(), mixed.against_persistence()), (100.0, Some(0.5)));
    }
}
