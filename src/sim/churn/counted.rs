//! Systems for which only how many pods of each profile run matters: fixed layouts, and free repacking as the limit.

use std::collections::BTreeMap;

use super::clock::{PodNo, Queue, System};
use crate::solver::closed_form::Capacity;

/// Which counts can run together.
pub enum Room {
    /// So many instances of each profile, for good.
    Static(Vec<u32>),
    /// Whatever fits on so many GPUs when every pod may move at any time for nothing.
    Repacked {
        /// Number of GPUs.
        gpus: u32,
    },
}

/// A fleet of which only counts are kept; queue in order of arrival with backfill.
pub struct Counted {
    room: Room,
    sizes: Vec<u8>,
    running: Vec<u32>,
    profiles: BTreeMap<PodNo, u8>,
    used: u64,
}

impl Counted {
    /// Nothing runs.
    pub fn new(room: Room, sizes: &[u8]) -> Counted {
        Counted {
            room,
            sizes: sizes.to_vec(),
            running: vec![0; sizes.len()],
            profiles: BTreeMap::new(),
            used: 0,
        }
    }

    fn fits(&self, profile: u8) -> bool {
        let at = usize::from(profile);
        match &self.room {
            Room::Static(most) => self.running[at] < most[at],
            Room::Repacked { gpus } => {
                // Here large profiles come first, there small ones.
                let wanted = std::array::from_fn(|size| {
                    let index = self.running.len().checked_sub(size + 1);
                    let running = index.and_then(|index| self.running.get(index)).copied().unwrap_or(0);
                    u64::from(running) + u64::from(index == Some(at))
                });
                Capacity::empty(u64::from(*gpus)).fits(wanted)
            }
        }
    }
}

impl System for Counted {
    fn ended(&mut self, pod: PodNo) {
        if let Some(profile) = self.profiles.remove(&pod) {
            self.running[usize::from(profile)] -= 1;
            self.used -= u64::from(self.sizes[usize::from(profile)]);
        }
    }

    fn settle(&mut self, _now: u64, queue: &mut Queue, started: &mut Vec<PodNo>) -> Option<u64> {
        let mut refused = 0u16;
        while let Some(profile) = queue.by_age().into_iter().find(|profile| refused & (1 << profile) == 0) {
            if !self.fits(profile) {
                refused |= 1 << profile;
                continue;
            }
            let Some(pod) = queue.pop(profile) else { break };
            self.running[usize::from(profile)] += 1;
            self.used += u64::from(self.sizes[usize::from(profile)]);
            self.profiles.insert(pod, profile);
            started.push(pod);
        }
        None
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn moved(&self) -> u64 {
        0
    }
}
