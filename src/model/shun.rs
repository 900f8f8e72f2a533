//! Pods that a node's kubelet has turned away after they were bound to it, and others that it may turn away as well.

use std::fmt;
use std::sync::Arc;

use super::{PodSpec, ResourceName};

/// What kubelet's reasons for want of a resource begin with.
const OUT_OF: &str = "OutOf";

/// kubelet's reason for whatever its device plugins refuse.
const UNEXPECTED: &str = "UnexpectedAdmissionError";

/// Which pods keep away from a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shunned {
    /// Those that ask for one of these extended resources: what serves them there is out of order or busy.
    Resources(Vec<ResourceName>),
    /// Those of equal spec.
    Spec(Arc<PodSpec>),
}

impl Shunned {
    /// Who keeps away after a pod of this spec was turned away for this reason (`status.reason`).
    pub fn after(reason: &str, spec: &Arc<PodSpec>) -> Shunned {
        let extended = spec.requests.extended().iter().map(|(name, _)| name.clone());
        let resources: Vec<_> = match reason.strip_prefix(OUT_OF) {
            Some(resource) => extended.filter(|name| name.as_str() == resource).collect(),
            None if reason == UNEXPECTED => extended.collect(),
            None => Vec::new(),
        };
        if resources.is_empty() { Shunned::Spec(Arc::clone(spec)) } else { Shunned::Resources(resources) }
    }

    /// Whether a pod of this spec is one of them.
    pub fn concerns(&self, spec: &PodSpec) -> bool {
        match self {
            Shunned::Resources(names) => {
                spec.requests.extended().iter().any(|(name, _)| names.contains(name))
            }
            Shunned::Spec(shunned) => **shunned == *spec,
        }
    }
}

impl fmt::Display for Shunned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shunned::Resources(names) => {
                let names: Vec<_> = names.iter().map(ResourceName::as_str).collect();
                write!(f, "pods that ask for {}", names.join(" or "))
            }
            Shunned::Spec(_) => f.write_str("pods like it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pod;

    fn check(reason: &str, rejected: &str, others: &[(&str, bool)]) {
        let shunned = Shunned::after(reason, &pod(rejected).spec);
        for (other, expected) in others {
            assert_eq!(shunned.concerns(&pod(other).spec), *expected, "{reason}: {rejected}, {other}");
        }
    }

    #[test]
    fn a_reason_tells_who_keeps_away() {
        let gpu = "p cpu=5 1g.5gb=1";
        let others = [("q cpu=7 1g.5gb=2", true), ("q 2g.10gb=1", false), ("q cpu=5", false)];
        check("UnexpectedAdmissionError", gpu, &others);
        check("OutOfnvidia.com/mig-1g.5gb", gpu, &others);
        let others = [("q cpu=5 1g.5gb=1", true), ("q cpu=4 1g.5gb=1", false), ("q cpu=5", false)];
        check("OutOfcpu", gpu, &others);
        check("NodeAffinity", gpu, &others);
        check("UnexpectedAdmissionError", "p cpu=5", &[("q cpu=5", true), ("q cpu=6", false)]);
    }
}
