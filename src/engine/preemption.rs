//! Preemption as the engine carries it out: who may have others go, what is kept for whom, and until when.
//!
//! ```text
//!   no node takes the pod ──► others may go ──► nominated, victims asked to end ──► waits
//!                                                     ▲                               │ a victim is gone
//!        those that are ending have ended and there is no room ◄── not yet ◄── fits? ─┤
//!                                                                                     ▼ yes
//!                                                                                   bound
//! ```
//!
//! Invariants:
//! - While a pod of lower priority that was asked to end is still on the node where a place is kept for the pod, nobody else is
//!   asked on its behalf. So an attempt costs no more than one set of victims.
//! - A pod is asked to end once, whoever needs its place; only a definite refusal of that makes it a pod like any other again.
//! - What is kept survives a restart: it is written on the pod, and victims carry a condition.

use std::collections::BTreeMap;

use super::Engine;
use crate::cycle::{Diagnosis, Occasion, Preemption, Search};
use crate::effect::{Effect, Eviction};
use crate::event::EvictionOutcome;
use crate::fact::{Fact, QueueCause};
use crate::model::{Budgets, NodeName, Pod, PodId, PodKind, PodUid, Time};

/// What the engine remembers of it.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    /// Disruption budgets as the API server has them.
    pub budgets: Budgets,
    /// Pods that were asked to end and are not known to be gone, with the one for whose sake.
    pub asked: BTreeMap<PodUid, PodUid>,
    /// Where the next search begins.
    first: usize,
}

/// What preemption can do for a pod that no node takes.
#[derive(Debug)]
pub(super) enum Prospect {
    /// A place will be free.
    Found,
    /// Those who have to go are going.
    Awaited,
    /// Nothing, for all pods of the kind; for people, why.
    None(Option<String>),
}

impl Engine {
    /// Whether there is anybody who might go for pods of this kind.
    pub(super) fn may_preempt(&self, kind: &PodKind) -> bool {
        kind.preempts && self.cache.has_lower(kind.priority)
    }

    /// Places a pod where a place is kept for it, if that is free by now.
    pub(super) fn take_kept_place(
        &mut self,
        now: Time,
        pod: &Pod,
        kind: &PodKind,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let uid = &pod.id.uid;
        let Some(at) = self.cache.nomination(uid) else { return false };
        let search = Search::new(&self.cache, &self.tables, &mut self.rankings, kind, Some(uid));
        let Some(placements) = search.fits(at) else { return false };
        self.assume(now, pod, at, placements, 1, effects);
        true
    }

    /// Has others go for a pod that no node takes, if that helps and they are not going already.
    pub(super) fn preempt(
        &mut self,
        now: Time,
        pod: &mut Pod,
        kind: &PodKind,
        effects: &mut Vec<Effect>,
    ) -> Prospect {
        if !kind.preempts {
            let others = self.cache.has_lower(kind.priority);
            return Prospect::None(
                others.then(|| "preemption: not eligible due to preemptionPolicy=Never.".to_owned()),
            );
        }
        if !self.cache.has_lower(kind.priority) {
            self.give_up_place(now, &pod.id.uid, effects);
            pod.nominated = None;
            return Prospect::None(None);
        }
        if self.awaits_victims(&pod.id.uid, kind.priority) {
            return Prospect::Awaited;
        }
        match self.search(&pod.id.uid, kind) {
            Ok(found) => {
                self.carry_out(now, pod, &found, effects);
                Prospect::Found
            }
            Err(why) => {
                effects.push(Effect::Fact(Fact::Preemption { pod: pod.id.clone(), chosen: None }));
                self.give_up_place(now, &pod.id.uid, effects);
                pod.nominated = None;
                Prospect::None(Some(format!("preemption: {why}")))
            }
        }
    }

    /// Why preemption does not help pods of a kind that wait; `None` where it may, or nobody is there to go.
    pub(super) fn explain_prospect(&mut self, kind: &PodKind) -> Option<String> {
        if !self.may_preempt(kind) {
            return None;
        }
        let search = Search::new(&self.cache, &self.tables, &mut self.rankings, kind, None);
        let why = search.choose(&self.preemptions.budgets, &mut 0).err();
        why.map(|why| format!("preemption: {why}"))
    }

    fn search(&mut self, uid: &PodUid, kind: &PodKind) -> Result<Preemption, Diagnosis> {
        let search = Search::new(&self.cache, &self.tables, &mut self.rankings, kind, Some(uid));
        search.choose(&self.preemptions.budgets, &mut self.preemptions.first)
    }

    /// Whether pods of a lower priority that have to go are still where a place is kept for the pod.
    fn awaits_victims(&self, uid: &PodUid, priority: i32) -> bool {
        let Some(at) = self.cache.nomination(uid) else { return false };
        let mut residents = self.cache.at(at).residents();
        residents.any(|(resident, pod)| {
            pod.priority < priority
                && (pod.terminating && pod.preempted || self.preemptions.asked.contains_key(resident))
        })
    }

    fn carry_out(&mut self, now: Time, pod: &mut Pod, found: &Preemption, effects: &mut Vec<Effect>) {
        let uid = pod.id.uid.clone();
        let node = self.cache.at(found.node).name().clone();
        let nominees = self.cache.at(found.node).nominees().iter();
        let lesser: Vec<_> = nominees
            .filter(|(_, nominee)| nominee.priority < pod.priority)
            .map(|(uid, _)| uid.clone())
            .collect();
        if self.cache.nomination(&uid) != Some(found.node) {
            self.give_up_place(now, &uid, effects);
        }
        self.cache.nominate(pod, &node, &found.placements);
        self.queue.nominate(&uid, Some(node.clone()));
        pod.nominated = Some(node.clone());
        self.follow_terms();
        let (victims, violations) = (found.victims.len(), found.violations);
        let chosen = Some((node.clone(), victims, violations));
        effects.push(Effect::Fact(Fact::Preemption { pod: pod.id.clone(), chosen }));
        for victim in &found.victims {
            self.ask_to_end(victim, &pod.id, &node, effects);
        }
        // There is no place for them any more where they wait for one.
        for nominee in lesser {
            self.give_up_place(now, &nominee, effects);
            self.try_again(now, &nominee, QueueCause::PreemptionByOther, effects);
        }
    }

    fn ask_to_end(&mut self, victim: &PodUid, preemptor: &PodId, node: &NodeName, effects: &mut Vec<Effect>) {
        let Some(occupant) = self.cache.occupant(victim) else { return };
        if occupant.terminating || self.preemptions.asked.contains_key(victim) {
            return;
        }
        effects.push(Effect::Evict(Eviction {
            victim: PodId {
                namespace: occupant.namespace.clone(),
                name: occupant.name.clone(),
                uid: victim.clone(),
            },
            generation: occupant.generation,
            preemptor: preemptor.clone(),
            node: node.clone(),
        }));
        self.preemptions.asked.insert(victim.clone(), preemptor.uid.clone());
    }

    /// No place is kept for a pod any longer: others may have it.
    pub(super) fn give_up_place(&mut self, now: Time, uid: &PodUid, effects: &mut Vec<Effect>) {
        if !self.cache.has_nominations() {
            return;
        }
        let kept = self.cache.dismiss(uid);
        if kept.is_some() {
            self.queue.nominate(uid, None);
            self.leave(now, kept, effects);
        }
    }

    /// The API shows a pod of ours: a place is kept where it says, which may be what this scheduler's predecessor wrote.
    pub(super) fn follow_nomination(&mut self, now: Time, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(queued) = self.queue.get(uid).filter(|queued| !queued.is_in_flight()) else { return };
        let kept = self.cache.nomination(uid).map(|at| self.cache.at(at).name());
        if kept == queued.pod.nominated.as_ref() {
            return;
        }
        match queued.pod.nominated.clone() {
            Some(node) => {
                let pod = queued.pod.clone();
                let left = self.cache.dismiss(uid);
                self.cache.nominate(&pod, &node, &[]);
                self.follow_terms();
                self.leave(now, left, effects);
            }
            None => self.give_up_place(now, uid, effects),
        }
    }

    /// A request that a pod end has been answered.
    pub(super) fn finish_eviction(
        &mut self,
        now: Time,
        victim: &PodUid,
        outcome: EvictionOutcome,
        effects: &mut Vec<Effect>,
    ) {
        let EvictionOutcome::Refused(message) = outcome else { return };
        let Some(preemptor) = self.preemptions.asked.remove(victim) else { return };
        effects.push(Effect::Fact(Fact::EvictionRefused { victim: victim.clone(), message }));
        self.try_again(now, &preemptor, QueueCause::EvictionRefused, effects);
    }

    /// Something happened: wakes each nominated pod that has its place now, or that nobody makes room for any more.
    pub(super) fn wake_nominees(
        &mut self,
        now: Time,
        occasion: &Occasion<'_>,
        cause: QueueCause,
        effects: &mut Vec<Effect>,
    ) {
        let concerned = self.cache.nominations().filter(|(uid, at)| {
            let waits = self.queue.get(uid).is_some_and(|queued| queued.is_waiting());
            waits && (occasion.roomier == Some(*at) || occasion.roomier.is_none())
        });
        let concerned: Vec<_> = concerned.map(|(uid, at)| (uid.clone(), at)).collect();
        for (uid, at) in concerned {
            let Some(queued) = self.queue.get(&uid) else { continue };
            let kind = self.cache.kind_of(&queued.pod);
            if occasion.roomier.is_none() && !kind.can_be_refused() {
                continue;
            }
            let stranded = occasion.roomier.is_some() && !self.awaits_victims(&uid, kind.priority);
            let search = Search::new(&self.cache, &self.tables, &mut self.rankings, &kind, Some(&uid));
            if stranded || search.fits(at).is_some() {
                self.try_again(now, &uid, cause, effects);
            }
        }
    }

    fn try_again(&mut self, now: Time, uid: &PodUid, cause: QueueCause, effects: &mut Vec<Effect>) {
        let moved = self.queue.wake_pod(now, uid);
        super::record_moves(moved.map(|queue| (queue, cause)), effects);
    }
}
