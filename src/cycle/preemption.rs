//! Preemption: a pod that no node takes may have pods of a lower priority go.
//!
//! On each node that could take the pod without its pods of a lower priority, those are spared in turn for as long as it still
//! can: first those whose end would break a disruption budget, then the others, in each case the most important first. Who is
//! left over has to go. Among nodes the one is chosen where the least is lost ([`Cost`]). Both rules are kube-scheduler's.
//!
//! Invariants:
//! - No victim in vain: the node takes the pod without the victims, and no longer if any one of them stays. Where instances
//!   are created on demand "takes" means that the pod's instances can be placed, so victims are pods whose slots, freed
//!   together, make room for one; where they exist already they are counted by profile.
//! - A node that lacks what no pod's end can bring is not looked at. Nobody has to go for a claim that is for one pod alone.
//! - Places kept for pods of the same priority or a higher one are not taken, whoever goes.
//!
//! Cost: a copy of the node for each node looked at, and a filter for each pod of lower priority there. As in kube-scheduler a
//! search ends when it has found victims on a tenth of the nodes (at least [`LEAST_CANDIDATES`]), one of them without breaking
//! a budget; the next begins where it ended.

mod victims;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::diagnosis::Diagnosis;
use super::domains::Domains;
use super::filter::{self, feasible, is_eligible};
use super::hints::{Occasion, may_move_others};
use super::ranking::Rankings;
use super::reason::Reason;
use super::score::{self, FragmentationTables, Scoring};
use super::volumes;
use crate::cache::{Cache, NodeIndex, NodeInfo};
use crate::model::{Budgets, DevicePlacement, Node, PodKind, PodUid, Time};

use victims::Victims;

/// kube-scheduler's `minCandidateNodesAbsolute` and `minCandidateNodesPercentage`.
const LEAST_CANDIDATES: usize = 100;
const CANDIDATES_PERCENT: usize = 10;

/// Who has to go, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// Where the pod will have room.
    pub node: NodeIndex,
    /// Who has to go there, the most important first. Some may be going already.
    pub victims: Vec<PodUid>,
    /// How many of them go against a disruption budget.
    pub violations: usize,
    /// The instances that the pod will take, where they are created on demand.
    pub placements: Vec<DevicePlacement>,
}

/// What is lost on a node, in the order in which it counts; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Victims against a budget.
    violations: usize,
    /// The highest priority among the victims.
    highest: i32,
    /// The sum of all their priorities, each counted from the lowest there is, so that more victims are never cheaper.
    sum: i64,
    count: usize,
    /// When the first of the most important began: who has run for less long loses less.
    began: Reverse<Time>,
}

/// A pod of one kind against the nodes as they are. `own` is the pod, if it is a certain one: places kept for it do not count.
pub struct Search<'a> {
    cache: &'a Cache,
    tables: &'a FragmentationTables,
    scoring: Scoring,
    domains: Option<&'a Domains>,
    kind: &'a PodKind,
    own: Option<&'a PodUid>,
}

impl<'a> Search<'a> {
    /// A search for the kind; `own` is the pod itself.
    pub fn new(
        cache: &'a Cache,
        tables: &'a FragmentationTables,
        rankings: &'a mut Rankings,
        kind: &'a PodKind,
        own: Option<&'a PodUid>,
    ) -> Search<'a> {
        let scoring = rankings.scoring();
        Search { cache, tables, scoring, domains: rankings.domains(cache, tables, kind), kind, own }
    }

    /// The instances for the pod on a node that takes it now; `None` if the node does not.
    pub fn fits(&self, at: NodeIndex) -> Option<Vec<DevicePlacement>> {
        let (info, seen) = (self.cache.at(at), self.cache.at(at).seen_by(self.kind.priority, self.own));
        let node = info.node()?;
        let takes = feasible(self.tables, &self.kind.spec, &seen, node)
            && volumes::admits(self.cache, self.kind, &seen, node)
            && self.is_welcome(at, info)
            && self.is_welcome(at, &seen);
        takes.then(|| self.placements(&seen)).flatten()
    }

    /// Whether the pod would fit on a node without the pods of lower priority, and there are some.
    pub fn could_fit(&self, at: NodeIndex) -> bool {
        let info = self.cache.at(at);
        info.node().is_some_and(|node| is_eligible(&self.kind.spec, node))
            && Victims::on(self, at).is_some_and(|victims| victims.fits())
    }

    /// Whether there is such a node.
    pub fn could_fit_somewhere(&self) -> bool {
        self.cache.nodes().any(|(at, _, _)| self.could_fit(at))
    }

    /// Whether pods that go may help where they could not before, after what has happened. Pods of a lower priority that
    /// leave of themselves change nothing.
    pub fn has_become_possible(&self, occasion: &Occasion<'_>) -> bool {
        let lesser = occasion.left.is_some_and(|pod| pod.priority < self.kind.priority);
        let here = occasion.roomier.filter(|_| !lesser).is_some_and(|at| self.could_fit(at));
        let elsewhere = || {
            let related = self.kind.can_be_refused() && may_move_others(self.cache, occasion, self.kind);
            related && self.could_fit_somewhere()
        };
        here || elsewhere()
    }

    /// Chooses a node and its victims, or says of each node why that would not help. Begins at the node of number `first` and
    /// moves it on.
    pub fn choose(&self, budgets: &Budgets, first: &mut usize) -> Result<Preemption, Diagnosis> {
        let nodes: Vec<_> = self.cache.nodes().collect();
        let enough = (nodes.len() * CANDIDATES_PERCENT / 100).max(LEAST_CANDIDATES);
        let mut reasons = BTreeMap::new();
        let mut best: Option<(Cost, NodeIndex, Preemption)> = None;
        let mut found = 0;
        let start = *first % nodes.len().max(1);
        for (at, _, node) in nodes[start..].iter().chain(&nodes[..start]) {
            match self.candidate(*at, node, budgets) {
                Ok((cost, preemption)) => {
                    found += 1;
                    if best.as_ref().is_none_or(|(least, place, _)| (cost, *at) < (*least, *place)) {
                        best = Some((cost, *at, preemption));
                    }
                }
                Err(found) => {
                    found.into_iter().for_each(|reason| *reasons.entry(reason).or_insert(0) += 1);
                }
            }
            *first += 1;
            if found >= enough && best.as_ref().is_some_and(|(cost, _, _)| cost.violations == 0) {
                break;
            }
        }
        match best {
            Some((_, _, preemption)) => Ok(preemption),
            None => Err(Diagnosis::Rejected { nodes: nodes.len(), reasons }),
        }
    }

    /// What the pod's place on this node would cost, or why it cannot have one.
    fn candidate(
        &self,
        at: NodeIndex,
        node: &Node,
        budgets: &Budgets,
    ) -> Result<(Cost, Preemption), Vec<Reason>> {
        if !is_eligible(&self.kind.spec, node) {
            return Err(vec![Reason::PreemptionInVain]);
        }
        let Some(mut victims) = Victims::on(self, at) else {
            return Err(vec![Reason::NoVictims]);
        };
        if !victims.fits() {
            return Err(victims.rejections());
        }
        let violations = victims.spare(budgets);
        if victims.is_empty() {
            return Err(vec![Reason::NoVictims]);
        }
        let placements = victims.placements().ok_or_else(|| vec![Reason::PreemptionInVain])?;
        let preemption = Preemption { node: at, victims: victims.uids(), violations, placements };
        Ok((victims.cost(violations), preemption))
    }

    /// Whether other pods let the pod onto a node that looks like this.
    fn is_welcome(&self, at: NodeIndex, info: &NodeInfo) -> bool {
        self.by_others(at, info).is_none()
    }

    fn by_others(&self, at: NodeIndex, info: &NodeInfo) -> Option<Reason> {
        self.domains.and_then(|domains| domains.suppose(self.cache, self.kind, at, info).err())
    }

    fn placements(&self, info: &NodeInfo) -> Option<Vec<DevicePlacement>> {
        score::placements(self.tables, self.scoring, &self.kind.spec, info)
    }

    fn rejections(&self, info: &NodeInfo, node: &Node, by_others: Option<Reason>) -> Vec<Reason> {
        let mut further = volumes::rejections(self.cache, self.kind, info, node);
        if further.is_empty() {
            further.extend(by_others);
        }
        filter::rejections(self.tables, &self.kind.spec, info, node, further)
    }
}
