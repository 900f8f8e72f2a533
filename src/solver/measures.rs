//! Published measures of fragmentation, each a function of the slices that pods occupy.
//!
//! They answer different questions, and a policy can improve one while it worsens another (MFI's score falls while the
//! stranded share rises, because the latter divides by a small remainder): publish several, never one alone. With `free`
//! the free memory slices of a GPU whose occupied slices are `m`:
//!
//! | measure | of one GPU | source |
//! |---|---|---|
//! | demand-weighted | `Σ_p q(p) · (free slices that no free window of p covers)` | FGD (Weng et al., USENIX ATC '23), its test "does p run here" replaced by MIG's placements |
//! | stranded | `free − most slices that further base instances could occupy` | MIGBench, with the packing taken from the table |
//! | physical | `free − longest run of free slices` | MIGBench; ignores where profiles may start |
//! | MFI | `Σ_p [r_p ≤ free] · r_p · (legal windows of p that are not free)` | MFI (Zambianco et al., arXiv 2511.18906), from a description of it |
//! | blocked | a request that no GPU can place although the free slices of all would suffice | MIGBench's request fragmentation |
//!
//! Demand-weighted loss is [`FragmentationTable::lost`], stranded slices are [`OccupancyTable::stranded`]; the rest is here,
//! and [`Fragmentation`] sums all of them over a cluster.
//!
//! Invariant: everything is counted in whole slices or in 1/1024 of one; ratios are formed once, when they are read.

use super::fragmentation::{FragmentationTable, WHOLE};
use crate::mig::{GpuModel, OccupancyTable, ProfileIndex, Slots};

/// Free memory slices outside the longest run of free ones.
pub fn physical(model: &GpuModel, occupied: Slots) -> u8 {
    let (mut longest, mut run) = (0, 0);
    for at in 0..model.memory_slices {
        run = if occupied.contains(at) { 0 } else { run + 1 };
        longest = longest.max(run);
    }
    model.all_slots().minus(occupied).len() - longest
}

/// MFI's score of one GPU over its base profiles: for each that is not larger than the free slices, its size times the
/// number of its legal windows that something occupies. Zero for an empty and for a full GPU.
pub fn mfi(table: &OccupancyTable, occupied: Slots) -> u32 {
    let free = table.free(occupied);
    let base = (0..).map(ProfileIndex).zip(table.model().profiles).filter(|(_, p)| p.name.is_base());
    let small = base.filter(|(_, profile)| profile.memory_slices <= free);
    let blocked = |(index, profile): (ProfileIndex, &crate::mig::ProfileGeometry)| {
        let windows = profile.starts.len() - table.free_starts(occupied, index).len();
        u32::from(profile.memory_slices) * u32::from(windows)
    };
    small.map(blocked).sum()
}

/// Whether one more instance of `profile` is refused by every GPU although their free slices together would hold it.
///
/// `gpus` are those of one model with their occupied slices; media engines are not looked at.
pub fn is_blocked(
    table: &OccupancyTable,
    gpus: impl IntoIterator<Item = Slots>,
    profile: ProfileIndex,
) -> bool {
    let Some(geometry) = table.model().profiles.get(usize::from(profile.0)) else { return false };
    let mut free = 0u64;
    for occupied in gpus {
        if !table.free_starts(occupied, profile).is_empty() {
            return false;
        }
        free += u64::from(table.free(occupied));
    }
    free >= u64::from(geometry.memory_slices)
}

/// All measures of a cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// GPUs counted.
    pub gpus: u64,
    /// Memory slices of these GPUs.
    pub slices: u64,
    /// Those that no pod occupies.
    pub free: u64,
    /// Demand-weighted loss in 1/1024 slices.
    pub weighted: u64,
    /// Stranded slices.
    pub stranded: u64,
    /// Sum over GPUs of physical fragmentation as a share of the GPU's free slices, in 1/1024.
    pub physical: u64,
    /// Sum of MFI's scores.
    pub mfi: u64,
}

impl Fragmentation {
    /// Adds one GPU.
    pub fn add(&mut self, table: &FragmentationTable, occupied: Slots) {
        let occupancy = table.occupancy();
        let free = u64::from(occupancy.free(occupied));
        self.gpus += 1;
        self.slices += u64::from(occupancy.model().memory_slices);
        self.free += free;
        self.weighted += u64::from(table.lost(occupied));
        self.stranded += u64::from(occupancy.stranded(occupied));
        self.physical += u64::from(physical(occupancy.model(), occupied)) * WHOLE / free.max(1);
        self.mfi += u64::from(mfi(occupancy, occupied));
    }

    /// Demand-weighted loss in slices; divided by all slices it is FGD's fragmentation ratio of the cluster.
    pub fn weighted_slices(&self) -> f64 {
        ratio(self.weighted, WHOLE)
    }

    /// Mean over GPUs of the share of a GPU's free slices outside its longest free run; a full GPU counts as zero.
    pub fn physical_share(&self) -> f64 {
        ratio(self.physical, self.gpus * WHOLE)
    }

    /// Mean of MFI's score.
    pub fn mean_mfi(&self) -> f64 {
        ratio(self.mfi, self.gpus)
    }
}

/// Zero when there is nothing to divide by.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::fragmentation::DemandMix;

    fn a100() -> &'static GpuModel {
        GpuModel::by_name("A100-40GB").unwrap()
    }

    fn check(mask: u16, expected: (u8, u8, u32)) {
        let (table, occupied) = (OccupancyTable::new(a100()), Slots::from_bits(mask));
        let found = (physical(a100(), occupied), table.stranded(occupied), mfi(&table, occupied));
        assert_eq!(found, expected, "{mask:08b}");
    }

    /// (physical, stranded, MFI), counted by hand.
    #[test]
    fn known_situations() {
        check(0, (0, 0, 0));
        check(0b1111_1111, (0, 0, 0));
        check(0b0111_1111, (0, 1, 7)); // one slice left: all seven 1g windows are taken
        // 4g and the right 3g stay: 1g 1, 1g double 2, 2g 2, 3g 4 and 4g 4; the 7g is larger than what is free.
        check(0b0000_0001, (0, 0, 1 + 2 + 2 + 4 + 4));
        check(0b0001_0001, (3, 0, 2 + 4 + 4 + 8 + 4)); // runs of three, and both halves are broken
        check(0b0000_1000, (3, 0, 1 + 2 + 2 + 4 + 4));
    }

    #[test]
    fn a_request_is_blocked_when_slots_suffice_and_placements_do_not() {
        let table = OccupancyTable::new(a100());
        let blocked = |masks: &[u16], profile: &str| {
            let index = a100().index_of(profile.parse().unwrap()).unwrap();
            is_blocked(&table, masks.iter().map(|&bits| Slots::from_bits(bits)), index)
        };
        assert!(blocked(&[0b0001_0001], "3g.20gb"));
        assert!(blocked(&[0b0000_0001, 0b1000_0000], "7g.40gb"));
        assert!(!blocked(&[0b0001_0001, 0b0000_1111], "3g.20gb"), "the second takes it");
        assert!(!blocked(&[0b1111_1111, 0b1111_1000], "4g.20gb"), "three slices are not enough");
        assert!(!blocked(&[], "1g.5gb"));
    }

    #[test]
    fn a_cluster_sums_its_gpus() {
        let table = FragmentationTable::new(a100(), &DemandMix::default());
        let mut cluster = Fragmentation::default();
        assert_eq!(
            (cluster.weighted_slices(), cluster.physical_share(), cluster.mean_mfi()),
            (0.0, 0.0, 0.0)
        );
        for bits in [0b0111_1111, 0b0001_0001] {
            cluster.add(&table, Slots::from_bits(bits));
        }
        assert_eq!((cluster.gpus, cluster.slices, cluster.free, cluster.stranded), (2, 16, 7, 1));
        let lost = [0b0111_1111, 0b0001_0001].map(|bits| u64::from(table.lost(Slots::from_bits(bits))));
        assert_eq!(cluster.weighted, lost.iter().sum::<u64>());
        assert_eq!(cluster.weighted_slices(), cluster.weighted as f64 / 1024.0);
        assert_eq!(cluster.physical_share(), 0.25); // 3 of 6 on one, 0 of 1 on the other
    }
}
