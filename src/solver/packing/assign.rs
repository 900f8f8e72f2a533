//! From columns to GPUs and pods: which GPU of a class does what, and which pod gets which instance.
//!
//! Invariant: the score is counted from what is handed out here, not taken from the program; a layout is legal because it is
//! built instance by instance.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::answer::{Move, Placed, Plan, Reason, Score, Unplaced};
use super::cluster::{Class, Sorted, State};
use super::column::{Column, is_leaving};
use super::problem::{Holder, Instance, Problem};
use crate::mig::{Layout, LayoutError, Placement, ProfileName};
use crate::solver::patterns::{PatternTable, PlacedId};

/// A place: GPU and instance.
type Place = (usize, Placement);

/// Layouts made for the GPUs of one class, by what is done and the layout before: thousands of GPUs have few different ones.
type Made = BTreeMap<(u16, PlacedId, Layout), Layout>;

/// An answer in the making.
pub(super) struct Assignment<'p> {
    problem: &'p Problem,
    layouts: Vec<Layout>,
    changed: Vec<bool>,
    /// By profile: instances to give to pods.
    places: BTreeMap<ProfileName, Vec<Place>>,
    /// By profile: pods that leave.
    leaving: BTreeMap<ProfileName, Vec<Place>>,
    /// Nodes on which a GPU changes.
    paused: BTreeSet<u32>,
    score: Score,
}

impl<'p> Assignment<'p> {
    pub fn new(problem: &'p Problem, layouts: Vec<Layout>, priorities: usize) -> Assignment<'p> {
        Assignment {
            problem,
            changed: vec![false; layouts.len()],
            layouts,
            places: BTreeMap::new(),
            leaving: BTreeMap::new(),
            paused: BTreeSet::new(),
            score: Score { placed: vec![0; priorities], ..Score::default() },
        }
    }

    /// Lets the GPUs of a class do as many of each column as there are. Changes go first to nodes that change anyway, since a
    /// node is paused only once.
    pub fn add(
        &mut self,
        class: &Class,
        patterns: &PatternTable,
        columns: &[(&Column, usize)],
    ) -> Result<(), LayoutError> {
        let mut members: Vec<usize> = class.members.iter().copied().collect();
        members.sort_by_cached_key(|&gpu| {
            let node = self.problem.gpus[gpu].node;
            (!self.paused.contains(&node), node, gpu)
        });
        let mut columns = columns.to_vec();
        columns.sort_by_key(|(column, _)| !column.changed);
        let all = columns.into_iter().flat_map(|(column, count)| std::iter::repeat_n(column, count));
        let mut made = Made::new();
        for (gpu, column) in members.into_iter().zip(all) {
            self.apply(gpu, class.state, column, patterns.layout(column.used), &mut made)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        gpu: usize,
        state: &State,
        column: &Column,
        used: &Layout,
        made: &mut Made,
    ) -> Result<(), LayoutError> {
        self.score.gpus += u64::from(column.in_use);
        self.score.disruption += u64::try_from(column.cost).unwrap_or(0);
        self.score.fragmentation += u64::try_from(column.lost).unwrap_or(0);
        for &placement in used.placements() {
            self.places.entry(placement.profile).or_default().push((gpu, placement));
        }
        let movable = state.movable.iter().enumerate();
        let leaving: Vec<Placement> =
            movable.filter(|(index, _)| is_leaving(column.leaves, *index)).map(|(_, (p, _))| *p).collect();
        for &placement in &leaving {
            self.leaving.entry(placement.profile).or_default().push((gpu, placement));
        }
        if column.changed {
            // The program charged a share of the node's pause for each GPU; it is counted once for each node instead.
            let share = state.change.map_or(0, |(once, _)| once);
            self.score.disruption -= u64::from(share);
            self.paused.insert(self.problem.gpus[gpu].node);
            let key = (column.leaves, column.used, self.layouts[gpu].clone());
            let layout = match made.entry(key) {
                Entry::Occupied(same) => same.get().clone(),
                Entry::Vacant(new) => new.insert(self.changed_layout(gpu, &leaving, used)?).clone(),
            };
            self.layouts[gpu] = layout;
            self.changed[gpu] = true;
        }
        Ok(())
    }

    /// What stays held, what pods get, and the instances that nobody holds as far as there is room for them.
    fn changed_layout(
        &self,
        gpu: usize,
        leaving: &[Placement],
        used: &Layout,
    ) -> Result<Layout, LayoutError> {
        let gpu = &self.problem.gpus[gpu];
        let (idle, held): (Vec<&Instance>, Vec<&Instance>) =
            gpu.instances.iter().partition(|i| i.holder == Holder::Free || leaving.contains(&i.placement));
        let held = held.into_iter().map(|instance| instance.placement);
        let layout = Layout::new(gpu.model, held.chain(used.placements().iter().copied()))?;
        let kept = |layout: Layout, placement| layout.clone().with(placement).unwrap_or(layout);
        Ok(idle.into_iter().map(|instance| instance.placement).fold(layout, kept))
    }

    /// Gives the instances to pods: to those that had to leave first, then by priority.
    pub fn finish(mut self, sorted: &Sorted, priorities: Vec<i32>, bound: Score) -> Plan {
        let mut moves = Vec::new();
        // Taken from the end, so that the first GPUs are filled first.
        self.places.values_mut().for_each(|places| places.sort_unstable_by(|a, b| b.cmp(a)));
        for (profile, leaving) in &self.leaving {
            let places = self.places.entry(*profile).or_default();
            let to = leaving.iter().map_while(|from| Some(Move { from: *from, to: places.pop()? }));
            moves.extend(to);
        }
        let (mut placed, mut unplaced) = (Vec::new(), Vec::new());
        let mut order: Vec<usize> = (0..self.problem.demand.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.problem.demand[*at].priority));
        for at in order {
            let demand = &self.problem.demand[at];
            let places = self.places.entry(demand.profile).or_default();
            let keep = places.len().saturating_sub(demand.count as usize);
            let given = places.split_off(keep);
            let short = demand.count - u32::try_from(given.len()).unwrap_or(demand.count);
            if let Some(level) = priorities.iter().position(|priority| *priority == demand.priority) {
                self.score.placed[level] += given.len() as u64;
            }
            let place = |(gpu, placement)| Placed { demand: at, gpu, placement };
            placed.extend(given.into_iter().rev().map(place));
            if short > 0 {
                let reason = match sorted.offers(demand.profile) {
                    true => Reason::NoRoom,
                    false => Reason::NoGpuOffersProfile,
                };
                unplaced.push(Unplaced { demand: at, count: short, reason });
            }
        }
        self.score.disruption += self.pauses();
        Plan {
            layouts: self.layouts,
            changed: self.changed,
            placed,
            moves,
            unplaced,
            excluded: sorted.excluded(),
            priorities,
            score: self.score,
            bound,
        }
    }

    /// What pausing nodes costs: the highest of what the changed GPUs of each give for it.
    fn pauses(&self) -> u64 {
        let mut costs: BTreeMap<u32, u32> = BTreeMap::new();
        for (gpu, _) in self.problem.gpus.iter().zip(&self.changed).filter(|(_, changed)| **changed) {
            let cost = costs.entry(gpu.node).or_default();
            *cost = (*cost).max(gpu.change.map_or(0, |change| change.node));
        }
        costs.into_values().map(u64::from).sum()
    }
}
