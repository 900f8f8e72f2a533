//! Changes played against the emulated node: each fault by name, and people.

use super::emulator::*;
use super::*;
use crate::model::Admission;
use crate::planner::{Actuator, Immovable};
use crate::safety::record::{Canary, Stage};
use crate::safety::world::Answer;

const HOUR: u64 = 3_600;
const BOTH: [Actuator; 2] = [Actuator::MigManager, Actuator::Agent];

fn small() -> NodeLayout {
    node_layout(&["1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3", "7g.40gb@0"])
}

fn large() -> NodeLayout {
    node_layout(&["3g.20gb@0 3g.20gb@4", "7g.40gb@0"])
}

/// A node that is to go from small instances to large ones, with two movable pods in the way and a trainer beside it.
fn scene(actuator: Actuator) -> Emulator {
    let mut node = Emulator::new(actuator, &small());
    node.add_pod("a", 0, Ok(()));
    node.add_pod("b", 0, Ok(()));
    node.add_pod("trainer", 1, Err(Immovable::NotInference));
    node
}

/// Runs for `seconds`; `wanted` is proposed while the node is idle.
fn run(node: &mut Emulator, seconds: u64, wanted: Option<&NodeLayout>) {
    let end = node.now + seconds;
    while node.now < end {
        turn(node, wanted);
        node.tick();
    }
}

/// One decision, carried out whole.
fn turn(node: &mut Emulator, wanted: Option<&NodeLayout>) {
    let seen = node.observe();
    for action in node.decide(&seen, wanted) {
        let fresh = node.version;
        if !node.act(&action, fresh) {
            break;
        }
    }
}

/// Runs until the change has ended, and says how.
fn outcome(node: &mut Emulator, wanted: &NodeLayout) -> String {
    let end = node.now + 2 * HOUR;
    let mut begun = false;
    while node.now < end {
        turn(node, (!begun).then_some(wanted));
        begun |= node.read_journal().change.is_some();
        if begun && node.read_journal().change.is_none() {
            break;
        }
        node.tick();
    }
    assert_eq!(node.broken, Vec::<String>::new());
    node.notices.last().map_or("nothing".to_owned(), |(reason, text)| format!("{}: {text}", reason.as_str()))
}

/// What must be true of every change that has ended well.
#[track_caller]
fn settled(node: &Emulator, layout: &NodeLayout) {
    let phase = node.read_journal().change.map(|change| change.phase);
    assert_eq!(phase, None, "{:?} {:?}", node.notices, node.answer);
    assert_eq!(node.actual.counts_by_gpu(), layout.counts_by_gpu());
    assert_eq!((&node.allocatable, &node.discovered), (&layout.counts(), &layout.counts()));
    assert!(!node.our_cordon && !node.unschedulable && node.answer == Answer::Done);
    assert!(node.read_record().open.is_empty());
    assert!(node.pods.contains_key(&pod("trainer")));
}

#[track_caller]
fn check(mut node: Emulator, expected: &str, layout: &NodeLayout) -> Emulator {
    let found = outcome(&mut node, &large());
    assert!(found.starts_with(expected), "{found}");
    settled(&node, layout);
    node
}

#[test]
fn a_change_moves_who_may_move_and_holds() {
    for actuator in BOTH {
        let node =
            check(scene(actuator), "MigLayoutChanged: the new layout holds; it began because:", &large());
        assert_eq!((node.evicted, node.forward.len(), node.tells.len()), (2, 1, 1));
        let record = node.read_record();
        assert!(
            matches!(record.canary, Some(Canary { stage: Stage::Trying { ref held, .. }, .. }) if held.len() == 1)
        );
        assert_eq!(node.notices[0].0, NoticeReason::Changing);
    }
}

#[test]
fn harm_is_undone_and_the_node_stays_put_for_an_hour() {
    for actuator in BOTH {
        let mut node = scene(actuator);
        node.harmful = true;
        node = check(node, "MigLayoutRolledBack: the old layout is back: utilisation fell 60%", &small());
        assert!(matches!(node.read_record().canary, Some(Canary { stage: Stage::Failed(_), .. })));
        run(&mut node, 3 * HOUR, Some(&large()));
        assert_eq!(
            (node.forward.len(), node.tells.len()),
            (1, 2),
            "a policy that did harm does not act again"
        );
    }
}

#[test]
fn what_cannot_be_measured_stays_and_proves_nothing() {
    let mut node = scene(Actuator::MigManager);
    node.blind = true;
    let node = check(node, "MigLayoutChanged: the new layout is in force; too little", &large());
    assert!(
        matches!(node.read_record().canary, Some(Canary { stage: Stage::Trying { ref held, .. }, .. }) if held.is_empty())
    );
}

#[test]
fn every_failure_of_the_actuator_leads_back() {
    for actuator in BOTH {
        for (fault, expected, layout) in [
            (
                Fault::StuckPending,
                "MigLayoutRolledBack: the old layout is back: the new layout did not show in time (the actuator says still at work",
                small(),
            ),
            (
                Fault::FailsEmpty,
                "MigLayoutRolledBack: the old layout is back: the actuator failed: apply",
                small(),
            ),
            (
                Fault::FailsHalf,
                "MigLayoutRolledBack: the old layout is back: the actuator failed: apply",
                small(),
            ),
            (
                Fault::SaysSuccess,
                "MigLayoutRolledBack: the old layout is back: the new layout did not show in time (the actuator says success",
                small(),
            ),
            (
                Fault::NeverAdvertised,
                "MigLayoutRolledBack: the old layout is back: the new layout did not show in time",
                small(),
            ),
            (Fault::Unadvertised, "MigLayoutChanged: the new layout holds", large()),
            (Fault::StaleSuccess, "MigLayoutChanged: the new layout holds", large()),
        ] {
            let mut node = scene(actuator);
            node.faults = vec![fault];
            let node = check(node, expected, &layout);
            assert_eq!(node.forward.len(), 1, "{fault:?}");
        }
    }
}

#[test]
fn a_rollback_that_fails_is_tried_once_more_under_another_name() {
    for second in [Fault::StuckPending, Fault::FailsEmpty, Fault::SaysSuccess, Fault::NeverAdvertised] {
        let mut node = scene(Actuator::MigManager);
        node.faults = vec![Fault::FailsEmpty, second];
        let node = check(node, "MigLayoutRolledBack: the old layout is back", &small());
        assert_eq!((node.forward.len(), node.tells.len()), (1, 3), "{second:?}");
        assert!(node.told.unwrap().ends_with("-again"));
    }
}

#[test]
fn a_node_that_shows_neither_layout_is_frozen_until_a_person_mends_it() {
    let mut node = scene(Actuator::MigManager);
    node.faults = vec![Fault::FailsEmpty, Fault::FailsEmpty, Fault::FailsEmpty];
    let found = outcome(&mut node, &large());
    assert!(
        found.contains("MigLayoutFrozen: the actuator failed: apply; the old layout does not come back"),
        "{found}"
    );
    assert!(node.our_cordon && node.tells.len() == 3, "there is one rollback and one more try");
    run(&mut node, 3 * HOUR, Some(&large()));
    assert!(node.our_cordon && node.tells.len() == 3);
    // Somebody makes the instances by hand.
    (node.actual, node.allocatable, node.discovered) = (small(), small().counts(), small().counts());
    node.answer = Answer::Done;
    node.version += 1;
    run(&mut node, 3 * HOUR, Some(&large()));
    settled(&node, &small());
    assert!(
        node.read_journal().frozen.is_some() && node.forward.len() == 1,
        "a frozen node is not changed again"
    );
}

#[test]
fn a_pod_that_may_not_move_stops_a_change_and_is_never_evicted() {
    let mut node = scene(Actuator::MigManager);
    node.add_pod("t2", 0, Err(Immovable::NotInference));
    run(&mut node, HOUR, Some(&large()));
    assert_eq!((node.read_journal().change, node.evicted, node.tells.len()), (None, 0, 0));
    let seen = node.observe();
    let policy = PolicyVersion("p".into());
    let proposal = node.proposal(&large());
    let refused =
        begin(node.time(), &node.settings, &proposal, &policy, &seen.world, &seen.cluster, &node.fleet());
    let words: Vec<String> = refused.unwrap_err().iter().map(Refusal::to_string).collect();
    assert_eq!(words, ["pod ns/t2: it is not labelled ai.task.type=inference"]);
}

#[test]
fn a_pod_that_may_not_move_and_came_later_freezes_a_rollback() {
    let mut node = scene(Actuator::MigManager);
    node.harmful = true;
    while !matches!(node.read_journal().change.map(|c| c.phase), Some(Phase::Observing { .. })) {
        turn(&mut node, Some(&large()));
        node.tick();
    }
    // Somebody has named the node himself: no scheduler was asked.
    node.add_pod("t2", 0, Err(Immovable::NoReplicaSet));
    let found = outcome(&mut node, &large());
    assert!(found.contains("cannot be undone: pod ns/t2 may not be moved, no ReplicaSet owns it"), "{found}");
    settled(&node, &large());
    assert!(node.read_journal().frozen.is_some());
}

#[test]
fn drains_stop_where_a_successor_is_missing() {
    let mut slow = scene(Actuator::MigManager);
    slow.replacement_secs = 10_000;
    let node =
        check(slow, "MigLayoutRolledBack: given up before anything was changed: the successor", &small());
    assert_eq!((node.evicted, node.tells.len()), (1, 0), "one pod, and no more");
    let mut guarded = scene(Actuator::MigManager);
    guarded.budget_refuses = true;
    check(
        guarded,
        "MigLayoutRolledBack: given up before anything was changed: pod ns/a could not be evicted",
        &small(),
    );
    let mut last = scene(Actuator::MigManager);
    last.replicas = 1;
    let node = check(
        last,
        "MigLayoutRolledBack: given up before anything was changed: pod ns/a is the last",
        &small(),
    );
    assert_eq!(node.evicted, 0);
}

/// Lets a change come as far as `phase`, does something, and looks how it ends.
fn disturbed(at: fn(&Phase) -> bool, disturb: fn(&mut Emulator)) -> (Emulator, String) {
    let mut node = scene(Actuator::MigManager);
    while !node.read_journal().change.is_some_and(|change| at(&change.phase)) {
        turn(&mut node, Some(&large()));
        node.tick();
    }
    disturb(&mut node);
    node.version += 1;
    let found = outcome(&mut node, &large());
    (node, found)
}

#[test]
fn people_are_obeyed_in_the_middle_of_a_change() {
    let draining = |phase: &Phase| matches!(phase, Phase::Draining { .. });
    let given_up = "MigLayoutRolledBack: given up before anything was changed: ";
    for (disturb, why) in [
        ((|node| node.paused = true) as fn(&mut Emulator), "paused by an admin"),
        (|node| node.cluster_paused = true, "paused by an admin"),
        (|node| node.unschedulable = false, "somebody has uncordoned the node"),
        (|node| node.add_pod("new", 0, Ok(())), "pod ns/new has come in the meantime"),
        (|node| node.add_pod("new", 0, Err(Immovable::OptedOut)), "pod ns/new may not be moved"),
        (|node| node.answer = Answer::Working, "the node no longer shows the layout"),
    ] {
        let (node, found) = disturbed(draining, disturb);
        assert!(found.starts_with(&format!("{given_up}{why}")), "{found}");
        assert!(!node.our_cordon && node.tells.is_empty());
    }
    // A pause comes too late once instances are gone.
    let applying = |phase: &Phase| matches!(phase, Phase::Applying { .. });
    let (node, found) = disturbed(applying, |node| node.paused = true);
    assert!(found.starts_with("MigLayoutChanged"), "{found}");
    settled(&node, &large());
    let (node, found) = disturbed(applying, |node| node.told = Some("all-1g.5gb".into()));
    assert!(
        found.starts_with(
            "MigLayoutFrozen: the node is frozen: somebody has asked mig-manager for all-1g.5gb"
        ),
        "{found}"
    );
    assert!(!node.our_cordon && node.read_journal().frozen.is_some() && node.tells.len() == 1);
}

#[test]
fn an_admins_cordon_is_kept() {
    let (node, found) =
        disturbed(|phase| matches!(phase, Phase::Propagating { .. }), |node| node.unschedulable = true);
    assert!(found.starts_with("MigLayoutChanged"), "{found}");
    assert!(node.unschedulable && !node.our_cordon && node.actual == large());
    let mut cordoned = scene(Actuator::MigManager);
    cordoned.unschedulable = true;
    run(&mut cordoned, HOUR, Some(&large()));
    assert!(
        cordoned.read_journal().change.is_none() && cordoned.unschedulable,
        "a node in maintenance is left alone"
    );
}

#[test]
fn a_layout_that_gets_lost_is_waited_for_and_then_undone() {
    let observing = |phase: &Phase| matches!(phase, Phase::Observing { .. });
    // A reboot: instances are gone until mig-manager has made them again.
    let (node, found) = disturbed(observing, |node| {
        node.allocatable.clear();
        node.discovered.clear();
        node.act(&Action::RestartDevicePlugin, 0);
    });
    assert!(found.starts_with("MigLayoutChanged"), "{found}");
    settled(&node, &large());
    let (node, found) = disturbed(observing, |node| {
        (node.actual, node.allocatable) = (node_layout(&["-", "7g.40gb@0"]), Default::default());
        node.discovered.clear();
    });
    assert!(found.contains("did not show in time"), "{found}");
    settled(&node, &small());
    let (_, found) = disturbed(observing, |node| {
        node.add_pod("crash", 0, Ok(()));
        node.pods.values_mut().for_each(|pod| pod.crashing = pod.gpu == 0);
    });
    assert!(found.contains("pod ns/crash keeps crashing on the new layout"), "{found}");
}

#[test]
fn whoever_comes_is_let_in_as_far_as_the_way_back_stays_open() {
    let mut node = scene(Actuator::MigManager);
    let mut seen = Vec::new();
    for _ in 0..400 {
        let wanted = node.forward.is_empty().then(large);
        turn(&mut node, wanted.as_ref());
        if seen.last() != Some(&node.admits()) {
            seen.push(node.admits());
        }
        if let Some(change) = &node.read_journal().change {
            assert_eq!(node.read_journal().reservations().count(), change.evictees.len());
        }
        node.tick();
    }
    assert_eq!(seen, [Admission::All, Admission::None, Admission::Movable, Admission::All]);
}

#[test]
fn a_journal_that_is_gone_or_damaged_counts_as_changed_just_now() {
    for damage in [None, Some("{".to_owned()), Some("{\"version\":2}".to_owned())] {
        let mut node = scene(Actuator::MigManager);
        outcome(&mut node, &large());
        let ended = node.now;
        run(&mut node, HOUR / 2, None);
        node.journal = damage;
        node.version += 1;
        run(&mut node, 3 * HOUR, Some(&small()));
        assert!(node.forward[1] - ended >= HOUR + HOUR / 2, "{:?} after {ended}", node.forward);
        assert_eq!(node.broken, Vec::<String>::new());
    }
}

#[test]
fn a_journal_lost_in_the_middle_leaves_no_cordon() {
    let applying = |phase: &Phase| matches!(phase, Phase::Applying { .. } | Phase::Observing { .. });
    let mut node = scene(Actuator::MigManager);
    while !node.read_journal().change.is_some_and(|change| applying(&change.phase)) {
        turn(&mut node, Some(&large()));
        node.tick();
    }
    node.journal = None;
    node.version += 1;
    run(&mut node, HOUR, None);
    settled(&node, &large());
    assert_eq!(node.broken, Vec::<String>::new());
}

#[test]
fn a_lost_or_damaged_record_is_made_anew() {
    for damage in [None, Some("{".to_owned())] {
        let mut node = scene(Actuator::MigManager);
        while node.forward.is_empty() {
            turn(&mut node, Some(&large()));
            node.tick();
        }
        node.record = damage;
        let found = outcome(&mut node, &large());
        assert!(found.starts_with("MigLayoutChanged"), "{found}");
        settled(&node, &large());
        assert!(node.read_record().last_change(&name()).is_some());
    }
}

#[test]
fn clocks_that_differ_make_waits_longer_never_shorter() {
    let mut node = scene(Actuator::MigManager);
    outcome(&mut node, &large());
    // A new leader whose clock is two hours behind: it waits an hour by its own.
    node.now -= 2 * HOUR;
    let takes_over = node.now;
    run(&mut node, HOUR, None);
    let cut = node.read_journal().changed.unwrap();
    assert!(cut.age(node.time()).as_secs() >= HOUR - 60, "{cut:?} is cut back to when it was first seen");
    node.tells.clear();
    run(&mut node, HOUR, Some(&small()));
    assert!(node.forward[1] >= takes_over + HOUR, "{:?} from {takes_over}", node.forward);
    // A clock far from the API server's begins nothing.
    let mut seen = node.observe();
    seen.cluster.server_time = Some(crate::model::Time::from_secs(node.now + 61));
    let policy = PolicyVersion("p".into());
    let proposal = node.proposal(&large());
    let refused =
        begin(node.time(), &node.settings, &proposal, &policy, &seen.world, &seen.cluster, &node.fleet());
    assert!(refused.unwrap_err().contains(&Refusal::ClockInDoubt));
}

mod histories;
