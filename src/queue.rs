//! The pods of ours that are not bound yet, in the order in which they will be tried.
//!
//! ```text
//!             created, gates lifted              no node takes it
//!   Gated ─────────────────────────► Active ──────────────────────► Waiting (unschedulable)
//!                                    ▲    │ a node does                │ a node changed so that it can take it
//!                    back-off ended  │    ▼                            │
//!                                 Backoff ◄── the bind failed ──┐      │ (at once if its back-off is over)
//!                                    ▲                        InFlight │
//!                                    └─────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - Waiting pods are kept by kind (spec, and terms of running pods that concern them), and a kind that has waiting pods is one
//!   that *no node can take now*: whatever may change that calls [`Queue::wake`], which moves all pods of every kind that has a
//!   place now. Hence no pod waits for a periodic flush, no kind is woken by an event that cannot help it, and a pod whose equal
//!   already waits needs no look at the nodes. When other terms come to concern waiting pods, [`Queue::regroup`] keeps their
//!   kinds true. Of the pods that are woken together as many as fit are placed; the first of the others is tried in vain,
//!   and the rest follow it back without having been tried.
//! - Nothing is lost while a pod is in flight: a bind that fails puts it into back-off, whence it is tried again whatever
//!   happened meanwhile; a change of the pod itself is stored; if it is deleted it stays, marked as gone, until the answer.
//! - Order is priority, then age, then arrival, among the pods that are not in back-off.
//!
//! Bound: one entry per unbound pod of ours in the API server.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::fact::{QueueCause, QueueName};
use crate::model::{NodeName, Pod, PodKind, PodUid, Time};

/// Place in the order: higher priority first, then older, then earlier seen (which no two pods share).
type Rank = (Reverse<i32>, Time, u64);

/// A pod on its way to a node.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// The pod as last seen.
    pub pod: Pod,
    /// How often it has been tried.
    pub attempts: u32,
    /// When it was first ready to be tried.
    pub since: Time,
    /// The last message reported on it, and the `metadata.generation` it spoke of.
    pub reported: Option<(Arc<str>, i64)>,
    /// What was said then of the place that is kept for it.
    told_node: Option<NodeName>,
    /// What the API last showed of that.
    shown_node: Option<NodeName>,
    /// Whether it was deleted while in flight.
    pub gone: bool,
    rank: Rank,
    place: Place,
    /// As what it waits, if it does.
    kind: Option<PodKind>,
    /// When its present back-off ends.
    ready: Time,
}

impl QueuedPod {
    /// Whether it has been taken from the queue and its attempt has not ended.
    pub fn is_in_flight(&self) -> bool {
        self.place == Place::InFlight
    }

    /// Whether it waits for something to change that can help it.
    pub fn is_waiting(&self) -> bool {
        self.place == Place::Waiting
    }

    /// Notes that this message is reported on the pod as it is now.
    fn tell(&mut self, message: &Arc<str>) -> News {
        let told = (Arc::clone(message), self.pod.generation);
        let before = self.reported.replace(told);
        let moved = self.told_node != self.pod.nominated;
        if moved {
            self.told_node.clone_from(&self.pod.nominated);
        }
        match before {
            Some((text, generation)) if text == *message && generation == self.pod.generation && !moved => {
                News::None
            }
            Some((text, _)) if text == *message => News::State,
            _ => News::Message,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Gated,
    Active,
    Backoff,
    Waiting,
    InFlight,
}

/// Why no node takes a kind of pod, as found by a look at the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For people: `0/20 nodes are available: …`.
    pub message: Arc<str>,
    /// When that was found.
    pub at: Time,
    /// How often the set of nodes or a node itself had changed by then.
    pub topology: u64,
    /// Whether no place could be made for any pod of the kind by having others go.
    pub hopeless: bool,
}

/// How much of a report a pod has not been told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    None,
    /// The message is the same; it speaks of a newer state of the pod, or the place kept for it is another.
    State,
    /// The message.
    Message,
}

/// The waiting pods of one kind.
#[derive(Debug)]
struct Class {
    /// The latest.
    verdict: Verdict,
    /// The oldest that some of the pods were told last.
    told: Verdict,
    pods: BTreeMap<Rank, PodUid>,
}

/// A pod that moved, for the metrics.
pub type Move = (QueueName, QueueCause);

/// See the module's comment.
#[derive(Debug)]
pub struct Queue {
    initial_backoff: Duration,
    max_backoff: Duration,
    pods: BTreeMap<PodUid, QueuedPod>,
    active: BTreeMap<Rank, PodUid>,
    backoff: BTreeMap<(Time, Rank), PodUid>,
    waiting: BTreeMap<PodKind, Class>,
    arrivals: u64,
    gated: usize,
    in_flight: usize,
}

impl Queue {
    /// An empty queue. The n-th failure of a pod makes it wait `initial · 2^(n-1)`, at most `max`.
    pub fn new(initial_backoff: Duration, max_backoff: Duration) -> Queue {
        Queue {
            initial_backoff,
            max_backoff,
            pods: BTreeMap::new(),
            active: BTreeMap::new(),
            backoff: BTreeMap::new(),
            waiting: BTreeMap::new(),
            arrivals: 0,
            gated: 0,
            in_flight: 0,
        }
    }

    /// How many pods are in each part, those in flight left out.
    pub fn lengths(&self) -> [(QueueName, usize); 4] {
        let waiting = self.pods.len() - self.active.len() - self.backoff.len() - self.gated - self.in_flight;
        [
            (QueueName::Active, self.active.len()),
            (QueueName::Backoff, self.backoff.len()),
            (QueueName::Unschedulable, waiting),
            (QueueName::Gated, self.gated),
        ]
    }

    /// A pod by uid.
    pub fn get(&self, uid: &PodUid) -> Option<&QueuedPod> {
        self.pods.get(uid)
    }

    /// The pods in order of uid.
    pub fn pods(&self) -> impl Iterator<Item = (&QueuedPod, Option<QueueName>)> {
        self.pods.values().map(|queued| (queued, queued.place.queue()))
    }

    /// Takes in a pod that appeared or changed.
    pub fn apply(&mut self, now: Time, mut pod: Pod) -> Option<Move> {
        let Some(known) = self.pods.get_mut(&pod.id.uid) else { return Some(self.enter(now, pod)) };
        // What is decided here may be newer than what the API shows; a change there is somebody's word.
        if known.shown_node == pod.nominated {
            pod.nominated.clone_from(&known.pod.nominated);
        } else {
            known.shown_node.clone_from(&pod.nominated);
        }
        let spec_changed =
            known.pod.spec != pod.spec || known.pod.labels != pod.labels || known.pod.volumes != pod.volumes;
        let ungated = known.place == Place::Gated && !pod.gated;
        let uid = pod.id.uid.clone();
        if known.place == Place::InFlight || !(spec_changed || ungated) {
            known.pod = pod;
            known.gone = false;
            return None;
        }
        self.withdraw(&uid);
        let known = self.pods.get_mut(&uid)?;
        known.pod = pod;
        if known.pod.gated {
            self.put(&uid, Place::Gated);
            return None;
        }
        if ungated {
            known.since = now;
        }
        let cause = if ungated { QueueCause::PodAdd } else { QueueCause::PodUpdate };
        Some((self.ready(now, &uid), cause))
    }

    /// Takes out a pod: it is bound, gone, or somebody else's now.
    pub fn remove(&mut self, uid: &PodUid) -> Option<QueuedPod> {
        self.withdraw(uid);
        self.pods.remove(uid)
    }

    /// Notes that a pod in flight was deleted (the answer to its bind ends it), or is there after all.
    pub fn mark_gone(&mut self, uid: &PodUid, gone: bool) {
        if let Some(queued) = self.pods.get_mut(uid) {
            queued.gone = gone;
        }
    }

    /// Makes every pod whose back-off is over ready to be tried.
    pub fn flush_backoff(&mut self, now: Time) -> usize {
        let mut moved = 0;
        while let Some(first) = self.backoff.first_entry()
            && first.key().0 <= now
        {
            let uid = first.remove();
            self.put(&uid, Place::Active);
            moved += 1;
        }
        moved
    }

    /// Takes the next pod to try; it is in flight until one of [`Queue::remove`], [`Queue::wait`] and [`Queue::retry`].
    pub fn pop(&mut self) -> Option<&QueuedPod> {
        let (_, uid) = self.active.pop_first()?;
        self.put(&uid, Place::InFlight);
        let queued = self.pods.get_mut(&uid)?;
        queued.attempts = queued.attempts.saturating_add(1);
        Some(queued)
    }

    /// If pods of this kind wait, no node can take another, and this is why.
    pub fn verdict(&self, kind: &PodKind) -> Option<&Verdict> {
        self.waiting.get(kind).map(|class| &class.verdict)
    }

    /// No node takes the pod in flight: it waits until one can. Returns what of this is new to the pod.
    pub fn wait(&mut self, uid: &PodUid, now: Time, kind: PodKind, verdict: Verdict) -> News {
        let new = self.join_class(uid, kind, verdict);
        self.fail(uid, now, Place::Waiting);
        new
    }

    /// The pod in flight joins its equals, which wait for the reason given: it was not tried, so nothing is counted and no
    /// back-off begins. Returns what of this is new to the pod.
    pub fn join(&mut self, uid: &PodUid, kind: PodKind, verdict: Verdict) -> News {
        let new = self.join_class(uid, kind, verdict);
        if let Some(queued) = self.pods.get_mut(uid) {
            queued.attempts = queued.attempts.saturating_sub(1);
            self.land(uid, Place::Waiting);
        }
        new
    }

    /// Whether any pod waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The waiting kind whose pods were told longest ago, among those told before the nodes changed to what they are now, and
    /// the verdict they were told.
    pub fn outdated(&self, topology: u64) -> Option<(&PodKind, &Verdict)> {
        let classes = self.waiting.iter().map(|(kind, class)| (kind, &class.told));
        classes.filter(|(_, verdict)| verdict.topology < topology).min_by_key(|(_, verdict)| verdict.at)
    }

    /// Renews the explanation of a waiting kind. Returns the pods to which the message is new.
    pub fn explain(&mut self, kind: &PodKind, verdict: Verdict) -> Vec<Pod> {
        let Some(class) = self.waiting.get_mut(kind) else { return Vec::new() };
        class.told = verdict.clone();
        class.verdict = verdict;
        let mut told = Vec::new();
        for uid in class.pods.values() {
            let Some(queued) = self.pods.get_mut(uid) else { continue };
            if queued.tell(&class.verdict.message) != News::None {
                told.push(queued.pod.clone());
            }
        }
        told
    }

    /// The bind of the pod in flight failed: it is tried again after its back-off. Returns what of this is new to the pod.
    pub fn retry(&mut self, uid: &PodUid, now: Time, message: &Arc<str>) -> News {
        let Some(queued) = self.pods.get_mut(uid) else { return News::None };
        let news = queued.tell(message);
        self.fail(uid, now, Place::Backoff);
        news
    }

    /// Notes where a place is kept for a pod from now on.
    pub fn nominate(&mut self, uid: &PodUid, node: Option<NodeName>) {
        if let Some(queued) = self.pods.get_mut(uid) {
            queued.pod.nominated = node;
        }
    }

    /// Makes one waiting pod ready again.
    pub fn wake_pod(&mut self, now: Time, uid: &PodUid) -> Option<QueueName> {
        if !self.get(uid).is_some_and(QueuedPod::is_waiting) {
            return None;
        }
        self.withdraw(uid);
        Some(self.ready(now, uid))
    }

    /// Something happened: makes the pods of every waiting kind that has a place now ready again.
    pub fn wake(&mut self, now: Time, mut has_place: impl FnMut(&PodKind) -> bool) -> Vec<QueueName> {
        let woken: Vec<_> = self.waiting.keys().filter(|kind| has_place(kind)).cloned().collect();
        let classes = woken.iter().filter_map(|kind| self.waiting.remove(kind));
        let uids: Vec<_> = classes.flat_map(|class| class.pods.into_values()).collect();
        uids.iter().map(|uid| self.ready(now, uid)).collect()
    }

    /// Other terms of running pods may concern the waiting pods now: puts each among its equals. They keep the verdict that they
    /// were told. Returns the kinds that pods have come to, which may have a place.
    pub fn regroup(&mut self, kind_of: impl Fn(&Pod) -> PodKind) -> BTreeSet<PodKind> {
        self.regroup_where(|_, _| true, kind_of)
    }

    /// The same for those pods alone that `concerned` picks by the kind they have and by themselves.
    pub fn regroup_where(
        &mut self,
        concerned: impl Fn(&PodKind, &Pod) -> bool,
        kind_of: impl Fn(&Pod) -> PodKind,
    ) -> BTreeSet<PodKind> {
        let classes =
            self.waiting.iter().flat_map(|(kind, class)| class.pods.values().map(move |uid| (kind, uid)));
        let waiting = classes.filter_map(|(kind, uid)| Some((kind, uid, &self.pods.get(uid)?.pod)));
        let moved = waiting.filter(|(kind, _, pod)| concerned(kind, pod)).filter_map(|(known, uid, pod)| {
            let kind = kind_of(pod);
            (kind != *known).then(|| (uid.clone(), kind))
        });
        let moved: Vec<_> = moved.collect();
        for (uid, kind) in &moved {
            let Some(queued) = self.pods.get(uid) else { continue };
            let class = queued.kind.as_ref().and_then(|kind| self.waiting.get(kind));
            let Some(verdict) = class.map(|class| class.verdict.clone()) else { continue };
            self.withdraw(uid);
            self.enter_class(uid, kind.clone(), verdict);
            self.put(uid, Place::Waiting);
        }
        moved.into_iter().map(|(_, kind)| kind).collect()
    }

    /// When the next pod becomes ready: now (zero) while some are, else at the end of the earliest back-off.
    pub fn next_ready(&self) -> Option<Time> {
        if !self.active.is_empty() {
            return Some(Time::ZERO);
        }
        self.backoff.first_key_value().map(|((ready, _), _)| *ready)
    }

    fn enter(&mut self, now: Time, pod: Pod) -> Move {
        self.arrivals += 1;
        let uid = pod.id.uid.clone();
        let place = if pod.gated { Place::Gated } else { Place::Active };
        let queued = QueuedPod {
            rank: (Reverse(pod.priority), pod.created, self.arrivals),
            attempts: 0,
            since: now,
            reported: None,
            told_node: pod.nominated.clone(),
            shown_node: pod.nominated.clone(),
            gone: false,
            place,
            kind: None,
            ready: now,
            pod,
        };
        self.pods.insert(uid.clone(), queued);
        self.put(&uid, place);
        (if place == Place::Gated { QueueName::Gated } else { QueueName::Active }, QueueCause::PodAdd)
    }

    /// Enters a pod's kind among the waiting ones, with a newer verdict. Returns what of it is new to the pod.
    fn join_class(&mut self, uid: &PodUid, kind: PodKind, verdict: Verdict) -> News {
        let Some(queued) = self.pods.get_mut(uid) else { return News::None };
        let news = queued.tell(&verdict.message);
        if let Some(class) = self.waiting.get_mut(&kind) {
            class.verdict = verdict.clone();
        }
        self.enter_class(uid, kind, verdict);
        news
    }

    /// Notes as what a pod waits; it is to be put among those.
    fn enter_class(&mut self, uid: &PodUid, kind: PodKind, verdict: Verdict) {
        let Some(queued) = self.pods.get_mut(uid) else { return };
        let class = || Class { told: verdict.clone(), verdict, pods: BTreeMap::new() };
        self.waiting.entry(kind.clone()).or_insert_with(class);
        queued.kind = Some(kind);
    }

    /// Ends a failed attempt: the pod goes to `place` with the back-off that its number of attempts makes.
    fn fail(&mut self, uid: &PodUid, now: Time, place: Place) {
        let Some(queued) = self.pods.get_mut(uid) else { return };
        let doublings = queued.attempts.saturating_sub(1).min(31);
        queued.ready = now + self.initial_backoff.saturating_mul(1 << doublings).min(self.max_backoff);
        self.land(uid, place);
    }

    /// Takes a pod that is in flight to `place`.
    fn land(&mut self, uid: &PodUid, place: Place) {
        let flies = self.pods.get(uid).is_some_and(QueuedPod::is_in_flight);
        debug_assert!(flies, "pod {uid} is not being tried");
        if flies {
            self.withdraw(uid);
            self.put(uid, place);
        }
    }

    /// Puts a pod where it can be tried: at once, or when its back-off ends.
    fn ready(&mut self, now: Time, uid: &PodUid) -> QueueName {
        let over = self.pods.get(uid).is_none_or(|queued| queued.ready <= now);
        self.put(uid, if over { Place::Active } else { Place::Backoff });
        if over { QueueName::Active } else { QueueName::Backoff }
    }

    /// Enters a pod, which is in no part, into one.
    fn put(&mut self, uid: &PodUid, place: Place) {
        let Some(queued) = self.pods.get_mut(uid) else { return };
        queued.place = place;
        let uid = uid.clone();
        match place {
            Place::Gated => self.gated += 1,
            Place::Active => drop(self.active.insert(queued.rank, uid)),
            Place::Backoff => drop(self.backoff.insert((queued.ready, queued.rank), uid)),
            Place::Waiting => {
                if let Some(class) = queued.kind.as_ref().and_then(|kind| self.waiting.get_mut(kind)) {
                    class.pods.insert(queued.rank, uid);
                }
            }
            Place::InFlight => self.in_flight += 1,
        }
    }

    /// Takes a pod out of the part it is in.
    fn withdraw(&mut self, uid: &PodUid) {
        let Some(queued) = self.pods.get(uid) else { return };
        match queued.place {
            Place::Gated => self.gated -= 1,
            Place::Active => drop(self.active.remove(&queued.rank)),
            Place::Backoff => drop(self.backoff.remove(&(queued.ready, queued.rank))),
            Place::Waiting => {
                let Some(kind) = &queued.kind else { return };
                if let Some(class) = self.waiting.get_mut(kind) {
                    class.pods.remove(&queued.rank);
                    if class.pods.is_empty() {
                        self.waiting.remove(kind);
                    }
                }
            }
            Place::InFlight => self.in_flight -= 1,
        }
    }
}

impl Place {
    fn queue(self) -> Option<QueueName> {
        match self {
            Place::Gated => Some(QueueName::Gated),
            Place::Active => Some(QueueName::Active),
            Place::Backoff => Some(QueueName::Backoff),
            Place::Waiting => Some(QueueName::Unschedulable),
            Place::InFlight => None,
        }
    }
}

#[cfg(test)]
mod tests;
