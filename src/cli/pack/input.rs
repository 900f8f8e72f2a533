//! From the document and the command line to a packing problem.
//!
//! Invariant: an error names the field, the value and what to write instead. A GPU whose instances contradict its model's table
//! is no error: the solver leaves it out and the answer names it.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::wire::{self, Actuator};
use crate::config::error::quote;
use crate::config::{ConfigError, label, subdomain};
use crate::mig::{GpuModel, Placement, ProfileName};
use crate::solver::fragmentation::DemandMix;
use crate::solver::packing::{ChangeCost, Demand, Gpu, Holder, Instance, Limits, MAX_ITEMS, Problem};

/// GPUs that share a node where the command line asks for GPUs: as many as the usual server has.
const GPUS_A_NODE: u32 = 8;

/// For how long mig-manager stops the device plugin of a node: measured 40 to 120 seconds.
const MIG_MANAGER_PAUSE_SECONDS: u64 = 100;

/// Dearest move or change that can be meant, in slice-seconds: a day and a half of a whole GPU. The sum over a large cluster stays
/// exact.
const MOST_COST: u32 = 1_000_000;

/// What a GPU and the pods on it are called; the solver knows positions only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GpuName {
    pub node: String,
    pub index: u16,
    /// The pods by the instance they hold.
    pub pods: BTreeMap<Placement, String>,
}

/// A problem with the names of what is in it.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub problem: Problem,
    pub names: Vec<GpuName>,
    pub purpose: Purpose,
    pub actuator: Actuator,
}

/// What is asked of the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// They exist: how are they to be changed?
    Change,
    /// They are those of the command line, and nobody has to change them: what fits?
    Fit,
    /// They are as many as the demand could need, and those that stay empty are of no interest: how many are needed?
    Count,
}

/// GPUs that the command line asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewGpus {
    pub model: &'static GpuModel,
    /// How many; `None` for as many as the demand needs.
    pub count: Option<u32>,
}

/// What every GPU of the document has in common.
struct Common {
    actuator: Actuator,
    /// What a change costs where the GPU does not say it.
    cost: Option<ChangeCost>,
}

impl Common {
    /// What changing a GPU costs whose node has so many slices.
    fn cost(&self, slices: u64) -> ChangeCost {
        let usual = match self.actuator {
            Actuator::Agent => change_cost(wire::ChangeCost::default()),
            Actuator::MigManager => {
                let pause = MIG_MANAGER_PAUSE_SECONDS * slices;
                ChangeCost { node: u32::try_from(pause).unwrap_or(MOST_COST).min(MOST_COST), instance: 0 }
            }
        };
        self.cost.unwrap_or(usual)
    }

    /// Whether a GPU has to keep its layout.
    fn keeps(&self, gpu: &wire::Gpu) -> bool {
        let holds_pod = gpu.instances.iter().any(|instance| instance.pod.is_some());
        gpu.fixed || (self.actuator == Actuator::MigManager && holds_pod)
    }
}

/// Who is to change the layouts. A mig-parted configuration means mig-manager.
fn actuator(request: &wire::PackRequest, mig_parted: bool) -> Result<Actuator, ConfigError> {
    match (request.actuator, mig_parted) {
        (Some(Actuator::Agent), true) => {
            let fix = "reads no mig-parted configuration; write mig-manager or nothing here, or call pack without --mig-parted";
            refuse("actuator", "agent", fix)
        }
        (Some(actuator), _) => Ok(actuator),
        (None, true) => Ok(Actuator::MigManager),
        (None, false) => Ok(Actuator::Agent),
    }
}

/// The problem that the document describes, with `new` GPUs instead of its own if there are any; `mig_parted` says that the
/// answer becomes a configuration for mig-manager.
pub(super) fn task(
    request: wire::PackRequest,
    new: Option<NewGpus>,
    mig_parted: bool,
) -> Result<Task, ConfigError> {
    let demand = request.demand.iter().enumerate().map(|(at, demand)| self::demand(at, demand));
    let demand = demand.collect::<Result<Vec<_>, _>>()?;
    Problem::check_demand(&demand).map_err(ConfigError::whole)?;
    let mix = mix(&request, &demand)?;
    let limits = limits(request.limits);
    let cost = request.change_cost.map(|cost| checked_cost("changeCost", cost)).transpose()?;
    let common = Common { actuator: actuator(&request, mig_parted)?, cost };
    let (gpus, names) = match new {
        Some(_) if !request.gpus.is_empty() => {
            let problem = "lists GPUs, and so does the command line; remove either this list or --model";
            return Err(ConfigError::at("gpus", problem));
        }
        Some(new) => new_gpus(new, &demand, &common),
        None if request.gpus.is_empty() => {
            let problem = "names no GPU; list at least one, or say on the command line which model to use: --model A100-40GB";
            return Err(ConfigError::at("gpus", problem));
        }
        None => listed_gpus(&request.gpus, &common)?,
    };
    let purpose = match new {
        None => Purpose::Change,
        Some(NewGpus { count: Some(_), .. }) => Purpose::Fit,
        Some(NewGpus { count: None, .. }) => Purpose::Count,
    };
    Ok(Task { problem: Problem { demand, gpus, mix, limits }, names, purpose, actuator: common.actuator })
}

fn demand(at: usize, wire: &wire::Demand) -> Result<Demand, ConfigError> {
    let profile = profile(format!("demand[{at}].profile"), &wire.profile)?;
    Ok(Demand { profile, priority: wire.priority, count: wire.count })
}

fn mix(request: &wire::PackRequest, demand: &[Demand]) -> Result<DemandMix, ConfigError> {
    if request.recent_demand.is_empty() {
        return Ok(DemandMix::from_counts(demand.iter().map(|d| (d.profile, u64::from(d.count)))));
    }
    let recent = |(at, recent): (usize, &wire::RecentDemand)| {
        let profile = profile(format!("recentDemand[{at}].profile"), &recent.profile)?;
        Ok((profile, u64::from(recent.count)))
    };
    let recent = request.recent_demand.iter().enumerate().map(recent);
    Ok(DemandMix::from_counts(recent.collect::<Result<Vec<_>, ConfigError>>()?))
}

fn limits(wire: wire::Limits) -> Limits {
    let wire::Limits { moves, consolidate, nodes, pivots } = wire;
    Limits { moves, consolidate, nodes, pivots }
}

fn change_cost(wire: wire::ChangeCost) -> ChangeCost {
    ChangeCost { node: wire.node, instance: wire.instance }
}

fn checked_cost(at: impl Display, wire: wire::ChangeCost) -> Result<ChangeCost, ConfigError> {
    slice_seconds(format!("{at}.node"), wire.node)?;
    slice_seconds(format!("{at}.instance"), wire.instance)?;
    Ok(change_cost(wire))
}

fn slice_seconds(at: impl Display, value: u32) -> Result<u32, ConfigError> {
    match value <= MOST_COST {
        true => Ok(value),
        false => refuse(at, value, format!("slice-seconds are too many; write at most {MOST_COST}")),
    }
}

type Gpus = (Vec<Gpu>, Vec<GpuName>);

/// Empty GPUs, eight a node.
fn new_gpus(new: NewGpus, demand: &[Demand], common: &Common) -> Gpus {
    let cost = common.cost(u64::from(new.model.memory_slices) * u64::from(GPUS_A_NODE));
    let count = match new.count {
        Some(count) => u64::from(count),
        None => enough(new.model, demand),
    };
    let count = u32::try_from(count.min(MAX_ITEMS)).unwrap_or(u32::MAX);
    let gpu =
        |at| Gpu { model: new.model, node: at / GPUS_A_NODE, instances: Vec::new(), change: Some(cost) };
    let name = |at: u32| GpuName {
        node: format!("n{}", at / GPUS_A_NODE),
        index: (at % GPUS_A_NODE) as u16,
        pods: BTreeMap::new(),
    };
    ((0..count).map(gpu).collect(), (0..count).map(name).collect())
}

/// GPUs that are enough for certain: each profile by itself, and one even for nothing.
fn enough(model: &GpuModel, demand: &[Demand]) -> u64 {
    let mut pods: BTreeMap<ProfileName, u64> = BTreeMap::new();
    demand.iter().for_each(|demand| *pods.entry(demand.profile).or_default() += u64::from(demand.count));
    let alone = |(profile, pods): (&ProfileName, &u64)| {
        model.profile(*profile).map_or(0, |geometry| pods.div_ceil(u64::from(geometry.max.max(1))))
    };
    pods.iter().map(alone).sum::<u64>().max(1)
}

fn listed_gpus(wire: &[wire::Gpu], common: &Common) -> Result<Gpus, ConfigError> {
    let mut on_node: BTreeMap<&str, u64> = BTreeMap::new();
    wire.iter().for_each(|gpu| *on_node.entry(&gpu.node).or_default() += 1);
    let mut nodes: BTreeMap<&str, (u32, usize, &'static GpuModel)> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    let (mut gpus, mut names) = (Vec::new(), Vec::new());
    for (at, gpu) in wire.iter().enumerate() {
        let model = model(at, gpu)?;
        if gpu.node.is_empty() {
            return refuse(format!("gpus[{at}].node"), "\"\"", "is empty; write the node's name");
        }
        subdomain(format!("gpus[{at}].node"), &gpu.node)?;
        if let Some(first) = seen.insert((gpu.node.as_str(), gpu.index), at) {
            let fix = format!(
                "of node {} is listed as gpus[{first}] already; list each GPU once",
                quote(&gpu.node)
            );
            return refuse(format!("gpus[{at}].index"), gpu.index, fix);
        }
        let number = nodes.len() as u32;
        let node = nodes.entry(&gpu.node).or_insert((number, at, model));
        if node.2 != model {
            let fix = format!(
                "is not the model of gpus[{}] on the same node, {}; a node has GPUs of one model",
                node.1, node.2
            );
            return refuse(format!("gpus[{at}].model"), model, fix);
        }
        let own =
            gpu.change_cost.map(|cost| checked_cost(format!("gpus[{at}].changeCost"), cost)).transpose()?;
        let slices = on_node.get(gpu.node.as_str()).copied().unwrap_or(1) * u64::from(model.memory_slices);
        let change = (!common.keeps(gpu)).then(|| own.unwrap_or_else(|| common.cost(slices)));
        let (instances, pods) = instances(at, gpu)?;
        gpus.push(Gpu { model, node: node.0, instances, change });
        names.push(GpuName { node: gpu.node.clone(), index: gpu.index, pods });
    }
    pods_once(wire)?;
    Ok((gpus, names))
}

/// A pod runs on one node. It may hold several instances there, and is then not moved: a move is that of one instance.
fn pods_once(gpus: &[wire::Gpu]) -> Result<(), ConfigError> {
    let mut seen: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let each = |(at, gpu): (usize, &'_ wire::Gpu)| (0..gpu.instances.len()).map(move |number| (at, number));
    for (at, number) in gpus.iter().enumerate().flat_map(each) {
        let (gpu, instance) = (&gpus[at], &gpus[at].instances[number]);
        let Some(pod) = &instance.pod else { continue };
        let Some((first, other)) = seen.insert(pod, (at, number)) else { continue };
        let (field, listed) =
            (format!("gpus[{at}].instances[{number}].pod"), format!("gpus[{first}].instances[{other}]"));
        if gpus[first].node != gpu.node {
            let fix = format!(
                "holds {listed} on node {}, and a pod runs on one node; correct the name",
                gpus[first].node
            );
            return refuse(field, quote(pod), fix);
        }
        if instance.movable || gpus[first].instances[other].movable {
            let fix = format!(
                "holds {listed}, too, and a pod with several instances is not moved; remove `movable` from both"
            );
            return refuse(field, quote(pod), fix);
        }
    }
    Ok(())
}

fn model(at: usize, gpu: &wire::Gpu) -> Result<&'static GpuModel, ConfigError> {
    let found = GpuModel::by_name(&gpu.model).or_else(|_| GpuModel::by_product_label(&gpu.model));
    found.map_err(|error| ConfigError::at(format!("gpus[{at}].model"), error))
}

fn instances(
    at: usize,
    gpu: &wire::Gpu,
) -> Result<(Vec<Instance>, BTreeMap<Placement, String>), ConfigError> {
    let (mut instances, mut pods) = (Vec::new(), BTreeMap::new());
    for (number, instance) in gpu.instances.iter().enumerate() {
        let field = |name: &str| format!("gpus[{at}].instances[{number}].{name}");
        let profile = profile(field("profile"), &instance.profile)?;
        let placement = Placement::new(profile, instance.start);
        let holder = match &instance.pod {
            None if instance.movable => {
                let fix = "is set and there is no pod to move; name it with `pod`, or remove `movable`";
                return refuse(field("movable"), true, fix);
            }
            None => Holder::Free,
            Some(pod) if pod.is_empty() => {
                return refuse(
                    field("pod"),
                    "\"\"",
                    "is empty; write namespace/name, or remove it when nobody holds it",
                );
            }
            Some(pod) => {
                pod_name(field("pod"), pod)?;
                let cost = slice_seconds(field("moveCost"), instance.move_cost)?;
                if instance.movable { Holder::Movable { cost } } else { Holder::Pinned }
            }
        };
        pods.extend(instance.pod.clone().map(|pod| (placement, pod)));
        instances.push(Instance { placement, holder });
    }
    Ok((instances, pods))
}

fn pod_name(at: String, text: &str) -> Result<(), ConfigError> {
    let Some((namespace, name)) = text.split_once('/') else {
        return refuse(at, quote(text), "has no namespace; write namespace/name");
    };
    label(&at, namespace)?;
    subdomain(&at, name)
}

fn profile(at: String, text: &str) -> Result<ProfileName, ConfigError> {
    text.parse().map_err(|error| ConfigError::at(at, error))
}

/// The error `at: value problem`.
fn refuse<T>(at: impl Display, value: impl Display, problem: impl Display) -> Result<T, ConfigError> {
    Err(ConfigError::at(at, format!("{value} {problem}")))
}
