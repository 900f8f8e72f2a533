//! Amounts of resources: what a pod asks for, what a node offers, what is taken.
//!
//! Invariant: amounts are never negative and never above [`MAX_QUANTITY`] a pod, so sums over a node's pods never wrap.
//! Extended resources keep the exact name the API uses: kubelet compares names as text, so an alias that a human would accept
//! (`mig-7g.79gb` for `mig-7g.80gb`) must not be accepted here.

use std::fmt;
use std::sync::Arc;

/// The largest amount of anything that one pod or node is taken to ask for or offer: 2^50 (a PiB, or 10^12 cores). Larger
/// values are cut to it where they are read; 2^13 pods of that size still fit into 64 bits, beyond which sums saturate.
pub const MAX_QUANTITY: u64 = 1 << 50;

/// The name of an extended resource such as `nvidia.com/mig-1g.5gb` or `hugepages-2Mi`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// The name as it stands in the API.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether NVIDIA's device plugin serves it: such pods wait while a node's MIG layout changes.
    pub fn is_nvidia(&self) -> bool {
        self.0.starts_with("nvidia.com/")
    }
}

impl<T: Into<Arc<str>>> From<T> for ResourceName {
    fn from(text: T) -> ResourceName {
        ResourceName(text.into())
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An amount of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    /// CPU in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Local ephemeral storage in bytes.
    pub ephemeral_storage: u64,
    /// Number of pods.
    pub pods: u64,
    /// Everything else, sorted by name, without zero amounts.
    extended: Vec<(ResourceName, u64)>,
}

impl Resources {
    /// The extended resources with an amount above zero, sorted by name.
    pub fn extended(&self) -> &[(ResourceName, u64)] {
        &self.extended
    }

    /// The amount of one extended resource; zero when absent.
    pub fn get(&self, name: &ResourceName) -> u64 {
        self.position(name).map_or(0, |at| self.extended[at].1)
    }

    /// Sets the amount of one extended resource, cut to [`MAX_QUANTITY`]; zero removes it.
    pub fn set(&mut self, name: ResourceName, amount: u64) {
        let amount = amount.min(MAX_QUANTITY);
        match (self.position(&name), amount) {
            (Ok(at), 0) => drop(self.extended.remove(at)),
            (Ok(at), _) => self.extended[at].1 = amount,
            (Err(_), 0) => {}
            (Err(at), _) => self.extended.insert(at, (name, amount)),
        }
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Resources) {
        self.combine(other, u64::saturating_add);
    }

    /// Takes every amount of `other` away again. `other` must have been added before; what would fall below zero becomes zero.
    pub fn subtract(&mut self, other: &Resources) {
        self.cpu_milli = self.cpu_milli.saturating_sub(other.cpu_milli);
        self.memory = self.memory.saturating_sub(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_sub(other.ephemeral_storage);
        self.pods = self.pods.saturating_sub(other.pods);
        for (name, amount) in &other.extended {
            let left = self.get(name).saturating_sub(*amount);
            match self.position(name) {
                Ok(at) if left == 0 => drop(self.extended.remove(at)),
                Ok(at) => self.extended[at].1 = left,
                Err(_) => {}
            }
        }
    }

    /// Raises every amount to that of `other` where that is larger.
    pub fn raise_to(&mut self, other: &Resources) {
        self.combine(other, u64::max);
    }

    /// Puts `with` of both amounts in the place of each; `with` leaves an amount as it is where the other is zero.
    fn combine(&mut self, other: &Resources, with: fn(u64, u64) -> u64) {
        self.cpu_milli = with(self.cpu_milli, other.cpu_milli);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.extended {
            match self.position(name) {
                Ok(at) => self.extended[at].1 = with(self.extended[at].1, *amount),
                Err(at) => self.extended.insert(at, (name.clone(), *amount)),
            }
        }
    }

    /// Cuts every amount to [`MAX_QUANTITY`].
    pub fn cut(&mut self) {
        self.cpu_milli = self.cpu_milli.min(MAX_QUANTITY);
        self.memory = self.memory.min(MAX_QUANTITY);
        self.ephemeral_storage = self.ephemeral_storage.min(MAX_QUANTITY);
        self.extended.iter_mut().for_each(|(_, amount)| *amount = (*amount).min(MAX_QUANTITY));
    }

    fn position(&self, name: &ResourceName) -> Result<usize, usize> {
        self.extended.binary_search_by(|(other, _)| other.cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cpu_milli: u64, extended: &[(&str, u64)]) -> Resources {
        let mut resources = Resources { cpu_milli, ..Resources::default() };
        for (name, amount) in extended {
            resources.set(ResourceName::from(*name), *amount);
        }
        resources
    }

    #[test]
    fn subtract_undoes_add() {
        let mut sum = of(100, &[("a", 1)]);
        let other = of(50, &[("a", 2), ("b", 3)]);
        sum.add(&other);
        assert_eq!(sum, of(150, &[("a", 3), ("b", 3)]));
        sum.subtract(&other);
        assert_eq!(sum, of(100, &[("a", 1)]), "a resource that fell to zero leaves no trace");
    }

    #[test]
    fn zero_amounts_are_absent_and_large_ones_cut() {
        assert_eq!(of(0, &[("nvidia.com/gpu", 0)]).extended(), &[]);
        assert_eq!(of(0, &[("a", u64::MAX)]).get(&"a".into()), MAX_QUANTITY);
        let mut sum = Resources::default();
        for _ in 0..1 << 15 {
            sum.add(&of(MAX_QUANTITY, &[("a", MAX_QUANTITY)]));
        }
        assert_eq!((sum.cpu_milli, sum.get(&"a".into())), (u64::MAX, u64::MAX));
        sum.cut();
        assert_eq!(sum, of(MAX_QUANTITY, &[("a", MAX_QUANTITY)]));
    }

    #[test]
    fn max_is_by_resource() {
        let mut largest = of(100, &[("a", 1), ("b", 9)]);
        largest.raise_to(&of(50, &[("a", 2), ("c", 3)]));
        assert_eq!(largest, of(100, &[("a", 2), ("b", 9), ("c", 3)]));
    }
}
