//! Whether a forward change of a node may begin now.
//!
//! Invariant: a change begins only where nothing speaks against it, and everything that does is listed, so that people see
//! all of it at once and the longest wait is known. A rollback asks nobody here.

use std::fmt;
use std::time::Duration;

use super::document::Reading;
use super::journal::PolicyVersion;
use super::record::{Fleet, NoSlot};
use super::settings::Settings;
use super::stamp::{Stamp, TOLERANCE};
use super::window::open_for;
use super::world::{Answer, Cluster, World};
use crate::model::Time;
use crate::planner::{Load, Proposal};

/// Something that speaks against a change now.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Changes are only planned and reported.
    DryRun,
    /// An admin has paused the cluster or the node.
    Paused(&'static str),
    /// The cluster, or the node, is frozen.
    Frozen(String),
    /// The node was changed too recently.
    CoolingDown {
        /// How long it has to wait.
        left: Duration,
    },
    /// No maintenance window is open for long enough.
    OutsideWindow {
        /// When the next one opens; `None` for never.
        opens_in: Option<Duration>,
    },
    /// A change of this node is under way.
    Busy,
    /// So many nodes are changing that no more may.
    BudgetSpent {
        /// How many may.
        most: usize,
    },
    /// The policy is tried on other nodes first.
    NotInCanary {
        /// On how many.
        members: usize,
    },
    /// The policy did harm where it was tried.
    CanaryFailed(String),
    /// Activity does not move enough.
    DeadBand(Load),
    /// Our clock and the API server's differ, or the latter is not known.
    ClockInDoubt,
    /// Journal or cluster record cannot be read, or have to be written anew first.
    Unrecorded(String),
    /// The node is not ready, is cordoned, or its last change has not ended well.
    Unsettled(&'static str),
    /// What the node shows is not what the proposal starts from.
    OutOfDate,
    /// A pod that may not be moved holds an instance on a GPU that would change.
    Pinned(String),
}

/// Everything that speaks against a proposal now; empty if it may begin.
pub fn refusals(
    now: Time,
    settings: &Settings,
    proposal: &Proposal,
    policy: &PolicyVersion,
    world: &World,
    cluster: &Cluster,
    fleet: &Fleet,
) -> Vec<Refusal> {
    let mut found = node_refusals(proposal, world, cluster);
    let mut when = |speaks: bool, refusal: Refusal| found.extend(speaks.then_some(refusal));
    when(settings.dry_run, Refusal::DryRun);
    let in_doubt = |server: Time| server.since(now).max(now.since(server)) > TOLERANCE;
    when(cluster.server_time.is_none_or(in_doubt), Refusal::ClockInDoubt);
    let triggers = &proposal.why.triggers;
    let still =
        triggers.iter().map(|trigger| trigger.load().filter(|load| is_still(load, settings.dead_band)));
    let still: Option<Vec<Load>> = still.collect();
    if let Some(load) = still.and_then(|loads| loads.first().copied()) {
        when(true, Refusal::DeadBand(load));
    }
    if open_for(&settings.windows, now).is_none_or(|left| left < settings.timings.disruption()) {
        let opens_in = settings.windows.iter().filter_map(|window| window.opens_in(now)).min();
        when(true, Refusal::OutsideWindow { opens_in });
    }
    let record = readable(&cluster.record);
    let remembered = record.last_change(&proposal.node);
    let unknown = world.journal == Reading::Absent && remembered.is_some();
    when(unknown, Refusal::Unrecorded("the node's journal is missing".to_owned()));
    let last = readable(&world.journal).changed.max(remembered);
    if let Some(left) = last.and_then(|last| cool_down_left(now, settings, last)) {
        when(true, Refusal::CoolingDown { left });
    }
    match record.slot(&proposal.node, policy, fleet, settings) {
        // A freeze was found already.
        Ok(()) | Err(NoSlot::Frozen(_)) => {}
        Err(no) => when(true, no.into()),
    }
    found
}

/// What speaks against a change of this node, at whatever time and whoever else is changing.
pub fn node_refusals(proposal: &Proposal, world: &World, cluster: &Cluster) -> Vec<Refusal> {
    let mut found = Vec::new();
    let mut when = |speaks: bool, refusal: Refusal| found.extend(speaks.then_some(refusal));
    when(cluster.paused, Refusal::Paused("cluster"));
    when(world.paused, Refusal::Paused("node"));
    when(!world.ready, Refusal::Unsettled("it is not ready"));
    when(world.unschedulable, Refusal::Unsettled("it is cordoned"));
    when(world.answer != Answer::Done, Refusal::Unsettled("its last layout change has not ended well"));
    when(!world.shows(&proposal.from, proposal.actuator), Refusal::OutOfDate);
    let gpus = proposal.actuator.touches(&proposal.from, &proposal.to);
    when(gpus.is_empty(), Refusal::OutOfDate);
    for holder in world.holders_on(&gpus) {
        if let Err(why) = &holder.movable {
            when(true, Refusal::Pinned(format!("{}: {why}", holder.pod)));
        } else if !proposal.evictees.iter().any(|evictee| evictee.pod == holder.pod) {
            when(true, Refusal::OutOfDate);
        }
    }
    if let Reading::Damaged(why) = &world.journal {
        when(true, Refusal::Unrecorded(format!("journal: {why}")));
    }
    if let Reading::Damaged(why) = &cluster.record {
        when(true, Refusal::Unrecorded(format!("cluster record: {why}")));
    }
    let journal = readable(&world.journal);
    when(journal.change.is_some(), Refusal::Busy);
    if let Some(freeze) = journal.frozen.or(readable(&cluster.record).frozen) {
        when(true, Refusal::Frozen(freeze.why));
    }
    found
}

/// How long a node changed at `last` has to wait. Two clocks that are each within the tolerance of the API server's may differ by
/// twice that, so that much is waited in addition.
pub fn cool_down_left(now: Time, settings: &Settings, last: Stamp) -> Option<Duration> {
    let whole = settings.cool_down.saturating_add(2 * TOLERANCE);
    whole.checked_sub(last.age(now)).filter(|left| !left.is_zero())
}

/// Whether activity stays within the dead band around the present mean.
fn is_still(load: &Load, dead_band: f64) -> bool {
    let moved = (load.forecast - load.present).abs();
    !(moved > 0.0 && moved >= dead_band * load.present)
}

/// What can be read, which is nothing where it is damaged.
fn readable<T: Clone + Default>(reading: &Reading<T>) -> T {
    match reading {
        Reading::Valid(value) => value.clone(),
        Reading::Absent | Reading::Damaged(_) => T::default(),
    }
}

impl From<NoSlot> for Refusal {
    fn from(no: NoSlot) -> Refusal {
        match no {
            NoSlot::Frozen(why) => Refusal::Frozen(why),
            NoSlot::CanaryFailed(why) => Refusal::CanaryFailed(why),
            NoSlot::NotInCanary { members } => Refusal::NotInCanary { members },
            NoSlot::BudgetSpent { most } => Refusal::BudgetSpent { most },
            NoSlot::Busy => Refusal::Busy,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::DryRun => f.write_str("dry run: nothing is changed"),
            Refusal::Paused(what) => write!(f, "the {what} is paused by an admin"),
            Refusal::Frozen(why) => write!(f, "frozen: {why}"),
            Refusal::CoolingDown { left } => write!(f, "next change possible in {}m", minutes(*left)),
            Refusal::OutsideWindow { opens_in: Some(wait) } if wait.is_zero() => {
                f.write_str("the maintenance window closes too soon")
            }
            Refusal::OutsideWindow { opens_in: Some(wait) } => {
                write!(f, "the next maintenance window opens in {}m", minutes(*wait))
            }
            Refusal::OutsideWindow { opens_in: None } => f.write_str("no maintenance window will ever open"),
            Refusal::Busy => f.write_str("its layout is being changed"),
            Refusal::BudgetSpent { most } => {
                write!(f, "{most} node(s) are changing, and no more may at once")
            }
            Refusal::NotInCanary { members } => {
                write!(f, "the policy is tried on {members} other node(s) first")
            }
            Refusal::CanaryFailed(why) => write!(f, "the policy did harm where it was tried: {why}"),
            Refusal::DeadBand(load) => {
                let percent = |share: f64| (share * 100.0).round();
                let (present, forecast) = (percent(load.present), percent(load.forecast));
                write!(f, "activity hardly moves, from {present}% to {forecast}%")
            }
            Refusal::ClockInDoubt => f.write_str("our clock and the API server's differ"),
            Refusal::Unrecorded(why) => f.write_str(why),
            Refusal::Unsettled(why) => f.write_str(why),
            Refusal::OutOfDate => f.write_str("the node has changed since the plan was made"),
            Refusal::Pinned(pod) => write!(f, "pod {pod}"),
        }
    }
}

/// Whole minutes, rounded up.
fn minutes(duration: Duration) -> u64 {
    duration.as_secs().div_ceil(60)
}

#[cfg(test)]
mod tests;
