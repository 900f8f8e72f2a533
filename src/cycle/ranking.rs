//! The nodes that can take a pod, best first, remembered per kind of pod.
//!
//! Most pods are replicas: their specs are equal, and between two decisions one node has changed. So a kind's ranking is kept
//! and brought up to date by looking at just the nodes whose generation is newer than its own. Where other pods have a say
//! ([`super::domains`]), the nodes that share a domain with those are looked at, too, as far as a number that concerns them
//! has changed.
//!
//! Invariant: after [`Rankings::best`] the ranking holds exactly the nodes that pass every filter, each with its present score;
//! the result is the one that a scan over all nodes would give.
//!
//! Bound: [`ENTRIES`] nodes over all rankings, the least recently used ones going first (one ranking always stays).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::domains::{Domains, Stale};
use super::filter::passes_all_but_slots;
use super::score::{self, FragmentationTables, Score, Scoring};
use super::volumes;
use super::wishes::{Likes, Merit, weigh};
use crate::cache::{Cache, Generation, NodeIndex};
use crate::model::PodKind;

/// Nodes remembered over all rankings: some 30 MB, and 50 different kinds on 5,000 nodes; about three times that if other pods
/// have a say in all of them.
const ENTRIES: usize = 250_000;

/// What a ranking costs besides its nodes, in nodes: its spec and its own size.
const OVERHEAD: usize = 64;

/// See the module's comment.
#[derive(Debug)]
pub struct Rankings {
    scoring: Scoring,
    by_kind: BTreeMap<PodKind, Ranking>,
    /// Counts decisions, to tell which ranking was used last.
    clock: u64,
}

/// A node that the pod may go to as far as the node alone is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rated {
    score: Score,
    likes: Likes,
}

#[derive(Debug, Default)]
struct Ranking {
    seen: Generation,
    namespaces: u64,
    offers: u64,
    used: u64,
    rated: Vec<Option<Rated>>,
    order: BTreeMap<Merit, BTreeSet<(Score, NodeIndex)>>,
    /// Nodes in `order`.
    choices: usize,
    relations: Option<Related>,
}

/// What a ranking has besides, where other pods have a say.
#[derive(Debug)]
struct Related {
    domains: Domains,
    /// Where each node stands in the order.
    merits: Vec<Option<Merit>>,
}

impl Rankings {
    /// No memory yet.
    pub fn new(scoring: Scoring) -> Rankings {
        Rankings { scoring, by_kind: BTreeMap::new(), clock: 0 }
    }

    /// How nodes are compared.
    pub fn scoring(&self) -> Scoring {
        self.scoring
    }

    /// Forgets everything: the way nodes are scored has changed.
    pub fn clear(&mut self) {
        self.by_kind.clear();
    }

    /// The best node for the kind, and how many there are to choose from.
    pub fn best(
        &mut self,
        cache: &Cache,
        tables: &FragmentationTables,
        kind: &PodKind,
    ) -> Option<(NodeIndex, usize)> {
        let ranking = self.updated(cache, tables, kind);
        Some((ranking.best(kind)?, ranking.choices))
    }

    /// Every node for the kind, best first.
    pub(super) fn all(
        &mut self,
        cache: &Cache,
        tables: &FragmentationTables,
        kind: &PodKind,
    ) -> Vec<NodeIndex> {
        self.updated(cache, tables, kind).all(kind)
    }

    /// What other pods have to say about each node; `None` if nothing.
    pub(super) fn domains(
        &mut self,
        cache: &Cache,
        tables: &FragmentationTables,
        kind: &PodKind,
    ) -> Option<&Domains> {
        if !kind.is_related() {
            return None;
        }
        self.updated(cache, tables, kind).relations.as_ref().map(|related| &related.domains)
    }

    /// The kind's ranking, brought up to date.
    fn updated(&mut self, cache: &Cache, tables: &FragmentationTables, kind: &PodKind) -> &Ranking {
        self.clock += 1;
        if !self.by_kind.contains_key(kind) {
            self.make_room(cache.capacity());
        }
        let ranking = self.by_kind.entry(kind.clone()).or_default();
        ranking.used = self.clock;
        ranking.update(cache, tables, self.scoring, kind);
        ranking
    }

    /// Makes room for one more ranking of `wanted` nodes. All rankings have that many.
    fn make_room(&mut self, wanted: usize) {
        let most = (ENTRIES / (wanted + OVERHEAD)).max(1);
        while self.by_kind.len() >= most {
            let oldest = self.by_kind.iter().min_by_key(|(_, ranking)| ranking.used);
            let Some(kind) = oldest.map(|(kind, _)| kind.clone()) else { return };
            self.by_kind.remove(&kind);
        }
    }
}

impl Ranking {
    fn best(&self, kind: &PodKind) -> Option<NodeIndex> {
        let first = |nodes: &BTreeSet<(Score, NodeIndex)>| nodes.first().copied();
        if self.order.len() <= 1 {
            return self.order.values().next().and_then(first).map(|(_, at)| at);
        }
        let weighed = self.weighed(kind);
        let best = weighed.first().map(|(total, _)| *total);
        let equal = weighed.iter().take_while(|(total, _)| Some(*total) == best);
        equal.filter_map(|(_, merit)| first(self.order.get(merit)?)).min().map(|(_, at)| at)
    }

    fn all(&self, kind: &PodKind) -> Vec<NodeIndex> {
        let weighed = self.weighed(kind).into_iter();
        let nodes = weighed.filter_map(|(total, merit)| Some((total, self.order.get(merit)?)));
        let mut nodes: Vec<_> =
            nodes.flat_map(|(total, nodes)| nodes.iter().map(move |node| (total, *node))).collect();
        nodes.sort_unstable();
        nodes.into_iter().map(|(_, (_, at))| at).collect()
    }

    /// The merits in the order, best first.
    fn weighed(&self, kind: &PodKind) -> Vec<(Reverse<i64>, &Merit)> {
        let domains = self.relations.as_ref().map(|related| related.domains.choices()).unwrap_or_default();
        let constraints = kind.spec.relations.iter().flat_map(|relations| &relations.spread_softly);
        let skews: Vec<_> = constraints.map(|constraint| constraint.max_skew).collect();
        weigh(self.order.keys(), &domains, &skews)
    }

    fn update(&mut self, cache: &Cache, tables: &FragmentationTables, scoring: Scoring, kind: &PodKind) {
        let rate = |at: NodeIndex| {
            let info = &*cache.at(at).seen_by(kind.priority, None);
            let node = info.node().filter(|node| passes_all_but_slots(&kind.spec, info, node))?;
            if !volumes::admits(cache, kind, info, node) {
                return None;
            }
            let score = score::score(tables, scoring, &kind.spec, info, node)?;
            Some(Rated { score, likes: Likes::of(&kind.spec, node) })
        };
        let selects_namespaces = || kind.spec.relations.as_ref().is_some_and(|all| all.selects_namespaces());
        if self.namespaces != cache.namespace_changes() && selects_namespaces() {
            *self = Ranking { used: self.used, ..Ranking::default() };
        }
        self.namespaces = cache.namespace_changes();
        let binds = || kind.volumes.as_ref().is_some_and(|needs| !needs.waiting.is_empty());
        if self.offers != cache.storage().offers() && binds() {
            *self = Ranking { used: self.used, namespaces: self.namespaces, ..Ranking::default() };
        }
        self.offers = cache.storage().offers();
        if self.rated.is_empty() {
            self.rated = cache.positions().map(rate).collect();
            self.relations = Domains::of(cache, kind).map(|domains| Related { domains, merits: Vec::new() });
            self.fill(cache, kind);
        } else {
            self.rated.resize(cache.capacity(), None);
            if self.relations.is_some() {
                self.follow(cache, kind, rate);
            } else {
                for at in cache.changed_since(self.seen) {
                    let (old, new) = (self.rated[at.as_usize()], rate(at));
                    if old != new {
                        old.into_iter().for_each(|old| self.remove(&old.likes.into(), (old.score, at)));
                        new.into_iter().for_each(|new| self.insert(new.likes.into(), (new.score, at)));
                        self.rated[at.as_usize()] = new;
                    }
                }
            }
        }
        self.seen = cache.generation();
    }

    /// Enters all rated nodes into an empty order.
    fn fill(&mut self, cache: &Cache, kind: &PodKind) {
        let mut order: BTreeMap<Merit, Vec<(Score, NodeIndex)>> = BTreeMap::new();
        for (at, rated) in cache.positions().zip(&self.rated) {
            let merit = match &mut self.relations {
                Some(related) => related.enter(cache, kind, at, *rated),
                None => rated.map(|rated| rated.likes.into()),
            };
            if let (Some(rated), Some(merit)) = (rated, merit) {
                order.entry(merit).or_default().push((rated.score, at));
                self.choices += 1;
            }
        }
        self.order = order.into_iter().map(|(merit, nodes)| (merit, nodes.into_iter().collect())).collect();
    }

    /// Takes over what has changed, where other pods have a say.
    fn follow(&mut self, cache: &Cache, kind: &PodKind, rate: impl Fn(NodeIndex) -> Option<Rated>) {
        let mut stale = Stale::default();
        let changed: Vec<_> = cache.changed_since(self.seen).collect();
        for at in &changed {
            self.withdraw(*at);
            self.rated[at.as_usize()] = rate(*at);
            if let Some(related) = &mut self.relations {
                related.domains.update(cache, kind, *at, &mut stale);
            }
        }
        let Some(related) = &self.relations else { return };
        let others: Vec<_> =
            if stale.all { cache.positions().collect() } else { related.domains.nodes(&stale).collect() };
        for at in changed.into_iter().chain(others) {
            self.judge(cache, kind, at);
        }
    }

    /// Takes a node out of the order.
    fn withdraw(&mut self, at: NodeIndex) {
        let Some(related) = &mut self.relations else { return };
        let Some(merit) = related.leave(at) else { return };
        if let Some(rated) = self.rated[at.as_usize()] {
            self.remove(&merit, (rated.score, at));
        }
    }

    /// Puts a node where it belongs now.
    fn judge(&mut self, cache: &Cache, kind: &PodKind, at: NodeIndex) {
        let rated = self.rated[at.as_usize()];
        let Some(related) = &mut self.relations else { return };
        if related.stands(cache, kind, at, rated) {
            return;
        }
        self.withdraw(at);
        let Some(related) = &mut self.relations else { return };
        if let (Some(merit), Some(rated)) = (related.enter(cache, kind, at, rated), rated) {
            self.insert(merit, (rated.score, at));
        }
    }

    fn insert(&mut self, merit: Merit, node: (Score, NodeIndex)) {
        self.order.entry(merit).or_default().insert(node);
        self.choices += 1;
    }

    fn remove(&mut self, merit: &Merit, node: (Score, NodeIndex)) {
        let Some(nodes) = self.order.get_mut(merit) else { return };
        self.choices -= usize::from(nodes.remove(&node));
        if nodes.is_empty() {
            self.order.remove(merit);
        }
    }
}

impl Related {
    /// The merit of a node, unless the node or other pods keep the pod away.
    fn merit(&self, cache: &Cache, kind: &PodKind, at: NodeIndex, rated: Option<Rated>) -> Option<Merit> {
        let pull = self.domains.judge(kind, at).ok().filter(|_| rated.is_some())?;
        if let Cow::Owned(info) = cache.at(at).seen_by(kind.priority, None) {
            self.domains.suppose(cache, kind, at, &info).ok()?;
        }
        Some(Merit { likes: rated?.likes, pull: Some(Box::new(pull)) })
    }

    /// Whether the merit of a node is what it was.
    fn stands(&self, cache: &Cache, kind: &PodKind, at: NodeIndex, rated: Option<Rated>) -> bool {
        self.merits.get(at.as_usize()).is_some_and(|merit| *merit == self.merit(cache, kind, at, rated))
    }

    /// Notes and returns what a node's merit is now.
    fn enter(&mut self, cache: &Cache, kind: &PodKind, at: NodeIndex, rated: Option<Rated>) -> Option<Merit> {
        if self.merits.len() <= at.as_usize() {
            self.merits.resize(at.as_usize() + 1, None);
        }
        let merit = self.merit(cache, kind, at, rated);
        if let Some(pull) = merit.as_ref().and_then(|merit| merit.pull.as_ref()) {
            self.domains.choose(at, pull, true);
        }
        self.merits[at.as_usize()] = merit.clone();
        merit
    }

    /// Forgets and returns a node's merit.
    fn leave(&mut self, at: NodeIndex) -> Option<Merit> {
        let merit = self.merits.get_mut(at.as_usize())?.take()?;
        if let Some(pull) = &merit.pull {
            self.domains.choose(at, pull, false);
        }
        Some(merit)
    }
}

impl From<Likes> for Merit {
    /// The merit of a node where other pods have no say.
    fn from(likes: Likes) -> Merit {
        Merit { likes, pull: None }
    }
}
