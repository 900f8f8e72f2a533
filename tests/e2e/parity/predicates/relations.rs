//! Between pods: affinity, anti-affinity, topology spread; and preferences, which are never to decide.

use mig_scheduler::sim::rng::Rng;
use serde_json::{Value, json};

use super::super::scenario::{Scenario, chance, list, pick, remove};
use super::{Role, pods, some};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// A label selector over the labels that generated pods have.
fn selector(rng: &mut Rng) -> Value {
    let app = pick(rng, &["a", "b", "c"]);
    match rng.below(8) {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}),
        2 => {
            json!({"matchExpressions": [{"key": "version", "operator": "Exists"}], "matchLabels": {"app": app}})
        }
        3 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "z"]}]}),
        4 => json!({"matchExpressions": [{"key": "track", "operator": "DoesNotExist"}]}),
        _ => json!({"matchLabels": {"app": app}}),
    }
}

fn term(rng: &mut Rng) -> Value {
    json!({"labelSelector": selector(rng), "topologyKey": pick(rng, &[ZONE, ZONE, HOST, "tier", "dedicated"])})
}

fn terms<'a>(pod: &'a mut Value, kind: &str) -> &'a mut Vec<Value> {
    list(pod, &["spec", "affinity", kind, REQUIRED])
}

pub fn add_affinity(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.pods, 50, |rng, pod| {
        for _ in 0..1 + rng.below(2) {
            terms(pod, "podAffinity").push(term(rng));
        }
    });
}

pub fn add_anti_affinity(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.pods, 50, |rng, pod| {
        for _ in 0..1 + rng.below(2) {
            terms(pod, "podAntiAffinity").push(term(rng));
        }
    });
}

/// Pods on nodes that keep others away.
pub fn add_symmetry(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.bound, 40, |rng, pod| terms(pod, "podAntiAffinity").push(term(rng)));
}

pub fn strip_affinity(object: &mut Value, role: Role) {
    if role == Role::Incoming {
        remove(object, "/spec/affinity/podAffinity");
    }
}

pub fn strip_anti_affinity(object: &mut Value, role: Role) {
    if role == Role::Incoming {
        remove(object, "/spec/affinity/podAntiAffinity");
    }
}

pub fn strip_symmetry(object: &mut Value, role: Role) {
    if role == Role::Bound {
        remove(object, "/spec/affinity/podAntiAffinity");
    }
}

/// A term of either kind in half of all pods, with further fields.
fn add_term(rng: &mut Rng, scenario: &mut Scenario, fields: impl Fn(&mut Rng, &mut Value)) {
    pods(rng, scenario, |rng, pod| {
        let mut term = term(rng);
        fields(rng, &mut term);
        terms(pod, pick(rng, &["podAffinity", "podAntiAffinity", "podAntiAffinity"])).push(term);
    });
}

/// Does `change` to each required term of either kind.
fn each_term(object: &mut Value, mut change: impl FnMut(&mut Value)) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = object.pointer_mut(&format!("/spec/affinity/{kind}/{REQUIRED}"));
        terms.and_then(Value::as_array_mut).into_iter().flatten().for_each(&mut change);
    }
}

pub fn add_namespaces(rng: &mut Rng, scenario: &mut Scenario) {
    add_term(rng, scenario, |rng, term| {
        term["namespaces"] =
            pick(rng, &[json!(["team-a"]), json!(["default", "team-b"]), json!(["nowhere"])]);
    });
}

pub fn strip_namespaces(object: &mut Value, _: Role) {
    each_term(object, |term| remove(term, "/namespaces"));
}

pub fn add_namespace_selector(rng: &mut Rng, scenario: &mut Scenario) {
    add_term(rng, scenario, |rng, term| {
        term["namespaceSelector"] = pick(
            rng,
            &[
                json!({}),
                json!({"matchLabels": {"env": "prod"}}),
                json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}),
            ],
        );
    });
}

pub fn strip_namespace_selector(object: &mut Value, _: Role) {
    each_term(object, |term| remove(term, "/namespaceSelector"));
}

pub fn add_match_keys(rng: &mut Rng, scenario: &mut Scenario) {
    add_term(rng, scenario, |rng, term| {
        // The API server refuses keys that the selector names itself.
        term["labelSelector"] = json!({"matchLabels": {"app": pick(rng, &["a", "b", "c"])}});
        term["matchLabelKeys"] = json!(["version"]);
    });
}

pub fn add_mismatch_keys(rng: &mut Rng, scenario: &mut Scenario) {
    add_term(rng, scenario, |rng, term| {
        term["labelSelector"] = json!({"matchLabels": {"app": pick(rng, &["a", "b", "c"])}});
        term["mismatchLabelKeys"] = json!(["version"]);
    });
}

pub fn strip_match_keys(object: &mut Value, _: Role) {
    each_term(object, |term| strip_keys(term, "matchLabelKeys", "In"));
}

pub fn strip_mismatch_keys(object: &mut Value, _: Role) {
    each_term(object, |term| strip_keys(term, "mismatchLabelKeys", "NotIn"));
}

/// Takes such keys out, and what the API server made of them in the selector.
fn strip_keys(term: &mut Value, field: &str, operator: &str) {
    let keys: Vec<Value> = term.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    remove(term, &format!("/{field}"));
    if let Some(merged) = term.pointer_mut("/labelSelector/matchExpressions").and_then(Value::as_array_mut) {
        merged
            .retain(|requirement| requirement["operator"] != operator || !keys.contains(&requirement["key"]));
    }
}

fn add_constraint(rng: &mut Rng, scenario: &mut Scenario, fields: impl Fn(&mut Rng, &mut Value)) {
    some(rng, &mut scenario.pods, 60, |rng, pod| {
        let mut constraint = json!({
            "maxSkew": pick(rng, &[1, 1, 2]),
            "topologyKey": pick(rng, &[ZONE, ZONE, HOST, "tier"]),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector(rng),
        });
        fields(rng, &mut constraint);
        let constraints = list(pod, &["spec", "topologySpreadConstraints"]);
        // The API server allows one for each key.
        if !constraints.iter().any(|other| other["topologyKey"] == constraint["topologyKey"]) {
            constraints.push(constraint);
        }
    });
}

fn each_constraint(object: &mut Value, change: impl FnMut(&mut Value)) {
    let constraints = object.pointer_mut("/spec/topologySpreadConstraints").and_then(Value::as_array_mut);
    constraints.into_iter().flatten().for_each(change);
}

pub fn add_spread(rng: &mut Rng, scenario: &mut Scenario) {
    add_constraint(rng, scenario, |_, _| {});
}

pub fn strip_spread(object: &mut Value, _: Role) {
    remove(object, "/spec/topologySpreadConstraints");
}

/// Constraints that are near their limit in most domains: all pods count, so that one more or less decides.
fn add_tight(rng: &mut Rng, scenario: &mut Scenario, fields: impl Fn(&mut Rng, &mut Value)) {
    for pod in scenario.pods.iter_mut().chain(&mut scenario.bound) {
        pod["metadata"]["namespace"] = json!("default");
    }
    add_constraint(rng, scenario, |rng, constraint| {
        constraint["maxSkew"] = json!(1);
        constraint["topologyKey"] = json!(pick(rng, &[ZONE, ZONE, ZONE, HOST]));
        constraint["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        fields(rng, constraint);
    });
}

pub fn add_min_domains(rng: &mut Rng, scenario: &mut Scenario) {
    add_tight(rng, scenario, |rng, constraint| {
        constraint["topologyKey"] = json!(pick(rng, &[ZONE, ZONE, "tier"]));
        constraint["minDomains"] = json!(pick(rng, &[2, 4, 5]));
    });
}

pub fn strip_min_domains(object: &mut Value, _: Role) {
    each_constraint(object, |constraint| remove(constraint, "/minDomains"));
}

/// Moves the pods of a zone elsewhere, so that everything turns on whether the zone counts as an empty one or not at all.
fn empty_zone(rng: &mut Rng, scenario: &mut Scenario, zone: &str) {
    let is_elsewhere = |node: &&Value| node["metadata"]["labels"][ZONE] != zone;
    let names = |node: &Value| node["metadata"]["name"].clone();
    let elsewhere: Vec<Value> = scenario.nodes.iter().filter(is_elsewhere).map(names).collect();
    if elsewhere.is_empty() {
        return;
    }
    for pod in scenario.bound.iter_mut().filter(|pod| !elsewhere.contains(&pod["spec"]["nodeName"])) {
        pod["spec"]["nodeName"] = pick(rng, &elsewhere);
    }
}

/// Domains that the pod's own node affinity leaves out count or do not.
pub fn add_affinity_policy(rng: &mut Rng, scenario: &mut Scenario) {
    add_tight(rng, scenario, |rng, constraint| {
        constraint["topologyKey"] = json!(ZONE);
        constraint["nodeAffinityPolicy"] = json!(pick(rng, &["Ignore", "Ignore", "Honor"]));
    });
    empty_zone(rng, scenario, "c");
    // The whole zone is left out, or it would count by another of its nodes.
    for node in scenario.nodes.iter_mut().filter(|node| node["metadata"]["labels"][ZONE] != "c") {
        node["metadata"]["labels"]["inner"] = json!("yes");
    }
    some(rng, &mut scenario.pods, 60, |_, pod| pod["spec"]["nodeSelector"]["inner"] = json!("yes"));
}

pub fn strip_affinity_policy(object: &mut Value, _: Role) {
    each_constraint(object, |constraint| remove(constraint, "/nodeAffinityPolicy"));
}

/// Domains of tainted nodes count or do not.
pub fn add_taints_policy(rng: &mut Rng, scenario: &mut Scenario) {
    add_tight(rng, scenario, |rng, constraint| {
        constraint["topologyKey"] = json!(ZONE);
        constraint["nodeTaintsPolicy"] = json!(if chance(rng, 90) { "Honor" } else { "Ignore" });
    });
    empty_zone(rng, scenario, "c");
    let decides = chance(rng, 90);
    let effect = if decides { pick(rng, &["NoSchedule", "NoExecute"]) } else { "PreferNoSchedule" };
    for node in scenario.nodes.iter_mut().filter(|node| node["metadata"]["labels"][ZONE] == "c") {
        list(node, &["spec", "taints"]).push(json!({"key": "spread", "effect": effect}));
    }
}

pub fn strip_taints_policy(object: &mut Value, _: Role) {
    each_constraint(object, |constraint| remove(constraint, "/nodeTaintsPolicy"));
}

pub fn add_spread_keys(rng: &mut Rng, scenario: &mut Scenario) {
    add_tight(rng, scenario, |_, constraint| constraint["matchLabelKeys"] = json!(["version"]));
}

pub fn strip_spread_keys(object: &mut Value, _: Role) {
    each_constraint(object, |constraint| strip_keys(constraint, "matchLabelKeys", "In"));
}

/// Pods that are being deleted count for affinity, and do not for spreading.
pub fn add_terminating(rng: &mut Rng, scenario: &mut Scenario) {
    add_tight(rng, scenario, |_, _| {});
    some(rng, &mut scenario.bound, 40, |_, pod| {
        pod["metadata"]["deletionTimestamp"] = json!("");
    });
}

pub fn strip_terminating(object: &mut Value, role: Role) {
    if role == Role::Bound {
        remove(object, "/metadata/deletionTimestamp");
    }
}

/// Preferred terms, `ScheduleAnyway`, `PreferNoSchedule` and images.
pub fn add_preferences(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.nodes, 30, |rng, node| {
        list(node, &["spec", "taints"]).push(json!({"key": "soft", "effect": "PreferNoSchedule"}));
        let images = json!([{"names": ["example.invalid/c"], "sizeBytes": 1_000_000 * (1 + rng.below(900))}]);
        node["status"]["images"] = images;
    });
    pods(rng, scenario, |rng, pod| {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let term = json!({"weight": 1 + rng.below(100), "podAffinityTerm": term(rng)});
            list(pod, &["spec", "affinity", kind, PREFERRED]).push(term);
        }
        let zone = json!({"key": ZONE, "operator": "In", "values": ["a"]});
        let preferred = json!({"weight": 5, "preference": {"matchExpressions": [zone]}});
        list(pod, &["spec", "affinity", "nodeAffinity", PREFERRED]).push(preferred);
        if chance(rng, 50) {
            list(pod, &["spec", "topologySpreadConstraints"]).push(json!({
                "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector(rng),
            }));
        }
    });
}

pub fn strip_preferences(object: &mut Value, role: Role) {
    if role == Role::Node {
        return;
    }
    for kind in ["nodeAffinity", "podAffinity", "podAntiAffinity"] {
        remove(object, &format!("/spec/affinity/{kind}/{PREFERRED}"));
    }
    if let Some(constraints) =
        object.pointer_mut("/spec/topologySpreadConstraints").and_then(Value::as_array_mut)
    {
        constraints.retain(|constraint| constraint["whenUnsatisfiable"] == "DoNotSchedule");
    }
}
