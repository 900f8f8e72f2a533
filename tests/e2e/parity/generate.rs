//! Random scenarios: a cluster with room for everything, to which chosen predicates are then added.
//!
//! Each scenario has a few of the predicates only. With all of them at once a node would be refused for so many reasons that
//! none of them could be told to matter.

use mig_scheduler::sim::rng::Rng;
use serde_json::{Value, json};

use super::SCHEDULER;
use super::peer::NAMESPACES;
use super::predicates::{PREDICATES, Predicate};
use super::scenario::{Scenario, chance, pick};

/// Predicates in one scenario, at least and at most.
const TOGETHER: (u64, u64) = (1, 4);

/// The scenario of a seed.
pub fn generate(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 0);
    let mut scenario = cluster(&mut rng, seed);
    for predicate in choose(&mut rng) {
        (predicate.add)(&mut rng, &mut scenario);
    }
    scenario
}

/// Some of the predicates that are supported, in the table's order.
fn choose(rng: &mut Rng) -> Vec<&'static Predicate> {
    let mut left: Vec<_> = PREDICATES.iter().filter(|predicate| predicate.supported).collect();
    let count = TOGETHER.0 + rng.below(TOGETHER.1 - TOGETHER.0 + 1);
    let surplus = left.len().saturating_sub(count as usize);
    for _ in 0..surplus {
        left.remove(rng.below(left.len() as u64) as usize);
    }
    left
}

/// 6 to 12 nodes with plenty of everything, 6 to 14 pods on them and 6 to 10 to place.
fn cluster(rng: &mut Rng, seed: u64) -> Scenario {
    let nodes: Vec<Value> = (0..6 + rng.below(7)).map(|at| node(rng, at)).collect();
    let bound = (0..6 + rng.below(9)).map(|at| {
        let mut bound = pod(rng, &format!("b{at}"));
        bound["spec"]["nodeName"] = json!(format!("n{}", rng.below(nodes.len() as u64)));
        bound["spec"]["schedulerName"] = json!(pick(rng, &[SCHEDULER, "another"]));
        bound
    });
    let bound = bound.collect();
    let pods = (0..6 + rng.below(5)).map(|at| pod(rng, &format!("p{at}"))).collect();
    Scenario { seed, nodes, bound, pods, storage: Vec::new() }
}

fn node(rng: &mut Rng, at: u64) -> Value {
    let name = format!("n{at}");
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "rack": pick(rng, &["1", "2", "3", "10", "r4"]),
        "tier": pick(rng, &["gold", "silver", "bronze", ""]),
    });
    if chance(rng, 90) {
        labels["topology.kubernetes.io/zone"] = json!(pick(rng, &["a", "b", "c"]));
    }
    if chance(rng, 30) {
        labels["dedicated"] = json!("yes");
    }
    let amounts = json!({"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    })
}

fn pod(rng: &mut Rng, name: &str) -> Value {
    let namespace = match rng.below(4) {
        0 => NAMESPACES[1].0,
        1 => NAMESPACES[2].0,
        _ => NAMESPACES[0].0,
    };
    let labels = json!({
        "app": pick(rng, &["a", "b", "c"]),
        "version": pick(rng, &["1", "2"]),
    });
    let containers = (0..1 + rng.below(2)).map(|at| {
        json!({
            "name": format!("c{at}"),
            "image": "example.invalid/c",
            "resources": {"requests": {"cpu": "10m"}, "limits": {}},
        })
    });
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "containers": containers.collect::<Vec<_>>(),
        },
    })
}
