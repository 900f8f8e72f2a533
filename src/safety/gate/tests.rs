//! One line a refusal: what is done to a node that may be changed, and what is said then.

use std::time::Duration;

use super::*;
use crate::planner::{Actuator, Immovable, Trigger};
use crate::safety::journal::{Freeze, Journal};
use crate::safety::record::{Canary, ClusterRecord, OpenChange, Stage};
use crate::safety::transaction::emulator::{Emulator, Seen, name, node_layout};
use crate::safety::window::MaintenanceWindow;

/// Everything that a refusal depends on.
struct Case {
    now: Time,
    settings: Settings,
    proposal: Proposal,
    seen: Seen,
    fleet: Fleet,
    journal: Journal,
    record: ClusterRecord,
}

fn check(edit: impl FnOnce(&mut Case), expected: &[&str]) {
    let node = Emulator::new(Actuator::MigManager, &node_layout(&["7g.40gb@0"]));
    let mut case = Case {
        now: node.time(),
        settings: Settings::default(),
        proposal: node.proposal(&node_layout(&["3g.20gb@0 3g.20gb@4"])),
        seen: node.observe(),
        fleet: node.fleet(),
        journal: Journal::default(),
        record: ClusterRecord::default(),
    };
    case.seen.world.journal = Reading::Valid(Journal::default());
    edit(&mut case);
    if let Reading::Valid(journal) = &mut case.seen.world.journal {
        *journal = case.journal;
    }
    if case.seen.cluster.record == Reading::Absent {
        case.seen.cluster.record = Reading::Valid(case.record);
    }
    let (world, cluster) = (&case.seen.world, &case.seen.cluster);
    let policy = PolicyVersion("p".into());
    let found = refusals(case.now, &case.settings, &case.proposal, &policy, world, cluster, &case.fleet);
    assert_eq!(found.iter().map(Refusal::to_string).collect::<Vec<_>>(), expected);
}

fn ago(case: &Case, seconds: u64) -> Stamp {
    Stamp::of(Time::from_secs(case.now.as_unix_secs() as u64 - seconds))
}

fn freeze() -> Option<Freeze> {
    Some(Freeze { why: "look at it".into(), since: Stamp::of(Time::ZERO) })
}

#[test]
fn nothing_speaks_against_a_healthy_node() {
    check(|_| {}, &[]);
    check(|case| case.seen.world.journal = Reading::Absent, &[]);
}

#[test]
fn people_decide() {
    check(|case| case.settings.dry_run = true, &["dry run: nothing is changed"]);
    check(|case| case.seen.cluster.paused = true, &["the cluster is paused by an admin"]);
    check(|case| case.seen.world.paused = true, &["the node is paused by an admin"]);
    check(|case| case.seen.world.unschedulable = true, &["it is cordoned"]);
    check(|case| case.journal.frozen = freeze(), &["frozen: look at it"]);
    check(|case| case.record.frozen = freeze(), &["frozen: look at it"]);
}

#[test]
fn an_hour_and_the_difference_of_two_clocks() {
    let changed = |case: &mut Case, seconds| case.journal.changed = Some(ago(case, seconds));
    check(|case| changed(case, 3_720), &[]);
    check(|case| changed(case, 3_719), &["next change possible in 1m"]);
    check(|case| changed(case, 0), &["next change possible in 62m"]);
    // The cluster remembers as well, and the later of the two counts.
    let remember = |case: &mut Case, seconds| {
        let stamp = ago(case, seconds);
        case.record.changed.insert(name(), stamp);
    };
    check(|case| remember(case, 1_860), &["next change possible in 31m"]);
    check(
        |case| {
            remember(case, 60);
            case.journal.changed = Some(ago(case, 7_200));
        },
        &["next change possible in 61m"],
    );
    check(
        |case| {
            remember(case, 7_200);
            case.seen.world.journal = Reading::Absent;
        },
        &["the node's journal is missing"],
    );
    check(|case| case.record.renewed = Some(ago(case, 120)), &["next change possible in 60m"]);
    check(|case| case.seen.world.journal = Reading::Damaged("torn".into()), &["journal: torn"]);
    check(|case| case.seen.cluster.record = Reading::Damaged("torn".into()), &["cluster record: torn"]);
    for server in [None, Some(61)] {
        check(
            |case| case.seen.cluster.server_time = server.map(|s| case.now + Duration::from_secs(s)),
            &["our clock and the API server's differ"],
        );
    }
}

#[test]
fn the_node_must_be_what_the_plan_says() {
    check(|case| case.seen.world.ready = false, &["it is not ready"]);
    check(|case| case.seen.world.answer = Answer::Working, &["its last layout change has not ended well"]);
    check(|case| case.seen.world.allocatable.clear(), &["the node has changed since the plan was made"]);
    check(|case| case.seen.world.discovered.clear(), &["the node has changed since the plan was made"]);
    check(
        |case| case.proposal.to = case.proposal.from.clone(),
        &["the node has changed since the plan was made"],
    );
    let holder = |gpus: Option<u16>, movable| {
        let gpus = gpus.map(|gpu| [gpu].into());
        let pod = crate::safety::transaction::emulator::pod("x");
        super::super::world::Holder { pod, gpus, movable, terminating: false, crashing: false }
    };
    let pinned = "pod ns/x: it has a volume that one node alone can mount";
    for (gpus, expected) in [(Some(0), &[pinned][..]), (None, &[pinned][..]), (Some(1), &[][..])] {
        check(|case| case.seen.world.holders = vec![holder(gpus, Err(Immovable::NodeBoundVolume))], expected);
    }
    check(
        |case| case.seen.world.holders = vec![holder(Some(0), Ok(()))],
        &["the node has changed since the plan was made"],
    );
}

#[test]
fn activity_that_hardly_moves_changes_nothing() {
    let load = |present, forecast| {
        move |case: &mut Case| {
            let load = Load { present, forecast };
            case.proposal.why.triggers = vec![Trigger::Split { gpu: 0, load, below: 0.4 }];
        }
    };
    check(load(0.30, 0.28), &["activity hardly moves, from 30% to 28%"]);
    check(load(0.30, 0.26), &[]);
    check(load(0.20, 0.23), &[]);
    check(load(0.0, 0.0), &["activity hardly moves, from 0% to 0%"]);
    check(load(0.0, 0.01), &[]);
    check(load(f64::NAN, 0.2), &["activity hardly moves, from NaN% to 20%"]);
    // Pods that wait have moved already.
    check(
        |case| {
            let waiting = case.proposal.why.triggers.clone();
            load(0.3, 0.3)(case);
            case.proposal.why.triggers.extend(waiting);
        },
        &[],
    );
}

#[test]
fn windows_budget_and_canary() {
    let window = |begins: &str, hours: u64| MaintenanceWindow {
        days: vec![jiff::civil::Weekday::Tuesday],
        begins: begins.parse().unwrap(),
        length: Duration::from_secs(hours * 3_600),
        zone: jiff::tz::TimeZone::UTC,
    };
    // It is Tuesday, 2023-11-14, 22:13:20.
    check(|case| case.settings.windows = vec![window("22:00", 1)], &[]);
    let late = ["the maintenance window closes too soon"];
    check(|case| case.settings.windows = vec![window("21:20", 1)], &late);
    check(
        |case| case.settings.windows = vec![window("23:00", 1)],
        &["the next maintenance window opens in 47m"],
    );
    let open = |case: &mut Case, node: &str| {
        let id = crate::safety::journal::ChangeId("x".into());
        let since = Stamp::of(case.now);
        case.record.open.insert(node.into(), OpenChange { id, since });
    };
    check(|case| open(case, "n5"), &["1 node(s) are changing, and no more may at once"]);
    check(|case| open(case, "n0"), &["its layout is being changed"]);
    let stage = |stage| {
        move |case: &mut Case| case.record.canary = Some(Canary { policy: PolicyVersion("p".into()), stage })
    };
    let trying = |node: &str| Stage::Trying { members: [node.into()].into(), held: [].into() };
    check(stage(trying("n0")), &[]);
    check(stage(trying("n5")), &["the policy is tried on 1 other node(s) first"]);
    check(stage(Stage::Everywhere), &[]);
    check(
        stage(Stage::Failed("n5: utilisation fell".into())),
        &["the policy did harm where it was tried: n5: utilisation fell"],
    );
}
