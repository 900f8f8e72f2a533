//! A Kubernetes scheduler for NVIDIA GPUs that are cut into MIG instances.

pub mod effect;
pub mod event;
pub mod fact;
pub mod mig;
pub mod model;
pub mod shell;
