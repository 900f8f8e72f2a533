//! What the agent needs of one GPU in MIG mode: to see its instances, and four calls that change them.
//!
//! Invariant: a [`Call`] is the smallest change that NVML knows, and has an inverse. A GPU instance without its compute
//! instance is a state of its own here, because a process that dies between two calls leaves it behind.

use std::fmt;

use thiserror::Error;

use crate::mig::{GpuModel, Placement, Step};

/// One GPU instance as it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Profile and start.
    pub placement: Placement,
    /// NVML's id of the GPU instance; it is given anew to a later instance.
    pub id: u32,
    /// Whether its compute instance exists; without one nobody can use it.
    pub usable: bool,
}

/// One change to one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Makes a GPU instance at its start, without a compute instance.
    CreateGpu(Placement),
    /// Makes the compute instance that takes the whole GPU instance.
    CreateCompute(Placement),
    /// Removes the compute instance, which nobody may use.
    DestroyCompute(Placement),
    /// Removes the GPU instance, which must have no compute instance.
    DestroyGpu(Placement),
}

impl Call {
    /// The calls that carry out a step, in order.
    pub const fn of(step: Step) -> [Self; 2] {
        match step {
            Step::Create(placement) => [Call::CreateGpu(placement), Call::CreateCompute(placement)],
            Step::Destroy(placement) => [Call::DestroyCompute(placement), Call::DestroyGpu(placement)],
        }
    }

    /// The call that undoes this one.
    pub const fn inverse(self) -> Self {
        match self {
            Call::CreateGpu(placement) => Call::DestroyGpu(placement),
            Call::CreateCompute(placement) => Call::DestroyCompute(placement),
            Call::DestroyCompute(placement) => Call::CreateCompute(placement),
            Call::DestroyGpu(placement) => Call::CreateGpu(placement),
        }
    }
}

/// `create GPU instance 3g.20gb@4`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, placement) = match self {
            Call::CreateGpu(placement) => ("create GPU instance", placement),
            Call::CreateCompute(placement) => ("create compute instance of", placement),
            Call::DestroyCompute(placement) => ("destroy compute instance of", placement),
            Call::DestroyGpu(placement) => ("destroy GPU instance", placement),
        };
        write!(f, "{what} {placement}")
    }
}

/// One GPU in MIG mode.
pub trait MigGpu {
    /// What the GPU is.
    fn model(&self) -> &'static GpuModel;

    /// Its GPU instances, in any order.
    fn instances(&self) -> Result<Vec<Instance>, GpuError>;

    /// Carries out one call; an error means that nothing was changed.
    fn call(&mut self, call: Call) -> Result<(), GpuError>;
}

/// Why a GPU did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GpuError {
    /// A process uses the instance.
    #[error("another client holds {0}: end the process that uses it, then try again")]
    InUse(Placement),
    /// No such instance, or none in the state that the call needs.
    #[error("{0} is not there: read the GPU's instances again")]
    Absent(Placement),
    /// Something on the GPU that the agent neither made nor understands.
    #[error("{found}: remove it by hand, the agent leaves alone what it does not know")]
    Foreign {
        /// What was found.
        found: String,
    },
    /// MIG mode is off, and the agent never changes it.
    #[error("GPU {gpu}: MIG mode is off: enable it (nvidia-smi -i {gpu} -mig 1) and reset the GPU")]
    ModeOff {
        /// NVML's index of the GPU.
        gpu: u32,
    },
    /// The driver refused.
    #[error("{what}: {reason}")]
    Driver {
        /// What was asked of it.
        what: String,
        /// Its answer.
        reason: String,
    },
}
