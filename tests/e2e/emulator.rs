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
//! What decides is behind [`Admission`]. [`CountingAdmission`] counts what each Node says is allocatable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
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
}

/// The `reason` and `message` of a refused pod's status, in kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
}

impl Rejection {
    /// The node lacks a resource that it does have in kind.
    pub fn out_of(resource: &str, requested: i64, used: i64, capacity: i64) -> Self {
        Rejection {
            reason: format!("OutOf{resource}"),
            message: format!(
                "Node didn't have enough resource: {resource}, \
                 requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        }
    }

    /// The device plugin could not serve the pod.
    pub fn unexpected(cause: &str) -> Self {
        Rejection {
            reason: "UnexpectedAdmissionError".to_owned(),
            message: format!("Allocate failed due to {cause}, which is unexpected"),
        }
    }
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
        let decision = lock(&self.admission).admit(&node, &pod);
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
            Err(Rejection { reason, message }) => {
                let message = format!("Pod was rejected: {message}");
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

/// Amounts by resource name: `cpu` in thousandths, everything else in units.
type Amounts = BTreeMap<String, i64>;

/// Counts by what each node says is allocatable, as kubelet's resource check does, with no idea of where a
/// GPU instance lies.
#[derive(Debug, Default)]
pub struct CountingAdmission {
    nodes: BTreeMap<String, Ledger>,
    homes: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Ledger {
    allocatable: Amounts,
    held: BTreeMap<String, Amounts>,
}

impl Admission for CountingAdmission {
    fn observe(&mut self, node: &Node) {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        self.nodes.entry(node.name_any()).or_default().allocatable = amounts(allocatable);
    }

    fn admit(&mut self, node: &str, pod: &Pod) -> Result<(), Rejection> {
        let uid = pod.uid().unwrap_or_default();
        let ledger = self.nodes.get_mut(node).ok_or_else(|| Rejection::unexpected("an unknown node"))?;
        let wanted = requests(pod);
        ledger.check(&wanted)?;
        ledger.held.insert(uid.clone(), wanted);
        self.homes.insert(uid, node.to_owned());
        Ok(())
    }

    fn release(&mut self, uid: &str) {
        let node = self.homes.remove(uid);
        if let Some(ledger) = node.and_then(|node| self.nodes.get_mut(&node)) {
            ledger.held.remove(uid);
        }
    }
}

impl Ledger {
    /// Kubelet names the first resource that does not fit: pods, then cpu and memory, then the extended ones.
    fn check(&self, wanted: &Amounts) -> Result<(), Rejection> {
        let order = |resource: &str| match resource {
            "pods" => 0,
            "cpu" => 1,
            "memory" => 2,
            "ephemeral-storage" => 3,
            _ => 4,
        };
        let mut wanted: Vec<_> = wanted.iter().filter(|&(_, &amount)| amount > 0).collect();
        wanted.sort_by_key(|&(resource, _)| order(resource));
        for (resource, &requested) in wanted {
            let used = self.held.values().filter_map(|held| held.get(resource)).sum();
            match self.allocatable.get(resource) {
                Some(&capacity) if requested <= capacity - used => {}
                Some(&capacity) => return Err(Rejection::out_of(resource, requested, used, capacity)),
                // The resource check skips what a node has never heard of; the device manager then has no
                // device.
                None => {
                    let cause =
                        format!("no healthy devices present; cannot allocate unhealthy devices {resource}");
                    return Err(Rejection::unexpected(&cause));
                }
            }
        }
        Ok(())
    }
}

/// What a pod needs at its hungriest moment: all its containers and sidecars together, or an init container
/// beside the sidecars started before it; and the runtime's overhead.
fn requests(pod: &Pod) -> Amounts {
    let mut needed = Amounts::from([("pods".to_owned(), 1)]);
    let Some(spec) = &pod.spec else { return needed };
    let mut running = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = container_requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &own);
            raise(&mut peak, &running);
        } else {
            let mut beside = running.clone();
            add(&mut beside, &own);
            raise(&mut peak, &beside);
        }
    }
    for container in &spec.containers {
        add(&mut running, &container_requests(container));
    }
    raise(&mut peak, &running);
    add(&mut needed, &peak);
    add(&mut needed, &amounts(spec.overhead.as_ref()));
    needed
}

fn container_requests(container: &Container) -> Amounts {
    amounts(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        *total.entry(resource.clone()).or_default() += amount;
    }
}

fn raise(peak: &mut Amounts, now: &Amounts) {
    for (resource, amount) in now {
        let highest = peak.entry(resource.clone()).or_default();
        *highest = (*highest).max(*amount);
    }
}

fn amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let scale = |resource: &str| if resource == "cpu" { 1_000.0 } else { 1.0 };
    quantities
        .into_iter()
        .flatten()
        .map(|(resource, quantity)| (resource.clone(), (number(quantity) * scale(resource)).ceil() as i64))
        .collect()
}

/// The value of a quantity. Test fixtures stay far below the 2^53 at which a float would round.
fn number(quantity: &Quantity) -> f64 {
    let text = quantity.0.as_str();
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(digits);
    let unit = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1_024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        other => panic!("no fixture writes a quantity like {text:?} ({other:?})"),
    };
    digits.parse::<f64>().unwrap_or_else(|_| panic!("no fixture writes a quantity like {text:?}")) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).expect("a valid pod")
    }

    #[test]
    fn a_pod_needs_its_hungriest_moment() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let needed = requests(&pod(json!({
            "containers": [{"name": "main", "resources": cpu("500m")}],
            "initContainers": [
                {"name": "before", "resources": cpu("900m")},
                {"name": "sidecar", "restartPolicy": "Always", "resources": cpu("1")},
                {"name": "after", "resources": cpu("300m")},
            ],
            "overhead": {"cpu": "10m"},
        })));
        assert_eq!(needed["cpu"], 1_510);
        assert_eq!(needed["pods"], 1);
    }

    #[test]
    fn a_full_node_refuses_in_kubelets_words() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n0"},
            "status": {"allocatable": {"pods": "9", "nvidia.com/mig-1g.5gb": "1"}},
        }))
        .expect("a valid node");
        let mut admission = CountingAdmission::default();
        admission.observe(&node);
        let slice = |profile: &str| {
            let resource = format!("nvidia.com/mig-{profile}");
            pod(json!({"containers": [{"name": "main", "resources": {"requests": {resource: "1"}}}]}))
        };
        assert_eq!(admission.admit("n0", &slice("1g.5gb")), Ok(()));
        let full = admission.admit("n0", &slice("1g.5gb")).expect_err("the only instance is taken");
        assert_eq!(full.reason, "OutOfnvidia.com/mig-1g.5gb");
        let foreign = admission.admit("n0", &slice("3g.20gb")).expect_err("the node has no such profile");
        assert_eq!(foreign.reason, "UnexpectedAdmissionError");
        admission.release("u");
        assert_eq!(admission.admit("n0", &slice("1g.5gb")), Ok(()));
    }
}
