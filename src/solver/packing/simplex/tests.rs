//! The simplex against another solver, and from any start.

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, default_solver, variable};

use super::super::bound::limit;
use super::super::program::Matrix;
use super::*;
use crate::fixture::chance;

/// A random program whose first columns do nothing.
fn some_matrix(next: &mut impl FnMut(u64) -> u64, rows: usize) -> Matrix {
    let mut matrix = Matrix::new(2);
    for _ in 0..1 + next(6) {
        matrix.add_column([], [0, 0]);
        for _ in 0..1 + next(8) {
            let mut coefficients: Vec<(usize, i64)> =
                (0..rows).map(|row| (row, next(5) as i64 - 2)).collect();
            coefficients.retain(|(_, coefficient)| *coefficient != 0);
            matrix.add_column(coefficients, [next(10) as i64 - 3, next(100) as i64 - 50]);
        }
        matrix.close_set();
    }
    matrix
}

/// The optimum of one part by another solver, earlier parts held at their values.
fn reference(program: &Program, part: usize, earlier: &[f64]) -> f64 {
    let mut variables = ProblemVariables::new();
    let columns: Vec<_> = (0..program.matrix.columns()).map(|_| variables.add(variable().min(0.0))).collect();
    let sum = |coefficient: &dyn Fn(usize) -> f64| -> Expression {
        columns.iter().enumerate().map(|(column, x)| coefficient(column) * *x).sum()
    };
    let worth = |part: usize| sum(&|column| program.matrix.worth(column)[part] as f64);
    let mut model = variables.maximise(worth(part)).using(default_solver);
    for (columns, count) in program.matrix.sets.iter().zip(&program.counts) {
        let inside = sum(&|column| f64::from(u8::from(columns.contains(&column))));
        model = model.with(inside.eq(*count as f64));
    }
    for (row, Row { bound, equal, .. }) in program.rows.iter().enumerate() {
        let value = sum(&|column| program.coefficient(row, column) as f64);
        let bound = *bound as f64;
        model = model.with(if *equal { value.eq(bound) } else { value.geq(bound) });
    }
    for (part, value) in earlier.iter().enumerate() {
        model = model.with(worth(part).geq(value - 1e-7));
    }
    model.solve().unwrap().eval(worth(part))
}

/// Both parts of 300 random programs against another solver, and their bounds in integers.
#[test]
fn the_optimum_is_that_of_another_solver() {
    let mut next = chance(31);
    for round in 0..300 {
        let rows = 1 + next(4) as usize;
        let matrix = some_matrix(&mut next, rows);
        let row = |_| Row { sum: Sum::Matrix, bound: -(next(6) as i64), equal: false };
        let mut rows: Vec<Row> = (0..rows).map(row).collect();
        if next(2) == 0 {
            rows[0] = Row { bound: 0, equal: true, ..rows[0] };
        }
        let program =
            Program { counts: matrix.sets.iter().map(|_| next(9) as i64).collect(), rows, matrix: &matrix };
        let keys = matrix.sets.iter().map(|columns| columns.start).collect();
        let Outcome::Optimal(found) = relax(&program, keys, &mut 10_000) else { panic!("round {round}") };
        for part in 0..2 {
            let expected = reference(&program, part, &found.values[..part]);
            assert!((found.values[part] - expected).abs() < 1e-4, "round {round}: {found:?}, not {expected}");
        }
        let first = limit(&program, 0, &found.prices[..1], &[], found.values[0]);
        assert_eq!(first, (found.values[0] + 1e-6).floor() as i64, "round {round}");
    }
}

/// From keys that break the rows a feasible point is found, or proven not to exist.
#[test]
fn any_keys_are_a_start() {
    let mut next = chance(37);
    let mut infeasible = 0;
    for round in 0..300 {
        let matrix = some_matrix(&mut next, 3);
        let row = |_| Row { sum: Sum::Matrix, bound: next(12) as i64 - 4, equal: next(2) == 0 };
        let rows: Vec<Row> = (0..3).map(row).collect();
        let counts = matrix.sets.iter().map(|_| next(4) as i64).collect();
        let program = Program { matrix: &matrix, counts, rows };
        let first: Vec<usize> = matrix.sets.iter().map(|columns| columns.start).collect();
        let last: Vec<usize> = matrix.sets.iter().map(|columns| columns.end - 1).collect();
        match (relax(&program, first, &mut 10_000), relax(&program, last, &mut 10_000)) {
            (Outcome::Optimal(a), Outcome::Optimal(b)) => {
                assert!((a.values[0] - b.values[0]).abs() < 1e-6, "round {round}: {a:?} {b:?}");
            }
            (Outcome::Infeasible(a), Outcome::Infeasible(b)) => {
                infeasible += 1;
                assert!(super::super::bound::impossible(&program, &a), "round {round}");
                assert!(super::super::bound::impossible(&program, &b), "round {round}");
            }
            (a, b) => panic!("round {round}: {a:?} {b:?}"),
        }
    }
    assert!((50..250).contains(&infeasible), "{infeasible} of 300: hardly a test");
}
