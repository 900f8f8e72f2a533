//! The scheduler killed before every action, and random histories of all faults together.

use super::*;
use crate::fixture::chance;

/// Kills the scheduler before its `kill`-th action, leaves it dead for `dead` seconds and starts it again. Returns how many
/// actions there were.
fn killed(actuator: Actuator, faults: &[Fault], kill: usize, dead: u64) -> (Emulator, usize) {
    let mut node = scene(actuator);
    node.faults = faults.to_vec();
    let mut count = 0;
    let end = node.now + 4 * HOUR;
    let mut asked = false;
    while node.now < end {
        let seen = node.observe();
        asked |= node.read_journal().change.is_some();
        for action in node.decide(&seen, (!asked).then_some(&large())) {
            count += 1;
            if count == kill {
                (0..dead / TICK).for_each(|_| node.tick());
                break;
            }
            if !node.act(&action, seen.version.max(node.version)) {
                break;
            }
        }
        node.tick();
    }
    (node, count)
}

#[test]
fn killed_before_every_action_it_ends_in_the_new_layout_or_the_old() {
    let histories: [&[Fault]; 5] = [
        &[],
        &[Fault::FailsEmpty],
        &[Fault::StuckPending],
        &[Fault::FailsHalf, Fault::StuckPending],
        &[Fault::NeverAdvertised],
    ];
    let mut kills = 0;
    for actuator in BOTH {
        for faults in histories {
            let (_, actions) = killed(actuator, faults, usize::MAX, 0);
            for kill in 1..=actions {
                for dead in [0, 1_200] {
                    let (node, _) = killed(actuator, faults, kill, dead);
                    assert_eq!(
                        node.broken,
                        Vec::<String>::new(),
                        "{actuator:?} {faults:?} killed before {kill}"
                    );
                    let layout = if node.actual == large() { large() } else { small() };
                    settled(&node, &layout);
                    assert!(node.forward.len() <= 1);
                    assert!(faults.is_empty() || layout == small() || node.forward.is_empty());
                    kills += 1;
                }
            }
        }
    }
    assert!(kills > 200, "{kills}");
}

/// Some hours of everything at once: faults, deaths, old observations, pods that come, people.
fn history(seed: u64) -> (Emulator, usize) {
    let mut chance = chance(seed);
    let mut node = scene(BOTH[chance(2) as usize]);
    node.settings.canary_changes = 1;
    // Each seed knows some faults only; they come so that of two attempts back one succeeds.
    let known: Vec<Fault> = FAULTS.into_iter().filter(|_| chance(2) == 0).collect();
    let (deaths, lag) = (chance(3) * 2, chance(4));
    node.harmful = chance(6) == 0;
    node.blind = chance(6) == 0;
    node.replacement_secs = [10, 30, 200, 1_000][chance(4) as usize];
    node.budget_refuses = chance(8) == 0;
    let mut past = Vec::new();
    let (mut dead, mut pods) = (0, 0);
    let mut wanted = large();
    for _ in 0..(5 * HOUR / TICK) {
        if node.faults.is_empty() && !known.is_empty() {
            let mut fault =
                || if chance(2) == 0 { known[chance(known.len() as u64) as usize] } else { Fault::None };
            // A harmful change needs a rollback after a step forward that went well.
            node.faults =
                if node.harmful { vec![fault(), Fault::None] } else { vec![fault(), fault(), Fault::None] };
        }
        if node.read_journal().change.is_none() && node.actual.counts() == wanted.counts() {
            wanted = if wanted == large() { small() } else { large() };
        }
        arrive(&mut node, &mut pods, chance(120), chance(4));
        past.push(node.observe());
        if dead > 0 {
            dead -= 1;
        } else {
            let seen = past[past.len().saturating_sub(1 + chance(lag + 1) as usize)].clone();
            for (at, action) in node.decide(&seen, Some(&wanted)).iter().enumerate() {
                if deaths > 0 && chance(60) < deaths {
                    dead = chance(90);
                    break;
                }
                // Only the first action can be a PATCH that has to meet its version: our own moves it on.
                let version = if at == 0 { seen.version } else { node.version };
                if !node.act(action, version) {
                    break;
                }
            }
        }
        node.tick();
    }
    (node, pods)
}

/// Pods come as schedulers let them, and go.
fn arrive(node: &mut Emulator, pods: &mut usize, event: u64, kind: u64) {
    let open = match node.admits() {
        Admission::All => !node.unschedulable,
        Admission::Movable => kind > 0,
        Admission::None => false,
    };
    if event == 0 && open && node.answer == Answer::Done && node.pods.len() < 5 {
        *pods += 1;
        let movable = if kind == 0 { Err(Immovable::NotInference) } else { Ok(()) };
        node.add_pod(&format!("p{pods}"), 0, movable);
    } else if event == 1 {
        let trainer = pod("trainer");
        let leaves = node.pods.iter().find(|(id, pod)| **id != trainer && pod.goes_at.is_none());
        if let Some(id) = leaves.map(|(id, _)| id.clone()) {
            node.pods.get_mut(&id).unwrap().goes_at = Some(node.now + 20);
            node.version += 1;
        }
    }
}

#[test]
fn random_histories_break_nothing() {
    let (mut changes, mut back, mut came) = (0, 0, 0);
    for seed in 0..200 {
        println!("seed {seed}");
        let (mut node, pods) = history(seed);
        assert_eq!(node.broken, Vec::<String>::new(), "seed {seed}");
        // Left alone, whatever was under way comes to its end.
        (node.harmful, node.budget_refuses, node.faults) = (false, false, Vec::new());
        run(&mut node, 3 * HOUR, None);
        assert_eq!(node.broken, Vec::<String>::new(), "seed {seed}");
        let layout = if node.actual.counts() == large().counts() { large() } else { small() };
        settled(&node, &layout);
        changes += node.forward.len();
        back += node.tells.len() - node.forward.len();
        came += pods;
    }
    assert!(
        changes > 200 && back > 50 && came > 200,
        "{changes} changes, {back} back, {came} pods: hardly a test"
    );
}
