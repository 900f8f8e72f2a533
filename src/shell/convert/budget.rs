//! Disruption budgets.

use std::sync::Arc;

use super::Interner;
use super::pod::Reader;
use super::wire::BudgetView;
use crate::model::{Budget, BudgetId, LabelSelector};

/// How the API addresses the budget.
pub fn budget_id(view: &BudgetView, interner: &mut Interner) -> BudgetId {
    BudgetId {
        namespace: interner.text(view.metadata.namespace.as_deref().unwrap_or_default()),
        name: view.metadata.name.as_deref().unwrap_or_default().into(),
    }
}

/// A budget as the model has it. One whose selector cannot be read speaks of no pod, as for kube-scheduler; the API server lets
/// none in.
pub fn convert_budget(view: &BudgetView, interner: &mut Interner) -> Budget {
    let mut reader = Reader::new(interner);
    let selector = reader.label_selector("spec.selector", view.spec.selector.as_ref());
    Budget {
        selector: if reader.has_failed() { LabelSelector::Nothing } else { selector },
        allowed: view.status.disruptions_allowed.into(),
        disrupted: view.status.disrupted_pods.iter().flatten().map(|(name, _)| Arc::from(&**name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::labels;

    fn convert(spec: Value, status: Value) -> Budget {
        let view = serde_json::from_value(json!({"metadata": {"name": "b"}, "spec": spec, "status": status}));
        convert_budget(&view.unwrap(), &mut Interner::default())
    }

    #[test]
    fn a_budget_says_whose_and_how_many() {
        let selector = json!({"selector": {"matchLabels": {"app": "web"}}});
        let status = json!({"disruptionsAllowed": 2, "disruptedPods": {"p": "2026-11-30T10:00:00Z"}});
        let budget = convert(selector, status);
        assert_eq!((budget.allowed, budget.disrupted.len()), (2, 1));
        assert!(budget.selector.matches(&labels("app:web")) && !budget.selector.matches(&labels("app:db")));
    }

    #[test]
    fn what_cannot_be_read_speaks_of_no_pod() {
        let odd = json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}});
        assert!(convert(odd, json!({})).selector.is_nothing());
        assert!(convert(json!({}), json!({})).selector.is_nothing());
    }
}
