//! Placement rules without moves, as published or as in use.

use super::clock::{PodNo, Queue, System};
use super::fleet::{Fleet, Place};
use crate::mig::OccupancyTable;
use crate::solver::fragmentation::{DemandMix, FragmentationTable};
use crate::solver::measures::mfi;
use crate::solver::states::{LayoutStates, StateId};

/// A rule that places a pod on the GPU with the best score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// First GPU, first start.
    FirstFit,
    /// The GPU with the fewest free slices, at its last start.
    BestFitLast,
    /// The GPU with the most free slices, at its first start.
    WorstFit,
    /// The next GPU in turn, at its first start.
    RoundRobin,
    /// Smallest rise of MFI's fragmentation score.
    Mfi,
    /// Smallest rise of the demand-weighted fragmentation.
    Fgd,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 6] =
        [Rule::FirstFit, Rule::BestFitLast, Rule::WorstFit, Rule::RoundRobin, Rule::Mfi, Rule::Fgd];

    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::FirstFit => "first-fit",
            Rule::BestFitLast => "best-fit",
            Rule::WorstFit => "worst-fit",
            Rule::RoundRobin => "round-robin",
            Rule::Mfi => "mfi",
            Rule::Fgd => "fgd",
        }
    }
}

/// A fleet under one rule, queue in order of arrival with backfill.
pub struct Greedy<'a> {
    fleet: Fleet<'a>,
    rule: Rule,
    /// By state: MFI's or FGD's score.
    score: Vec<i64>,
    next: usize,
}

impl<'a> Greedy<'a> {
    /// `gpus` empty GPUs; `weights` is the mix that FGD is told.
    pub fn new(states: &'a LayoutStates, gpus: usize, rule: Rule, weights: &[u64]) -> Greedy<'a> {
        let ids = (0..states.len()).map(|id| StateId(id as u16));
        let score = match rule {
            Rule::Mfi => {
                let table = OccupancyTable::new(states.model());
                ids.map(|id| i64::from(mfi(&table, states.mask(id)))).collect()
            }
            Rule::Fgd => {
                let table = fragmentation(states, weights);
                ids.map(|id| i64::from(table.lost(states.mask(id)))).collect()
            }
            _ => vec![0; states.len()],
        };
        Greedy { fleet: Fleet::new(states, gpus), rule, score, next: 0 }
    }

    fn choose(&self, profile: u8) -> Option<Place> {
        let states = self.fleet.states();
        let gpus = self.fleet.gpus();
        let mut best: Option<(i64, Place)> = None;
        for turn in 0..gpus.len() {
            let gpu = match self.rule {
                Rule::RoundRobin => (self.next + turn) % gpus.len(),
                _ => turn,
            };
            let options = states.additions_of(gpus[gpu], profile);
            for &(spot, after) in options {
                let free = i64::from(states.free(gpus[gpu]));
                let cost = match self.rule {
                    Rule::FirstFit | Rule::RoundRobin => return Some(Place { gpu, spot }),
                    Rule::BestFitLast => 16 * free - i64::from(spot.start),
                    Rule::WorstFit => -16 * free + i64::from(spot.start),
                    Rule::Mfi | Rule::Fgd => {
                        self.score[usize::from(after.0)] - self.score[usize::from(gpus[gpu].0)]
                    }
                };
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, Place { gpu, spot }));
                }
            }
        }
        best.map(|(_, place)| place)
    }
}

impl System for Greedy<'_> {
    fn ended(&mut self, pod: PodNo) {
        self.fleet.remove(pod);
    }

    fn settle(&mut self, _now: u64, queue: &mut Queue, started: &mut Vec<PodNo>) -> Option<u64> {
        // A profile that does not fit now will not after others have been placed.
        let mut refused = 0u16;
        while let Some(profile) = queue.by_age().into_iter().find(|profile| refused & (1 << profile) == 0) {
            let Some(place) = self.choose(profile) else {
                refused |= 1 << profile;
                continue;
            };
            let Some(pod) = queue.pop(profile) else { break };
            self.fleet.place(pod, place);
            self.next = place.gpu + 1;
            started.push(pod);
        }
        None
    }

    fn used(&self) -> u64 {
        self.fleet.used()
    }

    fn moved(&self) -> u64 {
        self.fleet.moved()
    }
}

/// Pods of the mix that FGD's measure is told of: what it remembers.
const TOLD: u64 = 4_000;

/// FGD's measure over MIG placements, for a known mix.
fn fragmentation(states: &LayoutStates, weights: &[u64]) -> FragmentationTable {
    let total = weights.iter().sum::<u64>().max(1);
    let mut mix = DemandMix::default();
    for (profile, weight) in states.profiles().iter().zip(weights) {
        mix.observe(profile.name, weight * TOLD / total);
    }
    FragmentationTable::new(states.model(), &mix)
}
