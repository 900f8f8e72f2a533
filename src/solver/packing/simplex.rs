//! The simplex method for programs whose columns form sets (generalised upper bounding, Dantzig and Van Slyke 1967), for an
//! objective in parts.
//!
//! Each set has a *key* column that makes up the set's count, so a basis needs a row for each row of the program only, however
//! many sets there are. What leaves for a key costs next to nothing: with thousands of classes and a dozen profiles nearly all
//! pivots are of that kind, and a sweep over the sets does many of them at the same prices.
//!
//! The parts are maximised one after the other. After each, columns and slacks whose reduced cost says that they would worsen
//! it are closed, so that the next part moves on the face of optima of all earlier ones, and no part ever becomes a huge
//! coefficient.
//!
//! Invariant: the point is always feasible once it has been, and the same program gives the same point: ties are broken by
//! position. Numbers are small integers, the inverse is computed anew from time to time, and whatever uses the result checks it
//! in integers; so a tolerance decides how good an answer is, never whether it is right.

use super::inverse::inverse;
use super::program::{Program, Row, Sum};

/// Below this a reduced cost or a direction counts as zero; relative to the largest worth of the part.
const TOLERANCE: f64 = 1e-9;

/// Exchanges without progress after which the lowest position is preferred to the steepest gain, which cannot cycle.
const PATIENCE: u32 = 64;

/// Exchanges after which the inverse is computed anew, so that rounding errors do not grow.
const REFACTOR: u32 = 50;

/// The optimum of the relaxed program.
#[derive(Clone, Debug)]
pub(super) struct Relaxation {
    /// (column, amount) where the amount is not zero, by column.
    pub amounts: Vec<(usize, f64)>,
    /// By part and row: what one more unit of the row's bound costs.
    pub prices: Vec<Vec<f64>>,
    /// By part.
    pub values: Vec<f64>,
    /// By set: its key column, from which the next program can start.
    pub keys: Vec<usize>,
}

/// What came of a relaxation.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The optimum; or, if the pivots ran out, the best point until then with the prices it had, from which a bound can be made
    /// all the same.
    Optimal(Relaxation),
    /// No point is feasible, which these prices of the rows prove.
    Infeasible(Vec<f64>),
    /// The pivots ran out before any point was feasible, or a basis could not be factored.
    Lost,
}

/// Solves the relaxation from a column of each set, its `keys`, with nothing else chosen; each pivot takes one from `pivots`.
pub(super) fn relax(program: &Program, keys: Vec<usize>, pivots: &mut u32) -> Outcome {
    let mut simplex = Simplex::new(program, keys);
    if simplex.infeasible() {
        if simplex.maximise(Part::Feasibility, pivots).is_none() {
            return Outcome::Lost;
        }
        if simplex.infeasible() {
            return Outcome::Infeasible(simplex.prices(Part::Feasibility));
        }
    }
    let mut prices = Vec::new();
    for part in 0..program.matrix.parts {
        if simplex.maximise(Part::Worth(part), pivots).is_none() {
            return Outcome::Lost;
        }
        prices.push(simplex.prices(Part::Worth(part)));
        simplex.close(part, &prices[part]);
    }
    Outcome::Optimal(simplex.result(prices))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Minus the sum of the artificial variables.
    Feasibility,
    Worth(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variable {
    Column(usize),
    /// What a row has above its bound.
    Slack(usize),
    /// What a row lacks; always zero in a feasible point.
    Artificial(usize),
}

/// What blocks an entering variable first.
#[derive(Clone, Copy)]
enum Blocking {
    Basic(usize),
    Key(usize),
}

struct Simplex<'p> {
    program: &'p Program<'p>,
    /// Rows with coefficients in the matrix; they come first.
    matrix_rows: usize,
    keys: Vec<usize>,
    /// By position: the variables that are neither keys nor zero.
    basis: Vec<Variable>,
    /// By row: the bound less what the keys supply alone. Whole numbers.
    rest: Vec<f64>,
    /// By row: the coefficient of its artificial variable, which is never negative.
    lack: Vec<f64>,
    /// Inverse of the basis, by position and row.
    inverse: Vec<f64>,
    /// By position.
    amounts: Vec<f64>,
    open: Vec<bool>,
    slack_open: Vec<bool>,
    /// Exchanges since the point last moved.
    idle: u32,
    /// Exchanges in all.
    exchanges: u32,
}

impl<'p> Simplex<'p> {
    fn new(program: &'p Program<'p>, keys: Vec<usize>) -> Simplex<'p> {
        let rows = program.rows.len();
        let mut simplex = Simplex {
            program,
            matrix_rows: program.rows.iter().take_while(|row| row.sum == Sum::Matrix).count(),
            keys,
            basis: Vec::with_capacity(rows),
            rest: program.rows.iter().map(|row| row.bound as f64).collect(),
            lack: vec![1.0; rows],
            inverse: vec![0.0; rows * rows],
            amounts: vec![0.0; rows],
            open: vec![true; program.matrix.columns()],
            slack_open: program.rows.iter().map(|row| !row.equal).collect(),
            idle: 0,
            exchanges: 0,
        };
        for set in 0..program.counts.len() {
            simplex.supply(simplex.keys[set], program.counts[set]);
        }
        for (row, &Row { equal, .. }) in program.rows.iter().enumerate() {
            let rest = simplex.rest[row];
            if rest < 0.0 {
                simplex.lack[row] = -1.0;
            }
            let slack = !equal && rest <= 0.0;
            simplex.basis.push(if slack { Variable::Slack(row) } else { Variable::Artificial(row) });
            simplex.inverse[row * rows + row] = if slack { -1.0 } else { simplex.lack[row] };
            simplex.amounts[row] = rest.abs();
        }
        simplex
    }

    /// Lets `units` more of a column count as supplied by keys.
    fn supply(&mut self, column: usize, units: i64) {
        for &(row, coefficient) in self.program.matrix.coefficients(column) {
            self.rest[row] -= (units * coefficient) as f64;
        }
        for row in self.matrix_rows..self.rest.len() {
            self.rest[row] -= (units * self.program.coefficient(row, column)) as f64;
        }
    }

    fn infeasible(&self) -> bool {
        let lacking =
            self.basis.iter().zip(&self.amounts).filter(|(v, _)| matches!(v, Variable::Artificial(_)));
        lacking.map(|(_, amount)| amount).sum::<f64>() > 1e-6
    }

    /// Maximises a part over the columns and slacks that are open. `None` if a basis cannot be factored, or the pivots ran out
    /// while no point was feasible.
    fn maximise(&mut self, part: Part, pivots: &mut u32) -> Option<()> {
        loop {
            let mut prices = self.prices(part);
            let mut improved = false;
            for at in 0..self.program.counts.len() + self.rest.len() {
                let Some(entering) = self.improving(at, part, &prices) else { continue };
                if *pivots == 0 {
                    return (part != Part::Feasibility).then_some(());
                }
                *pivots -= 1;
                improved = true;
                if self.enter(entering, part)? {
                    prices = self.prices(part);
                    if self.idle > PATIENCE {
                        break;
                    }
                }
            }
            if !improved {
                return Some(());
            }
        }
    }

    /// What a unit of each row costs: the change of the part's optimum per unit of its bound, negated.
    fn prices(&self, part: Part) -> Vec<f64> {
        let rows = self.rest.len();
        let mut prices = vec![0.0; rows];
        for (position, variable) in self.basis.iter().enumerate() {
            let worth = match (*variable, part) {
                (Variable::Column(column), Part::Worth(part)) => {
                    let key = self.keys[self.program.matrix.set_of(column)];
                    let worth = |column| self.program.matrix.worth(column)[part];
                    (worth(column) - worth(key)) as f64
                }
                (Variable::Artificial(_), Part::Feasibility) => -1.0,
                _ => continue,
            };
            let inverse = &self.inverse[position * rows..(position + 1) * rows];
            prices.iter_mut().zip(inverse).for_each(|(price, inverse)| *price -= worth * inverse);
        }
        prices
    }

    /// The columns' values at these prices, for one part.
    fn valuation<'v>(&'v self, part: Part, prices: &'v [f64]) -> impl Fn(usize) -> f64 + 'v {
        let mut weights: Vec<(usize, f64)> = match part {
            Part::Worth(part) => vec![(part, 1.0)],
            Part::Feasibility => Vec::new(),
        };
        let mut single = Vec::new();
        for (row, price) in self.program.rows.iter().zip(prices).skip(self.matrix_rows) {
            match row.sum {
                Sum::Part(part) => weights.push((part, -price)),
                Sum::Column(column) => single.push((column, -price)),
                Sum::Matrix => {}
            }
        }
        move |column| {
            let worth = self.program.matrix.worth(column);
            let own: f64 = weights.iter().map(|(part, weight)| weight * worth[*part] as f64).sum();
            let coefficients = self.program.matrix.coefficients(column).iter();
            let supplied: f64 = coefficients.map(|(row, a)| prices[*row] * *a as f64).sum();
            let branch: f64 = single.iter().filter(|(other, _)| *other == column).map(|(_, p)| p).sum();
            own + supplied + branch
        }
    }

    /// What is worth entering at this place of a sweep: first the sets, then the slacks.
    fn improving(&self, at: usize, part: Part, prices: &[f64]) -> Option<Variable> {
        let tolerance = self.tolerance(part);
        let sets = self.program.counts.len();
        if at >= sets {
            let row = at - sets;
            return (self.slack_open[row] && -prices[row] > tolerance).then_some(Variable::Slack(row));
        }
        if self.program.counts[at] == 0 {
            return None;
        }
        let value = self.valuation(part, prices);
        let key = value(self.keys[at]);
        let columns = self.program.matrix.sets[at].clone().filter(|column| self.open[*column]);
        let mut better = columns.map(|column| (value(column), column)).filter(|(v, _)| v - key > tolerance);
        let first = better.next()?;
        if self.idle > PATIENCE {
            return Some(Variable::Column(first.1));
        }
        let best = better.fold(first, |best, next| if next.0 > best.0 { next } else { best });
        Some(Variable::Column(best.1))
    }

    fn tolerance(&self, part: Part) -> f64 {
        let scale = match part {
            Part::Worth(part) => self.program.matrix.scale(part).max(1),
            Part::Feasibility => 1,
        };
        TOLERANCE * scale as f64
    }

    /// Lets a variable grow until another becomes zero and takes its place. Whether the basis, and so the prices, changed.
    fn enter(&mut self, entering: Variable, part: Part) -> Option<bool> {
        let mut direction = self.direction(entering);
        let own = match entering {
            Variable::Column(column) => Some(self.program.matrix.set_of(column)),
            _ => None,
        };
        let (step, blocking) = self.blocking(own, &direction, part)?;
        self.idle = if step > 1e-9 { 0 } else { self.idle + 1 };
        let position = match blocking {
            Blocking::Basic(position) => position,
            Blocking::Key(set) => {
                let inside = (0..self.basis.len()).filter(|position| self.is_in(self.basis[*position], set));
                match (inside.min_by_key(|position| self.basis[*position]), entering) {
                    (Some(position), _) => {
                        if own == Some(set) {
                            direction[position] -= 1.0;
                        }
                        self.exchange_key(set, position, &mut direction)?;
                        position
                    }
                    (None, Variable::Column(column)) => {
                        self.change_key(set, column);
                        self.locate();
                        return Some(false);
                    }
                    // Without a basic column the key of another set cannot block.
                    (None, _) => return None,
                }
            }
        };
        self.basis[position] = entering;
        self.pivot(position, &direction)?;
        self.locate();
        Some(true)
    }

    /// Makes the basic column at `position` the key of its set, and the key the basic one. For the columns of a set the basis
    /// has their difference from the key, so that this adds the set's rows of the inverse up.
    fn exchange_key(&mut self, set: usize, position: usize, direction: &mut [f64]) -> Option<()> {
        let Variable::Column(column) = self.basis[position] else { return None };
        let rows = self.rest.len();
        let mut sum = vec![0.0; rows];
        let mut fall = 0.0;
        for other in (0..self.basis.len()).filter(|other| self.is_in(self.basis[*other], set)) {
            let inverse = &self.inverse[other * rows..(other + 1) * rows];
            sum.iter_mut().zip(inverse).for_each(|(sum, value)| *sum -= value);
            fall -= direction[other];
        }
        self.inverse[position * rows..(position + 1) * rows].copy_from_slice(&sum);
        direction[position] = fall;
        self.basis[position] = Variable::Column(self.keys[set]);
        self.change_key(set, column);
        Some(())
    }

    /// Brings the inverse up to date after the variable at `position` was replaced by one with this direction; from time to
    /// time it is computed anew.
    fn pivot(&mut self, position: usize, direction: &[f64]) -> Option<()> {
        self.exchanges += 1;
        if self.exchanges.is_multiple_of(REFACTOR) {
            let columns: Vec<_> = self.basis.iter().map(|variable| self.dense(*variable)).collect();
            self.inverse = inverse(&columns)?;
            return Some(());
        }
        let rows = self.rest.len();
        let scale = direction[position];
        let pivot: Vec<f64> =
            self.inverse[position * rows..(position + 1) * rows].iter().map(|value| value / scale).collect();
        for (at, inverse) in self.inverse.chunks_exact_mut(rows.max(1)).enumerate() {
            if at == position {
                inverse.copy_from_slice(&pivot);
            } else if direction[at] != 0.0 {
                inverse.iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= direction[at] * pivot);
            }
        }
        Some(())
    }

    /// How the amounts of the basis fall, per unit of the entering variable.
    fn direction(&self, entering: Variable) -> Vec<f64> {
        let rows = self.rest.len();
        let column = self.dense(entering);
        let inner = |inverse: &[f64]| inverse.iter().zip(&column).map(|(a, b)| a * b).sum();
        (0..rows).map(|position| inner(&self.inverse[position * rows..(position + 1) * rows])).collect()
    }

    /// How far the entering variable can grow, and what stops it. Of equal ones the largest pivot, or the lowest variable once
    /// patience is at its end. `None` if nothing stops it, which no bounded program has.
    fn blocking(&self, own: Option<usize>, direction: &[f64], part: Part) -> Option<(f64, Blocking)> {
        let mut candidates: Vec<(f64, f64, Variable, Blocking)> = Vec::new();
        let mut keys: Vec<(usize, f64, f64)> = Vec::new();
        if let Some(set) = own {
            keys.push((set, -1.0, 0.0));
        }
        for (position, (&variable, &amount)) in self.basis.iter().zip(&self.amounts).enumerate() {
            let fall = direction[position];
            let held = matches!(variable, Variable::Artificial(_)) && part != Part::Feasibility;
            if held && fall.abs() > 1e-7 {
                candidates.push((0.0, fall.abs(), variable, Blocking::Basic(position)));
            } else if fall > 1e-7 {
                candidates.push((amount.max(0.0) / fall, fall, variable, Blocking::Basic(position)));
            }
            if let Variable::Column(column) = variable {
                let set = self.program.matrix.set_of(column);
                match keys.iter_mut().find(|(other, ..)| *other == set) {
                    Some((_, rise, basic)) => (*rise, *basic) = (*rise + fall, *basic + amount),
                    None => keys.push((set, fall, amount)),
                }
            }
        }
        for (set, rise, basic) in keys {
            if rise < -1e-7 {
                let amount = (self.program.counts[set] as f64 - basic).max(0.0);
                let key = Variable::Column(self.keys[set]);
                candidates.push((amount / -rise, -rise, key, Blocking::Key(set)));
            }
        }
        let step = candidates.iter().map(|(step, ..)| *step).min_by(f64::total_cmp)?;
        let close = candidates.iter().filter(|(other, ..)| *other <= step + 1e-9 * (1.0 + step));
        let chosen = if self.idle > PATIENCE {
            close.min_by_key(|(_, _, variable, _)| *variable)
        } else {
            close.max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.2.cmp(&a.2)))
        };
        chosen.map(|(_, _, _, blocking)| (step, *blocking))
    }

    fn is_in(&self, variable: Variable, set: usize) -> bool {
        matches!(variable, Variable::Column(column) if self.program.matrix.set_of(column) == set)
    }

    fn change_key(&mut self, set: usize, column: usize) {
        let count = self.program.counts[set];
        self.supply(self.keys[set], -count);
        self.supply(column, count);
        self.keys[set] = column;
    }

    /// A variable's coefficients by row, a column's less those of its set's key.
    fn dense(&self, variable: Variable) -> Vec<f64> {
        let mut dense = vec![0.0; self.rest.len()];
        let mut add = |column: usize, sign: f64| {
            for &(row, coefficient) in self.program.matrix.coefficients(column) {
                dense[row] += sign * coefficient as f64;
            }
            for (row, value) in dense.iter_mut().enumerate().skip(self.matrix_rows) {
                *value += sign * self.program.coefficient(row, column) as f64;
            }
        };
        match variable {
            Variable::Column(column) => {
                add(column, 1.0);
                add(self.keys[self.program.matrix.set_of(column)], -1.0);
            }
            Variable::Slack(row) => dense[row] = -1.0,
            Variable::Artificial(row) => dense[row] = self.lack[row],
        }
        dense
    }

    /// Computes the amounts of the basis from what the keys leave.
    fn locate(&mut self) {
        let rows = self.rest.len();
        for position in 0..rows {
            let inverse = &self.inverse[position * rows..(position + 1) * rows];
            self.amounts[position] = inverse.iter().zip(&self.rest).map(|(a, b)| a * b).sum();
        }
    }

    /// Closes what would worsen a part that has been maximised.
    fn close(&mut self, part: usize, prices: &[f64]) {
        let tolerance = 100.0 * self.tolerance(Part::Worth(part));
        let mut closed = Vec::new();
        let value = self.valuation(Part::Worth(part), prices);
        for (set, columns) in self.program.matrix.sets.iter().enumerate() {
            if self.program.counts[set] > 0 {
                let key = value(self.keys[set]);
                closed.extend(columns.clone().filter(|column| key - value(*column) > tolerance));
            }
        }
        drop(value);
        closed.into_iter().for_each(|column| self.open[column] = false);
        for (open, price) in self.slack_open.iter_mut().zip(prices) {
            *open &= *price <= tolerance;
        }
    }

    fn result(self, prices: Vec<Vec<f64>>) -> Relaxation {
        let mut by_set: Vec<f64> = self.program.counts.iter().map(|count| *count as f64).collect();
        let mut amounts = Vec::new();
        for (variable, amount) in self.basis.iter().zip(&self.amounts) {
            if let Variable::Column(column) = *variable {
                by_set[self.program.matrix.set_of(column)] -= amount;
                amounts.push((column, *amount));
            }
        }
        amounts.extend(self.keys.iter().copied().zip(by_set));
        amounts.retain(|(_, amount)| *amount > 1e-9);
        amounts.sort_by_key(|(column, _)| *column);
        let sum = |part: usize| {
            amounts
                .iter()
                .map(|(column, amount)| amount * self.program.matrix.worth(*column)[part] as f64)
                .sum()
        };
        let values = (0..self.program.matrix.parts).map(sum).collect();
        Relaxation { amounts, prices, values, keys: self.keys }
    }
}

#[cfg(test)]
mod tests;
