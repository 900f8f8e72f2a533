//! A node as it would be: with the pods that are nominated for it, or without pods that might have to go.
//!
//! Invariant: these are copies. What is supposed never reaches the cache.

use std::borrow::Cow;

use super::{NodeInfo, Occupant};
use crate::model::PodUid;

/// A node without some of its pods.
#[derive(Clone, Debug)]
pub struct Supposed(NodeInfo);

impl Supposed {
    /// The node as it is now.
    pub fn info(&self) -> &NodeInfo {
        &self.0
    }

    /// Puts a pod in. Where it would hold a MIG instance that another holds by now, the node's instances count as unaccounted.
    pub fn put(&mut self, uid: PodUid, pod: Occupant) {
        self.0.enter(uid, pod);
    }

    /// Takes a pod out.
    pub fn take(&mut self, uid: &PodUid) -> Option<Occupant> {
        self.0.leave(uid)
    }
}

impl NodeInfo {
    /// The pods nominated for it.
    pub fn nominees(&self) -> &[(PodUid, Occupant)] {
        &self.nominees
    }

    /// The node as a pod of this priority has to see it: nominated pods of the same priority or a higher one, itself (`own`)
    /// left out, count as if they ran.
    pub fn seen_by(&self, priority: i32, own: Option<&PodUid>) -> Cow<'_, NodeInfo> {
        if self.nominees.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut seen = self.clone();
        for (uid, nominee) in self.yields_to(priority, own) {
            seen.enter(uid.clone(), nominee.clone());
        }
        seen.count_free_slices();
        Cow::Owned(seen)
    }

    /// The node without its pods of a lower priority, and those pods.
    pub fn without_lower(&self, priority: i32) -> (Supposed, Vec<(PodUid, Occupant)>) {
        let mut rest = self.clone();
        let lower = self.pods.iter().filter(|(_, pod)| pod.priority < priority);
        let lower = lower.filter_map(|(uid, _)| Some((uid.clone(), rest.leave(uid)?))).collect();
        (Supposed(rest), lower)
    }

    /// The nominated pods that one of this priority has to yield to, itself left out.
    pub fn yields_to(
        &self,
        priority: i32,
        own: Option<&PodUid>,
    ) -> impl Iterator<Item = &(PodUid, Occupant)> {
        self.nominees.iter().filter(move |(uid, nominee)| nominee.priority >= priority && own != Some(uid))
    }
}
