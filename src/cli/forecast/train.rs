//! `forecast train`: the network anew, from the first weights on.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::Input;
use super::progress::Progress;
use super::report::aligned;
use crate::forecast::LabelledWindows;
use crate::forecast::lstm::{Lstm, Training};
use crate::forecast::train::{self, Plan, TrainOptions};
use crate::forecast::weights::{HEADER, NUMBERS, SUMS};

/// `forecast train`.
#[derive(Debug, Args)]
pub struct Train {
    #[command(flatten)]
    input: Input,

    /// Folder for lstm.safetensors, lstm.json and SHA256SUMS; it is created if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Passes over the sampled windows, at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    epochs: u16,

    /// Windows of a step.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,

    /// Windows sampled to train on, at most; a quarter as many, newer ones, decide which epoch is kept.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(256..=1_000_000))]
    windows: u32,

    /// Seed of the first weights, of the sample and of its order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    training_seed: u64,

    /// Print one JSON document instead of the text.
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Trained {
    origin: String,
    series: usize,
    training: Training,
    files: Vec<PathBuf>,
}

impl Train {
    pub(super) fn run(self) -> anyhow::Result<String> {
        let given = self.input.read()?;
        let options = TrainOptions {
            epochs: self.epochs.into(),
            batch: self.batch.into(),
            most_windows: self.windows as usize,
            seed: self.training_seed,
            ..TrainOptions::default()
        };
        let count = given.series.len();
        let windows = train::windows_of(given.shape, &Arc::from(given.series), &options)?;
        let plan = train::plan(&windows, &options)?;
        eprintln!("{}", announcement(&given.origin, count, &plan));
        let model = train(&windows, &options, &plan)?;
        let files = write(&self.out, &model)?;
        let trained =
            Trained { origin: given.origin, series: count, training: model.training().clone(), files };
        Ok(if self.json { serde_json::to_string_pretty(&trained)? + "\n" } else { trained.text() })
    }
}

/// What is about to be done, and how long it can get.
fn announcement(origin: &str, series: usize, plan: &Plan) -> String {
    format!(
        "{series} series of {origin}: {} windows to train on, {} newer ones to choose by; at most {} epochs of {} steps",
        plan.windows, plan.validation_windows, plan.epochs, plan.steps_per_epoch
    )
}

fn train(windows: &LabelledWindows, options: &TrainOptions, plan: &Plan) -> anyhow::Result<Lstm> {
    let progress = Progress::of("epochs");
    progress.show(0, plan.epochs);
    let model = train::train(windows, options, &mut |done| {
        progress.show(done.epoch, done.epochs);
        progress.tell(format!("loss {:.4}, on newer windows {:.4}", done.loss, done.validation_loss));
        ControlFlow::Continue(())
    });
    progress.finish();
    Ok(model?)
}

/// Writes the files; their paths.
fn write(dir: &Path, model: &Lstm) -> anyhow::Result<Vec<PathBuf>> {
    let saved = model.save()?;
    fs::create_dir_all(dir).with_context(|| format!("--out: cannot create {}", dir.display()))?;
    let parts = [
        (NUMBERS, saved.weights.as_slice()),
        (HEADER, saved.header.as_bytes()),
        (SUMS, saved.sums().as_bytes()),
    ]
    .map(|(name, bytes)| (dir.join(name), bytes.to_vec()));
    for (file, bytes) in &parts {
        fs::write(file, bytes).with_context(|| format!("--out: cannot write {}", file.display()))?;
    }
    Ok(parts.into_iter().map(|(file, _)| file).collect())
}

impl Trained {
    fn text(&self) -> String {
        let Training { epochs, windows, validation_windows, mse, data_sha256, .. } = &self.training;
        let mut text = format!(
            "trained on {windows} windows of {} series ({}), best after {epochs} epochs\n\
             training data: SHA-256 {data_sha256}\n\n\
             squared error on {validation_windows} newer windows, in squared units of what persistence misses\n\n",
            self.series, self.origin
        );
        let rows =
            [("lstm", mse.lstm), ("its linear map alone", mse.linear), ("persistence", mse.persistence)];
        text += &aligned(
            &["model", "MSE"],
            rows.into_iter().map(|(name, mse)| vec![name.to_owned(), format!("{mse:.4}")]),
        );
        text.push('\n');
        for file in &self.files {
            text += &format!("wrote {}\n", file.display());
        }
        text
    }
}
