//! What kubelet and the device plugin say, checked word by word.

use super::*;
use crate::mig::ProfileName;
use crate::model::{Admission, HostPort, MigConfigState, MigRequest, Protocol, Taint};

fn model() -> &'static GpuModel {
    GpuModel::by_name("A100-40GB").unwrap()
}

fn node(partitioning: Partitioning, mig: &[(&str, u64)]) -> Node {
    let mut allocatable = Resources::default();
    (allocatable.cpu_milli, allocatable.memory, allocatable.pods) = (4_000, 1 << 30, 4);
    for (profile, count) in mig {
        allocatable.set(format!("nvidia.com/mig-{profile}").into(), *count);
    }
    Node {
        name: "n0".into(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        unschedulable: false,
        our_cordon: false,
        admission: Admission::All,
        allocatable,
        mig_config_state: MigConfigState::Absent,
        gpu_model: Some(model()),
        partitioning,
        features: [].into(),
        images: [].into(),
    }
}

fn layout(text: &str) -> Layout {
    let placements = text.split_whitespace().map(placement);
    Layout::new(model(), placements.collect::<Vec<_>>()).unwrap()
}

fn placement(text: &str) -> Placement {
    let (profile, start) = text.split_once('@').unwrap();
    Placement::new(profile.parse().unwrap(), start.parse().unwrap())
}

fn on(gpu: u16, text: &str) -> DevicePlacement {
    DevicePlacement { gpu, placement: placement(text) }
}

fn asking(cpu_milli: u64, mig: &[(&str, u64)]) -> Arc<PodSpec> {
    let mut requests = Resources::default();
    (requests.cpu_milli, requests.pods) = (cpu_milli, 1);
    let mig = mig.iter().map(|(profile, count)| {
        let profile: ProfileName = profile.parse().unwrap();
        let resource = ResourceName::from(profile.resource_name());
        requests.set(resource.clone(), *count);
        MigRequest { profile, resource, count: *count }
    });
    let mig = mig.collect();
    Arc::new(PodSpec { requests, mig, ..PodSpec::default() })
}

fn fixed(policy: DevicePolicy, layouts: &[&str], mig: &[(&str, u64)]) -> NodePlane {
    let mut plane = NodePlane::new(policy);
    let layouts: Vec<_> = layouts.iter().map(|text| layout(text)).collect();
    plane.apply_node(&node(Partitioning::Fixed, mig), &layouts);
    plane
}

fn on_demand(gpus: u16) -> NodePlane {
    let mut plane = NodePlane::new(DevicePolicy::default());
    plane.apply_node(&node(Partitioning::OnDemand { model: model(), gpus }, &[]), &[]);
    plane
}

fn admit(
    plane: &mut NodePlane,
    pod: &str,
    spec: &Arc<PodSpec>,
    placements: &[DevicePlacement],
) -> Result<Vec<DevicePlacement>, String> {
    let admitted = plane.admit(&"n0".into(), &pod.into(), spec, placements);
    admitted.map(|allocation| allocation.devices).map_err(|rejection| rejection.to_string())
}

#[test]
fn the_plugin_picks_by_policy() {
    let check = |policy, expected: &[DevicePlacement]| {
        let layouts = ["1g.5gb@0 1g.5gb@1", "1g.5gb@2 1g.5gb@3"];
        let mut plane = fixed(policy, &layouts, &[("1g.5gb", 4)]);
        let mut got = admit(&mut plane, "a", &asking(0, &[("1g.5gb", 1)]), &[]).unwrap();
        got.extend(admit(&mut plane, "b", &asking(0, &[("1g.5gb", 1)]), &[]).unwrap());
        assert_eq!(got, expected);
        assert!(plane.violations().is_empty());
    };
    check(DevicePolicy::Packed, &[on(0, "1g.5gb@0"), on(0, "1g.5gb@1")]);
    check(DevicePolicy::Distributed, &[on(0, "1g.5gb@0"), on(1, "1g.5gb@2")]);
}

#[test]
fn devices_come_before_predicates_and_nothing_is_kept_of_a_rejected_pod() {
    let mut plane = fixed(DevicePolicy::Packed, &["1g.5gb@0 2g.10gb@2"], &[("1g.5gb", 1), ("2g.10gb", 1)]);
    admit(&mut plane, "a", &asking(3_000, &[("1g.5gb", 1)]), &[]).unwrap();
    assert_eq!(
        admit(&mut plane, "b", &asking(3_000, &[("1g.5gb", 1)]), &[]).unwrap_err(),
        "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for \
         nvidia.com/mig-1g.5gb. Requested: 1, Available: 0, which is unexpected"
    );
    assert_eq!(
        admit(&mut plane, "c", &asking(3_000, &[("2g.10gb", 1)]), &[]).unwrap_err(),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"
    );
    assert_eq!(admit(&mut plane, "d", &asking(1_000, &[("2g.10gb", 1)]), &[]).unwrap(), [on(0, "2g.10gb@2")]);
    assert_eq!(plane.release(&"a".into()).unwrap().devices, [on(0, "1g.5gb@0")]);
    assert_eq!(plane.release(&"a".into()), None);
    assert!(admit(&mut plane, "b", &asking(3_000, &[("1g.5gb", 1)]), &[]).is_ok());
    assert_eq!((plane.running(), plane.violations()), (2, [].as_slice()));
}

#[test]
fn profiles_that_are_gone_or_never_were() {
    let mut plane = fixed(DevicePolicy::Packed, &["3g.20gb@0"], &[("3g.20gb", 1)]);
    assert!(admit(&mut plane, "unknown", &asking(0, &[("1g.5gb", 1)]), &[]).is_ok(), "kubelet lets it pass");
    plane.apply_node(&node(Partitioning::Fixed, &[]), &[layout("4g.20gb@0")]);
    assert_eq!(
        admit(&mut plane, "late", &asking(0, &[("3g.20gb", 1)]), &[]).unwrap_err(),
        "UnexpectedAdmissionError: Allocate failed due to no healthy devices present; cannot allocate unhealthy \
         devices nvidia.com/mig-3g.20gb, which is unexpected"
    );
    let mut counted = fixed(DevicePolicy::Packed, &[], &[("1g.5gb", 1)]);
    assert!(admit(&mut counted, "a", &asking(0, &[("1g.5gb", 1)]), &[]).is_ok());
    assert_eq!(
        admit(&mut counted, "b", &asking(0, &[("1g.5gb", 1)]), &[]).unwrap_err(),
        "OutOfnvidia.com/mig-1g.5gb: Node didn't have enough resource: nvidia.com/mig-1g.5gb, requested: 1, used: 1, \
         capacity: 1"
    );
}

#[test]
fn predicates_speak_as_kubelet_does() {
    let check = |change: &dyn Fn(&mut Node, &mut PodSpec), expected: &str| {
        let mut plane = NodePlane::default();
        let mut node = node(Partitioning::Fixed, &[]);
        let mut spec = (*asking(0, &[])).clone();
        change(&mut node, &mut spec);
        plane.apply_node(&node, &[]);
        let first = admit(&mut plane, "a", &Arc::new(spec.clone()), &[]);
        let error = first.and_then(|_| admit(&mut plane, "b", &Arc::new(spec), &[])).unwrap_err();
        assert_eq!(error, expected);
    };
    check(
        &|node, _| node.allocatable.pods = 1,
        "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1",
    );
    check(
        &|_, spec| spec.requests.memory = 1 << 30,
        "OutOfmemory: Node didn't have enough resource: memory, requested: 1073741824, used: 1073741824, capacity: \
         1073741824",
    );
    check(
        &|_, spec| drop(spec.selector.labels.insert("zone".into(), "a".into())),
        "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    );
    check(
        &|_, spec| spec.host_ports = vec![HostPort { port: 80, protocol: Protocol::Tcp, address: None }],
        "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    );
    check(
        &|node, _| {
            let effect = TaintEffect::NoExecute;
            node.taints = vec![Taint { key: "down".into(), value: "".into(), effect }];
        },
        "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    );
}

#[test]
fn an_instance_is_created_where_the_binding_says_or_refused_as_a_violation() {
    let mut plane = on_demand(1);
    let three = asking(0, &[("3g.20gb", 1)]);
    assert_eq!(admit(&mut plane, "a", &three, &[on(0, "3g.20gb@4")]).unwrap(), [on(0, "3g.20gb@4")]);
    let check = |plane: &mut NodePlane, placements: &[DevicePlacement], expected: &str| {
        let before = plane.violations().len();
        let error = admit(plane, "b", &three, placements).unwrap_err();
        assert!(error.starts_with("UnexpectedAdmissionError") && error.contains(expected), "{error}");
        assert!(plane.violations()[before].to_string().contains(expected));
    };
    check(&mut plane, &[on(0, "3g.20gb@4")], "overlaps");
    check(&mut plane, &[on(0, "3g.20gb@1")], "starts at 0,4");
    check(&mut plane, &[on(1, "3g.20gb@0")], "no GPU 1");
    check(&mut plane, &[on(0, "2g.10gb@0")], "not the pod's");
    check(&mut plane, &[], "names 0 instances");
    assert!(plane.release(&"a".into()).is_some());
    let both = asking(0, &[("3g.20gb", 2)]);
    assert!(admit(&mut plane, "c", &both, &[on(0, "3g.20gb@0"), on(0, "3g.20gb@0")]).is_err());
    assert!(admit(&mut plane, "c", &both, &[on(0, "3g.20gb@0"), on(0, "3g.20gb@4")]).is_ok());
}

#[test]
fn binding_twice_and_losing_an_instance_are_violations() {
    let mut plane = fixed(DevicePolicy::Packed, &["3g.20gb@0"], &[("3g.20gb", 1)]);
    let spec = asking(0, &[("3g.20gb", 1)]);
    admit(&mut plane, "a", &spec, &[]).unwrap();
    admit(&mut plane, "a", &spec, &[]).unwrap_err();
    admit(&mut plane, "b", &spec, &[on(0, "3g.20gb@0")]).unwrap_err();
    plane.apply_node(&node(Partitioning::Fixed, &[("3g.20gb", 1)]), &[layout("3g.20gb@0")]);
    assert_eq!(plane.violations().len(), 2, "the instance is still there");
    plane.apply_node(&node(Partitioning::Fixed, &[]), &[layout("7g.40gb@0")]);
    let told: Vec<_> = plane.violations().iter().map(ToString::to_string).collect();
    assert!(told[0].contains("bound twice") && told[1].contains("device plugin chooses"), "{told:?}");
    assert!(told[2].contains("destroyed under a running pod"), "{told:?}");
}
