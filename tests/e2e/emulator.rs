//! The node emulator: plays kubelet's admission and the device plugin for the virtual machines that KWOK
//! keeps alive.
//!
//! ```text
//!   scheduler binds ──► pod on a node ──► Admission::admit ─┬─ yes ─► annotation admitted=true ─► KWOK: Running
//!                                                           └─ no ──► status Failed, kubelet's reason
//! ```
//!
//! Invariants: a pod is decided once; its resources are held from then until it ends or is gone; and a
//! refusal is remembered as a [`Violation`], because a scheduler that counts right never binds a pod that its
//! node must refuse. So "no violations" at the end of a test is the proof that nothing was oversubscribed at
//! any moment.
//!
//! What decides is behind [`Admission`]. [`Machines`] is the one that the simulation has, too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use mig_scheduler::mig::{Counts, GpuModel, Layout, ProfileName, find_layout};
use mig_scheduler::shell::convert::wire::{NodeView, PodView};
use mig_scheduler::shell::convert::{Interner, convert_node, convert_pod, pod_id};
use mig_scheduler::sim::node_plane::{NodePlane, Rejection};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// The annotation that lets KWOK run a pod; `tests/controlplane/stages.yaml` selects on it.
pub const ADMITTED: &str = "mig-scheduler.io/admitted";

/// Patches under way at once: enough to keep a small API server busy, few enough not to starve the
/// scheduler's own.
const IN_FLIGHT: usize = 32;
/// A patch that meets a stopped API server is tried again this often: 120 times, half a second apart.
const PATCH_ATTEMPTS: u32 = 120;
const PATCH_PAUSE: Duration = Duration::from_millis(500);

/// What kubelet does between a binding and a running pod.
pub trait Admission: Send + 'static {
    /// A node as the API shows it now. Called before the first pod of that node is decided.
    fn observe(&mut self, node: &Node);
    /// Takes the pod's resources, or says why the node refuses it.
    fn admit(&mut self, node: &str, pod: &Pod) -> Result<(), Rejection>;
    /// Gives back what an admitted pod held.
    fn release(&mut self, uid: &str);
    /// What must never happen and did, in words.
    fn faults(&self) -> Vec<String>;
}

/// A pod bound to a node that had to refuse it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub pod: String,
    pub node: String,
    pub rejection: Rejection,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { pod, node, rejection } = self;
        write!(f, "{pod} on {node}: {}: {}", rejection.reason, rejection.message)
    }
}

/// What the emulator did so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub admitted: usize,
    pub violations: Vec<Violation>,
    /// Patches that failed for good: the test machine's fault, not the scheduler's.
    pub errors: Vec<String>,
}

/// A running emulator. It ends when dropped.
pub struct Emulator<A> {
    admission: Arc<Mutex<A>>,
    report: Arc<Mutex<Report>>,
    task: JoinHandle<()>,
}

impl<A: Admission> Emulator<A> {
    pub fn start(client: Client, admission: A) -> Self {
        let admission = Arc::new(Mutex::new(admission));
        let report = Arc::new(Mutex::new(Report::default()));
        let node_agents = NodeAgents {
            client,
            admission: admission.clone(),
            report: report.clone(),
            nodes: BTreeSet::new(),
            pods: BTreeMap::new(),
            listed: Vec::new(),
            slots: Arc::new(Semaphore::new(IN_FLIGHT)),
            patches: JoinSet::new(),
        };
        Emulator { admission, report, task: tokio::spawn(node_agents.run()) }
    }

    pub fn report(&self) -> Report {
        lock(&self.report).clone()
    }

    /// Reads or changes the nodes' own state, such as the layout of a GPU. No pod is decided meanwhile.
    pub fn with<T>(&self, f: impl FnOnce(&mut A) -> T) -> T {
        f(&mut lock(&self.admission))
    }
}

impl<A> Drop for Emulator<A> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A test that panicked inside `with` must not hide its message behind a poisoned lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decided {
    Holding,
    /// Refused, ended, or deleted before it was decided: holds nothing and is never decided again.
    Done,
}

/// All virtual machines at once: one loop decides, tasks write.
struct NodeAgents<A> {
    client: Client,
    admission: Arc<Mutex<A>>,
    report: Arc<Mutex<Report>>,
    nodes: BTreeSet<String>,
    /// Every bound pod by UID; as many entries as the cluster has such pods.
    pods: BTreeMap<String, Decided>,
    /// The pods named by the list under way.
    listed: Vec<Pod>,
    slots: Arc<Semaphore>,
    patches: JoinSet<()>,
}

impl<A: Admission> NodeAgents<A> {
    async fn run(mut self) {
        let nodes = watcher(Api::<Node>::all(self.client.clone()), watcher::Config::default());
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let pods = watcher(Api::<Pod>::all(self.client.clone()), bound);
        let mut nodes = pin!(nodes.default_backoff());
        let mut pods = pin!(pods.default_backoff());

        // A watcher lists again by itself after an error and a back-off: a stopped API server is part of some
        // tests.
        loop {
            tokio::select! {
                Some(event) = nodes.next() => event.into_iter().for_each(|event| self.node_event(event)),
                Some(event) = pods.next() => if let Ok(event) = event { self.pod_event(event).await },
                Some(_) = self.patches.join_next() => {}
                else => return,
            }
        }
    }

    fn node_event(&mut self, event: Event<Node>) {
        match event {
            Event::Apply(node) | Event::InitApply(node) => self.observe(&node),
            Event::Delete(node) => drop(self.nodes.remove(&node.name_any())),
            Event::Init | Event::InitDone => {}
        }
    }

    async fn pod_event(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) => self.decide(pod).await,
            Event::Delete(pod) => self.forget(&pod.uid().unwrap_or_default()),
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => self.listed.push(pod),
            Event::InitDone => self.catch_up().await,
        }
    }

    /// A list has no order in time. What ended or went while the watch was down gives back first, for a pod
    /// bound since then may stand in its place.
    async fn catch_up(&mut self) {
        let mut pods = std::mem::take(&mut self.listed);
        let there: BTreeSet<_> = pods.iter().filter_map(|pod| pod.uid()).collect();
        let gone: Vec<_> = self.pods.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
        gone.iter().for_each(|uid| self.forget(uid));
        pods.sort_by_key(|pod| !ended(pod));
        for pod in pods {
            self.decide(pod).await;
        }
    }

    fn observe(&mut self, node: &Node) {
        self.nodes.insert(node.name_any());
        lock(&self.admission).observe(node);
    }

    fn forget(&mut self, uid: &str) {
        if self.pods.remove(uid) == Some(Decided::Holding) {
            lock(&self.admission).release(uid);
        }
    }

    async fn decide(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let ended = ended(&pod);
        match self.pods.get(&uid) {
            Some(Decided::Done) => return,
            Some(Decided::Holding) if !ended => return,
            Some(Decided::Holding) => {
                self.pods.insert(uid.clone(), Decided::Done);
                return lock(&self.admission).release(&uid);
            }
            None if ended || pod.metadata.deletion_timestamp.is_some() => {
                self.pods.insert(uid, Decided::Done);
                return;
            }
            None => {}
        }

        // The two watches are not ordered: the node may be younger than our view of it.
        if !self.nodes.contains(&node)
            && let Ok(Some(found)) = Api::<Node>::all(self.client.clone()).get_opt(&node).await
        {
            self.observe(&found);
        }
        let mut decision = lock(&self.admission).admit(&node, &pod);
        // A kubelet knows its own devices before the API does. We do not, so a refusal counts only once we have asked.
        if decision.is_err()
            && let Ok(Some(found)) = Api::<Node>::all(self.client.clone()).get_opt(&node).await
        {
            self.observe(&found);
            decision = lock(&self.admission).admit(&node, &pod);
        }
        let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        let decided = if decision.is_ok() { Decided::Holding } else { Decided::Done };
        self.pods.insert(uid, decided);
        match &decision {
            Ok(()) => lock(&self.report).admitted += 1,
            Err(rejection) => {
                lock(&self.report).violations.push(Violation {
                    pod: name,
                    node,
                    rejection: rejection.clone(),
                });
            }
        }
        self.write(pod, decision).await;
    }

    /// Waits for a free slot, so that a flood of bindings slows the watch down instead of piling up here.
    async fn write(&mut self, pod: Pod, decision: Result<(), Rejection>) {
        let slot = self.slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let client = self.client.clone();
        let report = self.report.clone();
        self.patches.spawn(async move {
            let _slot = slot;
            if let Err(error) = patch(client, &pod, &decision).await {
                lock(&report).errors.push(format!("{error:#}"));
            }
        });
    }
}

/// Nothing of the pod runs any more, so kubelet counts it no longer.
fn ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Tells the API server, also across its restarts. A pod deleted meanwhile needs no telling.
async fn patch(client: Client, pod: &Pod, decision: &Result<(), Rejection>) -> Result<()> {
    let name = pod.name_any();
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
    let params = PatchParams::default();
    // The UID is a precondition: a new pod of the same name is not the one that was decided.
    let metadata = json!({"uid": pod.uid()});
    let mut attempt = 1;
    loop {
        let outcome = match decision {
            Ok(()) => {
                let mut metadata = metadata.clone();
                metadata["annotations"] = json!({ADMITTED: "true"});
                pods.patch(&name, &params, &Patch::Merge(json!({"metadata": metadata}))).await
            }
            Err(rejection) => {
                let (reason, message) = (&rejection.reason, rejection.status_message());
                let status = json!({"phase": "Failed", "reason": reason, "message": message});
                let body = json!({"metadata": metadata, "status": status});
                pods.patch_status(&name, &params, &Patch::Merge(body)).await
            }
        };
        match outcome {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
            Err(error) if attempt == PATCH_ATTEMPTS => {
                return Err(error).with_context(|| format!("tell the API server about {name}"));
            }
            Err(_) => tokio::time::sleep(PATCH_PAUSE).await,
        }
        attempt += 1;
    }
}

/// The simulation's nodes, told about real ones: the same admission decides in both.
///
/// Which instance is on which GPU is not in the API, so the machine is laid out from what it says is allocatable. Labels do
/// not matter: a machine knows its own GPUs, however badly it is described.
#[derive(Debug, Default)]
pub struct Machines {
    plane: NodePlane,
    /// Nodes whose device plugin hands out nothing, whatever they advertise.
    broken: BTreeSet<String>,
    interner: Interner,
}

impl Machines {
    /// Breaks a node's device plugin, or repairs it.
    pub fn set_broken(&mut self, node: &str, broken: bool) {
        if broken {
            self.broken.insert(node.to_owned());
        } else {
            self.broken.remove(node);
        }
    }
}

impl Admission for Machines {
    fn observe(&mut self, node: &Node) {
        let view: NodeView = view(node);
        let node = convert_node(&view, &mut self.interner).node;
        let layouts = lay_out(&node);
        self.plane.apply_node(&node, &layouts);
    }

    fn admit(&mut self, node: &str, pod: &Pod) -> Result<(), Rejection> {
        if self.broken.contains(node) {
            let message =
                "Allocate failed due to rpc error: the device plugin is broken, which is unexpected";
            return Err(Rejection {
                reason: "UnexpectedAdmissionError".to_owned(),
                message: message.to_owned(),
            });
        }
        let view: PodView = view(pod);
        let id = pod_id(&view, &mut self.interner);
        let pod = convert_pod(&view, id, &mut self.interner).expect("fixtures write pods that can be read");
        self.plane.admit(&node.into(), &pod.id.uid, &pod.spec, &[]).map(drop)
    }

    fn release(&mut self, uid: &str) {
        self.plane.release(&uid.into());
    }

    fn faults(&self) -> Vec<String> {
        self.plane.violations().iter().map(ToString::to_string).collect()
    }
}

/// An object of the API in the form that the scheduler's own conversion reads.
fn view<T: Serialize, V: DeserializeOwned>(object: &T) -> V {
    let document = serde_json::to_value(object).expect("objects of the API are JSON");
    serde_json::from_value(document).expect("the conversion reads every object of the API")
}

/// Deals the node's instances out to A100s, the largest first, each to the first GPU that can hold it.
fn lay_out(node: &mig_scheduler::model::Node) -> Vec<Layout> {
    let model = GpuModel::by_name("A100-40GB").expect("the tables have the A100");
    let mut instances: Vec<ProfileName> = Vec::new();
    for (resource, count) in node.allocatable.extended() {
        if let Some(Ok(profile)) = ProfileName::from_resource(resource.as_str()) {
            instances.extend((0..*count).map(|_| profile));
        }
    }
    instances.sort_by_key(|profile| Reverse((profile.memory_gb(), *profile)));
    let mut gpus: Vec<Counts> = Vec::new();
    for profile in instances {
        let larger = |counts: &Counts| {
            let mut counts = counts.clone();
            *counts.entry(profile).or_default() += 1;
            find_layout(model, &counts).is_ok().then_some(counts)
        };
        match gpus.iter_mut().find_map(|gpu| larger(gpu).map(|larger| *gpu = larger)) {
            Some(()) => {}
            None => {
                gpus.push(larger(&Counts::new()).expect("no fixture offers what an A100 cannot be cut into"))
            }
        }
    }
    gpus.iter().map(|counts| find_layout(model, counts).expect("it was found before")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines(allocatable: serde_json::Value) -> Machines {
        let node = json!({"metadata": {"name": "n0"}, "status": {"allocatable": allocatable}});
        let mut machines = Machines::default();
        machines.observe(&serde_json::from_value(node).expect("a valid node"));
        machines
    }

    fn pod(uid: &str, profile: &str) -> Pod {
        let resources = json!({"requests": {format!("nvidia.com/mig-{profile}"): "1"}});
        let spec = json!({"containers": [{"name": "main", "resources": resources}]});
        serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": spec}))
            .expect("a valid pod")
    }

    #[test]
    fn a_full_node_refuses_in_kubelets_words() {
        let mut machines = machines(json!({"pods": "9", "nvidia.com/mig-1g.5gb": "1"}));
        assert_eq!(machines.admit("n0", &pod("a", "1g.5gb")), Ok(()));
        let full = machines.admit("n0", &pod("b", "1g.5gb")).expect_err("the only instance is taken");
        assert_eq!(full.reason, "UnexpectedAdmissionError");
        assert!(full.message.contains("Requested: 1, Available: 0"), "{full}");
        machines.release("a");
        assert_eq!(machines.admit("n0", &pod("b", "1g.5gb")), Ok(()));
        assert_eq!(machines.faults(), Vec::<String>::new());
    }

    #[test]
    fn instances_are_dealt_out_to_as_few_gpus_as_hold_them() {
        let machines = machines(json!({
            "pods": "9", "nvidia.com/mig-1g.5gb": "7", "nvidia.com/mig-2g.10gb": "2", "nvidia.com/mig-3g.20gb": "1"}));
        assert_eq!(machines.faults(), Vec::<String>::new());
        let mut machines = machines;
        for i in 0..7 {
            assert_eq!(machines.admit("n0", &pod(&format!("small-{i}"), "1g.5gb")), Ok(()));
        }
        assert_eq!(machines.admit("n0", &pod("large", "3g.20gb")), Ok(()));
    }
}
