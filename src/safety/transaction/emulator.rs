//! One node with everything around it that a change meets: API server, mig-manager or agent, device plugin, feature discovery,
//! pods and their owners. Time goes in steps of ten seconds; every fault that is documented can be switched on.
//!
//! The rules of the real ones are kept where they matter: mig-manager looks at nothing but a changed label value, knows a
//! name only a minute after it was published, and says `success` of the change before until it has begun the next; a PATCH on an
//! old resourceVersion is refused; nobody checks whether a pod still uses what is destroyed (that is what the test does).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Action, NoticeReason, begin, step};
use crate::mig::{Counts, NodeLayout};
use crate::model::{Admission, NodeName, PodId, Time};
use crate::planner::{Actuator, Blast, Evictee, Immovable, Proposal, Trigger, Why};
use crate::safety::document::{Reading, open, seal};
use crate::safety::journal::{Journal, Phase, PolicyVersion};
use crate::safety::observe::{Course, Trial};
use crate::safety::record::{ClusterRecord, Fleet};
use crate::safety::settings::Settings;
use crate::safety::world::{Answer, Cluster, Holder, Workload, World};

/// Unix seconds at which a test begins.
pub const BEGIN: u64 = 1_700_000_000;

/// Seconds of a step.
pub const TICK: u64 = 10;

/// What goes wrong with one thing that the actuator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// `pending` for ever, as when an operand's pod does not go.
    StuckPending,
    /// The GPUs that change are emptied, then it fails.
    FailsEmpty,
    /// One GPU is left half-way, then it fails.
    FailsHalf,
    /// It says success and has done nothing.
    SaysSuccess,
    /// All is done, and the device plugin does not notice until it is restarted.
    Unadvertised,
    /// All is done, and the device plugin never notices, as where only a reboot helps.
    NeverAdvertised,
    /// It begins only after minutes; until then the last success stands.
    StaleSuccess,
}

pub const FAULTS: [Fault; 8] = [
    Fault::None,
    Fault::StuckPending,
    Fault::FailsEmpty,
    Fault::FailsHalf,
    Fault::SaysSuccess,
    Fault::Unadvertised,
    Fault::NeverAdvertised,
    Fault::StaleSuccess,
];

#[derive(Clone, Debug)]
pub struct EmulatedPod {
    pub gpu: u16,
    pub movable: Result<(), Immovable>,
    pub workload: Arc<str>,
    pub goes_at: Option<u64>,
    pub crashing: bool,
}

/// What the actuator is doing.
#[derive(Clone, Debug)]
struct Task {
    begins: u64,
    acts: u64,
    fault: Fault,
}

#[derive(Clone, Debug)]
pub struct Emulator {
    pub now: u64,
    pub actuator: Actuator,
    pub settings: Settings,
    pub nodes: usize,
    // The node object.
    pub version: u64,
    pub journal: Option<String>,
    pub our_cordon: bool,
    pub unschedulable: bool,
    pub told: Option<String>,
    pub answer: Answer,
    pub allocatable: Counts,
    pub discovered: Counts,
    pub paused: bool,
    pub ready: bool,
    // Elsewhere.
    pub record: Option<String>,
    pub cluster_paused: bool,
    pub published: BTreeMap<String, (NodeLayout, u64)>,
    pub actual: NodeLayout,
    pub pods: BTreeMap<PodId, EmulatedPod>,
    pub replaced: BTreeMap<Arc<str>, (u32, u64)>,
    pub replicas: u32,
    pub budget_refuses: bool,
    pub replacement_secs: u64,
    pub harmful: bool,
    pub blind: bool,
    // The actuator.
    seen: Option<String>,
    task: Option<Task>,
    pub faults: Vec<Fault>,
    advertises_at: Option<u64>,
    nudge_helps: bool,
    // What the test asks at the end.
    pub forward: Vec<u64>,
    pub tells: Vec<u64>,
    pub notices: Vec<(NoticeReason, String)>,
    pub evicted: usize,
    pub broken: Vec<String>,
}

/// An observation, and the version under which it may be acted upon.
#[derive(Clone, Debug)]
pub struct Seen {
    pub version: u64,
    pub world: World,
    pub cluster: Cluster,
}

pub fn node_layout(gpus: &[&str]) -> NodeLayout {
    serde_json::from_value(serde_json::json!({"model": "A100-40GB", "gpus": gpus})).unwrap()
}

pub fn name() -> NodeName {
    "n0".into()
}

pub fn pod(text: &str) -> PodId {
    PodId { namespace: "ns".into(), name: text.into(), uid: text.into() }
}

impl Emulator {
    pub fn new(actuator: Actuator, from: &NodeLayout) -> Emulator {
        Emulator {
            now: BEGIN,
            actuator,
            settings: Settings::default(),
            nodes: 10,
            version: 1,
            journal: None,
            our_cordon: false,
            unschedulable: false,
            told: Some("by-hand".to_owned()),
            answer: Answer::Done,
            allocatable: from.counts(),
            discovered: from.counts(),
            paused: false,
            ready: true,
            record: None,
            cluster_paused: false,
            published: BTreeMap::new(),
            actual: from.clone(),
            pods: BTreeMap::new(),
            replaced: BTreeMap::new(),
            replicas: 2,
            budget_refuses: false,
            replacement_secs: 30,
            harmful: false,
            blind: false,
            seen: Some("by-hand".to_owned()),
            task: None,
            faults: Vec::new(),
            advertises_at: None,
            nudge_helps: true,
            forward: Vec::new(),
            tells: Vec::new(),
            notices: Vec::new(),
            evicted: 0,
            broken: Vec::new(),
        }
    }

    pub fn time(&self) -> Time {
        Time::from_secs(self.now)
    }

    pub fn add_pod(&mut self, text: &str, gpu: u16, movable: Result<(), Immovable>) {
        let workload = format!("rs-{text}").into();
        self.pods.insert(pod(text), EmulatedPod { gpu, movable, workload, goes_at: None, crashing: false });
        self.version += 1;
    }

    pub fn read_journal(&self) -> Journal {
        match open(self.journal.as_deref()) {
            Reading::Valid(journal) => journal,
            Reading::Absent | Reading::Damaged(_) => Journal::default(),
        }
    }

    pub fn read_record(&self) -> ClusterRecord {
        match open(self.record.as_deref()) {
            Reading::Valid(record) => record,
            Reading::Absent | Reading::Damaged(_) => ClusterRecord::default(),
        }
    }

    pub fn fleet(&self) -> Fleet {
        let nodes: BTreeSet<NodeName> = (0..self.nodes).map(|at| format!("n{at}").into()).collect();
        let changing = self.read_journal().change.map(|_| name()).into_iter().collect();
        Fleet { known: nodes.clone(), eligible: nodes, changing }
    }

    pub fn observe(&self) -> Seen {
        let holder = |(id, pod): (&PodId, &EmulatedPod)| Holder {
            pod: id.clone(),
            gpus: Some([pod.gpu].into()),
            movable: pod.movable,
            terminating: pod.goes_at.is_some(),
            crashing: pod.crashing,
        };
        let workloads =
            self.pods.values().map(|pod| pod.workload.clone()).chain(self.replaced.keys().cloned());
        let world = World {
            journal: open(self.journal.as_deref()),
            ready: self.ready,
            unschedulable: self.unschedulable,
            our_cordon: self.our_cordon,
            paused: self.paused,
            told: self.told.clone(),
            answer: self.answer.clone(),
            allocatable: self.allocatable.clone(),
            discovered: self.discovered.clone(),
            placed: (self.actuator == Actuator::Agent).then(|| self.actual.clone()),
            published: self.published.keys().cloned().collect(),
            holders: self.pods.iter().map(holder).collect(),
            workloads: workloads.map(|uid| (uid.clone(), self.workload(&uid))).collect(),
            trial: self.trial(),
        };
        let cluster = Cluster {
            record: open(self.record.as_deref()),
            paused: self.cluster_paused,
            server_time: Some(self.time()),
        };
        Seen { version: self.version, world, cluster }
    }

    fn workload(&self, uid: &Arc<str>) -> Workload {
        let missing = self.replaced.get(uid).filter(|(_, at)| *at > self.now).map_or(0, |(count, _)| *count);
        Workload { ready: self.replicas.saturating_sub(missing), wanted: self.replicas, may_pause: false }
    }

    fn trial(&self) -> Trial {
        let Some(change) = self.read_journal().change else { return Trial::default() };
        let Phase::Observing { since, .. } = change.phase else { return Trial::default() };
        let warm = since.age(self.time()).as_secs().saturating_sub(self.settings.timings.warm_up.as_secs());
        let value = if self.harmful { 0.2 } else { 0.5 };
        let value = if self.blind { f64::NAN } else { value };
        let after = vec![value; warm as usize / 60];
        Trial { node: Course { before: vec![0.5; 10], after }, ..Trial::default() }
    }

    /// The proposal to go from what there is to `to`, moving whoever is in the way.
    pub fn proposal(&self, to: &NodeLayout) -> Proposal {
        let gpus = self.actuator.touches(&self.actual, to);
        let inside = self.pods.iter().filter(|(_, pod)| gpus.contains(&pod.gpu) && pod.movable.is_ok());
        let evictee = |(id, pod): (&PodId, &EmulatedPod)| Evictee {
            pod: id.clone(),
            workload: pod.workload.clone(),
            profiles: vec!["1g.5gb".parse().unwrap()],
            home: "n1".into(),
        };
        Proposal {
            node: name(),
            actuator: self.actuator,
            from: self.actual.clone(),
            to: to.clone(),
            evictees: inside.map(evictee).collect(),
            why: Why {
                triggers: vec![Trigger::Pending([("3g.20gb".parse().unwrap(), 1)].into())],
                horizon_minutes: 10,
                demand: BTreeMap::new(),
                gain: 2,
                cost: 1,
                blast: Blast::default(),
            },
        }
    }

    /// Everything that the scheduler would do now, by an observation that may be old.
    pub fn decide(&self, seen: &Seen, wanted: Option<&NodeLayout>) -> Vec<Action> {
        let time = self.time();
        let mut actions = step(time, &self.settings, &name(), &seen.world, &seen.cluster);
        let idle = !matches!(&seen.world.journal, Reading::Valid(journal) if journal.change.is_some());
        if let (true, true, Some(to)) = (idle, actions.is_empty(), wanted) {
            let policy = PolicyVersion("p".to_owned());
            let proposal = self.proposal(to);
            let begun =
                begin(time, &self.settings, &proposal, &policy, &seen.world, &seen.cluster, &self.fleet());
            actions.extend(begun.unwrap_or_default());
        }
        if actions.is_empty() {
            let leftovers = self.read_record().leftovers(time, &self.fleet(), &self.settings);
            actions.extend(leftovers.map(Action::Record));
        }
        actions
    }

    /// Carries one action out; false if it was refused.
    pub fn act(&mut self, action: &Action, version: u64) -> bool {
        match action {
            Action::Patch(patch) => {
                if version != self.version {
                    return false;
                }
                self.journal = Some(seal(&patch.journal).unwrap());
                if let Some(cordon) = patch.cordon {
                    (self.our_cordon, self.unschedulable) = (cordon, cordon);
                }
                if patch.tell.is_some() {
                    self.tell(patch.tell.clone());
                }
                self.version += 1;
            }
            Action::Tell { name, layout } => {
                self.published.insert(name.clone(), (layout.clone(), 0));
                self.tell(Some(name.clone()));
            }
            Action::Publish(names) => {
                for (name, layout) in names {
                    let kept = self.published.entry(name.clone()).or_insert((layout.clone(), self.now));
                    if kept.0.counts_by_gpu() != layout.counts_by_gpu() {
                        self.broken.push(format!("{name} stands for two layouts"));
                    }
                }
            }
            Action::Evict(id) => self.evict(id),
            Action::RestartDevicePlugin => {
                if self.nudge_helps {
                    self.advertises_at = Some(self.now + 20);
                }
            }
            Action::Record(edit) => {
                let record = self.read_record();
                if let Some(after) = record.edited(self.time(), edit, &self.fleet(), &self.settings) {
                    self.record = Some(seal(&after).unwrap());
                }
            }
            Action::RenewRecord => self.record = Some(seal(&ClusterRecord::renewed(self.time())).unwrap()),
            Action::Notify(notice) => self.notices.push((notice.reason, notice.message.clone())),
        }
        true
    }

    fn tell(&mut self, name: Option<String>) {
        if self.told == name {
            return;
        }
        let journal = self.read_journal();
        if matches!(journal.change.map(|change| change.phase), Some(Phase::Applying { .. })) {
            if let Some(last) = self.tells.last().filter(|last| self.now - **last < 3_600) {
                self.broken.push(format!("a forward change {}s after the last", self.now - last));
            }
            self.forward.push(self.now);
        }
        self.tells.push(self.now);
        self.told = name;
        self.version += 1;
    }

    fn evict(&mut self, id: &PodId) {
        let (refuses, now) = (self.budget_refuses, self.now);
        let Some(pod) = self.pods.get_mut(id) else { return };
        if pod.movable.is_err() {
            self.broken.push(format!("{id} was evicted"));
        }
        if refuses || pod.goes_at.is_some() {
            return;
        }
        pod.goes_at = Some(now + 20);
        self.replaced.insert(pod.workload.clone(), (1, now + self.replacement_secs));
        self.evicted += 1;
        self.version += 1;
    }

    /// Ten seconds pass.
    pub fn tick(&mut self) {
        self.now += TICK;
        let now = self.now;
        let before = self.pods.len();
        self.pods.retain(|_, pod| pod.goes_at.is_none_or(|at| at > now));
        self.version += u64::from(self.pods.len() != before);
        if self.told != self.seen {
            self.seen = self.told.clone();
            let fault = if self.faults.is_empty() { Fault::None } else { self.faults.remove(0) };
            let delay = if fault == Fault::StaleSuccess { 120 } else { 10 };
            self.task = Some(Task { begins: now + delay, acts: now + delay + 40, fault });
        }
        self.work();
        if self.advertises_at.is_some_and(|at| at <= now) {
            self.advertises_at = None;
            self.allocatable = self.actual.counts();
            self.discovered = self.actual.counts();
            self.version += 1;
        }
    }

    fn work(&mut self) {
        let Some(task) = self.task.clone().filter(|task| self.now >= task.begins) else { return };
        let known = self.told.as_ref().and_then(|name| self.published.get(name));
        let Some((layout, _)) = known.filter(|(_, since)| self.now >= since + 60).cloned() else {
            return self.finish(Answer::Failed("unknown configuration".to_owned()));
        };
        if self.answer != Answer::Working {
            self.answer = Answer::Working;
            self.version += 1;
        }
        if self.now < task.acts || task.fault == Fault::StuckPending {
            return;
        }
        if task.fault == Fault::SaysSuccess {
            return self.finish(Answer::Done);
        }
        let gpus = self.actuator.touches(&self.actual, &layout);
        for (id, pod) in &self.pods {
            if gpus.contains(&pod.gpu) {
                self.broken.push(format!("{id} lost its instance"));
            }
        }
        match task.fault {
            Fault::FailsEmpty | Fault::FailsHalf => {
                let part = usize::from(task.fault == Fault::FailsHalf);
                let half = |(at, gpu): (usize, &crate::mig::Layout)| match gpus.contains(&(at as u16)) {
                    true => crate::mig::Layout::new(gpu.model(), gpu.placements().iter().take(part).copied()),
                    false => Ok(gpu.clone()),
                };
                let half = layout.gpus().iter().enumerate().map(half).collect::<Result<_, _>>().unwrap();
                self.actual = NodeLayout::new(layout.model(), half).unwrap();
                self.advertises_at = Some(self.now + 40);
                return self.finish(Answer::Failed("apply".to_owned()));
            }
            Fault::Unadvertised | Fault::NeverAdvertised => {
                self.advertises_at = None;
                self.nudge_helps = task.fault == Fault::Unadvertised;
            }
            _ => {
                self.advertises_at = Some(self.now + 40);
                self.nudge_helps = true;
            }
        }
        self.actual = layout;
        self.finish(Answer::Done);
    }

    fn finish(&mut self, answer: Answer) {
        self.task = None;
        self.answer = answer;
        self.version += 1;
    }

    pub fn admits(&self) -> Admission {
        self.read_journal().admission()
    }
}
