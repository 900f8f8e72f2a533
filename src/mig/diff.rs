//! The steps from one layout of a GPU to another, and back.
//!
//! Invariant: instances that both layouts have are never touched, and every state between two steps is a legal layout,
//! because all that must go is destroyed before anything is created. The inverse is the same steps undone in reverse
//! order, so it has the same property.

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

/// Ordered steps between two layouts of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayoutDiff {
    steps: Vec<Step>,
}

impl LayoutDiff {
    /// The steps that make `to` out of `from`; refused when the models differ.
    pub fn between(from: &Layout, to: &Layout) -> Result<Self, LayoutError> {
        let (old, new) = (from.model().name, to.model().name);
        if old != new {
            return Err(LayoutError::ModelMismatch { from: old, to: new });
        }
        let destroyed = only_in(from, to).map(Step::Destroy);
        Ok(Self { steps: destroyed.chain(only_in(to, from).map(Step::Create)).collect() })
    }

    /// The steps, in the order in which they must be done.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps that lead back.
    pub fn inverse(&self) -> Self {
        Self { steps: self.steps.iter().rev().map(|step| step.inverse()).collect() }
    }

    /// The layout after all steps, or the first step that is impossible.
    pub fn apply(&self, layout: &Layout) -> Result<Layout, LayoutError> {
        self.steps.iter().try_fold(layout.clone(), |layout, step| step.apply(layout))
    }
}

fn only_in<'a>(layout: &'a Layout, other: &'a Layout) -> impl Iterator<Item = Placement> + 'a {
    layout.placements().iter().copied().filter(|placement| !other.placements().contains(placement))
}
