//! From the instances that a GPU has to the layout that it shall have.
//!
//! Invariant: what is to be done is decided before the first call, by [`calls`] alone, and refused as a whole when a running
//! pod's instance is in the way. A call that fails undoes those before it, in reverse order: the GPU ends in the wanted layout
//! or as it was found.
//!
//! What a killed predecessor left is seen, not remembered: a GPU instance without compute instance is completed where it is
//! wanted and removed where it is not.

use std::collections::BTreeSet;

use thiserror::Error;

use super::gpu::{Call, GpuError, Instance, MigGpu};
use crate::mig::{GpuModel, Layout, LayoutError, Placement, Step};
use crate::solver::transition::{Action, GpuChange, TransitionError, Weights, plan};

/// Why a GPU does not have the wanted layout.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// The GPU could not be read; it was not touched.
    #[error("cannot read the GPU's instances: {0}")]
    Unread(GpuError),
    /// Its instances do not fit the tables of its model; it was not touched.
    #[error("the GPU's instances are none of the tables' layouts: {0}")]
    Unknown(LayoutError),
    /// The change cannot be done, for example because a running pod is in the way; the GPU was not touched.
    #[error(transparent)]
    Refused(#[from] TransitionError),
    /// A call failed, and everything before it was undone.
    #[error("{call} failed, the GPU is as it was: {error}")]
    Undone {
        /// What failed.
        call: Call,
        /// Why.
        error: GpuError,
    },
    /// A call failed, and so did undoing one before it: the GPU is in between until the wish is carried out again.
    #[error("{call} failed ({error}), and so did the way back at: {back} ({because})")]
    Stuck {
        /// What failed.
        call: Call,
        /// Why.
        error: GpuError,
        /// Which call of the way back failed.
        back: Call,
        /// Why.
        because: GpuError,
    },
    /// Every call succeeded, but the GPU could not be read afterwards.
    #[error("every call succeeded, but the GPU's instances cannot be read: {0}")]
    Unverified(GpuError),
    /// Every call succeeded, but the GPU shows something else.
    #[error("every call succeeded, yet the GPU shows {found} instead of {wanted}")]
    NotReached {
        /// The wanted layout.
        wanted: Layout,
        /// What the GPU shows.
        found: String,
    },
}

/// Gives a GPU the layout `to`, without touching the instances in `held`, which running pods hold.
///
/// Returns the calls that were made; none when the GPU has the layout already.
pub fn apply(
    gpu: &mut impl MigGpu,
    to: &Layout,
    held: &BTreeSet<Placement>,
) -> Result<Vec<Call>, ApplyError> {
    let present = gpu.instances().map_err(ApplyError::Unread)?;
    let calls = calls(gpu.model(), &present, to, held)?;
    carry_out(gpu, &calls)?;
    verify(gpu, to)?;
    Ok(calls)
}

/// The calls that lead from the `present` instances to the layout `to`, in order.
pub fn calls(
    model: &'static GpuModel,
    present: &[Instance],
    to: &Layout,
    held: &BTreeSet<Placement>,
) -> Result<Vec<Call>, ApplyError> {
    let from = Layout::new(model, present.iter().map(|instance| instance.placement));
    let from = from.map_err(ApplyError::Unknown)?;
    let change = GpuChange { from, to: to.clone(), held: held.iter().copied().collect() };
    let transition = plan(&[change], &[], Weights::default())?;
    let unfinished: BTreeSet<Placement> =
        present.iter().filter(|instance| !instance.usable).map(|instance| instance.placement).collect();
    let kept = unfinished.iter().filter(|placement| to.placements().contains(placement));
    let mut calls: Vec<Call> = kept.map(|placement| Call::CreateCompute(*placement)).collect();
    for action in transition.steps() {
        match *action {
            Action::Change { step: Step::Destroy(placement), .. } if unfinished.contains(&placement) => {
                calls.push(Call::DestroyGpu(placement));
            }
            Action::Change { step, .. } => calls.extend(Call::of(step)),
            // A plan without moves has no other action.
            Action::Move { .. } | Action::Evict(_) | Action::Bind(_) => {}
        }
    }
    Ok(calls)
}

/// Makes the calls, or none of them.
fn carry_out(gpu: &mut impl MigGpu, calls: &[Call]) -> Result<(), ApplyError> {
    for (done, &call) in calls.iter().enumerate() {
        let Err(error) = gpu.call(call) else { continue };
        for back in calls[..done].iter().rev().map(|call| call.inverse()) {
            if let Err(because) = gpu.call(back) {
                return Err(ApplyError::Stuck { call, error, back, because });
            }
        }
        return Err(ApplyError::Undone { call, error });
    }
    Ok(())
}

/// Looks whether the GPU shows what it was given.
fn verify(gpu: &impl MigGpu, to: &Layout) -> Result<(), ApplyError> {
    let found = gpu.instances().map_err(ApplyError::Unverified)?;
    let usable = found.iter().filter(|instance| instance.usable);
    let shown = Layout::new(gpu.model(), usable.map(|instance| instance.placement));
    if found.iter().all(|instance| instance.usable) && shown.as_ref() == Ok(to) {
        return Ok(());
    }
    let words = found.iter().map(|instance| {
        format!("{}{}", instance.placement, if instance.usable { "" } else { " (no compute instance)" })
    });
    let found = words.collect::<Vec<_>>().join(" ");
    Err(ApplyError::NotReached { wanted: to.clone(), found })
}

#[cfg(test)]
mod tests;
