//! One change to a GPU's instances, and its inverse. The order of several is found by
//! [`solver::transition`](crate::solver::transition).
//!
//! Invariant: a step leads from one legal layout to another or is refused, and its inverse leads back.

use std::fmt;

use super::layout::{Layout, LayoutError};
use super::placement::Placement;

/// One change to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Removes an instance, which must be free.
    Destroy(Placement),
    /// Adds an instance at its start.
    Create(Placement),
}

impl Step {
    /// The step that undoes this one.
    pub const fn inverse(self) -> Self {
        match self {
            Step::Destroy(placement) => Step::Create(placement),
            Step::Create(placement) => Step::Destroy(placement),
        }
    }

    /// The layout after this step.
    pub fn apply(self, layout: Layout) -> Result<Layout, LayoutError> {
        match self {
            Step::Destroy(placement) => layout.without(placement),
            Step::Create(placement) => layout.with(placement),
        }
    }
}

/// `-3g.20gb@4` or `+2g.10gb@4`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Destroy(placement) => write!(f, "-{placement}"),
            Step::Create(placement) => write!(f, "+{placement}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::layout::{Variants, enumerate_layouts};
    use crate::mig::tables::MODELS;

    #[test]
    fn a_step_is_possible_once_and_its_inverse_undoes_it() {
        for model in &MODELS {
            for layout in enumerate_layouts(model, Variants::Base).layouts() {
                for &placement in layout.placements() {
                    let step = Step::Destroy(placement);
                    let after = step.apply(layout.clone()).unwrap();
                    assert!(matches!(step.apply(after.clone()), Err(LayoutError::Absent { .. })));
                    assert_eq!(step.inverse().apply(after).unwrap(), *layout);
                    let again = step.inverse().apply(layout.clone());
                    assert!(matches!(again, Err(LayoutError::Overlap { .. })), "{again:?}");
                }
            }
        }
    }
}
