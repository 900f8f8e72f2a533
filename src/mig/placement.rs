//! Memory slices as a bit set, and one GPU instance on that axis.
//!
//! Invariant: bit i of [`Slots`] is memory slice i of one GPU. Sixteen bits hold every model (the longest axis has 12),
//! so overlap, union and difference are single instructions and a mask can index a table.

use std::fmt;

use thiserror::Error;

use super::geometry::{GpuModel, UnknownProfile};
use super::profile::ProfileName;

/// A set of memory slices of one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(u16);

impl Slots {
    /// No slice.
    pub const EMPTY: Slots = Slots(0);

    /// The set with these bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The bits of the set.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// `length` slices from `start`; what lies beyond the sixteenth is left out.
    pub const fn window(start: u8, length: u8) -> Self {
        if start >= 16 {
            return Self::EMPTY;
        }
        let ones = if length >= 16 { u16::MAX } else { (1 << length) - 1 };
        Self(ones << start)
    }

    /// Number of slices.
    pub const fn len(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Whether there is no slice.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether slice `at` belongs to the set.
    pub const fn contains(self, at: u8) -> bool {
        at < 16 && self.0 & (1 << at) != 0
    }

    /// Whether the sets share a slice.
    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The slices of either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The slices of both.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The slices of this set that are not in `other`.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The slices, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u8> {
        (0..16).filter(move |&at| self.contains(at))
    }
}

impl FromIterator<u8> for Slots {
    fn from_iter<I: IntoIterator<Item = u8>>(slices: I) -> Self {
        slices.into_iter().fold(Self::EMPTY, |set, at| set.union(Self::window(at, 1)))
    }
}

/// Slices as ranges: `0-3,6`.
impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for first in self.iter().filter(|&at| at == 0 || !self.contains(at - 1)) {
            let end = (first..16).find(|&at| !self.contains(at)).unwrap_or(16);
            write!(f, "{separator}{first}")?;
            if end > first + 1 {
                write!(f, "-{}", end - 1)?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// One GPU instance: a profile and the memory slice where it starts. Ordered by start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// First memory slice.
    pub start: u8,
    /// The instance's profile.
    pub profile: ProfileName,
}

impl Placement {
    /// Puts `profile` at `start`; whether that is legal depends on the model, see [`slots`](Self::slots).
    pub const fn new(profile: ProfileName, start: u8) -> Self {
        Self { start, profile }
    }

    /// The memory slices that the instance occupies on `model`, or why it cannot exist there.
    pub fn slots(self, model: &GpuModel) -> Result<Slots, PlacementError> {
        let geometry = model.profile(self.profile)?;
        if geometry.starts.contains(self.start) {
            Ok(geometry.window(self.start))
        } else {
            Err(PlacementError::IllegalStart { model: model.name, placement: self, starts: geometry.starts })
        }
    }
}

/// `3g.20gb@4`.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.profile, self.start)
    }
}

/// Why an instance cannot exist on a model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// The model does not offer the profile.
    #[error(transparent)]
    UnknownProfile(#[from] UnknownProfile),
    /// The profile may not start there.
    #[error("{placement} is not a placement of {model}: `{}` starts at {starts}", placement.profile)]
    IllegalStart {
        /// The model's short name.
        model: &'static str,
        /// What was asked for.
        placement: Placement,
        /// The starts that are legal.
        starts: Slots,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_set() {
        let set = Slots::window(2, 2).union(Slots::window(6, 1));
        assert_eq!((set.bits(), set.len(), set.to_string()), (0b0100_1100, 3, "2-3,6".to_owned()));
        assert_eq!(set.iter().collect::<Slots>(), set);
        assert_eq!(set.minus(Slots::window(0, 4)), Slots::window(6, 1));
        assert_eq!(Slots::window(0, 16).to_string(), "0-15");
        assert_eq!(Slots::window(16, 3), Slots::EMPTY);
        assert!(!set.overlaps(Slots::window(4, 2)) && set.overlaps(Slots::window(3, 2)) && !set.contains(16));
    }

    fn check(model: &str, placement: (&str, u8), expected: Result<u16, &str>) {
        let model = GpuModel::by_name(model).unwrap();
        let slots = Placement::new(placement.0.parse().unwrap(), placement.1).slots(model);
        match expected {
            Ok(bits) => assert_eq!(slots.unwrap().bits(), bits),
            Err(names) => assert!(slots.clone().unwrap_err().to_string().contains(names), "{slots:?}"),
        }
    }

    #[test]
    fn an_instance_occupies_its_window_or_is_refused() {
        check("A100-40GB", ("3g.20gb", 4), Ok(0b1111_0000));
        check("A100-40GB", ("1g.10gb", 6), Ok(0b1100_0000));
        check("A100-40GB", ("1g.5gb", 7), Err("starts at 0-6"));
        check("A100-40GB", ("2g.10gb", 6), Err("2g.10gb@6 is not a placement of A100-40GB"));
        check("A100-40GB", ("4g.20gb", 4), Err("starts at 0"));
        check(
            "A100-40GB",
            ("1g.10gb+me", 0),
            Err("A100-40GB has no profile `1g.10gb+me`: it has 1g.5gb, 1g.5gb+me"),
        );
        check("RTX-PRO-6000-96GB", ("2g.48gb+gfx", 6), Ok(0b1111_1100_0000));
        check("RTX-PRO-6000-96GB", ("1g.24gb", 4), Err("starts at 0,3,6,9"));
    }
}
