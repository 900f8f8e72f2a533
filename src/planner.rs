//! Which layouts to change ahead of demand, and why.
//!
//! ```text
//!   forecast of activity ──► load of a GPU ──► band: split below 40 % · keep · merge above 80 %
//!   Question: nodes, pods that may move, demand             Proposal: node, from, to, evictees with a place, why
//! ```
//!
//! Invariants: a proposal says everything that carrying it out needs, and its words are made of the figures by which it was
//! decided; only pods that may be moved ([`movable`]) ever have to go; whether a proposal is carried out, and when, is decided
//! elsewhere ([`safety`](crate::safety)).

mod movable;
mod plan;
mod policy;
mod proposal;
mod question;
mod weigh;
mod worth;

pub use movable::{INFERENCE, Immovable, PodFacts, TASK_LABEL, movable};
pub use plan::plan;
pub use policy::{Band, Costs, Policy, PolicyError, Target};
pub use proposal::{Actuator, Blast, Evictee, Load, Proposal, Trigger, Why};
pub use question::{DemandOutlook, Held, MovablePod, PlannedGpu, PlannedNode, Question, Waiting};
