//! A set of GPU instances that can exist together on one GPU, and the search for one with given counts.
//!
//! Invariant: a [`Layout`] is legal by construction. Its instances start where their profiles may, share no memory
//! slice, are not more than a profile's `max`, and do not claim the same media engines.
//!
//! Why memory slices and media engines are enough: the compute slices of any set that satisfies the placement tables
//! never exceed those of the GPU, and a profile's `max` is either the number of its disjoint windows or, for one with
//! media extensions, 1. A test enumerates all of this for every model, so neither is checked again here.
//!
//! Media engines: a GPU has its media extensions once, so `+me` instances exclude one another whatever their size
//! (the tables give each of them `max` 1; only the exclusion across sizes gives the A30's 19 multisets). `+me.all`
//! takes every media engine, so that nothing but `-me` fits beside it. The latter is inferred from the name and from
//! `max` 1; where it should be too strict, a layout is refused that could exist, never the reverse.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;

use super::geometry::{GpuModel, ProfileGeometry};
use super::placement::{Placement, PlacementError, Slots};
use super::profile::{Attribute, ProfileName};

/// Instances per profile, as mig-parted's `mig-devices` states them; a layout's own counts hold no zero.
pub type Counts = BTreeMap<ProfileName, u8>;

/// The GPU instances of one GPU, ordered by start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout {
    model: &'static GpuModel,
    placements: Vec<Placement>,
    mask: Slots,
}

impl Layout {
    /// A GPU in MIG mode without instances.
    pub const fn empty(model: &'static GpuModel) -> Self {
        Self { model, placements: Vec::new(), mask: Slots::EMPTY }
    }

    /// The layout of these instances, in any order, or the first reason why they cannot exist together.
    pub fn new(
        model: &'static GpuModel,
        placements: impl IntoIterator<Item = Placement>,
    ) -> Result<Self, LayoutError> {
        placements.into_iter().try_fold(Self::empty(model), |layout, placement| layout.with(placement))
    }

    /// This layout and one more instance.
    pub fn with(mut self, placement: Placement) -> Result<Self, LayoutError> {
        let slots = self.admit(placement)?;
        self.insert(placement, slots);
        Ok(self)
    }

    /// This layout without one of its instances.
    pub fn without(mut self, placement: Placement) -> Result<Self, LayoutError> {
        let at = self.placements.binary_search(&placement);
        let at = at.map_err(|_| LayoutError::Absent { model: self.model.name, placement })?;
        self.placements.remove(at);
        self.mask = self.mask.minus(placement.slots(self.model)?);
        Ok(self)
    }

    /// The GPU model.
    pub const fn model(&self) -> &'static GpuModel {
        self.model
    }

    /// The instances, ordered by start.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// The memory slices that instances occupy.
    pub const fn mask(&self) -> Slots {
        self.mask
    }

    /// Instances per profile.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for placement in &self.placements {
            *counts.entry(placement.profile).or_default() += 1;
        }
        counts
    }

    /// The compute slices of all instances.
    pub fn compute_slices(&self) -> u8 {
        self.placements.iter().map(|placement| placement.profile.compute_slices()).sum()
    }

    /// Whether no instance of any profile, variants included, could be added where the others are.
    pub fn is_maximal(&self) -> bool {
        let mut candidates = self.model.profiles.iter().flat_map(|profile| {
            profile.free_starts(self.mask).iter().map(|start| Placement::new(profile.name, start))
        });
        !candidates.any(|placement| self.admit(placement).is_ok())
    }

    /// The slices that `placement` would take, or why it cannot join the instances that are here.
    pub fn admit(&self, placement: Placement) -> Result<Slots, LayoutError> {
        let slots = placement.slots(self.model)?;
        for &present in &self.placements {
            if present.slots(self.model)?.overlaps(slots) {
                return Err(LayoutError::Overlap { model: self.model.name, present, added: placement });
            }
            if claim_same_media(present.profile.attribute(), placement.profile.attribute()) {
                return Err(LayoutError::MediaEngines { model: self.model.name, present, added: placement });
            }
        }
        Ok(slots)
    }

    fn insert(&mut self, placement: Placement, slots: Slots) {
        let at = self.placements.partition_point(|present| *present < placement);
        self.placements.insert(at, placement);
        self.mask = self.mask.union(slots);
        debug_assert!(self.compute_slices() <= self.model.compute_slices);
    }
}

/// `3g.20gb@0 2g.10gb@4`, or `-` for no instance.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.placements.is_empty() {
            return f.write_str("-");
        }
        let mut separator = "";
        for placement in &self.placements {
            write!(f, "{separator}{placement}")?;
            separator = " ";
        }
        Ok(())
    }
}

/// Why a layout cannot exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// An instance that the model does not offer, or not there.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Two instances share memory slices.
    #[error("{added} overlaps {present} on {model}: free its memory slices first")]
    Overlap {
        /// The model's short name.
        model: &'static str,
        /// The instance that is there.
        present: Placement,
        /// The instance that was to be added.
        added: Placement,
    },
    /// Two instances need media engines that the GPU has once.
    #[error("{added} and {present} claim the same media engines of {model}: give one of them up")]
    MediaEngines {
        /// The model's short name.
        model: &'static str,
        /// The instance that is there.
        present: Placement,
        /// The instance that was to be added.
        added: Placement,
    },
    /// More instances of a profile than the model allows.
    #[error("{count} instances of `{profile}` on one {model}: at most {max} are possible")]
    TooMany {
        /// The model's short name.
        model: &'static str,
        /// The profile.
        profile: ProfileName,
        /// How many were asked for.
        count: u8,
        /// How many are possible.
        max: u8,
    },
    /// Known profiles in legal numbers that have no placement together.
    #[error("{} do not fit together on one {model}: ask for fewer or smaller instances", listed(counts))]
    DoesNotFit {
        /// The model's short name.
        model: &'static str,
        /// What was asked for.
        counts: Counts,
    },
    /// An instance to be taken away that is not there.
    #[error("{placement} is not in this layout of {model}: compare with the GPU's present instances")]
    Absent {
        /// The model's short name.
        model: &'static str,
        /// The instance.
        placement: Placement,
    },
    /// Two layouts of different models were to be compared.
    #[error("a layout of {from} cannot become one of {to}: compare layouts of one model")]
    ModelMismatch {
        /// The model of the first layout.
        from: &'static str,
        /// The model of the second.
        to: &'static str,
    },
}

/// Which profiles an enumeration uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variants {
    /// Profiles without a suffix.
    Base,
    /// Every profile of the model.
    All,
}

/// Every placed layout of a model that has at least one instance.
#[derive(Debug, Clone)]
pub struct LayoutTable {
    layouts: Vec<Layout>,
}

impl LayoutTable {
    /// All of them, in the order of their placements.
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// Those to which nothing can be added.
    pub fn maximal(&self) -> impl Iterator<Item = &Layout> {
        self.layouts.iter().filter(|layout| layout.is_maximal())
    }

    /// The distinct counts.
    pub fn multisets(&self) -> BTreeSet<Counts> {
        self.layouts.iter().map(Layout::counts).collect()
    }

    /// The distinct counts of maximal layouts.
    pub fn maximal_multisets(&self) -> BTreeSet<Counts> {
        self.maximal().map(Layout::counts).collect()
    }
}

/// Enumerates the layouts of `model`.
///
/// With [`Variants::Base`] there are 722 on eight memory slices, 25 on the A30 and the RTX PRO 6000.
pub fn enumerate_layouts(model: &'static GpuModel, variants: Variants) -> LayoutTable {
    let mut options: Vec<_> = model
        .profiles
        .iter()
        .filter(|profile| variants == Variants::All || profile.name.is_base())
        .flat_map(|profile| profile.starts.iter().map(|start| Placement::new(profile.name, start)))
        .collect();
    options.sort_unstable();
    let mut layouts = Vec::new();
    extend(&Layout::empty(model), &options, &mut layouts);
    LayoutTable { layouts }
}

/// Adds every layout that consists of `layout` and at least one of `options`, which are ordered by start.
fn extend(layout: &Layout, options: &[Placement], found: &mut Vec<Layout>) {
    for (at, &option) in options.iter().enumerate() {
        if let Ok(larger) = layout.clone().with(option) {
            found.push(larger.clone());
            extend(&larger, &options[at + 1..], found);
        }
    }
}

/// Finds a layout with exactly these counts, or says why there is none. The search is exhaustive.
///
/// Large instances are placed first and every instance as far right as it goes: whatever fits into the right half of
/// an eight-slice GPU fits into the left, which alone can hold a `4g`.
pub fn find_layout(model: &'static GpuModel, counts: &Counts) -> Result<Layout, LayoutError> {
    let mut wanted: Vec<&ProfileGeometry> = Vec::new();
    let mut slices = 0;
    for (&name, &count) in counts {
        let geometry = model.profile(name).map_err(PlacementError::from)?;
        if count > geometry.max {
            return Err(LayoutError::TooMany { model: model.name, profile: name, count, max: geometry.max });
        }
        slices += u32::from(count) * u32::from(geometry.memory_slices);
        wanted.extend(std::iter::repeat_n(geometry, usize::from(count)));
    }
    wanted.sort_by_key(|geometry| std::cmp::Reverse((geometry.memory_slices, geometry.name)));
    let roomy = slices <= u32::from(model.memory_slices);
    let layout = if roomy { place(Layout::empty(model), &wanted) } else { None };
    layout.ok_or_else(|| LayoutError::DoesNotFit { model: model.name, counts: counts.clone() })
}

/// Adds all of `wanted` to `layout`, equal instances from right to left, trying every combination of starts.
fn place(layout: Layout, wanted: &[&ProfileGeometry]) -> Option<Layout> {
    let Some((next, rest)) = wanted.split_first() else { return Some(layout) };
    let leftmost = layout.placements().iter().find(|placement| placement.profile == next.name);
    let end = leftmost.map_or(u8::MAX, |placement| placement.start);
    let starts = next.free_starts(layout.mask());
    starts.iter().rev().filter(|&start| start < end).find_map(|start| {
        let larger = layout.clone().with(Placement::new(next.name, start)).ok()?;
        place(larger, rest)
    })
}

/// Whether instances with these attributes need media engines that only one of them can have.
fn claim_same_media(a: Attribute, b: Attribute) -> bool {
    match (a, b) {
        (Attribute::MeAll, other) | (other, Attribute::MeAll) => other != Attribute::NoMe,
        (Attribute::Me, Attribute::Me) => true,
        _ => false,
    }
}

fn listed(counts: &Counts) -> String {
    counts.iter().map(|(profile, count)| format!("{count}×{profile}")).collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mig::tables::MODELS;

    fn model(name: &str) -> &'static GpuModel {
        GpuModel::by_name(name).unwrap()
    }

    /// Reads `3g.20gb@0 2g.10gb@4`.
    fn layout(name: &str, text: &str) -> Result<Layout, LayoutError> {
        let placements = text.split_whitespace().map(|word| {
            let (profile, start) = word.split_once('@').unwrap();
            Placement::new(profile.parse().unwrap(), start.parse().unwrap())
        });
        Layout::new(model(name), placements)
    }

    /// Reads `2x1g.5gb 1x3g.20gb`.
    fn counts(text: &str) -> Counts {
        let count = |word: &str| {
            let (count, profile) = word.split_once('x').unwrap();
            (profile.parse().unwrap(), count.parse().unwrap())
        };
        text.split_whitespace().map(count).collect()
    }

    fn check_refused(name: &str, placements: &str, expected: &str) {
        let error = layout(name, placements).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_cannot_coexist_is_refused_by_name() {
        check_refused("A100-40GB", "1g.5gb@5 3g.20gb@4", "3g.20gb@4 overlaps 1g.5gb@5 on A100-40GB");
        check_refused("A100-40GB", "4g.20gb@4", "`4g.20gb` starts at 0");
        check_refused("A100-40GB", "1g.5gb+me@0 1g.5gb+me@1", "claim the same media engines");
        check_refused("A30-24GB", "1g.6gb+me@0 2g.12gb+me@2", "2g.12gb+me@2 and 1g.6gb+me@0 claim");
        check_refused("RTX-PRO-6000-96GB", "1g.24gb@0 2g.48gb+me.all@6", "claim the same media engines");
        check_refused("RTX-PRO-6000-96GB", "1g.24gb@1", "starts at 0,3,6,9");
        check_refused("A100-40GB", "1g.6gb@1", "A100-40GB has no profile `1g.6gb`");
    }

    fn check_legal(name: &str, placements: &str, mask: u16, maximal: bool) {
        let layout = layout(name, placements).unwrap();
        assert_eq!((layout.mask().bits(), layout.is_maximal()), (mask, maximal), "{layout}");
    }

    #[test]
    fn what_can_coexist_knows_its_mask() {
        check_legal("A100-40GB", "", 0, false);
        check_legal("A100-40GB", "2g.10gb@4 4g.20gb@0", 0b0011_1111, false);
        check_legal("A100-40GB", "3g.20gb@4 3g.20gb@0", 0b1111_1111, true);
        check_legal("A100-40GB", "4g.20gb@0 2g.10gb@4 1g.5gb+me@6", 0b0111_1111, true);
        check_legal("A30-24GB", "1g.6gb+me@0 2g.12gb@2", 0b1101, false);
        check_legal("RTX-PRO-6000-96GB", "1g.24gb+me@3 1g.24gb-me@0 2g.48gb+gfx@6", 0xFFF, true);
        check_legal("RTX-PRO-6000-96GB", "2g.48gb+me.all@0 2g.48gb-me@6", 0xFFF, true);
    }

    fn check_enumeration(model: &'static GpuModel, variants: Variants, expected: [usize; 4]) {
        let table = enumerate_layouts(model, variants);
        let distinct: BTreeSet<_> = table.layouts().iter().collect();
        assert_eq!(distinct.len(), table.layouts().len());
        let found = [
            table.layouts().len(),
            table.maximal().count(),
            table.multisets().len(),
            table.maximal_multisets().len(),
        ];
        assert_eq!(found, expected, "{model} {variants:?}");
    }

    #[test]
    fn every_model_has_the_known_number_of_layouts() {
        for model in &MODELS {
            let base = if model.memory_slices == 8 { [722, 78, 77, 38] } else { [25, 5, 9, 4] };
            check_enumeration(model, Variants::Base, base);
        }
    }

    #[test]
    fn variants_multiply_the_counts() {
        for model in MODELS.iter().filter(|model| model.name != "RTX-PRO-6000-96GB") {
            let table = enumerate_layouts(model, Variants::All);
            let found = (table.multisets().len(), table.maximal_multisets().len());
            assert_eq!(found, if model.memory_slices == 8 { (127, 64) } else { (19, 8) }, "{model}");
        }
    }

    /// Why [`Layout::admit`] checks neither compute slices nor `max`.
    #[test]
    fn memory_slices_and_media_bound_compute_slices_and_counts() {
        for model in &MODELS {
            for layout in enumerate_layouts(model, Variants::All).layouts() {
                assert!(layout.compute_slices() <= model.compute_slices, "{layout}");
            }
            for profile in model.profiles {
                let media = claim_same_media(profile.name.attribute(), profile.name.attribute());
                let bound = if media { 1 } else { disjoint_windows(profile) };
                assert_eq!(profile.max, bound, "{model} {}", profile.name);
            }
        }
    }

    fn disjoint_windows(profile: &ProfileGeometry) -> u8 {
        let (mut taken, mut windows) = (Slots::EMPTY, 0);
        while let Some(start) = profile.free_starts(taken).iter().next() {
            taken = taken.union(profile.window(start));
            windows += 1;
        }
        windows
    }

    #[test]
    fn find_layout_agrees_with_the_enumeration() {
        for model in &MODELS {
            let multisets = enumerate_layouts(model, Variants::All).multisets();
            for wanted in &multisets {
                assert_eq!(find_layout(model, wanted).unwrap().counts(), *wanted);
            }
        }
    }

    fn check_found(name: &str, wanted: &str, expected: &str) {
        let found = find_layout(model(name), &counts(wanted));
        assert_eq!(found.map_or_else(|error| error.to_string(), |layout| layout.to_string()), expected);
    }

    #[test]
    fn find_layout_places_or_refuses() {
        check_found("A100-40GB", "", "-");
        check_found("A100-40GB", "2x1g.5gb 1x2g.10gb 1x3g.20gb", "1g.5gb@0 1g.5gb@1 2g.10gb@2 3g.20gb@4");
        check_found("A100-40GB", "1x4g.20gb 1x3g.20gb", "4g.20gb@0 3g.20gb@4");
        check_found(
            "A100-40GB",
            "3x4g.20gb",
            "3 instances of `4g.20gb` on one A100-40GB: at most 1 are possible",
        );
        check_found(
            "A100-40GB",
            "1x4g.20gb 4x1g.5gb",
            "4×1g.5gb + 1×4g.20gb do not fit together on one A100-40GB: ask for fewer or smaller instances",
        );
        check_found(
            "A30-24GB",
            "1x1g.10gb",
            "A30-24GB has no profile `1g.10gb`: it has 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb",
        );
    }

    proptest! {
        /// Whatever is asked for is found exactly when the enumeration has it.
        #[test]
        fn no_feasible_counts_are_refused(which in 0..MODELS.len(), asked in prop::collection::vec(0u8..4, 11)) {
            let model = &MODELS[which];
            let asked: Counts = model.profiles.iter().map(|profile| profile.name).zip(asked).collect();
            let present: Counts = asked.iter().filter(|(_, n)| **n > 0).map(|(p, n)| (*p, *n)).collect();
            let feasible =
                present.is_empty() || enumerate_layouts(model, Variants::All).multisets().contains(&present);
            let found = find_layout(model, &asked);
            prop_assert_eq!(found.is_ok(), feasible);
            if let Ok(layout) = found {
                prop_assert_eq!(layout.counts(), present);
            }
        }
    }
}
