//! `forecast predict`: what comes after the last values.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::course::Course;
use super::report::{aligned, unscale};
use super::{Input, network};
use crate::forecast::backtest::Split;
use crate::forecast::gate::Trust;
use crate::forecast::{Series, Shape, Windows};

/// `forecast predict`.
#[derive(Debug, Args)]
pub struct Predict {
    #[command(flatten)]
    input: Input,

    /// Weights of the network, lstm.safetensors with lstm.json beside it; by default those that the program brings along.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Unix seconds that count as now, for what is stale; the newest value of all series by default.
    #[arg(long, value_name = "SECONDS")]
    now: Option<i64>,

    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

/// The forecast of one series.
#[derive(Debug, Serialize)]
struct Prediction {
    group: String,
    series: String,
    /// Unix seconds of the last value.
    last_time: i64,
    last: f32,
    /// By step, in the unit of the series.
    mean: Vec<f32>,
    q10: Vec<f32>,
    q50: Vec<f32>,
    q90: Vec<f32>,
    trust: Trust,
    /// Models by their part in it, the loudest first.
    word: Vec<(String, f32)>,
    /// Root mean square error of recent forecasts.
    recent_error: Option<f32>,
    /// Their squared error against persistence's.
    against_persistence: Option<f32>,
}

impl Predict {
    pub(super) fn run(self) -> anyhow::Result<String> {
        let given = self.input.read()?;
        let shape = given.shape;
        let network = network(self.model.as_deref(), shape)?;
        // Nothing is tested: what the split leaves is for the gate to know recent errors, and models learn from it daily.
        let mut course = Course::run(&given, Split { learnt: 0.7, tested: 0.8 }, network)?;
        let windows = newest(shape, &course.scaled.series)?;
        let forecasts: Vec<_> = course.models.iter().map(|model| model.forecast(&windows)).collect();
        let now = self.now.or_else(|| windows.ends.iter().copied().max()).unwrap_or(0);
        let gated = course.gate.step(now, &windows, &forecasts)?;
        let prediction = |at: usize| {
            let real = |values: &[f32]| {
                values.iter().map(|&value| unscale(&windows, at, &course.scaled, value)).collect()
            };
            let verdict = &gated.verdicts[at];
            let key = windows.key(at).cloned().unwrap_or_default();
            let span = course.scaled.scalers.get(&key).map_or(1.0, |scaler| scaler.high - scaler.low);
            let mut word: Vec<_> = course.gate.models().iter().zip(&verdict.weights).collect();
            word.retain(|(_, weight)| **weight >= 0.005);
            word.sort_by(|a, b| b.1.total_cmp(a.1));
            Prediction {
                group: key.group,
                series: key.name,
                last_time: windows.ends[at],
                last: unscale(&windows, at, &course.scaled, windows.input(at)[shape.look_back - 1]),
                mean: real(gated.forecasts.mean_of(at)),
                q10: real(gated.forecasts.quantile_of(0, at)),
                q50: real(gated.forecasts.quantile_of(1, at)),
                q90: real(gated.forecasts.quantile_of(2, at)),
                trust: verdict.trust,
                word: word.into_iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
                recent_error: verdict.recent_error.map(|error| error * span),
                against_persistence: verdict.against_persistence,
            }
        };
        let predictions: Vec<Prediction> = (0..windows.len()).map(prediction).collect();
        Ok(if self.json {
            serde_json::to_string_pretty(&predictions)? + "\n"
        } else {
            table(&predictions, shape)
        })
    }
}

/// The newest window of each series: of the pieces that a layout change left, the last.
fn newest(shape: Shape, series: &Arc<[Series]>) -> anyhow::Result<Windows> {
    let windows = Windows::latest(shape, series)?;
    if windows.is_empty() {
        bail!(
            "no series ends with {} values without a gap; there is nothing to forecast from",
            shape.look_back
        );
    }
    Ok(windows)
}

fn table(predictions: &[Prediction], shape: Shape) -> String {
    let minutes = shape.horizon as f32 * shape.step_seconds as f32 / 60.0;
    let end = shape.horizon - 1;
    let rows = predictions.iter().map(|prediction| {
        let (name, weight) = prediction.word.first().map_or(("-", 0.0), |(name, weight)| (name, *weight));
        vec![
            format!("{}/{}", prediction.group, prediction.series),
            format!("{:.2}", prediction.last),
            format!("{:.2}", prediction.mean.iter().sum::<f32>() / shape.horizon as f32),
            format!("{:.2}", prediction.mean[end]),
            format!("{:.2} to {:.2}", prediction.q10[end], prediction.q90[end]),
            prediction.recent_error.map_or("-".to_owned(), |error| format!("{error:.2}")),
            format!("{name} {:.0} %", weight * 100.0),
            prediction.trust.to_string(),
        ]
    });
    let heads = ["series", "last", "mean", "at the end", "q10 to q90", "recent error", "loudest", "trust"];
    format!("the next {minutes} minutes\n\n") + &aligned(&heads, rows)
}
