//! The cluster as the scheduler believes it to be: every node, and every pod that holds something there.
//!
//! A pod's way through the cache:
//!
//! ```text
//!              assume                 seen bound by the watch
//!   Initial ───────────► Assumed ──────────────────────────────► Added ──► (updated) ──► Deleted
//!      │                    │                                      ▲
//!      │                    └── forget: the bind failed ──► Initial│
//!      └───────────────────────── seen bound by the watch ─────────┘
//! ```
//!
//! Invariants:
//! - A pod counts on exactly one node, whoever bound it, from the moment it is assumed. An assumed pod never times out: its
//!   bind ends with a definite answer, and only that answer or the watch moves it on.
//! - Every change of a node gets a new, larger *generation*. Whoever remembers the generation up to which it has looked finds
//!   the nodes that changed since without touching the others: snapshots and the cycle's rankings are kept that way.
//! - Nodes keep their [`NodeIndex`] as long as they are known or still hold pods; a pod seen on an unknown node is counted
//!   there and becomes visible with the node.
//! - A *nominated* pod waits for a place that others have to leave. It counts nowhere; a pod that has to yield to it sees the
//!   node with it ([`NodeInfo::seen_by`]).
//! - The affinity terms of all counted and nominated pods are indexed by namespace, so that what they want of a newcomer is
//!   found without a look at any of them.
//!
//! Bound: one entry per node, pod and namespace of the API server.

mod node_info;
mod nominations;
mod snapshot;
mod storage;
mod terms;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{
    ClaimKey, DevicePlacement, Labels, Node, NodeName, Pod, PodKind, PodUid, Shunned, StorageKey,
    StorageObject,
};

use terms::TermIndex;

pub use node_info::{NodeInfo, Occupant, Supposed};
pub use snapshot::Snapshot;
pub use storage::{Storage, StorageChange};

/// Position of a node in the cache, stable while the node is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIndex(u32);

impl NodeIndex {
    /// The position as an index into per-node vectors.
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// A number that grows with every change of any node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// Where a pod counts.
#[derive(Clone, Copy, Debug)]
struct Held {
    node: NodeIndex,
    assumed: bool,
}

/// A pod that is no longer counted where, or as what, it was.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Where it was counted.
    pub node: NodeIndex,
    /// As what.
    pub pod: Occupant,
    /// Whether it holds nothing there any more, or something else; not if it is only labelled otherwise or begins to end.
    pub frees_room: bool,
}

/// What came of showing the cache a bound pod.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// What it was counted as before, where that was something else.
    pub left: Option<Departure>,
    /// Whether it is counted elsewhere, or as something else, than before.
    pub changed: bool,
}

/// What came of showing the cache a node that is new or differs from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// Its position.
    pub at: NodeIndex,
    /// Whether it came, went, or has other labels or taints: what the domains of a topology depend on.
    pub moves_domains: bool,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub struct Cache {
    nodes: Vec<Arc<NodeInfo>>,
    vacant: Vec<NodeIndex>,
    names: BTreeMap<NodeName, NodeIndex>,
    pods: BTreeMap<PodUid, Held>,
    /// Each node once, by the generation of its last change.
    changes: BTreeMap<Generation, NodeIndex>,
    generation: Generation,
    known: usize,
    assumed: usize,
    /// Where each pod is nominated that is not counted anywhere.
    nominations: BTreeMap<PodUid, NodeIndex>,
    /// Number of counted pods by priority.
    priorities: BTreeMap<i32, usize>,
    terms: TermIndex,
    namespaces: BTreeMap<Arc<str>, Labels>,
    /// How often a namespace came, went or changed.
    namespace_changes: u64,
    storage: Storage,
}

impl Cache {
    /// Number of nodes that exist (not those that only linger because of their pods).
    pub fn node_count(&self) -> usize {
        self.known
    }

    /// Number of pods counted on nodes, assumed ones included.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// Number of pods assumed and not yet seen bound.
    pub fn assumed_count(&self) -> usize {
        self.assumed
    }

    /// The newest generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The nodes that exist, with their positions.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIndex, &NodeInfo, &Node)> {
        self.positions().zip(&self.nodes).filter_map(|(at, info)| Some((at, &**info, info.node()?)))
    }

    /// Every position, vacant ones included.
    pub fn positions(&self) -> impl Iterator<Item = NodeIndex> {
        (0..).map(NodeIndex).take(self.nodes.len())
    }

    /// Length of vectors that are indexed by [`NodeIndex`].
    pub fn capacity(&self) -> usize {
        self.nodes.len()
    }

    /// The entry at a position.
    pub fn at(&self, index: NodeIndex) -> &NodeInfo {
        &self.nodes[index.as_usize()]
    }

    /// The entry of a node by name, known or lingering.
    pub fn find(&self, name: &NodeName) -> Option<NodeIndex> {
        self.names.get(name).copied()
    }

    /// The positions that changed after `since`, oldest change first.
    pub fn changed_since(&self, since: Generation) -> impl Iterator<Item = NodeIndex> {
        self.changes.range((std::ops::Bound::Excluded(since), std::ops::Bound::Unbounded)).map(|(_, at)| *at)
    }

    /// The node that holds a pod, assumed or not.
    pub fn node_of(&self, uid: &PodUid) -> Option<NodeIndex> {
        self.pods.get(uid).map(|held| held.node)
    }

    /// Whether the pod is assumed and not yet seen bound.
    pub fn is_assumed(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_some_and(|held| held.assumed)
    }

    /// The kind of a pod of ours: its spec, the terms of counted pods that concern it now, and what its volumes ask for now.
    pub fn kind_of(&self, pod: &Pod) -> PodKind {
        let namespace = &pod.id.namespace;
        let namespace_labels = || self.namespaces.get(namespace).cloned().unwrap_or_default();
        let terms = self.terms.concerning(namespace, namespace_labels, &pod.labels);
        let volumes = pod.volumes.as_ref().map(|uses| Arc::new(self.storage.needs(&pod.id, uses)));
        PodKind {
            spec: Arc::clone(&pod.spec),
            terms,
            volumes,
            priority: pod.priority,
            preempts: pod.preempts,
        }
    }

    /// What is known of claims and volumes.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Takes in an object of storage. Returns what that changes, if it is new or differs from before.
    pub fn apply_storage(&mut self, object: StorageObject) -> Option<StorageChange> {
        let mut change = self.storage.apply(object)?;
        self.follow_storage(&mut change);
        Some(change)
    }

    /// Takes out an object of storage. Returns what that changes, if it was known.
    pub fn delete_storage(&mut self, key: &StorageKey) -> Option<StorageChange> {
        let mut change = self.storage.delete(key)?;
        self.follow_storage(&mut change);
        Some(change)
    }

    /// Counts a claim of a pod that goes to `node` as the owner of `volume`, or as one for which a volume is made there.
    pub fn assume_claim(
        &mut self,
        claim: &ClaimKey,
        node: &NodeName,
        volume: Option<&Arc<str>>,
    ) -> StorageChange {
        match volume {
            Some(volume) => self.storage.give(volume, claim),
            None => self.storage.choose(claim, node),
        }
    }

    /// Ends what [`Cache::assume_claim`] began: the API shows it by now, or it comes to nothing.
    pub fn settle_claim(&mut self, claim: &ClaimKey, volume: Option<&Arc<str>>) -> StorageChange {
        self.storage.settle(claim, volume)
    }

    /// Gives a new generation to every node on which a change of storage may count, and notes those whose pods use its claims.
    fn follow_storage(&mut self, change: &mut StorageChange) {
        let mut nodes = self.storage.users(&change.claims);
        change.nodes.extend(nodes.iter().map(|at| self.at(*at).name().clone()));
        nodes.extend(change.nodes.iter().filter_map(|name| self.find(name)));
        if change.all {
            nodes.extend(self.nodes().map(|(at, ..)| at));
        }
        for at in nodes {
            self.change(at);
        }
    }

    /// How often a term came to be held that no counted pod had held.
    pub fn new_terms(&self) -> u64 {
        self.terms.arrivals()
    }

    /// The labels of a namespace, where it is known.
    pub fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    /// How often a namespace came, went or changed.
    pub fn namespace_changes(&self) -> u64 {
        self.namespace_changes
    }

    /// Takes in a namespace. Returns whether it is new or differs from before.
    pub fn apply_namespace(&mut self, name: Arc<str>, labels: Labels) -> bool {
        let changed = self.namespaces.get(&name) != Some(&labels);
        if changed {
            self.namespaces.insert(name, labels);
            self.namespace_changes += 1;
        }
        changed
    }

    /// Takes out a namespace. Returns whether it was known.
    pub fn delete_namespace(&mut self, name: &str) -> bool {
        let known = self.namespaces.remove(name).is_some();
        self.namespace_changes += u64::from(known);
        known
    }

    /// Takes in a node. Returns what that changes, if it is new or differs from before.
    pub fn apply_node(&mut self, node: Node) -> Option<NodeChange> {
        let at = self.index_of(&node.name);
        let before = self.at(at).node();
        if before == Some(&node) {
            return None;
        }
        let alike = |before: &Node| before.labels == node.labels && before.taints == node.taints;
        let moves_domains = !before.is_some_and(alike);
        self.known += usize::from(before.is_none());
        self.change(at).set_node(Some(node));
        Some(NodeChange { at, moves_domains })
    }

    /// Takes out a node. Its pods go on counting until the API server has deleted them, should the node come back. Returns
    /// whether it was known.
    pub fn delete_node(&mut self, name: &NodeName) -> bool {
        let Some(at) = self.find(name) else { return false };
        let known = self.at(at).node().is_some();
        self.known -= usize::from(known);
        self.change(at).set_node(None);
        self.release_if_vacant(at);
        known
    }

    /// Takes in a pod that is bound to `node`, confirming it if it was assumed there.
    pub fn apply_pod(&mut self, pod: &Pod, node: &NodeName) -> Arrival {
        let at = self.index_of(node);
        if let Some(held) = self.pods.get_mut(&pod.id.uid)
            && held.node == at
            && self.nodes[at.as_usize()].holds_same(pod)
        {
            self.assumed -= usize::from(std::mem::take(&mut held.assumed));
            if self.nodes[at.as_usize()].is_outdated(pod) {
                Arc::make_mut(&mut self.nodes[at.as_usize()]).refresh(pod);
            }
            return Arrival::default();
        }
        let known = self.placements_of(&pod.id.uid);
        let mut left = self.remove_pod(&pod.id.uid);
        if let Some(left) = &mut left {
            left.frees_room = left.node != at || left.pod.spec != pod.spec;
        }
        let at = self.index_of(node);
        self.insert(pod, at, if pod.placements.is_empty() { &known } else { &pod.placements }, false);
        Arrival { left, changed: true }
    }

    /// Counts a pod on a node on which it is about to be bound.
    pub fn assume(&mut self, pod: &Pod, at: NodeIndex, placements: &[DevicePlacement]) {
        debug_assert!(!self.pods.contains_key(&pod.id.uid), "{} is counted already", pod.id);
        self.insert(pod, at, placements, true);
    }

    /// Takes out a pod, assumed or not. Returns what it was counted as.
    pub fn remove_pod(&mut self, uid: &PodUid) -> Option<Departure> {
        let Held { node, assumed } = self.pods.remove(uid)?;
        self.assumed -= usize::from(assumed);
        let pod = self.change(node).remove(uid)?;
        self.terms.remove(&pod.spec);
        if let Some(uses) = &pod.volumes {
            self.storage.remove_pod(&pod.namespace, uses, node);
        }
        if let Some(count) = self.priorities.get_mut(&pod.priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&pod.priority);
            }
        }
        self.release_if_vacant(node);
        Some(Departure { node, pod, frees_room: true })
    }

    /// Pods keep away from a node, should it be known.
    pub fn shun(&mut self, node: &NodeName, shunned: Shunned) {
        if let Some(at) = self.find(node) {
            self.change(at).shun(shunned, true);
        }
    }

    /// Pods that kept away from a node may come. Returns its position.
    pub fn admit(&mut self, node: &NodeName, shunned: &Shunned) -> Option<NodeIndex> {
        let at = self.find(node)?;
        self.change(at).shun(shunned.clone(), false);
        self.release_if_vacant(at);
        Some(at)
    }

    /// A counted pod.
    pub fn occupant(&self, uid: &PodUid) -> Option<&Occupant> {
        self.node_of(uid).and_then(|at| self.at(at).occupant(uid))
    }

    fn placements_of(&self, uid: &PodUid) -> Vec<DevicePlacement> {
        self.node_of(uid).map(|at| self.at(at).placements_of(uid).to_vec()).unwrap_or_default()
    }

    fn insert(&mut self, pod: &Pod, node: NodeIndex, placements: &[DevicePlacement], assumed: bool) {
        self.assumed += usize::from(assumed);
        self.pods.insert(pod.id.uid.clone(), Held { node, assumed });
        self.terms.insert(&pod.spec);
        *self.priorities.entry(pod.priority).or_default() += 1;
        if let Some(uses) = &pod.volumes {
            self.storage.insert_pod(&pod.id.namespace, uses, node);
        }
        self.change(node).insert(pod, placements);
    }

    /// The entry to change, with its generation moved on. Copies the entry only if a snapshot still holds it.
    fn change(&mut self, at: NodeIndex) -> &mut NodeInfo {
        let info = Arc::make_mut(&mut self.nodes[at.as_usize()]);
        self.changes.remove(&info.generation);
        self.generation.0 += 1;
        info.generation = self.generation;
        self.changes.insert(self.generation, at);
        info
    }

    fn index_of(&mut self, name: &NodeName) -> NodeIndex {
        if let Some(at) = self.find(name) {
            return at;
        }
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(Arc::default());
            // More nodes than 2^32 do not fit into memory.
            NodeIndex(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
        });
        self.names.insert(name.clone(), at);
        self.change(at).set_name(name.clone());
        at
    }

    fn release_if_vacant(&mut self, at: NodeIndex) {
        let info = self.at(at);
        let vacant = info.node().is_none() && info.pod_count() == 0;
        if vacant && info.nominees().is_empty() && !info.is_shunned() {
            let name = info.name().clone();
            self.names.remove(&name);
            self.vacant.push(at);
        }
    }
}

#[cfg(test)]
mod tests;
