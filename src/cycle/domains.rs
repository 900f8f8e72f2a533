//! The domains of a topology as one kind of pod sees them: how many of the pods that its rules speak of are where.
//!
//! A *rule* is one spread constraint, one required term, or all weights that share a topology key. For each rule a table holds,
//! by value of the key, the number of pods; for each node its share of that number is remembered.
//!
//! Invariant: every table is the sum of the nodes' shares, and a share depends on its node and that node's pods alone. So the
//! tables are brought up to date from the nodes whose generation is newer, like the rankings they belong to, and a node's
//! verdict follows from a look at one entry per rule. [`Domains::update`] names the other nodes whose verdict may have changed.
//!
//! Cost: an update counts the pods of one node once per rule; then as many nodes are judged anew as share a domain whose number
//! changed in a way that matters (all of them if the emptiest domain of a spread constraint did). A verdict is a few additions.
//! Only kinds that have rules pay this.

mod count;
mod table;

use std::collections::BTreeSet;

use super::reason::Reason;
use crate::cache::{Cache, NodeIndex, NodeInfo};
use crate::model::PodKind;

use count::{Counter, Role, Rule, rules};
use table::{Share, Table};

pub(super) use count::{attracts, is_spread, selects};

/// The node label whose domains are single nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// How other pods make a node better or worse for a pod that may go there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pull {
    /// Sum of the weights of affinity terms, of both sides.
    pub weight: i64,
    /// Pods counted in the node's domain for each `ScheduleAnyway` constraint; `None` if the node lacks one of their keys.
    pub spread: Option<Box<[i64]>>,
}

/// Nodes to be judged anew, because others have changed.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// Every node.
    pub all: bool,
    /// Those of these domains: table and domain.
    domains: BTreeSet<(usize, u32)>,
}

/// See the module's comment.
#[derive(Debug)]
pub(super) struct Domains {
    rules: Vec<Rule>,
    tables: Vec<Table>,
    shares: Vec<Box<[Share]>>,
    /// Whether the pod is one of those that its own affinity looks for: then it may be the first of them anywhere.
    attracts_itself: bool,
    /// Nodes that the pod may go to and that have every key of the `ScheduleAnyway` constraints.
    spreading: usize,
}

impl Domains {
    /// The tables of a kind over all nodes; `None` if it has no rules.
    pub(super) fn of(cache: &Cache, kind: &PodKind) -> Option<Domains> {
        let rules = rules(kind);
        if rules.is_empty() {
            return None;
        }
        let attracts_itself = kind.spec.relations.as_ref().is_some_and(|relations| {
            let labels = cache.namespace_labels(&relations.namespace);
            let mut terms = relations.affinity.iter();
            relations.attracts_itself
                && terms.all(|term| term.pods.takes_namespace(&relations.namespace, labels))
        });
        let tables = rules.iter().map(|_| Table::default()).collect();
        let mut domains = Domains { rules, tables, shares: Vec::new(), attracts_itself, spreading: 0 };
        let mut stale = Stale { all: true, ..Stale::default() };
        cache.positions().for_each(|at| domains.update(cache, kind, at, &mut stale));
        Some(domains)
    }

    /// Takes over what a node is now. Adds to `stale` the nodes whose verdict may change with it, itself left out.
    pub(super) fn update(&mut self, cache: &Cache, kind: &PodKind, at: NodeIndex, stale: &mut Stale) {
        if self.shares.len() <= at.as_usize() {
            self.shares.resize_with(cache.capacity(), Box::default);
        }
        let info = cache.at(at);
        let mut after: Box<[Share]> = vec![Share::default(); self.rules.len()].into();
        if let Some(node) = info.node() {
            let counter = Counter::new(cache, kind, info, node);
            for ((rule, table), share) in self.rules.iter().zip(&mut self.tables).zip(&mut after) {
                if let Some(value) = node.labels.get(&rule.key) {
                    *share = counter.share(rule);
                    share.domain = Some(table.id(value));
                }
            }
        }
        let before = std::mem::take(&mut self.shares[at.as_usize()]);
        for (nth, (rule, table)) in self.rules.iter().zip(&mut self.tables).enumerate() {
            let (old, new) = (before.get(nth).copied().unwrap_or_default(), after[nth]);
            if old != new {
                let floor = table.floor(kind, rule.role);
                let total = table.pods;
                let changed = table.exchange(at, old, new, rule.role);
                stale.domains.extend(changed.into_iter().flatten().map(|domain| (nth, domain)));
                stale.all |= table.floor(kind, rule.role) != floor;
                stale.all |= rule.role == Role::Affinity && (total == 0) != (table.pods == 0);
            }
        }
        self.shares[at.as_usize()] = after;
    }

    /// The nodes of the stale domains, some of them several times.
    pub(super) fn nodes<'a>(&'a self, stale: &'a Stale) -> impl Iterator<Item = NodeIndex> + 'a {
        let domains = stale.domains.iter().map(|(nth, domain)| &self.tables[*nth].domains[*domain as usize]);
        domains.flat_map(|domain| domain.members.iter().copied())
    }

    /// Whether other pods keep the pod away from a node that exists, and if not, how they pull. The rules are asked in
    /// kube-scheduler's order.
    pub(super) fn judge(&self, kind: &PodKind, at: NodeIndex) -> Result<Pull, Reason> {
        match self.shares.get(at.as_usize()) {
            Some(shares) => self.pull(kind, shares, shares),
            None => Ok(Pull::default()),
        }
    }

    /// Whether other pods would keep the pod away from a node, were this one as `info` says and all others as they are.
    pub(super) fn suppose(
        &self,
        cache: &Cache,
        kind: &PodKind,
        at: NodeIndex,
        info: &NodeInfo,
    ) -> Result<(), Reason> {
        let (Some(shares), Some(node)) = (self.shares.get(at.as_usize()), info.node()) else { return Ok(()) };
        let counter = Counter::new(cache, kind, info, node);
        let share = |(rule, known): (&Rule, &Share)| match known.domain {
            Some(_) => Share { domain: known.domain, ..counter.share(rule) },
            None => *known,
        };
        let supposed: Box<[Share]> = self.rules.iter().zip(shares).map(share).collect();
        self.pull(kind, shares, &supposed).map(drop)
    }

    /// [`Domains::judge`] of a node that adds `supposed` to the tables in the place of `known`.
    fn pull(&self, kind: &PodKind, known: &[Share], supposed: &[Share]) -> Result<Pull, Reason> {
        let relations = kind.spec.relations.as_deref();
        let mut pull = Pull::default();
        let mut counted = Vec::new();
        let (mut lacks_key, mut lacks_pod) = (false, false);
        let (mut repelled, mut refused, mut ignored) = (false, false, false);
        let mut anywhere = 0;
        for (((rule, table), share), supposed) in self.rules.iter().zip(&self.tables).zip(known).zip(supposed)
        {
            let more = supposed.pods - share.pods;
            let pods = share.domain.map(|domain| table.domains[domain as usize].pods + more);
            match (rule.role, pods) {
                (Role::Spread(_), None) => return Err(Reason::SpreadLabelMissing),
                (Role::Spread(nth), Some(pods)) => {
                    if relations
                        .is_some_and(|relations| table.is_skewed(&relations.spread[nth], pods, share, more))
                    {
                        return Err(Reason::Spread);
                    }
                }
                (Role::Affinity, None) => lacks_key = true,
                (Role::Affinity, Some(pods)) => {
                    lacks_pod |= pods == 0;
                    anywhere += table.pods + more;
                }
                (Role::AntiAffinity(_), pods) => repelled |= pods.is_some_and(|pods| pods > 0),
                (Role::Refusals, pods) => refused |= pods.is_some_and(|pods| pods > 0),
                (Role::Weights, pods) => pull.weight += pods.unwrap_or_default(),
                (Role::SpreadSoftly(_), None) => ignored = true,
                // On the node itself, whatever the rule leaves out.
                (Role::SpreadSoftly(_), Some(_)) if &*rule.key == HOSTNAME => counted.push(supposed.pods),
                (Role::SpreadSoftly(_), Some(pods)) => counted.push(pods),
            }
        }
        if lacks_key || lacks_pod && !(self.attracts_itself && anywhere == 0) {
            return Err(Reason::PodAffinity);
        }
        if repelled {
            return Err(Reason::PodAntiAffinity);
        }
        if refused {
            return Err(Reason::ExistingAntiAffinity);
        }
        pull.spread = (!ignored).then(|| counted.into());
        Ok(pull)
    }

    /// Notes that a node is one that the pod may go to, or no longer.
    pub(super) fn choose(&mut self, at: NodeIndex, pull: &Pull, chosen: bool) {
        if pull.spread.as_ref().is_none_or(|counted| counted.is_empty()) {
            return;
        }
        let shares = &self.shares[at.as_usize()];
        for ((rule, table), share) in self.rules.iter().zip(&mut self.tables).zip(shares) {
            if let (Role::SpreadSoftly(_), Some(domain)) = (rule.role, share.domain) {
                table.choose(domain, chosen);
            }
        }
        if chosen {
            self.spreading += 1;
        } else {
            self.spreading -= 1;
        }
    }

    /// For each `ScheduleAnyway` constraint, among how many domains there is a choice.
    pub(super) fn choices(&self) -> Vec<usize> {
        let soft = self.rules.iter().zip(&self.tables);
        let soft = soft.filter(|(rule, _)| matches!(rule.role, Role::SpreadSoftly(_)));
        soft.map(|(rule, table)| if &*rule.key == HOSTNAME { self.spreading } else { table.chosen }).collect()
    }
}
