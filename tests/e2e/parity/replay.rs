//! One scenario through both schedulers: each pod's verdicts compared, then the pod forced to the same node in both.

use std::fmt;

use anyhow::Result;
use serde_json::Value;

use super::ours::Ours;
use super::peer::{Attempt, Peer};
use super::predicates::has_unbound;
use super::scenario::{Scenario, text};
use super::verdict::Verdict;

/// A run of a scenario, with the objects as the API server has them.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    pub storage: Vec<Value>,
    pub nodes: Vec<Value>,
    pub bound: Vec<Value>,
    pub steps: Vec<Step>,
}

/// One attempt to place a pod.
#[derive(Clone, Debug)]
pub struct Step {
    pub pod: Value,
    pub theirs: Verdict,
    pub ours: Verdict,
    /// The pod once bound; none if it is not.
    pub placed: Option<Value>,
}

impl Replay {
    /// The step on which both disagree; it is the last.
    pub fn disagreement(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.theirs != step.ours)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = text(&self.pod, "/metadata/name");
        write!(f, "{name}\n  kube-scheduler: {}\n  ours:           {}", self.theirs, self.ours)
    }
}

/// Runs a scenario up to its end or the first disagreement, and clears up behind it.
pub async fn replay(peer: &mut Peer, scenario: &Scenario) -> Result<Replay> {
    let outcome = run(peer, scenario).await;
    peer.clear().await?;
    outcome
}

async fn run(peer: &mut Peer, scenario: &Scenario) -> Result<Replay> {
    let mut ours = Ours::new()?;
    let mut replay = Replay {
        storage: peer.create_storage(&scenario.storage).await?,
        nodes: peer.create_nodes(&scenario.nodes).await?,
        bound: peer.create_bound(&scenario.bound).await?,
        steps: Vec::new(),
    };
    replay.storage.iter().try_for_each(|object| ours.apply_storage(object))?;
    replay.nodes.iter().try_for_each(|node| ours.apply_node(node))?;
    replay.bound.iter().try_for_each(|pod| ours.apply_pod(pod))?;
    peer.catch_up(scenario.nodes.len()).await?;

    for pod in &scenario.pods {
        let mut pod = peer.create_pod(pod).await?;
        if pod.pointer("/spec/schedulingGates").is_some() {
            // A later pod has been tried when this returns; the gated one was passed by.
            peer.catch_up(scenario.nodes.len()).await?;
            let ours = ours.examine(&pod)?;
            replay.steps.push(Step { pod: pod.clone(), theirs: Verdict::Gated, ours, placed: None });
            pod = peer.lift_gates(&pod).await?;
        }
        let step = step(peer, &mut ours, scenario, pod).await?;
        replay.steps.push(step);
        if replay.disagreement().is_some() {
            break;
        }
    }
    Ok(replay)
}

async fn step(peer: &mut Peer, ours: &mut Ours, scenario: &Scenario, pod: Value) -> Result<Step> {
    let verdict = ours.examine(&pod)?;
    let call = match peer.attempt(&pod).await? {
        Attempt::Refused(why) => {
            peer.delete_pod(&pod).await?;
            return Ok(Step { pod, theirs: Verdict::Refused(why), ours: verdict, placed: None });
        }
        Attempt::Feasible(call) => call,
    };
    let theirs = Verdict::Feasible(call.nodes.clone());
    let both: Vec<_> = call.nodes.iter().map(String::as_str).filter(|node| verdict.admits(node)).collect();
    let chosen = scenario.choose(text(&pod, "/metadata/name"), &both).map(str::to_owned);
    // Nobody here binds the claims that such a pod would have to wait for.
    let placed = match chosen.as_ref().filter(|_| !has_unbound(&pod)) {
        Some(node) => {
            call.answer(node);
            Some(peer.wait_bound(&pod, node).await?)
        }
        None => {
            peer.dismiss(&pod, call).await?;
            None
        }
    };
    placed.iter().try_for_each(|pod| ours.apply_pod(pod))?;
    Ok(Step { pod, theirs, ours: verdict, placed })
}
