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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mig::geometry::GpuModel;
    use crate::mig::layout::{Variants, enumerate_layouts, find_layout};
    use crate::mig::tables::MODELS;

    fn layout(text: &str) -> Layout {
        let placements = text.split_whitespace().map(|word| {
            let (profile, start) = word.split_once('@').unwrap();
            Placement::new(profile.parse().unwrap(), start.parse().unwrap())
        });
        Layout::new(GpuModel::by_name("A100-40GB").unwrap(), placements).unwrap()
    }

    fn check(from: &str, to: &str, expected: &str) {
        let diff = LayoutDiff::between(&layout(from), &layout(to)).unwrap();
        let steps: Vec<_> = diff.steps().iter().map(Step::to_string).collect();
        assert_eq!(steps.join(" "), expected);
    }

    #[test]
    fn common_instances_stay() {
        check("3g.20gb@0 3g.20gb@4", "3g.20gb@4 3g.20gb@0", "");
        check("", "7g.40gb@0", "+7g.40gb@0");
        check("4g.20gb@0 3g.20gb@4", "4g.20gb@0 1g.5gb@6 2g.10gb@4", "-3g.20gb@4 +2g.10gb@4 +1g.5gb@6");
    }

    #[test]
    fn layouts_of_different_models_have_no_diff() {
        let a30 = find_layout(GpuModel::by_name("A30-24GB").unwrap(), &Default::default()).unwrap();
        let error = LayoutDiff::between(&layout(""), &a30).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a layout of A100-40GB cannot become one of A30-24GB: compare layouts of one model"
        );
    }

    #[test]
    fn a_diff_does_not_apply_to_another_layout() {
        let diff = LayoutDiff::between(&layout("3g.20gb@0"), &layout("3g.20gb@4")).unwrap();
        assert!(matches!(diff.apply(&layout("3g.20gb@4")), Err(LayoutError::Absent { .. })));
        assert!(matches!(diff.inverse().apply(&layout("")), Err(LayoutError::Absent { .. })));
        assert!(matches!(diff.apply(&layout("3g.20gb@0 1g.5gb@5")), Err(LayoutError::Overlap { .. })));
    }

    proptest! {
        #[test]
        fn there_and_back(which in 0..MODELS.len(), a: prop::sample::Index, b: prop::sample::Index) {
            let table = enumerate_layouts(&MODELS[which], Variants::All);
            let (a, b) = (a.get(table.layouts()), b.get(table.layouts()));
            let diff = LayoutDiff::between(a, b).unwrap();
            prop_assert_eq!(&diff.apply(a).unwrap(), b);
            prop_assert_eq!(&diff.inverse().apply(b).unwrap(), a);
            prop_assert_eq!(diff.inverse().inverse(), diff.clone());
            prop_assert_eq!(diff.is_empty(), a == b);
            let kept = |step: &&Step| matches!(step, Step::Destroy(p) | Step::Create(p)
                if a.placements().contains(p) && b.placements().contains(p));
            prop_assert_eq!(diff.steps().iter().find(kept), None);
        }
    }
}
