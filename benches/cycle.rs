//! What one decision costs, at 1,000, 5,000 and 15,000 nodes.
//!
//! - `replica`: a pod whose equals were decided about before, which is how Deployments arrive; it is bound and ends, so that
//!   the rankings always have something to catch up with.
//! - `new_spec`: a pod unlike any before, so that every node is looked at.
//! - `refused`: a pod that no node can take, with its explanation over all nodes.
//! - `beside_terms`: a replica, while 300 running pods of its namespace hold affinity terms that do not concern it.
//! - `apart`: one that keeps apart from its like by host, of which 300 run already.
//! - `spread`: one that is spread over three zones (`DoNotSchedule`), of which 300 run already.
//! - `evenly`: the same, but only preferred (`ScheduleAnyway`), over zones and hosts.
//!
//! Figures are times a decision; compare them across sizes, not across machines.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mig_scheduler::effect::Effect;
use mig_scheduler::engine::{Engine, Options};
use mig_scheduler::event::{BindOutcome, Event};
use mig_scheduler::model::{
    Admission, AffinityTerm, LabelSelector, Labels, MigConfigState, MigRequest, Node, Operator, Partitioning,
    Pod, PodId, PodSelection, PodSpec, Relations, Requirement, ResourceName, Resources, SpreadConstraint,
    Time, Upkeep,
};

const SIZES: [usize; 3] = [1_000, 5_000, 15_000];
const PROFILES: [(&str, u64); 3] = [("1g.5gb", 32), ("2g.10gb", 16), ("3g.20gb", 8)];

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// Pods that run already where other pods have a say.
const RUNNING: u64 = 300;

fn resource(profile: &str) -> ResourceName {
    ResourceName::from(format!("nvidia.com/mig-{profile}"))
}

fn node(at: usize) -> Node {
    let mut allocatable = Resources::default();
    allocatable.cpu_milli = 128_000;
    allocatable.memory = 1 << 40;
    allocatable.pods = 250;
    for (profile, count) in PROFILES {
        allocatable.set(resource(profile), count);
    }
    Node {
        name: format!("node-{at:05}").into(),
        labels: [
            (ZONE.into(), format!("zone-{}", at % 3).into()),
            (HOST.into(), format!("node-{at:05}").into()),
        ]
        .into(),
        taints: Vec::new(),
        unschedulable: false,
        our_cordon: false,
        admission: Admission::All,
        allocatable,
        mig_config_state: MigConfigState::Success,
        gpu_model: mig_scheduler::mig::GpuModel::by_name("A100-40GB").ok(),
        partitioning: Partitioning::Fixed,
        features: [].into(),
        images: [].into(),
    }
}

fn spec(profile: &str, cpu_milli: u64) -> Arc<PodSpec> {
    let mut spec = PodSpec::default();
    spec.requests.cpu_milli = cpu_milli;
    spec.requests.pods = 1;
    spec.requests.set(resource(profile), 1);
    let profile = profile.parse().expect("a profile");
    spec.mig = vec![MigRequest { profile, resource: ResourceName::from(profile.resource_name()), count: 1 }];
    Arc::new(spec)
}

/// The pods of the bench's namespace with this label.
fn selector(app: &str) -> LabelSelector {
    let values = vec![app.into()];
    LabelSelector::All(vec![Requirement { key: "app".into(), operator: Operator::In, values }])
}

fn related(relations: Relations) -> Arc<PodSpec> {
    let namespace = "ns".into();
    let relations = Relations { namespace, ..relations };
    Arc::new(PodSpec { relations: Some(Arc::new(relations)), ..(*spec("1g.5gb", 100)).clone() })
}

fn apart(app: &str) -> Arc<PodSpec> {
    let namespaces = ["ns".into()].into();
    let pods = PodSelection { namespaces, selector: selector(app), ..PodSelection::default() };
    let term = AffinityTerm { topology_key: HOST.into(), pods };
    related(Relations { anti_affinity: vec![term], ..Relations::default() })
}

fn constraint(key: &str) -> SpreadConstraint {
    SpreadConstraint {
        topology_key: key.into(),
        max_skew: 1,
        selector: selector("web"),
        min_domains: 1,
        honors_affinity: true,
        honors_taints: false,
        counts_itself: true,
    }
}

/// An engine over a cluster, and pods to throw at it.
struct Bench {
    engine: Engine,
    effects: Vec<Effect>,
    pods: u64,
    /// Every pod's, shared as a conversion shares them.
    labels: Arc<Labels>,
}

impl Bench {
    fn new(nodes: usize) -> Bench {
        let engine = Engine::new(Options::default());
        let labels = Arc::new([("app".into(), "web".into())].into());
        let mut bench = Bench { engine, effects: Vec::new(), pods: 0, labels };
        (0..nodes).for_each(|at| bench.step(Event::NodeApplied(node(at))));
        bench.step(Event::Synced);
        bench
    }

    fn step(&mut self, event: Event) {
        self.effects.clear();
        self.engine.step(Time::from_secs(self.pods), event, &mut self.effects);
    }

    /// One pod arrives, is decided about and leaves again.
    fn decide(&mut self, spec: &Arc<PodSpec>) -> bool {
        let before = self.engine.cache().pod_count();
        let (uid, bound) = self.place(spec);
        self.step(Event::PodDeleted(uid.as_str().into()));
        assert_eq!(self.engine.cache().pod_count(), before, "nothing of it stays");
        bound
    }

    /// [`RUNNING`] pods arrive and stay.
    fn fill(&mut self, spec: &Arc<PodSpec>) {
        (0..RUNNING).for_each(|_| assert!(self.place(spec).1));
    }

    /// One pod arrives and is decided about: its uid, and whether it was bound.
    fn place(&mut self, spec: &Arc<PodSpec>) -> (String, bool) {
        self.pods += 1;
        let uid = format!("uid-{}", self.pods);
        let id = PodId { namespace: "ns".into(), name: uid.as_str().into(), uid: uid.as_str().into() };
        self.step(Event::PodApplied(Pod {
            id,
            scheduler_name: "mig-scheduler".into(),
            node: None,
            priority: 0,
            preempts: true,
            nominated: None,
            started: None,
            created: Time::ZERO,
            labels: Arc::clone(&self.labels),
            spec: Arc::clone(spec),
            gated: false,
            terminating: false,
            preempted: false,
            finished: false,
            upkeep: Upkeep::default(),
            crashing: false,
            generation: 1,
            volumes: None,
            placements: Vec::new(),
        }));
        self.step(Event::Tick { budget: 1 });
        let bind = self.effects.iter().find_map(|effect| match effect {
            Effect::Bind(bind) => Some(bind.node.clone()),
            _ => None,
        });
        let bound = bind.is_some();
        if let Some(node) = bind {
            self.step(Event::BindFinished { uid: uid.as_str().into(), node, outcome: BindOutcome::Bound });
        }
        (uid, bound)
    }
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    group.throughput(Throughput::Elements(1)).sample_size(20).warm_up_time(Duration::from_secs(1));
    for nodes in SIZES {
        let mut bench = Bench::new(nodes);
        let replicas: Vec<_> = PROFILES.iter().map(|(profile, _)| spec(profile, 100)).collect();
        let mut at = 0;
        group.bench_function(BenchmarkId::new("replica", nodes), |timer| {
            timer.iter(|| {
                at += 1;
                assert!(bench.decide(&replicas[at % replicas.len()]));
            });
        });
        let mut cpu_milli = 0;
        group.bench_function(BenchmarkId::new("new_spec", nodes), |timer| {
            timer.iter(|| {
                cpu_milli += 1;
                assert!(bench.decide(&spec("1g.5gb", 1 + cpu_milli % 100_000)));
            });
        });
        let refused = spec("7g.40gb", 100);
        group.bench_function(BenchmarkId::new("refused", nodes), |timer| {
            timer.iter(|| assert!(!bench.decide(&refused)));
        });
        let spread = Relations { spread: vec![constraint(ZONE)], ..Relations::default() };
        let softly = vec![constraint(ZONE), constraint(HOST)];
        let evenly = Relations { spread_softly: softly, ..Relations::default() };
        for (name, running, arriving) in [
            ("beside_terms", apart("db"), spec("1g.5gb", 100)),
            ("apart", apart("web"), apart("web")),
            ("spread", related(spread.clone()), related(spread)),
            ("evenly", related(evenly.clone()), related(evenly)),
        ] {
            let mut bench = Bench::new(nodes);
            bench.fill(&running);
            group.bench_function(BenchmarkId::new(name, nodes), |timer| {
                timer.iter(|| assert!(bench.decide(&arriving)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
