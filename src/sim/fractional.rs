//! Shares of GPUs without MIG: the openb cluster filled beyond its capacity, as the FGD paper did, to see whether known rules give
//! their known results here.
//!
//! Pods are drawn in random order until what they ask for is 130 % of all GPUs; each is placed once, on the node and the GPUs
//! that a rule prefers, or refused; none leaves. *Allocation* is the share of all GPU capacity that placed pods hold at the end.
//! A pod with less than one GPU takes a share of a single GPU, others take whole GPUs.
//!
//! Invariant: a node never gives more CPU, memory or share of a GPU than it has; a run is a function of trace, rule and seed.

mod rule;
mod trace;

pub use rule::{Rule, Typical};
pub use trace::read;

use std::cmp::Ordering;

use super::rng::Rng;

/// A whole GPU.
pub const WHOLE: u32 = 1_000;

/// One node: what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Milli-CPU.
    pub cpu: u64,
    /// Bytes.
    pub memory: u64,
    /// Of each GPU, in thousandths.
    pub gpus: Vec<u32>,
    /// The GPUs' model, by its position in [`Trace::models`].
    pub model: u8,
}

/// What a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Milli-CPU.
    pub cpu: u64,
    /// Thousandths of each of its GPUs.
    pub milli: u32,
    /// Number of GPUs.
    pub gpus: u32,
    /// Bit i is set when model i will do.
    pub models: u32,
    /// Bytes.
    pub memory: u64,
}

impl Request {
    /// Thousandths of a GPU in all.
    pub fn demand(&self) -> u64 {
        u64::from(self.milli) * u64::from(self.gpus)
    }

    /// Whether it takes a part of one GPU.
    pub fn is_share(&self) -> bool {
        self.gpus == 1 && self.milli < WHOLE
    }
}

impl Node {
    /// Whether the pod may use this node's GPUs and there are enough of them with enough left.
    pub fn has_gpus(&self, pod: &Request) -> bool {
        let enough = self.gpus.iter().filter(|&&left| left >= pod.milli).count();
        pod.gpus == 0 || (self.accessible(pod) && enough >= pod.gpus as usize)
    }

    /// Whether the model will do.
    pub fn accessible(&self, pod: &Request) -> bool {
        pod.models & (1 << self.model) != 0
    }

    fn fits(&self, pod: &Request) -> bool {
        self.cpu >= pod.cpu && self.memory >= pod.memory && self.has_gpus(pod)
    }

    fn left(&self) -> u64 {
        self.gpus.iter().map(|&left| u64::from(left)).sum()
    }

    /// Takes the pod: a share on `gpu`, whole GPUs from the first that are whole.
    fn take(&mut self, pod: &Request, gpu: usize) {
        self.cpu -= pod.cpu;
        self.memory -= pod.memory;
        if pod.is_share() {
            self.gpus[gpu] -= pod.milli;
            return;
        }
        let whole = self.gpus.iter_mut().filter(|left| **left == WHOLE);
        whole.take(pod.gpus as usize).for_each(|left| *left = 0);
    }
}

/// Nodes and pods of a trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// GPU models, by position.
    pub models: Vec<String>,
    /// Every node, empty.
    pub nodes: Vec<Node>,
    /// Every pod, in the trace's order.
    pub pods: Vec<Request>,
}

/// What a run showed, as shares of all GPU capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Held by placed pods.
    pub allocation: f64,
    /// Free, but of no use to the typical pods (FGD's measure).
    pub fragmentation: f64,
    /// Pods that arrived, and of them those placed.
    pub pods: (usize, usize),
}

/// Draws pods until they ask for `demand` times the capacity, and places them by `rule`.
pub fn run(trace: &Trace, typical: &Typical, rule: Rule, demand: f64, seed: u64) -> Outcome {
    let mut nodes = trace.nodes.clone();
    let capacity: u64 = nodes.iter().map(Node::left).sum();
    let pods = arrivals(trace, (capacity as f64 * demand) as u64, seed);
    let mut chance = Rng::new(seed, 2);
    let mut scores = rule::Scores::new(trace, typical, rule);
    let mut placed = 0;
    for &kind in &pods {
        let pod = scores.kinds()[kind];
        let mut best: Option<(i64, usize, usize)> = None;
        let mut equal = 0;
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.fits(&pod)) {
            let (score, gpu) = scores.score(kind, at, node);
            match best.map_or(Ordering::Greater, |(most, _, _)| score.cmp(&most)) {
                Ordering::Greater => (best, equal) = (Some((score, at, gpu)), 1),
                // The authors' simulator takes the first by name of several best nodes, for all rules but the random one.
                Ordering::Equal if rule == Rule::Random => {
                    equal += 1;
                    if chance.below(equal) == 0 {
                        best = Some((score, at, gpu));
                    }
                }
                Ordering::Equal | Ordering::Less => {}
            }
        }
        if let Some((_, at, gpu)) = best {
            nodes[at].take(&pod, gpu);
            scores.changed(at);
            placed += 1;
        }
    }
    let left: u64 = nodes.iter().map(Node::left).sum();
    let lost: f64 = nodes.iter().map(|node| typical.fragmentation(node)).sum();
    Outcome {
        allocation: 1.0 - left as f64 / capacity as f64,
        fragmentation: lost / capacity as f64,
        pods: (pods.len(), placed),
    }
}

/// The order of arrival: every pod of the trace and as many copies of pods drawn at random as are needed, shuffled; or as many
/// of the trace's pods as are needed. By position in [`rule::Scores::kinds`].
fn arrivals(trace: &Trace, demand: u64, seed: u64) -> Vec<usize> {
    let kinds = rule::kinds(trace);
    let kind = |pod: &Request| kinds.binary_search(pod).unwrap_or(0);
    let mut chance = Rng::new(seed, 1);
    let mut order: Vec<usize> = trace.pods.iter().map(kind).collect();
    let mut total: u64 = trace.pods.iter().map(Request::demand).sum();
    while total < demand && !trace.pods.is_empty() {
        let pod = &trace.pods[chance.below(trace.pods.len() as u64) as usize];
        total += pod.demand();
        order.push(kind(pod));
    }
    for at in (1..order.len()).rev() {
        order.swap(at, chance.below(at as u64 + 1) as usize);
    }
    let mut arrived = 0;
    let mut enough = |kind: &usize| {
        let wanted = arrived < demand;
        arrived += kinds[*kind].demand();
        wanted
    };
    order.iter().take_while(|kind| enough(kind)).copied().collect()
}
