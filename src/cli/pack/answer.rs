//! What `pack` answers, by name instead of by position: the document that `--json` prints, and what the text is made of.
//!
//! Invariant: every GPU of the request is either under `gpus` or under `excluded`, and every pod of the demand is either in an
//! instance or counted under `unplaced`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::input::{GpuName, Purpose, Task};
use super::measured::{Fragmentation, fragmentation};
use super::wire::Actuator;
use crate::mig::{Layout, Placement, Step};
use crate::solver::fragmentation::WHOLE;
use crate::solver::packing::{Holder, Plan, Reason};
use crate::solver::transition::{
    Action, GpuChange, PodMove, Site, Transition, TransitionError, Weights, plan, torn_down,
};

/// The whole answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    pub summary: Summary,
    pub gpus: Vec<Gpu>,
    pub unplaced: Vec<Unplaced>,
    pub excluded: Vec<Excluded>,
    /// By model, of the GPUs under `gpus`: how scattered their free slices are then.
    pub fragmentation: Vec<Fragmentation>,
    /// In the order in which they must be done.
    pub steps: Vec<Change>,
    /// The steps that lead back.
    pub undo: Vec<Change>,
    /// What the same layouts mean when mig-manager makes them.
    pub mig_manager: Vec<TornDown>,
}

/// What was reached, beside what can be reached at most.
///
/// The parts are optimised in their order: pods by priority, GPUs, disruption, fragmentation. A bound holds for all plans that are
/// as good as the bounds of the parts before it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// Pods asked for.
    pub pods: u64,
    pub placed: u64,
    /// The same by priority, highest first.
    pub priorities: Vec<Priority>,
    /// GPUs in planning.
    pub gpus: usize,
    /// GPUs in use, and the fewest.
    pub gpus_used: u64,
    pub gpus_bound: u64,
    /// How far the answer may be from the best, as a share of the first priority that is not proven, else of the GPUs.
    pub gap: f64,
    /// Whether everything that was optimised is proven to be the best.
    pub optimal: bool,
    pub pods_moved: usize,
    pub gpus_changed: usize,
    /// Capacity lost by moves and changes, in slice-seconds, and the least.
    pub disruption: u64,
    pub disruption_bound: u64,
    /// Free slices of all GPUs in planning that a pod of the recent demand could not use, on average over that demand, and the
    /// least.
    pub fragmentation: f64,
    pub fragmentation_bound: f64,
}

/// The demand of one priority.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Priority {
    pub priority: i32,
    /// Pods asked for.
    pub pods: u64,
    /// Pods placed, and the most of any plan that serves every higher priority as well as its bound says.
    pub placed: u64,
    pub bound: u64,
}

/// One GPU as it shall be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpu {
    pub node: String,
    pub index: u16,
    pub model: &'static str,
    /// Length of the axis of memory slices.
    pub slices: u8,
    /// Ordered by start.
    pub instances: Vec<Instance>,
}

/// An instance as it shall be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    pub profile: String,
    pub start: u8,
    /// Memory slices.
    pub size: u8,
    #[serde(rename = "use")]
    pub usage: Use,
    /// Whether it has to be created.
    pub created: bool,
    /// The running pod in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// For a new pod: its position in the demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<usize>,
}

/// What an instance is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Use {
    /// Its running pod stays.
    Kept,
    /// A running pod moves here.
    Moved,
    /// A pod of the demand.
    Placed,
    /// Nobody yet.
    Free,
}

/// Pods of the demand without a place.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unplaced {
    /// Position in the demand.
    pub demand: usize,
    pub profile: String,
    pub priority: i32,
    pub count: u32,
    pub reason: &'static str,
}

/// A GPU kept out of planning.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Excluded {
    pub node: String,
    pub index: u16,
    pub reason: String,
}

/// An instance by its GPU's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Place {
    pub node: String,
    pub index: u16,
    pub profile: String,
    pub start: u8,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub(super) enum Change {
    Destroy { at: Place },
    Create { at: Place },
    Move { pod: String, from: Place, to: Place },
    Evict { pod: String, from: Place },
    Bind { pod: String, to: Place },
}

impl Change {
    /// Whether it changes a layout; the others are about pods.
    pub fn is_of_layout(&self) -> bool {
        matches!(self, Change::Destroy { .. } | Change::Create { .. })
    }
}

/// A GPU that mig-manager destroys all instances of.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TornDown {
    pub node: String,
    pub index: u16,
    /// The running pods that lose their instance.
    pub pods: Vec<String>,
}

/// The plan by name. The error is one of this program: a plan that no order of steps can carry out.
pub(super) fn answer(task: &Task, plan: &Plan) -> Result<Answer, TransitionError> {
    let excluded: BTreeSet<usize> = plan.excluded.iter().map(|excluded| excluded.gpu).collect();
    let (changes, transition) = transition(task, plan, &excluded)?;
    let pods = Pods::new(task, plan);
    let shown = |gpu: &usize| {
        !(excluded.contains(gpu)
            || task.purpose == Purpose::Count && plan.layouts[*gpu].placements().is_empty())
    };
    let name = |gpu: usize| (task.names[gpu].node.clone(), task.names[gpu].index);
    let gpus = gpus(task, plan, (0..plan.layouts.len()).filter(shown));
    let (mut steps, mut undo) =
        (pods.changes(transition.steps(), false), pods.changes(&transition.inverse(), true));
    if task.actuator == Actuator::MigManager {
        // It would destroy an instance into which a pod has moved: all layouts first, and last on the way back. No layout
        // waits for a pod, since GPUs that hold one keep theirs.
        steps.sort_by_key(|step| !step.is_of_layout());
        undo.sort_by_key(Change::is_of_layout);
    }
    Ok(Answer {
        summary: summary(task, plan),
        fragmentation: fragmentation(&gpus, &task.problem.mix),
        gpus,
        unplaced: plan.unplaced.iter().map(|unplaced| self::unplaced(task, unplaced)).collect(),
        excluded: (plan.excluded.iter())
            .map(|excluded| {
                let (node, index) = name(excluded.gpu);
                Excluded { node, index, reason: excluded.error.to_string() }
            })
            .collect(),
        steps,
        undo,
        mig_manager: (torn_down(&changes).into_iter())
            .map(|down| {
                let (node, index) = name(down.gpu);
                let pods = down.hit.iter().filter_map(|at| task.names[down.gpu].pods.get(at).cloned());
                TornDown { node, index, pods: pods.collect() }
            })
            .collect(),
    })
}

fn summary(task: &Task, plan: &Plan) -> Summary {
    let slices = |parts: u64| parts as f64 / WHOLE as f64;
    let pods = |priority: Option<i32>| -> u64 {
        let demand = task.problem.demand.iter();
        let of = demand.filter(|demand| priority.is_none_or(|priority| demand.priority == priority));
        of.map(|demand| u64::from(demand.count)).sum()
    };
    let reached = plan.score.placed.iter().zip(&plan.bound.placed);
    let priorities = plan.priorities.iter().zip(reached).map(|(&priority, (&placed, &bound))| Priority {
        priority,
        pods: pods(Some(priority)),
        placed,
        bound,
    });
    Summary {
        pods: pods(None),
        placed: plan.score.placed.iter().sum(),
        priorities: priorities.collect(),
        gpus: plan.layouts.len() - plan.excluded.len(),
        gpus_used: plan.score.gpus,
        gpus_bound: plan.bound.gpus,
        gap: plan.gap(),
        optimal: plan.is_optimal(),
        pods_moved: plan.moves.len(),
        gpus_changed: plan.changed.iter().filter(|changed| **changed).count(),
        disruption: plan.score.disruption,
        disruption_bound: plan.bound.disruption,
        fragmentation: slices(plan.score.fragmentation),
        fragmentation_bound: slices(plan.bound.fragmentation),
    }
}

/// By GPU of the problem what it is and shall be, and the steps in between. An excluded GPU has no instances in either.
fn transition(
    task: &Task,
    plan: &Plan,
    excluded: &BTreeSet<usize>,
) -> Result<(Vec<GpuChange>, Transition), TransitionError> {
    let mut changes = Vec::with_capacity(plan.layouts.len());
    for (gpu, (present, wanted)) in task.problem.gpus.iter().zip(&plan.layouts).enumerate() {
        let instances = if excluded.contains(&gpu) { &[][..] } else { &present.instances[..] };
        let from = Layout::new(present.model, instances.iter().map(|instance| instance.placement));
        let held = instances.iter().filter(|instance| instance.holder != Holder::Free);
        changes.push(GpuChange {
            from: from.map_err(|error| TransitionError::Layout { gpu, error })?,
            to: Layout::clone(wanted),
            held: held.map(|instance| instance.placement).collect(),
        });
    }
    let site = |(gpu, placement)| Site { gpu, placement };
    let moves = plan.moves.iter().map(|m| PodMove {
        from: site(m.from),
        to: Some(site(m.to)),
        cost: move_cost(task, m.from),
    });
    let transition = self::plan(&changes, &moves.collect::<Vec<_>>(), Weights::default())?;
    Ok((changes, transition))
}

fn move_cost(task: &Task, (gpu, placement): (usize, Placement)) -> u64 {
    let mut instances = task.problem.gpus[gpu].instances.iter();
    match instances.find(|instance| instance.placement == placement).map(|instance| instance.holder) {
        Some(Holder::Movable { cost }) => u64::from(cost),
        _ => 0,
    }
}

fn gpus(task: &Task, plan: &Plan, shown: impl Iterator<Item = usize>) -> Vec<Gpu> {
    let placed: BTreeMap<(usize, Placement), usize> =
        plan.placed.iter().map(|placed| ((placed.gpu, placed.placement), placed.demand)).collect();
    let arriving: BTreeMap<_, _> = plan.moves.iter().map(|m| (m.to, m.from)).collect();
    let leaving: BTreeSet<_> = plan.moves.iter().map(|m| m.from).collect();
    let instance = |gpu: usize, placement: Placement| {
        let at = (gpu, placement);
        let pod = |(gpu, placement): (usize, Placement)| task.names[gpu].pods.get(&placement).cloned();
        let stays = pod(at).filter(|_| !leaving.contains(&at));
        let (usage, pod) = match (arriving.get(&at), stays) {
            (Some(&from), _) => (Use::Moved, pod(from)),
            (None, Some(pod)) => (Use::Kept, Some(pod)),
            (None, None) if placed.contains_key(&at) => (Use::Placed, None),
            (None, None) => (Use::Free, None),
        };
        let gpu = &task.problem.gpus[gpu];
        Instance {
            profile: placement.profile.to_string(),
            start: placement.start,
            size: placement.slots(gpu.model).map_or(1, |slots| slots.len()),
            usage,
            created: gpu.instances.iter().all(|instance| instance.placement != placement),
            pod,
            demand: placed.get(&at).copied(),
        }
    };
    shown
        .map(|gpu| Gpu {
            node: task.names[gpu].node.clone(),
            index: task.names[gpu].index,
            model: task.problem.gpus[gpu].model.name,
            slices: task.problem.gpus[gpu].model.memory_slices,
            instances: plan.layouts[gpu]
                .placements()
                .iter()
                .map(|&placement| instance(gpu, placement))
                .collect(),
        })
        .collect()
}

fn unplaced(task: &Task, unplaced: &crate::solver::packing::Unplaced) -> Unplaced {
    let demand = task.problem.demand[unplaced.demand];
    Unplaced {
        demand: unplaced.demand,
        profile: demand.profile.to_string(),
        priority: demand.priority,
        count: unplaced.count,
        reason: match unplaced.reason {
            Reason::NoGpuOffersProfile => "no GPU in planning offers this profile",
            Reason::NoRoom => "no room beside the pods that run and those of the same or a higher priority",
        },
    }
}

/// Who is where: the pods by the instance they hold now, and by the one they move to.
struct Pods<'a> {
    names: &'a [GpuName],
    arriving: BTreeMap<Site, String>,
}

impl<'a> Pods<'a> {
    fn new(task: &'a Task, plan: &Plan) -> Self {
        let arrives = |m: &crate::solver::packing::Move| {
            let name = task.names[m.from.0].pods.get(&m.from.1).cloned().unwrap_or_default();
            (Site { gpu: m.to.0, placement: m.to.1 }, name)
        };
        Pods { names: &task.names, arriving: plan.moves.iter().map(arrives).collect() }
    }

    fn holder(&self, site: &Site) -> String {
        self.names[site.gpu].pods.get(&site.placement).cloned().unwrap_or_default()
    }

    fn arriving(&self, site: &Site) -> String {
        self.arriving.get(site).cloned().unwrap_or_default()
    }

    fn place(&self, gpu: usize, placement: Placement) -> Place {
        let name = &self.names[gpu];
        let profile = placement.profile.to_string();
        Place { node: name.node.clone(), index: name.index, profile, start: placement.start }
    }

    /// The steps by name. On the way back it is the pods that arrived which leave.
    fn changes(&self, steps: &[Action], back: bool) -> Vec<Change> {
        let leaves = |site: &Site| if back { self.arriving(site) } else { self.holder(site) };
        let enters = |site: &Site| if back { self.holder(site) } else { self.arriving(site) };
        let place = |site: &Site| self.place(site.gpu, site.placement);
        let change = |step: &Action| match step {
            Action::Change { gpu, step: Step::Create(at) } => Change::Create { at: self.place(*gpu, *at) },
            Action::Change { gpu, step: Step::Destroy(at) } => Change::Destroy { at: self.place(*gpu, *at) },
            Action::Move { from, to } => Change::Move { pod: leaves(from), from: place(from), to: place(to) },
            Action::Evict(from) => Change::Evict { pod: leaves(from), from: place(from) },
            Action::Bind(to) => Change::Bind { pod: enters(to), to: place(to) },
        };
        steps.iter().map(change).collect()
    }
}
