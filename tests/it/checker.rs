//! An independent judge of a run: replays its log with simple book-keeping of its own.
//!
//! It shares no code with the engine, its cache, its filters or the node plane, not even the geometry tables: the A100's
//! placements stand below once more, as NVIDIA prints them. It is slow and obvious on purpose.

use std::collections::BTreeMap;

use mig_scheduler::model::{DevicePlacement, Operator, Partitioning, PodSpec, Time};
use mig_scheduler::sim::scenario::{PodPlan, Scenario, StartNode};
use mig_scheduler::sim::world::{Action, PodState, RunOutcome};

/// What became of the pods, as the log tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub completed: usize,
    pub running: usize,
    pub waiting: usize,
    pub refused: usize,
}

/// Name, memory slices and legal starts of the A100-40GB's base profiles (`nvidia-smi mig -lgipp`).
const PROFILES: [(&str, u32, &[u32]); 6] = [
    ("1g.5gb", 1, &[0, 1, 2, 3, 4, 5, 6]),
    ("1g.10gb", 2, &[0, 2, 4, 6]),
    ("2g.10gb", 2, &[0, 2, 4]),
    ("3g.20gb", 4, &[0, 4]),
    ("4g.20gb", 4, &[0]),
    ("7g.40gb", 8, &[0]),
];

struct Machine<'a> {
    start: &'a StartNode,
    cpu: u64,
    memory: u64,
    pods: u64,
    /// Memory slices in use, a bit each, by GPU.
    gpus: Vec<u32>,
}

/// Replays a run. Returns what became of the pods, or the first thing that is wrong.
pub fn check(scenario: &Scenario, nodes: &[StartNode], outcome: &RunOutcome) -> Result<Counts, String> {
    let mut judge = Judge::new(scenario, nodes);
    let mut last = Time::ZERO;
    for entry in &outcome.log {
        let plan = &scenario.pods[entry.pod];
        if entry.at < last || entry.at < plan.pod.created {
            return Err(format!("{} at {:?} is out of order", plan.pod.id, entry.at));
        }
        last = entry.at;
        let said = match &entry.action {
            Action::Bound { node, devices } => judge.bind(entry.pod, plan, entry.at, node.as_str(), devices),
            Action::Ended => judge.end(entry.pod, plan, entry.at),
            Action::Refused { .. } => judge.refuse(entry.pod),
        };
        said.map_err(|what| format!("{} at {} s: {what}", plan.pod.id, entry.at.as_secs_f64()))?;
    }
    judge.conclude(outcome)
}

struct Judge<'a> {
    scenario: &'a Scenario,
    machines: Vec<Machine<'a>>,
    by_name: BTreeMap<&'a str, usize>,
    /// Node, moment and instances of running pods.
    running: BTreeMap<usize, (usize, Time, Vec<DevicePlacement>)>,
    completed: BTreeMap<usize, Time>,
    refused: Vec<usize>,
}

impl<'a> Judge<'a> {
    fn new(scenario: &'a Scenario, nodes: &'a [StartNode]) -> Judge<'a> {
        let machine = |(start, machine): (&'a StartNode, &mig_scheduler::sim::scenario::Machine)| Machine {
            start,
            cpu: 0,
            memory: 0,
            pods: 0,
            gpus: vec![0; usize::from(machine.gpus)],
        };
        Judge {
            scenario,
            machines: nodes.iter().zip(&scenario.machines).map(machine).collect(),
            by_name: nodes.iter().enumerate().map(|(at, start)| (start.node.name.as_str(), at)).collect(),
            running: BTreeMap::new(),
            completed: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    fn bind(
        &mut self,
        pod: usize,
        plan: &PodPlan,
        at: Time,
        node: &str,
        devices: &[DevicePlacement],
    ) -> Result<(), String> {
        if self.running.contains_key(&pod) || self.completed.contains_key(&pod) || self.refused.contains(&pod)
        {
            return Err("bound twice".to_owned());
        }
        let number = *self.by_name.get(node).ok_or("bound to a node that is not there")?;
        let machine = &mut self.machines[number];
        if !machine.allows(&plan.pod.spec) {
            return Err(format!("{node} does not allow it"));
        }
        if !machine.has_room(&plan.pod.spec) {
            return Err(format!("{node} lacks CPU, memory or room for one more pod"));
        }
        let mut named: Vec<String> =
            devices.iter().map(|device| device.placement.profile.to_string()).collect();
        let mut wanted = wanted(&plan.pod.spec);
        named.sort();
        wanted.sort();
        if named != wanted {
            return Err(format!("asked for {wanted:?} and got {named:?}"));
        }
        for device in devices {
            machine.take_device(device)?;
        }
        machine.cpu += plan.pod.spec.requests.cpu_milli;
        machine.memory += plan.pod.spec.requests.memory;
        machine.pods += 1;
        self.running.insert(pod, (number, at, devices.to_vec()));
        Ok(())
    }

    fn end(&mut self, pod: usize, plan: &PodPlan, at: Time) -> Result<(), String> {
        let (number, bound, devices) = self.running.remove(&pod).ok_or("ended without running")?;
        if bound + plan.lifetime != at {
            return Err("did not run for its lifetime".to_owned());
        }
        let machine = &mut self.machines[number];
        machine.cpu -= plan.pod.spec.requests.cpu_milli;
        machine.memory -= plan.pod.spec.requests.memory;
        machine.pods -= 1;
        for device in &devices {
            let window = window(&device.placement.profile.to_string(), u32::from(device.placement.start));
            machine.gpus[usize::from(device.gpu)] &= !window.unwrap_or(0);
        }
        self.completed.insert(pod, bound);
        Ok(())
    }

    fn refuse(&mut self, pod: usize) -> Result<(), String> {
        self.refused.push(pod);
        if self.running.contains_key(&pod) { Err("refused while running".to_owned()) } else { Ok(()) }
    }

    /// Compares the replay with what the run says of each pod, and looks for room for every pod that waits.
    fn conclude(self, outcome: &RunOutcome) -> Result<Counts, String> {
        let mut counts = Counts::default();
        for (pod, (plan, said)) in self.scenario.pods.iter().zip(&outcome.pods).enumerate() {
            let agrees = match &said.state {
                PodState::Completed { bound, .. } => self.completed.get(&pod) == Some(bound),
                PodState::Running { bound } => self.running.get(&pod).is_some_and(|(_, at, _)| at == bound),
                PodState::Refused { .. } => self.refused.contains(&pod),
                PodState::Waiting { reason } => {
                    if reason.is_none() {
                        return Err(format!("{} waits without a reason", plan.pod.id));
                    }
                    !self.running.contains_key(&pod) && !self.completed.contains_key(&pod)
                }
            };
            if !agrees {
                return Err(format!(
                    "{} is said to be {:?}, the log says otherwise",
                    plan.pod.id, said.state
                ));
            }
            match said.state {
                PodState::Completed { .. } => counts.completed += 1,
                PodState::Running { .. } => counts.running += 1,
                PodState::Refused { .. } => counts.refused += 1,
                PodState::Waiting { .. } => counts.waiting += 1,
            }
            if matches!(said.state, PodState::Waiting { .. })
                && let Some(machine) = self.machines.iter().find(|machine| machine.could_take(&plan.pod.spec))
            {
                return Err(format!("{} waits although {} has room", plan.pod.id, machine.start.node.name));
            }
        }
        Ok(counts)
    }
}

impl Machine<'_> {
    /// Cordon, taints, selector.
    fn allows(&self, spec: &PodSpec) -> bool {
        let node = &self.start.node;
        let tolerated =
            |key: &str| spec.tolerations.iter().any(|toleration| toleration.key.as_deref() == Some(key));
        let tainted = node.taints.iter().any(|taint| taint.is_hard() && !tolerated(&taint.key));
        let label = |key: &str| node.labels.get(key).map(|value| value.to_string());
        let pairs = spec.selector.labels.iter().all(|(key, value)| label(key).as_deref() == Some(&**value));
        let terms = spec.selector.terms.iter().flatten().collect::<Vec<_>>();
        let matched = terms.is_empty()
            || terms.iter().any(|term| {
                term.match_expressions.iter().all(|requirement| {
                    assert_eq!(requirement.operator, Operator::In, "the traces need no other");
                    let value = label(&requirement.key);
                    requirement.values.iter().any(|wanted| Some(wanted.to_string()) == value)
                })
            });
        !node.unschedulable && !tainted && pairs && matched
    }

    fn has_room(&self, spec: &PodSpec) -> bool {
        let all = &self.start.node.allocatable;
        self.cpu + spec.requests.cpu_milli <= all.cpu_milli
            && self.memory + spec.requests.memory <= all.memory
            && self.pods < all.pods
    }

    fn take_device(&mut self, device: &DevicePlacement) -> Result<(), String> {
        let name = device.placement.profile.to_string();
        let start = u32::from(device.placement.start);
        let window = window(&name, start).ok_or(format!("{name} may not start at {start}"))?;
        let number = usize::from(device.gpu);
        if !self.is_on_demand() && !self.instances(number).contains(&(name.clone(), start)) {
            return Err(format!("GPU {number} has no instance {name} at {start}"));
        }
        let gpu = self.gpus.get_mut(number).ok_or(format!("there is no GPU {number}"))?;
        if *gpu & window != 0 {
            return Err(format!("{name} at {start} of GPU {number} is in use"));
        }
        *gpu |= window;
        Ok(())
    }

    fn is_on_demand(&self) -> bool {
        matches!(self.start.node.partitioning, Partitioning::OnDemand { .. })
    }

    /// The fixed instances of one GPU.
    fn instances(&self, gpu: usize) -> Vec<(String, u32)> {
        let layout = self.start.layouts.get(gpu);
        let placements = layout.iter().flat_map(|layout| layout.placements());
        placements.map(|placement| (placement.profile.to_string(), u32::from(placement.start))).collect()
    }

    /// Whether there is any way to run the pod here now.
    fn could_take(&self, spec: &PodSpec) -> bool {
        let mut gpus = self.gpus.clone();
        self.allows(spec) && self.has_room(spec) && self.place(&wanted(spec), (0, 0), &mut gpus)
    }

    /// Tries every way to place `wanted`, equal instances in ascending order of place.
    fn place(&self, wanted: &[String], from: (usize, u32), gpus: &mut [u32]) -> bool {
        let Some((name, rest)) = wanted.split_first() else { return true };
        for number in 0..gpus.len() {
            for start in (0..8).filter(|&start| (number, start) >= from) {
                let exists = self.is_on_demand() || self.instances(number).contains(&(name.clone(), start));
                let Some(window) = window(name, start).filter(|window| exists && gpus[number] & window == 0)
                else {
                    continue;
                };
                gpus[number] |= window;
                let next = if rest.first() == Some(name) { (number, start + 1) } else { (0, 0) };
                let placed = self.place(rest, next, gpus);
                gpus[number] &= !window;
                if placed {
                    return true;
                }
            }
        }
        false
    }
}

/// Names of the instances that a pod asks for, one each.
fn wanted(spec: &PodSpec) -> Vec<String> {
    let named = spec.requests.extended().iter().filter_map(|(resource, count)| {
        let name = resource.as_str().strip_prefix("nvidia.com/mig-")?;
        Some(std::iter::repeat_n(name.to_owned(), usize::try_from(*count).ok()?))
    });
    named.flatten().collect()
}

/// The memory slices of an instance, if it may start there.
fn window(name: &str, start: u32) -> Option<u32> {
    let (_, slices, starts) = PROFILES.iter().find(|(known, _, _)| *known == name)?;
    starts.contains(&start).then_some(((1 << slices) - 1) << start)
}
