//! What comes out: a layout for each GPU, a place for each pod, and how good that provably is.

use std::sync::Arc;

use crate::mig::{Layout, LayoutError, Placement};

/// The answer to a [`Problem`](super::Problem).
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// By GPU of the problem: the layout it should have, shared by those that get the same. A GPU left out keeps what it has and
    /// gets an empty layout here.
    pub layouts: Vec<Arc<Layout>>,
    /// By GPU: whether instances are created or destroyed on it.
    pub changed: Vec<bool>,
    /// The pods that find a place.
    pub placed: Vec<Placed>,
    /// The running pods that have to move.
    pub moves: Vec<Move>,
    /// The pods that find none, by position in the demand.
    pub unplaced: Vec<Unplaced>,
    /// The GPUs kept out of planning.
    pub excluded: Vec<Excluded>,
    /// The priorities of [`Score::placed`], highest first.
    pub priorities: Vec<i32>,
    /// What the answer achieves.
    pub score: Score,
    /// What no answer can surpass, see [`Bound`].
    pub bound: Bound,
}

/// One pod's new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// Position in the problem's demand.
    pub demand: usize,
    /// Position in the problem's GPUs.
    pub gpu: usize,
    /// The instance.
    pub placement: Placement,
}

/// A running pod that leaves its instance for another of the same profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// GPU and instance that it leaves.
    pub from: (usize, Placement),
    /// GPU and instance that it gets.
    pub to: (usize, Placement),
}

/// Pods without a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unplaced {
    /// Position in the problem's demand.
    pub demand: usize,
    /// How many of its pods.
    pub count: u32,
    /// Why.
    pub reason: Reason,
}

/// Why pods have no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No GPU in planning has the profile.
    NoGpuOffersProfile,
    /// The GPUs that have it are full, or must not change, once pods of the same or a higher priority are placed.
    NoRoom,
}

/// A GPU kept out of planning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// Position in the problem's GPUs.
    pub gpu: usize,
    /// How its reported instances contradict its table.
    pub error: LayoutError,
}

/// The objective, most important part first: more pods, then fewer GPUs, then less disruption, then less fragmentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// By priority, highest first: pods placed.
    pub placed: Vec<u64>,
    /// GPUs that hold pods; without [`Limits::consolidate`](super::Limits::consolidate) also those that held some before.
    pub gpus: u64,
    /// Moves and layout changes in slice-seconds.
    pub disruption: u64,
    /// Demand-weighted fragmentation of all GPUs afterwards, in 1/1024 slices.
    pub fragmentation: u64,
}

/// A proven limit for each part of the [`Score`], in the same order: at most so many pods, at least so many GPUs and so on.
///
/// A part's limit holds for all answers whose earlier parts equal their limits. So the first part in which score and bound
/// differ carries the gap, and when none differs the answer is optimal.
pub type Bound = Score;

impl Plan {
    /// How far the answer can be from the best one, as a share of the first part in which it and its bound differ, looking at
    /// pods placed and GPUs used; 0 when both are proven.
    pub fn gap(&self) -> f64 {
        let placed = self.score.placed.iter().zip(&self.bound.placed);
        let parts = placed.map(|(&score, &bound)| (bound.saturating_sub(score), bound));
        let gpus = (self.score.gpus.saturating_sub(self.bound.gpus), self.bound.gpus);
        let mut parts = parts.chain([gpus]);
        parts
            .find(|(distance, _)| *distance > 0)
            .map_or(0.0, |(distance, of)| distance as f64 / of.max(1) as f64)
    }

    /// Whether every part of the score is proven to be the best.
    pub fn is_optimal(&self) -> bool {
        self.score == self.bound
    }
}
