//! Every predicate of kube-scheduler's filters: how a scenario comes to use it, how it is taken out of one again, and
//! whether the scheduler supports it yet. One line here switches a predicate on.
//!
//! A predicate *alone decides* about a node for a pod if the verdict would be the other one without it. So each states how
//! to take it out of one object; the tally takes it out of a whole scenario and asks again.

mod devices;
mod placement;
mod relations;
mod requests;
mod storage;

use mig_scheduler::sim::rng::Rng;
use serde_json::Value;

use super::scenario::Scenario;

pub use storage::has_unbound;

/// What an object is to the pod in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Node,
    /// A volume, a claim or what a node says of its volumes.
    Storage,
    /// A pod on a node.
    Bound,
    /// The pod in question.
    Incoming,
}

pub struct Predicate {
    pub name: &'static str,
    /// Whether the scheduler under test honours it.
    pub supported: bool,
    /// Whether it can decide about a node at all; what only tells good nodes from better ones cannot.
    pub decides: bool,
    /// Adds it to a scenario.
    pub add: fn(&mut Rng, &mut Scenario),
    /// Takes it out of one object.
    pub strip: fn(&mut Value, Role),
}

/// A predicate that is part of every run.
const fn on(name: &'static str, add: fn(&mut Rng, &mut Scenario), strip: fn(&mut Value, Role)) -> Predicate {
    Predicate { name, supported: true, decides: true, add, strip }
}

/// What is never to decide.
const fn idle(
    name: &'static str,
    add: fn(&mut Rng, &mut Scenario),
    strip: fn(&mut Value, Role),
) -> Predicate {
    Predicate { decides: false, ..on(name, add, strip) }
}

pub const PREDICATES: &[Predicate] = &[
    // Amounts first: what follows builds on them.
    on("cpu", requests::add_cpu, requests::strip_cpu),
    on("memory", requests::add_memory, requests::strip_memory),
    on("ephemeral storage", requests::add_ephemeral, requests::strip_ephemeral),
    on("number of pods", requests::add_pods, requests::strip_pods),
    on("MIG instances", devices::add_mig, devices::strip_mig),
    on("extended resources", devices::add_extended, devices::strip_extended),
    on("huge pages", devices::add_huge_pages, devices::strip_huge_pages),
    on("init containers", requests::add_init, requests::strip_init),
    on("sidecars", requests::add_sidecars, requests::strip_sidecars),
    on("overhead", requests::add_overhead, requests::strip_overhead),
    on("resize in place", requests::add_resize, requests::strip_resize),
    on("finished pods", requests::add_finished, requests::strip_finished),
    // Never less than its containers ask for, so after everything that makes them ask for more.
    on("pod-level resources", requests::add_pod_level, requests::strip_pod_level),
    on("cordon", placement::add_cordon, placement::strip_cordon),
    on("NoSchedule taints", placement::add_no_schedule, placement::strip_no_schedule),
    on("NoExecute taints", placement::add_no_execute, placement::strip_no_execute),
    on("tolerations", placement::add_tolerations, placement::strip_tolerations),
    on("nodeSelector", placement::add_node_selector, placement::strip_node_selector),
    on("node affinity In", placement::add_in, placement::strip_in),
    on("node affinity NotIn", placement::add_not_in, placement::strip_not_in),
    on("node affinity Exists", placement::add_exists, placement::strip_exists),
    on("node affinity DoesNotExist", placement::add_does_not_exist, placement::strip_does_not_exist),
    on("node affinity Gt", placement::add_gt, placement::strip_gt),
    on("node affinity Lt", placement::add_lt, placement::strip_lt),
    on("node affinity matchFields", placement::add_match_fields, placement::strip_match_fields),
    on("host ports", placement::add_host_ports, placement::strip_host_ports),
    on("scheduling gates", placement::add_gates, placement::strip_gates),
    on("declared features", devices::add_features, devices::strip_features),
    on("pod affinity", relations::add_affinity, relations::strip_affinity),
    on("pod anti-affinity", relations::add_anti_affinity, relations::strip_anti_affinity),
    on("anti-affinity of bound pods", relations::add_symmetry, relations::strip_symmetry),
    on("namespaces of a term", relations::add_namespaces, relations::strip_namespaces),
    on("namespaceSelector", relations::add_namespace_selector, relations::strip_namespace_selector),
    on("matchLabelKeys of a term", relations::add_match_keys, relations::strip_match_keys),
    on("mismatchLabelKeys of a term", relations::add_mismatch_keys, relations::strip_mismatch_keys),
    on("topology spread", relations::add_spread, relations::strip_spread),
    on("minDomains", relations::add_min_domains, relations::strip_min_domains),
    on("nodeAffinityPolicy", relations::add_affinity_policy, relations::strip_affinity_policy),
    on("nodeTaintsPolicy", relations::add_taints_policy, relations::strip_taints_policy),
    on("matchLabelKeys of a spread", relations::add_spread_keys, relations::strip_spread_keys),
    on("terminating pods", relations::add_terminating, relations::strip_terminating),
    on("node affinity of bound volumes", storage::add_bound, storage::strip_bound),
    on("zones of bound volumes", storage::add_zones, storage::strip_zones),
    on("volumes that wait for a consumer", storage::add_unbound, storage::strip_unbound),
    on("room for new volumes", storage::add_capacity, storage::strip_capacity),
    on("attach limits", storage::add_limits, storage::strip_limits),
    on("ReadWriteOncePod", storage::add_exclusive, storage::strip_exclusive),
    idle("preferences", relations::add_preferences, relations::strip_preferences),
];

/// Does `change` to about `percent` of a hundred objects.
fn some(rng: &mut Rng, objects: &mut [Value], percent: u64, mut change: impl FnMut(&mut Rng, &mut Value)) {
    for object in objects {
        if super::scenario::chance(rng, percent) {
            change(rng, object);
        }
    }
}

/// Does `change` to about half of the pods to place and some of the bound ones.
fn pods(rng: &mut Rng, scenario: &mut Scenario, mut change: impl FnMut(&mut Rng, &mut Value)) {
    some(rng, &mut scenario.pods, 60, &mut change);
    some(rng, &mut scenario.bound, 60, &mut change);
}

/// Sets what every node offers of a resource.
fn offer(rng: &mut Rng, scenario: &mut Scenario, resource: &str, amounts: &[&str]) {
    some(rng, &mut scenario.nodes, 100, |rng, node| {
        let amount = super::scenario::pick(rng, amounts);
        for part in ["allocatable", "capacity"] {
            node["status"][part][resource] = serde_json::json!(amount);
        }
    });
}

/// What a container is to ask for, and what it may not be given more of.
fn request(container: &mut Value, resource: &str, amount: &str) {
    container["resources"]["requests"][resource] = serde_json::json!(amount);
    // Only basic resources may be overcommitted.
    if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") {
        container["resources"]["limits"][resource] = serde_json::json!(amount);
    }
}

/// All containers of a pod, init containers included.
fn containers(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = pod["spec"].as_object_mut();
    let lists = spec.into_iter().flat_map(|spec| {
        spec.iter_mut().filter(|(field, _)| matches!(field.as_str(), "initContainers" | "containers"))
    });
    lists.flat_map(|(_, list)| list.as_array_mut().into_iter().flatten())
}

/// One of the ordinary containers.
fn any_container<'a>(rng: &mut Rng, pod: &'a mut Value) -> &'a mut Value {
    let containers = super::scenario::list(pod, &["spec", "containers"]);
    let at = rng.below(containers.len() as u64) as usize;
    &mut containers[at]
}
