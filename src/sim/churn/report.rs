//! Means over paired seeds, their intervals, and how policies compare on the same pods.

use serde::Serialize;

use super::clock::Outcome;

/// A mean over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % interval (Student's t); infinite for fewer than two seeds, which JSON shows as null.
    pub ci95: f64,
}

/// The mean of `values`.
pub fn estimate(values: &[f64]) -> Estimate {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let spread = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    Estimate { mean, ci95: half_width(spread, n) }
}

/// The ratio of the means of paired values; its interval by the delta method, from the residuals a − ratio · b.
pub fn ratio(values: &[f64], others: &[f64]) -> Estimate {
    let (mean, other) = (estimate(values).mean, estimate(others).mean);
    if other <= 0.0 {
        return Estimate { mean: f64::NAN, ci95: f64::NAN };
    }
    let ratio = mean / other;
    let residuals = values.iter().zip(others).map(|(a, b)| (a - ratio * b) * (a - ratio * b));
    Estimate { mean: ratio, ci95: half_width(residuals.sum(), values.len() as f64) / other }
}

/// Half of the 95 % interval of a mean of `n` values with this sum of squared deviations.
fn half_width(squares: f64, n: f64) -> f64 {
    if n < 2.0 { f64::INFINITY } else { student_t(n - 1.0) * (squares / (n - 1.0) / n).sqrt() }
}

/// The 97.5 % quantile of Student's t, by the first terms of its expansion around the normal one (within 2 % from four degrees
/// of freedom on).
fn student_t(freedom: f64) -> f64 {
    let z = 1.959_964_f64;
    let (z3, z5) = (z * z * z, z * z * z * z * z);
    z + (z3 + z) / (4.0 * freedom) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom * freedom)
}

/// One policy in one case over all seeds.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// Whether it is one of the placement rules without moves that others are compared with.
    pub greedy: bool,
    /// By seed.
    pub outcomes: Vec<Outcome>,
}

impl Row {
    /// Mean waits by seed, in mean lifetimes.
    pub fn waits(&self) -> Vec<f64> {
        self.outcomes.iter().map(Outcome::mean_wait).collect()
    }

    /// Mean waits of one profile by seed.
    pub fn waits_of(&self, profile: usize) -> Vec<f64> {
        self.outcomes.iter().map(|outcome| outcome.mean_wait_of(profile)).collect()
    }

    /// Some figure of each seed, over seeds.
    pub fn over_seeds(&self, figure: impl Fn(&Outcome) -> f64) -> Estimate {
        estimate(&self.outcomes.iter().map(figure).collect::<Vec<_>>())
    }
}

/// The greedy rule, of those that `counts` admits, that waits least on average.
pub fn best_greedy(rows: &[Row], counts: impl Fn(&str) -> bool) -> Option<&Row> {
    let greedy = rows.iter().filter(|row| row.greedy && counts(&row.policy));
    greedy.min_by(|a, b| estimate(&a.waits()).mean.total_cmp(&estimate(&b.waits()).mean))
}

/// Which part of the way from `from` to `limit` the policy goes, in mean wait.
pub fn gap_closed(row: &Row, from: &Row, limit: &Row) -> f64 {
    let mean = |row: &Row| estimate(&row.waits()).mean;
    (mean(from) - mean(row)) / (mean(from) - mean(limit))
}

/// The profiles whose pods wait longer than under `other` by more than chance explains: the 95 % interval of the paired
/// difference lies above zero.
pub fn worse_profiles(row: &Row, other: &Row) -> Vec<usize> {
    let profiles = row.outcomes.first().map_or(0, |outcome| outcome.waits.len());
    let worse = |profile: &usize| {
        let paired = row.waits_of(*profile).into_iter().zip(other.waits_of(*profile));
        let difference = estimate(&paired.map(|(a, b)| a - b).collect::<Vec<_>>());
        difference.mean > difference.ci95
    };
    (0..profiles).filter(worse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_known_samples() {
        // 1, 2, 3, 4, 5: deviation 1.5811, standard error 0.7071, t(4) = 2.776.
        let found = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((found.mean - 3.0).abs() < 1e-12 && (found.ci95 - 1.963).abs() < 0.04, "{found:?}");
        assert!((student_t(19.0) - 2.093).abs() < 0.002, "{}", student_t(19.0));
        assert!(estimate(&[1.0]).ci95.is_infinite());
    }

    #[test]
    fn what_is_proportional_has_an_exact_ratio() {
        let found = ratio(&[1.0, 2.0, 4.0], &[2.0, 4.0, 8.0]);
        assert!((found.mean - 0.5).abs() < 1e-12 && found.ci95 < 1e-12, "{found:?}");
        assert!(ratio(&[1.0], &[0.0]).mean.is_nan());
    }
}
