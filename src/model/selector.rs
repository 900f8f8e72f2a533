//! Selectors: of nodes (`nodeSelector`, node affinity with all operators and `matchFields`) and of pods and namespaces by label.
//!
//! Invariant: evaluation cannot fail. What the API server would refuse (an operator with the wrong number of values, a number
//! that is none) matches nothing, exactly as kube-scheduler treats it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `metadata.labels` of anything.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// The one field of a node that can be asked for.
const NAME: &str = "metadata.name";

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// The value is one of the listed.
    In,
    /// The value is none of the listed, or the key is absent.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer above the one listed.
    Gt,
    /// The value is an integer below the one listed.
    Lt,
}

/// One requirement on a label or field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Label key, or field path.
    pub key: Arc<str>,
    /// The comparison.
    pub operator: Operator,
    /// Its operands.
    pub values: Vec<Arc<str>>,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|wanted| **wanted == *value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value).is_some_and(|(value, bound)| value > bound),
            Operator::Lt => self.compare(value).is_some_and(|(value, bound)| value < bound),
        }
    }

    /// Whether it lists the names of nodes.
    fn is_name_in(&self) -> bool {
        &*self.key == NAME && self.operator == Operator::In
    }

    fn listed(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|value| &**value)
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        let [bound] = self.values.as_slice() else { return None };
        Some((value?.parse().ok()?, bound.parse().ok()?))
    }
}

/// One term: all of its requirements must hold. A term without any matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    pub match_expressions: Vec<Requirement>,
    /// Requirements on fields; `metadata.name` is the only one Kubernetes knows.
    pub match_fields: Vec<Requirement>,
}

impl NodeSelectorTerm {
    /// Whether a node of that name with those labels is meant.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let field = |path: &str| (path == NAME).then_some(name);
        (!self.match_expressions.is_empty() || !self.match_fields.is_empty())
            && self.match_expressions.iter().all(|r| r.matches(labels.get(&r.key).map(|value| &**value)))
            && self.match_fields.iter().all(|r| r.matches(field(&r.key)))
    }
}

impl NodeSelectorTerm {
    /// The nodes to which `metadata.name In` confines the term; `None` where it has no such requirement.
    fn named(&self) -> Option<BTreeSet<&str>> {
        let mut lists = self.match_fields.iter().filter(|field| field.is_name_in());
        let first: BTreeSet<&str> = lists.next()?.listed().collect();
        Some(lists.fold(first, |named, field| &named & &field.listed().collect()))
    }
}

/// Where a pod may run: every pair of `nodeSelector` and, if affinity is required, at least one of its terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSelector {
    /// `spec.nodeSelector`.
    pub labels: Labels,
    /// `requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms`; `None` when no affinity is required. An empty
    /// list matches no node.
    pub terms: Option<Vec<NodeSelectorTerm>>,
}

impl NodeSelector {
    /// The nodes to which every term confines the pod by name; `None` where there is a term that names none. Empty where the
    /// names of each term contradict each other.
    pub fn named(&self) -> Option<BTreeSet<&str>> {
        let terms = self.terms.as_ref().filter(|terms| !terms.is_empty())?;
        let named: Option<Vec<_>> = terms.iter().map(NodeSelectorTerm::named).collect();
        Some(named?.into_iter().flatten().collect())
    }

    /// Whether a node of that name with those labels is allowed.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }
}

/// A selector of pods or namespaces by label (`labelSelector`, `namespaceSelector`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelSelector {
    /// None is given: matches nothing.
    #[default]
    Nothing,
    /// All of these must hold; without any it matches everything.
    All(Vec<Requirement>),
}

impl LabelSelector {
    /// Whether an object with those labels is meant.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            LabelSelector::Nothing => false,
            LabelSelector::All(requirements) => {
                requirements.iter().all(|r| r.matches(labels.get(&r.key).map(|value| &**value)))
            }
        }
    }

    /// Whether it matches nothing, whatever the labels are.
    pub fn is_nothing(&self) -> bool {
        matches!(self, LabelSelector::Nothing)
    }

    /// Whether it matches whatever the labels are.
    pub fn is_everything(&self) -> bool {
        matches!(self, LabelSelector::All(requirements) if requirements.is_empty())
    }

    /// Whether labels decide what it matches.
    pub fn depends_on_labels(&self) -> bool {
        matches!(self, LabelSelector::All(requirements) if !requirements.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> BTreeMap<Arc<str>, Arc<str>> {
        [("zone", "a"), ("slots", "8"), ("empty", "")].map(|(k, v)| (k.into(), v.into())).into()
    }

    fn requirement(text: &str) -> Requirement {
        let mut words = text.split_whitespace();
        let key = words.next().unwrap().into();
        let operator = match words.next().unwrap() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            _ => Operator::Lt,
        };
        Requirement { key, operator, values: words.map(Arc::from).collect() }
    }

    #[test]
    fn operators() {
        let check = |text: &str, expected: bool| {
            let term = NodeSelectorTerm { match_expressions: vec![requirement(text)], ..Default::default() };
            let selector = NodeSelector { terms: Some(vec![term]), ..Default::default() };
            assert_eq!(selector.matches("n0", &labels()), expected, "{text}");
        };
        check("zone In a b", true);
        check("zone In b", false);
        check("rack In a", false);
        check("zone NotIn b", true);
        check("zone NotIn a", false);
        check("rack NotIn a", true);
        check("empty Exists", true);
        check("rack Exists", false);
        check("rack DoesNotExist", true);
        check("zone DoesNotExist", false);
        check("slots Gt 7", true);
        check("slots Gt 8", false);
        check("slots Lt 9", true);
        check("slots Lt 8", false);
        check("slots Gt 7 8", false);
        check("zone Gt 7", false);
        check("rack Lt 7", false);
    }

    #[test]
    fn a_label_selector_without_requirements_matches_everything_and_an_absent_one_nothing() {
        let check = |selector: LabelSelector, expected: bool| {
            assert_eq!(selector.matches(&labels()), expected, "{selector:?}");
        };
        check(LabelSelector::Nothing, false);
        check(LabelSelector::All(vec![]), true);
        check(LabelSelector::All(vec![requirement("zone In a"), requirement("rack DoesNotExist")]), true);
        check(LabelSelector::All(vec![requirement("zone In a"), requirement("rack Exists")]), false);
        assert!(LabelSelector::All(vec![]).is_everything() && !LabelSelector::Nothing.is_everything());
        assert!(!LabelSelector::All(vec![]).depends_on_labels());
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_one_matches_nothing() {
        let by_name = |name: &str| NodeSelectorTerm {
            match_fields: vec![requirement(&format!("metadata.name In {name}"))],
            ..Default::default()
        };
        let with = |terms| NodeSelector { terms: Some(terms), ..Default::default() };
        assert!(with(vec![by_name("n1"), by_name("n0")]).matches("n0", &labels()));
        assert!(!with(vec![by_name("n1")]).matches("n0", &labels()));
        assert!(!with(vec![NodeSelectorTerm::default()]).matches("n0", &labels()));
        assert!(!with(vec![]).matches("n0", &labels()));
        assert!(NodeSelector::default().matches("n0", &labels()));
    }

    #[test]
    fn nodes_named_by_every_term() {
        let check = |terms: &[&[&str]], expected: Option<&[&str]>| {
            let term = |fields: &&[&str]| NodeSelectorTerm {
                match_fields: fields.iter().map(|text| requirement(text)).collect(),
                ..Default::default()
            };
            let selector =
                NodeSelector { terms: Some(terms.iter().map(term).collect()), ..Default::default() };
            let expected = expected.map(|names| names.iter().copied().collect());
            assert_eq!(selector.named(), expected, "{terms:?}");
        };
        check(&[], None);
        check(&[&["metadata.name In n0 n1"]], Some(&["n0", "n1"]));
        check(&[&["metadata.name In n0"], &["metadata.name In n1"]], Some(&["n0", "n1"]));
        check(&[&["metadata.name In n0"], &["metadata.name NotIn n1"]], None);
        check(&[&["metadata.name In n0 n1", "metadata.name In n1 n2"]], Some(&["n1"]));
        check(&[&["metadata.name In n0", "metadata.name In n1"]], Some(&[]));
        check(&[&["metadata.name In n0", "metadata.name NotIn n0"]], Some(&["n0"]));
        assert_eq!(NodeSelector::default().named(), None);
    }

    #[test]
    fn node_selector_needs_every_pair() {
        let with = |pairs: &[(&str, &str)]| NodeSelector {
            labels: pairs.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect(),
            terms: None,
        };
        assert!(with(&[("zone", "a"), ("slots", "8")]).matches("n0", &labels()));
        assert!(!with(&[("zone", "a"), ("slots", "4")]).matches("n0", &labels()));
        assert!(!with(&[("rack", "")]).matches("n0", &labels()));
    }
}
