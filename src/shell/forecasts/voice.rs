//! From a reading of the usage to an outlook: what every series is going to do, said by the model that has earned it.
//!
//! Invariant: pure but for what it remembers of its own past words. A series whose newest value is too old gets no prospect; a
//! group without a model that is better than persistence is not trusted, with the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::record::Record;
use crate::config;
use crate::forecast::outlook::is_fresh;
use crate::forecast::{
    ForecastError, Forecaster, Forecasts, GpuUse, GroupOutlook, InstanceUse, Outlook, Prospect, Series,
    SeriesKey, Shape, Windows,
};
use crate::shell::prometheus::{GpuReading, Reading};

/// Who speaks, and what was said.
pub struct Voice {
    shape: Shape,
    staleness: i64,
    record: Record,
}

/// The series of one kind.
#[derive(Default)]
struct Group {
    fresh: Vec<Series>,
    stale: usize,
}

impl Voice {
    /// A voice that has said nothing yet.
    pub fn new(config: &config::Prometheus) -> Voice {
        let shape = Shape { step_seconds: config.step_seconds, ..Shape::default() };
        let staleness = i64::try_from(config.staleness.as_secs()).unwrap_or(i64::MAX);
        Voice { shape, staleness, record: Record::new(shape) }
    }

    /// What is to be expected after `reading`, at `now` (unix seconds).
    pub fn speak(&mut self, reading: Reading, now: i64) -> Outlook {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for series in reading.series {
            let group = groups.entry(series.key.group.clone()).or_default();
            if is_fresh(&series, now, self.staleness) {
                group.fresh.push(series);
            } else {
                group.stale += 1;
            }
        }
        let mut outlook = Outlook {
            at: now,
            valid_seconds: u32::try_from(self.staleness).unwrap_or(u32::MAX),
            step_seconds: self.shape.step_seconds,
            gpus: reading.gpus.into_iter().map(|(id, gpu)| (id, gpu_use(gpu))).collect(),
            ..Outlook::default()
        };
        for (name, group) in groups {
            let (told, prospects) = self.speak_of(name, group);
            outlook.groups.push(told);
            outlook.prospects.extend(prospects);
        }
        outlook
    }

    fn speak_of(&mut self, group: String, Group { fresh, stale }: Group) -> (GroupOutlook, Prospects) {
        let series: Arc<[Series]> = fresh.into();
        let score = self.record.settle(&group, &series);
        let model = Persistence;
        let said = Windows::latest(self.shape, &series).and_then(|windows| {
            let forecasts = model.forecast(&windows)?;
            Ok((windows, forecasts))
        });
        let (prospects, distrust) = match said {
            Err(error) => (Prospects::new(), Some(error.to_string())),
            Ok((_, forecasts)) if !forecasts.is_finite() => {
                (Prospects::new(), Some(format!("{} gives values that are no numbers", model.name())))
            }
            Ok((windows, _)) if windows.is_empty() => {
                let reason =
                    if series.is_empty() { "usage is out of date" } else { "the series are too short" };
                (Prospects::new(), Some(reason.to_owned()))
            }
            Ok((windows, forecasts)) => {
                let prospects = prospects(&windows, &forecasts);
                self.record.remember(&group, &prospects);
                (prospects, Some("no model has been better than persistence".to_owned()))
            }
        };
        let told = GroupOutlook {
            group,
            series: prospects.len(),
            trusted: 0,
            stale,
            models: vec![(model.name(), 1.0)],
            distrust,
            error: score.error,
            persistence_error: score.persistence_error,
            said: score.said,
            actual: score.actual,
        };
        (told, prospects)
    }
}

type Prospects = BTreeMap<SeriesKey, Prospect>;

fn prospects(windows: &Windows, forecasts: &Forecasts) -> Prospects {
    let prospect = |at: usize| {
        let prospect = Prospect {
            end: windows.ends[at],
            last: windows.input(at).last().copied().unwrap_or_default(),
            mean: forecasts.mean_of(at).to_vec(),
            quantiles: std::array::from_fn(|quantile| forecasts.quantile_of(quantile, at).to_vec()),
            trusted: false,
        };
        Some((windows.key(at)?.clone(), prospect))
    };
    (0..windows.len()).filter_map(prospect).collect()
}

fn gpu_use(gpu: GpuReading) -> GpuUse {
    let instances = gpu.instances.into_iter().filter_map(|(device, pod)| {
        let instance = device.instance?;
        Some((instance.id, InstanceUse { profile: instance.profile, pod }))
    });
    GpuUse { node: gpu.node, instances: instances.collect() }
}

struct Persistence;

impl Forecaster for Persistence {
    fn name(&self) -> &'static str {
        "persistence"
    }

    fn forecast(&self, windows: &Windows) -> Result<Forecasts, ForecastError> {
        let horizon = windows.shape.horizon;
        let last = (0..windows.len()).filter_map(|at| windows.input(at).last().copied());
        let mean: Vec<f32> = last.flat_map(|value| std::iter::repeat_n(value, horizon)).collect();
        Ok(Forecasts { horizon, quantiles: [mean.clone(), mean.clone(), mean.clone()], mean })
    }
}
