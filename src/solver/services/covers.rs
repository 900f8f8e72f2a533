//! The ways to serve one service's rate: how many instances of each size.
//!
//! Invariant: a cover that is listed serves the rate, and not without any one of its instances.

use super::{Need, SLACK};

/// Instances by position in `Sizes::profiles`.
pub(super) type Cover = Vec<u32>;

/// Most steps of one enumeration.
const STEPS: u32 = 200_000;

/// Covers of one service with their price.
pub(super) struct Covers {
    /// By rising price.
    pub list: Vec<(u64, Cover)>,
    /// Whether no cover of at most the asked price is missing.
    pub complete: bool,
}

/// The covers of `need` that cost at most `most`, the cheapest first.
pub(super) fn up_to(need: &Need, price: &[u64], most: u64) -> Covers {
    let mut walk = Walk::new(need, price, most);
    walk.run();
    walk.found.sort();
    Covers { list: walk.found, complete: walk.steps < STEPS }
}

/// A cheapest cover; the bound on its price, which is lower where the enumeration met its limit.
pub(super) fn cheapest(need: &Need, price: &[u64]) -> (u64, Cover) {
    let mut walk = Walk::new(need, price, u64::MAX);
    walk.only_cheaper = true;
    let bound = walk.least(need.rate);
    walk.run();
    let complete = walk.steps < STEPS;
    // There is one: instances of a single size are a cover, and the walk begins with such.
    let (cost, cover) = walk.found.pop().unwrap_or_else(|| (bound, vec![0; price.len()]));
    (if complete { cost } else { bound.min(cost) }, cover)
}

/// A depth-first walk over the sizes, those with the cheapest requests first and as many instances of each as make sense.
struct Walk<'a> {
    need: &'a Need,
    price: &'a [u64],
    /// Positions of the sizes that the service can run on, by price of a request.
    order: Vec<usize>,
    most: u64,
    only_cheaper: bool,
    steps: u32,
    cover: Cover,
    found: Vec<(u64, Cover)>,
}

impl<'a> Walk<'a> {
    fn new(need: &'a Need, price: &'a [u64], most: u64) -> Self {
        let mut order: Vec<usize> = (0..price.len()).filter(|&at| need.throughput[at] > 0.0).collect();
        order.sort_by(|&a, &b| {
            let each = |at: usize| price[at] as f64 / need.throughput[at];
            each(a).total_cmp(&each(b)).then(a.cmp(&b))
        });
        let cover = vec![0; price.len()];
        Walk { need, price, order, most, only_cheaper: false, steps: 0, cover, found: Vec::new() }
    }

    fn run(&mut self) {
        self.visit(0, self.need.rate, 0);
    }

    /// A lower bound on what the sizes from the cheapest on cost for `rate`.
    fn least(&self, rate: f64) -> u64 {
        self.least_from(0, rate)
    }

    fn least_from(&self, at: usize, rate: f64) -> u64 {
        let each = |at: &usize| self.price[*at] as f64 / self.need.throughput[*at];
        // A millionth less, so that rounding never cuts a cover off.
        self.order
            .get(at)
            .map_or(u64::MAX, |size| (each(size) * (rate - SLACK).max(0.0) * (1.0 - 1e-6)) as u64)
    }

    fn visit(&mut self, at: usize, left: f64, cost: u64) {
        self.steps = self.steps.saturating_add(1);
        if left <= SLACK {
            self.keep(cost);
            return;
        }
        if self.steps >= STEPS || self.least_from(at, left).saturating_add(cost) > self.most {
            return;
        }
        let Some(&size) = self.order.get(at) else { return };
        let throughput = self.need.throughput[size];
        let enough = ((left - SLACK) / throughput).ceil().max(0.0) as u32;
        for count in (0..=enough).rev() {
            let more = u64::from(count) * self.price[size];
            if cost + more <= self.most {
                self.cover[size] = count;
                self.visit(at + 1, left - throughput * f64::from(count), cost + more);
            }
        }
        self.cover[size] = 0;
    }

    fn keep(&mut self, cost: u64) {
        let served: f64 = self.cover.iter().zip(&self.need.throughput).map(|(&n, t)| t * f64::from(n)).sum();
        let spare =
            |(&count, &throughput): (&u32, &f64)| count > 0 && served - throughput >= self.need.rate - SLACK;
        if self.cover.iter().zip(&self.need.throughput).any(spare) {
            return;
        }
        if self.only_cheaper {
            self.found.clear();
            self.most = cost.saturating_sub(1);
        }
        self.found.push((cost, self.cover.clone()));
    }
}
