//! Makes a scenario that disagrees as small as it can while it still does: leaves out pods and nodes, then fields.
//!
//! Every attempt is a run on the real control plane. What the API server refuses does not count as a disagreement.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::time::Instant;

use super::peer::{Peer, is_invalid};
use super::replay::{Step, replay};
use super::scenario::Scenario;
use super::verdict::Verdict;

/// A case that is not small by then has to be read as it is.
const LIMIT: Duration = Duration::from_secs(120);

/// What has to stay the same: which kind of verdict each side gave.
type Kind = (Discriminant<Verdict>, Discriminant<Verdict>);

fn kind(step: &Step) -> Kind {
    (discriminant(&step.theirs), discriminant(&step.ours))
}

/// The smallest scenario found that disagrees as `step` does.
pub async fn shrink(peer: &mut Peer, scenario: &Scenario, step: &Step) -> Result<Scenario> {
    let mut shrinker = Shrinker { peer, kind: kind(step), deadline: Instant::now() + LIMIT };
    let mut best = scenario.clone();
    loop {
        let before = best.to_string();
        best = shrinker.drop_objects(best).await?;
        best = shrinker.drop_fields(best).await?;
        if best.to_string() == before || shrinker.is_late() {
            return Ok(best);
        }
    }
}

struct Shrinker<'a> {
    peer: &'a mut Peer,
    kind: Kind,
    deadline: Instant,
}

impl Shrinker<'_> {
    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    async fn still_disagrees(&mut self, scenario: &Scenario) -> Result<bool> {
        match replay(self.peer, scenario).await {
            Ok(replay) => Ok(replay.disagreement().is_some_and(|step| kind(step) == self.kind)),
            Err(error) if is_invalid(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn drop_objects(&mut self, mut best: Scenario) -> Result<Scenario> {
        for part in [pods, bound, nodes, storage] {
            let mut at = part(&mut best).len();
            while at > 0 && !self.is_late() {
                at -= 1;
                let mut smaller = best.clone();
                part(&mut smaller).remove(at);
                if self.still_disagrees(&smaller).await? {
                    best = smaller;
                }
            }
        }
        Ok(best)
    }

    async fn drop_fields(&mut self, mut best: Scenario) -> Result<Scenario> {
        for part in [pods, bound, nodes, storage] {
            for at in 0..part(&mut best).len() {
                let mut paths = Vec::new();
                collect(&part(&mut best)[at], "", &mut paths);
                // From the outside in, and in a list from its end, so that a path stays valid until it is its turn.
                for path in paths {
                    let mut smaller = best.clone();
                    if self.is_late() {
                        return Ok(best);
                    }
                    if drop_at(&mut part(&mut smaller)[at], &path) && self.still_disagrees(&smaller).await? {
                        best = smaller;
                    }
                }
            }
        }
        Ok(best)
    }
}

fn pods(scenario: &mut Scenario) -> &mut Vec<Value> {
    &mut scenario.pods
}

fn bound(scenario: &mut Scenario) -> &mut Vec<Value> {
    &mut scenario.bound
}

fn nodes(scenario: &mut Scenario) -> &mut Vec<Value> {
    &mut scenario.nodes
}

fn storage(scenario: &mut Scenario) -> &mut Vec<Value> {
    &mut scenario.storage
}

/// The paths of everything inside a value.
fn collect(value: &Value, path: &str, paths: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(field, value)| (field.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().rev().map(|(at, item)| (at.to_string(), item)).collect()
        }
        _ => return,
    };
    for (name, child) in children {
        let path = format!("{path}/{name}");
        paths.push(path.clone());
        collect(child, &path, paths);
    }
}

/// Takes out what lies at a path. False where nothing does (any more).
fn drop_at(value: &mut Value, path: &str) -> bool {
    let Some((parent, name)) = path.rsplit_once('/') else { return false };
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => fields.remove(&name.replace("~1", "/").replace("~0", "~")).is_some(),
        Some(Value::Array(items)) => match name.parse() {
            Ok(at) if at < items.len() => {
                items.remove(at);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

#[test]
fn every_part_of_a_value_can_be_dropped() {
    let value = serde_json::json!({"a/b": [1, {"c": 2}], "d": 3});
    let mut paths = Vec::new();
    collect(&value, "", &mut paths);
    assert_eq!(paths, ["/a~1b", "/a~1b/1", "/a~1b/1/c", "/a~1b/0", "/d"]);
    let mut left = value;
    assert!(drop_at(&mut left, "/a~1b/1/c") && drop_at(&mut left, "/a~1b/0") && !drop_at(&mut left, "/x"));
    assert_eq!(left, serde_json::json!({"a/b": [{}], "d": 3}));
}
