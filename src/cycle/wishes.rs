//! What people and pods wish for, weighed as kube-scheduler weighs it by default.
//!
//! | wish | weight |
//! |---|---|
//! | `PreferNoSchedule` taints | 3 |
//! | preferred node affinity | 2 |
//! | `ScheduleAnyway` spread constraints | 2 |
//! | pod affinity and anti-affinity: preferred terms of both sides, required affinity of running pods | 2 |
//!
//! Each is brought to a scale of 0 to 100 over the nodes that the pod may go to, with kube-scheduler's own formulas, and the
//! weighted sum decides *before* packing does: a wish that somebody wrote down comes before a preference of ours. Among nodes
//! that fulfil the wishes equally well the [`super::Score`] decides. kube-scheduler's other terms (least allocated, balanced
//! allocation) speak against packing and have no counterpart. Its built-in spreading of the pods of one Service or
//! ReplicaSet, which nobody wrote down, has none either.
//!
//! Invariant: nodes of equal [`Merit`] have equal sums whatever the other nodes are, so a ranking keeps nodes by merit and weighs
//! the merits, of which there are few, when it is asked.

use std::cmp::Reverse;

use super::domains::Pull;
use crate::model::{Node, PodSpec};

const TAINTS: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const SPREAD: i64 = 2;
const POD_AFFINITY: i64 = 2;

/// The top of every scale.
const MOST: i64 = 100;

/// How well a node fulfils the wishes that look at it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Likes {
    /// Its `PreferNoSchedule` taints that the pod does not tolerate.
    taints: u32,
    /// Sum of the weights of the preferred node affinity terms that it matches.
    affinity: i64,
}

/// How well a node fulfils all wishes, before that is compared with other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Merit {
    pub likes: Likes,
    /// Where other pods have a say.
    pub pull: Option<Box<Pull>>,
}

impl Likes {
    /// What `pod` would like of `node`.
    pub(super) fn of(pod: &PodSpec, node: &Node) -> Likes {
        let repelling = node.taints.iter().filter(|taint| !taint.is_hard() && !pod.tolerates(taint));
        let liked = pod.preferred_nodes.iter();
        let liked = liked.filter(|(_, term)| term.matches(node.name.as_str(), &node.labels));
        Likes {
            taints: u32::try_from(repelling.count()).unwrap_or(u32::MAX),
            affinity: liked.map(|(weight, _)| weight).sum(),
        }
    }
}

/// Orders the merits, best first. Those that weigh the same share a number. `domains` says for each `ScheduleAnyway`
/// constraint among how many domains there is a choice, `skews` its `maxSkew`.
pub(super) fn weigh<'a>(
    merits: impl Iterator<Item = &'a Merit> + Clone,
    domains: &[usize],
    skews: &[i64],
) -> Vec<(Reverse<i64>, &'a Merit)> {
    let (mut taints, mut affinity) = (0, 0);
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    let (mut tightest, mut widest) = (i64::MAX, 0);
    for merit in merits.clone() {
        taints = taints.max(i64::from(merit.likes.taints));
        affinity = affinity.max(merit.likes.affinity);
        let weight = weight(merit);
        (least, most) = (least.min(weight), most.max(weight));
        if let Some(spread) = spread(merit, domains, skews) {
            (tightest, widest) = (tightest.min(spread), widest.max(spread));
        }
    }
    let total = |merit: &Merit| {
        let tolerated = MOST - share(i64::from(merit.likes.taints), taints);
        let liked = share(merit.likes.affinity, affinity);
        let near = if most > least { near(weight(merit) - least, most - least) } else { 0 };
        let spread = match spread(merit, domains, skews) {
            _ if domains.is_empty() => 0,
            None => 0,
            Some(_) if widest == 0 => MOST,
            Some(spread) => MOST * (widest + tightest - spread) / widest,
        };
        TAINTS * tolerated + NODE_AFFINITY * liked + SPREAD * spread + POD_AFFINITY * near
    };
    let mut weighed: Vec<_> = merits.map(|merit| (Reverse(total(merit)), merit)).collect();
    weighed.sort_by_key(|(total, _)| *total);
    weighed
}

/// `part` of `whole` on the scale.
fn share(part: i64, whole: i64) -> i64 {
    if whole == 0 { 0 } else { MOST * part / whole }
}

/// The same, rounded as kube-scheduler rounds pod affinity.
fn near(part: i64, whole: i64) -> i64 {
    (MOST as f64 * (part as f64 / whole as f64)) as i64
}

fn weight(merit: &Merit) -> i64 {
    merit.pull.as_ref().map_or(0, |pull| pull.weight)
}

/// How crowded the node's domains are; a constraint among many domains, whose pods are few in each, counts more a pod.
fn spread(merit: &Merit, domains: &[usize], skews: &[i64]) -> Option<i64> {
    let counted = merit.pull.as_ref()?.spread.as_ref()?;
    let crowded = counted
        .iter()
        .zip(domains)
        .zip(skews)
        .map(|((pods, domains), skew)| *pods as f64 * ((domains + 2) as f64).ln() + (skew - 1) as f64);
    Some(crowded.sum::<f64>().round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merit(taints: u32, affinity: i64, weight: i64, spread: &[i64]) -> Merit {
        let pull = Pull { weight, spread: Some(spread.into()) };
        Merit { likes: Likes { taints, affinity }, pull: Some(Box::new(pull)) }
    }

    fn totals(merits: &[Merit], domains: &[usize], skews: &[i64]) -> Vec<i64> {
        let weighed = weigh(merits.iter(), domains, skews);
        let total =
            |merit: &Merit| weighed.iter().find(|(_, other)| *other == merit).map(|(total, _)| total.0);
        merits.iter().map(|merit| total(merit).unwrap()).collect()
    }

    #[test]
    fn each_wish_is_scaled_over_the_nodes_in_question() {
        // Taints alone: none is 300, the most is 0.
        let tainted = [merit(0, 0, 0, &[]), merit(1, 0, 0, &[]), merit(2, 0, 0, &[])];
        assert_eq!(totals(&tainted, &[], &[]), [300, 150, 0]);
        let liked = [merit(0, 0, 0, &[]), merit(0, 30, 0, &[]), merit(0, 40, 0, &[])];
        assert_eq!(totals(&liked, &[], &[]), [300, 450, 500]);
        let pulled = [merit(0, 0, -5, &[]), merit(0, 0, 0, &[]), merit(0, 0, 10, &[])];
        assert_eq!(totals(&pulled, &[], &[]), [300, 366, 500]);
        assert_eq!(totals(&[merit(0, 0, 7, &[])], &[], &[]), [300], "alone there is nothing to compare with");
    }

    #[test]
    fn emptier_domains_are_better_and_a_node_without_the_label_is_worst() {
        // ln(3 + 2) = 1.609: 0, 3.2 and 6.4 pods' weight, rounded to 0, 3, 6.
        let mut spread = vec![merit(0, 0, 0, &[0]), merit(0, 0, 0, &[2]), merit(0, 0, 0, &[4])];
        assert_eq!(totals(&spread, &[3], &[1]), [500, 400, 300]);
        spread.push(Merit { likes: Likes::default(), pull: Some(Box::default()) });
        assert_eq!(totals(&spread, &[3], &[1]), [500, 400, 300, 300]);
        // A larger allowed skew waters the difference down: 4, 7 and 10.
        assert_eq!(totals(&spread[..3], &[3], &[5]), [500, 440, 380]);
        assert_eq!(totals(&[merit(0, 0, 0, &[0])], &[1], &[1]), [500], "all empty is best");
    }
}
