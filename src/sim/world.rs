//! Virtual time around the real engine: what the API server, the watches and the nodes would do, event by event.
//!
//! ```text
//!   created ──PodApplied──► engine ──Bind──► lands after 10 ms ──PodApplied(node), BindFinished──► engine
//!                                                   │
//!                                                   └─► node plane: admitted ─ lifetime ─► PodDeleted ─► engine
//!                                                                   rejected ─────────────► PodApplied(finished)
//! ```
//!
//! Events are ordered by time and then by the order in which they came up, and the engine decides after all events of one
//! moment. At the end of the run nothing is created and nothing ends any more, but the engine goes on until its back-offs have
//! run out, so that a pod that still waits does so because no node has room for it.
//!
//! Invariant: the same scenario and policy give the same log, entry by entry.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use crate::cycle::Scoring;
use crate::effect::{Binding, Effect};
use crate::engine::{Engine, Options};
use crate::event::{BindOutcome, Event};
use crate::fact::Fact;
use crate::model::{DevicePlacement, NodeName, PodUid, Time};

use super::measure::{Measures, Meter};
use super::node_plane::{DevicePolicy, NodePlane, Violation};
use super::scenario::{PodPlan, Scenario, StartNode};

/// From the decision until the bind is in force: one write to a healthy API server.
const BIND_LATENCY: Duration = Duration::from_millis(10);

/// How often progress is told, in events.
const PROGRESS_INTERVAL: u64 = 512;

/// What became of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodState {
    /// Not running at the end; the engine's last word on why, if it had one.
    Waiting {
        /// `0/20 nodes are available: …`.
        reason: Option<String>,
    },
    /// Running at the end.
    Running {
        /// When its bind was in force.
        bound: Time,
    },
    /// It ran for its lifetime.
    Completed {
        /// When its bind was in force.
        bound: Time,
        /// When it ended.
        ended: Time,
    },
    /// The node's kubelet refused it.
    Refused {
        /// When.
        at: Time,
        /// kubelet's words.
        reason: String,
    },
}

impl PodState {
    /// When its bind was in force, if a node took it.
    pub fn bound(&self) -> Option<Time> {
        match self {
            PodState::Running { bound } | PodState::Completed { bound, .. } => Some(*bound),
            PodState::Waiting { .. } | PodState::Refused { .. } => None,
        }
    }
}

/// One pod's fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOutcome {
    /// What became of it.
    pub state: PodState,
    /// Whether an attempt to place it failed.
    pub put_off: bool,
    /// Whether one failed although as many slices were free in the cluster.
    pub blocked: bool,
}

/// Something that happened to a pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When.
    pub at: Time,
    /// Index into [`Scenario::pods`].
    pub pod: usize,
    /// What.
    pub action: Action,
}

/// See [`LogEntry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was bound and admitted, and holds these instances.
    Bound {
        /// Its node.
        node: NodeName,
        /// The instances, chosen by the scheduler or by the device plugin.
        devices: Vec<DevicePlacement>,
    },
    /// It ended and gave them back.
    Ended,
    /// It was bound, and kubelet refused it.
    Refused {
        /// The node.
        node: NodeName,
    },
}

/// Everything a run leaves behind.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// One for each pod of the scenario, in its order.
    pub pods: Vec<PodOutcome>,
    /// What happened, in order.
    pub log: Vec<LogEntry>,
    /// Time-weighted results.
    pub measures: Measures,
    /// What must never happen and did.
    pub violations: Vec<Violation>,
    /// Decisions taken by the engine, failed attempts included.
    pub decisions: u64,
}

/// Runs a scenario on these nodes with one scoring rule. `progress` is told the virtual time now and then.
pub fn run(
    scenario: &Scenario,
    nodes: &[StartNode],
    scoring: Scoring,
    progress: &mut dyn FnMut(Time),
) -> RunOutcome {
    let mut world = World::new(scenario, nodes, scoring);
    world.start(nodes);
    world.play(progress);
    world.settle();
    world.outcome()
}

/// Something that will happen.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Coming {
    Created(usize),
    Landed(usize),
    Ended(usize),
}

struct World<'a> {
    scenario: &'a Scenario,
    engine: Engine,
    plane: NodePlane,
    meter: Meter,
    now: Time,
    coming: BinaryHeap<Reverse<(Time, u64, Coming)>>,
    sequence: u64,
    by_uid: BTreeMap<PodUid, usize>,
    nodes: BTreeMap<NodeName, usize>,
    /// Binds asked for and not yet in force.
    in_flight: BTreeMap<usize, Binding>,
    /// Node of each running pod, by its index.
    places: BTreeMap<usize, usize>,
    pods: Vec<PodOutcome>,
    log: Vec<LogEntry>,
    decisions: u64,
    over: bool,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, nodes: &[StartNode], scoring: Scoring) -> World<'a> {
        let options = Options { scoring, ..Options::default() };
        let waiting =
            PodOutcome { state: PodState::Waiting { reason: None }, put_off: false, blocked: false };
        let uid = |(at, plan): (usize, &PodPlan)| (plan.pod.id.uid.clone(), at);
        World {
            scenario,
            engine: Engine::new(options),
            plane: NodePlane::new(DevicePolicy::default()),
            meter: Meter::new(scenario, nodes),
            now: Time::ZERO,
            coming: BinaryHeap::new(),
            sequence: 0,
            by_uid: scenario.pods.iter().enumerate().map(uid).collect(),
            nodes: nodes.iter().enumerate().map(|(at, start)| (start.node.name.clone(), at)).collect(),
            in_flight: BTreeMap::new(),
            places: BTreeMap::new(),
            pods: vec![waiting; scenario.pods.len()],
            log: Vec::new(),
            decisions: 0,
            over: false,
        }
    }

    fn start(&mut self, nodes: &[StartNode]) {
        for start in nodes {
            self.plane.apply_node(&start.node, &start.layouts);
            self.tell(Event::NodeApplied(start.node.clone()));
        }
        self.tell(Event::Synced);
        let scenario = self.scenario;
        for (at, plan) in scenario.pods.iter().enumerate() {
            self.expect(plan.pod.created, Coming::Created(at));
        }
    }

    fn play(&mut self, progress: &mut dyn FnMut(Time)) {
        let mut events = 0u64;
        while let Some(at) = self.next().filter(|at| *at <= self.scenario.end) {
            self.advance(at);
            events += 1;
            if events.is_multiple_of(PROGRESS_INTERVAL) {
                progress(self.now);
            }
        }
        self.meter.advance(self.scenario.end);
        progress(self.scenario.end);
    }

    /// Lets the engine finish what it can do without anything new happening.
    fn settle(&mut self) {
        self.over = true;
        self.coming.retain(|Reverse((_, _, coming))| matches!(coming, Coming::Landed(_)));
        while let Some(at) = self.next() {
            self.advance(at);
        }
    }

    fn outcome(self) -> RunOutcome {
        RunOutcome {
            pods: self.pods,
            log: self.log,
            measures: self.meter.measures(),
            violations: self.plane.violations().to_vec(),
            decisions: self.decisions,
        }
    }

    /// The next moment at which anything happens.
    fn next(&self) -> Option<Time> {
        let event = self.coming.peek().map(|Reverse((at, _, _))| *at);
        let wakeup = self.engine.next_wakeup().map(|at| at.max(self.now));
        event.into_iter().chain(wakeup).min()
    }

    fn advance(&mut self, at: Time) {
        self.meter.advance(at);
        self.now = at;
        while let Some(Reverse((_, _, coming))) = self.pop_due() {
            match coming {
                Coming::Created(pod) => self.create(pod),
                Coming::Landed(pod) => self.land(pod),
                Coming::Ended(pod) => self.end(pod),
            }
        }
        if self.engine.next_wakeup().is_some_and(|at| at <= self.now) {
            self.tell(Event::Tick { budget: usize::MAX });
        }
    }

    fn pop_due(&mut self) -> Option<Reverse<(Time, u64, Coming)>> {
        let due = self.coming.peek().is_some_and(|Reverse((at, _, _))| *at <= self.now);
        if due { self.coming.pop() } else { None }
    }

    fn expect(&mut self, at: Time, coming: Coming) {
        self.sequence += 1;
        self.coming.push(Reverse((at, self.sequence, coming)));
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.engine.step(self.now, event, &mut effects);
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Bind(binding) => {
                let Some(&pod) = self.by_uid.get(&binding.pod.uid) else { return };
                self.decisions += 1;
                self.meter.promised(self.scenario.pods[pod].class);
                self.in_flight.insert(pod, binding);
                self.expect(self.now + BIND_LATENCY, Coming::Landed(pod));
            }
            Effect::ReportUnschedulable(report) => {
                let Some(&pod) = self.by_uid.get(&report.pod.uid) else { return };
                self.pods[pod].state = PodState::Waiting { reason: Some(report.message) };
            }
            Effect::Fact(Fact::PodUnschedulable { pod, .. }) => {
                let Some(&pod) = self.by_uid.get(&pod.uid) else { return };
                self.decisions += 1;
                let class = self.scenario.pods[pod].class;
                if !std::mem::replace(&mut self.pods[pod].put_off, true) {
                    self.meter.put_off(class);
                }
                self.pods[pod].blocked |= self.meter.would_suffice(class);
            }
            // A scenario's pods have nobody go for them, and no claims.
            Effect::Evict(_)
            | Effect::ReportRejected { .. }
            | Effect::ReportScheduled { .. }
            | Effect::WriteClaims(_)
            | Effect::Fact(_) => {}
        }
    }

    fn create(&mut self, pod: usize) {
        let plan = &self.scenario.pods[pod];
        self.tell(Event::PodApplied(plan.pod.clone()));
    }

    fn land(&mut self, pod: usize) {
        let Some(binding) = self.in_flight.remove(&pod) else { return };
        let plan = &self.scenario.pods[pod];
        self.meter.settled(plan.class, self.pods[pod].put_off);
        let mut bound = plan.pod.clone();
        bound.node = Some(binding.node.clone());
        bound.placements = binding.placements.clone();
        self.tell(Event::PodApplied(bound.clone()));
        let uid = binding.pod.uid.clone();
        let node = binding.node.clone();
        self.tell(Event::BindFinished { uid: uid.clone(), node: node.clone(), outcome: BindOutcome::Bound });
        match self.plane.admit(&node, &uid, &plan.pod.spec, &binding.placements) {
            Ok(allocation) => self.begin(pod, node, allocation.devices),
            Err(rejection) => {
                bound.finished = true;
                self.tell(Event::PodApplied(bound));
                self.pods[pod].state = PodState::Refused { at: self.now, reason: rejection.to_string() };
                self.log.push(LogEntry { at: self.now, pod, action: Action::Refused { node } });
            }
        }
    }

    fn begin(&mut self, pod: usize, node: NodeName, devices: Vec<DevicePlacement>) {
        if let Some(&at) = self.nodes.get(&node) {
            self.meter.take(at, &devices);
            self.places.insert(pod, at);
        }
        self.pods[pod].state = PodState::Running { bound: self.now };
        self.log.push(LogEntry { at: self.now, pod, action: Action::Bound { node, devices } });
        if !self.over {
            self.expect(self.now + self.scenario.pods[pod].lifetime, Coming::Ended(pod));
        }
    }

    fn end(&mut self, pod: usize) {
        let uid = self.scenario.pods[pod].pod.id.uid.clone();
        if let (Some(held), Some(at)) = (self.plane.release(&uid), self.places.remove(&pod)) {
            self.meter.free(at, &held.devices);
        }
        if let Some(bound) = self.pods[pod].state.bound() {
            self.pods[pod].state = PodState::Completed { bound, ended: self.now };
        }
        self.log.push(LogEntry { at: self.now, pod, action: Action::Ended });
        self.tell(Event::PodDeleted(uid));
    }
}
