//! CPU, memory, ephemeral storage and the number of pods; and what makes up a pod's request.

use mig_scheduler::shell::convert::wire::PodView;
use mig_scheduler::shell::convert::{Interner, convert_pod, pod_id};
use mig_scheduler::sim::rng::Rng;
use serde_json::{Value, json};

use super::super::scenario::{Scenario, chance, list, pick, remove};
use super::{Role, any_container, containers, offer, pods, request, some};

const CPU: [&str; 7] = ["250m", "500m", "0.75", "1", "1500m", "2", "3"];
const MEMORY: [&str; 7] = ["100M", "256Mi", "512Mi", "1Gi", "1.5Gi", "2G", "3Gi"];

pub fn add_cpu(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "cpu", &["500m", "1", "2", "3", "4"]);
    pods(rng, scenario, |rng, pod| ask(rng, pod, "cpu", &CPU));
}

pub fn strip_cpu(object: &mut Value, _: Role) {
    strip(object, "cpu");
}

pub fn add_memory(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "memory", &["512Mi", "1Gi", "2Gi", "3G", "4Gi"]);
    pods(rng, scenario, |rng, pod| ask(rng, pod, "memory", &MEMORY));
}

pub fn strip_memory(object: &mut Value, _: Role) {
    strip(object, "memory");
}

pub fn add_ephemeral(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "ephemeral-storage", &["1Gi", "2Gi", "4Gi", "8Gi"]);
    pods(rng, scenario, |rng, pod| ask(rng, pod, "ephemeral-storage", &["500M", "1Gi", "2Gi", "3Gi", "4e9"]));
}

pub fn strip_ephemeral(object: &mut Value, _: Role) {
    strip(object, "ephemeral-storage");
}

fn ask(rng: &mut Rng, pod: &mut Value, resource: &str, amounts: &[&str]) {
    let amount = pick(rng, amounts);
    request(any_container(rng, pod), resource, amount);
}

/// Takes a resource out of everything that a pod asks for or holds.
pub fn strip(object: &mut Value, resource: &str) {
    let take = |amounts: Option<&mut Value>| {
        if let Some(Value::Object(amounts)) = amounts {
            amounts.remove(resource);
        }
    };
    for container in containers(object) {
        take(container.pointer_mut("/resources/requests"));
        take(container.pointer_mut("/resources/limits"));
    }
    for path in [
        "/spec/overhead",
        "/spec/resources/requests",
        "/status/resources/requests",
        "/status/allocatedResources",
    ] {
        take(object.pointer_mut(path));
    }
    for kind in ["containerStatuses", "initContainerStatuses"] {
        let statuses = object.pointer_mut(&format!("/status/{kind}")).and_then(Value::as_array_mut);
        for status in statuses.into_iter().flatten() {
            take(status.pointer_mut("/allocatedResources"));
            take(status.pointer_mut("/resources/requests"));
        }
    }
}

pub fn add_pods(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "pods", &["1", "2", "3", "5"]);
}

pub fn strip_pods(object: &mut Value, role: Role) {
    if role == Role::Node {
        object["status"]["allocatable"]["pods"] = json!("110");
    }
}

/// Ordinary init containers, which ask for more than the others and are gone before those start.
pub fn add_init(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "cpu", &["1", "2", "4"]);
    pods(rng, scenario, |rng, pod| init_container(rng, pod, None));
}

/// Init containers that go on running, with ordinary ones between them.
pub fn add_sidecars(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "cpu", &["1", "2", "4"]);
    pods(rng, scenario, |rng, pod| {
        for _ in 0..1 + rng.below(2) {
            init_container(rng, pod, Some("Always"));
            if chance(rng, 40) {
                init_container(rng, pod, None);
            }
        }
    });
}

fn init_container(rng: &mut Rng, pod: &mut Value, restart: Option<&str>) {
    let inits = list(pod, &["spec", "initContainers"]);
    let mut container = json!({
        "name": format!("i{}", inits.len()),
        "image": "example.invalid/i",
        "resources": {"requests": {}, "limits": {}},
    });
    if let Some(policy) = restart {
        container["restartPolicy"] = json!(policy);
    }
    request(&mut container, "cpu", pick(rng, &CPU));
    if chance(rng, 50) {
        request(&mut container, "memory", pick(rng, &MEMORY));
    }
    inits.push(container);
}

pub fn strip_init(object: &mut Value, role: Role) {
    keep_init(object, role, |container| container.get("restartPolicy").is_some());
}

pub fn strip_sidecars(object: &mut Value, role: Role) {
    keep_init(object, role, |container| container.get("restartPolicy").is_none());
}

fn keep_init(object: &mut Value, role: Role, keep: impl Fn(&Value) -> bool) {
    if role != Role::Node
        && let Some(inits) = object.pointer_mut("/spec/initContainers").and_then(Value::as_array_mut)
    {
        inits.retain(keep);
    }
}

pub fn add_overhead(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "cpu", &["500m", "1", "2", "4"]);
    pods(rng, scenario, |rng, pod| {
        pod["spec"]["runtimeClassName"] = json!(pick(rng, &["light", "heavy"]));
        ask(rng, pod, "cpu", &CPU);
    });
}

pub fn strip_overhead(object: &mut Value, _: Role) {
    remove(object, "/spec/overhead");
}

/// Amounts for the pod as a whole, above the sum of its containers.
pub fn add_pod_level(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "cpu", &["1", "2", "4", "6"]);
    pods(rng, scenario, |rng, pod| {
        // Replaced, the sum would still be that of before.
        remove(pod, "/spec/resources");
        let (cpu_milli, memory) = sum(pod);
        let mut requests = json!({});
        if chance(rng, 80) {
            requests["cpu"] = json!(format!("{}m", cpu_milli + rng.below(5) * 500));
        }
        if requests.get("cpu").is_none() || chance(rng, 50) {
            requests["memory"] = json!((memory + (1 + rng.below(4)) * (300 << 20)).to_string());
        }
        pod["spec"]["resources"] = json!({"requests": requests});
    });
}

/// What the pod's containers ask for together, in thousandths of a core and bytes.
fn sum(pod: &Value) -> (u64, u64) {
    let view: PodView = serde_json::from_value(pod.clone()).expect("a generated pod can be read");
    let mut interner = Interner::default();
    let id = pod_id(&view, &mut interner);
    let read = convert_pod(&view, id, &mut interner).expect("a generated pod can be converted");
    (read.spec.requests.cpu_milli, read.spec.requests.memory)
}

pub fn strip_pod_level(object: &mut Value, role: Role) {
    // A claim has resources, too.
    if role != Role::Storage {
        remove(object, "/spec/resources");
    }
}

/// Bound pods whose containers hold something else than they ask for. As kubelet does, the statuses repeat what cannot be
/// resized: without that kube-scheduler forgets it where a resize is infeasible, and we do not.
pub fn add_resize(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "cpu", &["1", "2", "3"]);
    some(rng, &mut scenario.pods, 60, |rng, pod| ask(rng, pod, "cpu", &CPU));
    some(rng, &mut scenario.bound, 80, |rng, pod| {
        ask(rng, pod, "cpu", &CPU);
        for container in list(pod, &["spec", "containers"]).clone() {
            let mut amounts = || {
                let mut amounts = container["resources"]["requests"].clone();
                amounts["cpu"] = json!(pick(rng, &CPU));
                amounts["memory"] = json!(pick(rng, &MEMORY));
                amounts
            };
            let (granted, in_force) = (amounts(), amounts());
            list(pod, &["status", "containerStatuses"]).push(json!({
                "name": container["name"], "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": granted,
                "resources": {"requests": in_force},
            }));
        }
        if chance(rng, 50) {
            let reason = pick(rng, &["Deferred", "Infeasible"]);
            let kind = pick(rng, &["PodResizePending", "PodResizeInProgress"]);
            list(pod, &["status", "conditions"])
                .push(json!({"type": kind, "status": "True", "reason": reason}));
        }
    });
}

pub fn strip_resize(object: &mut Value, _: Role) {
    remove(object, "/status/containerStatuses");
}

/// Pods that have ended and hold nothing any more, though they ask for much.
pub fn add_finished(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "cpu", &["1", "2", "3"]);
    some(rng, &mut scenario.pods, 60, |rng, pod| ask(rng, pod, "cpu", &CPU));
    some(rng, &mut scenario.bound, 50, |rng, pod| {
        ask(rng, pod, "cpu", &CPU);
        pod["status"]["phase"] = json!(pick(rng, &["Succeeded", "Failed"]));
    });
}

pub fn strip_finished(object: &mut Value, role: Role) {
    if role == Role::Bound {
        object["status"]["phase"] = json!("Running");
    }
}
