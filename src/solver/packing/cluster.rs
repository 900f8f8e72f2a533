//! The cluster as the program sees it: GPUs in classes, profiles as rows, and the parts that do not touch each other.
//!
//! Invariant: two GPUs are in one class exactly when the same columns, at the same costs, are possible on both. Where their
//! pinned instances stand does not matter then, only what these hold; so the number of classes is bounded by the kinds of
//! states, not by the number of GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::answer::Excluded;
use super::problem::{Gpu, Holder, Problem};
use crate::mig::{GpuModel, Layout, LayoutError, Placement, ProfileIndex, ProfileName};
use crate::solver::fragmentation::FragmentationTable;
use crate::solver::patterns::{Occupied, PatternTable};

/// What is known of one model.
pub(super) struct ModelTables {
    pub patterns: PatternTable,
    pub fragmentation: FragmentationTable,
}

/// The tables of every model in the cluster.
pub(super) type Tables = BTreeMap<&'static GpuModel, ModelTables>;

pub(super) fn tables(problem: &Problem) -> Tables {
    let models: BTreeSet<_> = problem.gpus.iter().map(|gpu| gpu.model).collect();
    let of = |model| ModelTables {
        patterns: PatternTable::new(model),
        fragmentation: FragmentationTable::new(model, &problem.mix),
    };
    models.into_iter().map(|model| (model, of(model))).collect()
}

/// The state that the GPUs of a class share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    pub model: &'static GpuModel,
    /// What must stay.
    pub held: Occupied,
    /// Instances that exist and are free, by start.
    pub free: Vec<Placement>,
    /// Instances whose pods may be moved, with the cost of that, by start.
    pub movable: Vec<(Placement, u32)>,
    /// What any change costs on this GPU (its share of the node's cost), and what each instance costs.
    pub change: Option<(u32, u32)>,
}

/// GPUs in the same state, by position in the problem.
pub(super) struct Class<'c> {
    pub state: &'c State,
    pub members: &'c BTreeSet<usize>,
}

/// The GPUs sorted into classes; those that contradict their tables are in none.
pub(super) struct Sorted {
    classes: BTreeMap<State, BTreeSet<usize>>,
    /// By GPU: its present layout, empty where that contradicts its table.
    layouts: Vec<Arc<Layout>>,
    excluded: BTreeMap<usize, LayoutError>,
    /// By GPU: the rank of its node among the nodes.
    nodes: Vec<usize>,
    /// By node: GPUs that may change, which share the cost of a pause.
    changeable: BTreeMap<u32, u32>,
    /// Whether movable pods may move.
    moves: bool,
}

impl Sorted {
    pub fn new(problem: &Problem) -> Sorted {
        let mut sorted = Sorted {
            classes: BTreeMap::new(),
            layouts: problem.gpus.iter().map(|gpu| Arc::new(Layout::empty(gpu.model))).collect(),
            excluded: BTreeMap::new(),
            nodes: ranks(problem),
            changeable: BTreeMap::new(),
            moves: problem.limits.moves > 0,
        };
        for gpu in problem.gpus.iter().filter(|gpu| gpu.change.is_some()) {
            *sorted.changeable.entry(gpu.node).or_default() += 1;
        }
        for (at, gpu) in problem.gpus.iter().enumerate() {
            sorted.add(at, gpu);
        }
        sorted
    }

    fn add(&mut self, at: usize, gpu: &Gpu) {
        match Layout::new(gpu.model, gpu.instances.iter().map(|instance| instance.placement)) {
            Ok(layout) => {
                self.layouts[at] = Arc::new(layout);
                self.classes.entry(self.state(gpu)).or_default().insert(at);
            }
            Err(error) => drop(self.excluded.insert(at, error)),
        }
    }

    /// Sorts one GPU anew that has changed; it must be as changeable as before and on the same node.
    pub fn replace(&mut self, at: usize, before: &Gpu, after: &Gpu) {
        if self.excluded.remove(&at).is_none() {
            let state = self.state(before);
            if let Some(members) = self.classes.get_mut(&state) {
                members.remove(&at);
                if members.is_empty() {
                    self.classes.remove(&state);
                }
            }
        }
        self.layouts[at] = Arc::new(Layout::empty(after.model));
        self.add(at, after);
    }

    fn state(&self, gpu: &Gpu) -> State {
        let sharing = self.changeable.get(&gpu.node).copied().unwrap_or(1);
        state(gpu, sharing, self.moves)
    }

    pub fn classes(&self) -> impl Iterator<Item = Class<'_>> {
        self.classes.iter().map(|(state, members)| Class { state, members })
    }

    pub fn layouts(&self) -> &[Arc<Layout>] {
        &self.layouts
    }

    /// The rank of the node that a GPU is on.
    pub fn node(&self, gpu: usize) -> usize {
        self.nodes[gpu]
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.iter().max().map_or(0, |last| last + 1)
    }

    pub fn excluded(&self) -> Vec<Excluded> {
        let excluded = |(&gpu, error): (&usize, &LayoutError)| Excluded { gpu, error: error.clone() };
        self.excluded.iter().map(excluded).collect()
    }

    /// Whether any GPU in planning has the profile.
    pub fn offers(&self, profile: ProfileName) -> bool {
        self.classes.keys().any(|state| state.model.profile(profile).is_ok())
    }
}

/// By GPU: the rank of its node.
fn ranks(problem: &Problem) -> Vec<usize> {
    let mut nodes: Vec<u32> = problem.gpus.iter().map(|gpu| gpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    problem.gpus.iter().map(|gpu| nodes.partition_point(|node| *node < gpu.node)).collect()
}

/// The state of a GPU whose layout is legal; `sharing` GPUs share the cost of a change on its node.
fn state(gpu: &Gpu, sharing: u32, moves: bool) -> State {
    let mut state = State {
        model: gpu.model,
        held: Occupied::default(),
        free: Vec::new(),
        movable: Vec::new(),
        change: gpu.change.map(|cost| (cost.node / sharing, cost.instance)),
    };
    for instance in &gpu.instances {
        match instance.holder {
            Holder::Free => state.free.push(instance.placement),
            Holder::Movable { cost } if moves => state.movable.push((instance.placement, cost)),
            _ => state.held = state.held.union(Occupied::of(gpu.model, instance.placement)),
        }
    }
    state.free.sort_unstable();
    state.movable.sort_unstable();
    state
}

/// A part of the cluster that shares no wanted profile with the rest.
pub(super) struct Component<'c> {
    pub models: BTreeSet<&'static GpuModel>,
    pub classes: Vec<Class<'c>>,
    /// The profiles that are wanted, or whose pods may move: the rows.
    pub profiles: Vec<ProfileName>,
    /// Whether the limit on moves could be reached.
    pub tied: bool,
}

impl Component<'_> {
    /// The row of a profile.
    pub fn row(&self, profile: ProfileName) -> Option<usize> {
        self.profiles.binary_search(&profile).ok()
    }

    /// By profile of a model: its row.
    pub fn rows(&self, model: &GpuModel) -> Vec<Option<usize>> {
        model.profiles.iter().map(|profile| self.row(profile.name)).collect()
    }
}

/// Divides the cluster. With a limit on moves that could be reached everything is one part, since all share that limit.
pub(super) fn components<'c>(problem: &Problem, sorted: &'c Sorted) -> Vec<Component<'c>> {
    let mut profiles: BTreeSet<ProfileName> = BTreeSet::new();
    profiles.extend(problem.demand.iter().filter(|demand| demand.count > 0).map(|demand| demand.profile));
    let mut pods = 0;
    let mut models = BTreeSet::new();
    for class in sorted.classes() {
        models.insert(class.state.model);
        pods += (class.state.movable.len() * class.members.len()) as u64;
        profiles.extend(class.state.movable.iter().map(|(placement, _)| placement.profile));
    }
    let tied = pods > u64::from(problem.limits.moves) && problem.limits.moves > 0;
    let mut components: Vec<Component> = Vec::new();
    for model in models {
        let named = model.profiles.iter().map(|profile| profile.name).filter(|name| profiles.contains(name));
        let wanted: BTreeSet<ProfileName> = named.collect();
        let mut models = BTreeSet::from([model]);
        let mut all = wanted.clone();
        let linked = |other: &mut Component| tied || other.profiles.iter().any(|name| wanted.contains(name));
        for other in components.extract_if(.., linked) {
            models.extend(other.models);
            all.extend(other.profiles);
        }
        let profiles = all.into_iter().collect();
        components.push(Component { models, classes: Vec::new(), profiles, tied });
    }
    for class in sorted.classes() {
        let own = components.iter_mut().find(|component| component.models.contains(class.state.model));
        if let Some(own) = own {
            own.classes.push(class);
        }
    }
    components
}

/// The profiles of a model that have a row.
pub(super) fn wanted(rows: &[Option<usize>]) -> impl Fn(ProfileIndex) -> bool + '_ {
    move |index| rows.get(usize::from(index.0)).is_some_and(Option::is_some)
}
