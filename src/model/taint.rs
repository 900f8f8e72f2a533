//! Taints and tolerations with Kubernetes' matching rules.

use std::sync::Arc;

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintEffect {
    /// Not placed there, running pods stay.
    NoSchedule,
    /// Placed there only if nothing else is at hand.
    PreferNoSchedule,
    /// Not placed there, running pods leave.
    NoExecute,
}

/// One taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// The taint's key.
    pub key: Arc<str>,
    /// Its value; empty when absent.
    pub value: Arc<str>,
    /// Its effect.
    pub effect: TaintEffect,
}

impl Taint {
    /// Whether it keeps pods away that do not tolerate it.
    pub fn is_hard(&self) -> bool {
        self.effect != TaintEffect::PreferNoSchedule
    }
}

/// One toleration of a pod. `tolerationSeconds` plays no part in placement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// The key it matches; `None` matches every key (operator `Exists` only).
    pub key: Option<Arc<str>>,
    /// The value it wants (`Equal`); `None` for `Exists`.
    pub value: Option<Arc<str>>,
    /// The effect it matches; `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether `taint` is tolerated by this toleration.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_kubernetes_does() {
        let taint = |effect| Taint { key: "gpu".into(), value: "a100".into(), effect };
        let toleration = |key: Option<&str>, value: Option<&str>, effect| Toleration {
            key: key.map(Arc::from),
            value: value.map(Arc::from),
            effect,
        };
        let no_schedule = taint(TaintEffect::NoSchedule);
        assert!(toleration(Some("gpu"), Some("a100"), None).tolerates(&no_schedule));
        assert!(toleration(Some("gpu"), None, None).tolerates(&no_schedule));
        assert!(toleration(None, None, None).tolerates(&no_schedule));
        assert!(!toleration(Some("gpu"), Some(""), None).tolerates(&no_schedule));
        assert!(!toleration(Some("gpu"), Some("h100"), None).tolerates(&no_schedule));
        assert!(!toleration(Some("cpu"), None, None).tolerates(&no_schedule));
        assert!(!toleration(None, None, Some(TaintEffect::NoExecute)).tolerates(&no_schedule));
        assert!(
            toleration(None, None, Some(TaintEffect::NoExecute)).tolerates(&taint(TaintEffect::NoExecute))
        );
        assert!(!taint(TaintEffect::PreferNoSchedule).is_hard());
    }
}
