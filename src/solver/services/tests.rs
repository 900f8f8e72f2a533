//! Sizes by hand, refusals, and random services against trying everything.

use super::*;
use crate::fixture::chance;

fn model(name: &str) -> &'static GpuModel {
    GpuModel::by_name(name).unwrap()
}

/// Reads `1g.6gb:40/0.02`: requests a second, and latency in seconds; the batch is the position.
fn service(rate: f64, limit: f64, points: &str) -> Service {
    let point = |(batch, word): (u32, &str)| {
        let (profile, measured) = word.split_once(':').unwrap();
        let (throughput, latency) = measured.split_once('/').unwrap();
        let (throughput, latency) = (throughput.parse().unwrap(), latency.parse().unwrap());
        OperatingPoint { profile: profile.parse().unwrap(), batch, processes: 1, throughput, latency }
    };
    let points = (1..).zip(points.split_whitespace()).map(point).collect();
    Service { name: "bert".into(), rate, latency_limit: limit, points }
}

/// GPUs and bound, after a check that the answer serves everything in time from legal layouts.
fn sized(model: &'static GpuModel, services: &[Service]) -> (usize, usize) {
    let sizing = size(model, services).unwrap();
    let mut served = vec![0.0; services.len()];
    for gpu in &sizing.gpus {
        Layout::new(model, gpu.iter().map(|segment| segment.placement)).unwrap();
        for segment in gpu {
            let service = &services[segment.service];
            assert!(
                segment.point.latency <= service.latency_limit && service.points.contains(&segment.point)
            );
            assert_eq!(segment.point.profile, segment.placement.profile);
            served[segment.service] += segment.point.throughput;
        }
    }
    for (service, served) in services.iter().zip(served) {
        assert!(served >= service.rate - SLACK, "{served} of {}", service.rate);
    }
    (sizing.gpus.len(), sizing.bound)
}

#[test]
fn size_batch_and_processes_are_chosen_together() {
    let a30 = model("A30-24GB");
    assert_eq!(sized(a30, &[]), (0, 0));
    // Four small ones would do 160; the limit leaves the slower batch, so that a half is needed as well.
    let tight = service(150.0, 0.02, "1g.6gb:40/0.03 1g.6gb:30/0.02 2g.12gb:90/0.02");
    assert_eq!(sized(a30, std::slice::from_ref(&tight)), (1, 1));
    let loose = Service { latency_limit: 0.03, ..tight.clone() };
    assert_eq!(sized(a30, &[tight, loose]), (2, 2));
    // Each alone leaves a part of its GPU; together they fill one.
    let half = service(50.0, 1.0, "2g.12gb:50/0.1 4g.24gb:70/0.1");
    assert_eq!(sized(a30, &[half.clone(), half]), (1, 1));
}

#[test]
fn nothing_is_provided_that_nobody_needs() {
    let sizing = size(model("A30-24GB"), &[service(30.0, 1.0, "1g.6gb:30/0.1 4g.24gb:300/0.1")]).unwrap();
    assert_eq!(sizing.gpus.iter().map(Vec::len).collect::<Vec<_>>(), [1]);
}

#[track_caller]
fn check_refused(service: Service, expected: &str) {
    let error = size(model("A30-24GB"), &[service]).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_cannot_be_sized_says_why() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
        check_refused(service(rate, 1.0, "1g.6gb:30/0.1"), "service bert: the rate");
    }
    let slow = service(1.0, 0.05, "1g.6gb:30/0.2 2g.12gb:60/0.1 4g.24gb:0/0");
    check_refused(slow, "service bert: nothing measured keeps a latency of 0.05 s (the fastest takes 0.1 s)");
    check_refused(service(1.0, 1.0, ""), "service bert: nothing measured");
    check_refused(service(1e9, 1.0, "1g.6gb:30/0.1"), "over 10000 instances");
    check_refused(service(1.0, 1.0, "3g.20gb:30/0.1"), "A30-24GB has no profile `3g.20gb`");
}

/// The fewest A30s by trying every number of instances of every size for every service.
fn by_trying(services: &[Service]) -> usize {
    let sizes = ["1g.6gb", "2g.12gb", "4g.24gb"].map(|name| name.parse::<ProfileName>().unwrap());
    let mut sums = BTreeSet::from([[0u32; 3]]);
    for service in services {
        let best = sizes.map(|size| {
            let fast =
                service.points.iter().filter(|p| p.profile == size && p.latency <= service.latency_limit);
            fast.map(|point| point.throughput).fold(0.0, f64::max)
        });
        let most = best.map(|t| if t > 0.0 { (service.rate / t).ceil() as u32 } else { 0 });
        let mut larger = BTreeSet::new();
        for a in 0..=most[0] {
            for b in 0..=most[1] {
                for c in 0..=most[2] {
                    let served = best[0] * f64::from(a) + best[1] * f64::from(b) + best[2] * f64::from(c);
                    if served >= service.rate {
                        larger.extend(sums.iter().map(|sum| [sum[0] + a, sum[1] + b, sum[2] + c]));
                    }
                }
            }
        }
        sums = larger;
    }
    // Four slices a GPU: halves pair up, and what they leave takes small ones.
    let gpus = |[small, half, whole]: [u32; 3]| whole + (2 * half + small).div_ceil(4);
    sums.into_iter().map(gpus).min().unwrap() as usize
}

#[test]
fn no_choice_needs_fewer_gpus() {
    let mut next = chance(5);
    let a30 = model("A30-24GB");
    let (mut above, mut rounds) = (0, 0);
    while rounds < 300 {
        let mut any = |bound: u64| next(bound) as f64;
        let services: Vec<Service> = (0..1 + any(3) as usize)
            .map(|_| {
                let small = 10.0 + any(40);
                let (half, whole) = (small * (1.5 + any(12) / 10.0), small * (2.5 + any(30) / 10.0));
                let points = format!(
                    "1g.6gb:{small}/0.{} 1g.6gb:{}/0.9 2g.12gb:{half}/0.{} 4g.24gb:{whole}/0.1",
                    1.0 + any(9),
                    small * 1.2,
                    1.0 + any(9)
                );
                service(10.0 + any(200), 0.5, &points)
            })
            .collect();
        let (gpus, bound) = sized(a30, &services);
        assert_eq!(gpus, by_trying(&services), "{services:?}");
        assert_eq!(gpus, bound);
        above += usize::from(gpus > 1);
        rounds += 1;
    }
    assert!(above > 100, "{above} needed more than one GPU: hardly a test");
}
