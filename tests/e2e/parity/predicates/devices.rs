//! What a node has besides: MIG instances, other extended resources, huge pages and features that it declares.

use mig_scheduler::sim::rng::Rng;
use serde_json::{Value, json};

use super::super::scenario::{Scenario, list, pick, remove};
use super::requests::strip;
use super::{Role, any_container, containers, offer, pods, request, some};

const MIG: [&str; 3] = ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"];
const EXTENDED: [&str; 2] = ["example.com/fpga", "nvidia.com/gpu"];
const HUGE_PAGES: [&str; 2] = ["hugepages-2Mi", "hugepages-1Gi"];

pub fn add_mig(rng: &mut Rng, scenario: &mut Scenario) {
    for profile in MIG {
        offer(rng, scenario, profile, &["0", "1", "2", "4", "7"]);
    }
    pods(rng, scenario, |rng, pod| {
        let amount = pick(rng, &["1", "1", "2", "3"]);
        request(any_container(rng, pod), pick(rng, &MIG), amount);
    });
}

pub fn strip_mig(object: &mut Value, _: Role) {
    MIG.iter().for_each(|resource| strip(object, resource));
}

pub fn add_extended(rng: &mut Rng, scenario: &mut Scenario) {
    // Some nodes do not even name it.
    some(rng, &mut scenario.nodes, 70, |rng, node| {
        let (resource, amount) = (pick(rng, &EXTENDED), pick(rng, &["1", "2", "4"]));
        for part in ["allocatable", "capacity"] {
            node["status"][part][resource] = json!(amount);
        }
    });
    pods(rng, scenario, |rng, pod| {
        let amount = pick(rng, &["1", "1", "2"]);
        request(any_container(rng, pod), pick(rng, &EXTENDED), amount);
    });
}

pub fn strip_extended(object: &mut Value, _: Role) {
    EXTENDED.iter().for_each(|resource| strip(object, resource));
}

pub fn add_huge_pages(rng: &mut Rng, scenario: &mut Scenario) {
    offer(rng, scenario, "hugepages-2Mi", &["0", "4Mi", "8Mi", "64Mi"]);
    offer(rng, scenario, "hugepages-1Gi", &["0", "1Gi", "2Gi"]);
    pods(rng, scenario, |rng, pod| {
        let (resource, amount) =
            pick(rng, &[("hugepages-2Mi", "2Mi"), ("hugepages-2Mi", "6Mi"), ("hugepages-1Gi", "1Gi")]);
        request(any_container(rng, pod), resource, amount);
    });
}

pub fn strip_huge_pages(object: &mut Value, _: Role) {
    HUGE_PAGES.iter().for_each(|resource| strip(object, resource));
}

/// The one feature that v1.36 infers from the spec of a new pod: a container whose exit restarts all of them.
pub fn add_features(rng: &mut Rng, scenario: &mut Scenario) {
    some(rng, &mut scenario.nodes, 70, |rng, node| {
        let known = [
            json!(["RestartAllContainersOnContainerExits"]),
            json!(["GuaranteedQoSPodCPUResize"]),
            json!(["GuaranteedQoSPodCPUResize", "RestartAllContainersOnContainerExits"]),
        ];
        node["status"]["declaredFeatures"] = pick(rng, &known);
    });
    some(rng, &mut scenario.pods, 60, |rng, pod| {
        let container = any_container(rng, pod);
        container["restartPolicy"] = json!("Never");
        list(container, &["restartPolicyRules"]).push(json!({
            "action": "RestartAllContainers",
            "exitCodes": {"operator": "In", "values": [42]},
        }));
    });
}

pub fn strip_features(object: &mut Value, role: Role) {
    if role != Role::Node {
        containers(object).for_each(|container| remove(container, "/restartPolicyRules"));
    }
}
