//! The integer program as numbers: sets of columns, rows that tie them, and a worth for each part of the objective.
//!
//! ```text
//!   max lex  Σ_j worth_j x_j       s.t.  Σ_{j∈s} x_j = count_s  for each set s,   Σ_j a_rj x_j = or ≥ b_r  for each row r
//! ```
//!
//! A class of GPUs is a set, and so are the pods of one profile and priority, with the two columns "placed" and "waiting".
//! Invariant: everything is a whole number; floating point begins in the simplex and ends there.

use std::ops::Range;

/// What does not change while a program is searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Matrix {
    /// Parts of the objective.
    pub parts: usize,
    /// By set: its columns.
    pub sets: Vec<Range<usize>>,
    /// By column: where its coefficients begin; one more entry than columns.
    begins: Vec<usize>,
    /// (row, coefficient), by column.
    coefficients: Vec<(usize, i64)>,
    /// By column and part.
    worth: Vec<i64>,
    /// By column: its set.
    set_of: Vec<usize>,
    /// By part: the largest worth, by size, of any column.
    scale: Vec<i64>,
}

impl Matrix {
    pub fn new(parts: usize) -> Matrix {
        Matrix { parts, begins: vec![0], scale: vec![0; parts], ..Matrix::default() }
    }

    /// Adds a column to the set that [`close_set`](Matrix::close_set) will end: coefficients by row, worth by part.
    pub fn add_column(
        &mut self,
        coefficients: impl IntoIterator<Item = (usize, i64)>,
        worth: impl IntoIterator<Item = i64>,
    ) {
        self.coefficients.extend(coefficients);
        self.begins.push(self.coefficients.len());
        self.set_of.push(self.sets.len());
        let first = self.worth.len();
        self.worth.extend(worth);
        for (scale, worth) in self.scale.iter_mut().zip(&self.worth[first..]) {
            *scale = (*scale).max(worth.abs());
        }
    }

    /// Makes a set of the columns added since the last one.
    pub fn close_set(&mut self) {
        let first = self.sets.last().map_or(0, |columns| columns.end);
        self.sets.push(first..self.columns());
    }

    pub fn columns(&self) -> usize {
        self.begins.len() - 1
    }

    pub fn coefficients(&self, column: usize) -> &[(usize, i64)] {
        &self.coefficients[self.begins[column]..self.begins[column + 1]]
    }

    pub fn worth(&self, column: usize) -> &[i64] {
        &self.worth[column * self.parts..(column + 1) * self.parts]
    }

    pub fn set_of(&self, column: usize) -> usize {
        self.set_of[column]
    }

    /// The largest worth, by size, that a column has in this part.
    pub fn scale(&self, part: usize) -> i64 {
        self.scale[part]
    }
}

/// What a row sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    /// The coefficients that the matrix has for this row.
    Matrix,
    /// One part of the objective, negated: a row that keeps it below what is proven.
    Part(usize),
    /// One column, negated: a branch that keeps it small.
    Column(usize),
}

/// One row: `sum = bound` or `sum ≥ bound`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub sum: Sum,
    pub bound: i64,
    pub equal: bool,
}

/// A program, or what is left of one after some columns have been chosen.
#[derive(Clone, Debug)]
pub(super) struct Program<'m> {
    pub matrix: &'m Matrix,
    /// By set: how many of its columns are to be chosen.
    pub counts: Vec<i64>,
    /// Those of the matrix first.
    pub rows: Vec<Row>,
}

impl Program<'_> {
    /// Chooses `units` of a column for good.
    pub fn take(&mut self, set: usize, column: usize, units: i64) {
        self.counts[set] -= units;
        for row in 0..self.rows.len() {
            self.rows[row].bound -= units * self.coefficient(row, column);
        }
    }

    pub fn coefficient(&self, row: usize, column: usize) -> i64 {
        match self.rows[row].sum {
            Sum::Matrix => {
                let found = self.matrix.coefficients(column).iter().find(|(at, _)| *at == row);
                found.map_or(0, |(_, coefficient)| *coefficient)
            }
            Sum::Part(part) => -self.matrix.worth(column)[part],
            Sum::Column(other) => -i64::from(other == column),
        }
    }
}
