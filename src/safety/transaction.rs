//! The course of one change, as a function: journal and observed world in, next actions out.
//!
//! Nothing is remembered between two calls. What has been decided stands in the journal, what has happened is seen; so a
//! scheduler that dies after any action, or another one that takes over, goes on by calling [`step`] again. Every action may be
//! carried out twice: a PATCH is refused when its object has changed since, a published name stays published, an evicted pod is
//! gone, an edit of the record changes nothing the second time.
//!
//! | step | actions | inverse |
//! |---|---|---|
//! | take a slot | `Record(Open)` | `Record(Close)`, or `Record(Release)` where no journal was written |
//! | publish | `Publish` | none needed: a name that no label has does nothing |
//! | cordon | `Patch { cordon: true }` | `Patch { cordon: false }`, ours only |
//! | drain | `Evict`, one pod at a time | its successor runs in the place kept for it |
//! | apply | `Patch { tell }` or `Tell` with the new name | the same with the old layout's name, once more if need be |
//! | observe | none | |
//! | close | `Patch { cordon: false }`, `Record(Close)`, `Patch` of an idle journal | |
//!
//! Actions are carried out in the order of the list, and none after one that failed.

mod back;
mod forward;

use super::document::Reading;
use super::gate::{Refusal, node_refusals, refusals};
use super::journal::{Change, Freeze, Journal, Outcome, Phase, PolicyVersion, change_id};
use super::record::{ClusterRecord, Edit, Fleet};
use super::settings::Settings;
use super::stamp::Stamp;
use super::world::{Answer, Cluster, World};
use crate::mig::NodeLayout;
use crate::model::{NodeName, PodId, Time};
use crate::planner::Proposal;

/// Something to do for a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Writes the node object, under the resourceVersion of the observation.
    Patch(Box<NodePatch>),
    /// Makes names known to the actuator, each with the layout it stands for.
    Publish(Vec<(String, NodeLayout)>),
    /// Tells the agent what to do. (mig-manager is told by [`NodePatch::tell`].)
    Tell {
        /// The plan.
        name: String,
        /// The layout.
        layout: NodeLayout,
    },
    /// Asks the API server to evict a pod, which a disruption budget may refuse.
    Evict(PodId),
    /// Deletes the device plugin's pod of the node.
    RestartDevicePlugin,
    /// Edits the cluster record.
    Record(Edit),
    /// Writes a new cluster record in the place of a damaged one.
    RenewRecord,
    /// Publishes an event about the node.
    Notify(Notice),
}

/// What is written to a node object at once.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePatch {
    /// The journal.
    pub journal: Journal,
    /// Sets or removes `spec.unschedulable` together with the annotation that says it is ours.
    pub cordon: Option<bool>,
    /// A new value for the label that mig-manager obeys.
    pub tell: Option<String>,
}

/// The reason of an event about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeReason {
    /// A change has begun.
    Changing,
    /// The new layout stays.
    Changed,
    /// The old layout stays, or is back.
    RolledBack,
    /// The node, or the cluster, waits for a person.
    Frozen,
}

/// An event about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its reason.
    pub reason: NoticeReason,
    /// What people read.
    pub message: String,
}

impl NoticeReason {
    /// The word as the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            NoticeReason::Changing => "MigLayoutChanging",
            NoticeReason::Changed => "MigLayoutChanged",
            NoticeReason::RolledBack => "MigLayoutRolledBack",
            NoticeReason::Frozen => "MigLayoutFrozen",
        }
    }
}

/// Begins the change that a proposal asks for, or says what speaks against it. To be asked again until the journal has the
/// change: first a slot is taken, and once the record shows it the journal is written.
pub fn begin(
    now: Time,
    settings: &Settings,
    proposal: &Proposal,
    policy: &PolicyVersion,
    world: &World,
    cluster: &Cluster,
    fleet: &Fleet,
) -> Result<Vec<Action>, Vec<Refusal>> {
    let journal = match &world.journal {
        Reading::Valid(journal) => journal.clone(),
        Reading::Absent | Reading::Damaged(_) => Journal::default(),
    };
    let id = change_id(proposal, policy, journal.changed);
    let node = proposal.node.clone();
    let has_slot = matches!(&cluster.record, Reading::Valid(record) if record.has_slot(&node, &id));
    if !has_slot {
        let found = refusals(now, settings, proposal, policy, world, cluster, fleet);
        if !found.is_empty() {
            return Err(found);
        }
        return Ok(vec![Action::Record(Edit::Open { node, id, policy: policy.clone() })]);
    }
    let found = node_refusals(proposal, world, cluster);
    if !found.is_empty() {
        return Err(found);
    }
    let Some(begun) = journal.begun(now, proposal, policy, world.told.as_deref()) else {
        return Err(vec![Refusal::OutOfDate]);
    };
    Ok(vec![patch(begun), notice(NoticeReason::Changing, proposal.why.to_string())])
}

/// The next actions for a node, whether a change is under way or not.
pub fn step(
    now: Time,
    settings: &Settings,
    node: &NodeName,
    world: &World,
    cluster: &Cluster,
) -> Vec<Action> {
    let none = ClusterRecord::default();
    let record = match &cluster.record {
        Reading::Valid(record) => record,
        Reading::Absent => &none,
        Reading::Damaged(_) => return vec![Action::RenewRecord],
    };
    let journal = match &world.journal {
        Reading::Valid(journal) => journal.clone(),
        // A slot is taken before the first journal is written.
        Reading::Absent if world.our_cordon => return lost(now, "the journal is missing"),
        Reading::Absent if record.last_change(node).is_none() || record.open.contains_key(node) => {
            return Vec::new();
        }
        Reading::Absent => return lost(now, "the journal is missing"),
        Reading::Damaged(why) => return lost(now, &format!("the journal cannot be read: {why}")),
    };
    let cut = journal.cut(now);
    if cut != journal {
        return vec![patch(cut)];
    }
    let Some(change) = &journal.change else { return idle(now, settings, world, &journal) };
    let course = Course { now, settings, node, world, cluster, record, journal: &journal, change };
    course.next()
}

/// A change under way, with everything that its next step depends on.
struct Course<'a> {
    now: Time,
    settings: &'a Settings,
    node: &'a NodeName,
    world: &'a World,
    cluster: &'a Cluster,
    record: &'a ClusterRecord,
    journal: &'a Journal,
    change: &'a Change,
}

impl Course<'_> {
    fn next(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        match self.record.open.get(self.node) {
            _ if matches!(self.change.phase, Phase::Closing { .. }) => {}
            Some(open) if open.id == self.change.id => {}
            None => {
                let (id, since) = (self.change.id.clone(), self.change.started);
                actions.push(Action::Record(Edit::Restore { node: self.node.clone(), id, since }));
            }
            Some(open) => {
                let why =
                    format!("node {}: change {} in place of {}", self.node, open.id.0, self.change.id.0);
                actions.extend(self.violation(why));
            }
        }
        actions.extend(match &self.change.phase {
            Phase::Publishing => self.publishing(),
            Phase::Propagating { since } => self.propagating(*since),
            Phase::Draining { evicted, since } => self.draining(*evicted, *since),
            Phase::Applying { since, nudged, lost } => self.applying(*since, *nudged, *lost),
            Phase::Observing { since, lost } => self.observing(*since, *lost),
            Phase::Retreating { since, why } => self.retreating(*since, why),
            Phase::Reverting { since, why, again, seen, nudged } => {
                self.reverting(*since, why, *again, *seen, *nudged)
            }
            Phase::Stuck => self.stuck(),
            Phase::Closing { outcome } => self.closing(outcome),
        });
        actions
    }

    /// The journal with another phase.
    fn journal_at(&self, phase: Phase) -> Journal {
        let change = Change { phase, ..self.change.clone() };
        Journal { change: Some(change), ..self.journal.clone() }
    }

    fn go(&self, phase: Phase) -> Vec<Action> {
        vec![patch(self.journal_at(phase))]
    }

    fn close(&self, outcome: Outcome) -> Vec<Action> {
        self.go(Phase::Closing { outcome })
    }

    /// Something that must never be: no further change begins anywhere until a person has looked.
    fn violation(&self, why: String) -> Vec<Action> {
        if self.record.frozen.is_some() {
            return Vec::new();
        }
        vec![Action::Record(Edit::Freeze(why.clone())), notice(NoticeReason::Frozen, why)]
    }

    /// The actuator is told a name, together with the journal where one object holds both.
    fn tell(&self, phase: Phase, name: &str) -> Vec<Action> {
        let mut journal = self.journal_at(phase);
        journal.changed = Some(Stamp::of(self.now));
        let tell = (self.change.actuator == crate::planner::Actuator::MigManager).then(|| name.to_owned());
        vec![Action::Patch(Box::new(NodePatch { journal, cordon: None, tell }))]
    }

    /// What has to be done before an answer to `name` can be waited for: the agent is told where the journal was written and
    /// the agent's own object was not; with mig-manager somebody else has set the label in between.
    fn told(&self, name: &str, layout: &NodeLayout) -> Option<Vec<Action>> {
        if self.world.told.as_deref() == Some(name) {
            return None;
        }
        if self.change.actuator == crate::planner::Actuator::Agent {
            return Some(vec![Action::Tell { name: name.to_owned(), layout: layout.clone() }]);
        }
        let other = self.world.told.as_deref().unwrap_or("nothing");
        Some(self.freeze(
            format!("somebody has asked mig-manager for {other} in the middle of our change to {name}"),
            true,
        ))
    }

    /// The node is left to a person: with the change given up if `done`, else until either layout shows.
    fn freeze(&self, why: String, done: bool) -> Vec<Action> {
        let phase =
            if done { Phase::Closing { outcome: Outcome::Frozen(why.clone()) } } else { Phase::Stuck };
        let mut journal = self.journal_at(phase);
        journal.frozen = Some(Freeze { why: why.clone(), since: Stamp::of(self.now) });
        let mut actions = vec![patch(journal)];
        if !done {
            actions.push(notice(NoticeReason::Frozen, why));
        }
        actions
    }

    /// Success without the instances to show for it: the device plugin may not have noticed, and is restarted once.
    fn wants_nudge(&self, since: Stamp, nudged: bool) -> bool {
        !nudged
            && self.world.answer == Answer::Done
            && since.age(self.now) > self.settings.timings.readvertise
    }
}

fn patch(journal: Journal) -> Action {
    Action::Patch(Box::new(NodePatch { journal, cordon: None, tell: None }))
}

fn notice(reason: NoticeReason, message: String) -> Action {
    Action::Notify(Notice { reason, message })
}

/// A journal that is not what was written: the node counts as changed just now.
fn lost(now: Time, why: &str) -> Vec<Action> {
    let journal = Journal { changed: Some(Stamp::of(now)), ..Journal::default() };
    let message = format!("{why}; the node counts as changed just now");
    vec![patch(journal), notice(NoticeReason::Frozen, message)]
}

/// No change is under way: a cordon of ours is what a lost journal left behind. It stays until the actuator has finished with
/// whatever it may have been told just before.
fn idle(now: Time, settings: &Settings, world: &World, journal: &Journal) -> Vec<Action> {
    let begun = |changed: Stamp| changed.age(now) > settings.timings.readvertise;
    if !world.our_cordon || !journal.changed.is_none_or(begun) {
        return Vec::new();
    }
    if let (Answer::Failed(why), None) = (&world.answer, &journal.frozen) {
        let why = format!("the journal of a change was lost, and the change failed: {why}");
        let frozen = Some(Freeze { why: why.clone(), since: Stamp::of(now) });
        return vec![patch(Journal { frozen, ..journal.clone() }), notice(NoticeReason::Frozen, why)];
    }
    if world.answer != Answer::Done || world.allocatable != world.discovered {
        return Vec::new();
    }
    vec![Action::Patch(Box::new(NodePatch { journal: journal.clone(), cordon: Some(false), tell: None }))]
}

#[cfg(test)]
pub(super) mod emulator;
#[cfg(test)]
mod tests;
