//! Everything that touches the world: the Kubernetes API, clocks, signals, HTTP.

pub mod clock;
pub mod convert;
