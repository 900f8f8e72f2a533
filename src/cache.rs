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
//!
//! Bound: one entry per node and per pod of the API server.

mod node_info;
mod snapshot;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{DevicePlacement, Node, NodeName, Pod, PodUid};

pub use node_info::NodeInfo;
pub use snapshot::Snapshot;

/// Position of a node in the cache, stable while the node is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Takes in a node. Returns its position if it is new or differs from before.
    pub fn apply_node(&mut self, node: Node) -> Option<NodeIndex> {
        let at = self.index_of(&node.name);
        if self.at(at).node() == Some(&node) {
            return None;
        }
        self.known += usize::from(self.at(at).node().is_none());
        self.change(at).set_node(Some(node));
        Some(at)
    }

    /// Takes out a node. Its pods go on counting until the API server has deleted them, should the node come back.
    pub fn delete_node(&mut self, name: &NodeName) {
        let Some(at) = self.find(name) else { return };
        self.known -= usize::from(self.at(at).node().is_some());
        self.change(at).set_node(None);
        self.release_if_vacant(at);
    }

    /// Takes in a pod that is bound to `node`, confirming it if it was assumed there. Returns the node on which something
    /// may have become free: the one it was counted on before, if its place or its requests differ now.
    pub fn apply_pod(&mut self, pod: &Pod, node: &NodeName) -> Option<NodeIndex> {
        let at = self.index_of(node);
        if let Some(held) = self.pods.get_mut(&pod.id.uid)
            && held.node == at
            && self.nodes[at.as_usize()].holds_same(pod)
        {
            self.assumed -= usize::from(std::mem::take(&mut held.assumed));
            return None;
        }
        let known = self.placements_of(&pod.id.uid);
        let freed = self.remove_pod(&pod.id.uid);
        let at = self.index_of(node);
        self.insert(pod, at, if pod.placements.is_empty() { &known } else { &pod.placements }, false);
        freed
    }

    /// Counts a pod on a node on which it is about to be bound.
    pub fn assume(&mut self, pod: &Pod, at: NodeIndex, placements: &[DevicePlacement]) {
        debug_assert!(!self.pods.contains_key(&pod.id.uid), "{} is counted already", pod.id);
        self.insert(pod, at, placements, true);
    }

    /// Takes out a pod, assumed or not. Returns the node on which it was counted.
    pub fn remove_pod(&mut self, uid: &PodUid) -> Option<NodeIndex> {
        let held = self.pods.remove(uid)?;
        self.assumed -= usize::from(held.assumed);
        self.change(held.node).remove(uid);
        self.release_if_vacant(held.node);
        Some(held.node)
    }

    fn placements_of(&self, uid: &PodUid) -> Vec<DevicePlacement> {
        self.node_of(uid).map(|at| self.at(at).placements_of(uid).to_vec()).unwrap_or_default()
    }

    fn insert(&mut self, pod: &Pod, node: NodeIndex, placements: &[DevicePlacement], assumed: bool) {
        self.assumed += usize::from(assumed);
        self.pods.insert(pod.id.uid.clone(), Held { node, assumed });
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
        if info.node().is_none() && info.pod_count() == 0 {
            let name = info.name().clone();
            self.names.remove(&name);
            self.vacant.push(at);
        }
    }
}

#[cfg(test)]
mod tests;
