//! Clusters as text, and reproducible chance, for the tests of the pure modules.
//!
//! A node: `n0 cpu=4000 1g.5gb=2 taint=gpu label=zone:a cordoned state=pending`
//! (`changing` and `changed`: cordoned by ourselves, before and after a layout's change), or with GPUs that are cut on demand
//! `n0 A100-40GB*2`. A pod: `p0 cpu=100 1g.5gb=1 prio=5 tolerates=gpu zone=a port=80 on=n1`. Everything not said is roomy
//! on nodes and absent on pods. A node may also have `shy=key` (a `PreferNoSchedule` taint), `feature=x` and `image=x:bytes`;
//! a pod `ns=other`, `label=app:web`, `claim=data`, `ephemeral=scratch` (a volume of that name),
//! `ebs=vol-1` (a disk of Amazon's cloud), `prefers=zone:a*10` (nodes), `feature=x`, `image=x`, `started=7`, `nominated=n0`, `meek`
//! (`preemptionPolicy: Never`), `movable`, `crashing`, `replicas=rs-1` (its ReplicaSet), `preempted` (it ends for another's sake), and rules about other pods:
//!
//! ```text
//!   near=zone/app:web     required affinity              likes=zone/app:web*10      preferred affinity
//!   apart=zone/app:web    required anti-affinity         dislikes=zone/app:web*10   preferred anti-affinity
//!   spread=zone/app:web/1 DoNotSchedule, maxSkew 1       evenly=zone/app:web/1      ScheduleAnyway
//! ```
//!
//! A selector is `app:web`, `app` (has it), `!app`, `app!web` (another value or none), several joined by `+`, `*` for every
//! pod or `-` for none. After it `@other` names a namespace, `@team:a` selects namespaces by label, `@*` all. A spread
//! constraint may go on with `/min3` (`minDomains`), `/anynode` (`nodeAffinityPolicy: Ignore`) and `/taints`
//! (`nodeTaintsPolicy: Honor`). The key `host` stands for `kubernetes.io/hostname`.

mod storage;

use std::sync::Arc;

pub use storage::storage;

use crate::mig::{GpuModel, ProfileName};
use crate::model::{
    Admission, AffinityTerm, ClaimUse, Disk, HostPort, LabelSelector, Labels, MigConfigState, MigRequest,
    Node, NodeSelectorTerm, Operator, Partitioning, Pod, PodId, PodSelection, PodSpec, Protocol, Relations,
    Requirement, ResourceName, Resources, SpreadConstraint, Taint, TaintEffect, Time, Toleration, Upkeep,
};

/// A stream of numbers below the bound it is asked for, the same for the same seed (Knuth's MMIX generator).
pub fn chance(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    }
}

/// Parses one node.
pub fn node(text: &str) -> Node {
    let mut words = text.split_whitespace();
    let mut node = Node {
        name: words.next().unwrap().into(),
        labels: [].into(),
        taints: Vec::new(),
        unschedulable: false,
        our_cordon: false,
        admission: Admission::All,
        allocatable: Resources::default(),
        mig_config_state: MigConfigState::Absent,
        gpu_model: None,
        partitioning: Partitioning::Fixed,
        features: [].into(),
        images: [].into(),
    };
    for (name, amount) in [("cpu", "64000"), ("memory", "1099511627776"), ("pods", "110")] {
        set(&mut node.allocatable, name, amount);
    }
    for word in words {
        match word.split_once('=') {
            None if word == "cordoned" => node.unschedulable = true,
            None if word == "changing" => {
                (node.unschedulable, node.our_cordon, node.admission) = (true, true, Admission::None);
            }
            None if word == "changed" => {
                (node.unschedulable, node.our_cordon, node.admission) = (true, true, Admission::Movable);
            }
            None => {
                let (model, gpus) = word.split_once('*').unwrap();
                let model = GpuModel::by_name(model).unwrap();
                node.gpu_model = Some(model);
                node.partitioning = Partitioning::OnDemand { model, gpus: gpus.parse().unwrap() };
            }
            Some(("taint", key)) => {
                node.taints.push(Taint {
                    key: key.into(),
                    value: "".into(),
                    effect: TaintEffect::NoSchedule,
                });
            }
            Some(("shy", key)) => {
                node.taints.push(Taint {
                    key: key.into(),
                    value: "".into(),
                    effect: TaintEffect::PreferNoSchedule,
                });
            }
            Some(("label", pair)) => label(&mut node.labels, pair),
            Some(("feature", name)) => drop(node.features.insert(name.into())),
            Some(("image", pair)) => {
                let (name, size) = pair.rsplit_once(':').unwrap();
                node.images.insert(name.into(), size.parse().unwrap());
            }
            Some(("state", "success")) => node.mig_config_state = MigConfigState::Success,
            Some(("state", state)) => node.mig_config_state = MigConfigState::Unsettled(state.into()),
            Some((name, amount)) => set(&mut node.allocatable, name, amount),
        }
    }
    node
}

/// Parses one pod; its uid is its name.
pub fn pod(text: &str) -> Pod {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap();
    let mut spec = PodSpec::default();
    spec.requests.pods = 1;
    let mut labels = Labels::new();
    let mut relations = Relations::default();
    let mut volumes = Vec::new();
    let mut pod = Pod {
        id: PodId { namespace: "ns".into(), name: name.into(), uid: name.into() },
        scheduler_name: "mig-scheduler".into(),
        node: None,
        priority: 0,
        preempts: true,
        nominated: None,
        started: None,
        created: Time::ZERO,
        labels: Arc::default(),
        spec: Arc::default(),
        gated: false,
        terminating: false,
        preempted: false,
        finished: false,
        upkeep: Upkeep::default(),
        crashing: false,
        generation: 1,
        volumes: None,
        placements: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            None if word == "gated" => pod.gated = true,
            None if word == "finished" => pod.finished = true,
            None if word == "meek" => pod.preempts = false,
            None if word == "preempted" => (pod.terminating, pod.preempted) = (true, true),
            None if word == "terminating" => pod.terminating = true,
            None if word == "movable" => spec.movable = true,
            None if word == "crashing" => pod.crashing = true,
            Some(("replicas", uid)) => pod.upkeep.replica_set = Some(uid.into()),
            None => panic!("{word} in {text}"),
            Some(("prio", value)) => pod.priority = value.parse().unwrap(),
            Some(("started", value)) => pod.started = Some(Time::from_secs(value.parse().unwrap())),
            Some(("nominated", node)) => pod.nominated = Some(node.into()),
            Some(("created", value)) => pod.created = Time::from_secs(value.parse().unwrap()),
            Some(("ns", namespace)) => pod.id.namespace = namespace.into(),
            Some(("label", pair)) => label(&mut labels, pair),
            Some(("claim", name)) => volumes.push(ClaimUse { name: name.into(), ephemeral: false }),
            Some(("ephemeral", volume)) => {
                volumes.push(ClaimUse { name: format!("{name}-{volume}").into(), ephemeral: true });
            }
            Some(("ebs", id)) => spec.disks.push(Disk::Ebs { id: id.into() }),
            Some(("feature", name)) => spec.features.push(name.into()),
            Some(("image", name)) => spec.images.push(name.into()),
            Some(("prefers", text)) => {
                let (text, weight) = text.split_once('*').unwrap();
                let match_expressions = vec![requirement(text)];
                let term = NodeSelectorTerm { match_expressions, ..NodeSelectorTerm::default() };
                spec.preferred_nodes.push((weight.parse().unwrap(), term));
            }
            Some(("near", text)) => relations.affinity.push(term(text)),
            Some(("apart", text)) => relations.anti_affinity.push(term(text)),
            Some(("likes", text)) => relations.preferred.push(weighted(text)),
            Some(("dislikes", text)) => {
                let (weight, term) = weighted(text);
                relations.preferred.push((-weight, term));
            }
            Some(("spread", text)) => relations.spread.push(spread(text)),
            Some(("evenly", text)) => relations.spread_softly.push(spread(text)),
            Some(("on", node)) => pod.node = Some(node.into()),
            Some(("by", scheduler)) => pod.scheduler_name = scheduler.into(),
            Some(("tolerates", key)) => {
                spec.tolerations.push(Toleration { key: Some(key.into()), value: None, effect: None });
            }
            Some(("zone", zone)) => drop(spec.selector.labels.insert("zone".into(), zone.into())),
            Some(("port", port)) => {
                let port = port.parse().unwrap();
                spec.host_ports.push(HostPort { port, protocol: Protocol::Tcp, address: None });
            }
            Some((name, amount)) => {
                set(&mut spec.requests, name, amount);
                if let Ok(profile) = name.parse::<ProfileName>() {
                    let resource = ResourceName::from(profile.resource_name());
                    spec.mig.push(MigRequest { profile, resource, count: amount.parse().unwrap() });
                }
            }
        }
    }
    if !relations.is_empty() {
        relate(&mut relations, &pod.id.namespace, &labels);
        spec.relations = Some(Arc::new(relations));
    }
    pod.volumes = (!volumes.is_empty()).then(|| volumes.into());
    (pod.spec, pod.labels) = (Arc::new(spec), Arc::new(labels));
    pod
}

/// Resolves rules against their pod, as a conversion does.
fn relate(relations: &mut Relations, namespace: &Arc<str>, labels: &Labels) {
    relations.namespace = Arc::clone(namespace);
    let preferred = relations.preferred.iter_mut().map(|(_, term)| term);
    for term in relations.affinity.iter_mut().chain(&mut relations.anti_affinity).chain(preferred) {
        if term.pods.namespaces.is_empty() && term.pods.namespace_selector.is_nothing() {
            term.pods.namespaces.insert(Arc::clone(namespace));
        }
    }
    relations.attracts_itself = relations.affinity.iter().all(|term| term.pods.selector.matches(labels));
    for constraint in relations.spread.iter_mut().chain(&mut relations.spread_softly) {
        constraint.counts_itself = constraint.selector.matches(labels);
    }
}

/// Parses the labels of a namespace: `team:a stage:prod`.
pub fn labels(text: &str) -> Labels {
    let mut labels = Labels::new();
    text.split_whitespace().for_each(|pair| label(&mut labels, pair));
    labels
}

fn label(labels: &mut Labels, pair: &str) {
    let (name, value) = pair.split_once(':').unwrap();
    labels.insert(key(name), value.into());
}

fn key(name: &str) -> Arc<str> {
    if name == "host" { "kubernetes.io/hostname".into() } else { name.into() }
}

fn requirement(text: &str) -> Requirement {
    let (name, operator, value) = match (text.strip_prefix('!'), text.split_once('!'), text.split_once(':')) {
        (Some(name), _, _) => (name, Operator::DoesNotExist, None),
        (_, Some((name, value)), _) => (name, Operator::NotIn, Some(value)),
        (_, _, Some((name, value))) => (name, Operator::In, Some(value)),
        _ => (text, Operator::Exists, None),
    };
    Requirement { key: key(name), operator, values: value.into_iter().map(Arc::from).collect() }
}

fn selector(text: &str) -> LabelSelector {
    match text {
        "-" => LabelSelector::Nothing,
        "*" => LabelSelector::All(Vec::new()),
        _ => LabelSelector::All(text.split('+').map(requirement).collect()),
    }
}

/// `zone/app:web@other`
fn term(text: &str) -> AffinityTerm {
    let (name, pods) = text.split_once('/').unwrap();
    let (pods, namespaces) = pods.split_once('@').unwrap_or((pods, ""));
    let mut selection = PodSelection { selector: selector(pods), ..PodSelection::default() };
    match namespaces {
        "" => {}
        text if text.contains([':', '!', '*']) => selection.namespace_selector = selector(text),
        name => drop(selection.namespaces.insert(name.into())),
    }
    AffinityTerm { topology_key: key(name), pods: selection }
}

fn weighted(text: &str) -> (i64, AffinityTerm) {
    let (text, weight) = text.rsplit_once('*').unwrap();
    (weight.parse().unwrap(), term(text))
}

/// `zone/app:web/1/min3`
fn spread(text: &str) -> SpreadConstraint {
    let parts: Vec<&str> = text.split('/').collect();
    let least = parts.iter().find_map(|part| part.strip_prefix("min"));
    SpreadConstraint {
        topology_key: key(parts[0]),
        max_skew: parts[2].parse().unwrap(),
        selector: selector(parts[1]),
        min_domains: least.map_or(1, |least| least.parse().unwrap()),
        honors_affinity: !parts.contains(&"anynode"),
        honors_taints: parts.contains(&"taints"),
        counts_itself: false,
    }
}

fn set(resources: &mut Resources, name: &str, amount: &str) {
    let amount = amount.parse().unwrap();
    match name {
        "cpu" => resources.cpu_milli = amount,
        "memory" => resources.memory = amount,
        "pods" => resources.pods = amount,
        "disk" => resources.ephemeral_storage = amount,
        _ => match name.parse::<ProfileName>() {
            Ok(profile) => resources.set(profile.resource_name().into(), amount),
            Err(_) => resources.set(name.into(), amount),
        },
    }
}
