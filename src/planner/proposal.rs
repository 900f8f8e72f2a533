//! What the policy wants done with one node, and why: plain values that safety judges, the transaction carries out and events
//! quote.
//!
//! Invariant: a proposal is complete. Whoever carries it out needs nothing else of the planner, and its words are made from the
//! same figures by which it was decided.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::mig::{NodeLayout, ProfileName};
use crate::model::{NodeName, PodId};

/// Who creates and destroys the instances of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Actuator {
    /// The GPU Operator's mig-manager, told by a node label. It is told numbers only, empties every GPU whose numbers differ and
    /// stops the device plugin of the whole node meanwhile.
    MigManager,
    /// Our node agent. It creates and destroys single free instances at given starts.
    Agent,
}

impl Actuator {
    /// The GPUs that a change from `from` to `to` touches.
    pub fn touches(self, from: &NodeLayout, to: &NodeLayout) -> Vec<u16> {
        from.differing(to, self == Actuator::Agent)
    }
}

/// SM-weighted activity of a GPU, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Mean of the recent past.
    pub present: f64,
    /// Mean of the forecast over the horizon.
    pub forecast: f64,
}

/// What opened the door to a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// A GPU will be used less than the threshold: smaller instances.
    Split {
        /// The GPU.
        gpu: u16,
        /// Its activity.
        load: Load,
        /// The threshold.
        below: f64,
    },
    /// A GPU will be used more than the threshold: larger instances.
    Merge {
        /// The GPU.
        gpu: u16,
        /// Its activity.
        load: Load,
        /// The threshold.
        above: f64,
    },
    /// Pods that wait and fit no present layout would fit after the change.
    Pending(BTreeMap<ProfileName, u32>),
}

impl Trigger {
    /// The GPU that it is about, if it is about one.
    pub const fn gpu(&self) -> Option<u16> {
        match self {
            Trigger::Split { gpu, .. } | Trigger::Merge { gpu, .. } => Some(*gpu),
            Trigger::Pending(_) => None,
        }
    }

    /// The activity that speaks for the change, if it is activity.
    pub const fn load(&self) -> Option<Load> {
        match self {
            Trigger::Split { load, .. } | Trigger::Merge { load, .. } => Some(*load),
            Trigger::Pending(_) => None,
        }
    }
}

/// What a change disturbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blast {
    /// GPUs that change.
    pub gpus: u32,
    /// Pods that are evicted.
    pub pods: u32,
    /// Whether device plugin, feature discovery and exporter stop for the whole node.
    pub operands: bool,
}

/// Why a change is proposed.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// What opened the door, at least one.
    pub triggers: Vec<Trigger>,
    /// Minutes that the forecast looks ahead.
    pub horizon_minutes: u32,
    /// Pods that the new instances are made for, waiting and forecast, by profile.
    pub demand: BTreeMap<ProfileName, u32>,
    /// What is gained, in slice-seconds.
    pub gain: u64,
    /// What it costs, in slice-seconds.
    pub cost: u64,
    /// What it disturbs.
    pub blast: Blast,
}

/// A running pod that has to go, and the place that is kept for its successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evictee {
    /// The pod.
    pub pod: PodId,
    /// `metadata.uid` of the ReplicaSet that will make its successor.
    pub workload: Arc<str>,
    /// The instances it holds.
    pub profiles: Vec<ProfileName>,
    /// The node that has room for the successor.
    pub home: NodeName,
}

/// One node's change.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The node.
    pub node: NodeName,
    /// Who acts on it.
    pub actuator: Actuator,
    /// What it has.
    pub from: NodeLayout,
    /// What it shall have.
    pub to: NodeLayout,
    /// The pods that must go first, in the order in which they go.
    pub evictees: Vec<Evictee>,
    /// Why.
    pub why: Why,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| (share * 100.0).round();
        match self {
            Trigger::Split { gpu, load, below } => {
                write!(f, "GPU {gpu} falls to {}% (split below {}%)", percent(load.forecast), percent(*below))
            }
            Trigger::Merge { gpu, load, above } => {
                write!(f, "GPU {gpu} rises to {}% (merge above {}%)", percent(load.forecast), percent(*above))
            }
            Trigger::Pending(pods) => write!(f, "{} cannot be placed now", counted(pods)),
        }
    }
}

impl fmt::Display for Blast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands = if self.operands { ", all operands of the node" } else { "" };
        write!(f, "{} GPU(s), {} pod(s){operands}", self.gpus, self.pods)
    }
}

/// `GPU 0 falls to 12% (split below 40%); demand in 10m 3×1g.5gb; gain 9000, cost 960 slice-seconds; affects 1 GPU(s), 0 pod(s)`.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let triggers: Vec<String> = self.triggers.iter().map(Trigger::to_string).collect();
        write!(f, "{}; ", triggers.join(", "))?;
        if !self.demand.is_empty() {
            write!(f, "demand in {}m {}; ", self.horizon_minutes, counted(&self.demand))?;
        }
        write!(f, "gain {}, cost {} slice-seconds; affects {}", self.gain, self.cost, self.blast)
    }
}

/// `2×1g.5gb + 1×3g.20gb`.
fn counted(pods: &BTreeMap<ProfileName, u32>) -> String {
    pods.iter().map(|(profile, count)| format!("{count}×{profile}")).collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_hold_every_figure() {
        let why = Why {
            triggers: vec![
                Trigger::Split { gpu: 0, load: Load { present: 0.5, forecast: 0.118 }, below: 0.4 },
                Trigger::Merge { gpu: 3, load: Load { present: 0.5, forecast: 0.9 }, above: 0.8 },
                Trigger::Pending([("1g.5gb".parse().unwrap(), 3)].into()),
            ],
            horizon_minutes: 10,
            demand: [("1g.5gb".parse().unwrap(), 3), ("3g.20gb".parse().unwrap(), 1)].into(),
            gain: 9_000,
            cost: 960,
            blast: Blast { gpus: 2, pods: 1, operands: true },
        };
        assert_eq!(
            why.to_string(),
            "GPU 0 falls to 12% (split below 40%), GPU 3 rises to 90% (merge above 80%), 3×1g.5gb cannot be placed \
             now; demand in 10m 3×1g.5gb + 1×3g.20gb; gain 9000, cost 960 slice-seconds; affects 2 GPU(s), 1 pod(s), \
             all operands of the node"
        );
        assert_eq!(why.triggers[2].load(), None);
    }
}
