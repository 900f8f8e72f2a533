//! The frame: nothing is lost or overtaken, runs repeat, and known rules wait as they are known to.

use std::collections::BTreeMap;

use super::baselines::Rule;
use super::clock::{PodNo, Queue, System, Window, run};
use super::contest::{Actuator, Case, Policy};
use super::workload::{Arrivals, LIFETIME, Lifetimes, Pod, Workload};
use crate::mig::GpuModel;
use crate::sim::mix::Mix;
use crate::solver::states::LayoutStates;

fn states() -> LayoutStates {
    LayoutStates::new(GpuModel::by_name("A100-80GB").unwrap())
}

fn case(mix: Mix, load: f64, gpus: usize, warm_up: u64, length: u64) -> Case {
    let window = Window { warm_up, length };
    Case { gpus, mix, load, lifetimes: Lifetimes::Uniform, arrivals: Arrivals::Regular, window }
}

/// Every policy that is compared.
fn policies() -> impl Iterator<Item = Policy> {
    Policy::ALL.into_iter()
}

/// Counts what a system does, by the rules of the frame.
struct Checked<'a> {
    inner: Box<dyn System + 'a>,
    pods: &'a [Pod],
    sizes: Vec<u8>,
    arrived: usize,
    running: BTreeMap<PodNo, u8>,
    gone: usize,
    last: [Option<PodNo>; 6],
}

impl System for Checked<'_> {
    fn arrived(&mut self, profile: u8) {
        self.arrived += 1;
        self.inner.arrived(profile);
    }

    fn ended(&mut self, pod: PodNo) {
        assert!(self.running.remove(&pod).is_some(), "pod {pod} ended without running");
        self.gone += 1;
        self.inner.ended(pod);
    }

    fn settle(&mut self, now: u64, queue: &mut Queue, started: &mut Vec<PodNo>) -> Option<u64> {
        let before = started.len();
        let wake = self.inner.settle(now, queue, started);
        for &pod in &started[before..] {
            let profile = self.pods[pod as usize].profile;
            let last = self.last[usize::from(profile)].replace(pod);
            assert!(last.is_none_or(|last| last < pod), "pod {pod} overtook {last:?} of its profile");
            assert!(self.running.insert(pod, profile).is_none(), "pod {pod} started twice");
        }
        let waiting: usize = queue.lengths().iter().sum();
        assert_eq!(self.arrived, waiting + self.running.len() + self.gone, "a pod is lost");
        let used: u64 =
            self.running.values().map(|profile| u64::from(self.sizes[usize::from(*profile)])).sum();
        assert_eq!(self.inner.used(), used, "a running pod has no slices of its own");
        wake
    }

    fn used(&self) -> u64 {
        self.inner.used()
    }

    fn moved(&self) -> u64 {
        self.inner.moved()
    }
}

#[test]
fn no_pod_is_lost_or_overtaken_and_slices_are_never_shared() {
    let states = states();
    let case = case(Mix::Uniform, 1.0, 20, 2, 10);
    let pods = case.pods(&states, 3);
    let sizes: Vec<u8> = states.profiles().iter().map(|profile| profile.memory_slices).collect();
    for policy in policies() {
        let inner = case.system(&states, 3, pods.len(), policy).unwrap();
        let mut checked = Checked {
            inner,
            pods: &pods,
            sizes: sizes.clone(),
            arrived: 0,
            running: BTreeMap::new(),
            gone: 0,
            last: [None; 6],
        };
        run(&mut checked, &pods, 6, 160, case.window);
        assert!(checked.gone > 300, "{}: {} pods ended", policy.name(), checked.gone);
        assert!(checked.used() <= 160);
    }
}

#[test]
fn same_seed_same_outcome() {
    let states = states();
    let case = case(Mix::Bimodal, 0.95, 20, 2, 6);
    for policy in policies() {
        let once = case.run(&states, 5, &case.pods(&states, 5), policy).unwrap();
        assert_eq!(once, case.run(&states, 5, &case.pods(&states, 5), policy).unwrap(), "{}", policy.name());
    }
    assert_ne!(case.pods(&states, 5), case.pods(&states, 6));
}

#[test]
fn moves_stay_within_their_budget() {
    let states = states();
    let case = case(Mix::Uniform, 0.95, 50, 5, 20);
    let pods = case.pods(&states, 1);
    for moves in [0.0, 0.01, 0.05] {
        let outcome = case.run(&states, 1, &pods, Policy::Planned { moves }).unwrap();
        // What was saved up before the window may be spent within it.
        let saved = 20.0 / (pods.len() as f64 / 2.0);
        assert!(
            outcome.moved <= moves + saved && (outcome.moved > 0.0) == (moves > 0.0),
            "{moves}: {}",
            outcome.moved
        );
    }
}

/// Mean wait over some seeds.
fn mean_wait(states: &LayoutStates, case: &Case, policy: Policy) -> f64 {
    let waits =
        (0..4).map(|seed| case.run(states, seed, &case.pods(states, seed), policy).unwrap().mean_wait());
    waits.sum::<f64>() / 4.0
}

/// What four seeds give in a short window, within a tenth: a change of the frame or of a rule that moves a baseline is seen. The
/// frame is in whole numbers, so that the figures are the same on every machine.
#[test]
fn baselines_wait_as_they_are_known_to() {
    let states = states();
    let check = |mix, load, policy: Policy, known: f64| {
        let found = mean_wait(&states, &case(mix, load, 100, 10, 20), policy);
        assert!((found / known - 1.0).abs() < 0.1, "{mix:?} {load} {}: {found}, not {known}", policy.name());
    };
    let greedy = Policy::Greedy;
    check(Mix::Uniform, 0.95, greedy(Rule::FirstFit), 0.0746);
    check(Mix::Uniform, 0.95, greedy(Rule::BestFitLast), 0.0592);
    check(Mix::Uniform, 0.95, greedy(Rule::Mfi), 0.0777);
    check(Mix::Uniform, 0.95, Policy::Static, 0.1642);
    check(Mix::Uniform, 0.95, Policy::Repacked, 0.0096);
    check(Mix::Uniform, 0.90, greedy(Rule::FirstFit), 0.0187);
    check(Mix::Uniform, 0.90, Policy::Repacked, 0.0009);
    check(Mix::SkewSmall, 0.95, greedy(Rule::FirstFit), 0.0485);
}

#[test]
fn ours_waits_less_than_any_greedy_rule() {
    let states = states();
    let case = case(Mix::Uniform, 0.95, 100, 10, 20);
    let ours = mean_wait(&states, &case, Policy::Planned { moves: 0.01 });
    for rule in [Rule::FirstFit, Rule::BestFitLast, Rule::Mfi, Rule::Fgd] {
        let greedy = mean_wait(&states, &case, Policy::Greedy(rule));
        assert!(ours < 0.85 * greedy, "{ours} against {greedy} of {}", rule.as_str());
    }
    assert!(ours > mean_wait(&states, &case, Policy::Repacked));
}

#[test]
fn lifetimes_have_their_mean_and_spread() {
    for (lifetimes, variance) in
        [(Lifetimes::Uniform, 1.0 / 3.0), (Lifetimes::Exponential, 1.0), (Lifetimes::HeavyTailed, 12.52)]
    {
        let pods = Workload::new(9, &[1], &[8], 800, 1.0, lifetimes, Arrivals::Poisson).take(200_000);
        let lives: Vec<f64> = pods.map(|pod| pod.lifetime as f64 / LIFETIME as f64).collect();
        let mean = lives.iter().sum::<f64>() / lives.len() as f64;
        let found = lives.iter().map(|life| (life - mean) * (life - mean)).sum::<f64>() / lives.len() as f64;
        assert!(
            (mean - 1.0).abs() < 0.03 && (found / variance - 1.0).abs() < 0.08,
            "{lifetimes:?}: {mean}, {found}"
        );
    }
}

#[test]
fn pods_ask_for_the_load() {
    let states = states();
    let case = case(Mix::SkewBig, 0.9, 100, 10, 60);
    let pods = case.pods(&states, 2);
    let size = |pod: &Pod| u128::from(states.profiles()[usize::from(pod.profile)].memory_slices);
    let work: u128 = pods.iter().map(|pod| size(pod) * u128::from(pod.lifetime)).sum();
    let offered = work as f64 / (800.0 * 90.0 * LIFETIME as f64);
    assert!((0.87..0.93).contains(&offered), "{offered}");
}

#[test]
fn a_node_changes_once_in_its_cool_down() {
    let states = states();
    let case = case(Mix::Uniform, 0.95, 24, 1, 8);
    for actuator in [Actuator::Agent, Actuator::MigManager] {
        let mut system = case.limited(&states, 1, actuator, 2, 0.0).unwrap();
        let pods = case.pods(&states, 1);
        run(&mut system, &pods, 6, 192, case.window);
        // Three nodes, two changes a lifetime each at most, until the last pod has come.
        let lifetimes = pods.last().unwrap().arrival / LIFETIME + 1;
        assert!(system.changes() > 5 && system.changes() <= 3 * (2 * lifetimes + 1), "{}", system.changes());
        assert_eq!(system.moved(), 0);
    }
}
