//! What a run has shown: how many verdicts of each kind, and for each predicate the scenarios in which it alone decides.
//!
//! A predicate alone decides about a node if the verdict on it would be the other one without the predicate. That is found by
//! asking the scheduler under test again, with the predicate taken out of every object and each pod put where it went in the
//! real run; its answers are those of kube-scheduler by then.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::ours::Ours;
use super::predicates::{PREDICATES, Predicate, Role};
use super::replay::Replay;
use super::verdict::Verdict;

/// Scenarios in which each predicate has to decide alone, in a full run.
const LEAST: usize = 20;
/// Infeasible verdicts of a hundred, in a full run.
const INFEASIBLE: std::ops::RangeInclusive<usize> = 30..=70;

#[derive(Debug, Default)]
pub struct Tally {
    scenarios: usize,
    pods: usize,
    refusals: usize,
    verdicts: usize,
    infeasible: usize,
    predicates: BTreeMap<&'static str, Decided>,
}

/// Scenarios in which a predicate alone decides about a node, at least once.
#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    /// The node is refused because of it.
    refuses: usize,
    /// The node is feasible because of it.
    admits: usize,
}

impl Tally {
    pub fn add(&mut self, replay: &Replay) -> Result<()> {
        self.scenarios += 1;
        for step in &replay.steps {
            let feasible = replay.nodes.iter().filter(|node| step.ours.admits(name(node))).count();
            self.pods += 1;
            self.refusals += usize::from(matches!(step.ours, Verdict::Refused(_)));
            self.verdicts += replay.nodes.len();
            self.infeasible += replay.nodes.len() - feasible;
        }
        for predicate in PREDICATES.iter().filter(|predicate| predicate.supported) {
            let (refuses, admits) = decides(predicate, replay)?;
            let decided = self.predicates.entry(predicate.name).or_default();
            decided.refuses += usize::from(refuses);
            decided.admits += usize::from(admits);
        }
        Ok(())
    }

    /// Infeasible verdicts of a hundred.
    pub fn infeasible_percent(&self) -> usize {
        100 * self.infeasible / self.verdicts.max(1)
    }

    /// Fails if the run was too kind to show anything, and where what is never to decide has decided.
    pub fn check(&self) -> Result<()> {
        let percent = self.infeasible_percent();
        ensure!(INFEASIBLE.contains(&percent), "{percent} % of the verdicts are infeasible");
        for predicate in PREDICATES.iter().filter(|predicate| predicate.supported) {
            let Decided { refuses, admits } =
                self.predicates.get(predicate.name).copied().unwrap_or_default();
            let (name, most) = (predicate.name, refuses.max(admits));
            ensure!(!predicate.decides || most >= LEAST, "{name} decided alone in only {most} scenarios");
            ensure!(predicate.decides || most == 0, "{name} decided, in {most} scenarios");
        }
        Ok(())
    }

    /// The whole tally, on one line when printed.
    pub fn summary(&self) -> Value {
        let decided = self.predicates.iter().map(|(name, decided)| {
            ((*name).to_owned(), json!({"refuses": decided.refuses, "admits": decided.admits}))
        });
        json!({
            "scenarios": self.scenarios,
            "pods": self.pods,
            "refusals_compared": self.refusals,
            "verdicts": self.verdicts,
            "infeasible_percent": self.infeasible_percent(),
            "alone_decides_in_scenarios": decided.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn name(object: &Value) -> &str {
    super::scenario::text(object, "/metadata/name")
}

/// Whether the predicate alone refuses a node to a pod anywhere in the run, and whether it alone admits one.
fn decides(predicate: &Predicate, replay: &Replay) -> Result<(bool, bool)> {
    let without = |object: &Value, role| {
        let mut object = object.clone();
        (predicate.strip)(&mut object, role);
        object
    };
    let mut ours = Ours::new()?;
    let mut differs = false;
    for object in &replay.storage {
        let stripped = without(object, Role::Storage);
        differs |= stripped != *object;
        ours.apply_storage(&stripped)?;
    }
    for node in &replay.nodes {
        let stripped = without(node, Role::Node);
        differs |= stripped != *node;
        ours.apply_node(&stripped)?;
    }
    for pod in &replay.bound {
        let stripped = without(pod, Role::Bound);
        differs |= stripped != *pod;
        ours.apply_pod(&stripped)?;
    }
    let (mut refuses, mut admits) = (false, false);
    for step in &replay.steps {
        let stripped = without(&step.pod, Role::Incoming);
        differs |= stripped != step.pod;
        if differs {
            let verdict = ours.examine(&stripped)?;
            for node in replay.nodes.iter().map(name) {
                refuses |= !step.ours.admits(node) && verdict.admits(node);
                admits |= step.ours.admits(node) && !verdict.admits(node);
            }
        }
        if let Some(placed) = &step.placed {
            let stripped = without(placed, Role::Bound);
            differs |= stripped != *placed;
            ours.apply_pod(&stripped)?;
        }
    }
    Ok((refuses, admits))
}
