//! The event loop: arrivals and ends in order of time, a system that starts pods, and what is measured meanwhile.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::workload::{LIFETIME, Pod};

/// A pod's number, in order of arrival.
pub type PodNo = u32;

/// The pods that wait, each profile's in order of arrival.
#[derive(Clone, Debug)]
pub struct Queue {
    by_profile: Vec<VecDeque<PodNo>>,
}

impl Queue {
    /// No pod of `profiles` profiles.
    pub fn new(profiles: usize) -> Queue {
        Queue { by_profile: vec![VecDeque::new(); profiles] }
    }

    /// A pod comes last among those of its profile.
    pub fn push(&mut self, pod: PodNo, profile: u8) {
        self.by_profile[usize::from(profile)].push_back(pod);
    }

    /// The pod of this profile that has waited longest.
    pub fn first(&self, profile: u8) -> Option<PodNo> {
        self.by_profile[usize::from(profile)].front().copied()
    }

    /// Takes it out.
    pub fn pop(&mut self, profile: u8) -> Option<PodNo> {
        self.by_profile[usize::from(profile)].pop_front()
    }

    /// How many pods of each profile wait.
    pub fn lengths(&self) -> Vec<usize> {
        self.by_profile.iter().map(VecDeque::len).collect()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.by_profile.iter().all(VecDeque::is_empty)
    }

    /// Profiles with waiting pods, the one whose first pod has waited longest first.
    pub fn by_age(&self) -> Vec<u8> {
        let mut heads: Vec<(PodNo, u8)> = (0u8..)
            .zip(&self.by_profile)
            .filter_map(|(profile, queue)| Some((*queue.front()?, profile)))
            .collect();
        heads.sort_unstable();
        heads.into_iter().map(|(_, profile)| profile).collect()
    }
}

/// What runs pods.
pub trait System {
    /// A pod arrived and waits in the queue.
    fn arrived(&mut self, _profile: u8) {}
    /// A running pod ended.
    fn ended(&mut self, pod: PodNo);
    /// Starts what can be started now: takes pods out of the queue and names them in `started`. Returns when it wants to be
    /// asked again although nothing arrives or ends, if ever.
    fn settle(&mut self, now: u64, queue: &mut Queue, started: &mut Vec<PodNo>) -> Option<u64>;
    /// Memory slices in use.
    fn used(&self) -> u64;
    /// Running pods moved so far.
    fn moved(&self) -> u64;
}

/// The measured part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Mean lifetimes before it.
    pub warm_up: u64,
    /// Its length in mean lifetimes.
    pub length: u64,
}

/// What a run showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// By profile: waits in mean lifetimes of the pods that arrived within the window, ascending.
    pub waits: Vec<Vec<f64>>,
    /// Mean share of the memory slices in use within the window.
    pub utilisation: f64,
    /// Pods moved within the window as a share of those that arrived.
    pub moved: f64,
}

impl Outcome {
    /// Mean over all pods.
    pub fn mean_wait(&self) -> f64 {
        let pods: usize = self.waits.iter().map(Vec::len).sum();
        self.waits.iter().flatten().sum::<f64>() / pods.max(1) as f64
    }

    /// The wait that 95 % of all pods do not exceed.
    pub fn p95_wait(&self) -> f64 {
        let mut all: Vec<f64> = self.waits.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        p95(&all)
    }

    /// The wait that 95 % of the pods of one profile do not exceed.
    pub fn p95_wait_of(&self, profile: usize) -> f64 {
        p95(&self.waits[profile])
    }

    /// Mean over the pods of one profile.
    pub fn mean_wait_of(&self, profile: usize) -> f64 {
        self.waits[profile].iter().sum::<f64>() / self.waits[profile].len().max(1) as f64
    }
}

/// The 95 % quantile of ascending values, zero of none.
fn p95(sorted: &[f64]) -> f64 {
    sorted.get((sorted.len() * 95 / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Runs `pods` (in order of arrival) through `system`. Pods that arrived within the window are followed until they start; those
/// that have not when the last pod has arrived count with what they have waited by then.
pub fn run(system: &mut dyn System, pods: &[Pod], profiles: usize, slices: u64, window: Window) -> Outcome {
    let (from, to) = (window.warm_up * LIFETIME, (window.warm_up + window.length) * LIFETIME);
    let mut queue = Queue::new(profiles);
    let mut ends: BinaryHeap<Reverse<(u64, PodNo)>> = BinaryHeap::new();
    let mut outcome = Outcome { waits: vec![Vec::new(); profiles], ..Outcome::default() };
    let (mut used_time, mut moved_before, mut moved_after) = (0u128, None, None);
    let (mut now, mut next_pod, mut wake) = (0u64, 0usize, None::<u64>);
    let mut started = Vec::new();
    let measured = |pod: &Pod| (from..to).contains(&pod.arrival);
    let mut to_follow = pods.iter().filter(|pod| measured(pod)).count();
    let arrived = to_follow;
    while to_follow > 0 && next_pod < pods.len() {
        let arrival = pods[next_pod].arrival;
        let end = ends.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        let at = arrival.min(end).min(wake.unwrap_or(u64::MAX));
        let (left, right) = (now.clamp(from, to), at.clamp(from, to));
        used_time += u128::from(system.used()) * u128::from(right - left);
        if at >= from && moved_before.is_none() {
            moved_before = Some(system.moved());
        }
        if at >= to && moved_after.is_none() {
            moved_after = Some(system.moved());
        }
        now = at;
        if at == end {
            if let Some(Reverse((_, pod))) = ends.pop() {
                system.ended(pod);
            }
        } else if at == arrival {
            system.arrived(pods[next_pod].profile);
            queue.push(next_pod as PodNo, pods[next_pod].profile);
            next_pod += 1;
        }
        wake = system.settle(now, &mut queue, &mut started).map(|at| at.max(now + 1));
        for pod in started.drain(..) {
            let what = &pods[pod as usize];
            ends.push(Reverse((now + what.lifetime, pod)));
            if measured(what) {
                outcome.waits[usize::from(what.profile)].push((now - what.arrival) as f64 / LIFETIME as f64);
                to_follow -= 1;
            }
        }
    }
    for profile in 0..profiles as u8 {
        while let Some(pod) = queue.pop(profile) {
            let what = &pods[pod as usize];
            if measured(what) {
                outcome.waits[usize::from(profile)].push((now - what.arrival) as f64 / LIFETIME as f64);
            }
        }
    }
    outcome.waits.iter_mut().for_each(|waits| waits.sort_by(f64::total_cmp));
    outcome.utilisation = used_time as f64 / (slices as f64 * (to - from) as f64);
    let moved = moved_after.unwrap_or(system.moved()) - moved_before.unwrap_or(0);
    outcome.moved = moved as f64 / arrived.max(1) as f64;
    outcome
}
