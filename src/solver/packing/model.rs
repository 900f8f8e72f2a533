//! Writes one component of the cluster as a program, and reads from the closed form what is known of it beforehand.

use std::sync::Arc;

use super::cluster::Component;
use super::column::Column;
use super::problem::Problem;
use super::program::{Matrix, Row, Sum};
use crate::solver::closed_form::{Capacity, ClosedForm, Wanted};

/// A component as a program.
pub(super) struct Model {
    pub matrix: Matrix,
    /// By set: GPUs of a class, then pods of a profile and priority.
    pub counts: Vec<i64>,
    pub rows: Vec<Row>,
}

/// The priorities of the demand, highest first.
pub(super) fn priorities(problem: &Problem) -> Vec<i32> {
    let mut priorities: Vec<_> =
        problem.demand.iter().filter(|demand| demand.count > 0).map(|demand| demand.priority).collect();
    priorities.sort_unstable_by(|a, b| b.cmp(a));
    priorities.dedup();
    priorities
}

/// By row and priority: pods to place.
pub(super) fn pods(problem: &Problem, component: &Component, priorities: &[i32]) -> Vec<Vec<u64>> {
    let mut pods = vec![vec![0; priorities.len()]; component.profiles.len()];
    for demand in &problem.demand {
        let level = priorities.iter().position(|priority| *priority == demand.priority);
        if let (Some(row), Some(level)) = (component.row(demand.profile), level) {
            pods[row][level] += u64::from(demand.count);
        }
    }
    pods
}

impl Model {
    /// Writes the program; `columns` are those of each class.
    pub fn new(
        problem: &Problem,
        component: &Component,
        columns: &[Arc<Vec<Column>>],
        pods: &[Vec<u64>],
        priorities: &[i32],
    ) -> Model {
        let profiles = component.profiles.len();
        let limit = component.tied.then_some(i64::from(problem.limits.moves));
        let mut rows = vec![Row { sum: Sum::Matrix, bound: 0, equal: true }; profiles];
        rows.extend(limit.map(|limit| Row { sum: Sum::Matrix, bound: -limit, equal: false }));
        let mut model = Model { matrix: Matrix::new(priorities.len() + 3), counts: Vec::new(), rows };
        for (class, columns) in component.classes.iter().zip(columns) {
            for column in columns.iter() {
                let moves =
                    limit.filter(|_| column.moves() > 0).map(|_| (profiles, -i64::from(column.moves())));
                let worth = [-i64::from(column.in_use), -column.cost, -column.lost];
                let coefficients = column.supply.iter().copied().chain(moves);
                model.matrix.add_column(coefficients, priorities.iter().map(|_| 0).chain(worth));
            }
            model.matrix.close_set();
            model.counts.push(whole(class.members.len() as u64));
        }
        for (row, levels) in pods.iter().enumerate() {
            for (level, count) in levels.iter().enumerate() {
                let parts = 0..model.matrix.parts;
                model.matrix.add_column([], parts.clone().map(|_| 0));
                model.matrix.add_column([(row, -1)], parts.map(|part| i64::from(part == level)));
                model.matrix.close_set();
                model.counts.push(whole(*count));
            }
        }
        model
    }
}

/// Counts are far below the limit of `i64`: a problem has no more than [`MAX_ITEMS`](super::MAX_ITEMS).
fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// By row: pods that could use an instance, waiting and movable ones.
pub(super) fn most(component: &Component, pods: &[Vec<u64>]) -> Vec<u64> {
    let mut most: Vec<u64> = pods.iter().map(|levels| levels.iter().sum()).collect();
    for class in &component.classes {
        for (placement, _) in &class.state.movable {
            if let Some(row) = component.row(placement.profile) {
                most[row] += class.members.len() as u64;
            }
        }
    }
    most
}

/// The first limits (pods by priority, then GPUs) where the closed form gives them: every model of the component has the same
/// profiles in the common geometry, only base profiles are wanted, nothing moves, and no free instance is bound to a layout
/// that must stay. Empty elsewhere.
pub(super) fn closed_form(problem: &Problem, component: &Component, priorities: &[i32]) -> Vec<i64> {
    known(problem, component, priorities).unwrap_or_default()
}

fn known(problem: &Problem, component: &Component, priorities: &[i32]) -> Option<Vec<i64>> {
    let form = ClosedForm::of(component.classes.first()?.state.model)?;
    let (mut held, mut empty, mut in_use) = (Capacity::default(), 0, 0);
    for class in &component.classes {
        let (state, members) = (&class.state, class.members.len() as u64);
        if !state.movable.is_empty() || ClosedForm::of(state.model)? != form {
            return None;
        }
        let used = !state.held.slots.is_empty();
        in_use += if used { members } else { 0 };
        match state.change {
            None if state.free.is_empty() => {}
            None => return None,
            Some(_) if used => held = held.plus(Capacity::of(state.held.slots), members),
            Some(_) => empty += members,
        }
    }
    let mut wanted = vec![Wanted::default(); priorities.len()];
    for (profile, levels) in component.profiles.iter().zip(pods(problem, component, priorities)) {
        let size = form.size(*profile)?;
        wanted.iter_mut().zip(levels).for_each(|(wanted, count)| wanted[size] += count);
    }
    let placed = held.plus(Capacity::empty(1), empty).most(&wanted);
    let total = |wanted: &Wanted| wanted.iter().sum::<u64>();
    let all: Wanted = std::array::from_fn(|size| placed.iter().map(|level| level[size]).sum());
    let fewest = held.fewest_more(empty, all)?;
    let mut limits: Vec<i64> = placed.iter().map(|level| whole(total(level))).collect();
    limits.push(-whole(in_use + fewest));
    Some(limits)
}
