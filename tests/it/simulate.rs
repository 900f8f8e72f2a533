//! `simulate` from outside: the same bytes for the same seed, every pod accounted for, every decision checked by a judge that
//! shares no code with the engine.

use std::process::{Command, Output};
use std::time::Duration;

use mig_scheduler::mig::Placement;
use mig_scheduler::sim::policy::{self, PolicyRun};
use mig_scheduler::sim::scenario::Scenario;
use mig_scheduler::sim::static_layout::best_layouts;
use mig_scheduler::sim::traces;
use mig_scheduler::sim::workload::{self, Mix, Options};
use mig_scheduler::sim::world::Action;
use serde_json::Value;

use crate::checker::{Counts, check};
use crate::shared;

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mig-scheduler")).arg("simulate").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs the built-in workload under every policy.
fn workload_runs(options: &Options) -> (Scenario, Vec<PolicyRun>) {
    let scenario = workload::generate(options).unwrap();
    let layouts =
        best_layouts(scenario.model, options.gpus, &workload::mean_demand(options, scenario.model)).unwrap();
    let runs = policy::compare(&scenario, &layouts, &policy::for_workload(true), &mut |_, _| ());
    (scenario, runs)
}

fn total(counts: &Counts) -> usize {
    counts.completed + counts.running + counts.waiting + counts.refused
}

#[test]
fn every_decision_stands_up_to_the_judge() {
    for (mix, seed) in [(Mix::Uniform, 1), (Mix::SkewSmall, 2), (Mix::SkewBig, 3), (Mix::Bimodal, 4)] {
        let window = Duration::from_secs(86_400);
        let options = Options { gpus: 16, window, seed, load: 1.1, mix };
        let (scenario, runs) = workload_runs(&options);
        for run in &runs {
            let counts = check(&scenario, &run.nodes, &run.outcome)
                .unwrap_or_else(|error| panic!("{mix:?}, {}: {error}", run.policy.key));
            assert_eq!(total(&counts), scenario.pods.len());
            assert_eq!((counts.refused, run.outcome.violations.len()), (0, 0), "{mix:?}, {}", run.policy.key);
        }
        let waiting =
            |run: &PolicyRun| check(&scenario, &run.nodes, &run.outcome).map(|counts| counts.waiting);
        assert!(runs.iter().any(|run| waiting(run) > Ok(0)), "{mix:?}: overload leaves pods waiting");
    }
}

#[test]
fn the_judge_sees_what_is_wrong() {
    let (scenario, runs) = workload_runs(&Options { gpus: 4, load: 1.2, ..Options::default() });
    let run = &runs[2];
    let tampered = |change: &dyn Fn(&mut Vec<mig_scheduler::sim::world::LogEntry>)| {
        let mut outcome = run.outcome.clone();
        change(&mut outcome.log);
        check(&scenario, &run.nodes, &outcome).unwrap_err()
    };
    let last_bound = run.outcome.log.iter().rposition(|entry| matches!(entry.action, Action::Bound { .. }));
    let last_bound = last_bound.unwrap();
    let ended = run.outcome.log.iter().find(|entry| entry.action == Action::Ended).unwrap().pod;
    let without = tampered(&|log| log.retain(|entry| entry.pod != ended || entry.action == Action::Ended));
    assert!(without.contains("ended without running"), "{without}");
    assert!(tampered(&|log| log.insert(last_bound, log[last_bound].clone())).contains("bound twice"));
    let shifted = tampered(&|log| {
        for entry in log.iter_mut() {
            if let Action::Bound { devices, .. } = &mut entry.action {
                devices.iter_mut().for_each(|device| device.gpu = 0);
            }
        }
    });
    assert!(shifted.contains("is in use"), "{shifted}");
    let illegal = tampered(&|log| {
        if let Action::Bound { devices, .. } = &mut log[last_bound].action {
            devices[0].placement = Placement::new(devices[0].placement.profile, 7);
        }
    });
    assert!(illegal.contains("may not start at 7"), "{illegal}");
    let emptied = tampered(&|log| log.retain(|entry| entry.pod > 10_000_000));
    assert!(emptied.contains("the log says otherwise"), "{emptied}");
}

#[test]
fn static_layouts_wait_longer_than_instances_on_demand() {
    let (_, runs) =
        workload_runs(&Options { gpus: 40, window: Duration::from_secs(7 * 86_400), ..Options::default() });
    let waiting = |run: &PolicyRun| run.outcome.measures.waiting_pods;
    assert!(waiting(&runs[2]) < waiting(&runs[0]), "{} and {}", waiting(&runs[2]), waiting(&runs[0]));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let arguments = ["--gpus", "10", "--hours", "6", "--json", "--seed"];
    let with = |seed| simulate(&[arguments.as_slice(), &[seed]].concat());
    let first = with("5");
    assert!(first.status.success(), "{}", stderr(&first));
    assert_eq!(stderr(&first), "", "no progress where there is no terminal");
    assert_eq!(first.stdout, with("5").stdout);
    assert_ne!(first.stdout, with("6").stdout);
    let document: Value = serde_json::from_str(&stdout(&first)).unwrap();
    assert_eq!(document["scenario"]["gpus"], 10);
    let keys: Vec<_> = document["policies"].as_array().unwrap().iter().map(|p| p["policy"].clone()).collect();
    assert_eq!(keys, ["static_spread", "static_ours", "on_demand_ours"]);
    for policy in document["policies"].as_array().unwrap() {
        let count = |key: &str| policy["pods"][key].as_u64().unwrap();
        let sum = count("completed") + count("running") + count("waiting") + count("refused");
        assert_eq!(count("created"), sum);
    }
}

#[test]
fn the_table_names_every_measure_with_its_unit() {
    let output = simulate(&["--gpus", "8", "--hours", "3", "--baseline"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "8 x A100-40GB on 2 nodes, 3 h of inference pods, seed 1",
        "what packing alone can give",
        "bound to a node",
        "queue time, P99 (s)",
        "compute slices allocated",
        "demand-weighted, of all",
        "stranded, of free",
        "although enough slices were free",
        "7g.40gb: ",
        "static layout      on demand",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn wrong_usage_names_option_value_and_bounds() {
    let check = |arguments: &[&str], code: i32, parts: &[&str]| {
        let output = simulate(arguments);
        let text = stderr(&output);
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(code), ""),
            "{arguments:?}: {text}"
        );
        parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in: {text}"));
    };
    check(&["--hours", "0"], 2, &["'0'", "--hours", "above 0 and at most 744"]);
    check(&["--hours", "1e9"], 2, &["'1e9'", "--hours"]);
    check(&["--gpus", "0"], 2, &["'0'", "--gpus", "1..=10000"]);
    check(&["--gpus", "99999999999"], 2, &["--gpus"]);
    check(&["--load", "-1"], 2, &["--load"]);
    check(&["--mix", "none"], 2, &["--mix", "skew-small"]);
    check(&["--trace", "x", "--gpus", "5"], 2, &["--trace", "--gpus"]);
    check(&["--trace", "no/such/folder"], 1, &["--trace", "no/such", "openb_node_list_all_node.csv"]);
}

#[test]
fn the_smallest_and_an_odd_cluster_run() {
    for arguments in [["--gpus", "1", "--hours", "0.01"], ["--gpus", "5", "--hours", "1"]] {
        let output = simulate(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

/// The published figures about the real trace.
#[test]
fn openb_maps_as_published() {
    let Some(folder) = shared::path("traces/openb") else { return };
    let scenario = traces::read(&folder).unwrap();
    assert_eq!((scenario.pods.len(), scenario.machines.len(), scenario.gpus()), (8_152, 1_523, 6_212));
    let note = &scenario.notes[2];
    assert!(note.contains("27.7 %") && note.contains("8.5 %"), "{note}");
}

/// The real trace: nobody is lost, nobody waits in vain, and best fit binds no more pods.
#[test]
fn openb_accounts_for_every_pod() {
    let Some(folder) = shared::path("traces/openb") else { return };
    let mixes = ["openb_pod_list_default.csv", "openb_pod_list_gpuspec33.csv"];
    for (file, fill) in mixes.into_iter().flat_map(|file| [(file, false), (file, true)]) {
        let mut scenario = traces::read(&folder.join(file)).unwrap();
        if fill {
            scenario.without_departures();
        }
        let runs = policy::compare(&scenario, &[], &policy::for_trace(false), &mut |_, _| ());
        let bound: Vec<usize> = runs
            .iter()
            .map(|run| {
                let counts = check(&scenario, &run.nodes, &run.outcome)
                    .unwrap_or_else(|error| panic!("{file}, {}: {error}", run.policy.key));
                assert_eq!((total(&counts), counts.refused, run.outcome.violations.len()), (8_152, 0, 0));
                assert!(counts.waiting > 0 || !fill, "{file}: a cluster that fills up runs out of room");
                counts.completed + counts.running
            })
            .collect();
        eprintln!("{file}, fill {fill}: ours binds {} pods, best fit {}", bound[0], bound[1]);
        assert!(bound[0] >= bound[1], "{file}: ours binds {} pods, best fit {}", bound[0], bound[1]);
    }
}
