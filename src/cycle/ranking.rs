//! The nodes that can take a pod, best first, remembered per pod spec.
//!
//! Most pods are replicas: their specs are equal, and between two decisions one node has changed. So a spec's ranking is kept
//! and brought up to date by looking at just the nodes whose generation is newer than its own.
//!
//! Invariant: after [`Rankings::best`] the ranking holds exactly the nodes that pass every filter, each with its present score;
//! the result is the one that a scan over all nodes would give.
//!
//! Bound: [`ENTRIES`] nodes over all rankings, the least recently used ones going first (one ranking always stays).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::filter::passes_all_but_slots;
use super::score::{self, FragmentationTables, Score, Scoring};
use crate::cache::{Cache, Generation, NodeIndex};
use crate::model::PodSpec;

/// Nodes remembered over all rankings: some 25 MB, and 50 different specs on 5,000 nodes.
const ENTRIES: usize = 250_000;

/// What a ranking costs besides its nodes, in nodes: its spec and its own size.
const OVERHEAD: usize = 64;

/// See the module's comment.
#[derive(Debug)]
pub struct Rankings {
    scoring: Scoring,
    by_spec: BTreeMap<Arc<PodSpec>, Ranking>,
    /// Counts decisions, to tell which ranking was used last.
    clock: u64,
}

#[derive(Debug, Default)]
struct Ranking {
    seen: Generation,
    used: u64,
    scores: Vec<Option<Score>>,
    order: BTreeSet<(Score, NodeIndex)>,
}

impl Rankings {
    /// No memory yet.
    pub fn new(scoring: Scoring) -> Rankings {
        Rankings { scoring, by_spec: BTreeMap::new(), clock: 0 }
    }

    /// How nodes are compared.
    pub fn scoring(&self) -> Scoring {
        self.scoring
    }

    /// Forgets everything: the way nodes are scored has changed.
    pub fn clear(&mut self) {
        self.by_spec.clear();
    }

    /// The best node for the spec, and how many there are to choose from.
    pub fn best(
        &mut self,
        cache: &Cache,
        tables: &FragmentationTables,
        spec: &Arc<PodSpec>,
    ) -> Option<(NodeIndex, usize)> {
        self.clock += 1;
        if !self.by_spec.contains_key(spec) {
            self.make_room(cache.capacity());
        }
        let ranking = self.by_spec.entry(Arc::clone(spec)).or_default();
        ranking.used = self.clock;
        ranking.update(cache, tables, self.scoring, spec);
        ranking.order.first().map(|(_, node)| (*node, ranking.order.len()))
    }

    /// Makes room for one more ranking of `wanted` nodes. All rankings have that many.
    fn make_room(&mut self, wanted: usize) {
        let most = (ENTRIES / (wanted + OVERHEAD)).max(1);
        while self.by_spec.len() >= most {
            let oldest = self.by_spec.iter().min_by_key(|(_, ranking)| ranking.used);
            let Some(spec) = oldest.map(|(spec, _)| Arc::clone(spec)) else { return };
            self.by_spec.remove(&spec);
        }
    }
}

impl Ranking {
    fn update(&mut self, cache: &Cache, tables: &FragmentationTables, scoring: Scoring, spec: &PodSpec) {
        let rate = |at: NodeIndex| {
            let info = cache.at(at);
            let node = info.node().filter(|node| passes_all_but_slots(spec, info, node))?;
            score::score(tables, scoring, spec, info, node)
        };
        if self.scores.is_empty() {
            self.scores = cache.positions().map(rate).collect();
            self.order =
                cache.positions().zip(&self.scores).filter_map(|(at, score)| Some(((*score)?, at))).collect();
        } else {
            self.scores.resize(cache.capacity(), None);
            for at in cache.changed_since(self.seen) {
                let (old, new) = (self.scores[at.as_usize()], rate(at));
                if old != new {
                    old.map(|score| self.order.remove(&(score, at)));
                    new.map(|score| self.order.insert((score, at)));
                    self.scores[at.as_usize()] = new;
                }
            }
        }
        self.seen = cache.generation();
    }
}
