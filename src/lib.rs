//! A Kubernetes scheduler for NVIDIA GPUs that are cut into MIG instances.
//!
//! A pure engine decides, a shell talks to the world. Invariant: the pure modules know neither a clock nor I/O; the
//! lints below and `tests/it/architecture.rs` hold that line.
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    unsafe_code
)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::expect_used,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod agent;
pub mod cache;
pub mod cli;
pub mod config;
pub mod cycle;
pub mod effect;
pub mod engine;
pub mod event;
pub mod fact;
pub mod forecast;
pub mod mig;
pub mod model;
pub mod planner;
pub mod queue;
pub mod safety;
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod shell;
pub mod sim;
pub mod solver;

#[cfg(test)]
mod fixture;
