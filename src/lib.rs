//! mig-scheduler: a Kubernetes scheduler for NVIDIA GPUs that are cut into MIG instances.
//!
//! The pure modules decide; `shell`, `sim` and `cli` act.

pub mod cache;
pub mod cycle;
pub mod effect;
pub mod engine;
pub mod event;
pub mod fact;
pub mod mig;
pub mod model;
pub mod queue;
pub mod solver;

#[cfg(test)]
mod fixture;
