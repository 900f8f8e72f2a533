//! Changes of layouts that are safe to leave alone: when one may begin, how it runs, whether it stays.
//!
//! ```text
//!          everything that speaks against it is gone (gate), a slot is taken (record)
//!   idle ───────────────────────────────────────────────────────────────────────────► Publishing
//!    ▲                                                                                    │ names are known
//!    │                                                                                    ▼
//!    │    paused · frozen · layout no longer as planned · canary failed elsewhere     Propagating
//!    │  ◄──────────────────────────────────────────────────────────────────┬──────────────┤ 90 s (mig-manager)
//!    │         (Closing: given up; nothing was touched)                    │              ▼
//!    │                                                                     └────────── Draining     cordoned; one pod at a
//!    │                                                                                    │         time, the next once the
//!    │                                                                                    ▼         last one's successor is ready
//!    │              the layout gets lost, at most three times                          Applying     told together with the
//!    │              ┌───────────────────────────────────────────────────────────────►     │         journal; 12 min
//!    │              │                                                                     │ state, allocatable and feature
//!    │              │                                                                     ▼ discovery all show it
//!    │  held,    Observing ◄──────────────────────────────────────────────────────────────┤
//!    │  unjudged    │                                                                     │ failed · too late
//!    ├──────────────┤ utilisation fell · pods keep crashing · layout does not last        │
//!    │              ▼                                                                     │
//!    │          Retreating ◄──────────────────────────────────────────────────────────────┘
//!    │              │ the GPUs are empty             │ a pod that may not be moved
//!    │              ▼                                ▼
//!    │          Reverting ──── again, once ───►    Stuck     frozen; cordoned until either layout shows
//!    │              │ the old layout is verified     │
//!    └──────────────┴────────────────────────────────┘
//!       Closing: our cordon goes, then the slot, then the journal's entry
//! ```
//!
//! Around it, for the whole cluster ([`ClusterRecord`]): a budget of nodes that change at once; the canary of a policy, which
//! acts on a tenth of the nodes until some changes have held and on none once one was undone; a freeze, by a violated
//! invariant, that only a person lifts.
//!
//! Invariants:
//!
//! * At most one forward change of a node an hour, whatever restarts, takes over, or has a wrong clock: what is missing, cannot
//!   be read or lies in the future counts as changed just now. A rollback is always allowed, happens at most once a change and is
//!   repeated at most once, and the hour begins anew with it.
//! * A pod that may not be moved is never evicted, and no instance is taken from a running pod.
//! * Memory is no part of it: [`step`] is a function of the journal and of what is seen, so that it can be asked by anybody at any
//!   time. See [`transaction`](self::transaction) for what makes each action repeatable.
//! * Our cordon is taken away at the end, also where the journal was lost; an admin's is not.
//!
//! The shell turns watches into [`World`] and [`Cluster`], and every [`Action`] into a request; the engine asks [`step`] for each
//! node that has changed or whose time has come, and [`begin`] for each proposal of the planner.

mod document;
mod gate;
mod journal;
mod observe;
mod record;
mod settings;
mod sight;
mod stamp;
pub mod transaction;
mod window;
mod world;

pub use document::{Reading, open, seal};
pub use gate::{Refusal, refusals};
pub use journal::{
    CORDON, Change, ChangeId, Freeze, JOURNAL, Journal, Names, Outcome, PAUSE, Phase, PolicyVersion,
    Reservation,
};
pub use observe::{Course, Judgement, Rule, Trial, judge};
pub use record::{Canary, ClusterRecord, Edit, Fleet, NoSlot, OpenChange, Stage};
pub use settings::{SettingError, Settings, Timings};
pub use sight::NodeSight;
pub use stamp::{Stamp, TOLERANCE};
pub use transaction::{Action, NodePatch, Notice, NoticeReason, begin, step};
pub use window::MaintenanceWindow;
pub use world::{Answer, Cluster, Holder, Workload, World};
