//! From a question to proposals.
//!
//! ```text
//!   1. doors      GPUs whose load leaves the middle band · waiting pods that no free instance is left for
//!   2. build      the packer, on the GPUs behind a door: waiting pods, forecast ones, arrivals, targets, in this order
//!   3. weigh      node by node: who must go and where to, worth of the free instances before and after, cost
//!   4. again      without the nodes that were turned down, as others may do instead
//! ```
//!
//! The packer only suggests: a proposal is judged by counting what a change really does on its actuator ([`weigh`]).
//!
//! Invariants: a GPU behind no door is not touched; proposals of one answer do not count on the same instance twice; the answer
//! depends on nothing but the question and the policy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::policy::{Band, Policy};
use super::proposal::{Actuator, Proposal, Trigger};
use super::question::{Held, PlannedGpu, PlannedNode, Question};
use super::weigh::{Weighed, weigh};
use super::worth::{Free, Worth};
use crate::mig::{Layout, NodeLayout, Placement, ProfileName};
use crate::solver::fragmentation::DemandMix;
use crate::solver::packing::{self, ChangeCost, Demand, Gpu, Holder, Instance, PackError, Problem};

/// How often the packer is asked again without the nodes that were turned down.
const ROUNDS: usize = 4;

/// Priorities below every pod's own, for what is planned beyond the pods that wait. Kubernetes' lowest is -2,147,483,648 as well,
/// but no pod that waits for a GPU has it in practice, and a tie would only mix the two.
const COMING: i32 = i32::MIN + 2;
const ARRIVALS: i32 = i32::MIN + 1;
const TARGETS: i32 = i32::MIN;

/// What is to be changed, the most useful change first.
///
/// Cost: at most [`ROUNDS`] calls of the packer, which grow with the number of different GPU states, and a pass over all GPUs.
///
/// # Errors
/// Where the packer fails its own check.
pub fn plan(policy: &Policy, question: &Question) -> Result<Vec<Proposal>, PackError> {
    let planner = Planner::new(policy, question);
    let mut closed = BTreeSet::new();
    for _ in 1..ROUNDS {
        let (proposals, turned_down) = planner.round(&closed)?;
        if turned_down.is_empty() {
            return Ok(proposals);
        }
        closed.extend(turned_down);
    }
    Ok(planner.round(&closed)?.0)
}

/// What follows from the question alone.
pub(super) struct Planner<'a> {
    pub policy: &'a Policy,
    pub question: &'a Question,
    pub worth: Worth,
    /// By node: its layout; `None` where what it reports contradicts its table.
    pub layouts: Vec<Option<NodeLayout>>,
    /// By node: what its load asks for.
    pub doors: Vec<Vec<Trigger>>,
    /// Pods that wait and find no free instance.
    left_out: BTreeMap<ProfileName, u32>,
}

/// What the proposals so far leave: those that follow build on it.
#[derive(Clone)]
pub(super) struct Ledger {
    /// By node: the instances that are free once all proposals are carried out.
    pub free: Vec<Free>,
    /// The nodes that change.
    pub changing: BTreeSet<usize>,
    /// The nodes on which a place is kept for a pod that has to go.
    pub homes: BTreeSet<usize>,
}

impl Ledger {
    fn new(question: &Question) -> Ledger {
        let free = |node: &PlannedNode| {
            let mut free = Free::new();
            for (placement, held) in node.gpus.iter().flat_map(|gpu| &gpu.instances) {
                if *held == Held::Free {
                    *free.entry(placement.profile).or_default() += 1;
                }
            }
            free
        };
        let free = question.nodes.iter().map(free).collect();
        Ledger { free, changing: BTreeSet::new(), homes: BTreeSet::new() }
    }

    /// Free instances of all nodes.
    pub fn total(&self) -> Free {
        let mut total = Free::new();
        for (profile, count) in self.free.iter().flatten() {
            *total.entry(*profile).or_default() += count;
        }
        total
    }
}

impl<'a> Planner<'a> {
    fn new(policy: &'a Policy, question: &'a Question) -> Planner<'a> {
        let profiles = question.nodes.iter().flat_map(|node| node.model.profiles);
        let slices = profiles.map(|profile| (profile.name, profile.memory_slices)).collect();
        let worth = Worth::new(&question.demand, &slices);
        let left_out = worth.left_out(&Ledger::new(question).total());
        let doors = question.nodes.iter().map(|node| doors(policy, node)).collect();
        let layouts = question.nodes.iter().map(layout).collect();
        Planner { policy, question, worth, layouts, doors, left_out }
    }

    /// Whether the GPU at `gpu` of a node may be changed.
    fn is_open(&self, node: usize, gpu: usize) -> bool {
        let planned = &self.question.nodes[node];
        let by_load = self.doors[node].iter().any(|door| door.gpu().is_some_and(|at| usize::from(at) == gpu));
        let stays = |held: &Held| match held {
            Held::Free => false,
            Held::Pinned => true,
            Held::Movable(pod) => self.question.pods[*pod].homes.is_empty(),
        };
        // A GPU with a pod that stays keeps its instances where only the whole GPU can be changed.
        let whole = planned.actuator == Actuator::MigManager;
        let affected = planned.gpus.iter().enumerate().filter(|(at, _)| *at == gpu || !planned.mapped);
        let stuck = affected.flat_map(|(_, gpu)| &gpu.instances).any(|(_, held)| stays(held));
        planned.changeable && (by_load || !self.left_out.is_empty()) && !(whole && stuck)
    }

    /// One answer of the packer, weighed: proposals, and the nodes that were turned down.
    fn round(&self, closed: &BTreeSet<usize>) -> Result<(Vec<Proposal>, Vec<usize>), PackError> {
        let nodes = &self.question.nodes;
        let mut problem = Problem { demand: self.demand(), ..Problem::default() };
        let mut owners = Vec::new();
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| self.layouts[*at].is_some()) {
            for gpu in 0..node.gpus.len() {
                let open = !closed.contains(&at) && self.is_open(at, gpu);
                problem.gpus.push(self.gpu(at, gpu, open));
                owners.push((at, gpu));
            }
        }
        if problem.gpus.iter().all(|gpu| gpu.change.is_none()) {
            return Ok((Vec::new(), Vec::new()));
        }
        problem.mix = DemandMix::from_counts(problem.demand.iter().map(|d| (d.profile, u64::from(d.count))));
        let plan = packing::pack(&problem)?;
        let mut wanted: BTreeMap<usize, Vec<(usize, &Layout)>> = BTreeMap::new();
        for (at, (node, gpu)) in owners.into_iter().enumerate().filter(|(at, _)| plan.changed[*at]) {
            wanted.entry(node).or_default().push((gpu, &plan.layouts[at]));
        }
        let mut ledger = Ledger::new(self.question);
        let (mut proposals, mut turned_down) = (Vec::new(), Vec::new());
        for (node, gpus) in wanted {
            match weigh(self, node, &gpus, &mut ledger) {
                Weighed::Worthwhile(proposal) => proposals.push(*proposal),
                Weighed::TurnedDown => turned_down.push(node),
                Weighed::Nothing => {}
            }
        }
        proposals.sort_by_key(|proposal| {
            (Reverse(proposal.why.gain.saturating_sub(proposal.why.cost)), proposal.node.clone())
        });
        Ok((proposals, turned_down))
    }

    fn gpu(&self, node: usize, gpu: usize, open: bool) -> Gpu {
        let planned = &self.question.nodes[node];
        let (policy, slices) = (self.policy, u32::from(planned.model.memory_slices));
        let holder = |placement: Placement, held: Held| match held {
            Held::Free => Holder::Free,
            Held::Movable(pod) if open && !self.question.pods[pod].homes.is_empty() => {
                let size = placement.slots(planned.model).map_or(0, |slots| slots.iter().count());
                let cost = policy.costs.drain.as_secs().saturating_mul(size as u64);
                Holder::Movable { cost: u32::try_from(cost).unwrap_or(u32::MAX) }
            }
            Held::Pinned | Held::Movable(_) => Holder::Pinned,
        };
        let seconds = |time: std::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let change = match planned.actuator {
            Actuator::MigManager => {
                let node = seconds(policy.costs.mig_manager).saturating_mul(slices);
                ChangeCost { node, instance: 1 }
            }
            Actuator::Agent => ChangeCost { node: 0, instance: seconds(policy.costs.agent_instance) },
        };
        Gpu {
            model: planned.model,
            node: u32::try_from(node).unwrap_or(u32::MAX),
            instances: planned.gpus[gpu]
                .instances
                .iter()
                .map(|&(placement, held)| Instance { placement, holder: holder(placement, held) })
                .collect(),
            change: open.then_some(change),
        }
    }

    /// Everything that is worth building for, as far as some model of the cluster has it.
    fn demand(&self) -> Vec<Demand> {
        let demand = &self.question.demand;
        let waiting = demand.waiting.iter().map(|waiting| (waiting.profile, waiting.priority, waiting.count));
        let coming = demand.coming.iter().map(|(profile, count)| (*profile, COMING, *count));
        let arrivals = demand.arrivals.iter().filter(|(_, rate)| rate.is_finite());
        let arrivals = arrivals.map(|(profile, rate)| (*profile, ARRIVALS, rate.ceil().max(0.0) as u32));
        let mut targets: BTreeMap<ProfileName, u32> = BTreeMap::new();
        for (node, doors) in self.question.nodes.iter().zip(&self.doors) {
            for door in doors {
                let target = match door {
                    Trigger::Split { .. } => self.policy.split_target,
                    Trigger::Merge { .. } => self.policy.merge_target,
                    Trigger::Pending(_) => continue,
                };
                if let Some(profile) = self.policy.target_profile(node.model, target) {
                    *targets.entry(profile.name).or_default() += u32::from(target.instances);
                }
            }
        }
        let targets = targets.into_iter().map(|(profile, count)| (profile, TARGETS, count));
        let offered = |profile| self.question.nodes.iter().any(|node| node.model.profile(profile).is_ok());
        waiting
            .chain(coming)
            .chain(arrivals)
            .chain(targets)
            .filter(|(profile, _, count)| *count > 0 && offered(*profile))
            .map(|(profile, priority, count)| Demand { profile, priority, count })
            .collect()
    }
}

/// What each load of a node asks for.
fn doors(policy: &Policy, node: &PlannedNode) -> Vec<Trigger> {
    let door = |(gpu, planned): (u16, &PlannedGpu)| {
        let load = planned.load?;
        match policy.band(load) {
            Band::Split => Some(Trigger::Split { gpu, load, below: policy.split_below }),
            Band::Merge => Some(Trigger::Merge { gpu, load, above: policy.merge_above }),
            Band::Keep => None,
        }
    };
    (0..).zip(&node.gpus).filter_map(door).collect()
}

fn layout(node: &PlannedNode) -> Option<NodeLayout> {
    let gpus = node
        .gpus
        .iter()
        .map(|gpu| Layout::new(node.model, gpu.instances.iter().map(|(placement, _)| *placement)).ok());
    NodeLayout::new(node.model, gpus.collect::<Option<_>>()?).ok()
}

#[cfg(test)]
mod tests;
