//! The built-in workload: inference pods on A100-40GB GPUs, drawn from published statistics.
//!
//! * **Lifetimes** follow those of the inference pods of a large recommender service: quartiles 0.27, 1.13 and 8.5 hours,
//!   mean 22.9 hours. Between quartiles the quantiles are interpolated; the longest pod (300 hours) follows from the mean.
//! * **Arrivals** come in bursts: in the same service 96.5 % of minutes are empty and up to 79 pods are created in one. Burst
//!   sizes n from 1 to 79 are drawn with weight n^-1.5, which gives the mean of 6.9 with which 100 GPUs in full use leave
//!   96.5 % of minutes empty. Their rate follows the hour of the day: half coding (peak to trough 10:1) and half
//!   conversation (2:1), as in the Azure LLM traces, together 3.7:1.
//! * **Profiles** are drawn for each pod from one of four mixes used in the literature on MIG packing.
//!
//! Three quarters of all GPU time belongs to pods that outlive the day, so a cluster that starts empty shows nothing in 24
//! hours. The run therefore starts 13 days, longer than any lifetime, before the window that is measured.
//!
//! Invariant: same options, same pods, on every platform (see [`crate::sim::rng`]; floating point is used for sums, products,
//! quotients and square roots alone, which IEEE 754 rounds exactly).

use std::sync::Arc;
use std::time::Duration;

use crate::mig::{GpuModel, ProfileName, UnknownModel};
use crate::model::Time;

pub use super::mix::Mix;
use super::rng::Rng;
use super::scenario::{Class, Machine, PodPlan, Scenario, bare_node, new_pod, pod_spec};

/// The model of every GPU.
pub const MODEL: &str = "A100-40GB";

/// GPUs in one machine.
pub const GPUS_A_NODE: u16 = 4;

/// Every 1/16 quantile of a pod's lifetime in seconds. The quartiles are 0.27 h, 1.13 h and 8.5 h; those between lie evenly on
/// a logarithmic axis; the last is what makes the mean 22.9 h.
const LIFETIME_S: [u64; 17] = [
    72, 138, 265, 507, 972, 1_390, 1_988, 2_844, 4_068, 6_737, 11_157, 18_477, 30_600, 74_592, 181_827,
    443_228, 1_080_427,
];

/// Rate of arrivals in each hour of the day, in per cent of the mean: 100 (1 + 0.576 cos(2 pi (h - 14) / 24)).
const HOUR_WEIGHT: [u64; 24] = [
    50, 44, 42, 44, 50, 59, 71, 85, 100, 115, 129, 141, 150, 156, 158, 156, 150, 141, 129, 115, 100, 85, 71,
    59,
];

/// The largest burst seen in one minute, on a cluster of about 100 GPUs.
const LARGEST_BURST: u64 = 79;

/// Whole days, so that measuring begins at midnight; longer than the longest lifetime (12.5 days).
const WARM_UP_DAYS: u64 = 13;

/// Allocatable of one machine: 64 cores and 512 GiB less what the system keeps. A pod asks for 1.5 cores and 8 GiB a memory
/// slice, so that four full GPUs leave a quarter of the cores: GPUs are what is scarce here.
const NODE_CPU_MILLI: u64 = 62_000;
const NODE_MEMORY: u64 = 500 << 30;
const CPU_MILLI_A_SLICE: u64 = 1_500;
const MEMORY_A_SLICE: u64 = 8 << 30;

/// The six base profiles of the A100-40GB, in the order of the mixes' weights.
const PROFILES: [&str; 6] = ["7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb"];

/// What can be chosen about the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Number of GPUs, at least one.
    pub gpus: u32,
    /// Length of the measured window.
    pub window: Duration,
    /// Seed of everything drawn.
    pub seed: u64,
    /// Mean demand as a share of all memory slices.
    pub load: f64,
    /// The mix of profiles.
    pub mix: Mix,
}

impl Default for Options {
    fn default() -> Options {
        Options { gpus: 100, window: Duration::from_secs(86_400), seed: 1, load: 0.8, mix: Mix::default() }
    }
}

/// Mean demand for each profile in instances: what a static layout has to be cut for.
pub fn mean_demand(options: &Options, model: &GpuModel) -> Vec<(ProfileName, f64)> {
    let mix = profiles(model, options.mix);
    let (slices, weights) = mix.iter().fold((0, 0), |(slices, weights), profile| {
        (slices + profile.weight * profile.memory_slices, weights + profile.weight)
    });
    let capacity = f64::from(options.gpus) * f64::from(model.memory_slices);
    let running = options.load * capacity * weights as f64 / slices as f64;
    mix.iter().map(|profile| (profile.name, running * profile.weight as f64 / weights as f64)).collect()
}

/// Draws the machines and pods.
pub fn generate(options: &Options) -> Result<Scenario, UnknownModel> {
    let model = GpuModel::by_name(MODEL)?;
    let mix = profiles(model, options.mix);
    let measure_from = Time::from_secs(WARM_UP_DAYS * 86_400);
    let end = measure_from + options.window;
    let bursts = Bursts::new(options, &mean_demand(options, model));
    let pods = draw_pods(options.seed, &bursts, &mix, end);
    let classes = mix
        .iter()
        .map(|profile| Class { name: profile.name.to_string(), instances: Some((profile.name, 1)) })
        .collect();
    Ok(Scenario {
        title: title(options),
        notes: notes(options, &mix),
        model,
        machines: machines(options.gpus, model),
        pods,
        classes,
        measure_from,
        end,
        demand: mix.iter().map(|profile| (profile.name, profile.weight)).collect(),
    })
}

struct Profile {
    name: ProfileName,
    weight: u64,
    memory_slices: u64,
}

/// The profiles of a mix, as far as the model has them.
fn profiles(model: &GpuModel, mix: Mix) -> Vec<Profile> {
    let parsed = PROFILES.iter().zip(mix.weights()).filter_map(|(text, weight)| {
        let geometry = model.profile(text.parse().ok()?).ok()?;
        Some(Profile { name: geometry.name, weight, memory_slices: u64::from(geometry.memory_slices) })
    });
    parsed.collect()
}

fn machines(gpus: u32, model: &'static GpuModel) -> Vec<Machine> {
    let nodes = gpus.div_ceil(u32::from(GPUS_A_NODE));
    let machine = |index: u32| {
        let rest = gpus - index * u32::from(GPUS_A_NODE);
        let gpus = u16::try_from(rest).unwrap_or(GPUS_A_NODE).min(GPUS_A_NODE);
        Machine {
            node: bare_node(&format!("gpu-{index:04}"), NODE_CPU_MILLI, NODE_MEMORY, gpus, model),
            gpus,
        }
    };
    (0..nodes).map(machine).collect()
}

/// When how many pods are created.
struct Bursts {
    /// Bursts a minute at the mean rate.
    a_minute: f64,
    /// Weight of a burst of 1, 2, … pods.
    sizes: Vec<u64>,
}

impl Bursts {
    fn new(options: &Options, demand: &[(ProfileName, f64)]) -> Bursts {
        let sizes = burst_sizes(options.gpus);
        let total: u64 = sizes.iter().sum();
        let pods: u64 = (1..).zip(&sizes).map(|(size, weight): (u64, _)| size * weight).sum();
        let running: f64 = demand.iter().map(|(_, instances)| instances).sum();
        let pods_a_minute = running * 60.0 / mean_lifetime_s();
        Bursts { a_minute: pods_a_minute * total as f64 / pods as f64, sizes }
    }

    /// Number of bursts in a minute of the given hour of the day: the whole part surely, one more with the rest's chance.
    fn in_minute(&self, hour: usize, rng: &mut Rng) -> u64 {
        let expected = self.a_minute * HOUR_WEIGHT[hour % 24] as f64 / 100.0;
        let surely = expected as u64;
        let chance = ((expected - surely as f64) * f64::from(u32::MAX)) as u64;
        surely + u64::from(rng.below(u64::from(u32::MAX)) < chance)
    }
}

/// Weights of the burst sizes; the largest is scaled down on fewer than 100 GPUs, where it would be most of the cluster.
fn burst_sizes(gpus: u32) -> Vec<u64> {
    let largest = (u64::from(gpus) * LARGEST_BURST / 100).clamp(1, LARGEST_BURST);
    (1..=largest).map(|size| (1e9 / (size as f64 * (size as f64).sqrt())) as u64).collect()
}

fn mean_lifetime_s() -> f64 {
    let doubled: u64 = LIFETIME_S.windows(2).map(|pair| pair[0] + pair[1]).sum();
    doubled as f64 / (2 * (LIFETIME_S.len() - 1)) as f64
}

/// Streams of chance that do not influence each other.
#[derive(Clone, Copy)]
enum Stream {
    Arrivals = 1,
    Profiles = 2,
    Lifetimes = 3,
}

fn draw_pods(seed: u64, bursts: &Bursts, mix: &[Profile], end: Time) -> Vec<PodPlan> {
    let weights: Vec<u64> = mix.iter().map(|profile| profile.weight).collect();
    let specs: Vec<_> = mix.iter().map(|profile| Arc::new(spec_of(profile))).collect();
    let mut choose = Rng::new(seed, Stream::Profiles as u64);
    let mut live = Rng::new(seed, Stream::Lifetimes as u64);
    let draw = |(number, created): (usize, Time)| {
        let class = choose.weighted(&weights);
        let pod = new_pod(&format!("pod-{number:07}"), created, specs[class].clone());
        PodPlan { pod, lifetime: lifetime(&mut live), class }
    };
    arrivals(seed, bursts, end).into_iter().enumerate().map(draw).collect()
}

/// The moments at which pods are created, ascending.
fn arrivals(seed: u64, bursts: &Bursts, end: Time) -> Vec<Time> {
    const MINUTE: u64 = 60_000_000;
    let mut rng = Rng::new(seed, Stream::Arrivals as u64);
    let mut times = Vec::new();
    for minute in 0..end.as_micros().div_ceil(MINUTE) {
        let hour = usize::try_from(minute / 60 % 24).unwrap_or(0);
        for _ in 0..bursts.in_minute(hour, &mut rng) {
            let size = rng.weighted(&bursts.sizes) + 1;
            times.extend((0..size).map(|_| Time::from_micros(minute * MINUTE + rng.below(MINUTE))));
        }
    }
    times.retain(|time| *time < end);
    times.sort_unstable();
    times
}

fn lifetime(rng: &mut Rng) -> Duration {
    let pair = rng.below(LIFETIME_S.len() as u64 - 1) as usize;
    let (low, high) = (LIFETIME_S[pair] * 1_000_000, LIFETIME_S[pair + 1] * 1_000_000);
    Duration::from_micros(low + rng.below(high - low))
}

fn spec_of(profile: &Profile) -> crate::model::PodSpec {
    let slices = profile.memory_slices;
    pod_spec(CPU_MILLI_A_SLICE * slices, MEMORY_A_SLICE * slices, Some((profile.name, 1)))
}

fn title(options: &Options) -> String {
    let hours = options.window.as_secs_f64() / 3_600.0;
    let nodes = options.gpus.div_ceil(u32::from(GPUS_A_NODE));
    let gpus = options.gpus;
    format!("{gpus} x {MODEL} on {nodes} nodes, {hours} h of inference pods, seed {}", options.seed)
}

fn notes(options: &Options, mix: &[Profile]) -> Vec<String> {
    let weights: u64 = mix.iter().map(|profile| profile.weight).sum();
    let share = |profile: &Profile| {
        format!("{:.0} % {}", 100.0 * profile.weight as f64 / weights as f64, profile.name)
    };
    let shares: Vec<_> = mix.iter().map(share).collect();
    vec![
        format!("Mix `{}`: {}.", options.mix.as_str(), shares.join(", ")),
        "Pods live 0.27 / 1.13 / 8.5 h (quartiles), 22.9 h on average, and arrive in bursts that follow the hour of the day."
            .to_owned(),
        format!(
            "The same arrivals run for {WARM_UP_DAYS} days before the measured window, so that it begins with a cluster in \
             use; each policy warms up its own."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(options: &Options) -> Scenario {
        generate(options).unwrap()
    }

    #[test]
    fn lifetimes_have_the_published_quartiles_and_mean() {
        let mut rng = Rng::new(3, 0);
        let mut drawn: Vec<f64> = (0..200_000).map(|_| lifetime(&mut rng).as_secs_f64() / 3_600.0).collect();
        drawn.sort_by(f64::total_cmp);
        let near =
            |got: f64, wanted: f64| assert!((got / wanted - 1.0).abs() < 0.03, "{got} instead of {wanted}");
        near(drawn[50_000], 0.27);
        near(drawn[100_000], 1.13);
        near(drawn[150_000], 8.5);
        near(drawn.iter().sum::<f64>() / drawn.len() as f64, 22.9);
        assert!(*drawn.last().unwrap() < (WARM_UP_DAYS * 24) as f64);
    }

    #[test]
    fn arrivals_are_as_bursty_as_published() {
        let options = Options { window: Duration::from_secs(28 * 86_400), ..Options::default() };
        let pods = scenario(&options).pods;
        let mut a_minute = std::collections::BTreeMap::new();
        for plan in &pods {
            *a_minute.entry(plan.pod.created.as_micros() / 60_000_000).or_insert(0u32) += 1;
        }
        let empty = 1.0 - a_minute.len() as f64 / (41 * 1_440) as f64;
        assert!((0.965..0.978).contains(&empty), "{empty} of minutes are empty");
        assert!((60..=85).contains(a_minute.values().max().unwrap()));
        let hours: Vec<_> =
            pods.iter().map(|plan| plan.pod.created.as_micros() / 3_600_000_000 % 24).collect();
        let count = |hour| hours.iter().filter(|&&at| at == hour).count();
        assert!(count(14) > 2 * count(2), "{} at 14 h, {} at 2 h", count(14), count(2));
    }

    #[test]
    fn offered_load_is_what_was_asked_for() {
        for mix in [Mix::Uniform, Mix::SkewSmall, Mix::SkewBig, Mix::Bimodal] {
            let window = Duration::from_secs(28 * 86_400);
            let options = Options { gpus: 400, load: 0.8, mix, window, ..Options::default() };
            let offered = scenario(&options).offered();
            assert!((0.72..0.88).contains(&offered.mean), "{mix:?}: {offered:?}");
            assert!(offered.peak_hour >= offered.mean);
        }
    }

    #[test]
    fn same_seed_same_pods() {
        let pods = |seed| -> Vec<_> {
            let options = Options { gpus: 8, seed, ..Options::default() };
            scenario(&options).pods.into_iter().map(|plan| (plan.pod, plan.lifetime)).collect()
        };
        assert_eq!(pods(1), pods(1));
        assert_ne!(pods(1), pods(2));
    }

    #[test]
    fn machines_hold_exactly_the_gpus_asked_for() {
        for gpus in [1, 4, 5, 100] {
            let scenario = scenario(&Options { gpus, ..Options::default() });
            assert_eq!(scenario.gpus(), u64::from(gpus));
            assert!(scenario.machines.iter().all(|machine| (1..=GPUS_A_NODE).contains(&machine.gpus)));
        }
    }
}
