//! What a simulation runs: machines, pods with the time each will live, and the window that is measured.
//!
//! Invariant: a scenario holds nothing that depends on a scheduling decision, so that every policy meets the same pods at the
//! same moments.

use std::sync::Arc;
use std::time::Duration;

use crate::mig::{GpuModel, Layout, ProfileName};
use crate::model::{
    Admission, MigConfigState, MigRequest, Node, NodeName, Partitioning, Pod, PodId, PodSpec, ResourceName,
    Resources, Time, Upkeep,
};

/// `spec.schedulerName` of every simulated pod.
pub const SCHEDULER_NAME: &str = "mig-scheduler";

/// Length of the bins in which offered load is summed.
const HOUR: u64 = 3_600_000_000;

/// One machine, not yet cut into instances.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The node without any MIG resource.
    pub node: Node,
    /// GPUs in it.
    pub gpus: u16,
}

/// A node as a run begins with it.
#[derive(Clone, Debug)]
pub struct StartNode {
    /// The node.
    pub node: Node,
    /// The instances on each of its GPUs; empty where they are created on demand.
    pub layouts: Vec<Layout>,
}

/// A pod and how long it runs once it is admitted.
#[derive(Clone, Debug)]
pub struct PodPlan {
    /// The pod as it is created; `created` is the moment.
    pub pod: Pod,
    /// From admission to its end.
    pub lifetime: Duration,
    /// Index into [`Scenario::classes`].
    pub class: usize,
}

/// Pods that are reported together because they ask for the same instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// For people: `1g.5gb`, `8 x 7g.40gb`, `no GPU`.
    pub name: String,
    /// The profile and how many of it, for a pod that wants any.
    pub instances: Option<(ProfileName, u64)>,
}

/// Everything a run needs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// One line for people.
    pub title: String,
    /// What a reader must know to judge the numbers, one sentence each.
    pub notes: Vec<String>,
    /// The model of every GPU.
    pub model: &'static GpuModel,
    /// The machines.
    pub machines: Vec<Machine>,
    /// The pods, ordered by creation.
    pub pods: Vec<PodPlan>,
    /// Their classes, in the order in which they are reported.
    pub classes: Vec<Class>,
    /// Where measuring begins; what happens before only warms the cluster up.
    pub measure_from: Time,
    /// Where measuring and the run end.
    pub end: Time,
    /// How often each profile is asked for: the weights of demand-weighted fragmentation.
    pub demand: Vec<(ProfileName, u64)>,
}

/// Offered load: what pods would hold if each started when it was created, as a share of all memory slices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offered {
    /// Over the measured window.
    pub mean: f64,
    /// In its fullest hour.
    pub peak_hour: f64,
}

impl Scenario {
    /// Lets every pod run for ever, so that the cluster fills up.
    pub fn without_departures(&mut self) {
        self.pods.iter_mut().for_each(|plan| plan.lifetime = Duration::MAX);
        self.title.push_str(", pods never end");
    }

    /// GPUs of all machines.
    pub fn gpus(&self) -> u64 {
        self.machines.iter().map(|machine| u64::from(machine.gpus)).sum()
    }

    /// The nodes with instances that are created where the scheduler puts them.
    pub fn on_demand(&self) -> Vec<StartNode> {
        let start = |machine: &Machine| {
            let mut node = machine.node.clone();
            if machine.gpus > 0 {
                node.partitioning = Partitioning::OnDemand { model: self.model, gpus: machine.gpus };
            }
            StartNode { node, layouts: Vec::new() }
        };
        self.machines.iter().map(start).collect()
    }

    /// The nodes with fixed instances: `layouts` are dealt out in order, one a GPU; GPUs beyond them stay without instances.
    pub fn fixed(&self, layouts: &[Layout]) -> Vec<StartNode> {
        let mut left = layouts.iter();
        let mut start = |machine: &Machine| {
            let layouts: Vec<_> = left.by_ref().take(usize::from(machine.gpus)).cloned().collect();
            let mut node = machine.node.clone();
            for placement in layouts.iter().flat_map(Layout::placements) {
                let resource = ResourceName::from(placement.profile.resource_name());
                let count = node.allocatable.get(&resource) + 1;
                node.allocatable.set(resource, count);
            }
            StartNode { node, layouts }
        };
        self.machines.iter().map(&mut start).collect()
    }

    /// Memory slices that a pod of `class` asks for.
    pub fn memory_slices(&self, class: usize) -> u64 {
        let instances = self.classes.get(class).and_then(|class| class.instances);
        instances.map_or(0, |(profile, count)| {
            self.model.profile(profile).map_or(0, |geometry| u64::from(geometry.memory_slices) * count)
        })
    }

    /// The load that these pods offer, whatever a policy makes of it.
    pub fn offered(&self) -> Offered {
        let (from, end) = (self.measure_from.as_micros(), self.end.as_micros());
        let hours = usize::try_from((end - from).div_ceil(HOUR)).unwrap_or(0);
        let mut bins = vec![0u128; hours];
        for plan in &self.pods {
            let slices = u128::from(self.memory_slices(plan.class));
            let created = plan.pod.created;
            let (mut at, stop) =
                (created.as_micros().max(from), (created + plan.lifetime).as_micros().min(end));
            while at < stop {
                let bin = (at - from) / HOUR;
                let next = stop.min(from + (bin + 1) * HOUR);
                bins[bin as usize] += slices * u128::from(next - at);
                at = next;
            }
        }
        let capacity = (self.gpus() * u64::from(self.model.memory_slices)).max(1) as f64;
        let share = |held: u128, micros: u64| held as f64 / (capacity * micros.max(1) as f64);
        let widths = (0..hours as u64).map(|bin| HOUR.min(end - from - bin * HOUR));
        Offered {
            mean: share(bins.iter().sum(), end - from),
            peak_hour: bins.iter().zip(widths).map(|(&held, width)| share(held, width)).fold(0.0, f64::max),
        }
    }
}

/// A node without MIG resources, labelled as GPU feature discovery would label it when it has GPUs.
pub fn bare_node(name: &str, cpu_milli: u64, memory: u64, gpus: u16, model: &'static GpuModel) -> Node {
    let mut labels = std::collections::BTreeMap::new();
    if gpus > 0 {
        if let Some(product) = model.products.first() {
            labels.insert("nvidia.com/gpu.product".into(), (*product).into());
        }
        labels.insert("nvidia.com/gpu.count".into(), gpus.to_string().into());
    }
    Node {
        name: NodeName::from(name),
        labels,
        taints: Vec::new(),
        unschedulable: false,
        our_cordon: false,
        admission: Admission::All,
        // 110 pods is kubelet's default.
        allocatable: amounts(cpu_milli, memory, 1 << 40, 110),
        mig_config_state: MigConfigState::Absent,
        gpu_model: (gpus > 0).then_some(model),
        partitioning: Partitioning::Fixed,
        features: [].into(),
        images: [].into(),
    }
}

/// A spec that asks for CPU, memory and, perhaps, instances of one profile.
pub fn pod_spec(cpu_milli: u64, memory: u64, instances: Option<(ProfileName, u64)>) -> PodSpec {
    let mut requests = amounts(cpu_milli, memory, 0, 1);
    let mut mig = Vec::new();
    if let Some((profile, count)) = instances {
        let resource = ResourceName::from(profile.resource_name());
        requests.set(resource.clone(), count);
        mig.push(MigRequest { profile, resource, count });
    }
    PodSpec { requests, mig, ..PodSpec::default() }
}

fn amounts(cpu_milli: u64, memory: u64, ephemeral_storage: u64, pods: u64) -> Resources {
    let mut amounts = Resources::default();
    (amounts.cpu_milli, amounts.memory) = (cpu_milli, memory);
    (amounts.ephemeral_storage, amounts.pods) = (ephemeral_storage, pods);
    amounts
}

/// A pod of ours, just created.
pub fn new_pod(name: &str, created: Time, spec: Arc<PodSpec>) -> Pod {
    Pod {
        id: PodId { namespace: "default".into(), name: name.into(), uid: name.into() },
        scheduler_name: SCHEDULER_NAME.into(),
        node: None,
        priority: 0,
        preempts: false,
        nominated: None,
        started: None,
        created,
        labels: Arc::default(),
        spec,
        gated: false,
        terminating: false,
        preempted: false,
        finished: false,
        upkeep: Upkeep::default(),
        crashing: false,
        generation: 1,
        volumes: None,
        placements: Vec::new(),
    }
}
