//! What a pod wants of other pods, and by what selectors.
//!
//! Invariant: everything is resolved against the pod as kube-scheduler does it. A term without namespaces and without a namespace
//! selector means the pod's own namespace. `matchLabelKeys` and `mismatchLabelKeys` of affinity terms have been merged into the
//! selector by the API server when the pod was created; those of spread constraints are merged here, where that has not
//! happened yet (it does no harm twice).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pod::Reader;
use super::wire::{AffinityTermView, LabelSelectorView, PodAffinityView, PodView, SpreadView};
use crate::model::{
    AffinityTerm, LabelSelector, Labels, Operator, PodSelection, Relations, Requirement, SpreadConstraint,
};

impl Reader<'_> {
    /// What the pod wants of other pods; `None` for nothing.
    pub(super) fn relations(&mut self, view: &PodView, labels: &Labels) -> Option<Arc<Relations>> {
        let affinity = view.spec.affinity.as_ref();
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let spread = view.spec.topology_spread_constraints.as_deref().unwrap_or_default();
        if near.is_none() && apart.is_none() && spread.is_empty() {
            return None;
        }
        let namespace = self.text(view.metadata.namespace.as_deref().unwrap_or_default());
        let mut relations = Relations { namespace: Arc::clone(&namespace), ..Relations::default() };
        relations.affinity = self.required("podAffinity", near, &namespace);
        relations.attracts_itself = relations.affinity.iter().all(|term| term.pods.selector.matches(labels));
        relations.anti_affinity = self.required("podAntiAffinity", apart, &namespace);
        relations.preferred = self.preferred("podAffinity", near, &namespace, 1);
        relations.preferred.extend(self.preferred("podAntiAffinity", apart, &namespace, -1));
        for (at, view) in spread.iter().enumerate() {
            let path = format!("spec.topologySpreadConstraints[{at}]");
            let constraint = self.spread(&path, view, labels);
            match view.when_unsatisfiable.as_str() {
                "DoNotSchedule" => relations.spread.push(constraint),
                "ScheduleAnyway" => relations.spread_softly.push(constraint),
                other => self.fail(format!("{path}.whenUnsatisfiable"), other, "is not a known action"),
            }
        }
        (!relations.is_empty()).then(|| Arc::new(relations))
    }

    fn required(
        &mut self,
        kind: &str,
        view: Option<&PodAffinityView>,
        namespace: &Arc<str>,
    ) -> Vec<AffinityTerm> {
        let terms = view.and_then(|view| view.required.as_deref()).unwrap_or_default();
        let path = |at| format!("spec.affinity.{kind}.required[{at}]");
        terms.iter().enumerate().map(|(at, term)| self.affinity_term(&path(at), term, namespace)).collect()
    }

    fn preferred(
        &mut self,
        kind: &str,
        view: Option<&PodAffinityView>,
        namespace: &Arc<str>,
        sign: i64,
    ) -> Vec<(i64, AffinityTerm)> {
        let terms = view.and_then(|view| view.preferred.as_deref()).unwrap_or_default();
        let path = |at| format!("spec.affinity.{kind}.preferred[{at}].podAffinityTerm");
        let terms = terms.iter().enumerate();
        let mut read = |at, term: &AffinityTermView| self.affinity_term(&path(at), term, namespace);
        terms.map(|(at, term)| (sign * i64::from(term.weight), read(at, &term.pod_affinity_term))).collect()
    }

    fn affinity_term(&mut self, path: &str, view: &AffinityTermView, own: &Arc<str>) -> AffinityTerm {
        let named = view.namespaces.as_deref().unwrap_or_default();
        let mut namespaces: Vec<_> = named.iter().map(|name| self.text(name)).collect();
        if namespaces.is_empty() && view.namespace_selector.is_none() {
            namespaces.push(Arc::clone(own));
        }
        AffinityTerm {
            topology_key: self.text(&view.topology_key),
            pods: PodSelection {
                namespaces: namespaces.into_iter().collect(),
                namespace_selector: self
                    .label_selector(&format!("{path}.namespaceSelector"), view.namespace_selector.as_ref()),
                selector: self.label_selector(&format!("{path}.labelSelector"), view.label_selector.as_ref()),
            },
        }
    }

    fn spread(&mut self, path: &str, view: &SpreadView, labels: &Labels) -> SpreadConstraint {
        let mut selector =
            self.label_selector(&format!("{path}.labelSelector"), view.label_selector.as_ref());
        if let LabelSelector::All(requirements) = &mut selector {
            let keys = view.match_label_keys.iter().flatten();
            let pairs = keys.filter_map(|key| labels.get_key_value(key.as_str()));
            let merged = pairs.map(|(key, value)| is(Arc::clone(key), Arc::clone(value)));
            let merged: Vec<_> = merged.filter(|requirement| !requirements.contains(requirement)).collect();
            requirements.extend(merged);
        }
        SpreadConstraint {
            topology_key: self.text(&view.topology_key),
            max_skew: view.max_skew.into(),
            counts_itself: selector.matches(labels),
            selector,
            min_domains: view.min_domains.map_or(1, |least| usize::try_from(least).unwrap_or(1)),
            honors_affinity: self.policy(
                path,
                "nodeAffinityPolicy",
                view.node_affinity_policy.as_deref(),
                true,
            ),
            honors_taints: self.policy(path, "nodeTaintsPolicy", view.node_taints_policy.as_deref(), false),
        }
    }

    fn policy(&mut self, path: &str, field: &str, policy: Option<&str>, default: bool) -> bool {
        match policy {
            None => default,
            Some("Honor") => true,
            Some("Ignore") => false,
            Some(other) => {
                self.fail(format!("{path}.{field}"), other, "is not a known policy");
                default
            }
        }
    }

    pub(super) fn label_selector(&mut self, path: &str, view: Option<&LabelSelectorView>) -> LabelSelector {
        let Some(view) = view else { return LabelSelector::Nothing };
        let pairs: BTreeMap<_, _> = view.match_labels.iter().flatten().collect();
        let mut requirements: Vec<_> =
            pairs.into_iter().map(|(key, value)| is(self.text(key), self.text(value))).collect();
        for (at, view) in view.match_expressions.iter().flatten().enumerate() {
            let path = format!("{path}.matchExpressions[{at}]");
            requirements.extend(self.requirement(&path, view).filter(|read| {
                let known = !matches!(read.operator, Operator::Gt | Operator::Lt);
                if !known {
                    self.fail(format!("{path}.operator"), &view.operator, "is not one for labels");
                }
                known
            }));
        }
        LabelSelector::All(requirements)
    }
}

/// The label has this value.
fn is(key: Arc<str>, value: Arc<str>) -> Requirement {
    Requirement { key, operator: Operator::In, values: vec![value] }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Interner, convert_pod, pod_id};
    use super::*;
    use crate::model::Pod;

    fn read(spec: Value) -> Result<Pod, String> {
        let labels = json!({"app": "web", "rev": "7"});
        let view =
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels}, "spec": spec});
        let view: PodView = serde_json::from_value(view).unwrap();
        let mut interner = Interner::default();
        let id = pod_id(&view, &mut interner);
        convert_pod(&view, id, &mut interner).map_err(|unreadable| unreadable.error.to_string())
    }

    fn relations(spec: Value) -> Relations {
        read(spec).unwrap().spec.relations.as_deref().cloned().unwrap_or_default()
    }

    fn required(kind: &str, terms: Value) -> Value {
        json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
    }

    fn names(pods: &PodSelection) -> Vec<&str> {
        pods.namespaces.iter().map(|name| &**name).collect()
    }

    #[test]
    fn a_term_means_the_pods_own_namespace_unless_it_says_otherwise() {
        let check = |more: Value, expected: &[&str], selector: &LabelSelector| {
            let mut term = json!({"topologyKey": "zone", "labelSelector": {}});
            term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let read = relations(required("podAffinity", json!([term])));
            let pods = &read.affinity[0].pods;
            assert_eq!((names(pods), &pods.namespace_selector), (expected.to_vec(), selector), "{more}");
        };
        let everything = LabelSelector::All(Vec::new());
        check(json!({}), &["ns"], &LabelSelector::Nothing);
        check(json!({"namespaces": []}), &["ns"], &LabelSelector::Nothing);
        check(json!({"namespaces": ["a", "b"]}), &["a", "b"], &LabelSelector::Nothing);
        check(json!({"namespaceSelector": {}}), &[], &everything);
        let selected = LabelSelector::All(vec![is("team".into(), "x".into())]);
        check(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), &[], &selected);
        let both = json!({"namespaces": ["a"], "namespaceSelector": {"matchLabels": {"team": "x"}}});
        check(both, &["a"], &selected);
    }

    #[test]
    fn selectors_take_labels_and_expressions() {
        let read = |selector: Value| {
            let term = json!({"topologyKey": "zone", "labelSelector": selector});
            relations(required("podAntiAffinity", json!([term]))).anti_affinity[0].pods.selector.clone()
        };
        assert_eq!(read(Value::Null), LabelSelector::Nothing);
        assert_eq!(read(json!({})), LabelSelector::All(vec![]));
        let expressions =
            json!([{"key": "b", "operator": "NotIn", "values": ["1"]}, {"key": "c", "operator": "Exists"}]);
        let LabelSelector::All(all) =
            read(json!({"matchLabels": {"a": "1"}, "matchExpressions": expressions}))
        else {
            panic!("nothing is selected")
        };
        let found: Vec<_> = all.iter().map(|one| (&*one.key, one.operator)).collect();
        assert_eq!(found, [("a", Operator::In), ("b", Operator::NotIn), ("c", Operator::Exists)]);
    }

    #[test]
    fn a_pod_knows_whether_it_is_one_of_those_it_wants() {
        let check = |labels: Value, expected: bool| {
            let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": labels}});
            let read = relations(required("podAffinity", json!([term])));
            assert_eq!(read.attracts_itself, expected, "{labels}");
        };
        check(json!({"app": "web"}), true);
        check(json!({"app": "db"}), false);
    }

    #[test]
    fn preferred_terms_carry_their_weight() {
        let term = |weight: i32| json!({"weight": weight, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}});
        let read = relations(json!({"affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(7)]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(9)]},
        }}));
        let weights: Vec<_> = read.preferred.iter().map(|(weight, _)| *weight).collect();
        assert_eq!((weights, read.can_refuse()), (vec![7, -9], false));
    }

    #[test]
    fn spread_constraints_with_what_is_assumed_where_they_say_nothing() {
        let pods = json!({"matchLabels": {"app": "web"}});
        let read = relations(json!({"topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": pods},
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": pods,
             "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        ]}));
        let [plain, unselected] = read.spread.as_slice() else { panic!("{read:?}") };
        assert_eq!((plain.max_skew, plain.min_domains, plain.counts_itself), (2, 1, true));
        assert!(plain.honors_affinity && !plain.honors_taints);
        let [soft] = read.spread_softly.as_slice() else { panic!("{read:?}") };
        assert_eq!((soft.min_domains, soft.honors_affinity, soft.honors_taints), (3, false, true));
        assert!(unselected.selector.is_nothing() && !unselected.counts_itself);
    }

    #[test]
    fn label_keys_of_spread_constraints_are_merged_once() {
        let read = |selector: Value| {
            let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector, "matchLabelKeys": ["rev", "absent"]});
            relations(json!({"topologySpreadConstraints": [constraint]})).spread[0].selector.clone()
        };
        let merged = LabelSelector::All(vec![is("app".into(), "web".into()), is("rev".into(), "7".into())]);
        assert_eq!(read(json!({"matchLabels": {"app": "web"}})), merged);
        let already = json!([{"key": "rev", "operator": "In", "values": ["7"]}]);
        assert_eq!(read(json!({"matchLabels": {"app": "web"}, "matchExpressions": already})), merged);
        assert_eq!(read(Value::Null), LabelSelector::Nothing, "of nothing nothing is left");
    }

    #[test]
    fn nothing_wanted_is_no_relation() {
        assert_eq!(read(json!({"affinity": {"podAffinity": {}}})).unwrap().spec.relations, None);
        assert_eq!(read(json!({"topologySpreadConstraints": []})).unwrap().spec.relations, None);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let constraint = |field: &str, value: &str| {
            let mut constraint =
                json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
            constraint[field] = json!(value);
            json!({"topologySpreadConstraints": [constraint]})
        };
        let operator = |operator: &str| {
            let expression = json!({"key": "a", "operator": operator, "values": ["1"]});
            let term = json!({"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression]}});
            required("podAffinity", json!([term]))
        };
        const EXPRESSION: &str =
            "spec.affinity.podAffinity.required[0].labelSelector.matchExpressions[0].operator";
        for (spec, expected) in [
            (
                constraint("whenUnsatisfiable", "Maybe"),
                "spec.topologySpreadConstraints[0].whenUnsatisfiable: \"Maybe\" is not a known action"
                    .to_owned(),
            ),
            (
                constraint("nodeTaintsPolicy", "Maybe"),
                "spec.topologySpreadConstraints[0].nodeTaintsPolicy: \"Maybe\" is not a known policy"
                    .to_owned(),
            ),
            (operator("Like"), format!("{EXPRESSION}: \"Like\" is not a known operator")),
            (operator("Gt"), format!("{EXPRESSION}: \"Gt\" is not one for labels")),
        ] {
            assert_eq!(read(spec).unwrap_err(), expected);
        }
    }
}
