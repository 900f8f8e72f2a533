//! Transitions against a search over all states, and the cases that were drawn by hand.

use proptest::prelude::*;

use super::*;
use crate::fixture::chance;
use crate::mig::tables::MODELS;
use crate::mig::{GpuModel, LayoutTable, Variants, enumerate_layouts};

/// Where every pod is; pods are numbered as the moves are, then the pinned ones.
type Pods = BTreeMap<usize, Site>;

fn layout(text: &str) -> Layout {
    let placements = text.split_whitespace().map(placement);
    Layout::new(GpuModel::by_name("A100-40GB").unwrap(), placements).unwrap()
}

/// Reads `3g.20gb@4`.
fn placement(word: &str) -> Placement {
    let (profile, start) = word.split_once('@').unwrap();
    Placement::new(profile.parse().unwrap(), start.parse().unwrap())
}

/// Reads `3g.20gb@0:a 2g.10gb@4`, where `:` marks an instance that a pod holds.
fn change(from: &str, to: &str) -> GpuChange {
    let bare = |word: &str| word.split(':').next().unwrap().to_owned();
    let held = from.split_whitespace().filter(|word| word.contains(':')).map(|word| placement(&bare(word)));
    let words: Vec<_> = from.split_whitespace().map(bare).collect();
    GpuChange { from: layout(&words.join(" ")), to: layout(to), held: held.collect() }
}

/// Reads `0/3g.20gb@0>1/3g.20gb@4`, and `0/3g.20gb@0>` for a pod that leaves.
fn pod_move(text: &str) -> PodMove {
    let site = |text: &str| {
        let (gpu, at) = text.split_once('/')?;
        Some(Site { gpu: gpu.parse().unwrap(), placement: placement(at) })
    };
    let (from, to) = text.split_once('>').unwrap();
    PodMove { from: site(from).unwrap(), to: site(to), cost: 10 }
}

/// `0:-3g.20gb@0`, `0/1g.5gb@0>1/1g.5gb@4`, `!0/1g.5gb@0` (evict), `=0/1g.5gb@0` (bind).
fn written(step: &Action) -> String {
    let site = |site: &Site| format!("{}/{}", site.gpu, site.placement);
    match step {
        Action::Change { gpu, step } => format!("{gpu}:{step}"),
        Action::Move { from, to } => format!("{}>{}", site(from), site(to)),
        Action::Evict(from) => format!("!{}", site(from)),
        Action::Bind(to) => format!("={}", site(to)),
    }
}

#[track_caller]
fn check(gpus: &[(&str, &str)], moves: &[&str], expected: &str, cost: u64) {
    let gpus: Vec<_> = gpus.iter().map(|(from, to)| change(from, to)).collect();
    let moves: Vec<_> = moves.iter().map(|text| pod_move(text)).collect();
    let found = plan(&gpus, &moves, Weights::default()).unwrap();
    let steps: Vec<_> = found.steps().iter().map(written).collect();
    assert_eq!((steps.join(" "), found.cost()), (expected.to_owned(), cost));
    there_and_back(&gpus, &moves, &found);
}

#[test]
fn free_instances_are_exchanged_and_the_others_stay() {
    check(&[("3g.20gb@0 3g.20gb@4:", "3g.20gb@4 3g.20gb@0")], &[], "", 0);
    check(&[("", "7g.40gb@0")], &[], "0:+7g.40gb@0", 1);
    check(
        &[("4g.20gb@0: 3g.20gb@4", "4g.20gb@0 1g.5gb@6 2g.10gb@4")],
        &[],
        "0:-3g.20gb@4 0:+2g.10gb@4 0:+1g.5gb@6",
        3,
    );
}

#[test]
fn a_pod_moves_before_its_old_instance_goes() {
    check(
        &[("3g.20gb@0: 2g.10gb@4", "4g.20gb@0 3g.20gb@4")],
        &["0/3g.20gb@0>0/3g.20gb@4"],
        "0:-2g.10gb@4 0:+3g.20gb@4 0/3g.20gb@0>0/3g.20gb@4 0:-3g.20gb@0 0:+4g.20gb@0",
        14,
    );
    // To another GPU, where its instance has to be made first.
    check(
        &[("1g.5gb@0:", "7g.40gb@0"), ("3g.20gb@0: 3g.20gb@4", "3g.20gb@0 1g.5gb@4")],
        &["0/1g.5gb@0>1/1g.5gb@4"],
        "1:-3g.20gb@4 1:+1g.5gb@4 0/1g.5gb@0>1/1g.5gb@4 0:-1g.5gb@0 0:+7g.40gb@0",
        14,
    );
    // In a chain: the second takes what the first leaves.
    check(
        &[("1g.5gb@0: 1g.5gb@1: 1g.5gb@2", "1g.5gb@1 1g.5gb@2")],
        &["0/1g.5gb@0>0/1g.5gb@1", "0/1g.5gb@1>0/1g.5gb@2"],
        "0/1g.5gb@1>0/1g.5gb@2 0/1g.5gb@0>0/1g.5gb@1 0:-1g.5gb@0",
        21,
    );
}

#[test]
fn who_cannot_move_without_a_gap_is_evicted_first() {
    // The new instance needs a slice of the old one.
    check(
        &[("3g.20gb@0: 3g.20gb@4:", "3g.20gb@4")],
        &["0/3g.20gb@0>0/3g.20gb@4", "0/3g.20gb@4>"],
        "!0/3g.20gb@4 0/3g.20gb@0>0/3g.20gb@4 0:-3g.20gb@0",
        21,
    );
    // Two change places; one of them has to wait outside, and a third that only follows does not.
    check(
        &[("2g.10gb@0: 1g.10gb@2: 1g.5gb@4: 1g.5gb@5", "2g.10gb@2 1g.10gb@0 1g.5gb@5")],
        &["0/2g.10gb@0>0/2g.10gb@2", "0/1g.10gb@2>0/1g.10gb@0", "0/1g.5gb@4>0/1g.5gb@5"],
        "0/1g.5gb@4>0/1g.5gb@5 0:-1g.5gb@4 !0/2g.10gb@0 0:-2g.10gb@0 0:+1g.10gb@0 0/1g.10gb@2>0/1g.10gb@0 \
         0:-1g.10gb@2 0:+2g.10gb@2 =0/2g.10gb@2",
        45,
    );
}

#[track_caller]
fn check_refused(gpus: &[(&str, &str)], moves: &[&str], expected: &str) {
    let gpus: Vec<_> = gpus.iter().map(|(from, to)| change(from, to)).collect();
    let moves: Vec<_> = moves.iter().map(|text| pod_move(text)).collect();
    let error = plan(&gpus, &moves, Weights::default()).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_no_order_can_do_is_refused() {
    let gpu = [("3g.20gb@0: 1g.5gb@4:", "3g.20gb@4 1g.5gb@0")];
    check_refused(&gpu, &[], "GPU 0: a running pod holds 3g.20gb@0 and the wanted layout lacks it");
    check_refused(&gpu, &["0/3g.20gb@4>"], "GPU 0: no pod is left to move from 3g.20gb@4");
    check_refused(&gpu, &["0/3g.20gb@0>", "0/3g.20gb@0>"], "no pod is left to move from 3g.20gb@0");
    let out = "0/3g.20gb@0>";
    check_refused(&gpu, &[out, "0/1g.5gb@4>0/3g.20gb@4"], "cannot move to 3g.20gb@4: its instance must have");
    check_refused(&gpu, &[out, "0/1g.5gb@4>0/1g.5gb@5"], "GPU 0: 1g.5gb@5 cannot take a pod");
    check_refused(&gpu, &[out, "0/1g.5gb@4>3/1g.5gb@0"], "GPU 3: 1g.5gb@0 cannot take a pod");
    let pinned = [("1g.5gb@0: 1g.5gb@1:", "1g.5gb@1")];
    check_refused(&pinned, &["0/1g.5gb@0>0/1g.5gb@1"], "1g.5gb@1 cannot take a pod");
    let mut absent = change("1g.5gb@0", "");
    absent.held.push(placement("1g.5gb@4"));
    let error = plan(&[absent], &[], Weights::default()).unwrap_err().to_string();
    assert!(error.contains("GPU 0: 1g.5gb@4 is not in this layout of A100-40GB"), "{error}");
    let mut other = change("", "");
    other.to = Layout::empty(GpuModel::by_name("A30-24GB").unwrap());
    let error = plan(&[other], &[], Weights::default()).unwrap_err().to_string();
    assert!(error.contains("a layout of A100-40GB cannot become one of A30-24GB"), "{error}");
}

#[test]
fn mig_manager_tears_down_every_gpu_whose_counts_differ() {
    let gpus = [
        // Other starts, the same counts: left alone.
        change("1g.5gb@0: 1g.5gb@1", "1g.5gb@0 1g.5gb@4"),
        change("3g.20gb@4: 1g.5gb@0: 1g.5gb@1", "3g.20gb@4 1g.5gb@0"),
        change("7g.40gb@0:", "7g.40gb@0"),
        change("", "7g.40gb@0"),
    ];
    let found = torn_down(&gpus);
    let hit = vec![placement("1g.5gb@0"), placement("3g.20gb@4")];
    assert_eq!(found, [TornDown { gpu: 1, hit }, TornDown { gpu: 3, hit: Vec::new() }]);
}

/// Carries the steps out one by one, with every rule checked, and then undoes them.
fn there_and_back(gpus: &[GpuChange], moves: &[PodMove], transition: &Transition) {
    let pinned = gpus
        .iter()
        .enumerate()
        .flat_map(|(gpu, change)| change.held.iter().map(move |&placement| Site { gpu, placement }));
    let pinned = pinned.filter(|site| moves.iter().all(|pod| pod.from != *site));
    let before: Pods = moves.iter().map(|pod| pod.from).chain(pinned.clone()).enumerate().collect();
    let after: Pods = (moves.iter().map(|pod| pod.to).chain(pinned.map(Some)).enumerate())
        .filter_map(|(pod, site)| Some((pod, site?)))
        .collect();
    let ends = |of: fn(&GpuChange) -> &Layout| gpus.iter().map(|gpu| of(gpu).clone()).collect::<Vec<_>>();
    let (from, to) = (ends(|gpu| &gpu.from), ends(|gpu| &gpu.to));
    let mut state = (from.clone(), before.clone());
    transition.steps().iter().for_each(|step| carry_out(&mut state, step, moves));
    assert_eq!(state, (to, after));
    transition.inverse().iter().for_each(|step| carry_out(&mut state, step, moves));
    assert_eq!(state, (from, before));
}

fn carry_out((layouts, pods): &mut (Vec<Layout>, Pods), step: &Action, moves: &[PodMove]) {
    let enter = |pods: &mut Pods, pod: usize, site: Site| {
        assert!(layouts[site.gpu].placements().contains(&site.placement), "{step:?}: no such instance");
        assert!(!pods.values().any(|other| *other == site), "{step:?}: taken");
        pods.insert(pod, site);
    };
    let inside = |pods: &Pods, site: &Site| pods.iter().find(|(_, at)| *at == site).map(|(pod, _)| *pod);
    match step {
        Action::Change { gpu, step } => {
            if let Step::Destroy(placement) = step {
                assert_eq!(
                    inside(pods, &Site { gpu: *gpu, placement: *placement }),
                    None,
                    "{step:?}: in use"
                );
            }
            layouts[*gpu] = step.apply(layouts[*gpu].clone()).unwrap();
        }
        Action::Move { from, to } => {
            let pod = inside(pods, from).unwrap();
            assert!(pod < moves.len(), "{step:?}: pinned");
            enter(pods, pod, *to);
        }
        Action::Evict(site) => {
            let pod = inside(pods, site).unwrap();
            assert!(pod < moves.len(), "{step:?}: pinned");
            pods.remove(&pod);
        }
        Action::Bind(site) => {
            let belongs = |pod: &PodMove| pod.to == Some(*site) || pod.from == *site;
            let waiting = (0..moves.len()).filter(|pod| !pods.contains_key(pod));
            let pod = waiting.into_iter().find(|&pod| belongs(&moves[pod])).unwrap();
            enter(pods, pod, *site);
        }
    }
}

/// The cost of the cheapest path, by Dijkstra's search over every set of existing instances and every place of every pod. It
/// shares nothing with the plan but the rules: any instance of either layout may come or go at any time, in any order.
fn cheapest(gpus: &[GpuChange], moves: &[PodMove], weights: Weights) -> Option<u64> {
    let sites = |gpu: usize, layout: &Layout| -> Vec<Site> {
        layout.placements().iter().map(|&placement| Site { gpu, placement }).collect()
    };
    let each = |of: fn(&GpuChange) -> &Layout| -> BTreeSet<Site> {
        gpus.iter().enumerate().flat_map(|(gpu, change)| sites(gpu, of(change))).collect()
    };
    let (from, to) = (each(|gpu| &gpu.from), each(|gpu| &gpu.to));
    let all: Vec<Site> = from.union(&to).copied().collect();
    let bit = |site: &Site| 1u32 << all.binary_search(site).unwrap();
    let bits = |set: &BTreeSet<Site>| set.iter().map(bit).sum::<u32>();
    let clash = |a: &Site, b: &Site| {
        a.gpu == b.gpu && Layout::new(gpus[a.gpu].from.model(), [a.placement, b.placement]).is_err()
    };
    let clashes: Vec<u32> = (all.iter())
        .map(|site| all.iter().filter(|other| *other != site && clash(site, other)).map(bit).sum())
        .collect();
    let held = gpus
        .iter()
        .enumerate()
        .flat_map(|(gpu, change)| change.held.iter().map(move |&placement| Site { gpu, placement }));
    let pinned: u32 =
        held.filter(|site| moves.iter().all(|pod| pod.from != *site)).map(|site| bit(&site)).sum();
    // A pod is in its old place (0), stopped (1) or in its new place (2).
    let places = |state: &[u8]| -> u32 {
        let place = |(pod, at): (&PodMove, &u8)| match at {
            0 => bit(&pod.from),
            2 => pod.to.as_ref().map_or(0, bit),
            _ => 0,
        };
        moves.iter().zip(state).map(place).fold(pinned, |all, place| all | place)
    };
    let goal: Vec<u8> = moves.iter().map(|pod| if pod.to.is_some() { 2 } else { 1 }).collect();
    let goal = (bits(&to), goal);
    let mut best = BTreeMap::new();
    let mut open = BinaryHeap::from([Reverse((0u64, bits(&from), vec![0u8; moves.len()]))]);
    while let Some(Reverse((cost, there, pods))) = open.pop() {
        if best.contains_key(&(there, pods.clone())) {
            continue;
        }
        best.insert((there, pods.clone()), cost);
        if (there, pods.clone()) == goal {
            return Some(cost);
        }
        let used = places(&pods);
        for (at, clashing) in clashes.iter().enumerate() {
            let instance = 1 << at;
            if there & instance != 0 && used & instance == 0 {
                open.push(Reverse((cost + weights.destroy, there & !instance, pods.clone())));
            }
            if there & instance == 0 && there & clashing == 0 {
                open.push(Reverse((cost + weights.create, there | instance, pods.clone())));
            }
        }
        for (at, pod) in moves.iter().enumerate() {
            let mut go = |place: u8, price: u64| {
                let mut pods = pods.clone();
                pods[at] = place;
                open.push(Reverse((cost + price, there, pods)));
            };
            let open_to = pod.to.as_ref().map_or(0, bit);
            let may_enter = open_to != 0 && there & open_to != 0 && used & open_to == 0;
            match pods[at] {
                0 => {
                    go(1, pod.cost);
                    if may_enter {
                        go(2, pod.cost);
                    }
                }
                1 if may_enter => go(2, pod.cost),
                _ => {}
            }
        }
    }
    None
}

/// A random task on `count` GPUs of a model: layouts, who holds what, and moves that keep the rules.
fn task(table: &LayoutTable, count: usize, movers: usize, seed: u64) -> (Vec<GpuChange>, Vec<PodMove>) {
    let mut next = chance(seed);
    let mut any = |bound: usize| next(bound as u64) as usize;
    let mut gpus = Vec::new();
    for _ in 0..count {
        let [from, to] = [(); 2].map(|()| table.layouts()[any(table.layouts().len())].clone());
        gpus.push(GpuChange { from, to, held: Vec::new() });
    }
    let places = |gpus: &[GpuChange], of: fn(&GpuChange) -> &Layout| -> Vec<Site> {
        let sites = |(gpu, change)| {
            let layout: &Layout = of(change);
            layout.placements().iter().map(move |&placement| Site { gpu, placement }).collect::<Vec<_>>()
        };
        gpus.iter().enumerate().flat_map(sites).collect()
    };
    let wanted = places(&gpus, |gpu| &gpu.to);
    let mut open = wanted.clone();
    let mut moving = Vec::new();
    for site in places(&gpus, |gpu| &gpu.from) {
        match any(4) {
            0 => {}
            1 if wanted.contains(&site) => {
                open.retain(|other| *other != site);
                gpus[site.gpu].held.push(site.placement);
            }
            _ if moving.len() < movers => {
                gpus[site.gpu].held.push(site.placement);
                moving.push(site);
            }
            _ => {}
        }
    }
    let mut moves = Vec::new();
    for from in moving {
        let fitting: Vec<usize> = (0..open.len())
            .filter(|&at| open[at] != from && open[at].placement.profile == from.placement.profile)
            .collect();
        let to = (!fitting.is_empty() && any(5) > 0).then(|| open.remove(fitting[any(fitting.len())]));
        moves.push(PodMove { from, to, cost: 2 + any(9) as u64 });
    }
    (gpus, moves)
}

/// Every model, one GPU and two: the plan exists, keeps the rules both ways, and no path is cheaper.
#[test]
fn no_path_is_cheaper() {
    let (mut moved, mut stopped) = (0, 0);
    for model in &MODELS {
        let table = enumerate_layouts(model, Variants::All);
        let eight = model.memory_slices == 8;
        for (count, movers, rounds) in
            [(1, 4, 40), (2, if eight { 2 } else { 4 }, if eight { 3 } else { 40 })]
        {
            for seed in 0..rounds {
                let (gpus, moves) = task(&table, count, movers, seed);
                let weights = Weights { create: 1 + seed % 3, destroy: 1 + seed % 2 };
                let found = plan(&gpus, &moves, weights).unwrap();
                there_and_back(&gpus, &moves, &found);
                assert_eq!(
                    Some(found.cost()),
                    cheapest(&gpus, &moves, weights),
                    "{model} {gpus:?} {moves:?}"
                );
                moved += found.steps().iter().filter(|step| matches!(step, Action::Move { .. })).count();
                stopped += found.steps().iter().filter(|step| matches!(step, Action::Bind(_))).count();
            }
        }
    }
    assert!(moved > 100 && stopped > 10, "{moved} moved, {stopped} stopped: hardly a test");
}

proptest! {
    /// Many GPUs and many moves among them: there and back, whatever the layouts.
    #[test]
    fn there_and_back_again(which in 0..MODELS.len(), count in 1usize..7, seed: u64) {
        let table = enumerate_layouts(&MODELS[which], Variants::Base);
        let (gpus, moves) = task(&table, count, usize::MAX, seed);
        let found = plan(&gpus, &moves, Weights::default()).unwrap();
        there_and_back(&gpus, &moves, &found);
        prop_assert_eq!(&found, &plan(&gpus, &moves, Weights::default()).unwrap());
        let unchanged = gpus.iter().all(|gpu| gpu.from == gpu.to) && moves.is_empty();
        prop_assert_eq!(found.is_empty(), unchanged);
    }
}
