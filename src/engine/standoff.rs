//! How long pods keep away from a node whose kubelet turns them away.
//!
//! ```text
//!            a pod is turned away                  time               a pod is placed
//!   (none) ───────────────────────► Shut, level 1 ──────► Open ──────────────────────► Probed
//!     ▲                               ▲                    │                              │ │
//!     │                               └──── level + 1 ◄────┴── turned away ◄──────────────┘ │
//!     └──────────────────────────────── nothing for long ◄─┴──────────────── admitted ◄─────┘
//! ```
//!
//! Pods keep away while it is shut or probed, so after the first burst each pause costs one pod, and pauses double: a node
//! with a broken device plugin costs some dozen pods in a day, however many replicas are waiting.
//!
//! Invariant: nothing here but time and what it is told. Pods that are turned away while it is shut were bound before and
//! change nothing. Bound: one entry per node and sort of pods turned away there, none older than [`MEMORY`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{NodeName, PodSpec, Shunned, Time};

/// The first pause; the kubelet of a bound pod answers within a second or two, so by its end the first burst is over.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause: how long a repaired node may stay unused at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// How long a pod that was placed may take to be turned away. After that it was admitted.
const PROBE: Duration = Duration::from_secs(10);

/// How long the level of a node that nobody tries is remembered, and how old a rejection may be to be taken into account.
pub(super) const MEMORY: Duration = LONGEST_PAUSE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Shut,
    Open,
    Probed,
}

#[derive(Clone, Copy, Debug)]
struct Standoff {
    stage: Stage,
    /// How often pods were turned away at a try, at least one.
    level: u32,
    /// When the stage ends of itself.
    until: Time,
}

/// Where, and who.
type Key = (NodeName, Shunned);

/// See the module's comment.
#[derive(Debug, Default)]
pub(super) struct Standoffs {
    standoffs: BTreeMap<Key, Standoff>,
}

impl Standoffs {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.standoffs.is_empty()
    }

    /// A pod was turned away. Returns how long such pods keep away from now on, if that has just begun.
    pub(super) fn reject(&mut self, now: Time, node: &NodeName, shunned: &Shunned) -> Option<Duration> {
        let key = (node.clone(), shunned.clone());
        let level = match self.standoffs.get(&key) {
            Some(Standoff { stage: Stage::Shut, .. }) => return None,
            Some(known) => known.level.saturating_add(1),
            None => 1,
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << (level - 1).min(30)).min(LONGEST_PAUSE);
        self.standoffs.insert(key, Standoff { stage: Stage::Shut, level, until: now + pause });
        Some(pause)
    }

    /// A pod is placed on a node. Returns who keeps away until it is known what comes of that.
    pub(super) fn probe(&mut self, now: Time, node: &NodeName, spec: &PodSpec) -> Vec<Shunned> {
        let open = self.standoffs.iter_mut().filter(|((at, shunned), standoff)| {
            at == node && standoff.stage == Stage::Open && shunned.concerns(spec)
        });
        let probed = open.map(|((_, shunned), standoff)| {
            (standoff.stage, standoff.until) = (Stage::Probed, now + PROBE);
            shunned.clone()
        });
        probed.collect()
    }

    /// Takes in that time has passed. Returns for whom which node is open again.
    pub(super) fn pass(&mut self, now: Time) -> Vec<Key> {
        let mut opened = Vec::new();
        self.standoffs.retain(|key, standoff| {
            if standoff.until > now {
                return true;
            }
            if standoff.stage != Stage::Open {
                opened.push(key.clone());
            }
            let shut = standoff.stage == Stage::Shut;
            (standoff.stage, standoff.until) = (Stage::Open, now + MEMORY);
            shut
        });
        opened
    }

    /// When time next changes anything.
    pub(super) fn next(&self) -> Option<Time> {
        self.standoffs.values().map(|standoff| standoff.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pod;

    /// Plays `script`, words joined by blanks: `x` a pod is turned away, `p` one is placed, `+5` seconds pass. Each answers:
    /// `shut 5` for so many seconds, `probed`, `open`, or nothing.
    fn check(script: &str, expected: &[&str]) {
        let (mut standoffs, mut now) = (Standoffs::default(), Time::from_secs(100));
        let (node, spec) = (NodeName::from("n0"), pod("p 1g.5gb=1").spec);
        let shunned = Shunned::after("UnexpectedAdmissionError", &spec);
        let mut said = Vec::new();
        for word in script.split_whitespace() {
            match word {
                "x" => {
                    let pause = standoffs.reject(now, &node, &shunned);
                    said.extend(pause.map(|pause| format!("shut {}", pause.as_secs())));
                }
                "p" => said.extend(standoffs.probe(now, &node, &spec).iter().map(|_| "probed".to_owned())),
                word => {
                    now = now + Duration::from_secs(word[1..].parse().unwrap());
                    said.extend(standoffs.pass(now).iter().map(|_| "open".to_owned()));
                }
            }
        }
        assert_eq!(said, expected, "{script}");
    }

    #[test]
    fn a_burst_is_one_rejection() {
        check("x x x +4 x +1 p x", &["shut 5", "open", "probed", "shut 10"]);
    }

    #[test]
    fn pauses_double_to_the_longest() {
        let rounds = "p x +10 p x +20 p x +40 p x +80 p x +160 p x +320 p x +600 p x +600 p x";
        let mut expected = vec!["shut 5".to_owned()];
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600, 600] {
            expected.extend(["open".to_owned(), "probed".to_owned(), format!("shut {seconds}")]);
        }
        check(&format!("x +5 {rounds}"), &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn one_pod_tries_and_is_waited_for() {
        check("x +5 p p p +9 +1 x", &["shut 5", "open", "probed", "open", "shut 5"]);
    }

    #[test]
    fn what_nobody_tries_is_forgotten() {
        check("x +5 +599 x", &["shut 5", "open", "shut 10"]);
        check("x +5 +600 x", &["shut 5", "open", "shut 5"]);
    }

    #[test]
    fn other_pods_are_not_kept_away() {
        let mut standoffs = Standoffs::default();
        let shunned = Shunned::after("UnexpectedAdmissionError", &pod("p 1g.5gb=1").spec);
        standoffs.reject(Time::ZERO, &"n0".into(), &shunned);
        let opened = Time::from_secs(5);
        assert_eq!(standoffs.next(), Some(opened));
        assert_eq!(standoffs.pass(opened).len(), 1);
        assert!(standoffs.probe(opened, &"n0".into(), &pod("p 2g.10gb=1").spec).is_empty());
        assert!(standoffs.probe(opened, &"n1".into(), &pod("p 1g.5gb=1").spec).is_empty());
        assert!(!standoffs.probe(opened, &"n0".into(), &pod("p 1g.5gb=2").spec).is_empty());
    }
}
