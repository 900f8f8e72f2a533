//! What a simulation tells: one table for people, one JSON document for programs, from the same numbers.
//!
//! Invariant: the output depends on the scenario and its runs alone. Numbers are rounded to a fixed number of decimals (six in
//! JSON), keys stand in the order of the structs here, and no time of day, duration or path of this machine appears.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::mig::Layout;

use super::measure::WaitStatistics;
use super::policy::{Cut, PolicyRun};
use super::scenario::Scenario;
use super::table;
use super::world::{PodOutcome, PodState};

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was run.
    pub scenario: ScenarioReport,
    /// What came of it, a policy each.
    pub policies: Vec<PolicyReport>,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScenarioReport {
    /// One line.
    pub title: String,
    /// What a reader must know, one sentence each.
    pub notes: Vec<String>,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of GPUs.
    pub gpus: u64,
    /// Length of the measured window in hours.
    pub measured_hours: f64,
    /// Length of the time before it in hours.
    pub warm_up_hours: f64,
    /// Pods created in the measured window.
    pub pods: usize,
    /// Mean offered load as a share of memory slices.
    pub offered_load: f64,
    /// The same in the fullest hour.
    pub offered_load_peak_hour: f64,
    /// GPUs by their fixed layout, where a policy has one.
    pub static_layout: BTreeMap<String, usize>,
}

/// What came of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    /// Its key.
    pub policy: &'static str,
    /// The two lines above its column.
    #[serde(skip)]
    pub heading: [&'static str; 2],
    /// What it is.
    pub about: &'static str,
    /// Pods created in the measured window, by what became of them.
    pub pods: PodCounts,
    /// From creation until the bind is in force; pods that still wait count with the time they have waited so far.
    pub queue_time: Waits,
    /// The same by what pods ask for.
    pub classes: Vec<ClassReport>,
    /// Allocation, shares of all slices.
    pub allocated: Allocated,
    /// How badly free slices are scattered.
    pub fragmentation: Fragmentation,
    /// Why pods wait at the end, by reason, most frequent first.
    pub waiting_reasons: Vec<ReasonCount>,
    /// The pods that wait at the end, each with its reason.
    pub waiting_pods: Vec<WaitingPod>,
    /// Attempts to place a pod over the whole run.
    pub decisions: u64,
    /// What must never happen and did.
    pub violations: Vec<String>,
}

/// Pods by what became of them; `created` is the sum of the four others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodCounts {
    /// All of them.
    pub created: usize,
    /// Ran to their end.
    pub completed: usize,
    /// Running at the end.
    pub running: usize,
    /// Waiting at the end.
    pub waiting: usize,
    /// Refused by kubelet.
    pub refused: usize,
}

impl PodCounts {
    /// Those that a node took.
    pub fn bound(&self) -> usize {
        self.completed + self.running
    }
}

/// Statistics of queue time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Pods counted.
    pub pods: usize,
    /// Of them still waiting: their time is a lower bound.
    pub still_waiting: usize,
    /// Mean.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 95th percentile.
    pub p95_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// Longest.
    pub max_s: f64,
}

/// One class of pods.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// What they ask for.
    pub class: String,
    /// Their queue time.
    pub queue_time: Waits,
}

/// Shares of slices, averages over the measured time or at its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Allocated {
    /// Of compute slices.
    pub compute: f64,
    /// Of memory slices.
    pub memory: f64,
    /// Of compute slices, at the end.
    pub compute_at_end: f64,
    /// Of memory slices, at the end.
    pub memory_at_end: f64,
}

/// How badly free slices are scattered; see [`super::measure`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fragmentation {
    /// Demand-weighted, of all memory slices.
    pub demand_weighted: f64,
    /// Demand-weighted, of the free memory slices.
    pub demand_weighted_of_free: f64,
    /// Stranded, of the free memory slices.
    pub stranded_of_free: f64,
    /// Pods put off at least once.
    pub put_off_pods: usize,
    /// Of them, pods put off although as many slices were free in the cluster.
    pub blocked_pods: usize,
    /// Of all the time pods waited: the part during which as many slices were free as they ask for.
    pub blocked_share_of_waiting: f64,
    /// Pods waiting, on average over time.
    pub waiting_pods_mean: f64,
}

/// A reason and how many pods have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonCount {
    /// The message on the pods.
    pub reason: String,
    /// Number of pods.
    pub pods: usize,
}

/// A pod that waits at the end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingPod {
    /// Its name.
    pub pod: String,
    /// What it asks for.
    pub class: String,
    /// How long it has waited, in seconds.
    pub waited_s: f64,
    /// The message on it.
    pub reason: String,
}

impl Report {
    /// Sums up.
    pub fn new(scenario: &Scenario, layouts: &[Layout], runs: &[PolicyRun]) -> Report {
        let fixed = runs.iter().any(|run| run.policy.cut == Cut::Static);
        let mut static_layout = BTreeMap::new();
        for layout in layouts.iter().filter(|_| fixed) {
            *static_layout.entry(counts_text(layout)).or_insert(0) += 1;
        }
        let offered = scenario.offered();
        Report {
            scenario: ScenarioReport {
                title: scenario.title.clone(),
                notes: scenario.notes.clone(),
                nodes: scenario.machines.len(),
                gpus: scenario.gpus(),
                measured_hours: hours(scenario.end.since(scenario.measure_from)),
                warm_up_hours: hours(scenario.measure_from.since(crate::model::Time::ZERO)),
                pods: measured(scenario).count(),
                offered_load: fixed_decimals(offered.mean),
                offered_load_peak_hour: fixed_decimals(offered.peak_hour),
                static_layout,
            },
            policies: runs.iter().map(|run| policy_report(scenario, run)).collect(),
        }
    }

    /// One JSON document, ending with a line break.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// The table for people.
    pub fn text(&self) -> String {
        table::render(self)
    }
}

/// Indices of the pods that are created in the measured window.
fn measured(scenario: &Scenario) -> impl Iterator<Item = usize> + '_ {
    (0..scenario.pods.len()).filter(|&at| scenario.pods[at].pod.created >= scenario.measure_from)
}

fn policy_report(scenario: &Scenario, run: &PolicyRun) -> PolicyReport {
    let outcome = &run.outcome;
    let pods: Vec<usize> = measured(scenario).collect();
    let class_report = |(class, known): (usize, &super::scenario::Class)| {
        let of_class = pods.iter().copied().filter(|&at| scenario.pods[at].class == class);
        ClassReport { class: known.name.clone(), queue_time: waits(scenario, run, of_class) }
    };
    let measures = outcome.measures;
    let having = |is: fn(&PodOutcome) -> bool| pods.iter().filter(|&&at| is(&outcome.pods[at])).count();
    PolicyReport {
        policy: run.policy.key,
        heading: run.policy.heading,
        about: run.policy.about,
        pods: count(pods.iter().map(|&at| &outcome.pods[at])),
        queue_time: waits(scenario, run, pods.iter().copied()),
        classes: scenario.classes.iter().enumerate().map(class_report).collect(),
        allocated: Allocated {
            compute: fixed_decimals(measures.compute_allocated),
            memory: fixed_decimals(measures.memory_allocated),
            compute_at_end: fixed_decimals(measures.compute_at_end),
            memory_at_end: fixed_decimals(measures.memory_at_end),
        },
        fragmentation: Fragmentation {
            demand_weighted: fixed_decimals(measures.fragmented),
            demand_weighted_of_free: fixed_decimals(measures.fragmented_of_free),
            stranded_of_free: fixed_decimals(measures.stranded_of_free),
            put_off_pods: having(|pod| pod.put_off),
            blocked_pods: having(|pod| pod.blocked),
            blocked_share_of_waiting: fixed_decimals(measures.blocked_time),
            waiting_pods_mean: fixed_decimals(measures.waiting_pods),
        },
        waiting_reasons: reasons(&waiting_pods(scenario, run)),
        waiting_pods: waiting_pods(scenario, run),
        decisions: outcome.decisions,
        violations: outcome.violations.iter().map(ToString::to_string).collect(),
    }
}

fn count<'a>(pods: impl Iterator<Item = &'a PodOutcome>) -> PodCounts {
    pods.fold(PodCounts::default(), |mut counts, pod| {
        counts.created += 1;
        match pod.state {
            PodState::Completed { .. } => counts.completed += 1,
            PodState::Running { .. } => counts.running += 1,
            PodState::Waiting { .. } => counts.waiting += 1,
            PodState::Refused { .. } => counts.refused += 1,
        }
        counts
    })
}

/// Queue times of these pods; one that kubelet refused has none.
fn waits(scenario: &Scenario, run: &PolicyRun, pods: impl Iterator<Item = usize>) -> Waits {
    let mut still_waiting = 0;
    let mut times = Vec::new();
    for at in pods {
        let created = scenario.pods[at].pod.created;
        match &run.outcome.pods[at].state {
            PodState::Waiting { .. } => {
                still_waiting += 1;
                times.push(scenario.end.since(created));
            }
            PodState::Running { bound } | PodState::Completed { bound, .. } => {
                times.push(bound.since(created))
            }
            PodState::Refused { .. } => {}
        }
    }
    let statistics = WaitStatistics::of(times);
    Waits {
        pods: statistics.pods,
        still_waiting,
        mean_s: fixed_decimals(statistics.mean_s),
        p50_s: fixed_decimals(statistics.p50_s),
        p95_s: fixed_decimals(statistics.p95_s),
        p99_s: fixed_decimals(statistics.p99_s),
        max_s: fixed_decimals(statistics.max_s),
    }
}

/// Every pod that waits at the end, whenever it was created.
fn waiting_pods(scenario: &Scenario, run: &PolicyRun) -> Vec<WaitingPod> {
    let waiting = |(plan, pod): (&super::scenario::PodPlan, &PodOutcome)| {
        let PodState::Waiting { reason } = &pod.state else { return None };
        Some(WaitingPod {
            pod: plan.pod.id.name.to_string(),
            class: scenario.classes.get(plan.class).map(|class| class.name.clone()).unwrap_or_default(),
            waited_s: fixed_decimals(scenario.end.since(plan.pod.created).as_micros() as f64 / 1e6),
            reason: reason.clone().unwrap_or_else(|| "not tried yet".to_owned()),
        })
    };
    scenario.pods.iter().zip(&run.outcome.pods).filter_map(waiting).collect()
}

fn reasons(pods: &[WaitingPod]) -> Vec<ReasonCount> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        *counts.entry(pod.reason.as_str()).or_insert(0) += 1;
    }
    let mut reasons: Vec<_> =
        counts.into_iter().map(|(reason, pods)| ReasonCount { reason: reason.to_owned(), pods }).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.pods));
    reasons
}

/// `1 x 4g.20gb + 3 x 1g.5gb`, large profiles first.
fn counts_text(layout: &Layout) -> String {
    let counts = layout.counts();
    let parts: Vec<_> = counts.iter().rev().map(|(profile, count)| format!("{count} x {profile}")).collect();
    parts.join(" + ")
}

fn hours(duration: Duration) -> f64 {
    fixed_decimals(duration.as_micros() as f64 / 3.6e9)
}

/// Rounded to six decimals: the shortest text of such a number is the same on every platform.
fn fixed_decimals(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
