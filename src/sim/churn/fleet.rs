//! GPUs, and the running pods on them at their starts.

use std::collections::BTreeMap;

use super::clock::PodNo;
use crate::solver::states::{LayoutStates, Spot, StateId};

/// Where a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The GPU's number.
    pub gpu: usize,
    /// Profile and start.
    pub spot: Spot,
}

/// All GPUs. Invariant: an instance exists exactly where a pod runs, and instances never overlap.
#[derive(Clone, Debug)]
pub struct Fleet<'a> {
    states: &'a LayoutStates,
    gpus: Vec<StateId>,
    places: BTreeMap<PodNo, Place>,
    used: u64,
    moved: u64,
}

impl<'a> Fleet<'a> {
    /// `gpus` empty GPUs.
    pub fn new(states: &'a LayoutStates, gpus: usize) -> Fleet<'a> {
        Fleet { states, gpus: vec![StateId(0); gpus], places: BTreeMap::new(), used: 0, moved: 0 }
    }

    /// The tables.
    pub fn states(&self) -> &'a LayoutStates {
        self.states
    }

    /// What each GPU holds.
    pub fn gpus(&self) -> &[StateId] {
        &self.gpus
    }

    /// Memory slices in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Pods moved so far.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// The pod at `place`.
    pub fn pod_at(&self, place: Place) -> Option<PodNo> {
        self.places.iter().find(|(_, at)| **at == place).map(|(pod, _)| *pod)
    }

    /// Whether the slices of `place` are free and an instance may start there.
    pub fn fits(&self, place: Place) -> bool {
        self.states.add(self.gpus[place.gpu], place.spot).is_some()
    }

    /// Starts a pod; false, and nothing happens, when its slices are not free.
    pub fn place(&mut self, pod: PodNo, place: Place) -> bool {
        let Some(after) = self.states.add(self.gpus[place.gpu], place.spot) else { return false };
        self.gpus[place.gpu] = after;
        self.used += self.size(place.spot);
        self.places.insert(pod, place).is_none()
    }

    /// Takes a pod away.
    pub fn remove(&mut self, pod: PodNo) -> Option<Place> {
        let place = self.places.remove(&pod)?;
        self.gpus[place.gpu] = self.states.remove(self.gpus[place.gpu], place.spot)?;
        self.used -= self.size(place.spot);
        Some(place)
    }

    /// Moves a running pod; false, and nothing happens, when the new slices are not free once the old ones are.
    pub fn relocate(&mut self, pod: PodNo, to: Place) -> bool {
        let Some(from) = self.remove(pod) else { return false };
        if from.spot.profile == to.spot.profile && self.place(pod, to) {
            self.moved += 1;
            return true;
        }
        self.place(pod, from);
        false
    }

    fn size(&self, spot: Spot) -> u64 {
        u64::from(self.states.profiles()[usize::from(spot.profile)].memory_slices)
    }
}
