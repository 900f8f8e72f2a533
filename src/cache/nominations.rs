//! Places that are kept for pods that wait for others to leave.
//!
//! Invariant: a pod is nominated for one node at most, and only while it counts nowhere; a node's generation moves on when a
//! nomination comes or goes, so that rankings follow. Bound: one entry per unbound pod of ours.

use super::node_info::Occupant;
use super::{Cache, Departure, NodeIndex};
use crate::model::{DevicePlacement, NodeName, Pod, PodUid};

impl Cache {
    /// Keeps a place for an unbound pod, and the instances chosen for it, in the place of an earlier one.
    pub fn nominate(&mut self, pod: &Pod, node: &NodeName, placements: &[DevicePlacement]) -> NodeIndex {
        drop(self.dismiss(&pod.id.uid));
        let at = self.index_of(node);
        self.terms.insert(&pod.spec);
        self.nominations.insert(pod.id.uid.clone(), at);
        let nominee = (pod.id.uid.clone(), Occupant::of(pod, placements));
        self.change(at).nominees.push(nominee);
        at
    }

    /// Keeps no place for a pod any longer. Returns what was kept.
    pub fn dismiss(&mut self, uid: &PodUid) -> Option<Departure> {
        let node = self.nominations.remove(uid)?;
        let info = self.change(node);
        let at = info.nominees.iter().position(|(nominee, _)| nominee == uid)?;
        let (_, pod) = info.nominees.remove(at);
        self.terms.remove(&pod.spec);
        self.release_if_vacant(node);
        Some(Departure { node, pod, frees_room: true })
    }

    /// Where a place is kept for a pod.
    pub fn nomination(&self, uid: &PodUid) -> Option<NodeIndex> {
        self.nominations.get(uid).copied()
    }

    /// The pods for which places are kept.
    pub fn nominations(&self) -> impl Iterator<Item = (&PodUid, NodeIndex)> {
        self.nominations.iter().map(|(uid, at)| (uid, *at))
    }

    /// Whether any place is kept.
    pub fn has_nominations(&self) -> bool {
        !self.nominations.is_empty()
    }

    /// Whether any counted pod has a lower priority.
    pub fn has_lower(&self, priority: i32) -> bool {
        self.priorities.first_key_value().is_some_and(|(lowest, _)| *lowest < priority)
    }
}
