//! Whole numbers: from the relaxation to columns for every GPU, with a limit that no answer surpasses.
//!
//! 1. *Root.* The relaxation's limits, part by part. Where the relaxation's pods or GPUs lie above their limit (5.5 pods, or
//!    the closed form knows better) a row holds them to it and the relaxation is solved again, so that the limits of the
//!    later parts are meant for the whole numbers that can be reached.
//! 2. *Dive.* A basic point is fractional in no more sets than there are rows. Whole multiples are taken, then the largest
//!    fraction is rounded up, and so on: the program left shrinks to a handful of GPUs at once.
//! 3. *Branch and bound.* If score and limit differ, depth first: `x_j ≥ ⌈x⌉` by taking the columns for good, `x_j ≤ ⌊x⌋` by
//!    a row. The number of nodes is limited. On many GPUs only a core is branched on, in which the relaxation's whole columns
//!    are kept: that finds the last pod or GPU, and the limit tells how good it is.
//!
//! Invariant: what is returned satisfies every row, checked in integers, and its parts are counted from it.

use super::bound::{limit, trivial};
use super::branch::Tree;
use super::problem::Limits;
use super::program::{Matrix, Program, Row, Sum};
use super::simplex::{Outcome, Relaxation, relax};

/// GPUs up to which every part is worth a proof; on more of them branches are made for the sake of pods and GPUs alone.
const PROVEN_IN_FULL: i64 = 16;

/// GPUs up to which the whole program is branched on, on more of them a core only.
const BRANCHED_IN_FULL: i64 = 256;

/// Most branches for an answer that follows another one: enough to repair what changed.
const AGAIN: u32 = 24;

/// Parts that are no numbers of pods or GPUs: disruption and fragmentation.
const SOFT: usize = 2;

/// Slack of the relaxation's values and amounts.
pub(super) const SLACK: f64 = 1e-6;

/// Sets and rows of one search; the first `classes` sets are GPUs, the others pods.
pub(super) struct Task<'t> {
    pub matrix: &'t Matrix,
    pub classes: usize,
    pub counts: Vec<i64>,
    pub rows: Vec<Row>,
    /// Limits of the first parts that are known beforehand; may be empty.
    pub known: Vec<i64>,
    /// By set: the column to start from.
    pub keys: Vec<usize>,
    /// The columns of the answer before something changed; empty if there was none.
    pub before: Vec<(usize, i64)>,
}

/// The best answer found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// (column, GPUs) by column, for the classes.
    pub units: Vec<(usize, i64)>,
    /// Its parts.
    pub parts: Vec<i64>,
    /// Limits of the parts, each for answers that reach the earlier ones; however little work was allowed.
    pub limits: Vec<i64>,
    /// By set: the relaxation's last keys, to start from when little has changed.
    pub keys: Vec<usize>,
}

/// Searches within `work`; each set's first column is the one that does nothing, and always possible.
pub(super) fn search(task: Task, work: &Limits) -> Found {
    let (matrix, classes) = (task.matrix, task.classes);
    let mut effort = Effort { pivots: work.pivots, nodes: work.nodes };
    let mut program = Program { matrix, counts: task.counts, rows: task.rows };
    let idle = matrix.sets[..classes].iter().map(|columns| columns.start);
    let units: Vec<_> = idle.zip(program.counts.iter().copied()).collect();
    let parts = parts_of(&program, classes, &units).unwrap_or_else(|| vec![i64::MIN; matrix.parts]);
    let mut limits = task.known;
    limits.extend((limits.len()..matrix.parts).map(|part| trivial(&program, part)));
    let mut found = Found { units, parts, limits, keys: task.keys };
    let rows = program.rows.len();
    loop {
        program.rows.truncate(rows);
        let Some(relaxation) = root(&mut program, &mut found, &mut effort) else { return found };
        if let Some(units) = dive(&program, classes, &relaxation, &mut effort) {
            offer(&program, classes, units, &mut found);
        }
        let gpus = gpus(&program, classes);
        if settled(&found, &program, classes) {
            return found;
        }
        if gpus > PROVEN_IN_FULL && !task.before.is_empty() {
            effort.nodes = effort.nodes.min(AGAIN);
            Tree::around(&program, classes, &task.before, &relaxation).search(&mut found, &mut effort);
            return found;
        }
        if gpus > BRANCHED_IN_FULL {
            Tree::of_core(&program, classes, &relaxation).search(&mut found, &mut effort);
            return found;
        }
        if !Tree::new(&program, classes).search(&mut found, &mut effort) {
            return found;
        }
        // Every branch is closed: nothing reaches the first limit that this answer misses.
        let missed = (0..matrix.parts).find(|part| found.parts[*part] != found.limits[*part]);
        match missed {
            Some(part) if part + SOFT < matrix.parts => {
                found.limits[part] -= 1;
                // Those of the later parts were for answers that reach the limit before.
                for later in part + 1..matrix.parts {
                    found.limits[later] = trivial(&program, later);
                }
            }
            _ => {
                found.limits.clone_from(&found.parts);
                return found;
            }
        }
    }
}

/// Work that is left.
pub(super) struct Effort {
    pub pivots: u32,
    pub nodes: u32,
}

/// Whether nothing better is worth looking for.
pub(super) fn settled(found: &Found, program: &Program, classes: usize) -> bool {
    let parts = parts_to_prove(program, classes);
    found.parts[..parts] == found.limits[..parts]
}

/// How many parts of the objective are worth branching for.
pub(super) fn parts_to_prove(program: &Program, classes: usize) -> usize {
    program.matrix.parts - if gpus(program, classes) <= PROVEN_IN_FULL { 0 } else { SOFT }
}

fn gpus(program: &Program, classes: usize) -> i64 {
    program.counts[..classes].iter().sum()
}

/// Solves the relaxation and sets the limits; rows are added to the program where pods or GPUs exceed theirs. `None` if the
/// relaxation was lost.
fn root(program: &mut Program, found: &mut Found, effort: &mut Effort) -> Option<Relaxation> {
    loop {
        let Outcome::Optimal(relaxation) = relax(program, found.keys.clone(), &mut effort.pivots) else {
            return None;
        };
        found.keys.clone_from(&relaxation.keys);
        let exceeding = (0..program.matrix.parts).find(|&part| {
            let value = relaxation.values[part];
            let proven = limit(program, part, &relaxation.prices[..=part], &found.limits, value);
            found.limits[part] = found.limits[part].min(proven);
            part + SOFT < program.matrix.parts && found.limits[part] as f64 + SLACK < value
        });
        let Some(part) = exceeding.filter(|part| !program.rows.iter().any(|row| row.sum == Sum::Part(*part)))
        else {
            return Some(relaxation);
        };
        program.rows.push(Row { sum: Sum::Part(part), bound: -found.limits[part], equal: false });
    }
}

/// Rounds a relaxation to whole columns.
pub(super) fn dive(
    program: &Program,
    classes: usize,
    first: &Relaxation,
    effort: &mut Effort,
) -> Option<Vec<(usize, i64)>> {
    let mut program = program.clone();
    let mut relaxation = first.clone();
    let mut units = Vec::new();
    loop {
        let mut fractions = Vec::new();
        for &(column, amount) in &relaxation.amounts {
            let set = program.matrix.set_of(column);
            let whole = (amount + SLACK).floor() as i64;
            if set >= classes {
                continue;
            }
            if whole > 0 {
                program.take(set, column, whole);
                units.push((column, whole));
            }
            if amount - whole as f64 > SLACK {
                fractions.push((amount - whole as f64, column));
            }
        }
        let Some((_, column)) = fractions.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a }) else {
            return Some(units);
        };
        let column = within_demand(&program, classes, column);
        program.take(program.matrix.set_of(column), column, 1);
        units.push((column, 1));
        let Outcome::Optimal(next) = relax(&program, relaxation.keys, &mut effort.pivots) else {
            return None;
        };
        relaxation = next;
    }
}

/// The column that does as much of `column` as there are pods left for; one that does nothing if there is none like it.
fn within_demand(program: &Program, classes: usize, column: usize) -> usize {
    let mut left: Vec<i64> = program.rows.iter().map(|row| row.bound).collect();
    for (columns, count) in program.matrix.sets[classes..].iter().zip(&program.counts[classes..]) {
        for &(row, coefficient) in columns.clone().flat_map(|column| program.matrix.coefficients(column)) {
            left[row] -= count * coefficient;
        }
    }
    let capped = |&(row, coefficient): &(usize, i64)| match program.rows[row].equal {
        true => (row, coefficient.min(left[row].max(0))),
        false => (row, coefficient),
    };
    let wanted = program.matrix.coefficients(column).iter().map(capped).filter(|(_, c)| *c != 0);
    let wanted: Vec<_> = wanted.collect();
    let columns = program.matrix.sets[program.matrix.set_of(column)].clone();
    let idle = columns.start;
    let mut same = columns.filter(|other| program.matrix.coefficients(*other) == wanted);
    same.next().unwrap_or(idle)
}

/// The parts of an answer, pods placed by priority as far as it has room; `None` if it breaks a row.
fn parts_of(program: &Program, classes: usize, units: &[(usize, i64)]) -> Option<Vec<i64>> {
    let matrix = program.matrix;
    let mut parts = vec![0; matrix.parts];
    let mut left: Vec<i64> = program.rows.iter().map(|row| -row.bound).collect();
    let mut counts = program.counts.clone();
    for &(column, count) in units {
        counts[matrix.set_of(column)] -= count;
        parts.iter_mut().zip(matrix.worth(column)).for_each(|(sum, worth)| *sum += worth * count);
        for &(row, coefficient) in matrix.coefficients(column) {
            left[row] += coefficient * count;
        }
    }
    for (columns, count) in matrix.sets[classes..].iter().zip(&program.counts[classes..]) {
        // A set of pods: the second column places one, and takes one instance of its row.
        let placed = columns.start + 1;
        for &(row, coefficient) in matrix.coefficients(placed) {
            let pods = (*count).min(left[row] / -coefficient).max(0);
            left[row] += coefficient * pods;
            parts.iter_mut().zip(matrix.worth(placed)).for_each(|(sum, worth)| *sum += worth * pods);
        }
    }
    let kept = |(row, left): (&Row, &i64)| match row.sum {
        Sum::Matrix if row.equal => *left == 0,
        Sum::Matrix => *left >= 0,
        Sum::Part(_) | Sum::Column(_) => true,
    };
    let kept = program.rows.iter().zip(&left).all(kept) && counts[..classes].iter().all(|count| *count == 0);
    kept.then_some(parts)
}

/// Keeps an answer if it is better.
pub(super) fn offer(program: &Program, classes: usize, mut units: Vec<(usize, i64)>, found: &mut Found) {
    units.sort_unstable();
    units.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
    if let Some(parts) = parts_of(program, classes, &units).filter(|parts| *parts > found.parts) {
        (found.parts, found.units) = (parts, units);
    }
}
