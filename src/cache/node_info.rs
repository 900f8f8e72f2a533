//! One node and what is taken of it.
//!
//! Invariants: `requested`, the host ports, the GPUs' layouts and the free slices are always what the node and its pods make
//! them. Pods that are nominated for the node are known and not counted. Where a pod holds MIG instances at places nobody told us, the node's slots are *unaccounted* and count as taken:
//! two pods on one slice are worse than a slice unused. `held` counts the affinity terms of the node's pods.

mod suppose;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use suppose::Supposed;

use super::Generation;
use crate::mig::{Layout, ProfileName};
use crate::model::{
    ClaimUse, DevicePlacement, HeldTerm, HostPort, Labels, Node, NodeName, Partitioning, Pod, PodSpec,
    PodUid, ResourceName, Resources, Shunned, Time, Upkeep,
};

/// A node's entry in the cache.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    pub(super) generation: Generation,
    name: NodeName,
    node: Option<Node>,
    pods: BTreeMap<PodUid, Occupant>,
    requested: Resources,
    host_ports: Vec<HostPort>,
    held: BTreeMap<HeldTerm, i64>,
    pub(super) nominees: Vec<(PodUid, Occupant)>,
    /// Who keeps away from it for a while.
    shunned: Vec<Shunned>,
    gpus: Vec<Layout>,
    unaccounted: usize,
    free_slices: u64,
}

/// A pod on a node: what it holds, by what the rules of others select it, and what its end would cost.
#[derive(Clone, Debug)]
pub struct Occupant {
    /// Its name.
    pub name: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether that is for another's sake.
    pub preempted: bool,
    /// Its priority.
    pub priority: i32,
    /// When a kubelet took it up.
    pub started: Option<Time>,
    /// Who would replace it if it had to go.
    pub upkeep: Upkeep,
    /// Whether a container of it keeps crashing.
    pub crashing: bool,
    /// Its `metadata.generation` when it came or last changed.
    pub generation: i64,
    /// What it asked for.
    pub spec: Arc<PodSpec>,
    /// Its volumes with a claim behind them.
    pub volumes: Option<Arc<[ClaimUse]>>,
    placements: Vec<DevicePlacement>,
    /// Whether all of its placements are in `gpus`.
    accounted: bool,
}

impl Occupant {
    /// The instances chosen for it, where they are created on demand.
    pub fn placements(&self) -> &[DevicePlacement] {
        &self.placements
    }

    /// A pod that is to be counted, with the instances chosen for it.
    pub(super) fn of(pod: &Pod, placements: &[DevicePlacement]) -> Occupant {
        Occupant {
            name: Arc::clone(&pod.id.name),
            namespace: Arc::clone(&pod.id.namespace),
            labels: Arc::clone(&pod.labels),
            terminating: pod.terminating,
            preempted: pod.preempted,
            priority: pod.priority,
            started: pod.started,
            upkeep: pod.upkeep.clone(),
            crashing: pod.crashing,
            generation: pod.generation,
            volumes: pod.volumes.clone(),
            spec: Arc::clone(&pod.spec),
            placements: placements.to_vec(),
            accounted: false,
        }
    }
}

impl Default for NodeInfo {
    fn default() -> NodeInfo {
        NodeInfo {
            generation: Generation::default(),
            name: NodeName::from(""),
            node: None,
            pods: BTreeMap::new(),
            requested: Resources::default(),
            host_ports: Vec::new(),
            held: BTreeMap::new(),
            nominees: Vec::new(),
            shunned: Vec::new(),
            gpus: Vec::new(),
            unaccounted: 0,
            free_slices: 0,
        }
    }
}

impl NodeInfo {
    /// The node's name, known or lingering.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// The node; `None` if only pods on it are known.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// Whether pods of this spec keep away from it, since its kubelet turned such a pod away.
    pub fn is_shunned_by(&self, spec: &PodSpec) -> bool {
        self.shunned.iter().any(|shunned| shunned.concerns(spec))
    }

    /// The generation of its last change.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// What its pods take.
    pub fn requested(&self) -> &Resources {
        &self.requested
    }

    /// The host ports its pods take.
    pub fn host_ports(&self) -> &[HostPort] {
        &self.host_ports
    }

    /// The instances on each of its GPUs, where they are created on demand; empty elsewhere.
    pub fn gpus(&self) -> &[Layout] {
        &self.gpus
    }

    /// Whether instances exist on its GPUs at places that nobody told us.
    pub fn has_unaccounted_instances(&self) -> bool {
        self.unaccounted > 0
    }

    /// Memory slices of MIG instances (on demand: of GPUs) that no pod holds.
    pub fn free_slices(&self) -> u64 {
        self.free_slices
    }

    /// Number of pods counted here.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// The pods counted here, with the instances chosen for them.
    pub fn pods(&self) -> impl Iterator<Item = (&PodUid, &PodSpec, &[DevicePlacement])> {
        self.pods.iter().map(|(uid, pod)| (uid, &*pod.spec, &*pod.placements))
    }

    /// The pods counted here, as the rules of others see them.
    pub fn occupants(&self) -> impl Iterator<Item = &Occupant> {
        self.pods.values()
    }

    /// The same, with their uids.
    pub fn residents(&self) -> impl Iterator<Item = (&PodUid, &Occupant)> {
        self.pods.iter()
    }

    /// How many of its pods hold a term.
    pub fn holders(&self, term: &HeldTerm) -> i64 {
        self.held.get(term).copied().unwrap_or_default()
    }

    /// A pod counted here.
    pub(super) fn occupant(&self, uid: &PodUid) -> Option<&Occupant> {
        self.pods.get(uid)
    }

    /// The instances chosen for a pod counted here.
    pub(super) fn placements_of(&self, uid: &PodUid) -> &[DevicePlacement] {
        self.pods.get(uid).map_or(&[], |pod| &pod.placements)
    }

    /// Whether `pod` is counted here with just what it holds now. Instances that the API does not repeat count as unchanged.
    pub(super) fn holds_same(&self, pod: &Pod) -> bool {
        self.pods.get(&pod.id.uid).is_some_and(|held| {
            held.spec == pod.spec
                && held.terminating == pod.terminating
                && held.labels == pod.labels
                && held.volumes == pod.volumes
                && (pod.placements.is_empty() || held.placements == pod.placements)
        })
    }

    /// Takes over what is new of a pod counted here and changes neither what it holds nor what others see of it.
    pub(super) fn refresh(&mut self, pod: &Pod) {
        if let Some(held) = self.pods.get_mut(&pod.id.uid) {
            (held.preempted, held.started, held.generation) = (pod.preempted, pod.started, pod.generation);
            (held.crashing, held.upkeep) = (pod.crashing, pod.upkeep.clone());
        }
    }

    /// Whether there is anything to refresh.
    pub(super) fn is_outdated(&self, pod: &Pod) -> bool {
        self.pods.get(&pod.id.uid).is_some_and(|held| {
            (held.preempted, held.started, held.generation) != (pod.preempted, pod.started, pod.generation)
                || (held.crashing, &held.upkeep) != (pod.crashing, &pod.upkeep)
        })
    }

    /// Pods keep away from it, or no longer.
    pub(super) fn shun(&mut self, shunned: Shunned, keep_away: bool) {
        self.shunned.retain(|known| *known != shunned);
        if keep_away {
            self.shunned.push(shunned);
        }
    }

    /// Whether anybody keeps away from it.
    pub(super) fn is_shunned(&self) -> bool {
        !self.shunned.is_empty()
    }

    pub(super) fn set_name(&mut self, name: NodeName) {
        self.name = name;
    }

    pub(super) fn set_node(&mut self, node: Option<Node>) {
        let gpus = match node.as_ref().map(|node| &node.partitioning) {
            Some(&Partitioning::OnDemand { model, gpus }) => vec![Layout::empty(model); usize::from(gpus)],
            _ => Vec::new(),
        };
        self.node = node;
        self.gpus = gpus;
        self.unaccounted = 0;
        for pod in self.pods.values_mut() {
            pod.accounted = place(&mut self.gpus, &pod.spec, &pod.placements);
            self.unaccounted += usize::from(!pod.accounted);
        }
        self.count_free_slices();
    }

    pub(super) fn insert(&mut self, pod: &Pod, placements: &[DevicePlacement]) {
        self.enter(pod.id.uid.clone(), Occupant::of(pod, placements));
        self.count_free_slices();
    }

    fn enter(&mut self, uid: PodUid, mut pod: Occupant) {
        self.requested.add(&pod.spec.requests);
        self.host_ports.extend(pod.spec.host_ports.iter().cloned());
        pod.accounted = place(&mut self.gpus, &pod.spec, &pod.placements);
        self.unaccounted += usize::from(!pod.accounted);
        for term in pod.spec.relations.iter().flat_map(|relations| relations.held()) {
            *self.held.entry(term).or_default() += 1;
        }
        self.pods.insert(uid, pod);
    }

    pub(super) fn remove(&mut self, uid: &PodUid) -> Option<Occupant> {
        let pod = self.leave(uid)?;
        self.count_free_slices();
        Some(pod)
    }

    fn leave(&mut self, uid: &PodUid) -> Option<Occupant> {
        let pod = self.pods.remove(uid)?;
        self.requested.subtract(&pod.spec.requests);
        for port in &pod.spec.host_ports {
            if let Some(at) = self.host_ports.iter().position(|taken| taken == port) {
                self.host_ports.swap_remove(at);
            }
        }
        if pod.accounted {
            displace(&mut self.gpus, &pod.placements);
        } else {
            self.unaccounted -= 1;
        }
        for term in pod.spec.relations.iter().flat_map(|relations| relations.held()) {
            if let Some(count) = self.held.get_mut(&term) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&term);
                }
            }
        }
        Some(pod)
    }

    fn count_free_slices(&mut self) {
        self.free_slices = match &self.node {
            Some(node) if self.gpus.is_empty() => free_instance_slices(node, &self.requested),
            _ => self.gpus.iter().map(|gpu| u64::from(gpu.model().memory_slices - gpu.mask().len())).sum(),
        };
    }
}

/// Memory slices of the instances that a node advertises and no pod holds.
fn free_instance_slices(node: &Node, requested: &Resources) -> u64 {
    let free = |(name, offered): &(ResourceName, u64)| {
        let profile = ProfileName::from_resource(name.as_str())?.ok()?;
        Some(offered.saturating_sub(requested.get(name)) * memory_slices(node, profile))
    };
    node.allocatable.extended().iter().filter_map(free).sum()
}

/// Memory slices of a profile on the node's model; where the model is unknown its compute slices stand in.
fn memory_slices(node: &Node, profile: ProfileName) -> u64 {
    let known = node.gpu_model.and_then(|model| model.profile(profile).ok());
    u64::from(known.map_or(profile.compute_slices(), |geometry| geometry.memory_slices))
}

/// Enters a pod's instances into the GPUs. All or none: `false` if a place is missing, does not exist or is taken, and then
/// nothing has changed. A node without GPUs cut on demand has nothing to enter.
fn place(gpus: &mut [Layout], spec: &PodSpec, placements: &[DevicePlacement]) -> bool {
    if gpus.is_empty() || spec.mig.is_empty() {
        return true;
    }
    let wanted: u64 = spec.mig.iter().map(|request| request.count).sum();
    if wanted != placements.len() as u64 {
        return false;
    }
    for (done, instance) in placements.iter().enumerate() {
        let gpu = usize::from(instance.gpu);
        let Some(larger) = gpus.get(gpu).and_then(|gpu| gpu.clone().with(instance.placement).ok()) else {
            displace(gpus, &placements[..done]);
            return false;
        };
        gpus[gpu] = larger;
    }
    true
}

/// Takes instances out that were entered before.
fn displace(gpus: &mut [Layout], placements: &[DevicePlacement]) {
    for instance in placements {
        if let Some(gpu) = gpus.get_mut(usize::from(instance.gpu))
            && let Ok(smaller) = gpu.clone().without(instance.placement)
        {
            *gpu = smaller;
        }
    }
}
