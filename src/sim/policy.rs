//! The ways to run a scenario that are compared: how GPUs come to their instances, and how a node is chosen.
//!
//! Invariant: every policy runs on the same machines and meets the same pods; all of them use the real engine, with the score
//! as the only difference between two policies of the same cut.

use crate::cycle::Scoring;
use crate::mig::Layout;
use crate::model::Time;

use super::scenario::{Scenario, StartNode};
use super::world::{self, RunOutcome};

/// How GPUs come to their instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One layout a GPU for good, the best for the mix (see [`super::static_layout`]).
    Static,
    /// An instance is created where and when the scheduler places a pod, without any limit on changes.
    OnDemand,
}

/// One way to run a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name in JSON.
    pub key: &'static str,
    /// The two lines above its column.
    pub heading: [&'static str; 2],
    /// What it is, for people.
    pub about: &'static str,
    /// How GPUs come to their instances.
    pub cut: Cut,
    /// How a node is chosen.
    pub scoring: Scoring,
}

/// What administrators have today.
const STATIC_SPREAD: Policy = Policy {
    key: "static_spread",
    heading: ["static layout", "spread"],
    about: "one fixed layout a GPU, the best for this mix; nodes by kube-scheduler's default score (LeastAllocated)",
    cut: Cut::Static,
    scoring: Scoring::Spread,
};

/// The same layout under our score.
const STATIC_OURS: Policy = Policy {
    key: "static_ours",
    heading: ["static layout", "ours"],
    about: "the same fixed layout; nodes by this scheduler's score (a fixed instance serves alike on every node, so expect \
            no difference while GPUs are what is scarce)",
    cut: Cut::Static,
    scoring: Scoring::LeastFragmentation,
};

/// What packing alone can give.
const OURS: Policy = Policy {
    key: "on_demand_ours",
    heading: ["on demand", "ours"],
    about: "instances are created where this scheduler places pods (least fragmentation, then best fit)",
    cut: Cut::OnDemand,
    scoring: Scoring::LeastFragmentation,
};

/// The best simple rule in the same frame.
const BEST_FIT: Policy = Policy {
    key: "on_demand_best_fit",
    heading: ["on demand", "best fit"],
    about: "instances are created where best fit places pods (the fullest GPU that has room)",
    cut: Cut::OnDemand,
    scoring: Scoring::BestFit,
};

/// What kube-scheduler's default score would do in the same frame.
const SPREAD: Policy = Policy {
    key: "on_demand_spread",
    heading: ["on demand", "spread"],
    about: "instances are created on the node that kube-scheduler's default score (LeastAllocated) prefers",
    cut: Cut::OnDemand,
    scoring: Scoring::Spread,
};

/// The policies compared on the built-in workload; `baseline` adds spreading with instances created on demand.
pub fn for_workload(baseline: bool) -> Vec<Policy> {
    let mut policies = vec![STATIC_SPREAD, STATIC_OURS, OURS];
    policies.extend(baseline.then_some(SPREAD));
    policies
}

/// The policies compared on a trace; `baseline` adds spreading.
pub fn for_trace(baseline: bool) -> Vec<Policy> {
    let mut policies = vec![OURS, BEST_FIT];
    policies.extend(baseline.then_some(SPREAD));
    policies
}

/// One policy and what came of it.
#[derive(Clone, Debug)]
pub struct PolicyRun {
    /// The policy.
    pub policy: Policy,
    /// The nodes as the run began.
    pub nodes: Vec<StartNode>,
    /// The result.
    pub outcome: RunOutcome,
}

/// Runs a scenario under each policy in turn. `layouts` are the GPUs' layouts where they are fixed. `progress` is told the
/// number of policies done and the virtual time of the one that runs.
pub fn compare(
    scenario: &Scenario,
    layouts: &[Layout],
    policies: &[Policy],
    progress: &mut dyn FnMut(usize, Time),
) -> Vec<PolicyRun> {
    let run = |(done, policy): (usize, &Policy)| {
        let nodes = match policy.cut {
            Cut::Static => scenario.fixed(layouts),
            Cut::OnDemand => scenario.on_demand(),
        };
        let outcome = world::run(scenario, &nodes, policy.scoring, &mut |now| progress(done, now));
        PolicyRun { policy: *policy, nodes, outcome }
    };
    policies.iter().enumerate().map(run).collect()
}
