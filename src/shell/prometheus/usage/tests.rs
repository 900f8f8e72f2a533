//! Answers as Prometheus sends them, and the series that come of them.

use super::super::answer;
use super::*;

const A100: &str = r#""modelName":"NVIDIA A100-SXM4-40GB""#;
const END: i64 = 600_000;

/// A range answer in the server's own form: labels in JSON, and a value for each of the last minutes up to [`END`]; `-` for none.
fn answer(vectors: &[(&str, &str)]) -> Vec<Vector> {
    let sample = |(at, value): (usize, &str), steps: usize| {
        let time = END - 60 * (steps - 1 - at) as i64;
        (value != "-").then(|| format!(r#"[{time},"{value}"]"#))
    };
    let vector = |(labels, values): &(&str, &str)| {
        let values: Vec<&str> = values.split_whitespace().collect();
        let steps = values.len();
        let samples: Vec<_> =
            values.into_iter().enumerate().filter_map(|value| sample(value, steps)).collect();
        format!(r#"{{"metric":{{{labels}}},"values":[{}]}}"#, samples.join(","))
    };
    let vectors: Vec<_> = vectors.iter().map(vector).collect();
    let body = format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#,
        vectors.join(",")
    );
    answer::read(body.as_bytes()).unwrap().vectors
}

fn usage() -> Usage {
    Usage::new(&config::Prometheus {
        queries: config::Queries {
            request_rate: Some("rate(x[$step])".to_owned()),
            ..config::Queries::default()
        },
        ..config::Prometheus::at("http://p").unwrap()
    })
}

fn ask<K: Ord + Clone, A: Clone>(feed: &mut Feed<K, A>, vectors: Vec<Vector>) {
    let grid = feed.question(END);
    feed.take_in(grid, false, vectors).unwrap();
}

fn activity(vectors: &[(&str, &str)]) -> Reading {
    let mut usage = usage();
    ask(&mut usage.activity, answer(vectors));
    usage.read()
}

/// Each series as `group/name from -N: values`, N minutes before [`END`].
fn text(reading: &Reading) -> Vec<String> {
    let value = |value: &f32| if value.is_finite() { format!("{value:.3}") } else { "-".to_owned() };
    let line = |series: &Series| {
        let values: Vec<_> = series.values.iter().map(value).collect();
        format!("{} from {}: {}", series.key, (series.start - END) / 60, values.join(" "))
    };
    reading.series.iter().map(line).collect()
}

fn labels(rest: &str) -> String {
    format!(r#"{A100},"UUID":"GPU-1","Hostname":"n0",{rest}"#)
}

#[test]
fn instances_make_up_their_gpu_by_multiprocessors() {
    let small = labels(r#""GPU_I_ID":"7","GPU_I_PROFILE":"1g.5gb","pod":"p","namespace":"ns""#);
    let large = labels(r#""GPU_I_ID":"1","GPU_I_PROFILE":"3g.20gb""#);
    let reading = activity(&[(&small, "0.7 0.7 NaN 0.7"), (&large, "0.5 1.0 - 0.5")]);
    let values = "from -3: 0.314 0.529 - 0.314";
    assert_eq!(
        text(&reading),
        [format!("gpu-activity/GPU-1 {values}"), format!("node-activity/n0 {values}")]
    );
    let gpu = &reading.gpus["GPU-1"];
    let instances: Vec<_> = gpu
        .instances
        .iter()
        .map(|(device, pod)| format!("{} {}", profile(device), pod.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!((&*gpu.node, instances), ("n0", vec!["3g.20gb -".to_owned(), "1g.5gb ns/p".to_owned()]));
    assert!(reading.problems.is_empty());
}

#[test]
fn a_layout_change_cuts_gpu_and_node() {
    let before = labels(r#""GPU_I_ID":"7","GPU_I_PROFILE":"1g.5gb""#);
    // The same id, another profile, after the exporter's rest.
    let after = labels(r#""GPU_I_ID":"7","GPU_I_PROFILE":"7g.40gb""#);
    let other = r#""modelName":"NVIDIA A100-SXM4-40GB","UUID":"GPU-2","Hostname":"n0""#;
    let reading = activity(&[(&before, "0.7 0.7 - - -"), (&after, "- - - 0.2 0.3"), (other, "1 1 1 1 1")]);
    assert_eq!(
        text(&reading),
        [
            "gpu-activity/GPU-1 from -1: 0.200 0.300",
            "gpu-activity/GPU-2 from -4: 1.000 1.000 1.000 1.000 1.000",
            "node-activity/n0 from -1: 0.600 0.650",
        ]
    );
}

#[test]
fn a_pod_that_takes_over_cuts_nothing() {
    let one = labels(r#""GPU_I_ID":"7","GPU_I_PROFILE":"7g.40gb","exported_pod":"a","pod":"exporter""#);
    let idle = labels(r#""GPU_I_ID":"7","GPU_I_PROFILE":"7g.40gb","pod":"exporter""#);
    let reading = activity(&[(&one, "0.8 0.8 - -"), (&idle, "- 0.2 0.1 0")]);
    assert_eq!(text(&reading)[0], "gpu-activity/GPU-1 from -3: 0.800 0.500 0.100 0.000");
    assert_eq!(reading.gpus["GPU-1"].instances[0].1, None, "the exporter is no workload");
}

#[test]
fn two_exporters_of_one_gpu_agree_on_one_series() {
    let one = labels(r#""instance":"10.0.0.1:9400""#);
    let two = labels(r#""instance":"10.0.0.2:9400","node":"n0""#);
    for order in [[0, 1], [1, 0]] {
        let vectors = [(one.as_str(), "0.2 0.4"), (two.as_str(), "0.4 0.6")];
        let reading = activity(&order.map(|at| vectors[at]));
        assert_eq!(text(&reading)[0], "gpu-activity/GPU-1 from -1: 0.300 0.500");
        assert_eq!(reading.series.len(), 2);
    }
}

#[test]
fn a_gpu_as_a_whole_counts_only_without_instances() {
    let whole = labels(r#""gpu":"0""#);
    let part = labels(r#""GPU_I_ID":"0","GPU_I_PROFILE":"7g.40gb""#);
    let reading = activity(&[(&whole, "0.9 0.9 0.9"), (&part, "- 0.5 0.6")]);
    assert_eq!(text(&reading)[0], "gpu-activity/GPU-1 from -1: 0.500 0.600");
}

#[test]
fn what_cannot_be_is_left_out_and_told() {
    let whole = labels(r#""gpu":"0""#);
    let reading = activity(&[(&whole, "57 0.5 1.01 -0.1")]);
    assert_eq!(text(&reading)[0], "gpu-activity/GPU-1 from -2: 0.500 1.000 -");
    assert_eq!(
        reading.problems,
        ["prometheus.queries.activity gave 1 values above 1; it has to give shares, not per cent"]
    );
    let unknown = labels(r#""GPU_I_ID":"0","GPU_I_PROFILE":"9g.90gb""#);
    let reading = activity(&[(&unknown, "0.5"), (r#""job":"x""#, "1")]);
    assert_eq!(reading.series.len(), 0);
    let expected = "1 GPUs have a model or profile that is not known: GPU-1 (NVIDIA A100-SXM4-40GB, 9g.90gb)";
    assert_eq!(reading.problems, [expected]);
}

#[test]
fn memory_adds_up_and_services_keep_their_labels() {
    let mut usage = usage();
    let small = labels(r#""GPU_I_ID":"7","GPU_I_PROFILE":"1g.5gb""#);
    let large = labels(r#""GPU_I_ID":"1","GPU_I_PROFILE":"3g.20gb""#);
    let vectors = [(small.as_str(), "1000 2000 140737488355328"), (large.as_str(), "5000 6000 7000")];
    ask(usage.memory.as_mut().unwrap(), answer(&vectors));
    ask(&mut usage.services[0].1, answer(&[(r#""service":"b","namespace":"a""#, "1 2 3")]));
    let reading = usage.read();
    let lines = text(&reading);
    assert_eq!(lines[0], "gpu-memory/GPU-1 from -2: 6000.000 8000.000 -");
    assert_eq!(lines[1], "node-memory/n0 from -2: 6000.000 8000.000 -");
    assert!(lines[2].starts_with("request-rate/namespace=a,service=b from "), "{}", lines[2]);
    assert!(lines[2].ends_with(" - 1.000 2.000 3.000"), "{}", lines[2]);
}

#[test]
fn a_node_is_as_busy_as_its_gpus_by_their_size() {
    let a100 = r#""modelName":"NVIDIA A100-SXM4-40GB","UUID":"GPU-1","Hostname":"n0""#;
    let h100 = r#""modelName":"NVIDIA H100 80GB HBM3","UUID":"GPU-2","Hostname":"n0""#;
    let reading = activity(&[(a100, "1 1"), (h100, "0 0")]);
    assert_eq!(text(&reading)[2], "node-activity/n0 from -1: 0.426 0.426");
}
