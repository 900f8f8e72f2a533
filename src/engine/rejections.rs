//! What follows when a kubelet turns away a pod that was bound to its node.
//!
//! Invariant: nobody is kept away from a node without an end to it that [`super::Engine::next_wakeup`] knows.

use super::Engine;
use super::standoff::MEMORY;
use crate::cycle::Occasion;
use crate::effect::Effect;
use crate::event::Rejection;
use crate::fact::{Fact, QueueCause};
use crate::model::{NodeName, PodSpec, Shunned, Time};

/// A kubelet ended a running pod to admit a critical one. That says nothing about pods like it.
const PREEMPTING: &str = "Preempting";

impl Engine {
    /// A kubelet has turned a pod of ours away. What was listed at the start is old news, but may still keep pods away.
    pub(super) fn reject(&mut self, now: Time, rejection: Rejection, effects: &mut Vec<Effect>) {
        let Rejection { pod, node, spec, at, reason, message } = rejection;
        let shunned = Shunned::after(&reason, &spec);
        let telling = reason != PREEMPTING && now.since(at) < MEMORY;
        let pause = if telling { self.standoffs.reject(now, &node, &shunned) } else { None };
        if pause.is_some() {
            self.cache.shun(&node, shunned.clone());
        }
        if self.synced {
            let explanation = match pause {
                Some(pause) => format!(
                    "Node {node} turned the pod away after it was bound ({reason}): {message}; {shunned} are kept off the \
                     node for {}s",
                    pause.as_secs()
                ),
                None => format!("Node {node} turned the pod away after it was bound ({reason}): {message}"),
            };
            effects.push(Effect::ReportRejected { pod: pod.clone(), explanation });
            effects.push(Effect::Fact(Fact::PodRejected { pod, node, reason, message, pause }));
        }
    }

    /// A pod is placed where such pods were turned away before: the others wait until it is known what comes of it.
    pub(super) fn probe(&mut self, now: Time, node: &NodeName, spec: &PodSpec) {
        if self.standoffs.is_empty() {
            return;
        }
        for shunned in self.standoffs.probe(now, node, spec) {
            self.cache.shun(node, shunned);
        }
    }

    /// Time has passed: pods may try again where they were kept away.
    pub(super) fn end_standoffs(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.standoffs.next().is_none_or(|due| due > now) {
            return;
        }
        for (node, shunned) in self.standoffs.pass(now) {
            let Some(at) = self.cache.admit(&node, &shunned) else { continue };
            let occasion = Occasion { roomier: Some(at), ..Occasion::default() };
            self.wake(now, &occasion, QueueCause::StandoffEnd, effects);
        }
    }
}
