//! What is measured while a run goes on, from the instances that pods hold and nothing else.
//!
//! Three numbers tell how badly free slices are scattered, since each alone can be gamed:
//!
//! * **demand-weighted**: for each GPU and profile, free memory slices that no free place of that profile covers, weighted by
//!   how often the profile is asked for (the measure of FGD, carried over to MIG's legal starts);
//! * **stranded**: free memory slices that stay unused whichever instances are added, whatever the demand;
//! * **blocked**: pods put off although the cluster had as many free slices, memory and compute, as they ask for.
//!
//! On a GPU with fixed instances only those that exist and are free count as places.
//!
//! Invariant: time enters as integer microseconds, amounts as integer slices and weights; sums are exact, and one division at
//! the end makes the reported share.

use std::time::Duration;

use crate::mig::{GpuModel, OccupancyTable, Placement, ProfileName, Slots};
use crate::model::{DevicePlacement, Time};

use super::scenario::{Scenario, StartNode};
use crate::solver::fragmentation::weighted_loss;

/// Time-weighted results over the measured window. Shares are between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// Compute slices held by pods, of all.
    pub compute_allocated: f64,
    /// Memory slices held by pods, of all.
    pub memory_allocated: f64,
    /// Compute slices held when everything has settled at the end, of all.
    pub compute_at_end: f64,
    /// Memory slices held then, of all.
    pub memory_at_end: f64,
    /// Demand-weighted fragmentation, of all memory slices.
    pub fragmented: f64,
    /// The same, of the free memory slices.
    pub fragmented_of_free: f64,
    /// Stranded memory slices, of the free ones.
    pub stranded_of_free: f64,
    /// Of the time that pods spent waiting after a failed attempt: the part during which free slices would have sufficed.
    pub blocked_time: f64,
    /// Pods waiting after a failed attempt, on average.
    pub waiting_pods: f64,
}

/// Amounts that hold at one moment, or their integral over time.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    memory: u128,
    compute: u128,
    /// In slices times weight.
    fragmented: u128,
    stranded: u128,
}

/// One GPU as pods hold it.
#[derive(Clone, Debug)]
struct Gpu {
    /// The instances it has, where they are fixed.
    fixed: Option<Vec<Placement>>,
    held: Vec<Placement>,
    mask: Slots,
}

/// Pods of one class that wait now.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    memory: u128,
    compute: u128,
    pods: u128,
}

/// The instruments of one run.
#[derive(Debug)]
pub struct Meter {
    model: &'static GpuModel,
    from: Time,
    end: Time,
    now: Time,
    /// First GPU of each node.
    first: Vec<usize>,
    gpus: Vec<Gpu>,
    demand: Vec<(ProfileName, u64)>,
    /// By mask, for GPUs without fixed instances: weighted uncovered and stranded slices.
    scattered: Vec<(u128, u128)>,
    held: Amounts,
    promised: (u128, u128),
    waiting: Vec<Waiting>,
    integral: Amounts,
    waited: u128,
    blocked: u128,
}

impl Meter {
    /// Instruments for a run of `scenario` on these nodes.
    pub fn new(scenario: &Scenario, nodes: &[StartNode]) -> Meter {
        let mut first = Vec::new();
        let mut gpus = Vec::new();
        let mut scenario_gpus = scenario.machines.iter().map(|machine| usize::from(machine.gpus));
        for start in nodes {
            first.push(gpus.len());
            let fixed = matches!(start.node.partitioning, crate::model::Partitioning::Fixed);
            for at in 0..scenario_gpus.next().unwrap_or(0) {
                let layout = start.layouts.get(at).map(|layout| layout.placements().to_vec());
                let fixed = fixed.then(|| layout.unwrap_or_default());
                gpus.push(Gpu { fixed, held: Vec::new(), mask: Slots::EMPTY });
            }
        }
        let need = |class: &super::scenario::Class| {
            let (profile, count) = class.instances?;
            let geometry = scenario.model.profile(profile).ok()?;
            Some((
                u128::from(geometry.memory_slices) * u128::from(count),
                u128::from(profile.compute_slices()) * u128::from(count),
            ))
        };
        let waiting = |class| {
            let (memory, compute) = need(class).unwrap_or((0, 0));
            Waiting { memory, compute, pods: 0 }
        };
        let mut meter = Meter {
            model: scenario.model,
            from: scenario.measure_from,
            end: scenario.end,
            now: Time::ZERO,
            first,
            gpus,
            demand: scenario.demand.clone(),
            scattered: scattered(scenario.model, &scenario.demand),
            held: Amounts::default(),
            promised: (0, 0),
            waiting: scenario.classes.iter().map(waiting).collect(),
            integral: Amounts::default(),
            waited: 0,
            blocked: 0,
        };
        for at in 0..meter.gpus.len() {
            let amounts = meter.amounts(&meter.gpus[at]);
            meter.held = plus(meter.held, amounts);
        }
        meter
    }

    /// Time passes until `now`; what held meanwhile is added up as far as it lies in the measured window.
    pub fn advance(&mut self, now: Time) {
        let begin = self.now.max(self.from);
        let micros = now.min(self.end).since(begin).as_micros();
        self.now = self.now.max(now);
        if micros == 0 {
            return;
        }
        self.integral.memory += self.held.memory * micros;
        self.integral.compute += self.held.compute * micros;
        self.integral.fragmented += self.held.fragmented * micros;
        self.integral.stranded += self.held.stranded * micros;
        for class in self.waiting.iter().filter(|class| class.pods > 0) {
            self.waited += class.pods * micros;
            if class.memory > 0 && self.suffices(class) {
                self.blocked += class.pods * micros;
            }
        }
    }

    /// A pod of `class` was put off for the first time: from now on it counts as waiting.
    pub fn put_off(&mut self, class: usize) {
        self.waiting[class].pods += 1;
    }

    /// A bind of a pod of `class` was asked for: its slices are no longer free for others.
    pub fn promised(&mut self, class: usize) {
        self.promised.0 += self.waiting[class].memory;
        self.promised.1 += self.waiting[class].compute;
    }

    /// That bind ended; the pod waits no longer, if it ever was put off.
    pub fn settled(&mut self, class: usize, was_put_off: bool) {
        self.waiting[class].pods -= u128::from(was_put_off);
        self.promised.0 -= self.waiting[class].memory;
        self.promised.1 -= self.waiting[class].compute;
    }

    /// Whether as many slices are free in the whole cluster as a pod of `class` asks for.
    pub fn would_suffice(&self, class: usize) -> bool {
        self.waiting[class].memory > 0 && self.suffices(&self.waiting[class])
    }

    /// A pod on node `node` got these instances.
    pub fn take(&mut self, node: usize, devices: &[DevicePlacement]) {
        self.change(node, devices, |gpu, placement| gpu.held.push(placement));
    }

    /// A pod on node `node` gave these instances back.
    pub fn free(&mut self, node: usize, devices: &[DevicePlacement]) {
        self.change(node, devices, |gpu, placement| {
            if let Some(at) = gpu.held.iter().position(|held| *held == placement) {
                gpu.held.swap_remove(at);
            }
        });
    }

    /// The results.
    pub fn measures(&self) -> Measures {
        let micros = self.end.since(self.from).as_micros();
        let weights: u128 = self.demand.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let memory = self.total_memory() * micros;
        let free = memory - self.integral.memory;
        Measures {
            compute_allocated: ratio(self.integral.compute, self.total_compute() * micros),
            memory_allocated: ratio(self.integral.memory, memory),
            compute_at_end: ratio(self.held.compute, self.total_compute()),
            memory_at_end: ratio(self.held.memory, self.total_memory()),
            fragmented: ratio(self.integral.fragmented, memory * weights),
            fragmented_of_free: ratio(self.integral.fragmented, free * weights),
            stranded_of_free: ratio(self.integral.stranded, free),
            blocked_time: ratio(self.blocked, self.waited),
            waiting_pods: ratio(self.waited, micros),
        }
    }

    fn total_memory(&self) -> u128 {
        self.gpus.len() as u128 * u128::from(self.model.memory_slices)
    }

    fn total_compute(&self) -> u128 {
        self.gpus.len() as u128 * u128::from(self.model.compute_slices)
    }

    fn suffices(&self, need: &Waiting) -> bool {
        need.memory + self.held.memory + self.promised.0 <= self.total_memory()
            && need.compute + self.held.compute + self.promised.1 <= self.total_compute()
    }

    fn change(&mut self, node: usize, devices: &[DevicePlacement], act: impl Fn(&mut Gpu, Placement)) {
        for device in devices {
            let at = self.first[node] + usize::from(device.gpu);
            self.held = minus(self.held, self.amounts(&self.gpus[at]));
            let gpu = &mut self.gpus[at];
            act(gpu, device.placement);
            gpu.mask = mask_of(self.model, &gpu.held);
            self.held = plus(self.held, self.amounts(&self.gpus[at]));
        }
    }

    fn amounts(&self, gpu: &Gpu) -> Amounts {
        let (fragmented, stranded) = match &gpu.fixed {
            None => self.scattered[usize::from(gpu.mask.bits())],
            Some(instances) => self.scattered_fixed(gpu, instances),
        };
        Amounts {
            memory: u128::from(gpu.mask.len()),
            compute: gpu.held.iter().map(|placement| u128::from(placement.profile.compute_slices())).sum(),
            fragmented,
            stranded,
        }
    }

    fn scattered_fixed(&self, gpu: &Gpu, instances: &[Placement]) -> (u128, u128) {
        let free = u128::from(self.model.all_slots().minus(gpu.mask).len());
        let covered = |wanted: Option<ProfileName>| -> u128 {
            let free = instances.iter().filter(|instance| !gpu.held.contains(instance));
            let fitting = free.filter(|instance| wanted.is_none_or(|name| name == instance.profile));
            fitting.map(|instance| u128::from(mask_of(self.model, &[*instance]).len())).sum()
        };
        let weighted =
            self.demand.iter().map(|&(name, weight)| u128::from(weight) * (free - covered(Some(name))));
        (weighted.sum(), free - covered(None))
    }
}

/// For each set of occupied slices of a GPU whose instances are created on demand: weighted uncovered and stranded slices.
fn scattered(model: &'static GpuModel, demand: &[(ProfileName, u64)]) -> Vec<(u128, u128)> {
    let table = OccupancyTable::new(model);
    let of = |bits| {
        let mask = Slots::from_bits(bits);
        let weights = demand.iter().filter_map(|&(name, weight)| Some((model.index_of(name).ok()?, weight)));
        (weighted_loss(&table, mask, weights), u128::from(table.stranded(mask)))
    };
    (0..=model.all_slots().bits()).map(of).collect()
}

fn mask_of(model: &GpuModel, placements: &[Placement]) -> Slots {
    let slots = |placement: &Placement| placement.slots(model).unwrap_or(Slots::EMPTY);
    placements.iter().fold(Slots::EMPTY, |mask, placement| mask.union(slots(placement)))
}

fn plus(a: Amounts, b: Amounts) -> Amounts {
    Amounts {
        memory: a.memory + b.memory,
        compute: a.compute + b.compute,
        fragmented: a.fragmented + b.fragmented,
        stranded: a.stranded + b.stranded,
    }
}

fn minus(a: Amounts, b: Amounts) -> Amounts {
    Amounts {
        memory: a.memory - b.memory,
        compute: a.compute - b.compute,
        fragmented: a.fragmented - b.fragmented,
        stranded: a.stranded - b.stranded,
    }
}

/// `part / whole`; zero when there is no whole.
fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How long pods waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitStatistics {
    /// Number of pods.
    pub pods: usize,
    /// Mean in seconds.
    pub mean_s: f64,
    /// Median in seconds.
    pub p50_s: f64,
    /// 95th percentile in seconds.
    pub p95_s: f64,
    /// 99th percentile in seconds.
    pub p99_s: f64,
    /// Longest in seconds.
    pub max_s: f64,
}

impl WaitStatistics {
    /// Statistics of these times; percentiles are the smallest value that at least so many of the values do not exceed.
    pub fn of(mut waits: Vec<Duration>) -> WaitStatistics {
        waits.sort_unstable();
        let seconds = |wait: Duration| wait.as_micros() as f64 / 1e6;
        let rank = |percent: usize| {
            let at = (waits.len() * percent).div_ceil(100).max(1) - 1;
            waits.get(at).copied().map_or(0.0, seconds)
        };
        let sum: u128 = waits.iter().map(Duration::as_micros).sum();
        WaitStatistics {
            pods: waits.len(),
            mean_s: ratio(sum, waits.len() as u128 * 1_000_000),
            p50_s: rank(50),
            p95_s: rank(95),
            p99_s: rank(99),
            max_s: rank(100),
        }
    }
}

#[cfg(test)]
mod tests;
