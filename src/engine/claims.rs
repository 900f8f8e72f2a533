//! Claims that wait for their first consumer: what happens between the choice of a node and the bind.
//!
//! ```text
//!                 node chosen              all written             all claims bound
//!   (in flight) ──────────────► Writing ──────────────► Binding ───────────────────► Ready ──► bind
//!                                  │                       │                           (at the next tick)
//!                                  │ refused               │ undone, impossible, or not within BIND_TIMEOUT
//!                                  └───────────────────────┴──► back-off; its place and its volumes are free again
//! ```
//!
//! Invariants:
//! - A pod counts on its node, and its claims count as meant for it, from the choice on until the bind is answered or given up.
//! - Nothing of this has to survive the process: what was written stands in the API (`selected-node`, `claimRef`), and whoever
//!   leads next finds that such a claim allows that node or volume alone.
//! - Nothing is under way that could bind the pod before it is ready, so until then it may be given up at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Engine, record_moves, report};
use crate::cache::{NodeIndex, Storage};
use crate::cycle::{assign, is_reachable};
use crate::effect::{Binding, ClaimWrite, ClaimWrites, Effect, UnschedulableReason};
use crate::fact::{Fact, QueueCause, QueueName};
use crate::model::{ClaimKey, DevicePlacement, Node, NodeName, Pod, PodId, PodUid, StorageKey, Time};
use crate::queue::News;

/// kube-scheduler waits as long by default (`bindTimeoutSeconds`).
const BIND_TIMEOUT: Duration = Duration::from_secs(600);

/// The pods between the choice of a node and their bind.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pods: BTreeMap<PodUid, Waiting>,
    /// Those whose claims are bound.
    ready: VecDeque<PodUid>,
    attempts: u64,
}

/// A pod whose claims are not bound yet.
#[derive(Debug)]
struct Waiting {
    attempt: u64,
    pod: PodId,
    node: NodeName,
    placements: Vec<DevicePlacement>,
    steps: Vec<Step>,
    state: State,
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Writing,
    Binding,
    Ready,
}

/// What one claim waits for.
#[derive(Debug)]
struct Step {
    claim: ClaimKey,
    /// The volume that is to be its own; `None` if one is made.
    volume: Option<Arc<str>>,
    /// The version of the volume, or else of the claim, from which on it shows what was written.
    version: u64,
    /// Whether it has to be written.
    writes: bool,
}

/// How it stands with a claim or a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stand {
    Bound,
    NotYet,
    /// It will not be bound, for this reason.
    Failed(String),
}

impl Claims {
    /// When the next pod is to be bound or given up.
    pub(super) fn next_due(&self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(Time::ZERO);
        }
        self.pods.values().map(|waiting| waiting.until).min()
    }
}

impl Engine {
    /// A node is chosen for the pod, which counts there. Whether its claims have to be bound first; then that begins.
    pub(super) fn begin_claims(
        &mut self,
        now: Time,
        pod: &Pod,
        at: NodeIndex,
        placements: &[DevicePlacement],
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(uses) = pod.volumes.as_deref() else { return false };
        let (keys, claims): (Vec<_>, Vec<_>) =
            self.cache.storage().waiting_claims(&pod.id.namespace, uses).into_iter().unzip();
        let Some(node) = self.cache.at(at).node().filter(|_| !keys.is_empty()) else { return false };
        let name = node.name.clone();
        // The node was found feasible a moment ago by the same rule.
        let (volumes, problem) = match assign(self.cache.storage(), &claims, node) {
            Ok(volumes) => (volumes, None),
            Err(reason) => (Vec::new(), Some(reason.to_string())),
        };
        let (mut steps, mut writes) = (Vec::new(), Vec::new());
        for (claim, volume) in keys.into_iter().zip(volumes) {
            let write = write(self.cache.storage(), &claim, volume.as_ref(), &name);
            let change = self.cache.assume_claim(&claim, &name, volume.as_ref());
            self.follow_storage(now, &change, effects);
            steps.push(Step { claim, volume, version: 0, writes: write.is_some() });
            writes.extend(write);
        }
        self.claims.attempts += 1;
        let attempt = self.claims.attempts;
        let state = if writes.is_empty() { State::Binding } else { State::Writing };
        let (id, until) = (pod.id.clone(), now + BIND_TIMEOUT);
        let placements = placements.to_vec();
        let waiting =
            Waiting { attempt, pod: id.clone(), node: name.clone(), placements, steps, state, until };
        self.claims.pods.insert(id.uid.clone(), waiting);
        match (state, problem) {
            (_, Some(why)) => self.give_up(now, &id.uid, &why, effects),
            (State::Writing, _) => {
                effects.push(Effect::WriteClaims(ClaimWrites { pod: id, node: name, attempt, writes }))
            }
            _ => self.look_at_claims(now, &id.uid, effects),
        }
        true
    }

    /// The answer to what was asked to be written. One that comes late means nothing.
    pub(super) fn claims_written(
        &mut self,
        now: Time,
        uid: &PodUid,
        attempt: u64,
        outcome: Result<Vec<u64>, String>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(waiting) = self.claims.pods.get_mut(uid).filter(|waiting| waiting.attempt == attempt) else {
            return;
        };
        match outcome {
            Ok(versions) => {
                let written = waiting.steps.iter_mut().filter(|step| step.writes);
                written.zip(versions).for_each(|(step, version)| step.version = version);
                waiting.state = State::Binding;
                self.look_at_claims(now, uid, effects);
            }
            Err(why) => self.give_up(now, uid, &why, effects),
        }
    }

    /// An object of storage was shown, or is gone: looks at the pods that wait for that claim or volume.
    pub(super) fn follow_claims(&mut self, now: Time, key: &StorageKey, effects: &mut Vec<Effect>) {
        let storage = self.cache.storage();
        let concerned = |step: &Step| match key {
            StorageKey::Claim(claim) => step.claim == *claim,
            StorageKey::Volume(volume) => {
                let bound = || storage.claim(&step.claim).and_then(|claim| claim.volume.as_ref());
                step.volume.as_ref() == Some(volume) || bound() == Some(volume)
            }
            _ => false,
        };
        let pods =
            self.claims.pods.iter().filter(|(_, waiting)| {
                waiting.state == State::Binding && waiting.steps.iter().any(concerned)
            });
        let uids: Vec<_> = pods.map(|(uid, _)| uid.clone()).collect();
        uids.iter().for_each(|uid| self.look_at_claims(now, uid, effects));
    }

    /// A node is gone: whoever was to go there has to look for another.
    pub(super) fn leave_node(&mut self, now: Time, node: &NodeName, effects: &mut Vec<Effect>) {
        let there = self.claims.pods.iter().filter(|(_, waiting)| waiting.node == *node);
        let uids: Vec<_> = there.map(|(uid, _)| uid.clone()).collect();
        let why = format!("failed to get node \"{node}\": node \"{node}\" not found");
        uids.iter().for_each(|uid| self.give_up(now, uid, &why, effects));
    }

    /// Binds pods whose claims are bound, `budget` at most, and gives up those that have waited too long. Returns what is left of
    /// the budget.
    pub(super) fn bind_ready(&mut self, now: Time, mut budget: usize, effects: &mut Vec<Effect>) -> usize {
        while budget > 0
            && let Some(uid) = self.claims.ready.pop_front()
        {
            let Some(waiting) = self.claims.pods.remove(&uid) else { continue };
            budget -= 1;
            let Waiting { pod, node, placements, .. } = waiting;
            effects.push(Effect::Bind(Binding { pod, node, placements }));
        }
        let late = self.claims.pods.iter().filter(|(_, waiting)| waiting.until <= now);
        let late: Vec<_> = late.map(|(uid, _)| uid.clone()).collect();
        late.iter().for_each(|uid| self.give_up(now, uid, "context deadline exceeded", effects));
        budget
    }

    /// Ends the wait of a pod that is gone, or bound by somebody else; it is no more in flight.
    pub(super) fn abandon(&mut self, now: Time, uid: &PodUid, effects: &mut Vec<Effect>) {
        if self.forget_claims(now, uid, effects) {
            drop(self.queue.remove(uid));
        }
    }

    /// Whether the pod waited for its claims, which it does no more.
    pub(super) fn forget_claims(&mut self, now: Time, uid: &PodUid, effects: &mut Vec<Effect>) -> bool {
        let Some(waiting) = self.claims.pods.remove(uid) else { return false };
        self.claims.ready.retain(|ready| ready != uid);
        if waiting.state != State::Ready {
            self.settle_claims(now, waiting.steps, effects);
        }
        true
    }

    /// What was chosen for the claims is in the API by now, or comes to nothing.
    fn settle_claims(&mut self, now: Time, steps: Vec<Step>, effects: &mut Vec<Effect>) {
        for step in steps {
            let change = self.cache.settle_claim(&step.claim, step.volume.as_ref());
            self.follow_storage(now, &change, effects);
        }
    }

    fn look_at_claims(&mut self, now: Time, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.claims.pods.get_mut(uid) else { return };
        let node = self.cache.find(&waiting.node).and_then(|at| self.cache.at(at).node());
        let stand = match node {
            Some(node) => stand(self.cache.storage(), &waiting.steps, node),
            None => return,
        };
        match stand {
            Stand::NotYet => {}
            Stand::Bound => {
                waiting.state = State::Ready;
                let steps = std::mem::take(&mut waiting.steps);
                self.claims.ready.push_back(uid.clone());
                self.settle_claims(now, steps, effects);
            }
            Stand::Failed(why) => self.give_up(now, uid, &why, effects),
        }
    }

    /// The claims will not be bound: the pod is tried again later, and others may have what it held.
    fn give_up(&mut self, now: Time, uid: &PodUid, why: &str, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.claims.pods.get(uid) else { return };
        let (id, node) = (waiting.pod.clone(), waiting.node.clone());
        self.forget_claims(now, uid, effects);
        let message: Arc<str> =
            format!("running PreBind plugin \"VolumeBinding\": binding volumes: {why}").into();
        effects.push(Effect::Fact(Fact::BindFailed { pod: id, node, message: message.to_string() }));
        let pod = self.queue.get(uid).map(|queued| queued.pod.clone());
        if pod.as_ref().is_some_and(|pod| pod.terminating) {
            drop(self.queue.remove(uid));
        } else if let Some(pod) = pod {
            let publish = self.queue.retry(uid, now, &message) == News::Message;
            record_moves(Some((QueueName::Backoff, QueueCause::ScheduleAttemptFailure)), effects);
            effects.push(report(&pod, UnschedulableReason::SchedulerError, &message, publish));
        }
        let left = self.cache.is_assumed(uid).then(|| self.cache.remove_pod(uid)).flatten();
        self.leave(now, left, effects);
    }
}

/// What has to be written so that the claim gets the volume, or one made for the node; `None` if the API says so already.
fn write(
    storage: &Storage,
    claim: &ClaimKey,
    volume: Option<&Arc<str>>,
    node: &NodeName,
) -> Option<ClaimWrite> {
    let known = storage.claim(claim)?;
    let (claim, uid) = (claim.clone(), known.uid.clone());
    let Some(volume) = volume else {
        let version = known.version;
        return (known.selected_node.as_ref() != Some(node)).then_some(ClaimWrite::SelectNode {
            claim,
            uid,
            version,
        });
    };
    let known = storage.volume(volume)?;
    let (volume, version) = (volume.clone(), known.version);
    let reserved = known.claim.as_ref().is_some_and(|(key, kept)| *key == claim && *kept == uid);
    let chosen = known.claim.is_none();
    (!reserved).then_some(ClaimWrite::Reserve { volume, version, claim, uid, chosen })
}

/// How it stands with a pod: the first of its claims that is not bound decides.
fn stand(storage: &Storage, steps: &[Step], node: &Node) -> Stand {
    let stands = steps.iter().map(|step| match &step.volume {
        Some(volume) => given(storage, step, volume, node),
        None => made(storage, step, node),
    });
    stands.into_iter().find(|stand| *stand != Stand::Bound).unwrap_or(Stand::Bound)
}

/// A claim that was given a volume.
fn given(storage: &Storage, step: &Step, name: &Arc<str>, node: &Node) -> Stand {
    let missing = |kind: &str, name: &str| {
        Stand::Failed(format!("failed to check binding: {kind} \"{name}\" not found"))
    };
    let Some(volume) = storage.volume(name) else { return missing("persistentvolumes", name) };
    let Some(claim) = storage.claim(&step.claim) else {
        return missing("persistentvolumeclaims", &step.claim.name);
    };
    if volume.version < step.version {
        return Stand::NotYet;
    }
    if !is_reachable(volume.affinity.as_deref(), node) {
        return Stand::Failed(unreachable(name, node));
    }
    if volume.claim.as_ref().is_none_or(|(_, uid)| uid.is_empty()) {
        return Stand::Failed(format!("ClaimRef got reset for pv \"{name}\""));
    }
    if claim.is_bound() { Stand::Bound } else { Stand::NotYet }
}

/// A claim for which a volume is made.
fn made(storage: &Storage, step: &Step, node: &Node) -> Stand {
    let name = &step.claim.name;
    let Some(claim) = storage.claim(&step.claim) else {
        let why = format!("failed to check provisioning pvc: persistentvolumeclaims \"{name}\" not found");
        return Stand::Failed(why);
    };
    if claim.version < step.version {
        return Stand::NotYet;
    }
    if claim.selected_node.as_ref() != Some(&node.name) {
        // Whoever makes volumes takes the annotation away to say that it cannot.
        return Stand::Failed(format!("provisioning failed for PVC \"{name}\""));
    }
    let Some(volume) = &claim.volume else { return Stand::NotYet };
    let Some(known) = storage.volume(volume) else { return Stand::NotYet };
    if !is_reachable(known.affinity.as_deref(), node) {
        return Stand::Failed(unreachable(volume, node));
    }
    if claim.is_bound() { Stand::Bound } else { Stand::NotYet }
}

fn unreachable(volume: &str, node: &Node) -> String {
    let node = &node.name;
    format!("pv \"{volume}\" node affinity doesn't match node \"{node}\": no matching NodeSelectorTerms")
}
