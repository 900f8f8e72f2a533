//! The pure engine: everything it learns is an [`Event`], everything it wants done an [`Effect`].
//!
//! Invariants:
//! - No clock, no I/O, no randomness, no iteration in an order that could differ: the same sequence of `(Time, Event)` gives
//!   the same effects, in a cluster, in a simulation and in a replay.
//! - Decisions are taken in [`Event::Tick`] alone, and only once everything has been listed ([`Event::Synced`]): what is not
//!   known yet may hold the very slice that looks free.
//! - A pod is assumed on its node in the same step in which its bind is asked for, so the next decision already counts it.

mod claims;
mod examine;
mod preemption;
mod rejections;
mod standoff;
mod storage;

use std::sync::Arc;
use std::time::Duration;

use crate::cache::{Cache, Departure, NodeIndex};
use crate::cycle::{
    Decision, Diagnosis, FragmentationTables, Occasion, Rankings, Scoring, Search, decide,
    has_become_feasible,
};
use crate::effect::{Binding, Effect, UnschedulableReason, UnschedulableReport};
use crate::event::{BindOutcome, Event};
use crate::fact::{Fact, QueueCause, QueueName};
use crate::forecast::{GroupOutlook, Outlook};
use crate::model::{DevicePlacement, Labels, Node, NodeName, Partitioning, Pod, PodKind, PodUid, Time};
use crate::queue::{Move, News, Queue, QueuedPod, Verdict};
use crate::solver::fragmentation::DemandMix;

pub use examine::Examination;
use preemption::{Preemptions, Prospect};
use standoff::Standoffs;

/// For so long the explanation of a verdict is given to further pods of the same spec without looking at the nodes again.
/// The verdict itself is always exact; only its counts per reason may be this old.
const EXPLANATION_AGE: Duration = Duration::from_secs(1);

/// So long after it was made the explanation given to waiting pods is renewed, if nodes have come, gone or changed since.
/// A cluster that scales up changes all the time, and every renewal is a write for each waiting pod.
const RENEWAL_AGE: Duration = Duration::from_secs(30);

/// Pause between two renewals, each of which looks at every node for one spec.
const RENEWAL_PACE: Duration = Duration::from_millis(100);

/// Refusals found in one tick, each of which looks at every node, before whoever sent the tick gets to hear of it.
const REFUSALS_A_TICK: usize = 8;

/// The mix of demand is taken over by the fragmentation tables after so many MIG pods.
const MIX_INTERVAL: u64 = 256;

/// What an operator decides about the engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pods that name it are ours.
    pub scheduler_name: Arc<str>,
    /// Back-off after a pod's first failed attempt; it doubles with each.
    pub initial_backoff: Duration,
    /// Its upper limit.
    pub max_backoff: Duration,
    /// How nodes are compared.
    pub scoring: Scoring,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scheduler_name: "mig-scheduler".into(),
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            scoring: Scoring::LeastFragmentation,
        }
    }
}

/// See the module's comment.
#[derive(Debug)]
pub struct Engine {
    scheduler_name: Arc<str>,
    synced: bool,
    cache: Cache,
    queue: Queue,
    mix: DemandMix,
    requests_seen: u64,
    tables: FragmentationTables,
    rankings: Rankings,
    /// The number of new terms of running pods up to which the waiting pods are grouped.
    known_terms: u64,
    /// How often a node came, went or changed.
    topology: u64,
    /// The topology up to which every waiting pod has its explanation.
    explained: u64,
    /// Not before this is an explanation renewed.
    next_renewal: Time,
    preemptions: Preemptions,
    standoffs: Standoffs,
    /// What the forecaster said last.
    outlook: Option<Arc<Outlook>>,
    /// The pods whose claims are being bound.
    claims: claims::Claims,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(options: Options) -> Engine {
        Engine {
            scheduler_name: options.scheduler_name,
            synced: false,
            cache: Cache::default(),
            queue: Queue::new(options.initial_backoff, options.max_backoff),
            mix: DemandMix::default(),
            requests_seen: 0,
            tables: FragmentationTables::default(),
            rankings: Rankings::new(options.scoring),
            known_terms: 0,
            topology: 0,
            explained: 0,
            next_renewal: Time::ZERO,
            preemptions: Preemptions::default(),
            standoffs: Standoffs::default(),
            outlook: None,
            claims: claims::Claims::default(),
        }
    }

    /// The cluster as the engine sees it.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The pods that are not bound yet.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// How many pods are in each part of the queue.
    pub fn queue_lengths(&self) -> [(QueueName, usize); 4] {
        self.queue.lengths()
    }

    /// What the forecaster said last, unless it has run out. No decision about a pod depends on it.
    pub fn outlook(&self, now: Time) -> Option<&Arc<Outlook>> {
        self.outlook.as_ref().filter(|outlook| outlook.holds_at(now.as_unix_secs()))
    }

    /// When the next [`Event::Tick`] is worth sending: a time in the past while pods are ready, `None` while nothing is due.
    pub fn next_wakeup(&self) -> Option<Time> {
        let outdated = self.explained < self.topology && self.queue.has_waiting();
        let renewal = outdated.then_some(self.next_renewal);
        let standoff = self.standoffs.next();
        let times = self.queue.next_ready().into_iter().chain(renewal).chain(standoff);
        times.chain(self.claims.next_due()).min().filter(|_| self.synced)
    }

    /// Takes in one event and appends what is to be done.
    pub fn step(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Synced => self.synced = true,
            Event::NodeApplied(node) => self.apply_node(now, node, effects),
            Event::NodeDeleted(name) => {
                let known = self.cache.delete_node(&name);
                self.topology += 1;
                self.leave_node(now, &name, effects);
                let occasion = Occasion { moves_domains: known, ..Occasion::default() };
                self.wake(now, &occasion, QueueCause::NodeChange, effects);
            }
            Event::PodApplied(pod) => self.apply_pod(now, pod, effects),
            Event::PodDeleted(uid) => self.delete_pod(now, &uid, effects),
            Event::NamespaceApplied { name, labels } => self.apply_namespace(now, name, labels, effects),
            Event::NamespaceDeleted(name) => {
                let known = self.cache.delete_namespace(&name);
                self.follow_namespaces(now, known, effects);
            }
            Event::StorageApplied(object) => self.apply_storage(now, object, effects),
            Event::StorageDeleted(key) => self.delete_storage(now, &key, effects),
            Event::ClaimsWritten { uid, attempt, outcome } => {
                self.claims_written(now, &uid, attempt, outcome, effects)
            }
            Event::BindFinished { uid, node, outcome } => {
                self.finish_bind(now, &uid, &node, outcome, effects)
            }
            Event::PodRejected(rejection) => self.reject(now, rejection, effects),
            Event::BudgetApplied { id, budget } => self.preemptions.budgets.apply(id, budget),
            Event::BudgetDeleted(id) => self.preemptions.budgets.delete(&id),
            Event::EvictionFinished { victim, outcome } => {
                self.finish_eviction(now, &victim, outcome, effects)
            }
            Event::Forecast(outlook) => self.take_forecast(outlook, effects),
            Event::Tick { budget } => self.tick(now, budget, effects),
        }
    }

    /// One that is older than what is known, which a late answer may be, changes nothing.
    fn take_forecast(&mut self, outlook: Arc<Outlook>, effects: &mut Vec<Effect>) {
        let known = self.outlook.as_deref();
        if known.is_some_and(|known| known.at > outlook.at) {
            return;
        }
        let stand = |group: &GroupOutlook| (group.speaker(), group.distrust.is_none());
        let fact = |group: &GroupOutlook| {
            let before = known.and_then(|known| known.group(&group.group)).map(stand);
            let changed = before != Some(stand(group));
            Effect::Fact(Fact::Forecast { at: outlook.at, group: group.clone(), changed })
        };
        effects.extend(outlook.groups.iter().map(fact));
        self.outlook = Some(outlook);
    }

    fn apply_node(&mut self, now: Time, node: Node, effects: &mut Vec<Effect>) {
        if let Partitioning::OnDemand { model, .. } = node.partitioning {
            self.tables.add(model, &self.mix);
        }
        let changed = self.cache.apply_node(node);
        let Some(change) = changed else { return };
        self.topology += 1;
        let occasion =
            Occasion { roomier: Some(change.at), moves_domains: change.moves_domains, ..Occasion::default() };
        self.wake(now, &occasion, QueueCause::NodeChange, effects);
    }

    fn apply_namespace(&mut self, now: Time, name: Arc<str>, labels: Labels, effects: &mut Vec<Effect>) {
        let changed = self.cache.apply_namespace(name, labels);
        self.follow_namespaces(now, changed, effects);
    }

    /// A namespace came, went or changed, if `changed`: other terms may concern the pods in it now, and other pods their terms.
    fn follow_namespaces(&mut self, now: Time, changed: bool, effects: &mut Vec<Effect>) {
        if !changed || !self.queue.has_waiting() {
            return;
        }
        let (cache, tables, rankings) = (&self.cache, &self.tables, &mut self.rankings);
        let moved = self.queue.regroup(|pod| cache.kind_of(pod));
        let occasion = Occasion { moves_namespaces: true, ..Occasion::default() };
        let woken = self.queue.wake(now, |kind| {
            has_become_feasible(cache, tables, rankings, &occasion, kind)
                || moved.contains(kind) && rankings.best(cache, tables, kind).is_some()
        });
        record_moves(woken.into_iter().map(|queue| (queue, QueueCause::NamespaceChange)), effects);
    }

    fn apply_pod(&mut self, now: Time, pod: Pod, effects: &mut Vec<Effect>) {
        if pod.finished {
            return self.delete_pod(now, &pod.id.uid, effects);
        }
        if let Some(node) = &pod.node {
            self.abandon(now, &pod.id.uid, effects);
            let arrival = self.cache.apply_pod(&pod, node);
            self.settle(&pod);
            self.give_up_place(now, &pod.id.uid, effects);
            if arrival.changed {
                self.arrive(now, &pod.id.uid, effects);
                self.leave(now, arrival.left, effects);
            }
            return;
        }
        if pod.scheduler_name != self.scheduler_name {
            return;
        }
        let known = self.queue.get(&pod.id.uid);
        if pod.terminating && !known.is_some_and(QueuedPod::is_in_flight) {
            drop(self.queue.remove(&pod.id.uid));
            self.give_up_place(now, &pod.id.uid, effects);
            return;
        }
        if self.cache.node_of(&pod.id.uid).is_some() && known.is_none() {
            // Bound already; this is an echo from before the bind.
            return;
        }
        let nominated = pod.nominated.is_some() || self.cache.has_nominations();
        let uid = nominated.then(|| pod.id.uid.clone());
        let moved = self.queue.apply(now, pod);
        record_moves(moved, effects);
        uid.into_iter().for_each(|uid| self.follow_nomination(now, &uid, effects));
    }

    /// The watch shows a pod bound. While our own bind of it is in flight its entry stays for the answer that will come.
    fn settle(&mut self, pod: &Pod) {
        let awaited = self.queue.get(&pod.id.uid).is_some_and(QueuedPod::is_in_flight);
        if awaited {
            self.queue.mark_gone(&pod.id.uid, false);
        } else {
            drop(self.queue.remove(&pod.id.uid));
        }
    }

    /// A pod is gone. What it was only assumed to hold stays taken until its bind is answered: the bind may still land, should
    /// the pod exist after all.
    fn delete_pod(&mut self, now: Time, uid: &PodUid, effects: &mut Vec<Effect>) {
        self.preemptions.asked.remove(uid);
        self.abandon(now, uid, effects);
        self.give_up_place(now, uid, effects);
        if self.queue.get(uid).is_some_and(QueuedPod::is_in_flight) {
            self.queue.mark_gone(uid, true);
            if self.cache.is_assumed(uid) {
                return;
            }
        } else {
            drop(self.queue.remove(uid));
        }
        let left = self.cache.remove_pod(uid);
        self.leave(now, left, effects);
    }

    fn finish_bind(
        &mut self,
        now: Time,
        uid: &PodUid,
        node: &NodeName,
        outcome: BindOutcome,
        effects: &mut Vec<Effect>,
    ) {
        let Some(queued) = self.queue.get(uid).filter(|queued| queued.is_in_flight()) else { return };
        let (pod, gone) = (queued.pod.clone(), queued.gone);
        // In a dry run nothing is written, and the bind that would follow is said to be done.
        self.forget_claims(now, uid, effects);
        let message = match outcome {
            BindOutcome::Bound if !gone => return self.conclude(now, uid, node, effects),
            BindOutcome::Bound | BindOutcome::Gone => "the pod is gone".to_owned(),
            BindOutcome::BoundElsewhere(ref other) => {
                format!("the pod was bound to {other} by somebody else")
            }
            BindOutcome::Refused(ref reason) => reason.clone(),
        };
        let (id, node) = (pod.id.clone(), node.clone());
        effects.push(Effect::Fact(Fact::BindFailed { pod: id, node, message: message.clone() }));
        let ends = gone || pod.terminating || self.is_bound(uid);
        if matches!(outcome, BindOutcome::Refused(_)) && !ends {
            self.retry(now, &pod, &message, effects);
        } else {
            drop(self.queue.remove(uid));
        }
        let left = self.cache.is_assumed(uid).then(|| self.cache.remove_pod(uid)).flatten();
        self.leave(now, left, effects);
    }

    /// The API server confirmed a bind.
    fn conclude(&mut self, now: Time, uid: &PodUid, node: &NodeName, effects: &mut Vec<Effect>) {
        let Some(queued) = self.queue.remove(uid) else { return };
        let (pod, attempts, waited) = (queued.pod.id, queued.attempts, now.since(queued.since));
        effects.push(Effect::ReportScheduled { pod: pod.clone(), node: node.clone() });
        effects.push(Effect::Fact(Fact::PodBound { pod, node: node.clone(), attempts, waited }));
    }

    fn retry(&mut self, now: Time, pod: &Pod, message: &str, effects: &mut Vec<Effect>) {
        let message: Arc<str> = format!("binding rejected: {message}").into();
        let publish = self.queue.retry(&pod.id.uid, now, &message) == News::Message;
        record_moves(Some((QueueName::Backoff, QueueCause::ScheduleAttemptFailure)), effects);
        effects.push(report(pod, UnschedulableReason::SchedulerError, &message, publish));
    }

    /// Whether the watch has shown the pod bound.
    fn is_bound(&self, uid: &PodUid) -> bool {
        self.cache.node_of(uid).is_some() && !self.cache.is_assumed(uid)
    }

    fn tick(&mut self, now: Time, budget: usize, effects: &mut Vec<Effect>) {
        if !self.synced {
            return;
        }
        for _ in 0..self.queue.flush_backoff(now) {
            record_moves(Some((QueueName::Active, QueueCause::BackoffComplete)), effects);
        }
        self.end_standoffs(now, effects);
        self.renew_explanation(now, effects);
        let budget = self.bind_ready(now, budget, effects);
        let mut refusals = 0;
        for _ in 0..budget {
            let Some(mut pod) = self.queue.pop().map(|queued| queued.pod.clone()) else { return };
            refusals += usize::from(self.try_pod(now, &mut pod, effects));
            if refusals == REFUSALS_A_TICK {
                return;
            }
        }
    }

    /// Tries one pod. Returns whether that took a look at every node, only to find none.
    fn try_pod(&mut self, now: Time, pod: &mut Pod, effects: &mut Vec<Effect>) -> bool {
        self.observe_demand(pod);
        let kind = self.cache.kind_of(pod);
        if self.take_kept_place(now, pod, &kind, effects) {
            return false;
        }
        if let Some(verdict) = self.queue.verdict(&kind)
            && now.since(verdict.at) < EXPLANATION_AGE
            && (verdict.hopeless || !self.may_preempt(&kind))
        {
            let verdict = verdict.clone();
            let message = Arc::clone(&verdict.message);
            let news = self.queue.join(&pod.id.uid, kind, verdict);
            report_refusal(pod, &message, news, effects);
            if news == News::Message {
                effects.push(unschedulable(pod, &message));
            }
            return false;
        }
        match decide(&self.cache, &self.tables, &mut self.rankings, &kind) {
            Decision::Place { node, placements, feasible } => {
                self.assume(now, pod, node, placements, feasible, effects);
                false
            }
            Decision::Unschedulable(diagnosis) => {
                let prospect = self.preempt(now, pod, &kind, effects);
                let verdict = self.verdict(now, &diagnosis, prospect);
                let message = Arc::clone(&verdict.message);
                let news = self.queue.wait(&pod.id.uid, now, kind, verdict);
                report_refusal(pod, &message, news, effects);
                effects.push(unschedulable(pod, &message));
                true
            }
        }
    }

    fn verdict(&self, now: Time, diagnosis: &Diagnosis, prospect: Prospect) -> Verdict {
        let (hopeless, why) = match prospect {
            Prospect::Found | Prospect::Awaited => (false, None),
            Prospect::None(why) => (true, why),
        };
        let message = match why {
            Some(why) => format!("{diagnosis} {why}"),
            None => diagnosis.to_string(),
        };
        Verdict { message: message.into(), at: now, topology: self.topology, hopeless }
    }

    /// Tells waiting pods anew why they wait, one kind at a time, if the nodes have changed since they were told. They are not
    /// tried: no node can take them, or they would have been woken.
    fn renew_explanation(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.explained == self.topology || now < self.next_renewal {
            return;
        }
        let Some((kind, verdict)) = self.queue.outdated(self.topology) else {
            self.explained = self.topology;
            return;
        };
        let due = verdict.at + RENEWAL_AGE;
        if now < due {
            self.next_renewal = due;
            return;
        }
        let kind: PodKind = kind.clone();
        self.explain_anew(now, &kind, effects);
        self.next_renewal = now + RENEWAL_PACE;
    }

    fn assume(
        &mut self,
        now: Time,
        pod: &Pod,
        at: NodeIndex,
        placements: Vec<DevicePlacement>,
        feasible: usize,
        effects: &mut Vec<Effect>,
    ) {
        let kept = self.cache.dismiss(&pod.id.uid);
        self.cache.assume(pod, at, &placements);
        let node = self.cache.at(at).name().clone();
        effects.push(Effect::Fact(Fact::PodAssumed { pod: pod.id.clone(), node: node.clone(), feasible }));
        self.probe(now, &node, &pod.spec);
        if !self.begin_claims(now, pod, at, &placements, effects) {
            effects.push(Effect::Bind(Binding { pod: pod.id.clone(), node, placements }));
        }
        self.arrive(now, &pod.id.uid, effects);
        if kept.is_some() {
            self.queue.nominate(&pod.id.uid, None);
            self.leave(now, kept.filter(|kept| kept.node != at), effects);
        }
    }

    /// Counts each pod's request once, at its first attempt, and lets the tables follow the mix now and then.
    fn observe_demand(&mut self, pod: &Pod) {
        let is_first = |queued: &QueuedPod| queued.attempts == 1 && queued.reported.is_none();
        if pod.spec.mig.is_empty() || !self.queue.get(&pod.id.uid).is_some_and(is_first) {
            return;
        }
        for request in pod.spec.mig.iter().filter(|request| self.tables.know(request.profile)) {
            self.mix.observe(request.profile, request.count);
        }
        self.requests_seen += 1;
        if self.requests_seen.is_multiple_of(MIX_INTERVAL) && self.tables.reweigh(&self.mix) {
            self.rankings.clear();
        }
    }

    /// A pod is counted on a node: those that want to be near it need not wait any longer, and it may keep others away.
    fn arrive(&mut self, now: Time, uid: &PodUid, effects: &mut Vec<Effect>) {
        if !self.queue.has_waiting() {
            self.known_terms = self.cache.new_terms();
            return;
        }
        self.follow_terms();
        let Some(pod) = self.cache.occupant(uid).cloned() else { return };
        if let Some(at) = self.cache.node_of(uid).filter(|_| pod.volumes.is_some()) {
            self.follow_mounts(now, &pod, self.cache.at(at).name().clone(), effects);
        }
        let occasion = Occasion { arrived: Some(&pod), ..Occasion::default() };
        self.wake(now, &occasion, QueueCause::AssignedPodAdd, effects);
    }

    /// Terms that are new may concern pods that wait.
    fn follow_terms(&mut self) {
        if self.known_terms != self.cache.new_terms() {
            self.known_terms = self.cache.new_terms();
            let cache = &self.cache;
            drop(self.queue.regroup(|pod| cache.kind_of(pod)));
        }
    }

    /// A pod is counted no more where it was: whoever it stood in the way of need not wait any longer.
    fn leave(&mut self, now: Time, left: Option<Departure>, effects: &mut Vec<Effect>) {
        let Some(Departure { node, pod, frees_room }) = left else { return };
        if pod.volumes.is_some() {
            self.follow_mounts(now, &pod, self.cache.at(node).name().clone(), effects);
        }
        let roomier = frees_room.then_some(node);
        let occasion = Occasion { roomier, left: Some(&pod), ..Occasion::default() };
        self.wake(now, &occasion, QueueCause::AssignedPodDelete, effects);
    }

    /// Something happened: whoever has a place now need not wait any longer.
    fn wake(&mut self, now: Time, occasion: &Occasion<'_>, cause: QueueCause, effects: &mut Vec<Effect>) {
        let (cache, tables, rankings) = (&self.cache, &self.tables, &mut self.rankings);
        let has_place = |kind: &PodKind| {
            let may_preempt = || kind.preempts && cache.has_lower(kind.priority);
            has_become_feasible(cache, tables, rankings, occasion, kind)
                || may_preempt()
                    && Search::new(cache, tables, rankings, kind, None).has_become_possible(occasion)
        };
        let moved = self.queue.wake(now, has_place);
        record_moves(moved.into_iter().map(|queue| (queue, cause)), effects);
        if self.cache.has_nominations() {
            self.wake_nominees(now, occasion, cause, effects);
        }
    }
}

/// No node takes the pod: says so on the pod, as far as it is news.
fn report_refusal(pod: &Pod, message: &Arc<str>, news: News, effects: &mut Vec<Effect>) {
    record_moves(Some((QueueName::Unschedulable, QueueCause::ScheduleAttemptFailure)), effects);
    if news != News::None {
        effects.push(report(pod, UnschedulableReason::Unschedulable, message, news == News::Message));
    }
}

/// For the log: an attempt in vain. A pod that is put back with its equals time and again is worth one line.
fn unschedulable(pod: &Pod, message: &Arc<str>) -> Effect {
    Effect::Fact(Fact::PodUnschedulable { pod: pod.id.clone(), message: message.to_string() })
}

fn report(pod: &Pod, reason: UnschedulableReason, message: &Arc<str>, publish: bool) -> Effect {
    Effect::ReportUnschedulable(UnschedulableReport {
        pod: pod.id.clone(),
        generation: pod.generation,
        reason,
        message: message.to_string(),
        nominated: pod.nominated.clone(),
        publish,
    })
}

fn record_moves(moves: impl IntoIterator<Item = Move>, effects: &mut Vec<Effect>) {
    effects.extend(moves.into_iter().map(|(queue, cause)| Effect::Fact(Fact::PodQueued { queue, cause })));
}

#[cfg(test)]
mod tests;
