//! What still fits on a partly occupied GPU, for every set of occupied memory slices, by table.
//!
//! Invariant: an answer depends on the model and the occupied slices alone and is exact; it is computed once, when the
//! table is built, and read afterwards with one index. Bits beyond the model's axis are ignored.
//!
//! Which instances hold the occupied slices is not part of the key. The one thing that hides is media engines: before
//! an instance with `+me` or `+me.all` is created, ask [`Layout::admit`](super::Layout::admit) as well.
//!
//! Size: per profile and mask 2 + 1 + 1 bytes, plus one byte per mask for the stranded slices. That is 7.4 kB for an
//! eight-slice model (7 profiles, 256 masks), 0.3 kB for the A30 and 184 kB for the RTX PRO 6000 (11 profiles, 4,096
//! masks).

use super::geometry::{GpuModel, ProfileGeometry, ProfileIndex};
use super::placement::Slots;

/// The tables of one model. A [`ProfileIndex`] must come from the same model.
#[derive(Debug, Clone)]
pub struct OccupancyTable {
    model: &'static GpuModel,
    /// By profile and mask: legal free starts.
    starts: Vec<Slots>,
    /// By profile and mask: how many instances fit.
    instances: Vec<u8>,
    /// By profile and mask: free slices outside every legal free window.
    uncovered: Vec<u8>,
    /// By mask: free slices that no further layout reaches.
    stranded: Vec<u8>,
}

impl OccupancyTable {
    /// Computes the tables of `model`.
    pub fn new(model: &'static GpuModel) -> Self {
        let per_profile = |column: fn(&GpuModel, &ProfileGeometry) -> Vec<u8>| {
            model.profiles.iter().flat_map(|profile| column(model, profile)).collect()
        };
        Self {
            model,
            starts: model
                .profiles
                .iter()
                .flat_map(|profile| masks(model).map(|mask| profile.free_starts(mask)))
                .collect(),
            instances: per_profile(instances),
            uncovered: per_profile(uncovered),
            stranded: stranded(model),
        }
    }

    /// The model.
    pub const fn model(&self) -> &'static GpuModel {
        self.model
    }

    /// The starts at which an instance could be created now.
    pub fn free_starts(&self, occupied: Slots, profile: ProfileIndex) -> Slots {
        self.starts[self.at(occupied, profile)]
    }

    /// The largest number of further instances of this one profile.
    pub fn max_instances(&self, occupied: Slots, profile: ProfileIndex) -> u8 {
        self.instances[self.at(occupied, profile)]
    }

    /// Free memory slices that no legal free window of this profile covers; all free slices when the profile does not
    /// fit. Weighted with the demand for each profile this is the GPU's fragmentation.
    pub fn uncovered(&self, occupied: Slots, profile: ProfileIndex) -> u8 {
        self.uncovered[self.at(occupied, profile)]
    }

    /// Free memory slices that stay unused whichever base profiles are added.
    pub fn stranded(&self, occupied: Slots) -> u8 {
        self.stranded[self.mask(occupied)]
    }

    /// Free memory slices.
    pub fn free(&self, occupied: Slots) -> u8 {
        self.model.all_slots().minus(occupied).len()
    }

    fn at(&self, occupied: Slots, profile: ProfileIndex) -> usize {
        (usize::from(profile.0) << self.model.memory_slices) + self.mask(occupied)
    }

    fn mask(&self, occupied: Slots) -> usize {
        usize::from(occupied.intersection(self.model.all_slots()).bits())
    }
}

/// Every set of occupied slices, as its bits count up.
fn masks(model: &GpuModel) -> impl DoubleEndedIterator<Item = Slots> {
    (0..=model.all_slots().bits()).map(Slots::from_bits)
}

/// By mask: the largest number of instances of `profile` that fit into what is free.
fn instances(model: &GpuModel, profile: &ProfileGeometry) -> Vec<u8> {
    let mut most = best(model, std::slice::from_ref(profile), |_| 1);
    most.iter_mut().for_each(|most| *most = (*most).min(profile.max));
    most
}

/// By mask: free slices outside every legal free window of `profile`.
fn uncovered(model: &GpuModel, profile: &ProfileGeometry) -> Vec<u8> {
    let covered = |mask| {
        profile.free_starts(mask).iter().fold(Slots::EMPTY, |all, start| all.union(profile.window(start)))
    };
    masks(model).map(|mask| model.all_slots().minus(mask).minus(covered(mask)).len()).collect()
}

/// By mask: free slices less what the best further layout of base profiles occupies.
fn stranded(model: &GpuModel) -> Vec<u8> {
    let base: Vec<_> = model.profiles.iter().filter(|profile| profile.name.is_base()).copied().collect();
    let packed = best(model, &base, |profile| profile.memory_slices);
    masks(model).zip(packed).map(|(mask, packed)| model.all_slots().minus(mask).len() - packed).collect()
}

/// By mask: the largest total worth of instances of `profiles` in what is free.
///
/// Adding an instance only sets bits, so that the masks are solved from full to empty, each from larger ones.
fn best(model: &GpuModel, profiles: &[ProfileGeometry], worth: fn(&ProfileGeometry) -> u8) -> Vec<u8> {
    let mut best = vec![0; usize::from(model.all_slots().bits()) + 1];
    for mask in masks(model).rev() {
        let choices = profiles.iter().flat_map(|profile| {
            profile.free_starts(mask).iter().map(move |start| (worth(profile), profile.window(start)))
        });
        let most = choices.map(|(worth, window)| worth + best[usize::from(mask.union(window).bits())]).max();
        best[usize::from(mask.bits())] = most.unwrap_or(0);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::layout::{Variants, enumerate_layouts};
    use crate::mig::tables::MODELS;

    /// What the tables say of one profile: free starts, instances, uncovered slices, and stranded slices of the mask.
    fn check(model: &str, occupied: u16, profile: &str, expected: (&str, u8, u8, u8)) {
        let model = GpuModel::by_name(model).unwrap();
        let (table, occupied) = (OccupancyTable::new(model), Slots::from_bits(occupied));
        let profile = model.index_of(profile.parse().unwrap()).unwrap();
        let found = (
            table.free_starts(occupied, profile).to_string(),
            table.max_instances(occupied, profile),
            table.uncovered(occupied, profile),
            table.stranded(occupied),
        );
        assert_eq!(found, (expected.0.to_owned(), expected.1, expected.2, expected.3));
    }

    #[test]
    fn known_situations() {
        check("A100-40GB", 0, "1g.5gb", ("0-6", 7, 1, 0));
        check("A100-40GB", 0, "2g.10gb", ("0,2,4", 3, 2, 0));
        // A 1g in each half leaves six free slices and no 3g; the 1g pairs beside them stay usable.
        check("A100-40GB", 0b0001_0001, "3g.20gb", ("", 0, 6, 0));
        // Slice 7 alone is of use to nobody.
        check("A100-40GB", 0b0111_1111, "1g.5gb", ("", 0, 1, 1));
        check("A100-40GB", 0b0000_1111, "1g.5gb+me", ("4-6", 1, 1, 0));
        check("RTX-PRO-6000-96GB", 0b111, "2g.48gb", ("6", 1, 3, 0));
        check("RTX-PRO-6000-96GB", 0b1000, "1g.24gb", ("0,6,9", 3, 2, 2));
    }

    #[test]
    fn full_and_out_of_range_masks_are_safe() {
        for model in &MODELS {
            let table = OccupancyTable::new(model);
            let all = Slots::from_bits(u16::MAX);
            assert_eq!((table.free(all), table.stranded(all)), (0, 0));
            assert_eq!(table.max_instances(all, ProfileIndex(0)), 0);
        }
    }

    /// The tables against the enumerated layouts: for every mask, the best layout that avoids it.
    #[test]
    fn the_tables_agree_with_the_enumeration() {
        for model in MODELS.iter().filter(|model| ["A100-40GB", "A30-24GB"].contains(&model.name)) {
            let table = OccupancyTable::new(model);
            let layouts = enumerate_layouts(model, Variants::Base);
            for mask in masks(model) {
                let fitting = || layouts.layouts().iter().filter(|layout| !layout.mask().overlaps(mask));
                let packed = fitting().map(|layout| layout.mask().len()).max().unwrap_or(0);
                assert_eq!(table.stranded(mask), table.free(mask) - packed, "{model} {mask}");
                for (index, profile) in (0..).map(ProfileIndex).zip(model.profiles) {
                    let count = |counts: crate::mig::Counts| counts.get(&profile.name).copied().unwrap_or(0);
                    let most = fitting().map(|layout| count(layout.counts())).max().unwrap_or(0);
                    if profile.name.is_base() {
                        assert_eq!(table.max_instances(mask, index), most, "{model} {mask} {}", profile.name);
                    }
                    let uncovered = table.uncovered(mask, index);
                    let none = table.free_starts(mask, index).is_empty();
                    assert!(if none { uncovered == table.free(mask) } else { uncovered < table.free(mask) });
                }
            }
        }
    }
}
