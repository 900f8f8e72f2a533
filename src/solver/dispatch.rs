//! Which waiting pods start where, and which one running pod moves so that a waiting one can: decided for all of them together,
//! by the [`Lookahead`] worth of what they leave.
//!
//! A pod by pod placer gives every hole to whoever may have it first, so that whole GPUs are broken up for small pods that
//! would have found a hole a moment later, and a large pod waits until all of them have ended. Here
//!
//! * one GPU and a *set* of waiting pods are chosen together: the set with the largest Σ urgency + (worth after − worth before)
//!   of all GPUs. Only while a larger pod waits may this hold back a smaller one that would fit, if its place would cost more
//!   worth than its start is urgent: until a better place opens, or so many wait with it that breaking a GPU pays for all of
//!   them at once.
//! * *urgency* of a profile with n waiting pods, of which λ arrive in a mean lifetime, is
//!   `c + g · size · sqrt(n / λ)`; by Little's law n / λ is how long its pods wait at present.
//! * when nothing more can start, the move of one running pod that lets a large waiting pod start is looked for. Moves are
//!   paid from an [`Allowance`] that grows with arrivals; the fuller it is the less a move has to gain.
//!
//! Nothing is assumed about how long a pod still runs, and its age is not looked at.
//!
//! Invariant: what is answered fits the states it was asked about, exactly; the answer is a function of the arguments. Work per
//! question is bounded by the number of states (a set of waiting pods leads from one state to another).

use super::lookahead::Lookahead;
use super::states::{LayoutStates, Spot, StateId};

/// c: what starting any pod is worth, in weighted window-lifetimes.
const ANY_POD: f64 = 0.004;

/// g: what starting a pod of a whole GPU's size is worth more when its like wait one mean lifetime.
const URGENCY: f64 = 0.8;

/// How much more a move's gain in worth counts than what the waiting pod gains: moves are scarce, worth lasts.
const LASTING: f64 = 5.0;

/// What a move has to gain when the allowance is all but used up.
const DEAREST: f64 = 6.0;

/// Smallest share of a GPU's slices for which a pod is moved: smaller pods find a place soon by themselves.
const LARGE: u8 = 2;

/// How many running pods may be moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    rate: f64,
    most: f64,
    left: f64,
}

impl Allowance {
    /// `rate` moves for each pod that arrives, of which at most `most` are saved up. Nothing is saved yet.
    pub fn new(rate: f64, most: f64) -> Allowance {
        Allowance { rate, most, left: 0.0 }
    }

    /// A pod arrived.
    pub fn arrived(&mut self) {
        self.left = (self.left + self.rate).min(self.most);
    }

    /// A pod was moved.
    pub fn spent(&mut self) {
        self.left -= 1.0;
    }

    /// Whether one move is left.
    pub fn allows(&self) -> bool {
        self.left >= 1.0
    }

    /// How many moves are left.
    pub fn whole(&self) -> usize {
        self.left as usize
    }

    /// The gain below which a move is not worth its token: nothing with a full allowance, [`DEAREST`] with an empty one.
    fn price(&self) -> f64 {
        DEAREST * (1.0 - self.left / self.most)
    }
}

/// Waiting pods that start on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Position of the GPU in the question.
    pub gpu: usize,
    /// What starts where, large profiles first.
    pub spots: Vec<Spot>,
}

/// One running pod that moves, and the waiting pod that starts in its stead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where the running pod is: position of the GPU, and instance.
    pub from: (usize, Spot),
    /// Where it goes; the same GPU or another.
    pub to: (usize, Spot),
    /// What starts on the GPU of `from` then.
    pub start: Spot,
}

/// The rule for one GPU model and one mix of arrivals.
#[derive(Clone, Debug)]
pub struct Dispatch<'a> {
    states: &'a LayoutStates,
    lookahead: Lookahead,
    /// By profile: arrivals in the whole fleet in one mean lifetime.
    arrivals: Vec<f64>,
}

impl<'a> Dispatch<'a> {
    /// `arrivals` is by profile (as in [`LayoutStates::profiles`]): how many pods arrive in one mean lifetime at the whole fleet
    /// of `gpus` GPUs.
    pub fn new(states: &'a LayoutStates, gpus: usize, arrivals: &[f64]) -> Dispatch<'a> {
        let each: Vec<f64> = arrivals.iter().map(|rate| rate / gpus.max(1) as f64).collect();
        Dispatch { states, lookahead: Lookahead::new(states, &each), arrivals: arrivals.to_vec() }
    }

    /// The worth of states.
    pub fn lookahead(&self) -> &Lookahead {
        &self.lookahead
    }

    /// The pods to start next, if any should start now. `waiting` is by profile.
    pub fn start(&self, gpus: &[StateId], waiting: &[usize]) -> Option<Start> {
        let urgency: Vec<f64> = (0u8..).zip(waiting).map(|(profile, &n)| self.urgency(profile, n)).collect();
        let mut known: Vec<StateId> = Vec::new();
        let mut best: Option<(f64, Start)> = None;
        for (gpu, &state) in gpus.iter().enumerate() {
            // GPUs in the same state are alike; the first stands for all.
            if known.contains(&state) {
                continue;
            }
            known.push(state);
            let mut search = Sets {
                rule: self,
                urgency: &urgency,
                left: waiting.to_vec(),
                chosen: Vec::new(),
                best: None,
            };
            search.extend(state, 0, -self.lookahead.worth(state));
            if let Some((gain, spots)) = search.best
                && best.as_ref().is_none_or(|(most, _)| gain > *most)
            {
                best = Some((gain, Start { gpu, spots }));
            }
        }
        best.map(|(_, start)| start).or_else(|| self.place_largest(gpus, waiting))
    }

    /// The cheapest place for one of the largest waiting pods: nothing larger waits for what it takes.
    fn place_largest(&self, gpus: &[StateId], waiting: &[usize]) -> Option<Start> {
        let wanted = (0u8..).zip(waiting).filter(|(_, n)| **n > 0).map(|(profile, _)| profile);
        let slices = |profile: u8| self.states.profiles()[usize::from(profile)].memory_slices;
        let largest = wanted.clone().map(slices).max()?;
        let homes = wanted
            .filter(|&profile| slices(profile) == largest)
            .filter_map(|profile| self.home(gpus, profile, None));
        let best = homes.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        Some(Start { gpu: best.1, spots: vec![best.2] })
    }

    /// The move that pays best, if one is allowed and pays. To be asked when [`start`](Self::start) has no more answer. Only pods
    /// for which `movable(gpu, instance)` holds are moved.
    pub fn relocate(
        &self,
        gpus: &[StateId],
        waiting: &[usize],
        allowance: &Allowance,
        movable: impl Fn(usize, Spot) -> bool,
    ) -> Option<Move> {
        if !allowance.allows() || waiting.iter().all(|&n| n == 0) {
            return None;
        }
        let homes = self.homes(gpus);
        let mut best: Option<(f64, Move)> = None;
        for (profile, _) in (0u8..).zip(waiting).filter(|(_, n)| **n > 0) {
            let size = self.size(profile);
            if size * f64::from(LARGE) < 1.0 {
                continue;
            }
            for (gpu, &state) in gpus.iter().enumerate() {
                // Of two equal pods none need move for the other.
                for (spot, without) in self.states.removals(state).filter(|(spot, _)| spot.profile != profile)
                {
                    for &(start, filled) in self.states.additions_of(without, profile) {
                        let Some((gain, to)) = self.rehouse(&homes, gpu, filled, spot.profile) else {
                            continue;
                        };
                        let gain = LASTING * (gain + self.lookahead.gain(state, filled)) + size * size;
                        if best.is_none_or(|(most, _)| gain > most) && movable(gpu, spot) {
                            best = Some((gain, Move { from: (gpu, spot), to, start }));
                        }
                    }
                }
            }
        }
        best.filter(|(gain, _)| *gain >= allowance.price()).map(|(_, found)| found)
    }

    fn urgency(&self, profile: u8, waiting: usize) -> f64 {
        let rate = self.arrivals.get(usize::from(profile)).copied().unwrap_or(0.0);
        let wait = if rate > 0.0 { waiting as f64 / rate } else { waiting as f64 };
        ANY_POD + URGENCY * self.size(profile) * wait.sqrt()
    }

    /// A profile's share of a GPU's slices.
    fn size(&self, profile: u8) -> f64 {
        let geometry = self.states.profiles()[usize::from(profile)];
        f64::from(geometry.memory_slices) / f64::from(self.states.model().memory_slices)
    }

    /// By profile, the two GPUs that lose least by taking one more.
    fn homes(&self, gpus: &[StateId]) -> Vec<Vec<(f64, usize, Spot)>> {
        let profiles = 0..self.states.profiles().len() as u8;
        profiles
            .map(|profile| {
                let first = self.home(gpus, profile, None);
                let second = first.and_then(|(_, gpu, _)| self.home(gpus, profile, Some(gpu)));
                first.into_iter().chain(second).collect()
            })
            .collect()
    }

    fn home(&self, gpus: &[StateId], profile: u8, except: Option<usize>) -> Option<(f64, usize, Spot)> {
        let mut best: Option<(f64, usize, Spot)> = None;
        for (gpu, &state) in gpus.iter().enumerate().filter(|(gpu, _)| Some(*gpu) != except) {
            for &(spot, after) in self.states.additions_of(state, profile) {
                let gain = self.lookahead.gain(state, after);
                if best.is_none_or(|(most, _, _)| gain > most) {
                    best = Some((gain, gpu, spot));
                }
            }
        }
        best
    }

    /// The best place for a pod that leaves `gpu`, which is then in state `filled`: elsewhere, or beside what takes its place.
    fn rehouse(
        &self,
        homes: &[Vec<(f64, usize, Spot)>],
        gpu: usize,
        filled: StateId,
        profile: u8,
    ) -> Option<(f64, (usize, Spot))> {
        let elsewhere = homes[usize::from(profile)].iter().find(|(_, home, _)| *home != gpu);
        let mut best = elsewhere.map(|&(gain, home, spot)| (gain, (home, spot)));
        for &(spot, after) in self.states.additions_of(filled, profile) {
            let gain = self.lookahead.gain(filled, after);
            if best.is_none_or(|(most, _)| gain > most) {
                best = Some((gain, (gpu, spot)));
            }
        }
        best
    }
}

/// The search for the best set of waiting pods on one GPU.
struct Sets<'a> {
    rule: &'a Dispatch<'a>,
    urgency: &'a [f64],
    left: Vec<usize>,
    chosen: Vec<Spot>,
    best: Option<(f64, Vec<Spot>)>,
}

impl Sets<'_> {
    /// Tries every way to add pods to `state`, in order of profile and start so that each set is tried once. `gain` is what the
    /// chosen ones bring, less the worth before.
    fn extend(&mut self, state: StateId, from: u8, gain: f64) {
        let total = gain + self.rule.lookahead.worth(state);
        if !self.chosen.is_empty() && total > self.best.as_ref().map_or(0.0, |(most, _)| *most) {
            self.best = Some((total, self.chosen.clone()));
        }
        for profile in from..self.left.len() as u8 {
            let at = usize::from(profile);
            if self.left[at] == 0 {
                continue;
            }
            let states = self.rule.states;
            for &(spot, after) in states.additions_of(state, profile) {
                let last = self.chosen.last().filter(|last| last.profile == profile);
                if last.is_some_and(|last| last.start > spot.start) {
                    continue;
                }
                self.left[at] -= 1;
                self.chosen.push(spot);
                self.extend(after, profile, gain + self.urgency[at]);
                self.chosen.pop();
                self.left[at] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
