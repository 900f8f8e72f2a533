//! The pods of one node that may have to go for another, and which of them do.
//!
//! Invariant: `bare` is the node without the pods in `lower`; `seen` is the same with the nominated pods that the pod has to
//! yield to. What one node's pods may hold, both lack.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{Cost, Search};
use crate::cache::{NodeIndex, NodeInfo, Occupant, Supposed};
use crate::cycle::filter::feasible;
use crate::cycle::reason::Reason;
use crate::cycle::volumes;
use crate::model::{Budgets, DevicePlacement, Partitioning, PodUid, Time};

pub(super) struct Victims<'a> {
    search: &'a Search<'a>,
    at: NodeIndex,
    bare: Supposed,
    /// `None` where there is nobody to yield to.
    seen: Option<Supposed>,
    /// Who would have to go as things stand, the most important first.
    lower: Vec<(PodUid, Occupant)>,
}

impl<'a> Victims<'a> {
    /// All pods of a lower priority on a node; `None` if there are none.
    pub(super) fn on(search: &'a Search<'a>, at: NodeIndex) -> Option<Victims<'a>> {
        let (info, priority) = (search.cache.at(at), search.kind.priority);
        if !info.occupants().any(|pod| pod.priority < priority) {
            return None;
        }
        let (bare, mut lower) = info.without_lower(priority);
        lower.sort_by_key(|(_, pod)| importance(pod));
        let mut nominees = info.yields_to(priority, search.own).peekable();
        let seen = nominees.peek().is_some().then(|| {
            let mut seen = bare.clone();
            nominees.for_each(|(uid, nominee)| seen.put(uid.clone(), nominee.clone()));
            seen
        });
        Some(Victims { search, at, bare, seen, lower })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lower.is_empty()
    }

    /// Whether the node takes the pod as things stand.
    pub(super) fn fits(&self) -> bool {
        let search = self.search;
        let takes = |info: &NodeInfo| {
            let node = info.node();
            node.is_some_and(|node| {
                feasible(search.tables, &search.kind.spec, info, node)
                    && volumes::admits(search.cache, search.kind, info, node)
            }) && search.is_welcome(self.at, info)
        };
        self.seen.as_ref().is_none_or(|seen| takes(seen.info())) && takes(self.bare.info())
    }

    /// Why the node does not take the pod, although nobody of a lower priority is left.
    pub(super) fn rejections(&self) -> Vec<Reason> {
        let info = self.seen.as_ref().unwrap_or(&self.bare).info();
        let Some(node) = info.node() else { return vec![Reason::PreemptionInVain] };
        let by_others = self
            .search
            .by_others(self.at, info)
            .or_else(|| self.seen.as_ref().and_then(|_| self.search.by_others(self.at, self.bare.info())));
        self.search.rejections(info, node, by_others)
    }

    /// Spares whoever can be spared; the others are left in `lower`. Returns how many of them go against a budget.
    ///
    /// In turn is not always cheapest where slots decide: the most important pods may be spared in one window and so leave
    /// nothing but dear ones in the others. So for a pod of one instance each window is tried, too.
    pub(super) fn spare(&mut self, budgets: &Budgets) -> usize {
        let mut spending = budgets.spending();
        let lower = std::mem::take(&mut self.lower);
        let against = |(_, pod): &(PodUid, Occupant)| {
            Against(spending.violates(&pod.namespace, &pod.name, &pod.labels))
        };
        let against: Vec<_> = lower.iter().map(against).collect();
        let mut plans = vec![Vec::new()];
        plans.extend(self.windows(&lower));
        let plans = plans.into_iter().map(|doomed| self.plan(&lower, &against, &doomed));
        let best = plans.min_by_key(|victims| cost(&lower, &against, victims)).unwrap_or_default();
        for (at, (uid, pod)) in lower.iter().enumerate() {
            if !best.contains(&at) {
                self.put(uid, pod);
            }
        }
        let violations = best.iter().filter(|at| against[**at].0).count();
        let is_victim = |(at, pod)| best.contains(&at).then_some(pod);
        self.lower = lower.into_iter().enumerate().filter_map(is_victim).collect();
        violations
    }

    /// Spares pods in turn: those that go against a budget before others, those that are `doomed` after both. Returns whom it
    /// could not spare, in order, and leaves everything as it was.
    fn plan(&mut self, lower: &[(PodUid, Occupant)], against: &[Against], doomed: &[usize]) -> Vec<usize> {
        let mut order: Vec<_> = (0..lower.len()).collect();
        order.sort_by_key(|at| (doomed.contains(at), !against[*at].0));
        let mut victims = Vec::new();
        for at in order {
            let (uid, pod) = &lower[at];
            self.put(uid, pod);
            if !self.fits() {
                self.take(uid);
                victims.push(at);
            }
        }
        for (at, (uid, _)) in lower.iter().enumerate() {
            if !victims.contains(&at) {
                self.take(uid);
            }
        }
        victims.sort_unstable();
        victims
    }

    /// For each place at which the pod's one instance could be, if it has just one and places are chosen here, whom it would
    /// displace.
    fn windows(&self, lower: &[(PodUid, Occupant)]) -> BTreeSet<Vec<usize>> {
        let info = self.bare.info();
        let ([request], Some(&Partitioning::OnDemand { model, .. })) =
            (&*self.search.kind.spec.mig, info.node().map(|node| &node.partitioning))
        else {
            return BTreeSet::new();
        };
        let Some(geometry) = model.profile(request.profile).ok().filter(|_| request.count == 1) else {
            return BTreeSet::new();
        };
        let places = (0..).zip(info.gpus()).flat_map(|(gpu, layout)| {
            geometry.free_starts(layout.mask()).iter().map(move |start| (gpu, geometry.window(start)))
        });
        let displaced = places.map(|(gpu, window)| {
            let overlaps = |place: &DevicePlacement| {
                place.gpu == gpu && place.placement.slots(model).is_ok_and(|slots| slots.overlaps(window))
            };
            let pods = lower.iter().enumerate().filter(|(_, (_, pod))| pod.placements().iter().any(overlaps));
            pods.map(|(at, _)| at).collect()
        });
        displaced.collect()
    }

    fn put(&mut self, uid: &PodUid, pod: &Occupant) {
        for supposed in self.seen.iter_mut().chain([&mut self.bare]) {
            supposed.put(uid.clone(), pod.clone());
        }
    }

    fn take(&mut self, uid: &PodUid) {
        for supposed in self.seen.iter_mut().chain([&mut self.bare]) {
            drop(supposed.take(uid));
        }
    }

    pub(super) fn uids(&self) -> Vec<PodUid> {
        self.lower.iter().map(|(uid, _)| uid.clone()).collect()
    }

    /// The instances that the pod would take.
    pub(super) fn placements(&self) -> Option<Vec<DevicePlacement>> {
        self.search.placements(self.seen.as_ref().unwrap_or(&self.bare).info())
    }

    pub(super) fn cost(&self, violations: usize) -> Cost {
        cost_of(self.lower.iter().map(|(_, pod)| pod), violations)
    }
}

/// Whether the end of a pod would be more than a disruption budget allows.
#[derive(Clone, Copy, Debug)]
struct Against(bool);

/// What the victims at these positions cost.
fn cost(lower: &[(PodUid, Occupant)], against: &[Against], victims: &[usize]) -> Cost {
    let violations = victims.iter().filter(|at| against[**at].0).count();
    cost_of(victims.iter().map(|at| &lower[*at].1), violations)
}

/// What pods cost, the most important first.
fn cost_of<'a>(victims: impl Iterator<Item = &'a Occupant> + Clone, violations: usize) -> Cost {
    let highest = victims.clone().next().map_or(i32::MIN, |pod| pod.priority);
    let most_important = victims.clone().take_while(|pod| pod.priority == highest);
    Cost {
        violations,
        highest,
        sum: victims.clone().map(|pod| i64::from(pod.priority) - i64::from(i32::MIN)).sum(),
        began: Reverse(most_important.map(began).min().unwrap_or_default()),
        count: victims.count(),
    }
}

/// Higher priority first, then who has run for longer.
fn importance(pod: &Occupant) -> (Reverse<i32>, Time) {
    (Reverse(pod.priority), began(pod))
}

/// A pod that no kubelet has taken up yet begins later than all others.
fn began(pod: &Occupant) -> Time {
    pod.started.unwrap_or(Time::from_micros(u64::MAX))
}
