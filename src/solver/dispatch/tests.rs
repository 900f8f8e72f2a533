//! Decisions on fleets written as text, and random fleets on which every answer has to fit.

use super::*;
use crate::fixture::chance;
use crate::mig::GpuModel;

const LETTERS: [char; 6] = ['7', '4', '3', '2', 'd', '1'];

fn states() -> LayoutStates {
    LayoutStates::new(GpuModel::by_name("A100-80GB").unwrap())
}

/// Reads `4@0 1@6 | - | 7@0`: instances of each GPU, `d` for 1g with double memory.
fn fleet(states: &LayoutStates, text: &str) -> Vec<StateId> {
    let spot = |word: &str| {
        let (profile, start) = word.split_once('@').unwrap();
        let letter = profile.chars().next().unwrap();
        let profile = LETTERS.iter().position(|known| *known == letter).unwrap() as u8;
        Spot { profile, start: start.parse().unwrap() }
    };
    let gpu = |text: &str| {
        let words = text.split_whitespace().filter(|word| *word != "-");
        words.fold(StateId::default(), |state, word| states.add(state, spot(word)).unwrap())
    };
    text.split('|').map(gpu).collect()
}

fn show(spot: Spot) -> String {
    format!("{}@{}", LETTERS[usize::from(spot.profile)], spot.start)
}

/// What starts, as `gpu: spots`, for a uniform mix on a large fleet.
fn check_start(gpus: &str, waiting: [usize; 6], expected: &str) {
    let states = states();
    let rule = Dispatch::new(&states, 100, &[36.0; 6]);
    let start = rule.start(&fleet(&states, gpus), &waiting);
    let found = start.map(|start| {
        let spots: Vec<String> = start.spots.into_iter().map(show).collect();
        format!("{}: {}", start.gpu, spots.join(" "))
    });
    assert_eq!(found.as_deref().unwrap_or("-"), expected, "{gpus} with {waiting:?} waiting");
}

#[test]
fn waiting_pods_are_placed_together() {
    check_start("7@0 | -", [1, 0, 0, 0, 0, 1], "1: 7@0");
    check_start("3@4 | 7@0", [0, 1, 0, 0, 0, 0], "0: 4@0");
    // 4g and 3g in one empty GPU, each in the half that suits it.
    check_start("-", [0, 1, 1, 0, 0, 0], "0: 4@0 3@4");
    check_start("7@0", [1, 1, 1, 1, 1, 1], "-");
}

#[test]
fn nothing_is_held_back_for_those_who_do_not_wait() {
    // A lone small pod starts at once, whatever the window that it breaks is worth.
    let states = states();
    let rule = Dispatch::new(&states, 100, &[36.0; 6]);
    for profile in 0..6 {
        let mut waiting = [0; 6];
        waiting[profile] = 1;
        let start = rule.start(&[StateId::default(); 3], &waiting).unwrap();
        assert!(start.spots.len() == 1 && usize::from(start.spots[0].profile) == profile, "{start:?}");
    }
}

#[test]
fn a_small_pod_keeps_off_the_gpu_that_a_large_one_waits_for() {
    check_start("1@6 | 4@0 1@4 1@6", [1, 0, 0, 0, 0, 1], "1: 1@5");
}

/// The move for one waiting 7g and what starts then.
fn check_move(gpus: &str, left: f64, expected: Option<[&str; 2]>) {
    let states = states();
    let rule = Dispatch::new(&states, 100, &[36.0; 6]);
    let allowance = Allowance { rate: 0.0, most: left.max(1.0), left };
    let found = rule.relocate(&fleet(&states, gpus), &[1, 0, 0, 0, 0, 0], &allowance, |gpu, _| gpu == 0);
    let text = found.map(|found| {
        let place = |(gpu, spot)| format!("{gpu}:{}", show(spot));
        [format!("{} > {}", place(found.from), place(found.to)), show(found.start)]
    });
    assert_eq!(text, expected.map(|texts| texts.map(str::to_owned)), "{gpus}");
}

#[test]
fn one_move_makes_room() {
    check_move("3@4 | 4@0", 1.0, Some(["0:3@4 > 1:3@4", "7@0"]));
    check_move("2@4 | 4@0 2@4 | 4@0 d@6", 1.0, Some(["0:2@4 > 2:2@4", "7@0"]));
    // No allowance, no place to go, or not one move.
    check_move("3@4 | 4@0", 0.5, None);
    check_move("4@0 | 4@0 3@4", 1.0, None);
    check_move("1@0 1@1 | 4@0", 1.0, None);
    // What may not move stays: only pods of GPU 0 may.
    check_move("7@0 | 3@4 | 4@0", 1.0, None);
}

/// Random fleets and queues: whatever is answered fits, is asked for, moves only what may move, and is within the allowance.
#[test]
fn answers_fit() {
    let states = states();
    let rule = Dispatch::new(&states, 8, &[3.0; 6]);
    let mut next = chance(11);
    let (mut starts, mut moves) = (0, 0);
    for _ in 0..2_000 {
        let mut gpus = vec![StateId::default(); 8];
        for _ in 0..next(40) {
            let gpu = next(8) as usize;
            let options = states.additions(gpus[gpu]);
            if !options.is_empty() {
                gpus[gpu] = options[next(options.len() as u64) as usize].1;
            }
        }
        let mut waiting: Vec<usize> = (0..6).map(|_| next(3) as usize).collect();
        while let Some(start) = rule.start(&gpus, &waiting) {
            starts += 1;
            for spot in start.spots {
                gpus[start.gpu] = states.add(gpus[start.gpu], spot).expect("fits");
                waiting[usize::from(spot.profile)] =
                    waiting[usize::from(spot.profile)].checked_sub(1).expect("waits");
            }
        }
        let fixed = next(8) as usize;
        let mut allowance = Allowance::new(1.0, 3.0);
        (0..next(4)).for_each(|_| allowance.arrived());
        let Some(found) = rule.relocate(&gpus, &waiting, &allowance, |gpu, _| gpu != fixed) else { continue };
        moves += 1;
        assert!(allowance.allows() && found.from.0 != fixed && found.from.1.profile == found.to.1.profile);
        let (from, to) = (found.from, found.to);
        gpus[from.0] = states.remove(gpus[from.0], from.1).expect("runs there");
        gpus[to.0] = states.add(gpus[to.0], to.1).expect("its new place is free");
        gpus[from.0] = states.add(gpus[from.0], found.start).expect("the waiting pod fits");
        assert!(waiting[usize::from(found.start.profile)] > 0);
    }
    assert!(starts > 2_000 && moves > 100, "{starts} starts, {moves} moves: hardly a test");
}

#[test]
fn allowances_grow_with_arrivals_and_are_capped() {
    let mut allowance = Allowance::new(0.01, 2.0);
    (0..99).for_each(|_| allowance.arrived());
    assert!(!allowance.allows());
    (0..1_000).for_each(|_| allowance.arrived());
    assert_eq!((allowance.allows(), allowance.whole()), (true, 2));
    allowance.spent();
    allowance.spent();
    assert!(!allowance.allows());
}
