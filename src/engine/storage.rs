//! What happens to claims and volumes, as it concerns waiting pods.
//!
//! Invariant: before anything is decided every waiting pod is among its equals by what its claims are now. A pod whose claims
//! changed and that still has no place is told at once why.

use super::preemption::Prospect;
use super::{Engine, Verdict, record_moves, report};
use crate::cache::{Occupant, StorageChange};
use crate::cycle::{Diagnosis, Search, concerns};
use crate::effect::{Effect, UnschedulableReason};
use crate::fact::QueueCause;
use crate::model::{ClaimKey, ClaimUse, NodeName, Pod, PodKind, StorageKey, StorageObject, Time};

/// Kinds of pod that are told anew at once after one event; each may take a look at every node. The rest is told in time.
const TOLD_AT_ONCE: usize = 8;

impl Engine {
    pub(super) fn apply_storage(&mut self, now: Time, object: StorageObject, effects: &mut Vec<Effect>) {
        let key = object.key();
        let change = self.cache.apply_storage(object);
        // A newer version that says the same may say it after what was written.
        self.follow_claims(now, &key, effects);
        if let Some(change) = change {
            self.follow_storage(now, &change, effects);
        }
    }

    pub(super) fn delete_storage(&mut self, now: Time, key: &StorageKey, effects: &mut Vec<Effect>) {
        if let Some(change) = self.cache.delete_storage(key) {
            self.follow_claims(now, key, effects);
            self.follow_storage(now, &change, effects);
        }
    }

    /// A pod came to a node or left it: what it mounts may be something else to others now.
    pub(super) fn follow_mounts(
        &mut self,
        now: Time,
        pod: &Occupant,
        node: NodeName,
        effects: &mut Vec<Effect>,
    ) {
        let Some(uses) = pod.volumes.as_deref() else { return };
        let key = |used: &ClaimUse| ClaimKey { namespace: pod.namespace.clone(), name: used.name.clone() };
        let claims = uses.iter().map(key).collect();
        let change = StorageChange { claims, nodes: [node].into(), ..StorageChange::default() };
        self.follow_storage(now, &change, effects);
    }

    pub(super) fn follow_storage(&mut self, now: Time, change: &StorageChange, effects: &mut Vec<Effect>) {
        if !self.queue.has_waiting() {
            return;
        }
        let (cache, tables, rankings) = (&self.cache, &self.tables, &mut self.rankings);
        let concerned =
            |kind: &PodKind, pod: &Pod| kind.volumes.is_some() && (change.all || uses_any(change, pod));
        let moved = self.queue.regroup_where(concerned, |pod| cache.kind_of(pod));
        let has_place = |kind: &PodKind| {
            let may_preempt = || kind.preempts && cache.has_lower(kind.priority);
            concerns(change, moved.contains(kind), kind)
                && (rankings.best(cache, tables, kind).is_some()
                    || may_preempt()
                        && Search::new(cache, tables, rankings, kind, None).could_fit_somewhere())
        };
        let woken = self.queue.wake(now, has_place);
        record_moves(woken.into_iter().map(|queue| (queue, QueueCause::StorageChange)), effects);
        for kind in moved.iter().take(TOLD_AT_ONCE) {
            self.explain_anew(now, kind, effects);
        }
        self.topology += u64::from(moved.len() > TOLD_AT_ONCE);
    }

    /// Tells the pods of a waiting kind why they wait, as far as it is news to them.
    pub(super) fn explain_anew(&mut self, now: Time, kind: &PodKind, effects: &mut Vec<Effect>) {
        let Some(hopeless) = self.queue.verdict(kind).map(|verdict| verdict.hopeless) else { return };
        let diagnosis = Diagnosis::of(&self.cache, &self.tables, &mut self.rankings, kind);
        let prospect = if hopeless { Prospect::None(self.explain_prospect(kind)) } else { Prospect::Awaited };
        let verdict: Verdict = self.verdict(now, &diagnosis, prospect);
        let message = verdict.message.clone();
        let told = self.queue.explain(kind, verdict);
        effects
            .extend(told.iter().map(|pod| report(pod, UnschedulableReason::Unschedulable, &message, false)));
    }
}

fn uses_any(change: &StorageChange, pod: &Pod) -> bool {
    let mut uses = pod.volumes.iter().flat_map(|uses| uses.iter());
    uses.any(|used| {
        let key = ClaimKey { namespace: pod.id.namespace.clone(), name: used.name.clone() };
        change.claims.contains(&key)
    })
}
