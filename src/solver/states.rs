//! Every placed layout of one model as a number, with what adding or removing an instance leads to.
//!
//! A policy that looks ahead asks thousands of times what a GPU would become; here each answer is one read. There are 723
//! states on an eight-slice model (the empty GPU included), 26 on the A30 and the RTX PRO 6000.
//!
//! Invariant: state 0 is the empty GPU, a state is reached from it by adding its instances in any order, and `add` and
//! `remove` are each other's inverse.

use std::collections::BTreeMap;

use crate::mig::{GpuModel, Layout, Placement, ProfileGeometry, Slots, Variants, enumerate_layouts};

/// A layout's number in the [`LayoutStates`] that gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub u16);

/// One instance: the profile's position in [`LayoutStates::profiles`] and the first slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// Position of the profile, large profiles first.
    pub profile: u8,
    /// First memory slice.
    pub start: u8,
}

/// One state.
#[derive(Clone, Debug)]
struct State {
    mask: Slots,
    instances: Vec<Spot>,
    /// What may be added, ordered by profile and start, and what it leads to.
    additions: Vec<(Spot, StateId)>,
    /// What each of `instances` leaves behind.
    removals: Vec<StateId>,
}

/// All layouts of base profiles on one model.
#[derive(Clone, Debug)]
pub struct LayoutStates {
    model: &'static GpuModel,
    profiles: Vec<&'static ProfileGeometry>,
    states: Vec<State>,
}

impl LayoutStates {
    /// Enumerates the states of `model`.
    pub fn new(model: &'static GpuModel) -> LayoutStates {
        let mut profiles: Vec<_> = model.profiles.iter().filter(|profile| profile.name.is_base()).collect();
        profiles.sort_by_key(|profile| std::cmp::Reverse((profile.memory_slices, profile.name)));
        let spot = |placement: &Placement| {
            let profile = profiles.iter().position(|profile| profile.name == placement.profile)?;
            Some(Spot { profile: u8::try_from(profile).ok()?, start: placement.start })
        };
        let table = enumerate_layouts(model, Variants::Base);
        let mut layouts: Vec<Vec<Spot>> = vec![Vec::new()];
        layouts.extend(
            table.layouts().iter().map(|layout| layout.placements().iter().filter_map(spot).collect()),
        );
        layouts.iter_mut().for_each(|layout: &mut Vec<Spot>| layout.sort_by_key(|spot| spot.start));
        let ids: BTreeMap<Vec<Spot>, StateId> =
            (0..).map(StateId).zip(&layouts).map(|(id, layout)| (layout.clone(), id)).collect();
        let mut states: Vec<State> = layouts
            .into_iter()
            .map(|instances| {
                let window = |spot: &Spot| profiles[usize::from(spot.profile)].window(spot.start);
                let mask = instances.iter().fold(Slots::EMPTY, |mask, spot| mask.union(window(spot)));
                State { mask, instances, additions: Vec::new(), removals: Vec::new() }
            })
            .collect();
        for at in 0..states.len() {
            let instances = states[at].instances.clone();
            for removed in 0..instances.len() {
                let mut rest = instances.clone();
                let spot = rest.remove(removed);
                let Some(&before) = ids.get(&rest) else { continue };
                states[at].removals.push(before);
                if let Ok(id) = u16::try_from(at) {
                    states[usize::from(before.0)].additions.push((spot, StateId(id)));
                }
            }
        }
        states.iter_mut().for_each(|state| state.additions.sort_unstable());
        LayoutStates { model, profiles, states }
    }

    /// The model.
    pub const fn model(&self) -> &'static GpuModel {
        self.model
    }

    /// The base profiles, large ones first.
    pub fn profiles(&self) -> &[&'static ProfileGeometry] {
        &self.profiles
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Never: the empty GPU is a state.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The occupied slices.
    pub fn mask(&self, state: StateId) -> Slots {
        self.states[usize::from(state.0)].mask
    }

    /// Free memory slices.
    pub fn free(&self, state: StateId) -> u8 {
        self.model.memory_slices - self.mask(state).len()
    }

    /// The instances, by start.
    pub fn instances(&self, state: StateId) -> &[Spot] {
        &self.states[usize::from(state.0)].instances
    }

    /// Everything that can be added, ordered by profile and start, with the state that it leads to.
    pub fn additions(&self, state: StateId) -> &[(Spot, StateId)] {
        &self.states[usize::from(state.0)].additions
    }

    /// The additions of one profile.
    pub fn additions_of(&self, state: StateId, profile: u8) -> &[(Spot, StateId)] {
        let all = self.additions(state);
        let from = all.partition_point(|(spot, _)| spot.profile < profile);
        let to = from + all[from..].partition_point(|(spot, _)| spot.profile == profile);
        &all[from..to]
    }

    /// The state with one instance more, if it fits.
    pub fn add(&self, state: StateId, spot: Spot) -> Option<StateId> {
        let all = self.additions(state);
        all.binary_search_by_key(&spot, |(spot, _)| *spot).ok().map(|at| all[at].1)
    }

    /// The state with one instance less, if it is there.
    pub fn remove(&self, state: StateId, spot: Spot) -> Option<StateId> {
        let at = self.instances(state).iter().position(|instance| *instance == spot)?;
        Some(self.states[usize::from(state.0)].removals[at])
    }

    /// Each instance with what its end leaves behind.
    pub fn removals(&self, state: StateId) -> impl Iterator<Item = (Spot, StateId)> {
        let state = &self.states[usize::from(state.0)];
        state.instances.iter().copied().zip(state.removals.iter().copied())
    }

    /// The state of a layout, as far as it consists of base profiles.
    pub fn find(&self, layout: &Layout) -> StateId {
        let spot = |placement: &Placement| {
            let profile = self.profiles.iter().position(|profile| profile.name == placement.profile)?;
            Some(Spot { profile: u8::try_from(profile).ok()?, start: placement.start })
        };
        let spots = layout.placements().iter().filter_map(spot);
        spots.fold(StateId::default(), |state, spot| self.add(state, spot).unwrap_or(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(model: &str, states: usize) {
        let states_of = LayoutStates::new(GpuModel::by_name(model).unwrap());
        assert_eq!(states_of.len(), states, "{model}");
        for id in (0..states as u16).map(StateId) {
            let sizes: u8 = states_of
                .instances(id)
                .iter()
                .map(|spot| states_of.profiles()[usize::from(spot.profile)].memory_slices)
                .sum();
            assert_eq!(states_of.mask(id).len(), sizes, "instances overlap");
            assert_eq!(states_of.free(id) + sizes, states_of.model().memory_slices);
            assert_eq!(states_of.removals(id).count(), states_of.instances(id).len());
            for &(spot, after) in states_of.additions(id) {
                assert_eq!(states_of.add(id, spot), Some(after));
                assert_eq!(states_of.remove(after, spot), Some(id));
                assert!(states_of.additions_of(id, spot.profile).contains(&(spot, after)));
            }
        }
        assert!(states_of.instances(StateId::default()).is_empty());
    }

    #[test]
    fn states_are_the_layouts_and_steps_invert() {
        check("A100-80GB", 723);
        check("A30-24GB", 26);
        check("RTX-PRO-6000-96GB", 26);
    }

    #[test]
    fn layouts_are_found() {
        let model = GpuModel::by_name("A100-80GB").unwrap();
        let states = LayoutStates::new(model);
        for layout in enumerate_layouts(model, Variants::Base).layouts() {
            assert_eq!(states.mask(states.find(layout)), layout.mask(), "{layout}");
        }
    }
}
