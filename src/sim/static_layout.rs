//! The best fixed layout for a known mix: what a careful administrator would cut the GPUs into, and the baseline that counts.
//!
//! How it is found: every GPU gets one of the model's maximal multisets of base profiles (38 on eight slices). A choice is
//! judged by the mean number of waiting pods, summed over the profiles, each of them a queue of its own with as many servers as
//! there are instances (Erlang's C formula; the true lifetimes are not exponential, which scales all queues alike). From the
//! greedy choice, GPUs are moved from one multiset to another as long as that helps, many at a time at first. On small clusters
//! a test compares the outcome with trying every combination.
//!
//! Invariant: the result is at least as good as any choice that differs in the layout of one GPU, and depends on the arguments
//! alone.

use crate::mig::{
    Counts, GpuModel, Layout, LayoutError, ProfileName, Variants, enumerate_layouts, find_layout,
};

/// What one slice of demand without an instance costs: more than any queue that is just stable.
const OVERLOAD: f64 = 1e6;

/// One layout for each of `gpus` GPUs, given the mean number of running instances wanted of each profile.
pub fn best_layouts(
    model: &'static GpuModel,
    gpus: u32,
    demand: &[(ProfileName, f64)],
) -> Result<Vec<Layout>, LayoutError> {
    let options: Vec<Counts> =
        enumerate_layouts(model, Variants::Base).maximal_multisets().into_iter().collect();
    let search = Search::new(model, gpus, demand, &options);
    let mut layouts = Vec::new();
    for (counts, &gpus) in options.iter().zip(&search.best()) {
        let layout = find_layout(model, counts)?;
        layouts.extend((0..gpus).map(|_| layout.clone()));
    }
    Ok(layouts)
}

struct Search {
    gpus: u32,
    /// By option and profile: instances.
    options: Vec<Vec<u32>>,
    /// By profile and number of instances: cost.
    costs: Vec<Vec<f64>>,
}

impl Search {
    fn new(model: &GpuModel, gpus: u32, demand: &[(ProfileName, f64)], options: &[Counts]) -> Search {
        let count = |counts: &Counts, name| u32::from(counts.get(&name).copied().unwrap_or(0));
        let by_profile = |counts| demand.iter().map(|&(name, _)| count(counts, name)).collect();
        let costs = demand.iter().map(|&(name, load)| {
            let geometry = model.profile(name).ok();
            let most = gpus * geometry.map_or(0, |geometry| u32::from(geometry.max));
            queue_costs(load, most, geometry.map_or(1, |geometry| geometry.memory_slices))
        });
        Search { gpus, options: options.iter().map(by_profile).collect(), costs: costs.collect() }
    }

    /// GPUs for each option.
    fn best(&self) -> Vec<u32> {
        let mut chosen = vec![0; self.options.len()];
        let mut servers = vec![0; self.costs.len()];
        for _ in 0..self.gpus {
            let option = self.best_addition(&servers);
            chosen[option] += 1;
            self.shift(&mut servers, option, 1, true);
        }
        let mut step = (self.gpus / 8).max(1);
        loop {
            while let Some((from, to)) = self.best_move(&chosen, &servers, step) {
                chosen[from] -= step;
                chosen[to] += step;
                self.shift(&mut servers, from, step, false);
                self.shift(&mut servers, to, step, true);
            }
            if step == 1 {
                return chosen;
            }
            step /= 2;
        }
    }

    fn best_addition(&self, servers: &[u32]) -> usize {
        let costs = (0..self.options.len()).map(|option| {
            let mut after = servers.to_vec();
            self.shift(&mut after, option, 1, true);
            (self.cost(&after), option)
        });
        costs.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, option)| option)
    }

    /// The move of `step` GPUs that helps most, if any does.
    fn best_move(&self, chosen: &[u32], servers: &[u32], step: u32) -> Option<(usize, usize)> {
        let mut best = (self.cost(servers) * (1.0 - 1e-12), None);
        for from in (0..chosen.len()).filter(|&from| chosen[from] >= step) {
            let mut without = servers.to_vec();
            self.shift(&mut without, from, step, false);
            for to in (0..chosen.len()).filter(|&to| to != from) {
                let mut after = without.clone();
                self.shift(&mut after, to, step, true);
                let cost = self.cost(&after);
                if cost < best.0 {
                    best = (cost, Some((from, to)));
                }
            }
        }
        best.1
    }

    fn shift(&self, servers: &mut [u32], option: usize, gpus: u32, add: bool) {
        for (servers, instances) in servers.iter_mut().zip(&self.options[option]) {
            let change = instances * gpus;
            *servers = if add { *servers + change } else { servers.saturating_sub(change) };
        }
    }

    fn cost(&self, servers: &[u32]) -> f64 {
        let cost = |(costs, &count): (&Vec<f64>, &u32)| {
            costs.get(count as usize).or(costs.last()).copied().unwrap_or(0.0)
        };
        self.costs.iter().zip(servers).map(cost).sum()
    }
}

/// Mean number of waiting pods for 0 to `most` servers at `load` erlangs; where the queue would grow without end, a penalty
/// in proportion to the missing slices.
fn queue_costs(load: f64, most: u32, slices: u8) -> Vec<f64> {
    let mut blocking = 1.0;
    let cost = |servers: u32| {
        let count = f64::from(servers);
        if servers > 0 {
            blocking = load * blocking / (count + load * blocking);
        }
        if count <= load {
            return if load > 0.0 { OVERLOAD * f64::from(slices) * (load - count + 1.0) } else { 0.0 };
        }
        let must_wait = count * blocking / (count - load * (1.0 - blocking));
        must_wait * load / (count - load)
    };
    (0..=most).map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::workload::{self, Mix, Options};

    fn model() -> &'static GpuModel {
        GpuModel::by_name(workload::MODEL).unwrap()
    }

    #[test]
    fn erlang_c_at_known_points() {
        let costs = queue_costs(2.0, 4, 1);
        // C(3, 2) = 4/9, so 8/9 wait on average; C(4, 2) = 4/23.
        assert!((costs[3] - 8.0 / 9.0).abs() < 1e-12 && (costs[4] - 4.0 / 23.0).abs() < 1e-12, "{costs:?}");
        assert!(costs[0] > costs[1] && costs[1] > costs[2] && costs[2] > OVERLOAD / 2.0);
        assert_eq!(queue_costs(0.0, 1, 1), [0.0, 0.0]);
    }

    #[test]
    fn small_clusters_get_the_best_of_all_combinations() {
        for mix in [Mix::Uniform, Mix::SkewSmall, Mix::SkewBig, Mix::Bimodal] {
            let options = Options { gpus: 3, load: 0.6, mix, ..Options::default() };
            let demand = workload::mean_demand(&options, model());
            let all: Vec<Counts> =
                enumerate_layouts(model(), Variants::Base).maximal_multisets().into_iter().collect();
            let search = Search::new(model(), options.gpus, &demand, &all);
            let cost = |chosen: &[usize]| {
                let mut servers = vec![0; demand.len()];
                chosen.iter().for_each(|&option| search.shift(&mut servers, option, 1, true));
                search.cost(&servers)
            };
            let n = all.len();
            let triples = (0..n).flat_map(|a| (a..n).flat_map(move |b| (b..n).map(move |c| [a, b, c])));
            let least = triples.map(|triple| cost(&triple)).fold(f64::INFINITY, f64::min);
            let found: Vec<usize> = (0..)
                .zip(search.best())
                .flat_map(|(option, gpus)| std::iter::repeat_n(option, gpus as usize))
                .collect();
            assert!(cost(&found) <= least * (1.0 + 1e-9), "{mix:?}: {} instead of {least}", cost(&found));
        }
    }

    #[test]
    fn every_gpu_gets_a_maximal_layout_and_every_profile_enough_instances() {
        let options = Options::default();
        let demand = workload::mean_demand(&options, model());
        let layouts = best_layouts(model(), options.gpus, &demand).unwrap();
        assert_eq!(layouts.len(), 100);
        assert!(layouts.iter().all(Layout::is_maximal));
        for (name, load) in demand {
            let instances: u32 =
                layouts.iter().map(|l| u32::from(l.counts().get(&name).copied().unwrap_or(0))).sum();
            assert!(f64::from(instances) > load, "{instances} of {name} for {load} on average");
        }
    }
}
