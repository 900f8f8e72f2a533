//! The part of a cluster that no scheduler controls: kubelet's admission and the device plugin of every node.
//!
//! ```text
//!   bind lands ─► devices (plugin picks / agent creates) ─► predicates (CPU, memory, …, affinity, ports, taints) ─► runs
//!                     │ UnexpectedAdmissionError                │ OutOfcpu, OutOf…, NodeAffinity, NodePorts, …
//!                     └────────────────────────► pod Failed ◄───┘
//! ```
//!
//! The order is kubelet's own (v1.36.3 `kubelet.go`: the handler that allocates devices is appended before the one that
//! checks predicates), and so are the words, because people search for them.
//!
//! Invariant: nothing here is told what the scheduler believes. Everything is recomputed from the nodes as they are and the
//! pods that were admitted, so that a scheduler's wrong book-keeping shows up as a rejection or a [`Violation`].
//!
//! Emulated simply: a device is a MIG instance; whole GPUs (`nvidia.com/gpu`) are counted by `allocatable` alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::mig::{GpuModel, Layout, Placement, Slots};
use crate::model::{
    DevicePlacement, Node, NodeName, Partitioning, PodSpec, PodUid, ResourceName, Resources, TaintEffect,
};

/// kubelet's word for everything the device manager refuses.
const UNEXPECTED: &str = "UnexpectedAdmissionError";

/// How a node's device plugin prefers one GPU to another when it hands out an instance. The real plugin orders instances, not
/// GPUs, so that any GPU may come out; these two bracket what can happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DevicePolicy {
    /// The GPU with the most instances in use first.
    Packed,
    /// The GPU with the fewest instances in use first.
    #[default]
    Distributed,
}

/// What an admitted pod holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Its instances, ordered by GPU and start.
    pub devices: Vec<DevicePlacement>,
}

/// Why kubelet fails a pod at once.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}: {message}")]
pub struct Rejection {
    /// `status.reason`, for example `OutOfcpu`.
    pub reason: String,
    /// What the event says.
    pub message: String,
}

impl Rejection {
    /// `status.message`.
    pub fn status_message(&self) -> String {
        format!("Pod was rejected: {}", self.message)
    }

    fn unexpected(cause: impl fmt::Display) -> Rejection {
        let message = format!("Allocate failed due to {cause}, which is unexpected");
        Rejection { reason: UNEXPECTED.to_owned(), message }
    }

    fn predicate(name: &str, why: &str) -> Rejection {
        Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") }
    }
}

/// Something that must never happen, whatever is asked of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The node.
    pub node: NodeName,
    /// The pod whose binding showed it.
    pub pod: PodUid,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}, pod {}: {}", self.node, self.pod, self.what)
    }
}

/// One instance on a GPU, and who has it.
#[derive(Clone, Debug)]
struct Instance {
    placement: Placement,
    resource: ResourceName,
    holder: Option<PodUid>,
}

impl Instance {
    fn new(placement: Placement, holder: Option<PodUid>) -> Instance {
        Instance { placement, resource: placement.profile.resource_name().into(), holder }
    }
}

#[derive(Clone, Debug)]
struct Gpu {
    model: &'static GpuModel,
    instances: Vec<Instance>,
}

impl Gpu {
    fn busy(&self) -> usize {
        self.instances.iter().filter(|instance| instance.holder.is_some()).count()
    }

    /// The layout that its instances form, or why they cannot exist together.
    fn layout(&self) -> Result<Layout, String> {
        let placements = self.instances.iter().map(|instance| instance.placement);
        Layout::new(self.model, placements).map_err(|error| error.to_string())
    }
}

#[derive(Clone, Debug)]
struct Held {
    spec: Arc<PodSpec>,
    devices: Vec<DevicePlacement>,
}

#[derive(Clone, Debug)]
struct Machine {
    node: Node,
    gpus: Vec<Gpu>,
    /// Resources that a device plugin has announced on this node at some time.
    registered: BTreeSet<ResourceName>,
    used: Resources,
    pods: BTreeMap<PodUid, Held>,
}

/// Every node's kubelet and device plugin.
#[derive(Clone, Debug, Default)]
pub struct NodePlane {
    policy: DevicePolicy,
    machines: BTreeMap<NodeName, Machine>,
    places: BTreeMap<PodUid, NodeName>,
    violations: Vec<Violation>,
}

impl NodePlane {
    /// A plane without nodes.
    pub fn new(policy: DevicePolicy) -> NodePlane {
        NodePlane { policy, ..NodePlane::default() }
    }

    /// Adds a node or replaces what is known of it; its pods keep running. `layouts` are the instances that exist on the GPUs
    /// of a node whose partitioning is fixed; an on-demand node has none before its first pod and they are ignored.
    pub fn apply_node(&mut self, node: &Node, layouts: &[Layout]) {
        let name = node.name.clone();
        let machine = self.machines.entry(name.clone()).or_insert_with(|| Machine::new(node.clone()));
        machine.node = node.clone();
        for (pod, placement) in machine.lay_out(layouts) {
            let what = format!("instance {placement} was destroyed under a running pod");
            self.violations.push(Violation { node: name.clone(), pod, what });
        }
    }

    /// kubelet's decision about a pod that was bound to `node` with these `placements`.
    pub fn admit(
        &mut self,
        node: &NodeName,
        pod: &PodUid,
        spec: &Arc<PodSpec>,
        placements: &[DevicePlacement],
    ) -> Result<Allocation, Rejection> {
        if let Some(place) = self.places.get(pod) {
            let what = format!("bound twice, it runs on {place}");
            self.violations.push(Violation { node: node.clone(), pod: pod.clone(), what });
            return Err(Rejection::unexpected(format!("pod {pod} runs on {place}")));
        }
        let Some(machine) = self.machines.get_mut(node) else {
            let message = "Kubelet cannot get node info.".to_owned();
            return Err(Rejection { reason: "InvalidNodeInfo".to_owned(), message });
        };
        let violations = &mut self.violations;
        let mut report = |what| violations.push(Violation { node: node.clone(), pod: pod.clone(), what });
        let devices = machine.allocate(spec, placements, self.policy, &mut report)?;
        machine.predicates(spec)?;
        machine.take(pod, spec, &devices);
        machine.audit(&mut report);
        self.places.insert(pod.clone(), node.clone());
        Ok(Allocation { devices })
    }

    /// Ends a pod and frees what it held; `None` when it does not run anywhere.
    pub fn release(&mut self, pod: &PodUid) -> Option<Allocation> {
        let node = self.places.remove(pod)?;
        let held = self.machines.get_mut(&node)?.give_back(pod)?;
        Some(Allocation { devices: held.devices })
    }

    /// Everything seen that must never happen.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Number of running pods.
    pub fn running(&self) -> usize {
        self.places.len()
    }
}

impl Machine {
    fn new(node: Node) -> Machine {
        Machine {
            node,
            gpus: Vec::new(),
            registered: BTreeSet::new(),
            used: Resources::default(),
            pods: BTreeMap::new(),
        }
    }

    /// Gives the GPUs their instances; returns the pods whose instance is gone.
    fn lay_out(&mut self, layouts: &[Layout]) -> Vec<(PodUid, Placement)> {
        if let Partitioning::OnDemand { model, gpus } = self.node.partitioning {
            self.gpus.resize(usize::from(gpus), Gpu { model, instances: Vec::new() });
            return Vec::new();
        }
        let old = std::mem::take(&mut self.gpus);
        self.gpus = layouts.iter().map(fixed_gpu).collect();
        for instance in self.gpus.iter().flat_map(|gpu| &gpu.instances) {
            self.registered.insert(instance.resource.clone());
        }
        let mut lost = Vec::new();
        for (index, gpu) in old.into_iter().enumerate() {
            for Instance { placement, holder, .. } in gpu.instances {
                let Some(holder) = holder else { continue };
                let here = self.gpus.get_mut(index).and_then(|gpu| gpu.find(placement));
                match here {
                    Some(instance) => instance.holder = Some(holder),
                    None => lost.push((holder, placement)),
                }
            }
        }
        lost
    }

    /// The device manager's part: the instances that the pod gets. Nothing is taken yet.
    fn allocate(
        &self,
        spec: &PodSpec,
        placements: &[DevicePlacement],
        policy: DevicePolicy,
        report: &mut impl FnMut(String),
    ) -> Result<Vec<DevicePlacement>, Rejection> {
        match self.node.partitioning {
            Partitioning::OnDemand { .. } => self.creatable(spec, placements).map_err(|why| {
                report(why.clone());
                Rejection::unexpected(why)
            }),
            Partitioning::Fixed if placements.is_empty() => self.pick(spec, policy),
            Partitioning::Fixed => {
                let why = "placements were chosen for a node whose device plugin chooses".to_owned();
                report(why.clone());
                Err(Rejection::unexpected(why))
            }
        }
    }

    /// Whether the instances named by a binding are those that the pod asked for and can all be created now.
    fn creatable(
        &self,
        spec: &PodSpec,
        placements: &[DevicePlacement],
    ) -> Result<Vec<DevicePlacement>, String> {
        let mut wanted: Vec<_> =
            spec.mig.iter().flat_map(|request| (0..request.count).map(|_| request.profile)).collect();
        let mut named: Vec<_> = placements.iter().map(|device| device.placement.profile).collect();
        wanted.sort_unstable();
        named.sort_unstable();
        if wanted != named {
            return Err(format!(
                "the binding names {} instances that are not the pod's {}",
                named.len(),
                wanted.len()
            ));
        }
        let mut devices = placements.to_vec();
        devices.sort_unstable();
        for group in devices.chunk_by(|a, b| a.gpu == b.gpu) {
            let gpu = self.gpus.get(usize::from(group[0].gpu));
            let gpu = gpu.ok_or_else(|| format!("there is no GPU {}", group[0].gpu))?;
            let added = group.iter().try_fold(gpu.layout()?, |layout, device| layout.with(device.placement));
            added.map_err(|error| format!("GPU {}: {error}", group[0].gpu))?;
        }
        Ok(devices)
    }

    /// The instances that the device plugin hands out.
    fn pick(&self, spec: &PodSpec, policy: DevicePolicy) -> Result<Vec<DevicePlacement>, Rejection> {
        let mut devices = Vec::new();
        for request in spec.mig.iter().filter(|request| self.registered.contains(&request.resource)) {
            let (known, mut free) = self.free_instances(&request.resource, policy);
            if known == 0 {
                let what = format!(
                    "no healthy devices present; cannot allocate unhealthy devices {}",
                    request.resource
                );
                return Err(Rejection::unexpected(what));
            }
            let count = usize::try_from(request.count).unwrap_or(usize::MAX);
            if free.len() < count {
                return Err(Rejection::unexpected(format!(
                    "requested number of devices unavailable for {}. Requested: {}, Available: {}",
                    request.resource,
                    request.count,
                    free.len()
                )));
            }
            free.truncate(count);
            devices.append(&mut free);
        }
        devices.sort_unstable();
        Ok(devices)
    }

    /// How many instances of a resource exist, and the free ones in the order in which the plugin hands them out.
    fn free_instances(&self, resource: &ResourceName, policy: DevicePolicy) -> (usize, Vec<DevicePlacement>) {
        let mut known = 0;
        let mut free = Vec::new();
        for (index, gpu) in (0u16..).zip(&self.gpus) {
            let busy = gpu.busy();
            let rank = if policy == DevicePolicy::Packed { usize::MAX - busy } else { busy };
            for instance in gpu.instances.iter().filter(|instance| instance.resource == *resource) {
                known += 1;
                if instance.holder.is_none() {
                    free.push((rank, DevicePlacement { gpu: index, placement: instance.placement }));
                }
            }
        }
        free.sort_unstable();
        (known, free.into_iter().map(|(_, device)| device).collect())
    }

    /// kubelet's copy of the scheduler's filters; only the first failure is told.
    fn predicates(&self, spec: &PodSpec) -> Result<(), Rejection> {
        self.fits(&spec.requests)?;
        if !spec.selector.matches(self.node.name.as_str(), &self.node.labels) {
            return Err(Rejection::predicate(
                "NodeAffinity",
                "node(s) didn't match Pod's node affinity/selector",
            ));
        }
        let taken = || self.pods.values().flat_map(|held| &held.spec.host_ports);
        if spec.host_ports.iter().any(|port| taken().any(|other| port.conflicts(other))) {
            let why = "node(s) didn't have free ports for the requested pod ports";
            return Err(Rejection::predicate("NodePorts", why));
        }
        let mut evicting = self.node.taints.iter().filter(|taint| taint.effect == TaintEffect::NoExecute);
        if evicting.any(|taint| !spec.tolerates(taint)) {
            return Err(Rejection::predicate(
                "TaintToleration",
                "node(s) had taints that the pod didn't tolerate",
            ));
        }
        Ok(())
    }

    /// The resource part, in kubelet's order. Extended resources that the node does not know are left out, as kubelet does.
    fn fits(&self, wanted: &Resources) -> Result<(), Rejection> {
        let (all, used) = (&self.node.allocatable, &self.used);
        let basic = [
            ("pods", 1, used.pods, all.pods),
            ("cpu", wanted.cpu_milli, used.cpu_milli, all.cpu_milli),
            ("memory", wanted.memory, used.memory, all.memory),
            ("ephemeral-storage", wanted.ephemeral_storage, used.ephemeral_storage, all.ephemeral_storage),
        ];
        let known = wanted.extended().iter().filter(|(name, _)| all.get(name) > 0);
        let extended = known.map(|(name, amount)| (name.as_str(), *amount, used.get(name), all.get(name)));
        let short = basic.into_iter().chain(extended).find(|&(_, requested, used, capacity)| {
            requested > 0 && requested > capacity.saturating_sub(used)
        });
        match short {
            None => Ok(()),
            Some((name, requested, used, capacity)) => Err(Rejection {
                reason: format!("OutOf{name}"),
                message: format!(
                    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
                ),
            }),
        }
    }

    fn take(&mut self, pod: &PodUid, spec: &Arc<PodSpec>, devices: &[DevicePlacement]) {
        let on_demand = matches!(self.node.partitioning, Partitioning::OnDemand { .. });
        for device in devices {
            let Some(gpu) = self.gpus.get_mut(usize::from(device.gpu)) else { continue };
            if on_demand {
                gpu.instances.push(Instance::new(device.placement, Some(pod.clone())));
            } else if let Some(instance) = gpu.find(device.placement) {
                instance.holder = Some(pod.clone());
            }
        }
        self.used.add(&spec.requests);
        self.pods.insert(pod.clone(), Held { spec: spec.clone(), devices: devices.to_vec() });
    }

    fn give_back(&mut self, pod: &PodUid) -> Option<Held> {
        let held = self.pods.remove(pod)?;
        self.used.subtract(&held.spec.requests);
        let on_demand = matches!(self.node.partitioning, Partitioning::OnDemand { .. });
        for gpu in &mut self.gpus {
            if on_demand {
                gpu.instances.retain(|instance| instance.holder.as_ref() != Some(pod));
            }
            for instance in gpu.instances.iter_mut().filter(|i| i.holder.as_ref() == Some(pod)) {
                instance.holder = None;
            }
        }
        Some(held)
    }

    /// Recomputes from the admitted pods alone what is in use, and reports what cannot be.
    fn audit(&self, report: &mut impl FnMut(String)) {
        let mut sum = Resources::default();
        let mut masks = vec![Slots::EMPTY; self.gpus.len()];
        for (pod, held) in &self.pods {
            sum.add(&held.spec.requests);
            for device in &held.devices {
                let at = usize::from(device.gpu);
                let slots = self.gpus.get(at).and_then(|gpu| device.placement.slots(gpu.model).ok());
                match slots {
                    Some(slots) if !masks[at].overlaps(slots) => masks[at] = masks[at].union(slots),
                    _ => report(format!("pod {pod} shares or misses {} on GPU {at}", device.placement)),
                }
            }
        }
        let all = &self.node.allocatable;
        let basic = [
            ("cpu", sum.cpu_milli, all.cpu_milli),
            ("memory", sum.memory, all.memory),
            ("ephemeral-storage", sum.ephemeral_storage, all.ephemeral_storage),
            ("pods", sum.pods, all.pods),
        ];
        for (name, used, capacity) in basic.into_iter().filter(|(_, used, capacity)| used > capacity) {
            report(format!("oversubscribed: {used} of {capacity} {name}"));
        }
    }
}

impl Gpu {
    fn find(&mut self, placement: Placement) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| instance.placement == placement)
    }
}

fn fixed_gpu(layout: &Layout) -> Gpu {
    let instances = layout.placements().iter().map(|&placement| Instance::new(placement, None)).collect();
    Gpu { model: layout.model(), instances }
}

#[cfg(test)]
mod tests;
