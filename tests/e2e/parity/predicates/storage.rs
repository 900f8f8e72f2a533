//! Volumes: the node affinity and zone of a bound one, those that wait for their first consumer, how many a node can attach,
//! and claims that one pod has to itself.

use mig_scheduler::sim::rng::Rng;
use serde_json::{Value, json};

use super::super::peer::{DRIVER, PROVISIONED, WAITING};
use super::super::scenario::{Scenario, chance, list, pick, remove, text};
use super::Role;

const ZONE: &str = "topology.kubernetes.io/zone";

/// A claim of the pod's namespace, and the pod mounts it.
fn mount(pod: &mut Value, claim: &str) {
    let volumes = list(pod, &["spec", "volumes"]);
    let name = format!("v{}", volumes.len());
    volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}));
}

fn claim(pod: &Value, name: &str, class: &str) -> Value {
    json!({
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": text(pod, "/metadata/namespace")},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": class,
        },
    })
}

fn volume(name: &str) -> Value {
    json!({
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": WAITING,
            "csi": {"driver": DRIVER, "volumeHandle": name},
        },
    })
}

/// Joins a claim to a volume as the controller does, and adds both.
fn bind(scenario: &mut Scenario, mut claim: Value, mut volume: Value) {
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
    volume["spec"]["claimRef"] =
        json!({"namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"]});
    scenario.storage.extend([volume, claim]);
}

/// A bound volume of its own for some of the pods, bound or to place.
fn bound_volumes(
    rng: &mut Rng,
    scenario: &mut Scenario,
    prefix: &str,
    bound_pods: bool,
    change: impl Fn(&mut Rng, &mut Value),
) {
    let mut pods = std::mem::take(&mut scenario.pods);
    let mut bound = std::mem::take(&mut scenario.bound);
    let others = if bound_pods { &mut bound[..] } else { &mut [] };
    for pod in pods.iter_mut().chain(others) {
        if chance(rng, 60) {
            let name = format!("{prefix}-{}", text(pod, "/metadata/name"));
            let mut volume = volume(&name);
            change(rng, &mut volume);
            bind(scenario, claim(pod, &name, WAITING), volume);
            mount(pod, &name);
        }
    }
    (scenario.pods, scenario.bound) = (pods, bound);
}

fn confine(volume: &mut Value, key: &str, values: &[&str]) {
    let expressions = json!([{"key": key, "operator": "In", "values": values}]);
    volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] =
        json!([{"matchExpressions": expressions}]);
}

pub fn add_bound(rng: &mut Rng, scenario: &mut Scenario) {
    bound_volumes(rng, scenario, "affine", false, |rng, volume| match rng.below(3) {
        0 => confine(volume, "kubernetes.io/hostname", &["n0", "n2", "n4"]),
        1 => confine(volume, ZONE, &["a"]),
        _ => confine(volume, ZONE, &["b", "c"]),
    });
}

pub fn strip_bound(object: &mut Value, role: Role) {
    if role == Role::Storage && object.pointer("/spec/claimRef").is_some() {
        remove(object, "/spec/nodeAffinity");
    }
}

pub fn add_zones(rng: &mut Rng, scenario: &mut Scenario) {
    bound_volumes(rng, scenario, "zonal", false, |rng, volume| {
        volume["metadata"]["labels"][ZONE] = json!(pick(rng, &["a", "b", "a__b"]));
    });
}

pub fn strip_zones(object: &mut Value, role: Role) {
    if role == Role::Storage {
        remove(object, "/metadata/labels");
    }
}

/// Claims that no volume is bound to: some find one that lies ready, for some one would be made. Such a pod is not placed,
/// since nobody here binds volumes.
pub fn add_unbound(rng: &mut Rng, scenario: &mut Scenario) {
    for at in 0..2 + rng.below(3) {
        let mut volume = volume(&format!("ready-{at}"));
        volume["spec"]["capacity"]["storage"] = json!(pick(rng, &["500Mi", "1Gi", "2Gi"]));
        let zone = pick(rng, &["a", "b", "c"]);
        confine(&mut volume, ZONE, &[zone]);
        scenario.storage.push(volume);
    }
    let mut pods = std::mem::take(&mut scenario.pods);
    for pod in &mut pods {
        if chance(rng, 50) {
            let name = format!("unbound-{}", text(pod, "/metadata/name"));
            scenario.storage.push(claim(pod, &name, pick(rng, &[WAITING, WAITING, PROVISIONED])));
            mount(pod, &name);
        }
    }
    scenario.pods = pods;
}

pub fn strip_unbound(object: &mut Value, _: Role) {
    if let Some(volumes) = object.pointer_mut("/spec/volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| !text(volume, "/persistentVolumeClaim/claimName").starts_with("unbound-"));
    }
}

/// Whether a claim of the pod waits for it. (Generated claims say so by their names.)
pub fn has_unbound(pod: &Value) -> bool {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    let mut claims = volumes.map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    claims.any(|claim| claim.starts_with("unbound-"))
}

/// Volumes that are yet to be made, where their driver has room for them.
pub fn add_capacity(rng: &mut Rng, scenario: &mut Scenario) {
    let driver =
        json!({"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": true}});
    scenario.storage.push(driver);
    for zone in ["a", "b", "c"] {
        scenario.storage.push(json!({
            "kind": "CSIStorageCapacity",
            "metadata": {"name": format!("room-{zone}"), "namespace": "default"},
            "storageClassName": PROVISIONED,
            "nodeTopology": {"matchLabels": {ZONE: zone}},
            "capacity": pick(rng, &["500Mi", "500Mi", "10Gi"]),
        }));
    }
    let mut pods = std::mem::take(&mut scenario.pods);
    for pod in &mut pods {
        if chance(rng, 50) {
            let name = format!("unbound-new-{}", text(pod, "/metadata/name"));
            scenario.storage.push(claim(pod, &name, PROVISIONED));
            mount(pod, &name);
        }
    }
    scenario.pods = pods;
}

pub fn strip_capacity(object: &mut Value, role: Role) {
    if role == Role::Storage && object["kind"] == "CSIDriver" {
        object["spec"]["storageCapacity"] = json!(false);
    }
}

pub fn add_limits(rng: &mut Rng, scenario: &mut Scenario) {
    for node in &scenario.nodes {
        let name = text(node, "/metadata/name");
        let driver =
            json!({"name": DRIVER, "nodeID": name, "allocatable": {"count": pick(rng, &[1, 1, 2, 4])}});
        let drivers = if chance(rng, 80) { vec![driver] } else { Vec::new() };
        let node = json!({"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}});
        scenario.storage.push(node);
    }
    bound_volumes(rng, scenario, "attached", true, |_, _| {});
}

pub fn strip_limits(object: &mut Value, role: Role) {
    if role == Role::Storage && object["kind"] == "CSINode" {
        object["spec"]["drivers"] = json!([]);
    }
}

/// Claims for one pod alone, of which some are mounted already.
pub fn add_exclusive(rng: &mut Rng, scenario: &mut Scenario) {
    let mut pods = std::mem::take(&mut scenario.pods);
    for pod in &mut pods {
        if !chance(rng, 40) {
            continue;
        }
        let name = format!("exclusive-{}", text(pod, "/metadata/name"));
        let mut claim = claim(pod, &name, WAITING);
        claim["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        mount(pod, &name);
        let namespace = text(pod, "/metadata/namespace");
        let mut neighbours =
            scenario.bound.iter_mut().filter(|bound| text(bound, "/metadata/namespace") == namespace);
        if let Some(neighbour) = neighbours.next()
            && chance(rng, 60)
        {
            mount(neighbour, &name);
        }
        bind(scenario, claim, volume(&name));
    }
    scenario.pods = pods;
}

pub fn strip_exclusive(object: &mut Value, role: Role) {
    if role == Role::Storage && object["kind"] == "PersistentVolumeClaim" {
        object["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    }
}
