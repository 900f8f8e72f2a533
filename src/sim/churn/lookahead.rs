//! The fleet under the product's own rule: sets of waiting pods placed by what they leave, and a bounded number of moves.

use super::clock::{PodNo, Queue, System};
use super::fleet::{Fleet, Place};
use crate::solver::dispatch::{Allowance, Dispatch};
use crate::solver::states::{LayoutStates, Spot};

/// A fleet whose pods start and move as [`Dispatch`] says. A move takes no time.
pub struct Planned<'a> {
    fleet: Fleet<'a>,
    rule: Dispatch<'a>,
    allowance: Allowance,
}

impl<'a> Planned<'a> {
    /// `gpus` empty GPUs; `arrivals` is by profile, in a mean lifetime.
    pub fn new(states: &'a LayoutStates, gpus: usize, arrivals: &[f64], allowance: Allowance) -> Planned<'a> {
        Planned { fleet: Fleet::new(states, gpus), rule: Dispatch::new(states, gpus, arrivals), allowance }
    }

    fn begin(&mut self, gpu: usize, spot: Spot, queue: &mut Queue, started: &mut Vec<PodNo>) {
        if let Some(pod) = queue.pop(spot.profile) {
            debug_assert!(self.fleet.fits(Place { gpu, spot }));
            self.fleet.place(pod, Place { gpu, spot });
            started.push(pod);
        }
    }
}

impl System for Planned<'_> {
    fn arrived(&mut self, _profile: u8) {
        self.allowance.arrived();
    }

    fn ended(&mut self, pod: PodNo) {
        self.fleet.remove(pod);
    }

    fn settle(&mut self, _now: u64, queue: &mut Queue, started: &mut Vec<PodNo>) -> Option<u64> {
        while !queue.is_empty() {
            let waiting = queue.lengths();
            if let Some(start) = self.rule.start(self.fleet.gpus(), &waiting) {
                for spot in start.spots {
                    self.begin(start.gpu, spot, queue, started);
                }
                continue;
            }
            let found = self.rule.relocate(self.fleet.gpus(), &waiting, &self.allowance, |_, _| true);
            let Some(found) = found else { break };
            let place = |(gpu, spot)| Place { gpu, spot };
            let Some(pod) = self.fleet.pod_at(place(found.from)) else { break };
            if !self.fleet.relocate(pod, place(found.to)) {
                break;
            }
            self.allowance.spent();
            self.begin(found.from.0, found.start, queue, started);
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
