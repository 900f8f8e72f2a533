//! Everything that touches the world: the Kubernetes API, HTTP, logs, signals and clocks.
//!
//! ```text
//!                    ┌───────────────────────── run: one loop owns the engine ─────────────────────────┐
//!   watch ─convert─► │ updates ──► Engine::step(clock, Event) ──► effects ──► dispatch ──┬► bind lane   │──► pods/binding
//!   lease ─────────► │ leadership    ▲        gate: leads and listed since              ├► status lane │──► pods/status
//!   signals ───────► │               └────────────── BindFinished ◄─────────────────────┤► event lane  │──► events
//!   forecasts ─────► │ outlooks, from a thread of their own                                             │
//!   http ◄───────────│ health, metrics ◄── facts ◄──────────────────────────────────────┘              │
//!                    └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - Nothing below this module decides about a pod; it carries out what the engine asked for.
//! - `convert` alone knows both Kubernetes' types and the model's.
//! - Every channel is bounded, and none of them can make the engine's loop wait.
//!
//! What the service account may do, and who needs it:
//!
//! | API group | resource | verbs | needed by |
//! |---|---|---|---|
//! | core | `nodes`, `pods` | list, watch | `watch`, in all namespaces |
//! | core | `pods` | get | the bind lane, which looks at a pod when an answer is not clear |
//! | core | `pods/binding` | create | the bind lane |
//! | core | `pods/status` | patch | the status lane |
//! | `events.k8s.io` | `events` | create | the event lane |
//! | `coordination.k8s.io` | `leases` | create; get, update by name | `lease`, in its own namespace |
//! | core | `configmaps` | create; get, update by name | `forecasts`, for what they have learnt, in its own namespace |

pub mod clock;
pub mod connect;
pub mod convert;
pub mod dispatch;
pub mod forecasts;
pub mod http;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod prometheus;
pub mod run;
pub mod watch;
pub mod weights;
