//! Whether one node's change is worth what it costs, by counting what it really does: mig-manager empties a GPU whose numbers
//! change, the agent touches single instances.
//!
//! ```text
//!   gain = hold · (slices served afterwards − slices served before)                     served: see `worth`
//!   cost = drain · slices of the pods that go
//!        + mig-manager's time · (slices of the GPUs that change + slices that the node's other free instances would serve)
//!          or the agent's time for an instance · slices created and destroyed
//! ```
//!
//! Invariants: a pod goes only where a free instance elsewhere is kept for its successor; a node whose load asks for nothing is
//! changed only where a waiting pod gets a place by it.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Ledger, Planner};
use super::proposal::{Actuator, Blast, Evictee, Proposal, Trigger, Why};
use super::question::{Held, PlannedNode};
use super::worth::Free;
use crate::mig::{GpuModel, Layout, NodeLayout, ProfileName};
use crate::model::NodeName;

/// What became of a change that the packer suggested.
pub(super) enum Weighed {
    /// It gains more than it costs.
    Worthwhile(Box<Proposal>),
    /// It does not, or somebody who must go has no place to go to.
    TurnedDown,
    /// It would change nothing.
    Nothing,
}

/// Weighs one node's change on top of those in the ledger, and enters it if it is worthwhile.
pub(super) fn weigh(
    planner: &Planner<'_>,
    node: usize,
    wanted: &[(usize, &Layout)],
    ledger: &mut Ledger,
) -> Weighed {
    let Some(change) = Change::new(planner, node, wanted) else { return Weighed::Nothing };
    if ledger.homes.contains(&node) {
        return Weighed::TurnedDown;
    }
    let mut after = ledger.clone();
    after.changing.insert(node);
    let Some(evictees) = change.settle(&mut after) else { return Weighed::TurnedDown };
    after.free[node] = change.free_afterwards();
    let worth = &planner.worth;
    let [free_before, free_after] = [ledger.total(), after.total()];
    let mut without = after.clone();
    without.free[node] = Free::new();
    let slices = worth.slices(&free_after);
    let gain = planner.policy.hold.as_secs_f64() * (slices - worth.slices(&free_before));
    let cost = change.cost(slices - worth.slices(&without.total()));
    let places_waiting = worth.placed(&free_after) > worth.placed(&free_before);
    let doors = &planner.doors[node];
    if gain <= cost || (doors.is_empty() && !places_waiting) {
        return Weighed::TurnedDown;
    }
    let pending = places_waiting.then(|| Trigger::Pending(worth.left_out(&free_before)));
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let actuator = change.node.actuator;
    let why = Why {
        triggers: doors.iter().cloned().chain(pending).collect(),
        horizon_minutes: u32::try_from(planner.policy.horizon.as_secs() / 60).unwrap_or(u32::MAX),
        demand: made_for(planner, &free_before, &free_after),
        gain: gain as u64,
        cost: cost.ceil() as u64,
        blast: Blast {
            gpus: count(change.touched.len()),
            pods: count(evictees.len()),
            operands: actuator == Actuator::MigManager,
        },
    };
    *ledger = after;
    let Change { node, from, to, .. } = change;
    Weighed::Worthwhile(Box::new(Proposal { node: node.name.clone(), actuator, from, to, evictees, why }))
}

/// One node's change.
struct Change<'a> {
    planner: &'a Planner<'a>,
    node: &'a PlannedNode,
    from: NodeLayout,
    to: NodeLayout,
    /// The GPUs that it changes.
    touched: BTreeSet<usize>,
    /// The pods that have to go, by position in the question.
    leaving: BTreeSet<usize>,
}

impl<'a> Change<'a> {
    /// `None` where nothing would change.
    fn new(planner: &'a Planner<'a>, at: usize, wanted: &[(usize, &Layout)]) -> Option<Change<'a>> {
        let node = &planner.question.nodes[at];
        let from = planner.layouts[at].clone()?;
        let with = |gpus: &mut dyn Iterator<Item = (usize, &Layout)>| {
            let mut layouts = from.gpus().to_vec();
            gpus.for_each(|(gpu, layout)| layouts[gpu] = layout.clone());
            NodeLayout::new(node.model, layouts).ok()
        };
        let suggested = with(&mut wanted.iter().copied())?;
        let touched: BTreeSet<usize> =
            node.actuator.touches(&from, &suggested).into_iter().map(usize::from).collect();
        // mig-manager leaves a GPU alone whose numbers are as they shall be, wherever its instances would start.
        let to = with(&mut wanted.iter().copied().filter(|(gpu, _)| touched.contains(gpu)))?;
        let leaving = leaving(node, &to, &touched);
        (!touched.is_empty()).then_some(Change { planner, node, from, to, touched, leaving })
    }

    /// A place, on a node that does not change, for everybody who has to go; `None` where somebody finds none.
    fn settle(&self, ledger: &mut Ledger) -> Option<Vec<Evictee>> {
        let nodes = self.planner.question.nodes.iter().enumerate();
        let position: BTreeMap<&NodeName, usize> = nodes.map(|(at, node)| (&node.name, at)).collect();
        let settle = |pod: &usize| {
            let pod = &self.planner.question.pods[*pod];
            let at = |home: &NodeName| position.get(home).copied().filter(|at| !ledger.changing.contains(at));
            let homes = pod.homes.iter().filter_map(|home| Some((home, at(home)?)));
            let mut homes = homes.collect::<Vec<_>>().into_iter();
            let (home, at) = homes.find(|(_, at)| take(&mut ledger.free[*at], &pod.profiles))?;
            ledger.homes.insert(at);
            Some(Evictee {
                pod: pod.pod.clone(),
                workload: pod.workload.clone(),
                profiles: pod.profiles.clone(),
                home: home.clone(),
            })
        };
        self.leaving.iter().map(settle).collect()
    }

    /// What the node will have free.
    fn free_afterwards(&self) -> Free {
        let mut free: Free = self.to.counts().into_iter().map(|(profile, n)| (profile, n.into())).collect();
        for (placement, held) in self.node.gpus.iter().flat_map(|gpu| &gpu.instances) {
            let stays = match held {
                Held::Free => false,
                Held::Pinned => true,
                Held::Movable(pod) => !self.leaving.contains(pod),
            };
            if let (true, Some(count)) = (stays, free.get_mut(&placement.profile)) {
                *count = count.saturating_sub(1);
            }
        }
        free
    }

    /// In slice-seconds; `idle` are the slices that the node's free instances would serve.
    fn cost(&self, idle: f64) -> f64 {
        let (costs, model) = (self.planner.policy.costs, self.node.model);
        let gone = self.leaving.iter().flat_map(|pod| &self.planner.question.pods[*pod].profiles);
        let drain = costs.drain.as_secs_f64() * gone.map(|profile| slices(model, *profile)).sum::<f64>();
        let act = match self.node.actuator {
            Actuator::MigManager => {
                let whole = f64::from(model.memory_slices) * self.touched.len() as f64;
                costs.mig_manager.as_secs_f64() * (whole + idle)
            }
            Actuator::Agent => {
                let gpus = self.from.gpus().iter().zip(self.to.gpus());
                costs.agent_instance.as_secs_f64()
                    * gpus.map(|(a, b)| only_in(a, b) + only_in(b, a)).sum::<f64>()
            }
        };
        drain + act
    }
}

/// The pods that have to go. Where it is not known which GPU a pod is on, all of the node's have to.
fn leaving(node: &PlannedNode, to: &NodeLayout, touched: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut leaving = BTreeSet::new();
    for (at, gpu) in node.gpus.iter().enumerate() {
        let whole = !node.mapped || (node.actuator == Actuator::MigManager && touched.contains(&at));
        for (placement, held) in &gpu.instances {
            if let Held::Movable(pod) = held
                && (whole || !to.gpus()[at].placements().contains(placement))
            {
                leaving.insert(*pod);
            }
        }
    }
    leaving
}

/// The pods that the new instances serve, waiting and forecast, beyond those served before.
fn made_for(planner: &Planner<'_>, before: &Free, after: &Free) -> BTreeMap<ProfileName, u32> {
    let demand = &planner.question.demand;
    let mut known = demand.coming.clone();
    for waiting in &demand.waiting {
        let count = known.entry(waiting.profile).or_default();
        *count = count.saturating_add(waiting.count);
    }
    let made = known.into_iter().map(|(profile, wanted)| {
        let [was, is] = [before, after].map(|free| free.get(&profile).map_or(0, |count| wanted.min(*count)));
        (profile, is.saturating_sub(was))
    });
    made.filter(|(_, count)| *count > 0).collect()
}

/// Takes the instances out if all are there.
fn take(free: &mut Free, profiles: &[ProfileName]) -> bool {
    let mut rest = free.clone();
    for profile in profiles {
        match rest.get_mut(profile) {
            Some(count) if *count > 0 => *count -= 1,
            _ => return false,
        }
    }
    *free = rest;
    true
}

/// Slices of the instances that one layout has and the other has not.
fn only_in(layout: &Layout, other: &Layout) -> f64 {
    let only = layout.placements().iter().filter(|placement| !other.placements().contains(placement));
    only.map(|placement| slices(layout.model(), placement.profile)).sum()
}

fn slices(model: &GpuModel, profile: ProfileName) -> f64 {
    model.profile(profile).map_or(0.0, |geometry| geometry.memory_slices.into())
}
