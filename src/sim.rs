//! The whole loop without a cluster: virtual nodes, virtual time, the real engine.
//!
//! ```text
//!   workload ─┐                         ┌─► node plane   kubelet's admission and the device plugin, as they would act
//!             ├─► scenario ─► world ◄───┤
//!   traces  ──┘                │        └─► meter        allocation, fragmentation, waiting, integrated over time
//!                              ▼
//!                     policy runs ─► report (table, JSON)
//! ```
//!
//! Invariant: a run is a function of its scenario and policy. Nothing here reads a clock, and the only source of chance is
//! [`rng`], so that the same seed gives the same bytes on every platform.

pub mod churn;
pub mod fractional;
pub mod llm_week;
pub mod measure;
pub mod mix;
pub mod node_plane;
pub mod policy;
pub mod report;
pub mod scenario;
pub mod static_layout;
mod table;
pub mod traces;
pub mod workload;
pub mod world;

pub use crate::model::rng;
