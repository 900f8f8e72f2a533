//! Demand that fits on one empty A100 is packed whole, in whatever order it arrives. Whoever places pod by pod loses some of it: the
//! lowest free start fails for 13 of the 37 sets, the best known rule for 3.

use std::collections::BTreeSet;

use mig_scheduler::mig::{GpuModel, Layout, Placement, ProfileName};
use mig_scheduler::solver::fragmentation::DemandMix;
use mig_scheduler::solver::packing::{Demand, Gpu, Limits, Problem, pack};

/// The sets of `profiles` that fit on one GPU, each in ascending order, found by adding instance after instance.
fn feasible(model: &'static GpuModel, profiles: &[ProfileName]) -> BTreeSet<Vec<ProfileName>> {
    let (mut sets, mut layouts) = (BTreeSet::new(), vec![Layout::empty(model)]);
    let mut seen = BTreeSet::new();
    while let Some(layout) = layouts.pop() {
        for &profile in profiles {
            for start in 0..model.memory_slices {
                let Ok(more) = layout.clone().with(Placement::new(profile, start)) else { continue };
                if seen.insert(more.placements().to_vec()) {
                    let mut set: Vec<_> = more.placements().iter().map(|placed| placed.profile).collect();
                    set.sort_unstable();
                    sets.insert(set);
                    layouts.push(more);
                }
            }
        }
    }
    sets
}

/// Every order in which the pods of `left` can arrive.
fn orders(left: &[ProfileName]) -> Vec<Vec<ProfileName>> {
    if left.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, &first) in left.iter().enumerate().filter(|(at, first)| !left[..*at].contains(first)) {
        let rest = [&left[..at], &left[at + 1..]].concat();
        all.extend(orders(&rest).into_iter().map(|order| [&[first], &order[..]].concat()));
    }
    all
}

fn check(profiles: &[&str], sets: usize, arrivals: usize) {
    let model = GpuModel::by_name("A100-40GB").unwrap();
    let profiles: Vec<ProfileName> = profiles.iter().map(|name| name.parse().unwrap()).collect();
    let feasible = feasible(model, &profiles);
    let all: Vec<_> = feasible.iter().flat_map(|set| orders(set)).collect();
    assert_eq!((feasible.len(), all.len()), (sets, arrivals));
    for order in all {
        let one = |&profile: &ProfileName| Demand { profile, priority: 0, count: 1 };
        let plan = pack(&Problem {
            demand: order.iter().map(one).collect(),
            gpus: vec![Gpu { model, node: 0, instances: Vec::new(), change: Some(Default::default()) }],
            mix: DemandMix::default(),
            limits: Limits::default(),
        });
        let plan = plan.unwrap();
        assert_eq!((plan.placed.len(), plan.unplaced.as_slice()), (order.len(), &[][..]), "{order:?}");
        let placed = plan.placed.iter().map(|placed| placed.placement);
        let layout = Layout::new(model, placed).unwrap();
        let mut held: Vec<_> = layout.placements().iter().map(|placed| placed.profile).collect();
        let mut wanted = order.clone();
        held.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(held, wanted);
    }
}

#[test]
fn every_arrival_order_of_what_fits_is_packed() {
    check(&["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"], 37, 113);
}

#[test]
fn with_the_double_memory_profile_too() {
    check(&["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"], 77, 424);
}
