//! Everything that touches the world: the Kubernetes API, HTTP, logs and clocks.
//!
//! Invariant: nothing below this module decides about a pod; it carries out what the engine asked for.

pub mod clock;
pub mod connect;
pub mod convert;
pub mod dispatch;
pub mod http;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod run;
pub mod watch;
