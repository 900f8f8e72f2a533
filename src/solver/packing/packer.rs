//! Packs the same cluster again and again, as pods come and go.
//!
//! What a change does not touch is kept: the tables, the class of every other GPU, the columns of every class that was met
//! before, the answer of every component without a change, and for the others the basis from which the simplex starts.
//! Invariant: what is kept is either exactly what would be computed anew, or (the basis) only a place to start from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::answer::{Plan, Score};
use super::assign::Assignment;
use super::cluster::{Class, Component, Sorted, State, Tables, components, tables};
use super::column::{Column, columns};
use super::model::{Model, closed_form, most, pods, priorities};
use super::problem::{Demand, Gpu, PackError, Problem};
use super::search::{Found, Task, search};
use crate::mig::{GpuModel, ProfileName};

/// Columns of states that no GPU has any more are kept, since states come back, up to this many times the present ones.
const FORGET: usize = 4;

/// A cluster that is packed repeatedly.
pub struct Packer {
    problem: Problem,
    tables: Tables,
    sorted: Sorted,
    /// By the models of a component: what its last answer leaves to the next one.
    memory: BTreeMap<BTreeSet<&'static GpuModel>, Memory>,
}

/// What one component's last answer leaves.
struct Memory {
    /// Rows, and how many instances of each one GPU could need at most: what columns depend on besides the state, together with
    /// whether moves are scarce.
    profiles: Vec<(ProfileName, u64)>,
    priorities: Vec<i32>,
    tied: bool,
    columns: BTreeMap<State, Arc<Vec<Column>>>,
    /// By class: the column from which to start. Pods have the keys of `found`, in the same order.
    keys: BTreeMap<State, usize>,
    /// `None` once something in the component has changed.
    answer: Option<Found>,
    /// By class: the columns of the last answer, and how many GPUs did each.
    units: BTreeMap<State, Vec<(usize, i64)>>,
    pod_keys: Vec<usize>,
}

impl Packer {
    /// Takes over a cluster; refuses what [`Problem::validate`] refuses.
    pub fn new(problem: Problem) -> Result<Packer, PackError> {
        problem.validate()?;
        let (tables, sorted) = (tables(&problem), Sorted::new(&problem));
        Ok(Packer { problem, tables, sorted, memory: BTreeMap::new() })
    }

    /// The problem as it is now.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Replaces the GPU at this position, of which there must be one, by its new state.
    pub fn set_gpu(&mut self, at: usize, gpu: Gpu) {
        let before = std::mem::replace(&mut self.problem.gpus[at], gpu);
        let after = &self.problem.gpus[at];
        let same = before.model == after.model
            && before.node == after.node
            && before.change.is_some() == after.change.is_some();
        if same {
            self.sorted.replace(at, &before, after);
            self.touch(|memory| memory.contains(before.model));
        } else {
            self.tables = tables(&self.problem);
            self.sorted = Sorted::new(&self.problem);
            self.touch(|_| true);
        }
    }

    /// Replaces the demand; refused like a new problem, and then left as it was.
    pub fn set_demand(&mut self, demand: Vec<Demand>) -> Result<(), PackError> {
        let before = std::mem::replace(&mut self.problem.demand, demand);
        if let Err(error) = self.problem.validate() {
            self.problem.demand = before;
            return Err(error);
        }
        let (old, new) = (by_profile(&before), by_profile(&self.problem.demand));
        let differs = |profile: ProfileName| old.get(&profile) != new.get(&profile);
        let changed = old.keys().chain(new.keys()).copied().filter(|profile| differs(*profile));
        let changed: BTreeSet<ProfileName> = changed.collect();
        let has = |model: &GpuModel| model.profiles.iter().any(|profile| changed.contains(&profile.name));
        self.touch(|models| models.iter().any(|model| has(model)));
        Ok(())
    }

    fn touch(&mut self, touched: impl Fn(&BTreeSet<&'static GpuModel>) -> bool) {
        for (_, memory) in self.memory.iter_mut().filter(|(models, _)| touched(models)) {
            memory.answer = None;
        }
    }

    /// The best answer within the problem's limits, with its bound.
    pub fn pack(&mut self) -> Result<Plan, PackError> {
        let priorities = priorities(&self.problem);
        let mut bound = Score { placed: vec![0; priorities.len()], ..Score::default() };
        let mut solved = Vec::new();
        for component in components(&self.problem, &self.sorted) {
            let before = self.memory.remove(&component.models);
            let memory = solve(&self.problem, &self.tables, &component, &priorities, before);
            solved.push((component, memory));
        }
        let mut assignment = Assignment::new(&self.problem, &self.sorted);
        for (component, memory) in &solved {
            if let Some(found) = &memory.answer {
                add_limits(&mut bound, &found.limits);
                hand_out(&mut assignment, &self.tables, component, memory, found);
            }
        }
        let plan = assignment.finish(priorities, bound);
        self.memory = solved.into_iter().map(|(component, memory)| (component.models, memory)).collect();
        plan.map_err(PackError::Unsound)
    }
}

/// By profile: priorities and counts, in the order of the demand.
fn by_profile(demand: &[Demand]) -> BTreeMap<ProfileName, Vec<(i32, u32)>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for item in demand {
        all.entry(item.profile).or_default().push((item.priority, item.count));
    }
    all
}

fn solve(
    problem: &Problem,
    tables: &Tables,
    component: &Component,
    priorities: &[i32],
    before: Option<Memory>,
) -> Memory {
    let pods = pods(problem, component, priorities);
    let most = most(component, &pods);
    let profiles: Vec<_> =
        component.profiles.iter().copied().zip(most.iter().map(|most| (*most).min(7))).collect();
    let mut memory = match before {
        Some(memory)
            if (&memory.profiles, &memory.priorities[..], memory.tied)
                == (&profiles, priorities, component.tied) =>
        {
            memory
        }
        _ => Memory {
            profiles,
            priorities: priorities.to_vec(),
            tied: component.tied,
            columns: BTreeMap::new(),
            keys: BTreeMap::new(),
            answer: None,
            units: BTreeMap::new(),
            pod_keys: Vec::new(),
        },
    };
    if memory.answer.is_some() {
        return memory;
    }
    let mut by_class = Vec::new();
    for class in &component.classes {
        // The tables were made for every model of the problem.
        let Some(tables) = tables.get(class.state.model) else { continue };
        let made = || Arc::new(columns(class.state, tables, component, &most, &problem.limits));
        by_class.push(Arc::clone(memory.columns.entry(class.state.clone()).or_insert_with(made)));
    }
    let model = Model::new(problem, component, &by_class, &pods, priorities);
    let classes = component.classes.len();
    let own = component.classes.iter().map(|class| memory.keys.get(class.state).copied().unwrap_or(0));
    let of_pods =
        (0..model.matrix.sets.len() - classes).map(|at| memory.pod_keys.get(at).copied().unwrap_or(0));
    let keys = own.chain(of_pods).zip(&model.matrix.sets).map(|(key, columns)| columns.start + key);
    let sets = component.classes.iter().zip(&model.matrix.sets);
    let again = |(class, columns): (&Class, &std::ops::Range<usize>)| {
        let first = columns.start;
        let units = memory.units.get(class.state).into_iter().flatten();
        units.map(move |(column, count)| (first + column, *count)).collect::<Vec<_>>()
    };
    let before = sets.clone().flat_map(again).collect();
    let task = Task {
        matrix: &model.matrix,
        classes,
        counts: model.counts.clone(),
        rows: model.rows.clone(),
        known: closed_form(problem, component, priorities),
        keys: keys.collect(),
        before,
    };
    let found = search(task, &problem.limits);
    if memory.columns.len() > FORGET * classes {
        let present: BTreeSet<&State> = component.classes.iter().map(|class| class.state).collect();
        memory.columns.retain(|state, _| present.contains(state));
    }
    let offset = |(key, columns): (&usize, &std::ops::Range<usize>)| key - columns.start;
    let mut offsets = found.keys.iter().zip(&model.matrix.sets).map(offset);
    memory.keys = component.classes.iter().map(|class| class.state.clone()).zip(offsets.by_ref()).collect();
    memory.pod_keys = offsets.collect();
    memory.units = BTreeMap::new();
    for (class, columns) in sets {
        let own = found.units.iter().filter(|(column, _)| columns.contains(column));
        let own = own.map(|(column, count)| (column - columns.start, *count));
        memory.units.insert(class.state.clone(), own.collect());
    }
    memory.answer = Some(found);
    memory
}

/// Lets every class of a component do what was found.
fn hand_out<'a>(
    assignment: &mut Assignment<'a>,
    tables: &'a Tables,
    component: &Component<'a>,
    memory: &'a Memory,
    found: &Found,
) {
    let mut units = found.units.iter().peekable();
    let mut first = 0;
    for class in &component.classes {
        let (Some(columns), Some(tables)) = (memory.columns.get(class.state), tables.get(class.state.model))
        else {
            continue;
        };
        let mut chosen = Vec::new();
        while let Some((column, count)) = units.next_if(|(column, _)| column - first < columns.len()) {
            chosen.push((&columns[column - first], usize::try_from(*count).unwrap_or(0)));
        }
        first += columns.len();
        assignment.add(class, &tables.patterns, &chosen);
    }
}

/// Adds the limits of one component. Parts that are minimised have theirs negated.
fn add_limits(bound: &mut Score, limits: &[i64]) {
    let levels = bound.placed.len();
    let least = |part: usize| u64::try_from(limits[part].saturating_neg()).unwrap_or(0);
    for (sum, limit) in bound.placed.iter_mut().zip(limits) {
        *sum += u64::try_from(*limit).unwrap_or(0);
    }
    bound.gpus += least(levels);
    bound.disruption += least(levels + 1);
    bound.fragmentation += least(levels + 2);
}
