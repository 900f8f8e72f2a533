//! What the planner is asked about: nodes with their instances, pods that may move, demand.
//!
//! Invariant: it is a picture of one moment. A proposal made from it is judged again against the world before it begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::proposal::{Actuator, Load};
use crate::forecast::{Outlook, SeriesKey};
use crate::mig::{GpuModel, Placement, ProfileName};
use crate::model::{NodeName, PodId};

/// Who holds an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nobody.
    Free,
    /// A pod that may not be moved, or nobody knows who.
    Pinned,
    /// A pod that may be moved, by its position in [`Question::pods`].
    Movable(usize),
}

/// One GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedGpu {
    /// Its instances.
    pub instances: Vec<(Placement, Held)>,
    /// Its activity, where a trusted forecast exists.
    pub load: Option<Load>,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedNode {
    /// Its name.
    pub name: NodeName,
    /// The model of all its GPUs.
    pub model: &'static GpuModel,
    /// Who would act on it.
    pub actuator: Actuator,
    /// Whether its layout may be changed now. The instances of others count as places all the same.
    pub changeable: bool,
    /// Whether it is known which GPU each pod is on. Otherwise pods stand at any instance of their profile, and all of them are
    /// affected by any change.
    pub mapped: bool,
    /// Its GPUs, by index.
    pub gpus: Vec<PlannedGpu>,
}

/// A running pod that may be moved.
#[derive(Clone, Debug, PartialEq)]
pub struct MovablePod {
    /// The pod.
    pub pod: PodId,
    /// `metadata.uid` of its ReplicaSet.
    pub workload: Arc<str>,
    /// The instances that it holds and its successor will need.
    pub profiles: Vec<ProfileName>,
    /// The nodes that its successor could run on by everything but instances, best first.
    pub homes: Vec<NodeName>,
}

/// Pods that wait for an instance each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The instance.
    pub profile: ProfileName,
    /// Their priority.
    pub priority: i32,
    /// How many.
    pub count: u32,
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemandOutlook {
    /// Pods that wait.
    pub waiting: Vec<Waiting>,
    /// Further pods that will come within the horizon, by profile.
    pub coming: BTreeMap<ProfileName, u32>,
    /// Pods that may arrive in addition while a layout is kept, on average, by profile.
    pub arrivals: BTreeMap<ProfileName, f64>,
}

/// Everything that a plan is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The nodes.
    pub nodes: Vec<PlannedNode>,
    /// The pods that may be moved.
    pub pods: Vec<MovablePod>,
    /// What is wanted.
    pub demand: DemandOutlook,
}

impl Load {
    /// The load of a GPU by the forecast of its activity: the last value and the mean over `horizon_seconds` (all steps that begin
    /// within). `None` where the outlook has run out, does not know the GPU, may not be trusted or holds nothing finite.
    pub fn of(outlook: &Outlook, now: i64, gpu: &SeriesKey, horizon_seconds: u32) -> Option<Load> {
        let prospect = outlook.trusted(gpu).filter(|_| outlook.holds_at(now))?;
        let steps = (horizon_seconds / outlook.step_seconds.max(1)).max(1);
        let ahead: Vec<f64> =
            prospect.mean.iter().take(usize::try_from(steps).ok()?).map(|value| f64::from(*value)).collect();
        let forecast = ahead.iter().sum::<f64>() / ahead.len() as f64;
        let load = Load { present: f64::from(prospect.last), forecast };
        (load.present.is_finite() && load.forecast.is_finite()).then_some(load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::Prospect;

    #[test]
    fn a_load_is_the_mean_of_what_may_be_trusted() {
        let key = SeriesKey::new("gpu-activity", "GPU-1");
        let check = |edit: fn(&mut Outlook, &mut Prospect), now, expected: Option<(f64, f64)>| {
            let mut outlook = Outlook { at: 100, valid_seconds: 60, step_seconds: 60, ..Outlook::default() };
            let mut prospect =
                Prospect { last: 0.5, mean: vec![0.25, 0.75, 0.0], trusted: true, ..Prospect::default() };
            edit(&mut outlook, &mut prospect);
            outlook.prospects.insert(key.clone(), prospect);
            let load = Load::of(&outlook, now, &key, 120);
            assert_eq!(load.map(|load| (load.present, load.forecast)), expected);
        };
        check(|_, _| {}, 100, Some((0.5, 0.5)));
        check(|_, _| {}, 161, None);
        check(|_, prospect| prospect.trusted = false, 100, None);
        check(|_, prospect| prospect.mean.clear(), 100, None);
        check(|_, prospect| prospect.last = f32::NAN, 100, None);
        check(|outlook, _| outlook.step_seconds = 0, 100, Some((0.5, 1.0 / 3.0)));
        check(|outlook, _| outlook.step_seconds = 600, 100, Some((0.5, 0.25)));
    }
}
