//! What the free slices of a GPU are worth in the time to come: which windows it offers now and will offer as its pods end and
//! others take their place.
//!
//! A measure of the present alone (free slices that the demand cannot use) does not tell a GPU that one pod's end will empty
//! from one that seven ends will. So each profile p gets a table over all [`LayoutStates`]: the discounted time during which a
//! GPU in state s offers a window for p,
//!
//! ```text
//!   V_p(s) = E ∫ e^(-t/H) · w_p(state at t) dt      w_p = 1 + b · (places of p − 1), zero without one
//!
//!   (1/H + |s| + Σ_q f·a_q·[q fits]) · V_p(s) = w_p(s) + Σ_i V_p(s - i) + Σ_q f·a_q · V_p(s + q)
//! ```
//!
//! with times in mean lifetimes: each of the |s| instances ends at rate 1 whatever its age (lifetimes are not known), pods of q
//! arrive at the GPU at rate a_q times `f` (a nearly full fleet fills what is open faster than its share of the arrivals), and
//! go where the value below stays highest. The worth of a state is
//!
//! ```text
//!   V(s) = Σ_p a_p · (size_p / size of a GPU)^1.5 · V_p(s)
//! ```
//!
//! A window counts by how often it is asked for and, more than in proportion, by its size: a small one opens again soon, a
//! large one after many ends.
//!
//! Invariant: only additions, products, quotients and square roots of numbers, in a fixed order, so that a table is the same
//! everywhere.

use super::states::{LayoutStates, StateId};

/// H: how far the future counts, in mean lifetimes.
const HORIZON: f64 = 1.0;

/// f: how much faster than its share of the arrivals an open GPU is filled.
const FILL: f64 = 5.0;

/// b: what a second place for a profile on one GPU counts beside the first.
const FURTHER: f64 = 0.3;

/// Sweeps over all states. Each moves the remaining error by a factor of at most rates / (rates + 1/H), and halves it about
/// every fifth time; 80 leave less than a hundred-thousandth.
const SWEEPS: usize = 80;

/// The worth of every state for one mix of arrivals.
#[derive(Clone, Debug)]
pub struct Lookahead {
    worth: Vec<f64>,
}

impl Lookahead {
    /// Solves the tables for `arrivals`: pods of each profile (as in [`LayoutStates::profiles`]) that arrive at one GPU in one
    /// mean lifetime. What is missing or not a positive number counts as zero.
    pub fn new(states: &LayoutStates, arrivals: &[f64]) -> Lookahead {
        let slices = f64::from(states.model().memory_slices);
        let mut profiles = Vec::new();
        for (profile, geometry) in (0u8..).zip(states.profiles()) {
            let rate = arrivals.get(usize::from(profile)).copied().filter(|rate| *rate > 0.0).unwrap_or(0.0);
            let size = f64::from(geometry.memory_slices) / slices;
            profiles.push(Profile { rate: FILL * rate, weight: rate * size * size.sqrt() });
        }
        let mut offered = vec![vec![0.0; profiles.len()]; states.len()];
        let mut worth = vec![0.0; states.len()];
        for _ in 0..SWEEPS {
            sweep(states, &profiles, &worth, &mut offered);
            for (worth, offered) in worth.iter_mut().zip(&offered) {
                *worth = profiles.iter().zip(offered).map(|(profile, time)| profile.weight * time).sum();
            }
        }
        Lookahead { worth }
    }

    /// The worth of a state, in weighted window-lifetimes.
    pub fn worth(&self, state: StateId) -> f64 {
        self.worth[usize::from(state.0)]
    }

    /// What a change of state gains, negative when it loses.
    pub fn gain(&self, from: StateId, to: StateId) -> f64 {
        self.worth(to) - self.worth(from)
    }
}

struct Profile {
    rate: f64,
    weight: f64,
}

/// Solves every state once, full GPUs first because the ends of pods lead from them to emptier ones.
fn sweep(states: &LayoutStates, profiles: &[Profile], worth: &[f64], offered: &mut [Vec<f64>]) {
    let mut time = vec![0.0; profiles.len()];
    for at in (0..states.len()).rev() {
        let Ok(id) = u16::try_from(at).map(StateId) else { continue };
        let mut rate = 1.0 / HORIZON;
        time.iter_mut().for_each(|time| *time = 0.0);
        for (_, after) in states.removals(id) {
            rate += 1.0;
            add(&mut time, &offered[usize::from(after.0)], 1.0);
        }
        for (profile, what) in (0u8..).zip(profiles) {
            let places = states.additions_of(id, profile);
            let options = places.iter().map(|(_, after)| usize::from(after.0));
            if let Some(after) =
                options.reduce(|best, next| if worth[next] > worth[best] { next } else { best })
            {
                time[usize::from(profile)] += 1.0 + FURTHER * (places.len() - 1) as f64;
                rate += what.rate;
                add(&mut time, &offered[after], what.rate);
            }
        }
        for (offered, time) in offered[at].iter_mut().zip(&time) {
            *offered = time / rate;
        }
    }
}

fn add(sum: &mut [f64], terms: &[f64], factor: f64) {
    sum.iter_mut().zip(terms).for_each(|(sum, term)| *sum += factor * term);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::GpuModel;
    use crate::solver::states::Spot;

    fn states() -> LayoutStates {
        LayoutStates::new(GpuModel::by_name("A100-80GB").unwrap())
    }

    fn with(states: &LayoutStates, spots: &[(u8, u8)]) -> StateId {
        spots.iter().fold(StateId::default(), |state, &(profile, start)| {
            states.add(state, Spot { profile, start }).unwrap()
        })
    }

    /// Only 7g is asked for, once a lifetime: two states, solved by hand. An empty GPU is worth 1 / (1/H + f − f / (1/H + 1)).
    #[test]
    fn two_states_by_hand() {
        let states = states();
        let table = Lookahead::new(&states, &[1.0]);
        let by_hand = 1.0 / (1.0 / HORIZON + FILL - FILL / (1.0 / HORIZON + 1.0));
        let (empty, full) = (table.worth(StateId::default()), table.worth(with(&states, &[(0, 0)])));
        assert!((empty - by_hand).abs() < 1e-5, "{empty} instead of {by_hand}");
        assert!((full - by_hand / (1.0 / HORIZON + 1.0)).abs() < 1e-5, "{full}");
    }

    #[test]
    fn small_pods_keep_together_and_leave_large_windows() {
        let states = states();
        let table = Lookahead::new(&states, &[0.4; 6]);
        // 1g beside 1g at 0: next to it, not in the other half.
        let one = with(&states, &[(5, 0)]);
        let near = table.gain(one, with(&states, &[(5, 0), (5, 1)]));
        assert!(near > table.gain(one, with(&states, &[(5, 0), (5, 4)])));
        // The GPU that holds a small pod already loses less than an empty one.
        assert!(near > table.gain(StateId::default(), one));
        // 3g to the right half, where 4g never starts.
        let right = table.worth(with(&states, &[(2, 4)]));
        assert!(right > table.worth(with(&states, &[(2, 0)])));
    }

    #[test]
    fn what_nobody_asks_for_is_worth_nothing() {
        let states = states();
        let table = Lookahead::new(&states, &[0.0, f64::NAN, -1.0]);
        assert!((0..states.len() as u16).all(|id| table.worth(StateId(id)) == 0.0));
    }
}
