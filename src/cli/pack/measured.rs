//! How scattered the free slices are once the plan is carried out.
//!
//! Invariant: counted from the instances that pods hold then and from nothing else, so that it can be compared with what is
//! counted anywhere else. Free instances are free slices, whether their GPU may be cut anew or not.

use std::collections::BTreeMap;

use serde::Serialize;

use super::answer::{Gpu, Use};
use crate::mig::{GpuModel, ProfileIndex, Slots};
use crate::solver::fragmentation::{DemandMix, FragmentationTable};
use crate::solver::measures::{self, is_blocked};

/// The measures of all GPUs of one model, see `solver/measures.rs` for what each of them tells.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fragmentation {
    pub model: &'static str,
    pub gpus: u64,
    /// Memory slices of these GPUs.
    pub slices: u64,
    /// Those that no pod holds.
    pub free: u64,
    /// Free slices that a pod of the recent demand could not use, on average over that demand.
    pub demand_weighted: f64,
    /// Free slices that stay unused whichever instances are added.
    pub stranded: u64,
    /// Mean over GPUs of the share of free slices outside the longest run of them.
    pub physical_share: f64,
    /// Mean of MFI's score.
    pub mean_mfi: f64,
    /// Profiles of which no GPU could take one more, although the free slices of all would suffice for it.
    pub blocked: Vec<String>,
}

/// The measures by model.
pub(super) fn fragmentation(gpus: &[Gpu], mix: &DemandMix) -> Vec<Fragmentation> {
    let mut models: BTreeMap<&'static GpuModel, Vec<Slots>> = BTreeMap::new();
    for gpu in gpus {
        if let Ok(model) = GpuModel::by_name(gpu.model) {
            models.entry(model).or_default().push(occupied(gpu));
        }
    }
    models.into_iter().map(|(model, occupied)| of_model(model, &occupied, mix)).collect()
}

fn of_model(model: &'static GpuModel, gpus: &[Slots], mix: &DemandMix) -> Fragmentation {
    let table = FragmentationTable::new(model, mix);
    let mut sum = measures::Fragmentation::default();
    gpus.iter().for_each(|&occupied| sum.add(&table, occupied));
    let base = (0..).map(ProfileIndex).zip(model.profiles).filter(|(_, profile)| profile.name.is_base());
    let blocked = base.filter(|(index, _)| is_blocked(table.occupancy(), gpus.iter().copied(), *index));
    Fragmentation {
        model: model.name,
        gpus: sum.gpus,
        slices: sum.slices,
        free: sum.free,
        demand_weighted: sum.weighted_slices(),
        stranded: sum.stranded,
        physical_share: sum.physical_share(),
        mean_mfi: sum.mean_mfi(),
        blocked: blocked.map(|(_, profile)| profile.name.to_string()).collect(),
    }
}

/// The slices that pods hold.
fn occupied(gpu: &Gpu) -> Slots {
    let held = gpu.instances.iter().filter(|instance| instance.usage != Use::Free);
    held.fold(Slots::EMPTY, |mask, held| mask.union(Slots::window(held.start, held.size)))
}
