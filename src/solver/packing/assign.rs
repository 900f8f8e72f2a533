//! From columns to GPUs and pods: which GPU of a class does what, and which pod gets which instance.
//!
//! First every class hands its columns to its GPUs, then one walk over the GPUs collects instances in the order in which pods get
//! them. Both touch a GPU once and allocate nothing for it: GPUs that do the same from the same layout share the new one.
//! Invariant: the score is counted from what is handed out here, not taken from the program; a layout is legal because it is
//! built instance by instance.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::answer::{Move, Placed, Plan, Reason, Score, Unplaced};
use super::cluster::{Class, Sorted, State};
use super::column::{Column, is_leaving};
use super::problem::{Gpu, Holder, Instance, Problem};
use crate::mig::{Layout, LayoutError, Placement, ProfileName};
use crate::solver::patterns::PatternTable;

/// A place: GPU and instance.
type Place = (usize, Placement);

/// Places by the number of their profile, in the order of the GPUs.
type Places = Vec<Vec<Place>>;

/// An answer in the making.
pub(super) struct Assignment<'a> {
    problem: &'a Problem,
    sorted: &'a Sorted,
    duties: Vec<Duty<'a>>,
    /// By GPU: position in `duties`; `None` for one that is left out.
    of_gpu: Vec<Option<usize>>,
    profiles: Profiles,
    /// By rank of the node: whether a GPU changes on it.
    paused: Vec<bool>,
}

/// The profiles of an answer, numbered.
#[derive(Default)]
struct Profiles(BTreeMap<ProfileName, usize>);

/// What some GPUs of one class do.
struct Duty<'a> {
    state: &'a State,
    column: &'a Column,
    used: &'a Layout,
    /// Instances that pods get, each with the number of its profile.
    gives: Vec<(usize, Placement)>,
    /// Instances that movable pods leave.
    leaves: Vec<(usize, Placement)>,
}

impl Profiles {
    fn number(&mut self, profile: ProfileName) -> usize {
        let next = self.0.len();
        *self.0.entry(profile).or_insert(next)
    }

    fn numbered(&mut self, placements: impl Iterator<Item = Placement>) -> Vec<(usize, Placement)> {
        placements.map(|placement| (self.number(placement.profile), placement)).collect()
    }
}

impl<'a> Assignment<'a> {
    pub fn new(problem: &'a Problem, sorted: &'a Sorted) -> Assignment<'a> {
        Assignment {
            problem,
            sorted,
            duties: Vec::new(),
            of_gpu: vec![None; problem.gpus.len()],
            profiles: Profiles::default(),
            paused: vec![false; sorted.nodes()],
        }
    }

    /// Lets the GPUs of a class do as many of each column as there are. Changes go first to nodes that change anyway, since a
    /// node is paused only once.
    pub fn add(&mut self, class: &Class<'a>, patterns: &'a PatternTable, columns: &[(&'a Column, usize)]) {
        let mut columns = columns.to_vec();
        columns.sort_by_key(|(column, _)| !column.changed);
        let (mut members, mut others): (Vec<usize>, Vec<usize>) =
            class.members.iter().partition(|gpu| self.paused[self.sorted.node(**gpu)]);
        for part in [&mut members, &mut others] {
            part.sort_by_key(|gpu| self.sorted.node(*gpu));
        }
        let mut members = members.into_iter().chain(others);
        for (column, count) in columns {
            let duty = self.duties.len();
            self.duties.push(Duty::new(
                class.state,
                column,
                patterns.layout(column.used),
                &mut self.profiles,
            ));
            for gpu in members.by_ref().take(count) {
                self.of_gpu[gpu] = Some(duty);
                self.paused[self.sorted.node(gpu)] |= column.changed;
            }
        }
    }

    /// Gives the instances to pods: to those that had to leave first, then by priority, on the first GPUs first.
    pub fn finish(mut self, priorities: Vec<i32>, bound: Score) -> Result<Plan, LayoutError> {
        let mut plan = Plan {
            layouts: self.sorted.layouts().to_vec(),
            changed: vec![false; self.of_gpu.len()],
            placed: Vec::new(),
            moves: Vec::new(),
            unplaced: Vec::new(),
            excluded: self.sorted.excluded(),
            score: Score { placed: vec![0; priorities.len()], ..Score::default() },
            priorities,
            bound,
        };
        let (places, leaving) = self.walk(&mut plan)?;
        let mut places: Vec<_> = places.into_iter().map(Vec::into_iter).collect();
        for (places, leaving) in places.iter_mut().zip(leaving) {
            plan.moves.extend(leaving.into_iter().zip(places).map(|(from, to)| Move { from, to }));
        }
        let mut order: Vec<usize> = (0..self.problem.demand.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.problem.demand[*at].priority));
        for at in order {
            let demand = &self.problem.demand[at];
            let before = plan.placed.len();
            if let Some(&number) = self.profiles.0.get(&demand.profile) {
                let given = places[number].by_ref().take(demand.count as usize);
                plan.placed.extend(given.map(|(gpu, placement)| Placed { demand: at, gpu, placement }));
            }
            let given = plan.placed.len() - before;
            if let Some(level) = plan.priorities.iter().position(|priority| *priority == demand.priority) {
                plan.score.placed[level] += given as u64;
            }
            let short = demand.count - u32::try_from(given).unwrap_or(demand.count);
            if short > 0 {
                let reason = match self.sorted.offers(demand.profile) {
                    true => Reason::NoRoom,
                    false => Reason::NoGpuOffersProfile,
                };
                plan.unplaced.push(Unplaced { demand: at, count: short, reason });
            }
        }
        Ok(plan)
    }

    /// Sets the layouts and counts the score, but for the pods placed. What comes out: the instances to give to pods, and those that
    /// pods leave.
    fn walk(&mut self, plan: &mut Plan) -> Result<(Places, Places), LayoutError> {
        let mut places = vec![Vec::new(); self.profiles.0.len()];
        let mut leaving = places.clone();
        let mut pauses = vec![0; self.paused.len()];
        let mut made: BTreeMap<(usize, Arc<Layout>), Arc<Layout>> = BTreeMap::new();
        for (gpu, number) in self.of_gpu.iter().enumerate() {
            let Some(number) = *number else { continue };
            let duty = &self.duties[number];
            duty.count(&mut plan.score);
            duty.gives.iter().for_each(|(profile, placement)| places[*profile].push((gpu, *placement)));
            duty.leaves.iter().for_each(|(profile, placement)| leaving[*profile].push((gpu, *placement)));
            if !duty.column.changed {
                continue;
            }
            let present = &self.problem.gpus[gpu];
            plan.layouts[gpu] = match made.entry((number, Arc::clone(&plan.layouts[gpu]))) {
                Entry::Occupied(same) => Arc::clone(same.get()),
                Entry::Vacant(new) => Arc::clone(new.insert(Arc::new(duty.changed_layout(present)?))),
            };
            plan.changed[gpu] = true;
            let pause: &mut u32 = &mut pauses[self.sorted.node(gpu)];
            *pause = (*pause).max(present.change.map_or(0, |change| change.node));
        }
        plan.score.disruption += pauses.into_iter().map(u64::from).sum::<u64>();
        Ok((places, leaving))
    }
}

impl<'a> Duty<'a> {
    fn new(state: &'a State, column: &'a Column, used: &'a Layout, profiles: &mut Profiles) -> Duty<'a> {
        let movable = state.movable.iter().enumerate();
        let leaves = movable.filter(|(index, _)| is_leaving(column.leaves, *index)).map(|(_, (p, _))| *p);
        let leaves = profiles.numbered(leaves);
        let gives = profiles.numbered(used.placements().iter().copied());
        Duty { state, column, used, gives, leaves }
    }

    /// Adds what one GPU counts. The program charged a share of the node's pause for each GPU that changes; it is counted once
    /// for each node instead.
    fn count(&self, score: &mut Score) {
        let column = self.column;
        let share = self.state.change.filter(|_| column.changed).map_or(0, |(once, _)| i64::from(once));
        score.gpus += u64::from(column.in_use);
        score.disruption += u64::try_from(column.cost - share).unwrap_or(0);
        score.fragmentation += u64::try_from(column.lost).unwrap_or(0);
    }

    /// What stays held, what pods get, and the instances that nobody holds as far as there is room for them.
    fn changed_layout(&self, gpu: &Gpu) -> Result<Layout, LayoutError> {
        let left = |placement| self.leaves.iter().any(|(_, left)| *left == placement);
        let (idle, held): (Vec<&Instance>, Vec<&Instance>) =
            gpu.instances.iter().partition(|i| i.holder == Holder::Free || left(i.placement));
        let held = held.into_iter().map(|instance| instance.placement);
        let layout = Layout::new(gpu.model, held.chain(self.used.placements().iter().copied()))?;
        let kept = |layout: Layout, placement| layout.clone().with(placement).unwrap_or(layout);
        Ok(idle.into_iter().map(|instance| instance.placement).fold(layout, kept))
    }
}
