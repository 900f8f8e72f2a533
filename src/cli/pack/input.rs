//! From the document and the command line to a packing problem.
//!
//! Invariant: an error names the field, the value and what to write instead. A GPU whose instances contradict its model's table
//! is no error: the solver leaves it out and the answer names it.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::wire;
use crate::config::ConfigError;
use crate::config::error::quote;
use crate::mig::{GpuModel, Placement, ProfileName};
use crate::solver::fragmentation::DemandMix;
use crate::solver::packing::{ChangeCost, Demand, Gpu, Holder, Instance, Limits, MAX_ITEMS, Problem};

/// GPUs that share a node where the command line asks for GPUs: as many as the usual server has.
const GPUS_A_NODE: u32 = 8;

/// Most pods of all demands together.
const MOST_PODS: u64 = MAX_ITEMS;

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
    /// The GPUs are those of the command line, which nobody has to change.
    pub hypothetical: bool,
    /// The GPUs are as many as the demand could need: those that stay empty are of no interest.
    pub as_needed: bool,
}

/// GPUs that the command line asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewGpus {
    pub model: &'static GpuModel,
    /// How many; `None` for as many as the demand needs.
    pub count: Option<u32>,
}

/// The problem that the document describes, with `new` GPUs instead of its own if there are any.
pub(super) fn task(request: wire::PackRequest, new: Option<NewGpus>) -> Result<Task, ConfigError> {
    let demand = request.demand.iter().enumerate().map(|(at, demand)| self::demand(at, demand));
    let demand = demand.collect::<Result<Vec<_>, _>>()?;
    let pods: u64 = demand.iter().map(|demand| u64::from(demand.count)).sum();
    if pods > MOST_PODS {
        return refuse(
            "demand",
            format!("{pods} pods"),
            format!("are too many; ask for at most {MOST_PODS}"),
        );
    }
    let mix = mix(&request, &demand)?;
    let limits = limits(request.limits);
    let default_cost = change_cost(request.change_cost);
    let (gpus, names) = match new {
        Some(_) if !request.gpus.is_empty() => {
            let problem = "lists GPUs, and so does the command line; remove either this list or --model";
            return Err(ConfigError::at("gpus", problem));
        }
        Some(new) => new_gpus(new, &demand, default_cost),
        None if request.gpus.is_empty() => {
            let problem = "names no GPU; list at least one, or say on the command line which model to use: --model A100-40GB";
            return Err(ConfigError::at("gpus", problem));
        }
        None => listed_gpus(&request.gpus, default_cost)?,
    };
    let (hypothetical, as_needed) = (new.is_some(), new.is_some_and(|new| new.count.is_none()));
    Ok(Task { problem: Problem { demand, gpus, mix, limits }, names, hypothetical, as_needed })
}

fn demand(at: usize, wire: &wire::Demand) -> Result<Demand, ConfigError> {
    let profile = profile(format!("demand[{at}].profile"), &wire.profile)?;
    Ok(Demand { profile, priority: wire.priority, count: wire.count })
}

fn mix(request: &wire::PackRequest, demand: &[Demand]) -> Result<DemandMix, ConfigError> {
    let mut mix = DemandMix::default();
    for (at, recent) in request.recent_demand.iter().enumerate() {
        let profile = profile(format!("recentDemand[{at}].profile"), &recent.profile)?;
        mix.observe(profile, u64::from(recent.count));
    }
    if request.recent_demand.is_empty() {
        demand.iter().for_each(|demand| mix.observe(demand.profile, u64::from(demand.count)));
    }
    Ok(mix)
}

fn limits(wire: wire::Limits) -> Limits {
    let wire::Limits { moves, consolidate, nodes, pivots } = wire;
    Limits { moves, consolidate, nodes, pivots }
}

fn change_cost(wire: wire::ChangeCost) -> ChangeCost {
    ChangeCost { node: wire.node, instance: wire.instance }
}

type Gpus = (Vec<Gpu>, Vec<GpuName>);

/// Empty GPUs, eight a node.
fn new_gpus(new: NewGpus, demand: &[Demand], cost: ChangeCost) -> Gpus {
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

fn listed_gpus(wire: &[wire::Gpu], default_cost: ChangeCost) -> Result<Gpus, ConfigError> {
    let mut nodes: BTreeMap<&str, (u32, usize, &'static GpuModel)> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    let (mut gpus, mut names) = (Vec::new(), Vec::new());
    for (at, gpu) in wire.iter().enumerate() {
        let model = model(at, gpu)?;
        if gpu.node.is_empty() {
            return refuse(format!("gpus[{at}].node"), "\"\"", "is empty; write the node's name");
        }
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
        let change = (!gpu.fixed).then(|| gpu.change_cost.map_or(default_cost, change_cost));
        let (instances, pods) = instances(at, gpu)?;
        gpus.push(Gpu { model, node: node.0, instances, change });
        names.push(GpuName { node: gpu.node.clone(), index: gpu.index, pods });
    }
    Ok((gpus, names))
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
            Some(_) if instance.movable => Holder::Movable { cost: instance.move_cost },
            Some(_) => Holder::Pinned,
        };
        pods.extend(instance.pod.clone().map(|pod| (placement, pod)));
        instances.push(Instance { placement, holder });
    }
    Ok((instances, pods))
}

fn profile(at: String, text: &str) -> Result<ProfileName, ConfigError> {
    text.parse().map_err(|error| ConfigError::at(at, error))
}

/// The error `at: value problem`.
fn refuse<T>(at: impl Display, value: impl Display, problem: impl Display) -> Result<T, ConfigError> {
    Err(ConfigError::at(at, format!("{value} {problem}")))
}
