//! How long packing a whole cluster takes, from 100 to 100,000 GPUs, and how far from its bound the answer can be.
//!
//! Every case is a mixed cluster: four models, of which two share all their profiles and a third shares one with them; six GPUs
//! in ten hold pinned pods in one of some sixty layouts a model, the others are empty. Demand comes in three priorities.
//!
//! - `fits`: demand for three quarters of what is free, so that everything is placed and GPUs are to be spared;
//! - `overload`: one and a half times what is free, so that priorities decide.
//!
//! Each is solved from a cold start on one thread; building the tables and handing out every GPU's layout are included. Then
//! single changes (a pod arrives, a pod ends) are solved anew from where the last answer ended.
//!
//! stdout is one JSON line a case, stderr a table. Arguments: `--gpus N…` (all sizes), `--seeds N` (3).

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock and its arguments")]

use std::time::Instant;

use mig_scheduler::mig::{GpuModel, Layout, Variants, enumerate_layouts};
use mig_scheduler::solver::packing::{ChangeCost, Demand, Gpu, Holder, Instance, Packer, Problem, pack};

const SIZES: [usize; 7] = [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000];
const MODELS: [&str; 4] = ["A100-80GB", "H100-80GB", "A100-40GB", "A30-24GB"];
const KINDS: usize = 60;
const GPUS_PER_NODE: usize = 8;

/// A pause of 60 s of a node with eight GPUs of eight slices, and 2 s of four slices for an instance.
const CHANGE: ChangeCost = ChangeCost { node: 60 * 64, instance: 8 };

/// SplitMix64, the same stream on every machine.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) as u128 * bound as u128) >> 64) as usize
    }
}

fn models() -> Vec<&'static GpuModel> {
    MODELS.iter().map(|name| GpuModel::by_name(name).expect("a model of the tables")).collect()
}

/// A cluster with demand for `percent` of its free slices.
fn cluster(gpus: usize, percent: usize, seed: u64) -> Problem {
    let mut rng = Rng(seed);
    let models = models();
    let pinned: Vec<Vec<Layout>> = models.iter().map(|model| kinds(model, &mut rng)).collect();
    let mut problem = Problem::default();
    let mut free = vec![0; models.len()];
    for at in 0..gpus {
        // Nodes are of one model.
        let which = [0, 0, 1, 1, 2, 2, 3][(at / GPUS_PER_NODE) % 7];
        let layout = (rng.below(10) < 6).then(|| &pinned[which][rng.below(pinned[which].len())]);
        let placements = layout.map_or(&[][..], Layout::placements);
        let instance = |&placement| Instance { placement, holder: Holder::Pinned };
        problem.gpus.push(Gpu {
            model: models[which],
            node: (at / GPUS_PER_NODE) as u32,
            instances: placements.iter().map(instance).collect(),
            change: Some(CHANGE),
        });
        let held: u8 = layout.map_or(0, |layout| layout.mask().len());
        free[which] += usize::from(models[which].memory_slices - held);
    }
    for (model, free) in models.iter().zip(free) {
        demand(model, free * percent / 100, &mut rng, &mut problem);
    }
    problem
}

/// Layouts that leave something free.
fn kinds(model: &'static GpuModel, rng: &mut Rng) -> Vec<Layout> {
    let table = enumerate_layouts(model, Variants::Base);
    let open: Vec<_> = table.layouts().iter().filter(|layout| !layout.is_maximal()).collect();
    (0..KINDS).map(|_| open[rng.below(open.len())].clone()).collect()
}

/// Adds pods for this many slices, small ones most often.
fn demand(model: &GpuModel, mut slices: usize, rng: &mut Rng, problem: &mut Problem) {
    let base: Vec<_> = model.profiles.iter().filter(|profile| profile.name.is_base()).collect();
    let mut counts = vec![[0u32; 3]; base.len()];
    while slices > 0 {
        let which = rng.below(base.len()).min(rng.below(base.len()));
        counts[which][rng.below(3)] += 1;
        slices = slices.saturating_sub(usize::from(base[which].memory_slices));
    }
    for (profile, counts) in base.iter().zip(counts) {
        for (priority, count) in (0..).zip(counts) {
            problem.demand.push(Demand { profile: profile.name, priority, count });
        }
    }
}

/// The middle of some times.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let done = work();
    (begin.elapsed().as_secs_f64() * 1e3, done)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench").peekable();
    let (mut sizes, mut seeds) = (Vec::new(), 3);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => seeds = arguments.next().and_then(|n| n.parse().ok()).expect("--seeds N"),
            "--gpus" => {
                while let Some(size) = arguments.peek().and_then(|n| n.parse().ok()) {
                    sizes.push(size);
                    arguments.next();
                }
            }
            other => panic!("unknown argument `{other}`: known are --gpus N… and --seeds N"),
        }
    }
    let sizes = if sizes.is_empty() { SIZES.to_vec() } else { sizes };
    eprintln!("    gpus case     seed      ms   gap %   placed    gpus");
    for gpus in sizes {
        for (case, percent) in [("fits", 75), ("overload", 150)] {
            for seed in 0..seeds {
                cold(case, gpus, percent, seed);
            }
            incremental(case, gpus, percent);
        }
    }
}

fn cold(case: &str, gpus: usize, percent: usize, seed: u64) {
    let problem = cluster(gpus, percent, seed);
    let (ms, plan) = timed(|| pack(&problem).expect("a sound problem"));
    let placed: u64 = plan.score.placed.iter().sum();
    let gap = plan.gap();
    let used = plan.score.gpus;
    eprintln!("{gpus:8} {case:9} {seed:3} {ms:8.1} {:7.3} {placed:8} {used:7}", gap * 100.0);
    println!(
        r#"{{"case":"{case}","gpus":{gpus},"seed":{seed},"ms":{ms:.2},"gap":{gap:.6},"placed":{placed},"used":{used},"bound":{}}}"#,
        plan.bound.gpus
    );
}

/// Pods arrive and end one by one; each change is solved at once. The last answer is compared with one from a cold start.
fn incremental(case: &str, gpus: usize, percent: usize) {
    const CHANGES: usize = 20;
    let mut packer = Packer::new(cluster(gpus, percent, 1)).expect("a sound problem");
    let mut plan = packer.pack().expect("a sound problem");
    let mut rng = Rng(99);
    let mut times = Vec::new();
    for change in 0..CHANGES {
        let (ms, next) = timed(|| {
            if change % 2 == 0 {
                arrive(&mut packer, &mut rng);
            } else {
                end(&mut packer, &mut rng);
            }
            packer.pack().expect("a sound problem")
        });
        times.push(ms);
        plan = next;
    }
    let cold = pack(packer.problem()).expect("a sound problem");
    let worst = times.iter().copied().fold(0.0, f64::max);
    let ms = median(times);
    eprintln!(
        "{gpus:8} {case:9} one change {ms:8.2} ms (worst {worst:.2}), gap {:.3} %, from cold {:.3} %",
        plan.gap() * 100.0,
        cold.gap() * 100.0
    );
    println!(
        r#"{{"case":"{case}-change","gpus":{gpus},"ms":{ms:.3},"worst_ms":{worst:.3},"gap":{:.6},"cold_gap":{:.6}}}"#,
        plan.gap(),
        cold.gap()
    );
}

/// One more pod is wanted.
fn arrive(packer: &mut Packer, rng: &mut Rng) {
    let mut demand = packer.problem().demand.clone();
    let at = rng.below(demand.len());
    demand[at].count += 1;
    packer.set_demand(demand).expect("a sound demand");
}

/// A pinned pod ends; its instance is free.
fn end(packer: &mut Packer, rng: &mut Rng) {
    let held = |gpu: &Gpu| gpu.instances.iter().any(|instance| instance.holder == Holder::Pinned);
    let gpus = &packer.problem().gpus;
    let from = rng.below(gpus.len());
    let at = (from..gpus.len()).chain(0..from).find(|at| held(&gpus[*at])).expect("a running pod");
    let mut gpu = gpus[at].clone();
    let instance = gpu.instances.iter_mut().find(|instance| instance.holder == Holder::Pinned);
    instance.expect("a running pod").holder = Holder::Free;
    packer.set_gpu(at, gpu);
}
