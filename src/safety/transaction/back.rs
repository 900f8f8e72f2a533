//! From the decision to undo a change to the end, and the end of every change.
//!
//! Invariant: a pod that may not be moved is never evicted, whatever becomes of the node; and our cordon is taken away before the
//! journal forgets the change.

use super::{Action, Course, NodePatch, NoticeReason, notice, patch};
use crate::model::PodId;
use crate::safety::journal::{Journal, Outcome, Phase};
use crate::safety::record::Edit;
use crate::safety::stamp::Stamp;
use crate::safety::world::Answer;

impl Course<'_> {
    pub(super) fn retreating(&self, since: Stamp, why: &str) -> Vec<Action> {
        let gpus = self.change.gpus();
        let holders: Vec<_> = self.world.holders_on(&gpus).collect();
        if let Some((holder, reason)) =
            holders.iter().find_map(|holder| holder.movable.err().map(|reason| (holder, reason)))
        {
            let pod = &holder.pod;
            return self
                .freeze(format!("{why}; cannot be undone: pod {pod} may not be moved, {reason}"), false);
        }
        if holders.is_empty() {
            let phase = self.revert(why, false);
            return self.tell(phase, &self.change.names.back);
        }
        if since.age(self.now) > self.settings.timings.replacement {
            let pod = &holders[0].pod;
            return self.freeze(format!("{why}; cannot be undone: pod {pod} could not be evicted"), false);
        }
        let staying: Vec<PodId> =
            holders.iter().filter(|holder| !holder.terminating).map(|holder| holder.pod.clone()).collect();
        staying.into_iter().map(Action::Evict).collect()
    }

    pub(super) fn reverting(
        &self,
        since: Stamp,
        why: &str,
        again: bool,
        seen: bool,
        nudged: bool,
    ) -> Vec<Action> {
        let (change, why) = (self.change, why.to_owned());
        let name = if again { &change.names.again } else { &change.names.back };
        if let Some(actions) = self.told(name, &change.from) {
            return actions;
        }
        if self.world.answer == Answer::Working && !seen {
            return self.go(Phase::Reverting { since, why, again, seen: true, nudged });
        }
        // Until the actuator begins its answer is that to the change, be it success or failure, and what is advertised may never
        // have followed the change. An actuator that finds nothing to do is not seen at work.
        let answered = seen || since.age(self.now) > self.settings.timings.readvertise;
        if answered && self.world.verifies(&change.from, change.actuator) {
            return self.close(Outcome::RolledBack(why));
        }
        let failed = answered && matches!(self.world.answer, Answer::Failed(_));
        if failed || since.age(self.now) > self.settings.timings.apply {
            if again {
                let standing = self.standing();
                return self.freeze(format!("{why}; the old layout does not come back ({standing})"), false);
            }
            let phase = self.revert(&why, true);
            return self.tell(phase, &change.names.again);
        }
        if self.wants_nudge(since, nudged) {
            let journal = self.journal_at(Phase::Reverting { since, why, again, seen, nudged: true });
            return vec![Action::RestartDevicePlugin, patch(journal)];
        }
        Vec::new()
    }

    fn revert(&self, why: &str, again: bool) -> Phase {
        let since = Stamp::of(self.now);
        Phase::Reverting { since, why: why.to_owned(), again, seen: false, nudged: false }
    }

    /// The node is frozen already; once it shows either layout the cordon can go.
    pub(super) fn stuck(&self) -> Vec<Action> {
        let change = self.change;
        let shown = [&change.to, &change.from].into_iter().any(|l| self.world.verifies(l, change.actuator));
        if !shown {
            return Vec::new();
        }
        let why = self.journal.frozen.as_ref().map_or("unknown", |freeze| freeze.why.as_str());
        self.close(Outcome::Frozen(why.to_owned()))
    }

    pub(super) fn closing(&self, outcome: &Outcome) -> Vec<Action> {
        if self.world.our_cordon {
            let journal = self.journal.clone();
            return vec![Action::Patch(Box::new(NodePatch { journal, cordon: Some(false), tell: None }))];
        }
        let (node, id) = (self.node.clone(), self.change.id.clone());
        if self.record.has_slot(&node, &id) {
            return vec![Action::Record(Edit::Close { node, id, outcome: outcome.clone() })];
        }
        let reason = match outcome {
            Outcome::Held | Outcome::Unjudged => NoticeReason::Changed,
            Outcome::Aborted(_) | Outcome::RolledBack(_) => NoticeReason::RolledBack,
            Outcome::Frozen(_) => NoticeReason::Frozen,
        };
        let idle = Journal { change: None, ..self.journal.clone() };
        vec![patch(idle), notice(reason, format!("{outcome}; it began because: {}", self.change.why))]
    }
}
