//! FGD's fragmentation, and the rules that choose a node and a GPU.

use std::collections::BTreeMap;

use super::{Node, Request, Trace};

/// How a node is scored; the highest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Least CPU and GPU left over, each weighted with one half and its largest amount a node has; the fullest GPU that fits.
    BestFit,
    /// Smallest growth of the fragmentation (Weng et al., USENIX ATC '23).
    Fgd,
    /// Any node, any GPU that fits.
    Random,
}

impl Rule {
    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::BestFit => "best-fit",
            Rule::Fgd => "fgd",
            Rule::Random => "random",
        }
    }
}

/// Amounts that best fit measures leftovers by: the largest node has 128 cores and 8 GPUs.
const MOST_CPU: f64 = 128_000.0;
const MOST_GPU: f64 = 8_000.0;

/// Thousandths over which FGD's score falls from one half to a quarter.
const SCALE: f64 = 1_000.0;

/// The pods that stand for the workload, with their shares.
#[derive(Clone, Debug)]
pub struct Typical {
    pods: Vec<(Request, f64)>,
}

impl Typical {
    /// The most frequent requests, `step` at a time, until they make up `share` of all pods. Memory plays no part in them.
    pub fn new(trace: &Trace, share: f64, step: usize) -> Typical {
        let mut counts: BTreeMap<Request, usize> = BTreeMap::new();
        for pod in &trace.pods {
            *counts.entry(Request { memory: 0, ..*pod }).or_default() += 1;
        }
        let mut by_count: Vec<_> = counts.into_iter().map(|(pod, count)| (count, pod)).collect();
        by_count.sort_unstable_by(|a, b| b.cmp(a));
        let (mut taken, mut known) = (0, 0);
        while (known as f64) < share * trace.pods.len() as f64 && taken < by_count.len() {
            let next = by_count[taken..].iter().take(step);
            known += next.clone().map(|(count, _)| count).sum::<usize>();
            taken += next.len();
        }
        let pods = by_count[..taken].iter().map(|&(count, pod)| (pod, count as f64 / known as f64)).collect();
        Typical { pods }
    }

    /// Thousandths of GPUs that are free on the node and of no use to the typical pods, on average.
    pub fn fragmentation(&self, node: &Node) -> f64 {
        let free = node.left();
        if free == 0 {
            return 0.0;
        }
        let lost = |pod: &Request| {
            if pod.gpus == 0 || node.cpu < pod.cpu || !node.has_gpus(pod) {
                return free;
            }
            node.gpus.iter().filter(|&&left| left < pod.milli).map(|&left| u64::from(left)).sum()
        };
        self.pods.iter().map(|(pod, share)| share * lost(pod) as f64).sum()
    }
}

/// The distinct requests, ordered.
pub fn kinds(trace: &Trace) -> Vec<Request> {
    let mut kinds = trace.pods.clone();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Scores by kind of pod and node, kept until the node changes.
pub struct Scores<'a> {
    kinds: Vec<Request>,
    typical: &'a Typical,
    rule: Rule,
    versions: Vec<u32>,
    known: Vec<Vec<(u32, i64, usize)>>,
    fragmentation: Vec<(u32, f64)>,
}

impl<'a> Scores<'a> {
    /// Nothing is known yet.
    pub fn new(trace: &Trace, typical: &'a Typical, rule: Rule) -> Scores<'a> {
        let (kinds, nodes) = (kinds(trace), trace.nodes.len());
        let known = vec![vec![(0, 0, 0); nodes]; kinds.len()];
        Scores { kinds, typical, rule, versions: vec![1; nodes], known, fragmentation: vec![(0, 0.0); nodes] }
    }

    /// The distinct requests.
    pub fn kinds(&self) -> &[Request] {
        &self.kinds
    }

    /// The node has another pod.
    pub fn changed(&mut self, node: usize) {
        self.versions[node] += 1;
    }

    /// The score of a node that fits, and the GPU that a share would take there.
    pub fn score(&mut self, kind: usize, at: usize, node: &Node) -> (i64, usize) {
        let version = self.versions[at];
        let (known, score, gpu) = self.known[kind][at];
        if known == version {
            return (score, gpu);
        }
        let pod = self.kinds[kind];
        let (score, gpu) = match self.rule {
            Rule::BestFit => (best_fit(node, &pod), fullest(node, &pod)),
            Rule::Random => (0, fullest(node, &pod)),
            Rule::Fgd => {
                if self.fragmentation[at].0 != version {
                    self.fragmentation[at] = (version, self.typical.fragmentation(node));
                }
                fgd(node, &pod, self.typical, self.fragmentation[at].1)
            }
        };
        self.known[kind][at] = (version, score, gpu);
        (score, gpu)
    }
}

fn best_fit(node: &Node, pod: &Request) -> i64 {
    let cpu = (node.cpu - pod.cpu) as f64 / MOST_CPU;
    let gpu = (node.left() - pod.demand()) as f64 / MOST_GPU;
    ((1.0 - 0.5 * cpu - 0.5 * gpu) * 100.0) as i64
}

/// The GPU with the least left that still fits.
fn fullest(node: &Node, pod: &Request) -> usize {
    let fitting = node.gpus.iter().enumerate().filter(|(_, left)| **left >= pod.milli);
    fitting.min_by_key(|(_, left)| **left).map_or(0, |(gpu, _)| gpu)
}

fn fgd(node: &Node, pod: &Request, typical: &Typical, before: f64) -> (i64, usize) {
    let score = |gpu| {
        let mut after = node.clone();
        after.take(pod, gpu);
        let fall = before - typical.fragmentation(&after);
        (100.0 / (1.0 + (-fall / SCALE).exp())) as i64
    };
    if !pod.is_share() {
        return (score(0), 0);
    }
    let mut best: Option<(i64, usize)> = None;
    for gpu in (0..node.gpus.len()).filter(|&gpu| node.gpus[gpu] >= pod.milli) {
        // GPUs with equally much left are equal.
        if node.gpus[..gpu].contains(&node.gpus[gpu]) {
            continue;
        }
        let score = score(gpu);
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, gpu));
        }
    }
    best.unwrap_or((0, 0))
}
