//! A cluster and the pods to place in it, as the objects that are posted to the API server.
//!
//! Invariant: a scenario is a function of its seed, and what a run of it does besides is drawn from the same seed, so a
//! scenario that once disagreed does so again.

use std::fmt;

use mig_scheduler::sim::rng::Rng;
use serde_json::{Value, json};

/// A cluster, and the pods to place in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub seed: u64,
    pub nodes: Vec<Value>,
    /// Pods that are created with `spec.nodeName`. A `status` is written after them, and one with a `deletionTimestamp` is
    /// deleted with a long grace period.
    pub bound: Vec<Value>,
    /// Pods to place, one after the other.
    pub pods: Vec<Value>,
    /// Volumes, claims, storage classes and CSI nodes, created before the nodes.
    pub storage: Vec<Value>,
}

impl Scenario {
    /// Which of the nodes that both found is taken for a pod, by name. It depends on the seed and the pod alone, so that
    /// leaving out another pod changes little.
    pub fn choose<'a>(&self, pod: &str, nodes: &[&'a str]) -> Option<&'a str> {
        let stream = pod.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let at = Rng::new(self.seed, stream).below(nodes.len() as u64);
        nodes.get(usize::try_from(at).ok()?).copied()
    }
}

/// One object a line, as JSON.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        let parts = [
            ("storage", &self.storage),
            ("nodes", &self.nodes),
            ("bound", &self.bound),
            ("pods", &self.pods),
        ];
        for (part, objects) in parts {
            objects.iter().try_for_each(|object| writeln!(f, "  {part}: {object}"))?;
        }
        Ok(())
    }
}

/// One item of a list, by chance.
pub fn pick<T: Clone>(rng: &mut Rng, items: &[T]) -> T {
    let at = rng.below(items.len() as u64) as usize;
    items[at].clone()
}

/// True in `percent` of a hundred cases.
pub fn chance(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}

/// The array at a path, made where it is missing.
pub fn list<'a>(object: &'a mut Value, pointer: &[&str]) -> &'a mut Vec<Value> {
    let mut at = object;
    for part in pointer {
        at = &mut at[*part];
    }
    if !at.is_array() {
        *at = json!([]);
    }
    at.as_array_mut().expect("an array was just put here")
}

/// Takes a field of a nested object out, where there is one.
pub fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
        parent.remove(field);
    }
}

/// The text at a path; empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
