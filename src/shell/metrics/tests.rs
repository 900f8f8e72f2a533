//! The rendered text, since that is what dashboards depend on.

use super::*;
use crate::model::{NodeName, PodId, PodUid};

fn pod() -> PodId {
    PodId { namespace: "ns".into(), name: "a".into(), uid: PodUid::from("1") }
}

fn bound(attempts: u32, seconds: u64) -> Fact {
    let waited = Duration::from_secs(seconds);
    Fact::PodBound { pod: pod(), node: NodeName::from("n0"), attempts, waited }
}

/// Checks that each line stands in the text exactly as given.
fn check(metrics: &Metrics, expected: &[&str]) {
    let text = metrics.encode().unwrap();
    for line in expected {
        assert!(text.lines().any(|l| l == *line), "no line {line}\n{text}");
    }
}

/// Tests that every fact moves its own counters.
#[test]
fn facts_become_numbers() {
    let metrics = Metrics::new("mig-scheduler");
    let message = "0/1 nodes are available".to_owned();
    let facts = [
        Fact::PodQueued { queue: QueueName::Active, cause: QueueCause::PodAdd },
        Fact::PodQueued { queue: QueueName::Backoff, cause: QueueCause::ScheduleAttemptFailure },
        Fact::PodAssumed { pod: pod(), node: NodeName::from("n0"), feasible: 3 },
        Fact::PodUnschedulable { pod: pod(), message: message.clone() },
        Fact::BindFailed { pod: pod(), node: NodeName::from("n0"), message },
        bound(1, 1),
        bound(15, 30),
        bound(40, 30),
    ];
    facts.iter().for_each(|fact| metrics.record(fact));
    check(
        &metrics,
        &[
            r#"mig_scheduler_schedule_attempts_total{result="scheduled",profile="mig-scheduler"} 3"#,
            r#"mig_scheduler_schedule_attempts_total{result="unschedulable",profile="mig-scheduler"} 1"#,
            r#"mig_scheduler_schedule_attempts_total{result="error",profile="mig-scheduler"} 1"#,
            r#"mig_scheduler_queue_incoming_pods_total{queue="active",event="PodAdd"} 1"#,
            r#"mig_scheduler_queue_incoming_pods_total{queue="backoff",event="ScheduleAttemptFailure"} 1"#,
            r#"mig_scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="1"} 1.0"#,
            r#"mig_scheduler_pod_scheduling_sli_duration_seconds_count{attempts="15+"} 2"#,
            "mig_scheduler_pod_scheduling_attempts_count 3",
        ],
    );
}

fn outlook(model: &'static str, error: Option<f32>) -> Fact {
    let group = crate::forecast::GroupOutlook {
        group: "gpu-activity".to_owned(),
        series: 3,
        trusted: 2,
        stale: 1,
        models: vec![(model, 0.75), ("persistence", 0.25)],
        distrust: error.is_none().then(|| "too young".to_owned()),
        error,
        persistence_error: Some(0.5),
        said: None,
        actual: None,
    };
    Fact::Forecast { at: 1_796_000_000, group, changed: false }
}

/// Tests that each kind of series has one speaker, and no figure that is not known.
#[test]
fn forecasts_become_numbers() {
    let metrics = Metrics::new("mig-scheduler");
    metrics.record(&outlook("lstm", None));
    metrics.record(&outlook("linear", Some(0.25)));
    metrics.count_usage_poll(CallResult::Error);
    metrics.count_forecast_update(CallResult::Success);
    check(
        &metrics,
        &[
            r#"mig_scheduler_usage_polls_total{result="error"} 1"#,
            r#"mig_scheduler_usage_polls_total{result="success"} 0"#,
            r#"mig_scheduler_forecast_updates_total{result="success"} 1"#,
            "mig_scheduler_forecast_timestamp_seconds 1796000000",
            r#"mig_scheduler_forecast_trusted_series{group="gpu-activity"} 2"#,
            r#"mig_scheduler_forecast_series{group="gpu-activity"} 3"#,
            r#"mig_scheduler_forecast_stale_series{group="gpu-activity"} 1"#,
            r#"mig_scheduler_forecast_share{group="gpu-activity",model="linear"} 0.75"#,
            r#"mig_scheduler_forecast_error{group="gpu-activity"} 0.25"#,
            r#"mig_scheduler_forecast_persistence_error{group="gpu-activity"} 0.5"#,
        ],
    );
    let text = metrics.encode().unwrap();
    assert!(!text.contains("model=\"lstm\"") && !text.contains("forecast_said{"), "{text}");
    metrics.record(&outlook("linear", None));
    assert!(!metrics.encode().unwrap().contains("forecast_error{"));
}

/// Tests the names and labels of what is set from outside.
#[test]
fn setters_become_numbers() {
    let metrics = Metrics::new("mig-scheduler");
    metrics.set_pending(QueueName::Gated, 7);
    metrics.set_cache(CacheSize { nodes: 5, pods: 9, assumed_pods: 2 });
    metrics.observe_call(CallType::PodBinding, CallResult::Success, Duration::from_millis(3));
    metrics.set_pending_calls(CallType::Event, 4);
    metrics.count_drop(CallType::Event);
    metrics.count_watch_restart(Watched::Pods);
    metrics.observe_attempt(AttemptResult::Scheduled, Duration::from_millis(5));
    metrics.observe_algorithm(Duration::from_micros(80));
    metrics.set_leader(true);
    check(
        &metrics,
        &[
            r#"mig_scheduler_pending_pods{queue="gated"} 7"#,
            r#"mig_scheduler_cache_size{type="assumed_pods"} 2"#,
            r#"mig_scheduler_async_api_call_execution_total{call_type="pod_binding",result="success"} 1"#,
            r#"mig_scheduler_async_api_call_execution_duration_seconds_count{call_type="pod_binding",result="success"} 1"#,
            r#"mig_scheduler_pending_async_api_calls{call_type="event"} 4"#,
            r#"mig_scheduler_async_api_call_drops_total{call_type="event"} 1"#,
            r#"mig_scheduler_watch_restarts_total{resource="pods"} 1"#,
            r#"mig_scheduler_scheduling_attempt_duration_seconds_count{result="scheduled",profile="mig-scheduler"} 1"#,
            r#"mig_scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"} 1"#,
            "mig_scheduler_leader 1",
            concat!(r#"mig_scheduler_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
        ],
    );
}

/// Tests that the buckets are kube-scheduler's: first bound, factor and number.
#[test]
fn buckets_are_those_of_kube_scheduler() {
    let metrics = Metrics::new("mig-scheduler");
    metrics.observe_attempt(AttemptResult::Scheduled, Duration::ZERO);
    metrics.observe_call(CallType::Event, CallResult::Error, Duration::ZERO);
    metrics.record(&bound(1, 0));
    let cases = [
        ("scheduling_attempt_duration_seconds", 0.001, 15),
        ("scheduling_algorithm_duration_seconds", 0.001, 15),
        ("async_api_call_execution_duration_seconds", 0.001, 15),
        ("pod_scheduling_sli_duration_seconds", 0.01, 20),
        ("pod_scheduling_attempts", 1.0, 5),
    ];
    let text = metrics.encode().unwrap();
    for (name, first, count) in cases {
        let marker = format!("mig_scheduler_{name}_bucket{{le=\"");
        let mut bounds: Vec<f64> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&marker)?.split('"').next()?.parse().ok())
            .collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        assert_eq!(bounds.len(), count + 1, "{name}: {bounds:?}");
        assert_eq!(bounds.pop(), Some(f64::INFINITY), "{name}");
        let expected = (0..count).map(|i| first * f64::from(1 << i));
        for (bound, expected) in bounds.iter().zip(expected) {
            assert!((bound - expected).abs() < 1e-9 * expected, "{name}: {bounds:?}");
        }
    }
}

/// Tests that every metric has a help text that is a sentence, and that no suffix is doubled.
#[test]
fn text_is_well_formed() {
    let text = Metrics::new("mig-scheduler").encode().unwrap();
    assert!(text.ends_with("# EOF\n"));
    assert!(!text.contains("_total_total") && !text.contains("_seconds_seconds"), "{text}");
    for help in text.lines().filter(|line| line.starts_with("# HELP ")) {
        assert!(help.starts_with("# HELP mig_scheduler_"), "{help}");
        assert!(help.ends_with('.') && !help.ends_with(".."), "{help}");
    }
}

/// Tests that counters with known labels are there before they first count.
#[test]
fn known_series_start_at_zero() {
    check(
        &Metrics::new("mig-scheduler"),
        &[
            r#"mig_scheduler_schedule_attempts_total{result="error",profile="mig-scheduler"} 0"#,
            r#"mig_scheduler_async_api_call_drops_total{call_type="event"} 0"#,
            r#"mig_scheduler_watch_restarts_total{resource="nodes"} 0"#,
            r#"mig_scheduler_pending_pods{queue="unschedulable"} 0"#,
            "mig_scheduler_leader 0",
        ],
    );
}
