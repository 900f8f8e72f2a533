//! What MIG instances can be made of the free slices, and what is lost by making them in the wrong place.
//!
//! Pure: tables over occupancy masks, no search that depends on time.

pub mod closed_form;
pub mod dispatch;
pub mod fitting;
pub mod fragmentation;
pub mod lookahead;
pub mod measures;
pub mod packing;
pub mod patterns;
pub mod services;
pub mod states;
pub mod transition;
pub mod wants;
