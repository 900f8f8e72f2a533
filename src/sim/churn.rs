//! GPUs under churn: pods of one instance each come, wait, run and go, on a fleet of equal GPUs, and nothing else exists.
//!
//! ```text
//!   workload (seed) ──► clock: arrivals and ends in order of time
//!                         │ after each
//!                         ▼
//!                       System::settle ──► which waiting pods start now, where; which running pods move
//!                         │
//!                         ▼
//!                       measure: waits by profile, slices in use, moves
//! ```
//!
//! There are no nodes, no CPU and no Kubernetes here, because the question is what placement and migration are worth. The same
//! pods with the same lifetimes meet every system, so that differences between systems are paired.
//!
//! Invariant: a run is a function of its options. Every pod that arrived waits, runs or is gone; pods of one profile start in
//! the order of their arrival.

pub mod baselines;
pub mod clock;
pub mod contest;
pub mod counted;
pub mod fleet;
pub mod limited;
pub mod lookahead;
pub mod report;
pub mod workload;

#[cfg(test)]
mod tests;
