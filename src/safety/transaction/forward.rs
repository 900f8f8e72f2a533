//! From the journal's first entry to the end of the observation.
//!
//! Invariant: until the actuator is told, whatever stands in the way ends the change with nothing but a cordon to take back;
//! from then on it leads back to the old layout.

use super::{Action, Course, NodePatch, patch};
use crate::planner::Actuator;
use crate::safety::gate::cool_down_left;
use crate::safety::journal::{Outcome, Phase};
use crate::safety::observe::{Judgement, judge};
use crate::safety::record::Stage;
use crate::safety::stamp::Stamp;
use crate::safety::world::{Answer, Holder, Workload};

/// How often a verified layout may get lost during the observation (a reboot, a restarted device plugin) before that counts as
/// failed verification.
const MOST_LOST: u8 = 3;

impl Course<'_> {
    pub(super) fn publishing(&self) -> Vec<Action> {
        if let Some(why) = self.obstacle() {
            return self.close(Outcome::Aborted(why));
        }
        let (change, names) = (self.change, &self.change.names);
        let all = [(&names.forward, &change.to), (&names.back, &change.from), (&names.again, &change.from)];
        let known = |name: &String| self.world.published.contains(name);
        if change.actuator == Actuator::MigManager && !all.iter().all(|(name, _)| known(name)) {
            let all = all.into_iter().map(|(name, layout)| (name.clone(), layout.clone()));
            return vec![Action::Publish(all.collect())];
        }
        self.go(Phase::Propagating { since: Stamp::of(self.now) })
    }

    pub(super) fn propagating(&self, since: Stamp) -> Vec<Action> {
        if let Some(why) = self.obstacle() {
            return self.close(Outcome::Aborted(why));
        }
        if self.change.actuator == Actuator::MigManager {
            let names = &self.change.names;
            let known = |name: &String| self.world.published.contains(name);
            if ![&names.forward, &names.back, &names.again].into_iter().all(known) {
                return self.go(Phase::Publishing);
            }
            if since.age(self.now) < self.settings.timings.propagation {
                return Vec::new();
            }
        }
        // A cordon that an admin has set in the meantime stays his.
        let journal = self.journal_at(Phase::Draining { evicted: 0, since: Stamp::of(self.now) });
        let cordon = (!self.world.unschedulable).then_some(true);
        vec![Action::Patch(Box::new(NodePatch { journal, cordon, tell: None }))]
    }

    pub(super) fn draining(&self, evicted: usize, since: Stamp) -> Vec<Action> {
        if let Some(why) = self.obstacle().or_else(|| self.intruder()) {
            return self.close(Outcome::Aborted(why));
        }
        let late = since.age(self.now) > self.settings.timings.replacement;
        let evictees = &self.change.evictees;
        let gone = evictees.iter().take(evicted);
        let left: Vec<&Holder> = gone.clone().filter_map(|evictee| self.holder(&evictee.pod)).collect();
        let missing = gone.map(|evictee| &evictee.workload).find(|workload| {
            let workload = self.workload(workload);
            workload.ready < workload.wanted
        });
        if !left.is_empty() || missing.is_some() {
            if late {
                return self.close(Outcome::Aborted(match left.first() {
                    Some(holder) => format!("pod {} could not be evicted in time", holder.pod),
                    None => "the successor of an evicted pod was not ready in time".to_owned(),
                }));
            }
            let staying = left.into_iter().filter(|holder| !holder.terminating);
            return staying.map(|holder| Action::Evict(holder.pod.clone())).collect();
        }
        let Some(next) = evictees.get(evicted) else {
            // Pods that end by themselves are waited for as well.
            let gpus = self.change.gpus();
            return match self.world.holders_on(&gpus).next() {
                None => self.apply(),
                Some(holder) if late => {
                    self.close(Outcome::Aborted(format!("pod {} does not end in time", holder.pod)))
                }
                Some(_) => Vec::new(),
            };
        };
        let workload = self.workload(&next.workload);
        if self.holder(&next.pod).is_some() && workload.ready < 2 && !workload.may_pause {
            let why = format!("pod {} is the last ready replica of its ReplicaSet", next.pod);
            return self.close(Outcome::Aborted(why));
        }
        self.go(Phase::Draining { evicted: evicted + 1, since: Stamp::of(self.now) })
    }

    /// The GPUs are empty.
    fn apply(&self) -> Vec<Action> {
        let last = self.journal.changed;
        if let Some(left) = last.and_then(|last| cool_down_left(self.now, self.settings, last)) {
            let why = format!("node {} was about to be changed {}s too early", self.node, left.as_secs());
            let mut actions = self.violation(why.clone());
            actions.extend(self.close(Outcome::Aborted(why)));
            return actions;
        }
        let phase = Phase::Applying { since: Stamp::of(self.now), nudged: false, lost: 0 };
        self.tell(phase, &self.change.names.forward)
    }

    pub(super) fn applying(&self, since: Stamp, nudged: bool, lost: u8) -> Vec<Action> {
        let (change, now) = (self.change, Stamp::of(self.now));
        if let Some(actions) = self.told(&change.names.forward, &change.to) {
            return actions;
        }
        if self.world.verifies(&change.to, change.actuator) {
            return self.go(Phase::Observing { since: now, lost });
        }
        if let Answer::Failed(why) = &self.world.answer {
            return self.undo(format!("the actuator failed: {why}"));
        }
        if since.age(self.now) > self.settings.timings.apply {
            return self.undo(format!("the new layout did not show in time ({})", self.standing()));
        }
        if self.wants_nudge(since, nudged) {
            let journal = self.journal_at(Phase::Applying { since, nudged: true, lost });
            return vec![Action::RestartDevicePlugin, patch(journal)];
        }
        Vec::new()
    }

    pub(super) fn observing(&self, since: Stamp, lost: u8) -> Vec<Action> {
        let (change, settings, world) = (self.change, self.settings, self.world);
        if let Some(actions) = self.told(&change.names.forward, &change.to) {
            return actions;
        }
        if !world.verifies(&change.to, change.actuator) {
            if lost >= MOST_LOST {
                return self.undo(format!("the new layout does not last ({})", self.standing()));
            }
            let since = Stamp::of(self.now);
            return self.go(Phase::Applying { since, nudged: false, lost: lost + 1 });
        }
        let gpus = change.gpus();
        if let Some(holder) = world.holders_on(&gpus).find(|holder| holder.crashing) {
            return self.undo(format!("pod {} keeps crashing on the new layout", holder.pod));
        }
        match judge(&settings.rule, &world.trial) {
            Judgement::Harmful { fell } => {
                let percent = (fell * 100.0).round();
                self.undo(format!("utilisation fell {percent}% below what was to be expected"))
            }
            Judgement::Held => self.close(Outcome::Held),
            Judgement::Undecided if since.age(self.now) > settings.timings.observation(&settings.rule) => {
                self.close(Outcome::Unjudged)
            }
            Judgement::Undecided => Vec::new(),
        }
    }

    pub(super) fn undo(&self, why: String) -> Vec<Action> {
        self.go(Phase::Retreating { since: Stamp::of(self.now), why })
    }

    /// For people: what the node shows instead of what it should.
    pub(super) fn standing(&self) -> String {
        let answer = match &self.world.answer {
            Answer::None => "no answer".to_owned(),
            Answer::Working => "still at work".to_owned(),
            Answer::Done => "success".to_owned(),
            Answer::Failed(why) => format!("failed: {why}"),
        };
        let count = |(profile, count)| format!("{count}×{profile}");
        let shown: Vec<String> = self.world.allocatable.iter().map(count).collect();
        format!(
            "the actuator says {answer}, allocatable is {}",
            if shown.is_empty() { "empty".to_owned() } else { shown.join(" + ") }
        )
    }

    /// What keeps a change from going on that has not touched anything yet.
    fn obstacle(&self) -> Option<String> {
        let (change, world) = (self.change, self.world);
        let failed = || {
            let canary = self.record.canary.as_ref().filter(|canary| canary.policy == change.policy)?;
            match &canary.stage {
                Stage::Failed(why) => Some(format!("the policy did harm elsewhere: {why}")),
                Stage::Trying { .. } | Stage::Everywhere => None,
            }
        };
        if self.cluster.paused || world.paused {
            Some("paused by an admin".to_owned())
        } else if let Some(freeze) = &self.record.frozen {
            Some(format!("frozen: {}", freeze.why))
        } else if !world.verifies(&change.from, change.actuator) {
            Some(format!(
                "the node no longer shows the layout that the plan started from ({})",
                self.standing()
            ))
        } else {
            failed()
        }
    }

    /// Who came in the way of the drain.
    fn intruder(&self) -> Option<String> {
        if !self.world.unschedulable {
            return Some("somebody has uncordoned the node".to_owned());
        }
        let gpus = self.change.gpus();
        let mut staying = self.world.holders_on(&gpus).filter(|holder| !holder.terminating);
        let planned = |holder: &Holder| self.change.evictees.iter().any(|evictee| evictee.pod == holder.pod);
        let stranger = staying.find(|holder| holder.movable.is_err() || !planned(holder))?;
        Some(match &stranger.movable {
            Err(why) => format!("pod {} may not be moved: {why}", stranger.pod),
            Ok(()) => format!("pod {} has come in the meantime", stranger.pod),
        })
    }

    fn holder(&self, pod: &crate::model::PodId) -> Option<&Holder> {
        self.world.holders.iter().find(|holder| holder.pod == *pod)
    }

    fn workload(&self, uid: &str) -> Workload {
        self.world.workloads.get(uid).copied().unwrap_or_default()
    }
}
