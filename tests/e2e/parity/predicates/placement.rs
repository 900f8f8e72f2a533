//! Where a pod may and may not run by itself: cordons, taints, selectors, node affinity, host ports, gates.

use mig_scheduler::sim::rng::Rng;
use serde_json::{Value, json};

use super::super::scenario::{Scenario, chance, list, pick, remove};
use super::{Role, any_container, containers, pods, some};

pub fn add_cordon(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.nodes, 40, |_, node| node["spec"]["unschedulable"] = json!(true));
    some(rng, &mut scenario.pods, 30, |rng, pod| {
        let effect = pick(rng, &["NoSchedule", "NoExecute", ""]);
        let toleration =
            json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": effect});
        list(pod, &["spec", "tolerations"]).push(toleration);
    });
}

pub fn strip_cordon(object: &mut Value, role: Role) {
    if role == Role::Node {
        remove(object, "/spec/unschedulable");
    }
}

const KEYS: [&str; 3] = ["dedicated", "nvidia.com/gpu", "odd.example.com/key"];
const VALUES: [&str; 3] = ["", "yes", "team"];

fn taint(rng: &mut Rng, node: &mut Value, effect: &str) {
    let taints = list(node, &["spec", "taints"]);
    let key = pick(rng, &KEYS);
    // The API server allows one taint for each key and effect.
    if !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == effect) {
        taints.push(json!({"key": key, "value": pick(rng, &VALUES), "effect": effect}));
    }
}

pub fn add_no_schedule(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.nodes, 40, |rng, node| taint(rng, node, "NoSchedule"));
}

pub fn add_no_execute(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.nodes, 40, |rng, node| taint(rng, node, "NoExecute"));
}

pub fn add_tolerations(rng: &mut Rng, scenario: &mut Scenario) {
    let effects = ["NoSchedule", "NoExecute", "PreferNoSchedule", ""];
    some(rng, &mut scenario.nodes, 80, |rng, node| {
        let effect = pick(rng, &effects[..3]);
        taint(rng, node, effect);
    });
    some(rng, &mut scenario.pods, 80, |rng, pod| {
        for _ in 0..1 + rng.below(3) {
            let (key, effect) = (pick(rng, &KEYS), pick(rng, &effects));
            let mut toleration = match rng.below(8) {
                0 => json!({"operator": "Exists"}),
                1 | 2 => json!({"key": key, "value": pick(rng, &VALUES)}),
                3 | 4 => json!({"key": key, "operator": "Equal", "value": pick(rng, &VALUES)}),
                _ => json!({"key": key, "operator": "Exists"}),
            };
            toleration["effect"] = json!(effect);
            list(pod, &["spec", "tolerations"]).push(toleration);
        }
    });
}

pub fn strip_no_schedule(object: &mut Value, role: Role) {
    strip_taints(object, role, "NoSchedule");
}

pub fn strip_no_execute(object: &mut Value, role: Role) {
    strip_taints(object, role, "NoExecute");
}

fn strip_taints(object: &mut Value, role: Role, effect: &str) {
    if role == Role::Node
        && let Some(taints) = object.pointer_mut("/spec/taints").and_then(Value::as_array_mut)
    {
        taints.retain(|taint| taint["effect"] != effect);
    }
}

pub fn strip_tolerations(object: &mut Value, role: Role) {
    if role == Role::Incoming {
        remove(object, "/spec/tolerations");
    }
}

pub fn add_node_selector(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.pods, 60, |rng, pod| {
        let (key, value) = pick(
            rng,
            &[("tier", "gold"), ("tier", ""), ("topology.kubernetes.io/zone", "a"), ("dedicated", "yes")],
        );
        pod["spec"]["nodeSelector"][key] = json!(value);
    });
}

pub fn strip_node_selector(object: &mut Value, _: Role) {
    remove(object, "/spec/nodeSelector");
}

/// The terms of required node affinity.
fn terms(pod: &mut Value) -> &mut Vec<Value> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    list(pod, &["spec", "affinity", "nodeAffinity", required, "nodeSelectorTerms"])
}

/// Adds a requirement: mostly to the one term there is, else as an alternative.
fn demand(rng: &mut Rng, pod: &mut Value, part: &str, requirement: Value) {
    let terms = terms(pod);
    if terms.is_empty() || chance(rng, 25) {
        terms.push(json!({}));
    }
    let at = rng.below(terms.len() as u64) as usize;
    list(&mut terms[at], &[part]).push(requirement);
}

fn add_operator(rng: &mut Rng, scenario: &mut Scenario, operator: &str, choices: &[(&str, &[&str])]) {
    some(rng, &mut scenario.pods, 60, |rng, pod| {
        let (key, values) = pick(rng, choices);
        demand(rng, pod, "matchExpressions", json!({"key": key, "operator": operator, "values": values}));
    });
}

const ZONE: &str = "topology.kubernetes.io/zone";

pub fn add_in(rng: &mut Rng, scenario: &mut Scenario) {
    add_operator(
        rng,
        scenario,
        "In",
        &[(ZONE, &["a", "b"]), ("tier", &["gold", ""]), ("rack", &["1", "10", "r4"])],
    );
}

pub fn add_not_in(rng: &mut Rng, scenario: &mut Scenario) {
    add_operator(
        rng,
        scenario,
        "NotIn",
        &[(ZONE, &["a"]), ("tier", &["gold", "silver"]), ("dedicated", &["yes"])],
    );
}

pub fn add_exists(rng: &mut Rng, scenario: &mut Scenario) {
    add_operator(
        rng,
        scenario,
        "Exists",
        &[(ZONE, &[]), ("dedicated", &[]), ("dedicated", &[]), ("tier", &[])],
    );
}

pub fn add_does_not_exist(rng: &mut Rng, scenario: &mut Scenario) {
    add_operator(rng, scenario, "DoesNotExist", &[(ZONE, &[]), ("dedicated", &[]), ("nowhere", &[])]);
}

pub fn add_gt(rng: &mut Rng, scenario: &mut Scenario) {
    add_operator(
        rng,
        scenario,
        "Gt",
        &[("rack", &["1"]), ("rack", &["2"]), ("rack", &["0"]), ("tier", &["0"])],
    );
}

pub fn add_lt(rng: &mut Rng, scenario: &mut Scenario) {
    add_operator(
        rng,
        scenario,
        "Lt",
        &[("rack", &["3"]), ("rack", &["10"]), ("rack", &["007"]), ("absent", &["1"])],
    );
}

pub fn add_match_fields(rng: &mut Rng, scenario: &mut Scenario) {
    let names: Vec<Value> = scenario.nodes.iter().map(|node| node["metadata"]["name"].clone()).collect();
    some(rng, &mut scenario.pods, 60, |rng, pod| {
        let operator = pick(rng, &["In", "In", "NotIn"]);
        for _ in 0..1 + rng.below(2) {
            let name = if chance(rng, 10) { json!("no-such-node") } else { pick(rng, &names) };
            let requirement = json!({"key": "metadata.name", "operator": operator, "values": [name]});
            demand(rng, pod, "matchFields", requirement);
        }
    });
}

pub fn strip_in(object: &mut Value, _: Role) {
    strip_operator(object, "In");
}

pub fn strip_not_in(object: &mut Value, _: Role) {
    strip_operator(object, "NotIn");
}

pub fn strip_exists(object: &mut Value, _: Role) {
    strip_operator(object, "Exists");
}

pub fn strip_does_not_exist(object: &mut Value, _: Role) {
    strip_operator(object, "DoesNotExist");
}

pub fn strip_gt(object: &mut Value, _: Role) {
    strip_operator(object, "Gt");
}

pub fn strip_lt(object: &mut Value, _: Role) {
    strip_operator(object, "Lt");
}

fn strip_operator(object: &mut Value, operator: &str) {
    strip_requirements(object, "matchExpressions", |requirement| requirement["operator"] == operator);
}

pub fn strip_match_fields(object: &mut Value, _: Role) {
    strip_requirements(object, "matchFields", |_| true);
}

/// Takes requirements out of required node affinity, and affinity with them where none is left: an empty term matches no
/// node.
fn strip_requirements(object: &mut Value, part: &str, drop: impl Fn(&Value) -> bool) {
    const REQUIRED: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = object.pointer_mut(&format!("{REQUIRED}/nodeSelectorTerms"));
    let Some(terms) = terms.and_then(Value::as_array_mut) else { return };
    for term in terms.iter_mut() {
        if let Some(requirements) = term.get_mut(part).and_then(Value::as_array_mut) {
            requirements.retain(|requirement| !drop(requirement));
        }
    }
    let is_empty = |term: &Value| {
        let lists = ["matchExpressions", "matchFields"].map(|part| term.get(part).and_then(Value::as_array));
        lists.into_iter().flatten().all(Vec::is_empty)
    };
    // A term without requirements left is met by every node, and so is the whole.
    if terms.iter().any(is_empty) {
        remove(object, REQUIRED);
    }
}

pub fn add_host_ports(rng: &mut Rng, scenario: &mut Scenario) {
    pods(rng, scenario, |rng, pod| {
        let numbers = if is_bound(pod) { &[8080, 8080, 8081][..] } else { &[8080, 8080, 8081, 8082] };
        let port = json!({
            "containerPort": 80,
            "hostPort": pick(rng, numbers),
            "protocol": pick(rng, &["TCP", "TCP", "UDP"]),
            "hostIP": pick(rng, &["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]),
        });
        list(any_container(rng, pod), &["ports"]).push(port);
    });
    // A port that is kept by sidecars alone, and named by init containers that are gone.
    some(rng, &mut scenario.bound, 50, |_, pod| {
        if let Some(container) = list(pod, &["spec", "initContainers"]).first_mut() {
            list(container, &["ports"]).push(json!({"containerPort": 80, "hostPort": 8082}));
        }
    });
}

fn is_bound(pod: &Value) -> bool {
    pod.pointer("/spec/nodeName").is_some()
}

pub fn strip_host_ports(object: &mut Value, role: Role) {
    if role != Role::Node {
        containers(object).for_each(|container| remove(container, "/ports"));
    }
}

pub fn add_gates(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.pods, 40, |_, pod| {
        pod["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}])
    });
}

pub fn strip_gates(object: &mut Value, _: Role) {
    remove(object, "/spec/schedulingGates");
}
