//! ParvaGPU's scenarios: the number of GPUs, and every deployment checked against the measurements by itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mig_scheduler::mig::{GpuModel, Layout};
use mig_scheduler::solver::services::{Segment, size};

use crate::shared;

#[path = "../../benches/parvagpu/data.rs"]
mod data;

/// Numbers of a file's lines by column; `None` where there is no number.
fn numbers(path: &Path) -> Vec<Vec<Option<f64>>> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split(',').map(|word| word.trim().parse().ok()).collect()).collect()
}

/// Requests a second and seconds that the files give for what this segment is said to run: (throughput, latency).
fn measured(folder: &Path, network: &str, segment: &Segment) -> (f64, f64) {
    let rows = numbers(&folder.join(format!("prof_data/{network}.csv")));
    let point = segment.point;
    let key =
        [f64::from(segment.placement.profile.compute_slices()), point.batch.into(), point.processes.into()];
    let row = rows.iter().find(|row| row[..3].iter().zip(key).all(|(cell, key)| *cell == Some(key))).unwrap();
    (row[3].unwrap() * f64::from(point.processes), row[4].unwrap())
}

#[test]
fn the_scenarios_need_no_more_gpus_than_is_possible() {
    let Some(folder) = shared::path("traces/parvagpu") else { return };
    let model = GpuModel::by_name(data::MODEL).unwrap();
    let slo = numbers(&folder.join("SLO/SLO_latency.csv"));
    let rates = numbers(&folder.join("SLO/SLO_req_rate.csv"));
    let mut networks: Vec<String> = fs::read_dir(folder.join("prof_data"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    networks.sort();
    let scenarios = data::scenarios(&folder).unwrap();
    for (at, scenario) in scenarios.iter().enumerate() {
        let sizing = size(model, &scenario.services).unwrap();
        let mut served: BTreeMap<&str, f64> = BTreeMap::new();
        for gpu in &sizing.gpus {
            Layout::new(model, gpu.iter().map(|segment| segment.placement)).unwrap();
            for segment in gpu {
                let network = scenario.services[segment.service].name.as_str();
                let column = networks.iter().position(|name| name == network).unwrap();
                let (throughput, latency) = measured(&folder, network, segment);
                let limit = 0.45 * slo[at][column].unwrap() / 1_000.0;
                assert!(
                    throughput > 0.0 && latency <= limit,
                    "{}: {network} takes {latency} s",
                    scenario.name
                );
                *served.entry(network).or_default() += throughput;
            }
        }
        for (column, network) in networks.iter().enumerate() {
            let (rate, served) = (rates[at][column].unwrap_or(0.0), served.get(network.as_str()).copied());
            assert!(
                served.unwrap_or(0.0) >= rate - 1e-6,
                "{}: {network} {served:?} of {rate}",
                scenario.name
            );
        }
        let most = data::GPUS[at].min(scenario.published);
        assert!(sizing.gpus.len() <= most, "{}: {} GPUs", scenario.name, sizing.gpus.len());
        assert_eq!(sizing.gpus.len(), sizing.bound, "{}: not proven", scenario.name);
    }
    assert_eq!(scenarios.len(), data::GPUS.len());
}
