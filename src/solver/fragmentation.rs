//! Demand-weighted fragmentation of one GPU: how many of its free slices the recent demand could not use.
//!
//! The measure is FGD's (Weng et al., USENIX ATC '23) carried over to MIG. With the share q(p) of each profile among recent
//! requests, a GPU whose occupied slices are `m` has
//!
//! ```text
//! F(m) = Σ_p q(p) · (free slices of m that no legal free placement of p covers)
//! ```
//!
//! so that a profile that cannot be placed at all counts every free slice as lost.
//!
//! Invariant: F is a whole number of 1/1024 slices, so that comparisons are exact and the same on every machine.

use std::collections::BTreeMap;

use crate::mig::{GpuModel, OccupancyTable, ProfileIndex, ProfileName, Slots};

/// Shares, and slices lost, are in units of 1/1024.
pub const WHOLE: u64 = 1 << 10;

/// Requests remembered before old ones begin to fade.
const MEMORY: u64 = 1 << 12;

/// Which profiles were asked for lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemandMix {
    counts: BTreeMap<ProfileName, u64>,
    total: u64,
}

impl DemandMix {
    /// The mix of totals, in whatever order they are given. Those of more than [`MEMORY`] requests are scaled down to as many, a
    /// rare profile to one at least. A variant counts as its base profile.
    pub fn from_counts(totals: impl IntoIterator<Item = (ProfileName, u64)>) -> DemandMix {
        let mut counts: BTreeMap<ProfileName, u64> = BTreeMap::new();
        for (profile, count) in totals.into_iter().filter(|(_, count)| *count > 0) {
            let sum = counts.entry(profile.base()).or_default();
            *sum = sum.saturating_add(count);
        }
        let all: u128 = counts.values().map(|count| u128::from(*count)).sum();
        if all > u128::from(MEMORY) {
            let scaled = |count: u64| u128::from(count) * u128::from(MEMORY) / all;
            counts
                .values_mut()
                .for_each(|count| *count = u64::try_from(scaled(*count)).unwrap_or(MEMORY).max(1));
        }
        DemandMix { total: counts.values().sum(), counts }
    }

    /// Enters requests for one profile, a variant as its base profile. Once [`MEMORY`] requests are remembered all of them lose
    /// half their weight.
    pub fn observe(&mut self, profile: ProfileName, count: u64) {
        *self.counts.entry(profile.base()).or_default() += count.min(MEMORY);
        self.total += count.min(MEMORY);
        if self.total > MEMORY {
            self.counts.values_mut().for_each(|count| *count /= 2);
            self.counts.retain(|_, count| *count > 0);
            self.total = self.counts.values().sum();
        }
    }

    /// Shares of a model's base profiles in units of 1/1024, by position in [`GpuModel::profiles`] (zero for variants). Every
    /// base profile is taken to have been asked for once, so that an unknown mix is a uniform one.
    fn shares(&self, model: &GpuModel) -> Vec<u64> {
        let weight = |name: ProfileName| match name.is_base() {
            true => self.counts.get(&name).copied().unwrap_or(0) + 1,
            false => 0,
        };
        let total: u64 = model.profiles.iter().map(|profile| weight(profile.name)).sum();
        model.profiles.iter().map(|profile| weight(profile.name) * WHOLE / total.max(1)).collect()
    }
}

/// Free slices of a GPU that no free place of a profile covers, summed over profiles with these weights.
pub fn weighted_loss(
    table: &OccupancyTable,
    occupied: Slots,
    weights: impl IntoIterator<Item = (ProfileIndex, u64)>,
) -> u128 {
    let lost = |(profile, weight): (ProfileIndex, u64)| {
        u128::from(weight) * u128::from(table.uncovered(occupied, profile))
    };
    weights.into_iter().map(lost).sum()
}

/// F of every mask of one model under one mix.
#[derive(Clone, Debug)]
pub struct FragmentationTable {
    occupancy: OccupancyTable,
    /// By mask.
    lost: Vec<u32>,
}

impl FragmentationTable {
    /// Computes the table: masks × profiles additions.
    pub fn new(model: &'static GpuModel, mix: &DemandMix) -> FragmentationTable {
        let mut table = FragmentationTable { occupancy: OccupancyTable::new(model), lost: Vec::new() };
        table.reweigh(mix);
        table
    }

    /// Recomputes F for another mix.
    pub fn reweigh(&mut self, mix: &DemandMix) {
        let model = self.occupancy.model();
        let shares = mix.shares(model);
        let lost = |mask| {
            let weights = (0..).map(ProfileIndex).zip(shares.iter().copied());
            u32::try_from(weighted_loss(&self.occupancy, mask, weights)).unwrap_or(u32::MAX)
        };
        self.lost = (0..=model.all_slots().bits()).map(|bits| lost(Slots::from_bits(bits))).collect();
    }

    /// F of a GPU with these slices occupied, in 1/1024 slices.
    pub fn lost(&self, occupied: Slots) -> u32 {
        self.lost[usize::from(occupied.intersection(self.occupancy.model().all_slots()).bits())]
    }

    /// What fits where on this model.
    pub fn occupancy(&self) -> &OccupancyTable {
        &self.occupancy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a100() -> &'static GpuModel {
        GpuModel::by_name("A100-40GB").unwrap()
    }

    fn only(profile: &str) -> DemandMix {
        let mut mix = DemandMix::default();
        mix.observe(profile.parse().unwrap(), MEMORY);
        mix
    }

    /// F of `mask` in slices, rounded, when practically only `profile` is asked for.
    fn check(profile: &str, mask: u16, expected: u32) {
        let table = FragmentationTable::new(a100(), &only(profile));
        let lost = table.lost(Slots::from_bits(mask));
        assert_eq!((lost + 512) / 1024, expected, "{profile} on {mask:08b}: {lost}/1024");
    }

    #[test]
    fn counts_the_free_slices_that_the_demand_cannot_use() {
        check("3g.20gb", 0b0000_0000, 0);
        check("3g.20gb", 0b0000_0001, 3); // the right half still holds one
        check("3g.20gb", 0b0001_0001, 6); // one instance in each half: neither holds a 3g
        check("7g.40gb", 0b0000_0001, 7);
        check("1g.5gb", 0b0000_0001, 1); // slice 7 is never a 1g's
        check("1g.5gb", 0b1111_1111, 0);
    }

    #[test]
    fn an_unknown_mix_is_uniform() {
        let shares = DemandMix::default().shares(a100());
        let base = shares.iter().filter(|share| **share > 0).count();
        assert_eq!(base, 6);
        assert!(shares.iter().all(|share| *share == 0 || *share == WHOLE / 6));
    }

    #[test]
    fn totals_make_the_same_mix_in_any_order() {
        let totals = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| (name.parse().unwrap(), 100_000)).collect()
        };
        let mix = DemandMix::from_counts(totals(&["4g.20gb", "1g.5gb", "3g.20gb", "2g.10gb"]));
        assert_eq!(mix, DemandMix::from_counts(totals(&["2g.10gb", "3g.20gb", "1g.5gb", "4g.20gb"])));
        let shares = mix.shares(a100());
        let of = |name: &str| shares[usize::from(a100().index_of(name.parse().unwrap()).unwrap().0)];
        assert_eq!(["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"].map(of), [255; 4]);
        assert_eq!(of("7g.40gb"), 0, "asked for once in four thousand at most");
        // A profile that is rare beside another keeps a request of its own.
        let rare = [("7g.40gb".parse().unwrap(), u64::MAX), ("1g.5gb".parse().unwrap(), 1)];
        assert_eq!(DemandMix::from_counts(rare).counts.len(), 2);
        assert_eq!(DemandMix::from_counts([("7g.40gb".parse().unwrap(), 0)]), DemandMix::default());
    }

    #[test]
    fn a_variant_is_demand_for_its_base_profile() {
        assert_eq!(only("1g.5gb+me"), only("1g.5gb"));
        let variant = DemandMix::from_counts([("1g.5gb+me".parse().unwrap(), 7)]);
        assert_eq!(variant, DemandMix::from_counts([("1g.5gb".parse().unwrap(), 7)]));
        assert_ne!(variant.shares(a100()), DemandMix::default().shares(a100()));
    }

    #[test]
    fn old_demand_fades() {
        let mut mix = only("7g.40gb");
        for _ in 0..4 * MEMORY {
            mix.observe("1g.5gb".parse().unwrap(), 1);
        }
        let shares = mix.shares(a100());
        let of = |name: &str| shares[usize::from(a100().index_of(name.parse().unwrap()).unwrap().0)];
        assert!(of("1g.5gb") > 900 && of("7g.40gb") < 100, "{shares:?}");
    }
}
