//! Disruption budgets: how many pods of a group may be missed at a time.
//!
//! The number is the API server's own (`status.disruptionsAllowed`); nothing is counted here. A budget that selects nothing, or
//! everything by an empty selector, speaks of no pod: kube-scheduler reads them so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{LabelSelector, Labels};

/// How the API addresses a budget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetId {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// One PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Its pods, in its own namespace.
    pub selector: LabelSelector,
    /// `status.disruptionsAllowed`.
    pub allowed: i64,
    /// Names in `status.disruptedPods`: evictions that are granted already and counted in `allowed`.
    pub disrupted: BTreeSet<Arc<str>>,
}

impl Budget {
    /// Whether the end of this pod of its namespace costs it something.
    fn counts(&self, name: &str, labels: &Labels) -> bool {
        !self.selector.is_everything() && self.selector.matches(labels) && !self.disrupted.contains(name)
    }
}

/// All budgets, by namespace. Bound: those of the API server.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    by_namespace: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Budget>>,
}

/// What is left of every budget while pods are imagined to go one after the other.
#[derive(Debug)]
pub struct Spending<'a> {
    budgets: &'a Budgets,
    spent: BTreeMap<(&'a str, &'a str), i64>,
}

impl Budgets {
    /// Takes in a budget that is new or has changed.
    pub fn apply(&mut self, id: BudgetId, budget: Budget) {
        self.by_namespace.entry(id.namespace).or_default().insert(id.name, budget);
    }

    /// Takes out a budget.
    pub fn delete(&mut self, id: &BudgetId) {
        if let Some(budgets) = self.by_namespace.get_mut(&id.namespace) {
            budgets.remove(&id.name);
            if budgets.is_empty() {
                self.by_namespace.remove(&id.namespace);
            }
        }
    }

    /// Nothing spent yet.
    pub fn spending(&self) -> Spending<'_> {
        Spending { budgets: self, spent: BTreeMap::new() }
    }
}

impl Spending<'_> {
    /// One more pod goes. Returns whether that is more than a budget allows. A pod without labels is in no budget.
    pub fn violates(&mut self, namespace: &str, name: &str, labels: &Labels) -> bool {
        let Some(budgets) = self.budgets.by_namespace.get(namespace).filter(|_| !labels.is_empty()) else {
            return false;
        };
        let mut violates = false;
        for (budget_name, budget) in budgets.iter().filter(|(_, budget)| budget.counts(name, labels)) {
            let namespace = self.budgets.by_namespace.get_key_value(namespace);
            let Some((namespace, _)) = namespace else { continue };
            let spent = self.spent.entry((namespace, budget_name)).or_default();
            *spent += 1;
            violates |= *spent > budget.allowed;
        }
        violates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::labels;
    use crate::model::{Operator, Requirement};

    fn budget(app: &str, allowed: i64, disrupted: &[&str]) -> Budget {
        let values = vec![app.into()];
        let requirement = Requirement { key: "app".into(), operator: Operator::In, values };
        Budget {
            selector: LabelSelector::All(vec![requirement]),
            allowed,
            disrupted: disrupted.iter().map(|name| Arc::from(*name)).collect(),
        }
    }

    fn id(name: &str) -> BudgetId {
        BudgetId { namespace: "ns".into(), name: name.into() }
    }

    /// Pods `name app` of namespace `ns` that go in turn; `!` marks those that are too many.
    fn check(budgets: &[(&str, Budget)], pods: &[&str], expected: &[bool]) {
        let mut all = Budgets::default();
        budgets.iter().for_each(|(name, budget)| all.apply(id(name), budget.clone()));
        let mut spending = all.spending();
        let found: Vec<_> = pods
            .iter()
            .map(|text| {
                let (name, pairs) = text.split_once(' ').unwrap_or((text, ""));
                spending.violates("ns", name, &labels(pairs))
            })
            .collect();
        assert_eq!(found, expected, "{pods:?}");
    }

    #[test]
    fn a_budget_is_spent_pod_by_pod() {
        let one = [("b", budget("web", 1, &[]))];
        check(&one, &["p app:web", "q app:web", "r app:db", "s"], &[false, true, false, false]);
        check(&[("b", budget("web", 0, &["p"]))], &["p app:web", "q app:web"], &[false, true]);
        let both = [("a", budget("web", 2, &[])), ("b", budget("web", 1, &[]))];
        check(&both, &["p app:web", "q app:web"], &[false, true]);
    }

    #[test]
    fn a_budget_that_selects_everything_or_nothing_speaks_of_no_pod() {
        let everything = Budget { selector: LabelSelector::All(Vec::new()), ..Budget::default() };
        check(&[("b", everything)], &["p app:web"], &[false]);
        check(
            &[("b", Budget { selector: LabelSelector::Nothing, ..Budget::default() })],
            &["p a:b"],
            &[false],
        );
    }

    #[test]
    fn a_budget_speaks_of_its_own_namespace_until_it_is_deleted() {
        let mut all = Budgets::default();
        all.apply(id("b"), budget("web", 0, &[]));
        let web = labels("app:web");
        assert!(all.spending().violates("ns", "p", &web));
        assert!(!all.spending().violates("other", "p", &web));
        all.delete(&id("b"));
        assert!(!all.spending().violates("ns", "p", &web));
        assert!(all.by_namespace.is_empty());
    }
}
