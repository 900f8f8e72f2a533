//! What `backtest` and `predict` share: models learn from the first part of every series and go through the rest with the gate.

use anyhow::bail;

use super::progress::Progress;
use super::{Given, STALE_STEPS};
use crate::forecast::backtest::{Plan, Replay, Split, replay};
use crate::forecast::gate::{Gate, Memory};
use crate::forecast::lstm::Lstm;
use crate::forecast::scale::Scaled;
use crate::forecast::{Model, baselines};

/// Training windows that models learn from at most; beyond, windows are taken at a distance.
const MOST_LEARNT: usize = 400_000;

/// Everything after a replay.
pub struct Course {
    /// The series, scaled.
    pub scaled: Scaled,
    /// The models as they are at the end.
    pub models: Vec<Model>,
    /// The gate as it is at the end.
    pub gate: Gate,
    /// What was said.
    pub replay: Replay,
}

impl Course {
    /// Models learn from the first part of every series, and go through the rest with the gate; the network, if there is one, is
    /// the last of them.
    pub fn run(given: &Given, split: Split, network: Option<Lstm>) -> anyhow::Result<Course> {
        let shape = given.shape;
        let scaled = Scaled::by_training(&given.series, split.tested);
        let stride =
            scaled.series.iter().map(|series| series.values.len()).sum::<usize>().div_ceil(MOST_LEARNT);
        let learnt = split.learnt(shape, &scaled.series, stride)?;
        if learnt.is_empty() {
            bail!(
                "no series is long enough: models learn from the first {:.0} % of a series, which has to hold at least {} values \
                 without a gap that are not all equal; give longer series or a smaller --look-back",
                split.learnt * 100.0,
                shape.look_back + shape.horizon
            );
        }
        let held_out = split.held_out(shape, &scaled.series, stride)?;
        let mut models = baselines::all(&learnt, &held_out);
        if let Some(network) = network {
            models.push(Box::new(network.rescale(&learnt)));
        }
        let names = models.iter().map(|model| model.name()).collect();
        let mut gate = Gate::new(names, Memory::default(), STALE_STEPS * shape.step_seconds);
        let progress = Progress::of("windows");
        let plan = Plan::daily(shape);
        let replay = replay(&mut models, &mut gate, shape, &scaled.series, split, plan, &mut |done, of| {
            progress.show(done, of)
        })?;
        progress.finish();
        Ok(Course { scaled, models, gate, replay })
    }

    /// The windows whose targets all lie in the tested part.
    pub fn tested(&self, split: Split) -> Vec<usize> {
        let windows = &self.replay.windows.windows;
        let is_tested = |&at: &usize| {
            let bounds = |series: usize| split.bounds(self.scaled.series[series].values.len());
            windows.origin(at).is_some_and(|origin| origin.last + 1 >= bounds(origin.series).tested)
        };
        (0..windows.len()).filter(is_tested).collect()
    }
}
