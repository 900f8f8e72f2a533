//! The node agent's hands: single GPU instances created and destroyed at explicit starts, while the others keep running.
//!
//! ```text
//!   wanted layout ─► apply::calls (pure) ─► carry out one by one ─► MigGpu ─► NVML
//!   instances, holders ──┘                    └─ on an error: every inverse, in reverse order
//! ```
//!
//! Invariant: an instance that a running pod holds is never destroyed, MIG *mode* is never changed, and a GPU on which a call
//! fails goes back to the layout that it had. Where the process dies in between, the same wish carried out again ends in the
//! wanted layout: nothing is remembered but what the GPU itself shows.

pub mod apply;
pub mod gpu;
#[allow(unsafe_code, reason = "NVML is a C library")]
pub mod nvml;
