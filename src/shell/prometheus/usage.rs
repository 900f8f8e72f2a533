//! All queries together: what Prometheus knows of the cluster's usage, as series of GPUs, nodes and services.
//!
//! ```text
//!   activity ─► rows by device ─┬─ weighted by multiprocessors ─► gpu-activity ─► node-activity     (0 to 1)
//!   memory ───► rows by device ─┴─ summed ──────────────────────► gpu-memory ───► node-memory       (MiB)
//!   requestRate, latency, restarts ─► rows by labels ───────────► request-rate, latency, restarts
//! ```
//!
//! Invariant: a value that cannot be one (activity above 1, memory of a petabyte: the exporter's mark for "blank") is a gap, and
//! a GPU whose model or profile the geometry tables do not know has no series rather than a guessed one; both are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::{Labels, Vector};
use super::client::Server;
use super::combine::{Divisor, Piece, Whole, combine};
use super::device::{self, About, Device};
use super::feed::{Feed, FeedError};
use super::grid::Grid;
use super::history::{Part, Row};
use crate::config::{self, STEP_PLACEHOLDER};
use crate::forecast::{Series, SeriesKey};

/// Activity of a GPU, by its UUID: what of its multiprocessors is busy.
pub const GPU_ACTIVITY: &str = "gpu-activity";
/// Activity of a node, by its name.
pub const NODE_ACTIVITY: &str = "node-activity";
/// Memory used on a GPU, MiB.
pub const GPU_MEMORY: &str = "gpu-memory";
/// Memory used on a node, MiB.
pub const NODE_MEMORY: &str = "node-memory";
/// Requests a second of a service.
pub const REQUEST_RATE: &str = "request-rate";
/// Latency of a service, seconds.
pub const LATENCY: &str = "latency";
/// Restarts of a workload within a step.
pub const RESTARTS: &str = "restarts";

/// A share of a step may round up a little.
const MOST_ACTIVITY: f32 = 1.05;

/// MiB of a petabyte: below DCGM's mark for "blank", above any GPU.
const MOST_MEMORY: f32 = 1e9;

/// Problems of one kind that are told one by one.
const TOLD: usize = 5;

/// The queries and what they were answered.
#[derive(Debug)]
pub struct Usage {
    activity: Feed<Device, About>,
    memory: Option<Feed<Device, About>>,
    services: Vec<(&'static str, Feed<String, ()>)>,
}

/// What is known of the usage.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// All series, by group and name.
    pub series: Vec<Series>,
    /// Every GPU with an activity, by its id.
    pub gpus: BTreeMap<Arc<str>, GpuReading>,
    /// What was left out, and why.
    pub problems: Vec<String>,
}

/// A GPU as its exporter describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuReading {
    /// The node it is in.
    pub node: Arc<str>,
    /// Its instances now, the whole GPU without any: profile and the pod that holds it.
    pub instances: Vec<(Device, Option<Arc<str>>)>,
}

impl Usage {
    /// The configured queries, not asked yet.
    pub fn new(config: &config::Prometheus) -> Usage {
        let look_back = i64::try_from(config.look_back.as_secs()).unwrap_or(i64::MAX);
        let step = config.step_seconds;
        let text = |query: &str| query.replace(STEP_PLACEHOLDER, &format!("{step}s"));
        let queries = &config.queries;
        let services = [
            (REQUEST_RATE, &queries.request_rate),
            (LATENCY, &queries.latency),
            (RESTARTS, &queries.restarts),
        ];
        let service = |(group, query): (&'static str, &Option<String>)| {
            Some((group, Feed::new(text(query.as_deref()?), look_back, step, service_parts as _)))
        };
        let devices = |query: &str| Feed::new(text(query), look_back, step, device_parts as _);
        Usage {
            activity: devices(&queries.activity),
            memory: queries.memory_used.as_deref().map(devices),
            services: services.into_iter().filter_map(service).collect(),
        }
    }

    /// Asks for all that is missing up to `now`, unix seconds. Without the activity there is nothing to forecast; what fails of
    /// the rest, by its group, is told in the second place.
    pub async fn refresh(&mut self, server: &Server, now: i64) -> Result<Vec<String>, FeedError> {
        self.activity.refresh(server, now).await?;
        let mut problems = told("activity", &self.activity, Ok(()));
        if let Some(memory) = &mut self.memory {
            let refreshed = memory.refresh(server, now).await;
            problems.extend(told("memoryUsed", memory, refreshed));
        }
        for (group, feed) in &mut self.services {
            let refreshed = feed.refresh(server, now).await;
            problems.extend(told(group, feed, refreshed));
        }
        Ok(problems)
    }

    /// What is known now.
    pub fn read(&self) -> Reading {
        let mut reading = Reading::default();
        if let Some(history) = self.activity.history() {
            let mut strange = 0;
            let gpus = combine_gpus(history.rows(), &mut reading.problems, |row, weight| {
                strange += row.iter().filter(|value| **value > MOST_ACTIVITY).count();
                (bounded(row, MOST_ACTIVITY, 1.0), weight)
            });
            if strange > 0 {
                reading.problems.push(format!(
                    "prometheus.queries.activity gave {strange} values above 1; it has to give shares, not per cent"
                ));
            }
            reading.take_gpus(gpus, history.grid(), [GPU_ACTIVITY, NODE_ACTIVITY], Scale::Share);
        }
        if let Some(history) = self.memory.as_ref().and_then(Feed::history) {
            let gpus = combine_gpus(history.rows(), &mut Vec::new(), |row, _| {
                (bounded(row, MOST_MEMORY, f32::MAX), 1.0)
            });
            reading.take_gpus(gpus, history.grid(), [GPU_MEMORY, NODE_MEMORY], Scale::Sum);
        }
        for (group, feed) in &self.services {
            let Some(history) = feed.history() else { continue };
            let whole = |values: &Vec<f32>| Whole { values: values.clone(), ..Whole::default() };
            let rows = history.rows().iter().map(|(name, row)| (name.as_str(), whole(&row.values)));
            reading.series.extend(rows.map(|(name, whole)| series(group, name, whole, history.grid())));
        }
        reading
    }
}

/// How parts add up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// To a share of the whole.
    Share,
    /// To a sum.
    Sum,
}

/// A GPU in the making.
struct Gpu<'a> {
    id: Arc<str>,
    weight: f32,
    rows: Vec<(&'a Device, &'a Row<About>)>,
    pieces: Vec<(Vec<f32>, f32)>,
}

/// Groups rows by GPU and weighs them; `weigh` makes values and weight of a row.
fn combine_gpus<'a>(
    rows: &'a BTreeMap<Device, Row<About>>,
    problems: &mut Vec<String>,
    mut weigh: impl FnMut(&[f32], f32) -> (Vec<f32>, f32),
) -> Vec<Gpu<'a>> {
    let mut gpus: Vec<Gpu> = Vec::new();
    let mut unknown: BTreeMap<Arc<str>, String> = BTreeMap::new();
    for (device, row) in rows {
        if gpus.last().is_none_or(|gpu| gpu.id != device.gpu) {
            gpus.push(Gpu { id: device.gpu.clone(), weight: 0.0, rows: Vec::new(), pieces: Vec::new() });
        }
        let Some(gpu) = gpus.last_mut() else { continue };
        let Some((whole, weight)) = weights(device, &row.about) else {
            unknown.insert(
                device.gpu.clone(),
                format!("{} ({}, {})", device.gpu, row.about.model, profile(device)),
            );
            continue;
        };
        gpu.weight = whole;
        gpu.rows.push((device, row));
        gpu.pieces.push(weigh(&row.values, weight));
    }
    for gpu in &mut gpus {
        hide_whole(gpu);
    }
    gpus.retain(|gpu| !unknown.contains_key(&gpu.id));
    if !unknown.is_empty() {
        let some = unknown.values().take(TOLD).cloned().collect::<Vec<_>>().join(", ");
        problems.push(format!("{} GPUs have a model or profile that is not known: {some}", unknown.len()));
    }
    gpus
}

/// Weights of the GPU and of the device on it. A whole GPU needs no table: it is all there is.
fn weights(device: &Device, about: &About) -> Option<(f32, f32)> {
    match (device::model(&about.model), &device.instance) {
        (Some(model), Some(instance)) => {
            Some((device::gpu_weight(model), device::instance_weight(model, &instance.profile)?))
        }
        (Some(model), None) => Some((device::gpu_weight(model), device::gpu_weight(model))),
        (None, None) => Some((1.0, 1.0)),
        (None, Some(_)) => None,
    }
}

fn profile(device: &Device) -> &str {
    device.instance.as_ref().map_or("whole", |instance| &instance.profile)
}

/// Where instances answer, what is said of the GPU as a whole would count them twice.
fn hide_whole(gpu: &mut Gpu) {
    let Some(whole) = gpu.rows.iter().position(|(device, _)| device.instance.is_none()) else { return };
    let (mut values, weight) = std::mem::take(&mut gpu.pieces[whole]);
    for (at, value) in values.iter_mut().enumerate() {
        if gpu.pieces.iter().any(|(other, _)| other.get(at).is_some_and(|value| value.is_finite())) {
            *value = f32::NAN;
        }
    }
    gpu.pieces[whole] = (values, weight);
}

impl Reading {
    /// Adds the series of GPUs and of the nodes that they are in.
    fn take_gpus(&mut self, gpus: Vec<Gpu>, grid: Grid, [gpu_group, node_group]: [&str; 2], scale: Scale) {
        let mut nodes: BTreeMap<Arc<str>, Vec<(Vec<f32>, f32)>> = BTreeMap::new();
        for gpu in gpus {
            let divisor = if scale == Scale::Share { gpu.weight } else { 1.0 };
            let whole = combine(&pieces(&gpu.pieces), Divisor::Fixed(divisor));
            let rows = || whole.layout.iter().map(|&at| gpu.rows[at]);
            let node = rows().max_by_key(|(_, row)| row.seen).map(|(_, row)| row.about.node.clone());
            let Some(node) = node.filter(|_| !whole.values.is_empty()) else { continue };
            if scale == Scale::Share {
                let instances = rows().map(|(device, row)| (device.clone(), row.about.pod.clone())).collect();
                self.gpus.insert(gpu.id.clone(), GpuReading { node: node.clone(), instances });
            }
            let mut values = vec![f32::NAN; whole.start];
            values.extend(&whole.values);
            nodes
                .entry(node)
                .or_default()
                .push((values, if scale == Scale::Share { gpu.weight } else { 1.0 }));
            self.series.push(series(gpu_group, &gpu.id, whole, grid));
        }
        let divisor = if scale == Scale::Share { Divisor::Layout } else { Divisor::Fixed(1.0) };
        let nodes = nodes.into_iter().filter(|(node, _)| !node.is_empty());
        self.series.extend(
            nodes.map(|(node, gpus)| series(node_group, &node, combine(&pieces(&gpus), divisor), grid)),
        );
    }
}

fn pieces(parts: &[(Vec<f32>, f32)]) -> Vec<Piece<'_>> {
    parts.iter().map(|(values, weight)| Piece { values, weight: *weight }).collect()
}

fn series(group: &str, name: &str, whole: Whole, grid: Grid) -> Series {
    let start = grid.start + whole.start as i64 * i64::from(grid.step);
    Series { key: SeriesKey::new(group, name), start, step_seconds: grid.step, values: whole.values }
}

/// The values with those beyond `most` as gaps, and the rest at most `top`.
fn bounded(values: &[f32], most: f32, top: f32) -> Vec<f32> {
    let bound = |value: &f32| if (0.0..=most).contains(value) { value.min(top) } else { f32::NAN };
    values.iter().map(bound).collect()
}

fn device_parts(vectors: Vec<Vector>) -> Vec<Part<Device, About>> {
    let renamed = device::is_renamed(&vectors);
    let part = |vector: Vector| {
        let (key, about) = device::device(&vector.labels, renamed)?;
        Some(Part { key, about, samples: vector.samples })
    };
    let mut vectors = vectors;
    vectors.sort_by(|one, other| one.labels.cmp(&other.labels));
    vectors.into_iter().filter_map(part).collect()
}

fn service_parts(vectors: Vec<Vector>) -> Vec<Part<String, ()>> {
    let part = |vector: Vector| Part { key: service(&vector.labels), about: (), samples: vector.samples };
    vectors.into_iter().map(part).collect()
}

/// A service's name: its labels without the metric's, `namespace=a,service=b`.
fn service(labels: &Labels) -> String {
    let pairs = labels.iter().filter(|(name, _)| *name != "__name__");
    pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// What went wrong with a query, or what the server had to say beside its answer.
fn told<K: Ord + Clone, A: Clone>(
    name: &str,
    feed: &Feed<K, A>,
    refreshed: Result<(), FeedError>,
) -> Vec<String> {
    let failed = refreshed.err().map(|error| format!("prometheus.queries.{name}: {error}"));
    let warned =
        feed.warnings().iter().take(TOLD).map(|warning| format!("prometheus.queries.{name}: {warning}"));
    failed.into_iter().chain(warned).collect()
}

#[cfg(test)]
mod tests;
