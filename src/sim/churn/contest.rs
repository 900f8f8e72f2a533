//! One case (mix, load, seed) run under one policy after the other, on the same pods.

use super::baselines::{Greedy, Rule};
use super::clock::{Outcome, System, Window, run};
use super::counted::{Counted, Room};
use super::limited::{Limited, Limits};
use super::lookahead::Planned;
use super::workload::{Arrivals, LIFETIME, Lifetimes, Pod, Workload};
use crate::mig::LayoutError;
use crate::sim::mix::Mix;
use crate::sim::static_layout::best_layouts;
use crate::solver::dispatch::Allowance;
use crate::solver::states::{LayoutStates, StateId};

/// Moves saved up at most when they are scarce. Bursts of blocked pods come about once a lifetime, in which some ten to
/// twenty moves pay at once.
const SAVED: f64 = 20.0;

/// Lifetimes after the window during which pods go on arriving, so that its last pods meet the same load.
const AFTER: u64 = 20;

/// Seconds that a change takes: mig-manager's label until the node is back, and the agent's instances with the restart of the
/// device plugin that announces them.
const MIG_MANAGER_S: (u64, u64) = (40, 120);
const AGENT_S: (u64, u64) = (5, 15);

/// How layouts are changed on real nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actuator {
    /// The node agent.
    Agent,
    /// NVIDIA's mig-manager.
    MigManager,
}

impl Actuator {
    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Actuator::Agent => "agent",
            Actuator::MigManager => "mig-manager",
        }
    }

    /// One change an hour a node of eight GPUs, where a mean lifetime is so many hours.
    fn limits(self, hours: u32) -> Limits {
        let hour = LIFETIME / u64::from(hours.max(1));
        let seconds = |(low, high)| (low * hour / 3_600, high * hour / 3_600);
        match self {
            Actuator::Agent => {
                Limits { single_instances: true, delay: seconds(AGENT_S), cooldown: hour, gpus_a_node: 8 }
            }
            Actuator::MigManager => Limits {
                single_instances: false,
                delay: seconds(MIG_MANAGER_S),
                cooldown: hour,
                gpus_a_node: 8,
            },
        }
    }
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The best fixed layout for the mix.
    Static,
    /// A rule without moves, each pod by itself.
    Greedy(Rule),
    /// Ours, with so many moves for each pod that arrives.
    Planned {
        /// Zero for none, infinite for as many as pay.
        moves: f64,
    },
    /// Ours under the product's own limits, with one move for a hundred pods or none.
    Limited {
        /// How layouts are changed.
        actuator: Actuator,
        /// Mean lifetime in hours: what an hour's cool-down is worth.
        hours: u32,
        /// Moves for each pod that arrives.
        moves: f64,
    },
    /// Everything that runs packed anew at every moment, for nothing: the limit.
    Repacked,
}

impl Policy {
    /// All that are compared, the limit last.
    pub const ALL: [Policy; 19] = [
        Policy::Static,
        Policy::Greedy(Rule::FirstFit),
        Policy::Greedy(Rule::BestFitLast),
        Policy::Greedy(Rule::WorstFit),
        Policy::Greedy(Rule::RoundRobin),
        Policy::Greedy(Rule::Mfi),
        Policy::Greedy(Rule::Fgd),
        Policy::Planned { moves: 0.0 },
        Policy::Planned { moves: 0.01 },
        Policy::Planned { moves: 0.02 },
        Policy::Planned { moves: 0.05 },
        Policy::Planned { moves: f64::INFINITY },
        Policy::Limited { actuator: Actuator::Agent, hours: 1, moves: 0.0 },
        Policy::Limited { actuator: Actuator::Agent, hours: 6, moves: 0.0 },
        Policy::Limited { actuator: Actuator::Agent, hours: 6, moves: 0.01 },
        Policy::Limited { actuator: Actuator::MigManager, hours: 1, moves: 0.0 },
        Policy::Limited { actuator: Actuator::MigManager, hours: 6, moves: 0.0 },
        Policy::Limited { actuator: Actuator::MigManager, hours: 6, moves: 0.01 },
        Policy::Repacked,
    ];

    /// Its name in reports.
    pub fn name(self) -> String {
        match self {
            Policy::Static => "static".to_owned(),
            Policy::Greedy(rule) => rule.as_str().to_owned(),
            Policy::Planned { moves } if moves.is_infinite() => "ours-unlimited".to_owned(),
            Policy::Planned { moves } => format!("ours-{:.0}%", 100.0 * moves),
            Policy::Limited { actuator, hours, moves } => {
                format!("ours-{}-{hours}h-{:.0}%", actuator.as_str(), 100.0 * moves)
            }
            Policy::Repacked => "repack-limit".to_owned(),
        }
    }
}

/// What the pods of a run are drawn from, and on what they run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Number of GPUs.
    pub gpus: usize,
    /// Shares of the profiles.
    pub mix: Mix,
    /// Slices asked for on average, as a share of all.
    pub load: f64,
    /// How long pods live.
    pub lifetimes: Lifetimes,
    /// When they come.
    pub arrivals: Arrivals,
    /// What is measured.
    pub window: Window,
}

impl Case {
    /// The pods of a seed.
    pub fn pods(&self, states: &LayoutStates, seed: u64) -> Vec<Pod> {
        let end = (self.window.warm_up + self.window.length + AFTER) * LIFETIME;
        let sizes = sizes(states);
        let weights = self.mix.weights();
        let slices = self.slices(states);
        let pods = Workload::new(seed, &weights, &sizes, slices, self.load, self.lifetimes, self.arrivals);
        pods.take_while(|pod| pod.arrival < end).collect()
    }

    /// By profile: pods that arrive in a mean lifetime.
    pub fn rates(&self, states: &LayoutStates) -> Vec<f64> {
        let (weights, sizes) = (self.mix.weights(), sizes(states));
        let size: u64 = weights.iter().zip(&sizes).map(|(weight, &size)| weight * u64::from(size)).sum();
        let pods = self.load * self.slices(states) as f64 / size as f64;
        weights.iter().map(|&weight| pods * weight as f64).collect()
    }

    /// Runs the pods of a seed under a policy.
    pub fn run(
        &self,
        states: &LayoutStates,
        seed: u64,
        pods: &[Pod],
        policy: Policy,
    ) -> Result<Outcome, LayoutError> {
        let mut system = self.system(states, seed, pods.len(), policy)?;
        Ok(run(system.as_mut(), pods, states.profiles().len(), self.slices(states), self.window))
    }

    /// The system of a policy, nothing running yet, for a run of so many pods.
    pub fn system<'a>(
        &self,
        states: &'a LayoutStates,
        seed: u64,
        pods: usize,
        policy: Policy,
    ) -> Result<Box<dyn System + 'a>, LayoutError> {
        let (sizes, rates) = (sizes(states), self.rates(states));
        let system: Box<dyn System + 'a> = match policy {
            Policy::Static => Box::new(Counted::new(Room::Static(self.fixed(states)?), &sizes)),
            Policy::Greedy(rule) => Box::new(Greedy::new(states, self.gpus, rule, &self.mix.weights())),
            Policy::Planned { moves } => {
                let most = if moves.is_infinite() { pods as f64 } else { SAVED };
                let allowance = Allowance::new(moves.min(pods as f64), most);
                Box::new(Planned::new(states, self.gpus, &rates, allowance))
            }
            Policy::Limited { actuator, hours, moves } => {
                Box::new(self.limited(states, seed, actuator, hours, moves)?)
            }
            Policy::Repacked => Box::new(Counted::new(Room::Repacked { gpus: self.gpus as u32 }, &sizes)),
        };
        Ok(system)
    }

    /// A fleet under the product's own limits, cut into the best fixed layout to begin with.
    pub fn limited<'a>(
        &self,
        states: &'a LayoutStates,
        seed: u64,
        actuator: Actuator,
        hours: u32,
        moves: f64,
    ) -> Result<Limited<'a>, LayoutError> {
        let (layouts, allowance) = (self.layouts(states)?, Allowance::new(moves, SAVED));
        Ok(Limited::new(states, &layouts, actuator.limits(hours), &self.rates(states), allowance, seed))
    }

    fn slices(&self, states: &LayoutStates) -> u64 {
        self.gpus as u64 * u64::from(states.model().memory_slices)
    }

    /// The best fixed layout, each GPU's as a state.
    fn layouts(&self, states: &LayoutStates) -> Result<Vec<StateId>, LayoutError> {
        let names = states.profiles().iter().map(|profile| profile.name);
        let demand: Vec<_> = names.zip(self.rates(states)).collect();
        let layouts = best_layouts(states.model(), self.gpus as u32, &demand)?;
        Ok(layouts.iter().map(|layout| states.find(layout)).collect())
    }

    /// Instances of each profile in the best fixed layout.
    fn fixed(&self, states: &LayoutStates) -> Result<Vec<u32>, LayoutError> {
        let mut counts = vec![0; states.profiles().len()];
        for layout in self.layouts(states)? {
            states.instances(layout).iter().for_each(|spot| counts[usize::from(spot.profile)] += 1);
        }
        Ok(counts)
    }
}

fn sizes(states: &LayoutStates) -> Vec<u8> {
    states.profiles().iter().map(|profile| profile.memory_slices).collect()
}
