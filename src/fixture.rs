//! Clusters as text, and reproducible chance, for the tests of the pure modules.
//!
//! A node: `n0 cpu=4000 1g.5gb=2 taint=gpu label=zone:a cordoned state=pending`, or with GPUs that are cut on demand
//! `n0 A100-40GB*2`. A pod: `p0 cpu=100 1g.5gb=1 prio=5 tolerates=gpu zone=a port=80 on=n1`. Everything not said is roomy
//! on nodes and absent on pods.

use std::sync::Arc;

use crate::mig::{GpuModel, ProfileName};
use crate::model::{
    HostPort, MigConfigState, MigRequest, Node, Partitioning, Pod, PodId, PodSpec, Protocol, ResourceName,
    Resources, Taint, TaintEffect, Time, Toleration,
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
        allocatable: Resources::default(),
        mig_config_state: MigConfigState::Absent,
        gpu_model: None,
        partitioning: Partitioning::Fixed,
    };
    for (name, amount) in [("cpu", "64000"), ("memory", "1099511627776"), ("pods", "110")] {
        set(&mut node.allocatable, name, amount);
    }
    for word in words {
        match word.split_once('=') {
            None if word == "cordoned" => node.unschedulable = true,
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
            Some(("label", pair)) => {
                let (key, value) = pair.split_once(':').unwrap();
                node.labels.insert(key.into(), value.into());
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
    let mut pod = Pod {
        id: PodId { namespace: "ns".into(), name: name.into(), uid: name.into() },
        scheduler_name: "mig-scheduler".into(),
        node: None,
        priority: 0,
        created: Time::ZERO,
        spec: Arc::default(),
        gated: false,
        terminating: false,
        finished: false,
        generation: 1,
        placements: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            None if word == "gated" => pod.gated = true,
            None if word == "finished" => pod.finished = true,
            None if word == "terminating" => pod.terminating = true,
            None => panic!("{word} in {text}"),
            Some(("prio", value)) => pod.priority = value.parse().unwrap(),
            Some(("created", value)) => pod.created = Time::from_secs(value.parse().unwrap()),
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
    pod.spec = Arc::new(spec);
    pod
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
