//! The same churn where instances have to be made before pods can start: layouts change node by node, seldom, and not at once.
//!
//! ```text
//!   node of 8 GPUs   free to change ──plan pays──► changing ──delay──► cooling down ──an hour──► free to change
//!                                                   │ its free instances are gone, the new ones come at the end
//! ```
//!
//! * A pod starts on a free instance of just its profile. The scheduler picks the node; which of several equal free instances on
//!   it the pod gets is kubelet's choice and drawn at random.
//! * **Agent**: free instances of a node are destroyed and created one by one while others run, in seconds.
//! * **mig-manager**: every GPU that changes loses all its instances, so that only a GPU without pods can change; for 40 to 120 s
//!   no pod starts on the node, since the device plugin is paused.
//! * With either, the last pod of a GPU may first be moved to a free instance on another node, out of an allowance.
//!
//! Layouts are looked at while pods wait; what else is wanted then ([`Wants`]) is made in the same change.
//!
//! Invariant: an instance under a pod is never destroyed, and a node changes at most once in the cool-down.

use std::collections::BTreeMap;

use super::clock::{PodNo, Queue, System};

use crate::sim::rng::Rng;
use crate::solver::dispatch::Allowance;
use crate::solver::lookahead::Lookahead;
use crate::solver::states::{LayoutStates, Spot, StateId};
use crate::solver::wants::{MOVE_COST, THRESHOLD, Wants};

/// How layouts are changed, with times in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Whether single free instances can be made and removed while others run.
    pub single_instances: bool,
    /// Shortest and longest time that a change takes.
    pub delay: (u64, u64),
    /// From the end of one change of a node to the start of its next.
    pub cooldown: u64,
    /// GPUs of one node.
    pub gpus_a_node: usize,
}

/// One GPU: its instances, and which pod each holds.
#[derive(Clone, Debug, Default)]
struct Gpu {
    instances: Vec<(Spot, Option<PodNo>)>,
    /// The layout of the instances that hold pods.
    taken: StateId,
}

#[derive(Clone, Debug)]
struct Node {
    gpus: Vec<Gpu>,
    /// When it may change again.
    ready: u64,
    /// The change under way: when it ends, and the new instances by GPU.
    change: Option<(u64, Vec<(usize, Spot)>)>,
}

/// A fleet in which layouts change under [`Limits`].
pub struct Limited<'a> {
    states: &'a LayoutStates,
    limits: Limits,
    wants: Wants,
    lookahead: Lookahead,
    nodes: Vec<Node>,
    places: BTreeMap<PodNo, (usize, usize, Spot)>,
    allowance: Allowance,
    chance: Rng,
    used: u64,
    moved: u64,
    changes: u64,
}

impl<'a> Limited<'a> {
    /// A fleet cut into `layouts`, one a GPU. `arrivals` is by profile, in a mean lifetime.
    pub fn new(
        states: &'a LayoutStates,
        layouts: &[StateId],
        limits: Limits,
        arrivals: &[f64],
        allowance: Allowance,
        seed: u64,
    ) -> Limited<'a> {
        let gpu = |&state: &StateId| Gpu {
            instances: states.instances(state).iter().map(|&spot| (spot, None)).collect(),
            taken: StateId::default(),
        };
        let each: Vec<f64> = arrivals.iter().map(|rate| rate / layouts.len().max(1) as f64).collect();
        let node =
            |layouts: &[StateId]| Node { gpus: layouts.iter().map(gpu).collect(), ready: 0, change: None };
        Limited {
            states,
            limits,
            wants: Wants::new(states, arrivals),
            lookahead: Lookahead::new(states, &each),
            nodes: layouts.chunks(limits.gpus_a_node.max(1)).map(node).collect(),
            places: BTreeMap::new(),
            allowance,
            chance: Rng::new(seed, 4),
            used: 0,
            moved: 0,
            changes: 0,
        }
    }

    /// Layout changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether pods can start on a node now.
    fn open(&self, node: &Node) -> bool {
        self.limits.single_instances || node.change.is_none()
    }

    /// The node for a pod: where it loses least, on average over the free instances that kubelet may pick. What counts is the
    /// worth of the slices without pods, since free instances can be made into others.
    fn choose(&self, profile: u8, except: Option<usize>) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (at, node) in self.nodes.iter().enumerate() {
            if Some(at) == except || !self.open(node) {
                continue;
            }
            let (mut gain, mut count) = (0.0, 0u32);
            for (gpu, spot) in node.free(profile) {
                let taken = node.gpus[gpu].taken;
                let Some(after) = self.states.add(taken, spot) else { continue };
                gain += self.lookahead.gain(taken, after);
                count += 1;
            }
            if count > 0 && best.is_none_or(|(most, _)| gain / f64::from(count) > most) {
                best = Some((gain / f64::from(count), at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// Puts a pod on one of the node's free instances of the profile, as kubelet would.
    fn bind(&mut self, pod: PodNo, node: usize, profile: u8) {
        let free: Vec<(usize, Spot)> = self.nodes[node].free(profile).collect();
        let Some(&(gpu, spot)) = free.get(self.chance.below(free.len() as u64) as usize) else { return };
        self.set(node, gpu, spot, Some(pod));
        self.places.insert(pod, (node, gpu, spot));
        self.used += self.size(spot);
    }

    fn release(&mut self, pod: PodNo) {
        if let Some((node, gpu, spot)) = self.places.remove(&pod) {
            self.set(node, gpu, spot, None);
            self.used -= self.size(spot);
        }
    }

    /// A pod comes to an instance or leaves it.
    fn set(&mut self, node: usize, gpu: usize, spot: Spot, pod: Option<PodNo>) {
        let gpu = &mut self.nodes[node].gpus[gpu];
        let Some(instance) = gpu.instances.iter_mut().find(|(there, _)| *there == spot) else { return };
        instance.1 = pod;
        let after = match pod {
            Some(_) => self.states.add(gpu.taken, spot),
            None => self.states.remove(gpu.taken, spot),
        };
        gpu.taken = after.unwrap_or(gpu.taken);
    }

    fn size(&self, spot: Spot) -> u64 {
        u64::from(self.states.profiles()[usize::from(spot.profile)].memory_slices)
    }

    /// By profile: free instances, made or in the making, less waiting pods.
    fn balance(&self, queue: &Queue) -> Vec<i64> {
        let mut balance: Vec<i64> = queue.lengths().iter().map(|&n| -(n as i64)).collect();
        for node in &self.nodes {
            let made = node.gpus.iter().flat_map(|gpu| &gpu.instances).filter(|(_, pod)| pod.is_none());
            let coming = node.change.iter().flat_map(|(_, spots)| spots).map(|(_, spot)| spot);
            for spot in made.map(|(spot, _)| spot).chain(coming) {
                balance[usize::from(spot.profile)] += 1;
            }
        }
        balance
    }

    /// Ends changes whose time has come.
    fn finish(&mut self, now: u64) {
        for node in &mut self.nodes {
            if node.change.as_ref().is_some_and(|(end, _)| *end <= now)
                && let Some((_, spots)) = node.change.take()
            {
                for (gpu, spot) in spots {
                    node.gpus[gpu].instances.push((spot, None));
                }
            }
        }
    }

    fn start_waiting(&mut self, queue: &mut Queue, started: &mut Vec<PodNo>) {
        for profile in queue.by_age() {
            while let Some(pod) = queue.first(profile) {
                let Some(node) = self.choose(profile, None) else { break };
                queue.pop(profile);
                self.bind(pod, node, profile);
                started.push(pod);
            }
        }
    }

    /// Starts the change that pays best, if one does.
    fn change(&mut self, now: u64, queue: &Queue) -> bool {
        let balance = self.balance(queue);
        let mut best: Option<(f64, usize, NodePlan)> = None;
        for at in 0..self.nodes.len() {
            if self.nodes[at].ready > now || self.nodes[at].change.is_some() {
                continue;
            }
            let (gain, plan) = self.plan(at, &balance);
            if gain >= THRESHOLD && best.as_ref().is_none_or(|(most, _, _)| gain > *most) {
                best = Some((gain, at, plan));
            }
        }
        let Some((_, at, plan)) = best else { return false };
        for pod in plan.moves {
            let Some((_, _, spot)) = self.places.get(&pod).copied() else { continue };
            let Some(node) = self.choose(spot.profile, Some(at)) else { return false };
            self.release(pod);
            self.bind(pod, node, spot.profile);
            self.allowance.spent();
            self.moved += 1;
        }
        let mut created = Vec::new();
        for (gpu, layout) in plan.layouts {
            let instances = &mut self.nodes[at].gpus[gpu].instances;
            // What is wanted and there already stays where single instances can.
            let kept = |spot: &Spot| self.limits.single_instances && layout.contains(spot);
            instances.retain(|(spot, pod)| pod.is_some() || kept(spot));
            let missing = layout.iter().filter(|spot| !instances.iter().any(|(there, _)| there == *spot));
            created.extend(missing.map(|&spot| (gpu, spot)));
        }
        let (low, high) = self.limits.delay;
        let end = now + low + self.chance.below(high - low + 1);
        self.nodes[at].change = Some((end, created));
        self.nodes[at].ready = end + self.limits.cooldown;
        self.changes += 1;
        true
    }

    /// The best new layout of a node and what it gains, given the fleet's balance.
    fn plan(&self, at: usize, balance: &[i64]) -> (f64, NodePlan) {
        let node = &self.nodes[at];
        let mut balance = balance.to_vec();
        let mut plan = NodePlan::default();
        let mut gain = 0.0;
        let mut moves = self.allowance.whole();
        for (gpu, what) in node.gpus.iter().enumerate() {
            let before = balance.clone();
            let free = what.instances.iter().filter(|(_, pod)| pod.is_none()).map(|(spot, _)| *spot);
            let old = self.wants.take(&mut balance, free);
            let pods: Vec<(Spot, PodNo)> =
                what.instances.iter().filter_map(|&(spot, pod)| Some((spot, pod?))).collect();
            let mut best: Option<(f64, Vec<Spot>, bool)> = None;
            if self.limits.single_instances || pods.is_empty() {
                let (new, layout) = self.wants.fill(self.states, what.taken, &balance);
                best = Some((new - old, layout, false));
            }
            let lone = pods.len() == 1 && self.size(pods[0].0) < u64::from(self.states.model().memory_slices);
            if lone && moves > 0 {
                let mut there = balance.clone();
                if let Some(cost) = self.rehouse(at, &pods, &mut there) {
                    let (new, layout) = self.wants.fill(self.states, StateId::default(), &there);
                    let net = new - old - cost;
                    if best.as_ref().is_none_or(|(most, _, _)| net > *most) {
                        best = Some((net, layout, true));
                    }
                }
            }
            match best.filter(|(net, _, _)| *net > 0.0) {
                None => balance = before,
                Some((net, layout, drained)) => {
                    gain += net;
                    if drained {
                        let _ = self.rehouse(at, &pods, &mut balance);
                        moves = 0;
                        plan.moves.extend(pods.iter().map(|(_, pod)| *pod));
                    }
                    layout.iter().for_each(|spot| balance[usize::from(spot.profile)] += 1);
                    plan.layouts.push((gpu, layout));
                }
            }
        }
        (gain, plan)
    }

    /// What it costs to move these pods to free instances on other nodes, if there are such; takes those from the balance.
    fn rehouse(&self, node: usize, pods: &[(Spot, PodNo)], balance: &mut [i64]) -> Option<f64> {
        let others = self.nodes.iter().enumerate().filter(|(at, other)| *at != node && self.open(other));
        let mut free = vec![0usize; balance.len()];
        for spot in others.flat_map(|(_, other)| other.free_spots()) {
            free[usize::from(spot.profile)] += 1;
        }
        let mut cost = 0.0;
        for (spot, _) in pods {
            let at = usize::from(spot.profile);
            free[at] = free[at].checked_sub(1)?;
            cost += self.wants.take(balance, std::iter::once(*spot)) + MOVE_COST;
        }
        Some(cost)
    }
}

/// What becomes of a node.
#[derive(Clone, Debug, Default)]
struct NodePlan {
    /// Pods that move away first.
    moves: Vec<PodNo>,
    /// By GPU that changes: its free instances from then on.
    layouts: Vec<(usize, Vec<Spot>)>,
}

impl Node {
    fn free_spots(&self) -> impl Iterator<Item = Spot> {
        self.gpus
            .iter()
            .flat_map(|gpu| &gpu.instances)
            .filter(|(_, pod)| pod.is_none())
            .map(|(spot, _)| *spot)
    }

    fn free(&self, profile: u8) -> impl Iterator<Item = (usize, Spot)> {
        let free = self
            .gpus
            .iter()
            .enumerate()
            .flat_map(|(at, gpu)| gpu.instances.iter().map(move |what| (at, what)));
        free.filter(move |(_, (spot, pod))| spot.profile == profile && pod.is_none())
            .map(|(at, (spot, _))| (at, *spot))
    }
}

impl System for Limited<'_> {
    fn arrived(&mut self, _profile: u8) {
        self.allowance.arrived();
    }

    fn ended(&mut self, pod: PodNo) {
        self.release(pod);
    }

    fn settle(&mut self, now: u64, queue: &mut Queue, started: &mut Vec<PodNo>) -> Option<u64> {
        self.finish(now);
        self.start_waiting(queue, started);
        while !queue.is_empty() && self.change(now, queue) {
            self.start_waiting(queue, started);
        }
        let ends = self.nodes.iter().filter_map(|node| node.change.as_ref().map(|(end, _)| *end));
        let ready =
            self.nodes.iter().map(|node| node.ready).filter(|&ready| ready > now && !queue.is_empty());
        ends.chain(ready).min()
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn moved(&self) -> u64 {
        self.moved
    }
}
