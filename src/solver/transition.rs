//! From the present instances of some GPUs to the wanted ones: which steps, in which order, and the way back.
//!
//! What has to be done follows from the two layouts alone: instances that only the present has are destroyed, those that
//! only the wanted one has are created, and every pod that is to move is moved once. The order does not: an instance can be
//! created only where nothing is in the way, destroyed only when no pod is in it, and a pod moves only into an instance that
//! exists and is free. These conditions are the edges of a graph whose nodes are the steps:
//!
//! ```text
//!   pods      a in 3g.20gb@0, to 3g.20gb@4
//!   present   3g.20gb@0  2g.10gb@4          wanted   4g.20gb@0  3g.20gb@4
//!
//!   destroy 2g.10gb@4 ──► create 3g.20gb@4 ──► move a ──► destroy 3g.20gb@0 ──► create 4g.20gb@0
//! ```
//!
//! A topological order of it is a shortest path through the legal layouts, since no path can have fewer steps than those that
//! the two layouts demand. (A further instance in between would only help a pod that is then moved twice, which is worse than
//! stopping it once.) Where the graph has a cycle, as when two pods change places or a new instance needs the slices of the
//! old one, no order moves everyone without a gap: then the cheapest set of pods that breaks every cycle is evicted before its
//! new instance exists. Tests hold the result against a search over all states.
//!
//! Invariant: an instance that a pod holds is never destroyed, and a held instance that no move names is never touched;
//! every state in between is a legal layout; the inverse is every step undone in reverse order and has the same properties.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use petgraph::Direction::{Incoming, Outgoing};
use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};
use thiserror::Error;

use crate::mig::{Counts, Layout, LayoutError, Placement, Step};

/// Most pods of one cycle for which every subset is tried (4,096 of them); beyond, the cheapest is evicted and what is left is
/// looked at again. One GPU has at most seven instances, so that only moves across GPUs get there.
const EXACT_CYCLE: usize = 12;

/// An instance of one of the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Position in the list of [`GpuChange`]s.
    pub gpu: usize,
    /// The instance.
    pub placement: Placement,
}

/// One GPU as it is and as it shall be.
#[derive(Debug, Clone)]
pub struct GpuChange {
    /// The present instances.
    pub from: Layout,
    /// The wanted instances, on the same model.
    pub to: Layout,
    /// Present instances that a running pod holds.
    pub held: Vec<Placement>,
}

/// A running pod that the plan moves; all others stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodMove {
    /// The instance that the pod holds.
    pub from: Site,
    /// A wanted instance of the same profile, or `None` when the pod leaves these GPUs.
    pub to: Option<Site>,
    /// What it costs to restart the pod, in the unit of [`Weights`]. A pod that has to stop before its new instance exists
    /// counts twice.
    pub cost: u64,
}

/// What a step on a free instance costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Creating an instance.
    pub create: u64,
    /// Destroying a free instance.
    pub destroy: u64,
}

/// Both take the driver about as long.
impl Default for Weights {
    fn default() -> Self {
        Weights { create: 1, destroy: 1 }
    }
}

/// One step of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Creates or destroys an instance.
    Change {
        /// The GPU.
        gpu: usize,
        /// What is done to it.
        step: Step,
    },
    /// A pod begins to run in one instance and only then leaves the other.
    Move {
        /// Where it ran.
        from: Site,
        /// Where it runs.
        to: Site,
    },
    /// The pod in this instance is stopped.
    Evict(Site),
    /// A stopped pod begins to run in this instance.
    Bind(Site),
}

impl Action {
    /// The step that undoes this one.
    pub const fn inverse(self) -> Self {
        match self {
            Action::Change { gpu, step } => Action::Change { gpu, step: step.inverse() },
            Action::Move { from, to } => Action::Move { from: to, to: from },
            Action::Evict(site) => Action::Bind(site),
            Action::Bind(site) => Action::Evict(site),
        }
    }
}

/// Ordered steps between two states of some GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transition {
    steps: Vec<Action>,
    cost: u64,
}

impl Transition {
    /// The steps, in the order in which they must be done.
    pub fn steps(&self) -> &[Action] {
        &self.steps
    }

    /// What all steps cost together.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps that lead back.
    pub fn inverse(&self) -> Vec<Action> {
        self.steps.iter().rev().map(|step| step.inverse()).collect()
    }
}

/// Why no transition exists.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransitionError {
    /// A held or wanted instance that is not there, or layouts of two models.
    #[error("GPU {gpu}: {error}")]
    Layout {
        /// Position of the GPU.
        gpu: usize,
        /// What is wrong.
        error: LayoutError,
    },
    /// The plan drops an instance whose pod it does not move.
    #[error(
        "GPU {}: a running pod holds {} and the wanted layout lacks it: keep the instance or move the pod",
        .0.gpu, .0.placement
    )]
    PinnedLost(Site),
    /// A move from an instance that no pod holds, or a second one from the same.
    #[error("GPU {}: no pod is left to move from {}: name each held instance once", .0.gpu, .0.placement)]
    NotHeld(Site),
    /// A move to an instance that is not wanted, that a pod keeps, or that another move takes.
    #[error("GPU {}: {} cannot take a pod: name a wanted instance that nobody keeps, once", .0.gpu, .0.placement)]
    NotFree(Site),
    /// A move to an instance of another profile.
    #[error("a pod in {} cannot move to {}: its instance must have the same profile", .from.placement, .to.placement)]
    OtherProfile {
        /// Where the pod is.
        from: Site,
        /// Where it was to go.
        to: Site,
    },
}

/// Finds the cheapest steps from the present layouts to the wanted ones.
///
/// They exist whenever the wanted layouts keep every instance whose pod is not moved. The answer depends on the arguments
/// alone, and lists the steps of one GPU together where their order allows it.
pub fn plan(gpus: &[GpuChange], moves: &[PodMove], weights: Weights) -> Result<Transition, TransitionError> {
    check(gpus, moves)?;
    let interrupted = interruptions(&Dependencies::new(gpus, moves, &BTreeSet::new()), moves);
    let dependencies = Dependencies::new(gpus, moves, &interrupted);
    let steps = dependencies.order();
    let changes: u64 = steps
        .iter()
        .map(|step| match step {
            Action::Change { step: Step::Create(_), .. } => weights.create,
            Action::Change { step: Step::Destroy(_), .. } => weights.destroy,
            Action::Move { .. } | Action::Evict(_) | Action::Bind(_) => 0,
        })
        .sum();
    let restarts: u64 = moves.iter().map(|pod| pod.cost).sum();
    let gaps: u64 = interrupted.iter().map(|&at| moves[at].cost).sum();
    Ok(Transition { steps, cost: changes + restarts + gaps })
}

/// What mig-manager does with one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornDown {
    /// Position of the GPU.
    pub gpu: usize,
    /// Instances whose pods lose them, ordered by start.
    pub hit: Vec<Placement>,
}

/// The GPUs that mig-manager would tear down to get the wanted counts, and the instances in use there.
///
/// It compares instances per profile, ignores where they start, and destroys all instances of a GPU whose counts differ before
/// it creates any (mig-parted `cmd/nvidia-mig-parted/apply/config.go`, `pkg/mig/config/config.go`). So a GPU that only
/// changes its starts is left alone, and every pod on one that changes its counts is hit, whether it was to move or not.
pub fn torn_down(gpus: &[GpuChange]) -> Vec<TornDown> {
    let differs = |change: &GpuChange| -> bool {
        let counts: [Counts; 2] = [change.from.counts(), change.to.counts()];
        counts[0] != counts[1]
    };
    let hit = |held: &[Placement]| held.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let changed = gpus.iter().enumerate().filter(|(_, change)| differs(change));
    changed.map(|(gpu, change)| TornDown { gpu, hit: hit(&change.held) }).collect()
}

/// Refuses what no order of steps can do.
fn check(gpus: &[GpuChange], moves: &[PodMove]) -> Result<(), TransitionError> {
    let mut held = BTreeSet::new();
    for (gpu, change) in gpus.iter().enumerate() {
        let (from, to) = (change.from.model().name, change.to.model().name);
        if from != to {
            return Err(TransitionError::Layout { gpu, error: LayoutError::ModelMismatch { from, to } });
        }
        for &placement in &change.held {
            if !has(&change.from, placement) {
                let error = LayoutError::Absent { model: from, placement };
                return Err(TransitionError::Layout { gpu, error });
            }
            held.insert(Site { gpu, placement });
        }
    }
    for pod in moves {
        if !held.remove(&pod.from) {
            return Err(TransitionError::NotHeld(pod.from));
        }
    }
    if let Some(&lost) = held.iter().find(|site| !has(&gpus[site.gpu].to, site.placement)) {
        return Err(TransitionError::PinnedLost(lost));
    }
    // From here on: the instances that nobody may move into.
    let mut taken = held;
    for pod in moves {
        let Some(to) = pod.to else { continue };
        if to.placement.profile != pod.from.placement.profile {
            return Err(TransitionError::OtherProfile { from: pod.from, to });
        }
        let wanted = gpus.get(to.gpu).is_some_and(|change| has(&change.to, to.placement));
        if to == pod.from || !wanted || !taken.insert(to) {
            return Err(TransitionError::NotFree(to));
        }
    }
    Ok(())
}

fn has(layout: &Layout, placement: Placement) -> bool {
    layout.placements().binary_search(&placement).is_ok()
}

/// Every step, and an edge from each to those that must wait for it.
struct Dependencies {
    graph: DiGraph<Action, ()>,
    /// By node: the move it carries out.
    moves: BTreeMap<NodeIndex, usize>,
}

impl Dependencies {
    /// The graph in which the moves `interrupted` are evictions with a later bind.
    fn new(gpus: &[GpuChange], moves: &[PodMove], interrupted: &BTreeSet<usize>) -> Self {
        let mut this = Dependencies { graph: DiGraph::new(), moves: BTreeMap::new() };
        // By instance: the step after which no pod is in it, and the one after which a pod can begin to run in it.
        let (mut vacated, mut entered) = (BTreeMap::new(), Vec::new());
        for (at, pod) in moves.iter().enumerate() {
            let (leaves, enters) = match pod.to {
                Some(to) if !interrupted.contains(&at) => {
                    let step = this.graph.add_node(Action::Move { from: pod.from, to });
                    this.moves.insert(step, at);
                    (step, Some((to, step)))
                }
                to => {
                    let leaves = this.graph.add_node(Action::Evict(pod.from));
                    let enters = to.map(|to| (to, this.graph.add_node(Action::Bind(to))));
                    if let Some((_, bind)) = enters {
                        this.graph.add_edge(leaves, bind, ());
                    }
                    (leaves, enters)
                }
            };
            vacated.insert(pod.from, leaves);
            entered.extend(enters);
        }
        let created: BTreeMap<Site, NodeIndex> =
            (0..).zip(gpus).flat_map(|(gpu, change)| this.change(gpu, change, &vacated)).collect();
        for (site, enters) in entered {
            for before in [created.get(&site), vacated.get(&site)].into_iter().flatten() {
                this.graph.add_edge(*before, enters, ());
            }
        }
        this
    }

    /// Adds what is destroyed and created on one GPU; returns the latter.
    fn change(
        &mut self,
        gpu: usize,
        change: &GpuChange,
        vacated: &BTreeMap<Site, NodeIndex>,
    ) -> Vec<(Site, NodeIndex)> {
        let mut destroyed = Vec::new();
        for placement in only_in(&change.from, &change.to) {
            let step = self.graph.add_node(Action::Change { gpu, step: Step::Destroy(placement) });
            if let Some(leaves) = vacated.get(&Site { gpu, placement }) {
                self.graph.add_edge(*leaves, step, ());
            }
            destroyed.push((placement, step));
        }
        let mut created = Vec::new();
        for placement in only_in(&change.to, &change.from) {
            let step = self.graph.add_node(Action::Change { gpu, step: Step::Create(placement) });
            let in_the_way = |old: Placement| Layout::new(change.from.model(), [old, placement]).is_err();
            for (_, before) in destroyed.iter().filter(|(old, _)| in_the_way(*old)) {
                self.graph.add_edge(*before, step, ());
            }
            created.push((Site { gpu, placement }, step));
        }
        created
    }

    /// The steps in an order that the edges allow, of those that can be next always the one with the smallest rank.
    fn order(&self) -> Vec<Action> {
        let mut waits_for: Vec<usize> = self
            .graph
            .node_indices()
            .map(|node| self.graph.neighbors_directed(node, Incoming).count())
            .collect();
        let ready = |node: NodeIndex| Reverse((self.rank(node), node));
        let mut next: BinaryHeap<_> =
            self.graph.node_indices().filter(|node| waits_for[node.index()] == 0).map(ready).collect();
        let mut steps = Vec::new();
        while let Some(Reverse((_, node))) = next.pop() {
            steps.push(self.graph[node]);
            for after in self.graph.neighbors_directed(node, Outgoing) {
                waits_for[after.index()] -= 1;
                if waits_for[after.index()] == 0 {
                    next.push(ready(after));
                }
            }
        }
        steps
    }

    /// Binds at once and evictions last, so that a stopped pod waits briefly; else GPU by GPU.
    fn rank(&self, node: NodeIndex) -> (u8, usize, Action) {
        let step = self.graph[node];
        match step {
            Action::Bind(site) => (0, site.gpu, step),
            Action::Change { gpu, .. } => (1, gpu, step),
            Action::Move { from, .. } => (1, from.gpu, step),
            Action::Evict(site) => (2, site.gpu, step),
        }
    }
}

fn only_in<'a>(layout: &'a Layout, other: &'a Layout) -> impl Iterator<Item = Placement> + 'a {
    layout.placements().iter().copied().filter(|placement| !has(other, *placement))
}

/// The cheapest set of moves without which no cycle is left.
fn interruptions(dependencies: &Dependencies, moves: &[PodMove]) -> BTreeSet<usize> {
    // Of the two algorithms for this, the one without recursion: chains can be long.
    let cycles = kosaraju_scc(&dependencies.graph).into_iter().filter(|steps| steps.len() > 1);
    cycles.flat_map(|steps| Knot::new(dependencies, &steps).loosened(moves)).collect()
}

/// Steps that all wait for one another; those that are moves have the move's number.
struct Knot {
    graph: DiGraph<Option<usize>, ()>,
}

impl Knot {
    fn new(dependencies: &Dependencies, steps: &[NodeIndex]) -> Self {
        let mut graph = DiGraph::new();
        let inside: BTreeMap<NodeIndex, NodeIndex> =
            steps.iter().map(|step| (*step, graph.add_node(dependencies.moves.get(step).copied()))).collect();
        for (step, node) in &inside {
            for after in dependencies.graph.neighbors(*step).filter_map(|after| inside.get(&after)) {
                graph.add_edge(*node, *after, ());
            }
        }
        Knot { graph }
    }

    /// The cheapest set of moves without which nothing waits for itself.
    fn loosened(&self, moves: &[PodMove]) -> BTreeSet<usize> {
        let mut pods: Vec<usize> = self.graph.node_weights().copied().flatten().collect();
        pods.sort_by_key(|&at| (moves[at].cost, at));
        let mut given = BTreeSet::new();
        while pods.len() > EXACT_CYCLE && self.holds(&given) {
            given.insert(pods.remove(0));
        }
        pods.truncate(EXACT_CYCLE);
        let subsets = (0u32..1 << pods.len()).map(|bits| {
            let chosen = pods.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
            given.iter().chain(chosen.map(|(_, pod)| pod)).copied().collect::<BTreeSet<usize>>()
        });
        let cost = |set: &BTreeSet<usize>| (set.iter().map(|&at| moves[at].cost).sum::<u64>(), set.len());
        subsets.filter(|set| !self.holds(set)).min_by_key(cost).unwrap_or(given)
    }

    /// Whether something still waits for itself without these moves.
    fn holds(&self, without: &BTreeSet<usize>) -> bool {
        let kept = |pod: &Option<usize>| pod.is_none_or(|at| !without.contains(&at));
        let rest = self.graph.filter_map(|_, pod| kept(pod).then_some(()), |_, _| Some(()));
        toposort(&rest, None).is_err()
    }
}

#[cfg(test)]
mod tests;
