//! What a decision would be, without taking it.

use super::Engine;
use crate::cycle::{Diagnosis, candidates};
use crate::model::{NodeName, Pod};

/// What the engine would find for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examination {
    /// A scheduling gate holds the pod back, so no node is looked at.
    Gated,
    /// Nodes that can take it, best first; it would go to the first.
    Feasible(Vec<NodeName>),
    /// No node can take it, and why.
    Refused(Diagnosis),
}

impl Engine {
    /// What the next attempt to place `pod` would find: every node that could take it now, by the same rankings and filters
    /// from which [`crate::event::Event::Tick`] decides, or the reasons that it would be told. The pod need not be known, and
    /// nothing comes of it.
    pub fn examine(&mut self, pod: &Pod) -> Examination {
        if pod.gated {
            return Examination::Gated;
        }
        let kind = self.cache.kind_of(pod);
        let found = candidates(&self.cache, &self.tables, &mut self.rankings, &kind);
        if found.is_empty() {
            return Examination::Refused(Diagnosis::of(&self.cache, &self.tables, &mut self.rankings, &kind));
        }
        Examination::Feasible(found.into_iter().map(|at| self.cache.at(at).name().clone()).collect())
    }
}
