//! One copy of what many objects share: pod specs from one template, label texts, names of nodes and namespaces.
//!
//! Invariant: equal values come back as the same allocation, and nothing is kept that nobody else holds for long: whenever
//! a table has doubled, it drops what it alone still holds. Its size is therefore bounded by twice what is in use.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{Labels, PodSpec};

/// Below this many values a table is not worth cleaning.
const SMALLEST_SWEEP: usize = 1024;

/// The tables of one converting task.
#[derive(Debug, Default)]
pub struct Interner {
    specs: Table<PodSpec>,
    labels: Table<Labels>,
    texts: Table<str>,
}

impl Interner {
    /// The shared copy of `spec`.
    pub fn spec(&mut self, spec: PodSpec) -> Arc<PodSpec> {
        self.specs.get(&spec).unwrap_or_else(|| self.specs.insert(Arc::new(spec)))
    }

    /// The shared copy of `labels`.
    pub fn labels(&mut self, labels: Labels) -> Arc<Labels> {
        self.labels.get(&labels).unwrap_or_else(|| self.labels.insert(Arc::new(labels)))
    }

    /// The shared copy of `text`.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        self.texts.get(text).unwrap_or_else(|| self.texts.insert(Arc::from(text)))
    }
}

#[derive(Debug)]
struct Table<T: ?Sized> {
    values: BTreeSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized + Ord> Default for Table<T> {
    fn default() -> Self {
        Table { values: BTreeSet::new(), sweep_at: SMALLEST_SWEEP }
    }
}

impl<T: ?Sized + Ord> Table<T>
where
    Arc<T>: Borrow<T>,
{
    fn get(&self, value: &T) -> Option<Arc<T>> {
        self.values.get(value).cloned()
    }

    fn insert(&mut self, value: Arc<T>) -> Arc<T> {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = (self.values.len() * 2).max(SMALLEST_SWEEP);
        }
        self.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Resources;

    fn spec(n: u64) -> PodSpec {
        let mut requests = Resources::default();
        requests.set("r".into(), n + 1);
        PodSpec { requests, ..PodSpec::default() }
    }

    #[test]
    fn equal_values_share_one_copy() {
        let mut interner = Interner::default();
        assert!(Arc::ptr_eq(&interner.spec(spec(1)), &interner.spec(spec(1))));
        assert!(!Arc::ptr_eq(&interner.spec(spec(1)), &interner.spec(spec(2))));
        assert!(Arc::ptr_eq(&interner.text("a"), &interner.text("a")));
    }

    #[test]
    fn values_nobody_holds_are_dropped() {
        let mut interner = Interner::default();
        let kept: Vec<_> = (0..10).map(|n| interner.spec(spec(n))).collect();
        for n in 0..20_000 {
            interner.spec(spec(n));
        }
        assert!(interner.specs.values.len() <= SMALLEST_SWEEP + 1, "{}", interner.specs.values.len());
        assert!(Arc::ptr_eq(&kept[3], &interner.spec(spec(3))));
    }
}
