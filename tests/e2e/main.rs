//! End-to-end tests of the real binary on a real Kubernetes control plane.
//!
//! ```text
//!   harness     starts and stops the control plane          (tests/controlplane builds its binaries)
//!   emulator    plays every node's kubelet and device plugin
//!   scheduler   starts and stops the scheduler under test
//!   rights      gives it the rights that the manifests ship
//!   cluster     all of them together
//!   monitoring  a Prometheus, the exporter it scrapes and a proxy before it
//!   fixtures    nodes and pods to fill it with
//!   history     what every pod went through, and what the nodes hold in the end
//! ```
//!
//! The other modules are the tests. Nothing in them is simulated but the machines themselves. They take turns (the harness
//! holds a lock), so any number of test threads gives the same result.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run real processes in real time; the rule is for what a replay has to repeat"
)]

mod cluster;
mod emulator;
mod fixtures;
mod harness;
mod history;
mod monitoring;
mod rights;
mod scheduler;

mod bad_input;
mod control_plane;
mod election;
mod forecasts;
mod outages;
mod parity;
mod parted;
mod placing;
mod preemption;
mod refusals;
mod rejections;
mod relations;
mod requeue;
mod surface;
mod volumes;
