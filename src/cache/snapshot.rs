//! The cluster frozen at one generation, for work that goes on beside the engine: planning, debugging, reports.
//!
//! Invariant: a snapshot never changes; the cache copies an entry before it changes one that a snapshot holds. Taking one
//! costs as much as the number of nodes that changed since the last.

use std::sync::Arc;

use super::{Cache, Generation, NodeInfo};
use crate::model::Node;

/// Entries of all nodes at one generation. Cloning it costs one reference count a node.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    nodes: Vec<Arc<NodeInfo>>,
    generation: Generation,
}

impl Snapshot {
    /// Brings the snapshot up to the cache's newest generation; touches only what changed since its own.
    pub fn update(&mut self, cache: &Cache) {
        self.nodes.resize(cache.nodes.len(), Arc::default());
        for at in cache.changed_since(self.generation) {
            self.nodes[at.as_usize()] = Arc::clone(&cache.nodes[at.as_usize()]);
        }
        self.generation = cache.generation;
    }

    /// The generation it shows.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The nodes that exist.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeInfo, &Node)> {
        self.nodes.iter().filter_map(|info| Some((&**info, info.node()?)))
    }
}
