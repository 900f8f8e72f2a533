//! Pods that their kubelets turned away.
//!
//! kubelet ends such a pod as `Failed` and says so in the message, whichever of its handlers refused: the device manager, the
//! predicates, the topology manager. A pod that ran and then failed has another message, or none.

use super::wire::PodView;
use super::{Interner, convert_pod, pod_id};
use crate::event::Rejection;
use crate::model::NodeName;

/// What kubelet's message about a pod begins with that it does not admit.
const REJECTED: &str = "Pod was rejected: ";

/// Reasons that kubelet gives for nothing else, should the message be worded otherwise.
const REASONS: [&str; 3] = ["UnexpectedAdmissionError", "NodeAffinity", "Preempting"];

/// What kubelet's reasons for want of a resource begin with.
const OUT_OF: &str = "OutOf";

/// The pod's rejection, if its kubelet has turned it away and it can be read.
pub fn convert_rejection(view: &PodView, interner: &mut Interner) -> Option<Rejection> {
    let status = &view.status;
    let (reason, message) = (status.reason.as_deref()?, status.message.as_deref().unwrap_or_default());
    let known = message.starts_with(REJECTED) || REASONS.contains(&reason) || reason.starts_with(OUT_OF);
    if !known || status.phase.as_deref() != Some("Failed") {
        return None;
    }
    let id = pod_id(view, interner);
    let pod = convert_pod(view, id, interner).ok()?;
    let node: NodeName = pod.node?;
    Some(Rejection {
        pod: pod.id,
        node,
        spec: pod.spec,
        at: pod.started.unwrap_or(pod.created),
        reason: reason.to_owned(),
        message: message.strip_prefix(REJECTED).unwrap_or(message).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The reason and message read from `phase / reason / message` of a bound pod.
    fn check(phase: &str, reason: &str, message: &str, expected: Option<(&str, &str)>) {
        let view = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u-1"},
            "spec": {"nodeName": "n0"},
            "status": {"phase": phase, "reason": reason, "message": message},
        }));
        let found = convert_rejection(&view.unwrap(), &mut Interner::default());
        let found = found.as_ref().map(|found| (&*found.reason, &*found.message));
        assert_eq!(found, expected, "{phase} {reason} {message}");
    }

    #[test]
    fn kubelets_words_are_known() {
        let unexpected = "UnexpectedAdmissionError";
        check("Failed", unexpected, "Pod was rejected: no device", Some((unexpected, "no device")));
        check("Failed", "OutOfcpu", "", Some(("OutOfcpu", "")));
        check("Failed", "Odd", "Pod was rejected: odd", Some(("Odd", "odd")));
        check("Failed", "Preempting", "Preempted in order to admit critical pod", {
            Some(("Preempting", "Preempted in order to admit critical pod"))
        });
        check("Failed", "Evicted", "The node was low on resource: memory.", None);
        check("Failed", "DeadlineExceeded", "", None);
        check("Running", unexpected, "", None);
    }
}
