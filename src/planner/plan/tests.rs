//! Plans for small clusters in text: `n0 A100-40GB mig-manager 7g.40gb@0- | 1g.5gb@0! 1g.5gb@1~0`. After an instance `-` is
//! free, `!` pinned, `~0` held by the movable pod 0; `load=0.9:0.95` after the last instance of a GPU is its activity, present and
//! forecast; words before the first GPU: `fixed`, `unmapped`.

use super::*;
use crate::fixture::chance;
use crate::mig::{GpuModel, Variants, enumerate_layouts};
use crate::model::PodId;
use crate::planner::{DemandOutlook, Load, MovablePod, PlannedGpu, Waiting};

fn node(text: &str) -> PlannedNode {
    let (head, gpus) = text.split_once(" : ").unwrap();
    let head: Vec<&str> = head.split_whitespace().collect();
    let gpu = |text: &str| {
        let mut gpu = PlannedGpu { instances: Vec::new(), load: None };
        for word in text.split_whitespace() {
            if let Some(load) = word.strip_prefix("load=") {
                let (present, forecast) = load.split_once(':').unwrap();
                let [present, forecast] = [present, forecast].map(|text| text.parse().unwrap());
                gpu.load = Some(Load { present, forecast });
                continue;
            }
            let at = word.find(['-', '!', '~']).unwrap();
            let held = match &word[at..=at] {
                "-" => Held::Free,
                "!" => Held::Pinned,
                _ => Held::Movable(word[at + 1..].parse().unwrap()),
            };
            let (profile, start) = word[..at].split_once('@').unwrap();
            gpu.instances.push((Placement::new(profile.parse().unwrap(), start.parse().unwrap()), held));
        }
        gpu
    };
    PlannedNode {
        name: head[0].into(),
        model: GpuModel::by_name(head[1]).unwrap(),
        actuator: if head[2] == "agent" { Actuator::Agent } else { Actuator::MigManager },
        changeable: !head.contains(&"fixed"),
        mapped: !head.contains(&"unmapped"),
        gpus: gpus.split('|').map(gpu).collect(),
    }
}

/// `homes[i]` are the nodes that take movable pod i, which wants what it holds.
fn question(nodes: &[&str], homes: &[&[&str]], waiting: &str) -> Question {
    let nodes: Vec<PlannedNode> = nodes.iter().map(|text| node(text)).collect();
    let held = |at: usize| {
        let all = nodes.iter().flat_map(|node| &node.gpus).flat_map(|gpu| &gpu.instances);
        all.filter(|(_, held)| *held == Held::Movable(at)).map(|(placement, _)| placement.profile).collect()
    };
    let pod = |(at, homes): (usize, &&[&str])| MovablePod {
        pod: PodId {
            namespace: "ns".into(),
            name: format!("p{at}").as_str().into(),
            uid: format!("p{at}").as_str().into(),
        },
        workload: format!("rs{at}").into(),
        profiles: held(at),
        homes: homes.iter().map(|name| (*name).into()).collect(),
    };
    let count = |word: &str| {
        let (count, profile) = word.split_once('x').unwrap();
        Waiting { profile: profile.parse().unwrap(), priority: 0, count: count.parse().unwrap() }
    };
    let waiting = waiting.split_whitespace().map(count).collect();
    let pods = homes.iter().enumerate().map(pod).collect();
    Question { pods, demand: DemandOutlook { waiting, ..DemandOutlook::default() }, nodes }
}

/// Each proposal as `n0: 3g.20gb@0 3g.20gb@4 (1 go)`.
fn check(question: &Question, expected: &[&str]) -> Vec<Proposal> {
    let proposals = plan(&Policy::default(), question).unwrap();
    let line = |proposal: &Proposal| {
        let go = match proposal.evictees.len() {
            0 => String::new(),
            n => format!(" ({n} go)"),
        };
        format!("{}: {}{go}", proposal.node.as_str(), proposal.to)
    };
    assert_eq!(proposals.iter().map(line).collect::<Vec<_>>(), expected);
    proposals
}

#[test]
fn a_pod_that_fits_nowhere_opens_the_door() {
    let small =
        "n0 A100-40GB mig-manager : 1g.5gb@0- 1g.5gb@1- 1g.5gb@2- 1g.5gb@3- 1g.5gb@4- 1g.5gb@5- 1g.5gb@6-";
    // What need not go stays.
    let found =
        check(&question(&[small], &[], "1x3g.20gb"), &["n0: 1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4"]);
    let why = &found[0].why;
    assert_eq!(why.triggers, [Trigger::Pending([("3g.20gb".parse().unwrap(), 1)].into())]);
    assert_eq!((why.gain, why.cost), (4 * 3_600, 120 * (8 + 4)));
    assert_eq!(why.blast, crate::planner::Blast { gpus: 1, pods: 0, operands: true });
    check(&question(&[small], &[], "2x3g.20gb"), &["n0: 3g.20gb@0 3g.20gb@4"]);
    check(&question(&[small], &[], "7x1g.5gb"), &[]);
    check(&question(&[small], &[], ""), &[]);
    check(&question(&[&small.replace(" :", " fixed :")], &[], "1x3g.20gb"), &[]);
}

#[test]
fn a_profile_that_no_model_has_changes_nothing() {
    check(&question(&["n0 A30-24GB mig-manager : 1g.6gb@0-"], &[], "1x3g.20gb"), &[]);
    check(&Question::default(), &[]);
    check(&question(&["n0 A100-40GB mig-manager : "], &[], "1x7g.40gb"), &["n0: 7g.40gb@0"]);
}

#[test]
fn a_pod_that_stays_keeps_its_whole_gpu_with_mig_manager() {
    let pinned = "n0 A100-40GB mig-manager : 1g.5gb@0! 1g.5gb@1- 1g.5gb@2- 1g.5gb@3-";
    check(&question(&[pinned], &[], "1x3g.20gb"), &[]);
    let agent = pinned.replace("mig-manager", "agent");
    check(&question(&[&agent], &[], "1x3g.20gb"), &["n0: 1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4"]);
    // Another GPU of the node may change, unless nobody knows which one the pod is on.
    let two = format!("{pinned} | 1g.5gb@0-");
    check(
        &question(&[&two], &[], "1x3g.20gb"),
        &["n0: 1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 | 1g.5gb@0 3g.20gb@4"],
    );
    check(&question(&[&two.replace(" :", " unmapped :")], &[], "1x3g.20gb"), &[]);
}

#[test]
fn a_pod_moves_only_where_a_place_is_kept_for_it() {
    let full = "n0 A100-40GB mig-manager : 4g.20gb@0! | 2g.10gb@0~0 1g.5gb@2-";
    let other = "n1 A100-40GB mig-manager fixed : 2g.10gb@0-";
    let found =
        check(&question(&[full, other], &[&["n1"]], "1x7g.40gb"), &["n0: 4g.20gb@0 | 7g.40gb@0 (1 go)"]);
    let evictee = &found[0].evictees[0];
    assert_eq!((evictee.home.as_str(), &*evictee.workload), ("n1", "rs0"));
    assert_eq!(found[0].why.cost, 60 * 2 + 120 * (8 + 8));
    check(&question(&[full, other], &[&[]], "1x7g.40gb"), &[]);
    check(&question(&[full, other], &[&["n0", "n9"]], "1x7g.40gb"), &[]);
    check(&question(&[full, &other.replace("2g.10gb@0-", "2g.10gb@0!")], &[&["n1"]], "1x7g.40gb"), &[]);
}

#[test]
fn a_kept_place_is_kept_for_one() {
    let full = "n0 A100-40GB mig-manager : 2g.10gb@0~0 2g.10gb@2~1";
    let one = "n1 A100-40GB mig-manager fixed : 2g.10gb@0-";
    let homes: &[&[&str]] = &[&["n1"], &["n1"]];
    check(&question(&[full, one], homes, "1x7g.40gb"), &[]);
    let two = "n1 A100-40GB mig-manager fixed : 2g.10gb@0- 2g.10gb@2-";
    check(&question(&[full, two], homes, "1x7g.40gb"), &["n0: 7g.40gb@0 (2 go)"]);
}

#[test]
fn load_opens_the_door_and_demand_goes_through() {
    let whole = "n0 A100-40GB mig-manager : 7g.40gb@0- load=0.3:0.1";
    // Nobody comes: a split would serve nobody.
    check(&question(&[whole], &[], ""), &[]);
    let mut coming = question(&[whole], &[], "");
    coming.demand.coming = [("1g.5gb".parse().unwrap(), 5)].into();
    let seven = &["n0: 1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 1g.5gb@4 1g.5gb@5 1g.5gb@6"];
    let found = check(&coming, seven);
    assert!(matches!(found[0].why.triggers[..], [Trigger::Split { gpu: 0, .. }]));
    assert_eq!(found[0].why.demand, coming.demand.coming);
    // Without the load a forecast alone opens nothing.
    let mut closed = question(&[&whole.replace(":0.1", ":0.5")], &[], "");
    closed.demand.coming = coming.demand.coming.clone();
    check(&closed, &[]);
    // Arrivals that are likely: instances for them and, behind them, the target of a split.
    let mut likely = question(&[whole], &[], "");
    likely.demand.arrivals = [("1g.5gb".parse().unwrap(), 3.0)].into();
    check(&likely, seven);
}

#[test]
fn more_than_one_node_only_as_far_as_each_is_needed() {
    let empty = |at| format!("n{at} A100-40GB mig-manager : 1g.5gb@0-");
    let nodes = [empty(0), empty(1), empty(2)];
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    assert_eq!(plan(&Policy::default(), &question(&nodes, &[], "1x7g.40gb")).unwrap().len(), 1);
    assert_eq!(plan(&Policy::default(), &question(&nodes, &[], "2x7g.40gb")).unwrap().len(), 2);
    assert_eq!(plan(&Policy::default(), &question(&nodes, &[], "9x7g.40gb")).unwrap().len(), 3);
}

/// Random clusters: what every proposal promises, checked from question and answer alone.
#[test]
fn random_proposals_keep_every_promise() {
    let table = enumerate_layouts(GpuModel::by_name("A100-40GB").unwrap(), Variants::Base);
    let layouts = table.layouts();
    let mut seen = 0;
    for seed in 0..400u64 {
        let question = random_question(&mut chance(seed), layouts);
        let proposals = plan(&Policy::default(), &question).unwrap();
        assert_eq!(proposals, plan(&Policy::default(), &question).unwrap(), "seed {seed}");
        let mut kept: BTreeMap<(&str, ProfileName), u32> = BTreeMap::new();
        for proposal in &proposals {
            seen += 1;
            let node = question.nodes.iter().find(|node| node.name == proposal.node).unwrap();
            assert!(node.changeable && proposal.why.gain > proposal.why.cost, "seed {seed}");
            let touched = proposal.actuator.touches(&proposal.from, &proposal.to);
            for (gpu, planned) in (0u16..).zip(&node.gpus) {
                let to = &proposal.to.gpus()[usize::from(gpu)];
                let emptied = node.actuator == Actuator::MigManager && touched.contains(&gpu);
                for (placement, held) in &planned.instances {
                    let stays = !emptied && to.placements().contains(placement);
                    match held {
                        Held::Pinned => assert!(stays, "seed {seed}: a pinned pod loses its instance"),
                        Held::Movable(pod) if !stays => {
                            let id = &question.pods[*pod].pod;
                            let evictee = proposal.evictees.iter().find(|evictee| evictee.pod == *id);
                            let evictee = evictee.unwrap_or_else(|| panic!("seed {seed}: {id} is forgotten"));
                            assert_ne!(evictee.home, proposal.node, "seed {seed}");
                            *kept.entry((evictee.home.as_str(), placement.profile)).or_default() += 1;
                        }
                        Held::Movable(_) | Held::Free => {}
                    }
                }
            }
        }
        for ((home, profile), count) in kept {
            let node = question.nodes.iter().find(|node| node.name.as_str() == home).unwrap();
            let proposal = proposals.iter().find(|proposal| proposal.node.as_str() == home);
            let is_free =
                |(placement, held): &&(Placement, Held)| placement.profile == profile && *held == Held::Free;
            let free = node.gpus.iter().flat_map(|gpu| &gpu.instances).filter(is_free).count();
            assert!(proposal.is_none(), "seed {seed}: a place is kept on a node that changes as well");
            assert!(count as usize <= free, "seed {seed}: {count} places are kept on {free} instances");
        }
    }
    assert!(seen > 100, "only {seen} proposals in all");
}

fn random_question(random: &mut impl FnMut(u64) -> u64, layouts: &[Layout]) -> Question {
    let mut pods = Vec::new();
    let names: Vec<String> = (0..4).map(|at| format!("n{at}")).collect();
    let nodes = names.iter().map(|name| {
        let gpus = (0..2).map(|_| {
            let layout = &layouts[random(layouts.len() as u64) as usize];
            let mut hold = |placement: &Placement| {
                let held = match random(6) {
                    0 => Held::Pinned,
                    1 => {
                        pods.push((name.clone(), placement.profile));
                        Held::Movable(pods.len() - 1)
                    }
                    _ => Held::Free,
                };
                (*placement, held)
            };
            let instances = layout.placements().iter().map(&mut hold).collect();
            let forecast = random(10) as f64 / 10.0;
            let load = (random(2) == 0).then_some(Load { present: 0.5, forecast });
            PlannedGpu { instances, load }
        });
        PlannedNode {
            name: name.as_str().into(),
            model: GpuModel::by_name("A100-40GB").unwrap(),
            gpus: gpus.collect(),
            actuator: if random(2) == 0 { Actuator::Agent } else { Actuator::MigManager },
            changeable: random(5) > 0,
            mapped: true,
        }
    });
    let nodes: Vec<PlannedNode> = nodes.collect();
    let pods = pods.into_iter().enumerate().map(|(at, (on, profile))| MovablePod {
        pod: PodId {
            namespace: "ns".into(),
            name: format!("p{at}").as_str().into(),
            uid: format!("p{at}").as_str().into(),
        },
        workload: format!("rs{at}").into(),
        profiles: vec![profile],
        homes: names.iter().filter(|name| **name != on).map(|name| name.as_str().into()).collect(),
    });
    let profiles = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"];
    let waiting = profiles.iter().map(|profile| Waiting {
        profile: profile.parse().unwrap(),
        priority: random(3) as i32,
        count: random(4) as u32,
    });
    let waiting = waiting.collect();
    let coming = [("1g.5gb".parse().unwrap(), random(5) as u32)].into();
    let arrivals = [("2g.10gb".parse().unwrap(), random(5) as f64)].into();
    Question { nodes, pods: pods.collect(), demand: DemandOutlook { waiting, coming, arrivals } }
}
