//! Small clusters whose numbers can be worked out by hand.

use super::*;
use crate::mig::Layout;
use crate::sim::scenario::{Class, Machine, bare_node};

fn model() -> &'static GpuModel {
    GpuModel::by_name("A100-40GB").unwrap()
}

fn placement(text: &str) -> Placement {
    let (profile, start) = text.split_once('@').unwrap();
    Placement::new(profile.parse().unwrap(), start.parse().unwrap())
}

fn device(text: &str) -> DevicePlacement {
    DevicePlacement { gpu: 0, placement: placement(text) }
}

/// One GPU; half of the demand is for 1g.5gb, half for 3g.20gb; measured from 10 s to 20 s.
fn scenario() -> Scenario {
    let class =
        |name: &str, count| Class { name: name.into(), instances: Some((name.parse().unwrap(), count)) };
    Scenario {
        title: String::new(),
        notes: Vec::new(),
        model: model(),
        machines: vec![Machine { node: bare_node("n0", 1, 1, 1, model()), gpus: 1 }],
        pods: Vec::new(),
        classes: vec![class("1g.5gb", 1), class("3g.20gb", 1), class("3g.20gb", 2)],
        measure_from: Time::from_secs(10),
        end: Time::from_secs(20),
        demand: vec![("1g.5gb".parse().unwrap(), 1), ("3g.20gb".parse().unwrap(), 1)],
    }
}

fn near(got: f64, wanted: f64) {
    assert!((got - wanted).abs() < 1e-12, "{got} instead of {wanted}");
}

#[test]
fn free_slices_count_by_what_fits_there() {
    let scenario = scenario();
    let mut meter = Meter::new(&scenario, &scenario.on_demand());
    meter.advance(Time::from_secs(10));
    meter.take(0, &[device("1g.5gb@0"), device("1g.5gb@4")]);
    meter.advance(Time::from_secs(25));
    let measures = meter.measures();
    near(measures.memory_allocated, 2.0 / 8.0);
    near(measures.compute_allocated, 2.0 / 7.0);
    // Six slices are free: slice 7 is beyond every 1g.5gb, and no 3g.20gb fits at all.
    near(measures.fragmented, (0.5 * 1.0 + 0.5 * 6.0) / 8.0);
    near(measures.fragmented_of_free, 3.5 / 6.0);
    near(measures.stranded_of_free, 0.0);
}

#[test]
fn on_fixed_instances_only_those_that_exist_are_places() {
    let scenario = scenario();
    let layout = Layout::new(model(), [placement("3g.20gb@0"), placement("1g.5gb@4")]).unwrap();
    let mut meter = Meter::new(&scenario, &scenario.fixed(&[layout]));
    meter.advance(Time::from_secs(15));
    meter.take(0, &[device("3g.20gb@0")]);
    meter.advance(Time::from_secs(20));
    let measures = meter.measures();
    near(measures.memory_allocated, 0.5 * 4.0 / 8.0);
    // First 8 free: 7 uncovered for 1g, 4 for 3g. Then 4 free: 3 and 4. Stranded are the three slices without an instance.
    near(measures.fragmented, (0.5 * (7.0 + 4.0) / 2.0 + 0.5 * (3.0 + 4.0) / 2.0) / 8.0);
    near(measures.stranded_of_free, 3.0 / 6.0);
}

#[test]
fn waiting_is_blocked_only_while_the_free_slices_would_suffice() {
    let scenario = scenario();
    let mut meter = Meter::new(&scenario, &scenario.on_demand());
    meter.advance(Time::from_secs(10));
    meter.take(0, &[device("1g.5gb@0"), device("1g.5gb@4")]);
    meter.put_off(1);
    meter.put_off(2);
    assert!(meter.would_suffice(1) && !meter.would_suffice(2), "6 slices are free");
    meter.advance(Time::from_secs(16));
    meter.promised(1);
    assert!(!meter.would_suffice(1), "they are promised to another pod");
    meter.settled(1, true);
    meter.free(0, &[device("1g.5gb@4")]);
    meter.advance(Time::from_secs(20));
    let measures = meter.measures();
    near(measures.waiting_pods, (2.0 * 6.0 + 4.0) / 10.0);
    near(measures.blocked_time, 6.0 / 16.0);
    near(measures.memory_allocated, (0.6 * 2.0 + 0.4) / 8.0);
}

#[test]
fn percentiles_are_values_that_occurred() {
    let seconds = |values: &[u64]| values.iter().map(|&value| Duration::from_secs(value)).collect::<Vec<_>>();
    let statistics = WaitStatistics::of(seconds(&(1..=100).rev().collect::<Vec<_>>()));
    assert_eq!(
        (statistics.p50_s, statistics.p95_s, statistics.p99_s, statistics.max_s),
        (50.0, 95.0, 99.0, 100.0)
    );
    near(statistics.mean_s, 50.5);
    assert_eq!(WaitStatistics::of(Vec::new()), WaitStatistics::default());
    assert_eq!(WaitStatistics::of(seconds(&[7])).p99_s, 7.0);
}
