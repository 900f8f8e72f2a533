//! Branch and bound, depth first: the branch that takes more of a fractional column before the one that takes less.
//!
//! On few GPUs the tree covers the whole program, and when every branch has been closed the best answer is optimal. On many
//! the relaxation's whole columns are taken first, but for a few of the sets that are fractional, and the tree covers the
//! core that is left: it finds the last pod or GPU that a dive missed, and proves nothing.
//!
//! Invariant: a branch is closed by limits in integers or by prices that prove it infeasible in integers, never because of a
//! floating-point value.

use super::bound::{impossible, limit};
use super::program::{Program, Row, Sum};
use super::search::{Effort, Found, SLACK, dive, offer, parts_to_prove, settled};
use super::simplex::{Outcome, Relaxation, relax};

/// Whole columns of each fractional set that the core chooses anew.
const CORE: i64 = 3;

/// The search over one program.
pub(super) struct Tree<'p> {
    /// The whole program.
    program: &'p Program<'p>,
    classes: usize,
    /// Columns taken before the first branch, and the program that is left.
    base: Vec<(usize, i64)>,
    core: Program<'p>,
}

/// A branch: columns taken for good, and columns kept small.
#[derive(Clone, Default)]
struct Node {
    taken: Vec<(usize, i64)>,
    small: Vec<(usize, i64)>,
}

impl<'p> Tree<'p> {
    /// A tree over all of a program whose first `classes` sets are GPUs.
    pub fn new(program: &'p Program<'p>, classes: usize) -> Tree<'p> {
        Tree { program, classes, base: Vec::new(), core: program.clone() }
    }

    /// A tree over the core of a program.
    pub fn of_core(program: &'p Program<'p>, classes: usize, relaxation: &Relaxation) -> Tree<'p> {
        let whole =
            relaxation.amounts.iter().map(|(column, amount)| (*column, (amount + SLACK).floor() as i64));
        Tree::keeping(program, classes, whole, relaxation)
    }

    /// A tree around an answer to a program that was nearly the same.
    pub fn around(
        program: &'p Program<'p>,
        classes: usize,
        before: &[(usize, i64)],
        relaxation: &Relaxation,
    ) -> Tree<'p> {
        Tree::keeping(program, classes, before.iter().copied(), relaxation)
    }

    /// Takes these columns, but for a few in the sets that are fractional.
    fn keeping(
        program: &'p Program<'p>,
        classes: usize,
        columns: impl Iterator<Item = (usize, i64)>,
        relaxation: &Relaxation,
    ) -> Tree<'p> {
        let mut tree = Tree::new(program, classes);
        let mut fractional = vec![false; program.counts.len()];
        for (column, amount) in &relaxation.amounts {
            fractional[program.matrix.set_of(*column)] |= (amount - amount.round()).abs() > SLACK;
        }
        for (column, count) in columns {
            let set = program.matrix.set_of(column);
            let free = if fractional[set] { CORE } else { 0 };
            // A class may have fewer GPUs than before.
            let whole = (count - free).min(tree.core.counts[set]);
            if set < classes && whole > 0 {
                tree.core.take(set, column, whole);
                tree.base.push((column, whole));
            }
        }
        tree
    }

    /// Looks for better answers than `found`. Whether every branch has been closed.
    pub fn search(&self, found: &mut Found, effort: &mut Effort) -> bool {
        let parts = parts_to_prove(self.program, self.classes);
        let keys = found.keys.clone();
        if !self.base.is_empty() {
            self.dive(keys.clone(), found, effort);
            if settled(found, self.program, self.classes) {
                return false;
            }
        }
        let (mut open, mut closed) = (vec![Node::default()], true);
        while let Some(node) = open.pop() {
            if effort.nodes == 0 {
                return false;
            }
            effort.nodes -= 1;
            let inner = node.restrict(&self.core);
            let relaxation = match relax(&inner, keys.clone(), &mut effort.pivots) {
                Outcome::Optimal(relaxation) => relaxation,
                Outcome::Infeasible(prices) if impossible(&inner, &prices) => continue,
                _ => return false,
            };
            let limits = self.limits(&node, &inner, &relaxation, parts);
            if limits[..] <= found.parts[..parts] {
                continue;
            }
            match self.most_fractional(&relaxation) {
                Some((column, amount)) => open.extend(node.divide(column, amount)),
                None => {
                    offer(self.program, self.classes, self.units(&node, &relaxation), found);
                    if settled(found, self.program, self.classes) {
                        return false;
                    }
                    // Such a point is the best of its branch, but only the limits are proof of it.
                    closed &= limits[..] <= found.parts[..parts];
                }
            }
        }
        closed
    }

    /// Rounds the core's own relaxation.
    fn dive(&self, keys: Vec<usize>, found: &mut Found, effort: &mut Effort) {
        if let Outcome::Optimal(relaxation) = relax(&self.core, keys, &mut effort.pivots)
            && let Some(units) = dive(&self.core, self.classes, &relaxation, effort)
        {
            offer(self.program, self.classes, self.base.iter().copied().chain(units).collect(), found);
        }
    }

    /// Limits of the first `parts` of all answers inside a branch.
    fn limits(&self, node: &Node, inner: &Program, relaxation: &Relaxation, parts: usize) -> Vec<i64> {
        let mut limits = Vec::new();
        for part in 0..parts {
            let prices = &relaxation.prices[..=part];
            limits.push(limit(inner, part, prices, &limits, relaxation.values[part]));
        }
        for &(column, count) in self.base.iter().chain(&node.taken) {
            limits.iter_mut().zip(inner.matrix.worth(column)).for_each(|(sum, worth)| *sum += worth * count);
        }
        limits
    }

    /// The column of a class whose amount is farthest from whole, the first of several.
    fn most_fractional(&self, relaxation: &Relaxation) -> Option<(usize, f64)> {
        let distance = |amount: f64| (amount - amount.round()).abs();
        let of_class = |column: usize| self.program.matrix.set_of(column) < self.classes;
        let amounts = relaxation.amounts.iter().copied();
        let fractions = amounts.filter(|(column, amount)| of_class(*column) && distance(*amount) > SLACK);
        fractions.reduce(|a, b| if distance(b.1) > distance(a.1) { b } else { a })
    }

    /// The answer of a branch whose relaxation is whole.
    fn units(&self, node: &Node, relaxation: &Relaxation) -> Vec<(usize, i64)> {
        let of_class = |column: usize| self.program.matrix.set_of(column) < self.classes;
        let whole = relaxation.amounts.iter().filter(|(column, _)| of_class(*column));
        let whole = whole.map(|(column, amount)| (*column, amount.round() as i64));
        self.base.iter().chain(&node.taken).copied().chain(whole).collect()
    }
}

impl Node {
    /// The program inside this branch.
    fn restrict<'m>(&self, program: &Program<'m>) -> Program<'m> {
        let mut inner = program.clone();
        let row =
            |&(column, most): &(usize, i64)| Row { sum: Sum::Column(column), bound: -most, equal: false };
        inner.rows.extend(self.small.iter().map(row));
        for &(column, count) in &self.taken {
            inner.take(program.matrix.set_of(column), column, count);
        }
        inner
    }

    /// The branches with less and with more of a column than the fraction in this one.
    fn divide(self, column: usize, amount: f64) -> [Node; 2] {
        let taken: i64 =
            self.taken.iter().filter(|(other, _)| *other == column).map(|(_, count)| count).sum();
        let (mut less, mut more) = (self.clone(), self);
        less.small.push((column, taken + amount.floor() as i64));
        more.taken.push((column, amount.ceil() as i64));
        [less, more]
    }
}
