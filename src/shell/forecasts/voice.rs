//! From a reading of the usage to an outlook: what every series is going to do, said by the models that have earned it.
//!
//! Invariant: pure but for what it remembers of its own past words. A series whose newest value is too old gets no prospect; what
//! the gate does not trust is marked, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::panel::{MODELS, Panel, replay};
use super::record::Record;
use crate::config;
use crate::forecast::gate::{Gate, GateState, Memory, Trust, Verdict};
use crate::forecast::lstm::Lstm;
use crate::forecast::outlook::is_fresh;
use crate::forecast::train::{self, OnProgress, TrainError, TrainOptions};
use crate::forecast::{
    ForecastError, Forecasts, GpuUse, GroupOutlook, InstanceUse, Outlook, Prospect, Series, SeriesKey, Shape,
    Windows,
};
use crate::shell::prometheus::{GpuReading, Reading};

/// Who speaks, and what was said.
pub struct Voice {
    shape: Shape,
    staleness: i64,
    gate: Gate,
    network: Option<Lstm>,
    panels: BTreeMap<String, Panel>,
    /// Kinds of series whose past the gate has heard.
    heard: BTreeSet<String>,
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
    pub fn new(config: &config::Prometheus, network: Option<Lstm>) -> Voice {
        let shape = shape(config);
        let staleness = i64::try_from(config.staleness.as_secs()).unwrap_or(i64::MAX);
        let stale_after = u32::try_from(staleness).unwrap_or(u32::MAX);
        let gate = Gate::new(MODELS.to_vec(), Memory::default(), stale_after);
        Voice {
            shape,
            staleness,
            gate,
            network,
            panels: BTreeMap::new(),
            heard: BTreeSet::new(),
            record: Record::new(shape),
        }
    }

    /// The network as it is now, if there is one.
    pub fn network(&self) -> Option<&Lstm> {
        self.network.as_ref()
    }

    /// Puts another network in the place of the one there is.
    pub fn replace_network(&mut self, network: Lstm) {
        self.network = Some(network);
        // Acquaintance with the groups is made when their panels are learnt.
        self.panels.clear();
    }

    /// What is to be expected after `reading`, at `now` (unix seconds).
    pub fn speak(&mut self, reading: Reading, now: i64) -> Outlook {
        let mut outlook = Outlook {
            at: now,
            valid_seconds: u32::try_from(self.staleness).unwrap_or(u32::MAX),
            step_seconds: self.shape.step_seconds,
            gpus: reading.gpus.into_iter().map(|(id, gpu)| (id, gpu_use(gpu))).collect(),
            ..Outlook::default()
        };
        for (name, group) in self.groups(reading.series, now) {
            let stale = group.stale;
            let series: Arc<[Series]> = group.fresh.into();
            let (mut told, prospects) = match self.speak_of(&name, &series, now) {
                Ok((windows, forecasts, verdicts)) => {
                    self.tell(&name, &series, &windows, &forecasts, &verdicts)
                }
                Err(error) => (silent(&name, error.to_string()), Prospects::new()),
            };
            told.stale = stale;
            outlook.groups.push(told);
            outlook.prospects.extend(prospects);
        }
        outlook
    }

    fn groups(&self, series: Vec<Series>, now: i64) -> BTreeMap<String, Group> {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for series in series {
            let group = groups.entry(series.key.group.clone()).or_default();
            if is_fresh(&series, now, self.staleness) {
                group.fresh.push(series);
            } else {
                group.stale += 1;
            }
        }
        groups
    }

    fn speak_of(
        &mut self,
        group: &str,
        series: &Arc<[Series]>,
        now: i64,
    ) -> Result<(Windows, Forecasts, Vec<Verdict>), ForecastError> {
        let windows = Windows::latest(self.shape, series)?;
        if !self.panels.contains_key(group) && !windows.is_empty() {
            self.learn(group, series)?;
        }
        let nothing = Forecasts { horizon: self.shape.horizon, ..Forecasts::default() };
        let forecasts = match self.panels.get(group) {
            Some(panel) => panel.forecast(&windows, self.network.as_ref()),
            None => MODELS.map(|_| Ok(nothing.clone())).into(),
        };
        let gated = self.gate.step(now, &windows, &forecasts)?;
        Ok((windows, gated.forecasts, gated.verdicts))
    }
}

impl Voice {
    /// Learns the models of a kind of series; the first time the gate hears what they would have said of late.
    fn learn(&mut self, group: &str, series: &Arc<[Series]>) -> Result<(), ForecastError> {
        let panel = Panel::learn(self.shape, series)?;
        self.network = self.network.take().map(|network| network.acquaint(&panel.learnt));
        if self.heard.insert(group.to_owned()) {
            for (time, windows) in replay(self.shape, series) {
                let forecasts = panel.forecast(&windows, self.network.as_ref());
                self.gate.step(time, &windows, &forecasts)?;
            }
        }
        self.panels.insert(group.to_owned(), panel);
        Ok(())
    }

    /// Tunes the network to these series, and lets the simple models learn anew at the next word: what they know is no older than
    /// this. Between two epochs `progress` may end it. Of too little data the network learns nothing.
    ///
    /// # Errors
    /// When the network could not be tuned; it is as it was.
    pub fn relearn(&mut self, series: Vec<Series>, progress: OnProgress<'_>) -> Result<(), TrainError> {
        self.panels.clear();
        let Some(network) = &self.network else { return Ok(()) };
        let options = TrainOptions::update();
        let windows = train::windows_of(self.shape, &series.into(), &options)?;
        match train::update(network, &windows, &options, progress) {
            Ok(tuned) => self.network = Some(tuned),
            Err(TrainError::TooFew { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// How the models did, to be kept.
    pub fn gate_state(&self) -> GateState {
        self.gate.state()
    }

    /// Takes over how the models did before; false where it was of no use.
    pub fn restore_gate(&mut self, state: GateState) -> bool {
        self.gate.restore(state)
    }

    /// Puts a group's word together.
    fn tell(
        &mut self,
        group: &str,
        series: &Arc<[Series]>,
        windows: &Windows,
        forecasts: &Forecasts,
        verdicts: &[Verdict],
    ) -> (GroupOutlook, Prospects) {
        let score = self.record.settle(group, series);
        let prospects = prospects(windows, forecasts, verdicts);
        self.record.remember(group, &prospects);
        let trusted = prospects.values().filter(|prospect| prospect.trusted).count();
        let told = GroupOutlook {
            series: prospects.len(),
            trusted,
            models: shares(verdicts),
            distrust: (trusted == 0).then(|| distrust(series, verdicts)),
            error: score.error,
            persistence_error: score.persistence_error,
            said: score.said,
            actual: score.actual,
            ..silent(group, String::new())
        };
        (told, prospects)
    }
}

/// The windows of a configuration.
pub fn shape(config: &config::Prometheus) -> Shape {
    Shape { step_seconds: config.step_seconds, ..Shape::default() }
}

type Prospects = BTreeMap<SeriesKey, Prospect>;

/// A group of which nothing is said.
fn silent(group: &str, reason: String) -> GroupOutlook {
    GroupOutlook {
        group: group.to_owned(),
        series: 0,
        trusted: 0,
        stale: 0,
        models: Vec::new(),
        distrust: Some(reason),
        error: None,
        persistence_error: None,
        said: None,
        actual: None,
    }
}

fn prospects(windows: &Windows, forecasts: &Forecasts, verdicts: &[Verdict]) -> Prospects {
    let prospect = |(at, verdict): (usize, &Verdict)| {
        let prospect = Prospect {
            end: windows.ends[at],
            last: windows.input(at).last().copied().unwrap_or_default(),
            mean: forecasts.mean_of(at).to_vec(),
            quantiles: std::array::from_fn(|quantile| forecasts.quantile_of(quantile, at).to_vec()),
            trusted: verdict.trust == Trust::Trusted,
        };
        Some((windows.key(at)?.clone(), prospect))
    };
    verdicts.iter().enumerate().filter_map(prospect).collect()
}

/// Each model's share of what is said, the largest first; models without one are left out.
fn shares(verdicts: &[Verdict]) -> Vec<(&'static str, f32)> {
    let share = |at: usize| {
        let sum: f32 = verdicts.iter().filter_map(|verdict| verdict.weights.get(at)).sum();
        sum / verdicts.len().max(1) as f32
    };
    let mut shares: Vec<_> = MODELS.into_iter().enumerate().map(|(at, model)| (model, share(at))).collect();
    shares.retain(|(_, share)| *share > 0.0);
    shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    shares
}

/// Why nothing of a group is trusted: the reason of most of its series.
fn distrust(series: &[Series], verdicts: &[Verdict]) -> String {
    if series.is_empty() {
        return "usage is out of date".to_owned();
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for verdict in verdicts {
        *reasons.entry(verdict.trust.to_string()).or_default() += 1;
    }
    let most = reasons.into_iter().max_by_key(|(_, count)| *count);
    most.map_or("the series are too short".to_owned(), |(reason, _)| reason)
}

fn gpu_use(gpu: GpuReading) -> GpuUse {
    let instances = gpu.instances.into_iter().filter_map(|(device, pod)| {
        let instance = device.instance?;
        Some((instance.id, InstanceUse { profile: instance.profile, pod }))
    });
    GpuUse { node: gpu.node, instances: instances.collect() }
}

#[cfg(test)]
mod tests;
