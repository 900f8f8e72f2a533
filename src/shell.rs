//! Everything that touches the world: the Kubernetes API, clocks, signals, HTTP.

pub mod clock;
pub mod convert;
pub mod http;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod watch;
