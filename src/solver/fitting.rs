//! Fits one pod's MIG instances into the free slices of one node's GPUs.
//!
//! Invariant: the answer "does not fit" is exact. A pod's first try places its instances one after the other, each where it
//! loses least; only if that fails are all ways to spread them over the GPUs searched, over counts rather than single
//! placements, so that the search stays small: at most `GPUs × Π(count+1)` states, each with the few hundred sets of
//! instances that one GPU can hold.

use std::collections::{BTreeMap, BTreeSet};

use super::fragmentation::FragmentationTable;
use crate::mig::{Attribute, Layout, Placement, ProfileGeometry, ProfileIndex};
use crate::model::{DevicePlacement, MigRequest};

/// What decides between the places at which an instance could be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// The smallest rise of demand-weighted fragmentation, then the fullest GPU, then the last start.
    LeastFragmentation,
    /// The fullest GPU, then the last start.
    FullestGpu,
    /// The emptiest GPU, then the first start.
    EmptiestGpu,
}

/// Where a pod's instances go, and what that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitting {
    /// One for each instance asked for.
    pub placements: Vec<DevicePlacement>,
    /// Rise of the node's demand-weighted fragmentation in 1/1024 slices; negative when it falls.
    pub fragmentation: i64,
    /// Slices left free on the GPUs used, after it.
    pub free_slices: u64,
}

/// Finds places for all instances of `requests` on GPUs of one model with the given layouts, or `None` if there are none.
pub fn fit(
    table: &FragmentationTable,
    preference: Preference,
    gpus: &[Layout],
    requests: &[MigRequest],
) -> Option<Fitting> {
    let profiles = geometries(table, requests)?;
    let wanted: u64 =
        profiles.iter().map(|(geometry, _, count)| count * u64::from(geometry.memory_slices)).sum();
    let free: u64 = gpus.iter().map(|gpu| u64::from(table.occupancy().free(gpu.mask()))).sum();
    if wanted > free {
        return None;
    }
    if let [(geometry, index, 1)] = profiles[..] {
        // By far the most frequent request: no copy of the layouts is needed.
        let (gpu, start) = best_place(table, preference, gpus, geometry, index)?;
        let placement = Placement::new(geometry.name, start);
        return Some(appraise(table, gpus, vec![DevicePlacement { gpu, placement }]));
    }
    let placements =
        one_by_one(table, preference, gpus, &profiles).or_else(|| exhaustively(gpus, &profiles))?;
    Some(appraise(table, gpus, placements))
}

type Wanted = (&'static ProfileGeometry, ProfileIndex, u64);

/// The profiles asked for, largest first and then the one with the fewest legal starts; `None` if the model lacks one.
fn geometries(table: &FragmentationTable, requests: &[MigRequest]) -> Option<Vec<Wanted>> {
    let model = table.occupancy().model();
    let of = |request: &MigRequest| {
        let index = model.index_of(request.profile).ok()?;
        Some((model.profile(request.profile).ok()?, index, request.count))
    };
    let mut wanted = requests.iter().map(of).collect::<Option<Vec<_>>>()?;
    wanted.sort_by_key(|(geometry, index, _)| {
        (std::cmp::Reverse(geometry.memory_slices), geometry.starts.len(), *index)
    });
    Some(wanted)
}

/// The best place for one more instance.
fn best_place(
    table: &FragmentationTable,
    preference: Preference,
    gpus: &[Layout],
    geometry: &ProfileGeometry,
    index: ProfileIndex,
) -> Option<(u16, u8)> {
    let plain = geometry.name.attribute() == Attribute::None;
    let places = (0u16..).zip(gpus).flat_map(|(gpu, layout)| {
        let starts = table.occupancy().free_starts(layout.mask(), index);
        starts.iter().map(move |start| (gpu, layout, start))
    });
    places
        .filter(|(_, layout, start)| {
            plain && layout.placements().iter().all(|p| p.profile.attribute() == Attribute::None)
                || layout.admit(Placement::new(geometry.name, *start)).is_ok()
        })
        .min_by_key(|(gpu, layout, start)| {
            let after = layout.mask().union(geometry.window(*start));
            let rise = i64::from(table.lost(after)) - i64::from(table.lost(layout.mask()));
            let free = i64::from(table.occupancy().free(after));
            match preference {
                Preference::LeastFragmentation => (rise, free, i64::from(*gpu), -i64::from(*start)),
                Preference::FullestGpu => (0, free, i64::from(*gpu), -i64::from(*start)),
                Preference::EmptiestGpu => (0, -free, i64::from(*gpu), i64::from(*start)),
            }
        })
        .map(|(gpu, _, start)| (gpu, start))
}

/// Places the instances in turn, each at its best place.
fn one_by_one(
    table: &FragmentationTable,
    preference: Preference,
    gpus: &[Layout],
    wanted: &[Wanted],
) -> Option<Vec<DevicePlacement>> {
    let mut gpus = gpus.to_vec();
    let mut placements = Vec::new();
    for &(geometry, index, count) in wanted {
        for _ in 0..count {
            let (gpu, start) = best_place(table, preference, &gpus, geometry, index)?;
            let placement = Placement::new(geometry.name, start);
            let layout = &mut gpus[usize::from(gpu)];
            *layout = layout.clone().with(placement).ok()?;
            placements.push(DevicePlacement { gpu, placement });
        }
    }
    Some(placements)
}

/// Tries every way to divide the instances among the GPUs.
fn exhaustively(gpus: &[Layout], wanted: &[Wanted]) -> Option<Vec<DevicePlacement>> {
    let counts: Vec<u64> = wanted.iter().map(|(_, _, count)| *count).collect();
    let mut placements = Vec::new();
    divide(gpus, 0, wanted, &counts, &mut BTreeSet::new(), &mut placements).then_some(placements)
}

/// Places `left` on the GPUs from `at` on. `dead` holds the states known to have no solution.
fn divide(
    gpus: &[Layout],
    at: usize,
    wanted: &[Wanted],
    left: &[u64],
    dead: &mut BTreeSet<(usize, Vec<u64>)>,
    placements: &mut Vec<DevicePlacement>,
) -> bool {
    if left.iter().all(|count| *count == 0) {
        return true;
    }
    let Some(gpu) = gpus.get(at) else { return false };
    if dead.contains(&(at, left.to_vec())) {
        return false;
    }
    let mut shares = BTreeMap::new();
    share(gpu, wanted, (0, 0), &mut left.to_vec(), &mut Vec::new(), &mut shares);
    let index = u16::try_from(at).unwrap_or(u16::MAX);
    for (rest, chosen) in shares {
        let before = placements.len();
        placements.extend(chosen.into_iter().map(|placement| DevicePlacement { gpu: index, placement }));
        if divide(gpus, at + 1, wanted, &rest, dead, placements) {
            return true;
        }
        placements.truncate(before);
    }
    dead.insert((at, left.to_vec()));
    false
}

/// Collects what one GPU could take over: for each distinct rest that would be left, one way to reach it. Instances are added
/// in the order of `wanted` and, within a profile, by rising start, so that each set is met once.
fn share(
    gpu: &Layout,
    wanted: &[Wanted],
    first: (usize, u8),
    left: &mut Vec<u64>,
    chosen: &mut Vec<Placement>,
    shares: &mut BTreeMap<Vec<u64>, Vec<Placement>>,
) {
    shares.entry(left.clone()).or_insert_with(|| chosen.clone());
    for (kind, (geometry, _, _)) in wanted.iter().enumerate().skip(first.0) {
        let lowest = if kind == first.0 { first.1 } else { 0 };
        for start in geometry.free_starts(gpu.mask()).iter().filter(|start| *start >= lowest) {
            let placement = Placement::new(geometry.name, start);
            let Some(larger) = (left[kind] > 0).then(|| gpu.clone().with(placement).ok()).flatten() else {
                continue;
            };
            left[kind] -= 1;
            chosen.push(placement);
            share(&larger, wanted, (kind, start + 1), left, chosen, shares);
            chosen.pop();
            left[kind] += 1;
        }
    }
}

/// What placing these instances does to the node.
fn appraise(table: &FragmentationTable, gpus: &[Layout], placements: Vec<DevicePlacement>) -> Fitting {
    let mut masks: BTreeMap<u16, _> = BTreeMap::new();
    for instance in &placements {
        let model = table.occupancy().model();
        let mask = masks.entry(instance.gpu).or_insert_with(|| gpus[usize::from(instance.gpu)].mask());
        if let Ok(slots) = instance.placement.slots(model) {
            *mask = mask.union(slots);
        }
    }
    let rise = |(gpu, after): (&u16, _)| {
        i64::from(table.lost(after)) - i64::from(table.lost(gpus[usize::from(*gpu)].mask()))
    };
    Fitting {
        fragmentation: masks.iter().map(|(gpu, after)| rise((gpu, *after))).sum(),
        free_slices: masks.values().map(|after| u64::from(table.occupancy().free(*after))).sum(),
        placements,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::chance;
    use crate::mig::{GpuModel, ProfileName};
    use crate::solver::fragmentation::DemandMix;

    fn requests(wanted: &[(ProfileName, u64)]) -> Vec<MigRequest> {
        let request = |&(profile, count): &(ProfileName, u64)| MigRequest {
            profile,
            resource: profile.resource_name().into(),
            count,
        };
        wanted.iter().map(request).collect()
    }

    /// Whether all instances find a place, by trying every one for every instance.
    fn brute(gpus: &mut [Layout], instances: &[ProfileName]) -> bool {
        let Some((first, rest)) = instances.split_first() else { return true };
        for gpu in 0..gpus.len() {
            for start in 0..gpus[gpu].model().memory_slices {
                if let Ok(larger) = gpus[gpu].clone().with(Placement::new(*first, start)) {
                    let before = std::mem::replace(&mut gpus[gpu], larger);
                    let fits = brute(gpus, rest);
                    gpus[gpu] = before;
                    if fits {
                        return true;
                    }
                }
            }
        }
        false
    }

    #[test]
    fn does_not_fit_means_that_nothing_fits() {
        let mut next = chance(3);
        let (mut fitting, mut searched) = (0, 0);
        for name in ["A100-40GB", "A30-24GB", "RTX-PRO-6000-96GB"] {
            let model = GpuModel::by_name(name).unwrap();
            let table = FragmentationTable::new(model, &DemandMix::default());
            let mut any = || -> (ProfileName, u8, u64) {
                let profile = model.profiles[next(model.profiles.len() as u64) as usize];
                (profile.name, next(u64::from(model.memory_slices)) as u8, next(4))
            };
            for _ in 0..4_000 {
                let mut gpus = vec![Layout::empty(model); 1 + any().2 as usize % 2];
                for _ in 0..any().2 {
                    let (profile, start, gpu) = any();
                    let gpu = gpu as usize % gpus.len();
                    if let Ok(larger) = gpus[gpu].clone().with(Placement::new(profile, start)) {
                        gpus[gpu] = larger;
                    }
                }
                let (first, second) = (any(), any());
                let mut wanted = vec![(first.0, 1 + first.2 % 3)];
                if second.0 != first.0 {
                    wanted.push((second.0, 1 + second.2 % 2));
                }
                let each =
                    wanted.iter().flat_map(|(name, count)| std::iter::repeat_n(*name, *count as usize));
                let mut instances: Vec<_> = each.collect();
                instances.sort_by_key(|name| std::cmp::Reverse(model.profile(*name).unwrap().memory_slices));
                let expected = brute(&mut gpus.clone(), &instances);
                let found = fit(&table, Preference::LeastFragmentation, &gpus, &requests(&wanted));
                assert_eq!(found.is_some(), expected, "{name}: {wanted:?} on {gpus:?}");
                let Some(found) = found else { continue };
                fitting += 1;
                let profiles = geometries(&table, &requests(&wanted)).unwrap();
                let greedy = one_by_one(&table, Preference::LeastFragmentation, &gpus, &profiles);
                searched += usize::from(greedy.is_none());
                let before: i64 = gpus.iter().map(|gpu| i64::from(table.lost(gpu.mask()))).sum();
                for instance in &found.placements {
                    let gpu = &mut gpus[usize::from(instance.gpu)];
                    *gpu = gpu.clone().with(instance.placement).unwrap();
                }
                let mut placed: Vec<_> = found.placements.iter().map(|p| p.placement.profile).collect();
                placed.sort();
                instances.sort();
                assert_eq!(placed, instances);
                let after: i64 = gpus.iter().map(|gpu| i64::from(table.lost(gpu.mask()))).sum();
                assert_eq!(found.fragmentation, after - before);
            }
        }
        assert!(fitting > 2_000 && searched > 5, "{fitting} fitted, {searched} by search: hardly a test");
    }
}
