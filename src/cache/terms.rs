//! The affinity terms that running pods hold, by the namespaces they speak of.
//!
//! A newcomer has to know which of them concern it. Most clusters have none, and then this index is empty and costs a look at
//! two empty maps; otherwise the cost is that of the terms that name the newcomer's namespace and of those that select
//! namespaces by label.
//!
//! Invariant: a term is here exactly while some counted pod holds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{HeldTerm, Labels, PodSpec};

/// Terms, and by how many pods each is held.
type Counts = BTreeMap<Arc<HeldTerm>, usize>;

/// See the module's comment.
#[derive(Debug, Default)]
pub(super) struct TermIndex {
    by_namespace: BTreeMap<Arc<str>, Counts>,
    /// Those that select namespaces by label, too.
    by_selector: Counts,
    /// How often a term came.
    arrivals: u64,
}

impl TermIndex {
    /// How often a term came that was not here.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// A pod with these terms is counted from now on.
    pub(super) fn insert(&mut self, spec: &PodSpec) {
        for term in held(spec) {
            if term.term.pods.namespace_selector.is_nothing() {
                for namespace in &term.term.pods.namespaces {
                    let counts = self.by_namespace.entry(Arc::clone(namespace)).or_default();
                    self.arrivals += add(counts, &term);
                }
            } else {
                self.arrivals += add(&mut self.by_selector, &term);
            }
        }
    }

    /// A pod with these terms is counted no more.
    pub(super) fn remove(&mut self, spec: &PodSpec) {
        for term in held(spec) {
            if term.term.pods.namespace_selector.is_nothing() {
                for namespace in &term.term.pods.namespaces {
                    let Some(counts) = self.by_namespace.get_mut(namespace) else { continue };
                    take(counts, &term);
                    if counts.is_empty() {
                        self.by_namespace.remove(namespace);
                    }
                }
            } else {
                take(&mut self.by_selector, &term);
            }
        }
    }

    /// The terms that concern a newcomer, sorted.
    pub(super) fn concerning(
        &self,
        namespace: &Arc<str>,
        namespace_labels: impl Fn() -> Labels,
        labels: &Labels,
    ) -> Arc<[Arc<HeldTerm>]> {
        if self.by_namespace.is_empty() && self.by_selector.is_empty() {
            return Arc::default();
        }
        let named = self.by_namespace.get(namespace).into_iter().flat_map(BTreeMap::keys);
        let named = named.filter(|term| term.term.pods.selector.matches(labels));
        let mut found: Vec<_> = named.cloned().collect();
        if !self.by_selector.is_empty() {
            let namespace_labels = namespace_labels();
            let all = self.by_selector.keys();
            found.extend(all.filter(|term| term.concerns(namespace, &namespace_labels, labels)).cloned());
            found.sort_unstable();
        }
        found.into()
    }
}

fn held(spec: &PodSpec) -> impl Iterator<Item = Arc<HeldTerm>> {
    spec.relations.iter().flat_map(|relations| relations.held()).map(Arc::new)
}

/// Counts one more holder. Returns 1 if it is the first.
fn add(counts: &mut Counts, term: &Arc<HeldTerm>) -> u64 {
    let count = counts.entry(Arc::clone(term)).or_default();
    *count += 1;
    u64::from(*count == 1)
}

fn take(counts: &mut Counts, term: &Arc<HeldTerm>) {
    if let Some(count) = counts.get_mut(term) {
        *count -= 1;
        if *count == 0 {
            counts.remove(term);
        }
    }
}
