//! Exact feasibility and the minimum number of GPUs in closed form, for the common geometry of eight memory slices.
//!
//! On that geometry a GPU falls into regions that do not influence each other: a whole GPU, else free halves, else free pairs
//! of slices, else single slices. Counting regions over a cluster is enough, because they are interchangeable and large items
//! have a best region:
//!
//! ```text
//!   7g               needs a whole GPU; every other whole GPU is one left and one right half
//!   4g               needs a left half
//!   3g               takes right halves first, since a left half is worth more: two full pairs against a full and a restricted one
//!   other halves     a left one is two full pairs, a right one a full and a restricted pair (slices 6–7)
//!   2g               needs a full pair
//!   1g, two slices   takes restricted pairs first: there it loses nothing, a single 1g would waste slice 7
//!   1g               two in a full pair, one in a restricted pair, one in a single slice other than 7
//! ```
//!
//! Every profile fits wherever the next larger one does, in this order. So of one priority the smallest pods are placed first:
//! no other choice places more, and none leaves more room to the priorities below.
//!
//! Invariant: [`ClosedForm::of`] reads the geometry from a model's table and refuses every other one. Tests compare with an
//! exhaustive search over patterns.

use crate::mig::{GpuModel, ProfileName, Slots};

/// The six profiles by the part they play, smallest first: (memory slices, starts).
const ROLES: [(u8, u16); SIZES] = [
    (1, 0b0111_1111),
    (2, 0b0101_0101),
    (2, 0b0001_0101),
    (4, 0b0001_0001),
    (4, 0b0000_0001),
    (8, 0b0000_0001),
];

/// How many profiles the geometry has.
pub const SIZES: usize = 6;

/// Numbers of instances, smallest profile first: 1g, 1g with two slices, 2g, 3g, 4g, 7g.
pub type Wanted = [u64; SIZES];

/// Which profiles of a model play which part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedForm {
    profiles: [ProfileName; SIZES],
}

impl ClosedForm {
    /// Reads a model's table; `None` unless its base profiles are exactly those of the geometry.
    pub fn of(model: &GpuModel) -> Option<ClosedForm> {
        let base: Vec<_> = model.profiles.iter().filter(|profile| profile.name.is_base()).collect();
        let play = |role: &(u8, u16)| {
            let mut matching = base.iter().filter(|p| (p.memory_slices, p.starts.bits()) == *role);
            matching.next().map(|profile| profile.name)
        };
        let profiles: Vec<_> = ROLES.iter().filter_map(play).collect();
        let whole = model.memory_slices == 8 && base.len() == SIZES;
        profiles.try_into().ok().filter(|_| whole).map(|profiles| ClosedForm { profiles })
    }

    /// The profiles, smallest first.
    pub const fn profiles(&self) -> &[ProfileName; SIZES] {
        &self.profiles
    }

    /// The position of `profile` among the sizes; `None` for variants and for other models' profiles.
    pub fn size(&self, profile: ProfileName) -> Option<usize> {
        self.profiles.iter().position(|name| *name == profile)
    }
}

/// Free regions of any number of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    whole: u64,
    left: u64,
    right: u64,
    pairs: u64,
    last_pairs: u64,
    singles: u64,
}

impl Capacity {
    /// What is free on one GPU whose `occupied` slices must stay.
    pub fn of(occupied: Slots) -> Capacity {
        let free = |start, length| u64::from(!occupied.overlaps(Slots::window(start, length)));
        if free(0, 8) == 1 {
            return Capacity::empty(1);
        }
        let (left, right) = (free(0, 4), free(4, 4));
        let mut capacity = Capacity { left, right, ..Capacity::default() };
        let broken = |half: u64, starts: [u8; 2]| starts.into_iter().filter(move |_| half == 0);
        for start in broken(left, [0, 2]).chain(broken(right, [4, 6])) {
            match (free(start, 2), start) {
                (1, 6) => capacity.last_pairs += 1,
                (1, _) => capacity.pairs += 1,
                (_, 6) => capacity.singles += free(6, 1),
                _ => capacity.singles += free(start, 1) + free(start + 1, 1),
            }
        }
        capacity
    }

    /// `gpus` GPUs without instances.
    pub const fn empty(gpus: u64) -> Capacity {
        Capacity { whole: gpus, left: 0, right: 0, pairs: 0, last_pairs: 0, singles: 0 }
    }

    /// This and `times` as much of `other`.
    pub const fn plus(self, other: Capacity, times: u64) -> Capacity {
        Capacity {
            whole: self.whole + other.whole * times,
            left: self.left + other.left * times,
            right: self.right + other.right * times,
            pairs: self.pairs + other.pairs * times,
            last_pairs: self.last_pairs + other.last_pairs * times,
            singles: self.singles + other.singles * times,
        }
    }

    /// Whether all of `wanted` find a place.
    pub fn fits(self, wanted: Wanted) -> bool {
        let [single, double, two, three, four, seven] = wanted;
        let taken = || {
            let whole = self.whole.checked_sub(seven)?;
            let left = (self.left + whole).checked_sub(four)?;
            let right = self.right + whole;
            let (right, left) = (right.saturating_sub(three), left.checked_sub(three.saturating_sub(right))?);
            let pairs = (self.pairs + 2 * left + right).checked_sub(two)?;
            let last = self.last_pairs + right;
            let (last, pairs) =
                (last.saturating_sub(double), pairs.checked_sub(double.saturating_sub(last))?);
            (self.singles + 2 * pairs + last).checked_sub(single)
        };
        taken().is_some()
    }

    /// The fewest of `empty` GPUs that hold `wanted` together with this capacity, or `None` if all of them do not.
    pub fn fewest_more(self, empty: u64, wanted: Wanted) -> Option<u64> {
        let fits = |gpus| self.plus(Capacity::empty(1), gpus).fits(wanted);
        if !fits(empty) {
            return None;
        }
        let (mut low, mut high) = (0, empty);
        while low < high {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    /// The most pods that can be placed, by priority: `wanted` with the highest first, and how many of each are placed.
    pub fn most(self, wanted: &[Wanted]) -> Vec<Wanted> {
        let mut all = Wanted::default();
        let mut placed = Vec::new();
        for level in wanted {
            let before = all;
            for size in 0..SIZES {
                all[size] += self.most_more(all, size, level[size]);
            }
            placed.push(std::array::from_fn(|size| all[size] - before[size]));
        }
        placed
    }

    /// How many of `count` more pods of one size fit beside `all`.
    fn most_more(self, all: Wanted, size: usize, count: u64) -> u64 {
        let fits = |more| {
            let mut wanted = all;
            wanted[size] += more;
            self.fits(wanted)
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = high - (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

/// The fewest empty GPUs that hold `wanted`.
pub fn fewest_gpus(wanted: Wanted) -> u64 {
    // One GPU for each instance is always enough.
    Capacity::default().fewest_more(wanted.iter().sum(), wanted).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fixture::chance;
    use crate::mig::ProfileIndex;
    use crate::mig::tables::MODELS;
    use crate::solver::patterns::{Occupied, PatternTable};

    #[test]
    fn the_geometry_is_read_from_the_table() {
        for model in &MODELS {
            let form = ClosedForm::of(model);
            assert_eq!(form.is_some(), model.memory_slices == 8, "{model}");
            let Some(form) = form else { continue };
            let slices: Vec<u8> = form.profiles().iter().map(|name| name.compute_slices()).collect();
            assert_eq!(slices, [1, 1, 2, 3, 4, 7], "{model}");
        }
    }

    /// Every pattern of base profiles that can be added to a GPU, by occupied slices.
    struct Search {
        by_mask: Vec<Vec<Wanted>>,
    }

    impl Search {
        fn new(model: &'static GpuModel) -> Search {
            let (table, form) = (PatternTable::new(model), ClosedForm::of(model).unwrap());
            let wanted = |pattern| -> Option<Wanted> {
                let mut wanted = Wanted::default();
                for (index, profile) in (0..).map(ProfileIndex).zip(model.profiles) {
                    let count = u64::from(table.counts(pattern).of(index));
                    match form.size(profile.name) {
                        Some(size) => wanted[size] += count,
                        None if count > 0 => return None,
                        None => {}
                    }
                }
                Some(wanted)
            };
            let fitting = |mask: u16| {
                let held = Occupied { slots: Slots::from_bits(mask), ..Occupied::default() };
                table.undominated(held, |index| model.profiles[usize::from(index.0)].name.is_base())
            };
            let by_mask = (0..256u16).map(|mask| fitting(mask).into_iter().filter_map(wanted).collect());
            Search { by_mask: by_mask.collect() }
        }

        /// Whether `left` fits on GPUs with these masks; `dead` holds what is known not to.
        fn fits(&self, masks: &[u16], left: Wanted, dead: &mut BTreeSet<(usize, Wanted)>) -> bool {
            if left == Wanted::default() {
                return true;
            }
            let Some((first, rest)) = masks.split_first() else { return false };
            if !dead.insert((masks.len(), left)) {
                return false;
            }
            self.by_mask[usize::from(*first)].iter().any(|pattern| {
                let after = std::array::from_fn(|size| left[size].saturating_sub(pattern[size]));
                self.fits(rest, after, dead)
            })
        }
    }

    /// Random demand for up to four GPUs; half of them have slices that must stay.
    #[test]
    fn the_closed_form_equals_a_search_over_patterns() {
        let search = Search::new(&MODELS[0]);
        let mut next = chance(11);
        let mut feasible = 0;
        for round in 0..6_000 {
            let gpus = 1 + next(4);
            let masks: Vec<u16> = (0..gpus).map(|_| (next(256) & (next(256) * (round % 2))) as u16).collect();
            let wanted: Wanted = [next(8), next(4), next(4), next(4), next(3), next(2)].map(|n| n * gpus / 3);
            let capacity = masks
                .iter()
                .fold(Capacity::default(), |sum, &mask| sum.plus(Capacity::of(Slots::from_bits(mask)), 1));
            let found = search.fits(&masks, wanted, &mut BTreeSet::new());
            assert_eq!(capacity.fits(wanted), found, "{masks:?} {wanted:?}");
            feasible += usize::from(found);
        }
        assert!((1_000..5_000).contains(&feasible), "{feasible} of 6,000 feasible: hardly a test");
    }

    #[test]
    fn the_fewest_gpus_are_fewest() {
        assert_eq!(fewest_gpus([0; SIZES]), 0);
        assert_eq!(fewest_gpus([7, 0, 0, 0, 0, 0]), 1);
        assert_eq!(fewest_gpus([8, 0, 0, 0, 0, 0]), 2);
        assert_eq!(fewest_gpus([0, 0, 0, 3, 1, 1]), 3);
        let mut next = chance(13);
        for _ in 0..2_000 {
            let wanted: Wanted = std::array::from_fn(|_| next(30));
            let gpus = fewest_gpus(wanted);
            assert!(Capacity::empty(gpus).fits(wanted));
            assert!(gpus == 0 || !Capacity::empty(gpus - 1).fits(wanted));
        }
    }

    /// Against every choice of what to place, for two priorities on up to two GPUs.
    #[test]
    fn priorities_are_served_best() {
        let mut next = chance(17);
        for _ in 0..300 {
            let masks: Vec<u16> = (0..1 + next(2)).map(|_| (next(256) & next(256)) as u16).collect();
            let capacity = masks
                .iter()
                .fold(Capacity::default(), |sum, &mask| sum.plus(Capacity::of(Slots::from_bits(mask)), 1));
            let levels: [Wanted; 2] = std::array::from_fn(|_| std::array::from_fn(|_| next(3)));
            let placed = capacity.most(&levels);
            let total = |wanted: &Wanted| wanted.iter().sum::<u64>();
            let mut best = (0, 0);
            for high in choices(levels[0]) {
                for low in choices(levels[1]) {
                    if capacity.fits(std::array::from_fn(|size| high[size] + low[size])) {
                        best = best.max((total(&high), total(&low)));
                    }
                }
            }
            assert_eq!((total(&placed[0]), total(&placed[1])), best, "{masks:?} {levels:?}");
        }
    }

    /// Every part of `wanted`.
    fn choices(wanted: Wanted) -> Vec<Wanted> {
        let mut all = vec![Wanted::default()];
        for size in 0..SIZES {
            let with = |choice: Wanted| {
                (0..=wanted[size]).map(move |count| {
                    let mut choice = choice;
                    choice[size] = count;
                    choice
                })
            };
            all = all.into_iter().flat_map(with).collect();
        }
        all
    }
}
