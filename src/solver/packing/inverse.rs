//! The inverse of a small dense matrix.

/// A pivot below this counts as zero; the entries are small whole numbers.
const SINGULAR: f64 = 1e-10;

/// The inverse, row by row, of the square matrix with these columns, by elimination with the largest pivot of each column;
/// `None` if the matrix is singular.
pub(super) fn inverse(columns: &[Vec<f64>]) -> Option<Vec<f64>> {
    let size = columns.len();
    let width = 2 * size;
    // By row: the matrix beside the unit matrix.
    let mut work = vec![0.0; size * width];
    for (at, column) in columns.iter().enumerate() {
        for (row, value) in column.iter().enumerate() {
            work[row * width + at] = *value;
        }
        work[at * width + size + at] = 1.0;
    }
    for at in 0..size {
        let magnitude = |row: usize| work[row * width + at].abs();
        let pivot = (at..size).max_by(|a, b| magnitude(*a).total_cmp(&magnitude(*b)).then(b.cmp(a)))?;
        if magnitude(pivot) < SINGULAR {
            return None;
        }
        (0..width).for_each(|column| work.swap(at * width + column, pivot * width + column));
        let scale = work[at * width + at];
        work[at * width..(at + 1) * width].iter_mut().for_each(|value| *value /= scale);
        let pivot_row = work[at * width..(at + 1) * width].to_vec();
        for row in (0..size).filter(|row| *row != at) {
            let factor = work[row * width + at];
            if factor != 0.0 {
                let target = &mut work[row * width..(row + 1) * width];
                target.iter_mut().zip(&pivot_row).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
    Some(work.chunks_exact(width.max(1)).flat_map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::chance;

    #[test]
    fn the_inverse_times_the_matrix_is_one() {
        let mut next = chance(41);
        let mut regular = 0;
        for _ in 0..500 {
            let size = next(8) as usize;
            let columns: Vec<Vec<f64>> =
                (0..size).map(|_| (0..size).map(|_| next(7) as f64 - 3.0).collect()).collect();
            let Some(inverse) = inverse(&columns) else { continue };
            regular += 1;
            for (row, inverse) in inverse.chunks_exact(size.max(1)).enumerate() {
                for (at, column) in columns.iter().enumerate() {
                    let product: f64 = inverse.iter().zip(column).map(|(a, b)| a * b).sum();
                    assert!((product - f64::from(u8::from(row == at))).abs() < 1e-8, "{columns:?}");
                }
            }
        }
        assert!((300..500).contains(&regular), "{regular} of 500 regular");
        assert_eq!(inverse(&[vec![1.0, 2.0], vec![2.0, 4.0]]), None);
    }
}
