//! Least squares by normal equations.

/// Symmetric normal equations of several targets that share their features: `gram · weights = moments`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Normal {
    /// Features.
    width: usize,
    /// Targets.
    targets: usize,
    /// Observations, weighted.
    pub(super) count: f64,
    /// `[width, width]`, row-major; the lower triangle alone is kept up.
    gram: Vec<f64>,
    /// `[targets, width]`.
    moments: Vec<f64>,
}

impl Normal {
    pub(super) fn new(width: usize, targets: usize) -> Normal {
        let (gram, moments) = (vec![0.0; width * width], vec![0.0; targets * width]);
        Normal { width, targets, count: 0.0, gram, moments }
    }

    /// Adds one observation.
    pub(super) fn add(&mut self, features: &[f64], targets: &[f64]) {
        self.count += 1.0;
        for (row, &feature) in features.iter().enumerate() {
            let gram = &mut self.gram[row * self.width..=row * self.width + row];
            gram.iter_mut().zip(features).for_each(|(sum, &other)| *sum += feature * other);
        }
        for (moments, &target) in self.moments.chunks_mut(self.width).zip(targets) {
            moments.iter_mut().zip(features).for_each(|(sum, &feature)| *sum += feature * target);
        }
    }

    /// Adds other equations, `factor` times.
    pub(super) fn add_scaled(&mut self, other: &Normal, factor: f64) {
        self.count += factor * other.count;
        self.gram.iter_mut().zip(&other.gram).for_each(|(sum, &more)| *sum += factor * more);
        self.moments.iter_mut().zip(&other.moments).for_each(|(sum, &more)| *sum += factor * more);
    }

    /// Sum of the squared features.
    pub(super) fn trace(&self) -> f64 {
        (0..self.width).map(|at| self.gram[at * self.width + at]).sum()
    }

    /// The weights, `[targets, width]`, shrunk towards zero by `ridge` times the mean square of a feature; zero where the
    /// equations have no solution.
    pub(super) fn solve(&self, ridge: f64) -> Vec<f64> {
        let mut gram = self.gram.clone();
        let added = (ridge * self.trace() / self.width as f64).max(f64::MIN_POSITIVE);
        (0..self.width).for_each(|at| gram[at * self.width + at] += added);
        let mut weights = self.moments.clone();
        let solved = factor(&mut gram, self.width);
        for target in weights.chunks_mut(self.width) {
            if solved {
                substitute(&gram, target);
            }
            if !solved || target.iter().any(|weight| !weight.is_finite()) {
                target.fill(0.0);
            }
        }
        debug_assert_eq!(weights.len(), self.targets * self.width);
        weights
    }
}

/// Cholesky factor of a symmetric matrix in place of its lower triangle; whether there is one.
pub(super) fn factor(matrix: &mut [f64], width: usize) -> bool {
    for row in 0..width {
        for column in 0..=row {
            let mut sum = matrix[row * width + column];
            for inner in 0..column {
                sum -= matrix[row * width + inner] * matrix[column * width + inner];
            }
            if row == column {
                if sum.is_nan() || sum <= 0.0 {
                    return false;
                }
                matrix[row * width + row] = sum.sqrt();
            } else {
                matrix[row * width + column] = sum / matrix[column * width + column];
            }
        }
    }
    true
}

/// Solves for one right-hand side, in place, with the factor.
pub(super) fn substitute(factor: &[f64], side: &mut [f64]) {
    let width = side.len();
    for row in 0..width {
        let done: f64 = (0..row).map(|column| factor[row * width + column] * side[column]).sum();
        side[row] = (side[row] - done) / factor[row * width + row];
    }
    for row in (0..width).rev() {
        let done: f64 = (row + 1..width).map(|below| factor[below * width + row] * side[below]).sum();
        side[row] = (side[row] - done) / factor[row * width + row];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_is_found() {
        let mut normal = Normal::new(2, 1);
        for (x, y) in [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (2.0, -1.0)] {
            normal.add(&[x, y], &[3.0 * x - 2.0 * y]);
        }
        let weights = normal.solve(1e-12);
        assert!((weights[0] - 3.0).abs() < 1e-6 && (weights[1] + 2.0).abs() < 1e-6, "{weights:?}");
    }

    #[test]
    fn nothing_known_gives_zero() {
        assert_eq!(Normal::new(2, 2).solve(1e-3), [0.0; 4]);
        let mut normal = Normal::new(1, 1);
        normal.add(&[f64::NAN], &[1.0]);
        assert_eq!(normal.solve(1e-3), [0.0]);
    }
}
