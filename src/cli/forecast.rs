//! `forecast`: the forecaster alone, on series from CSV files, from Prometheus or on generated weeks.
//!
//! Invariant: stdout gets the result alone, tables or one JSON document; notes go to stderr, progress too and only to a terminal.

mod backtest;
mod course;
mod page;
mod predict;
mod progress;
mod report;
mod source;
mod train;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};

use crate::config::{self, Config};
use crate::forecast::lstm::{Lstm, Threads};
use crate::forecast::{Series, Shape};
use crate::shell::{forecasts, prometheus, weights};

/// Steps without a new value after which a series is stale: half of the default horizon has passed by then.
const STALE_STEPS: u32 = 5;

/// The default step in seconds.
const STEP: u32 = 60;

/// Longer steps are beyond what a server is asked for at once.
const LONGEST_PROMETHEUS_STEP: u32 = 300;

/// The end of the help text.
const EXAMPLES: &str = "\
Examples:
  mig-scheduler forecast backtest
      three generated weeks of LLM load: every model and the gate, and what they would decide
  mig-scheduler forecast backtest --csv usage.csv --html usage.html
      the same on your own series, with plots
  mig-scheduler forecast predict --prometheus http://localhost:9090
      the next ten minutes of each GPU, whether to trust them and why
  mig-scheduler forecast train --csv usage.csv --out weights
      weights of the network from your own series, for forecasting.modelFile and --model

A CSV file has a header with the columns time (unix seconds or RFC 3339), series, value (empty for
a gap) and, if series are of several kinds, group. Rows may be in any order. For decisions (below
40 % split, above 80 % merge) values are per cent.
Exit codes: 0 done, 1 failed, 2 usage or invalid configuration.";

/// Forecasts usage, and shows how good forecasts are.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Go through the past as if it were the present, and score every model.
    Backtest(backtest::Backtest),
    /// Forecast what comes after the last values.
    Predict(predict::Predict),
    /// Train the network anew and write its weights.
    Train(train::Train),
}

impl Command {
    /// Runs it and returns what goes to stdout.
    pub fn run(self) -> anyhow::Result<String> {
        match self {
            Command::Backtest(command) => command.run(),
            Command::Predict(command) => command.run(),
            Command::Train(command) => command.run(),
        }
    }
}

/// Where series come from, and how they are cut into windows.
#[derive(Debug, Args)]
struct Input {
    /// CSV files with the columns time, series, value and optionally group; without any source, weeks are generated.
    #[arg(long, value_name = "FILE", num_args = 1.., group = "source")]
    csv: Vec<PathBuf>,

    /// Read the usage of the last --hours from this Prometheus, with the default queries; activity becomes per cent.
    #[arg(long, value_name = "URL", group = "source")]
    prometheus: Option<String>,

    /// Read from the Prometheus of this configuration file: its address, certificates, credentials, queries and step.
    #[arg(long, value_name = "FILE", group = "source")]
    config: Option<PathBuf>,

    /// How far back to read from Prometheus, from 24 to 72.
    #[arg(long, value_name = "N", default_value_t = 72, value_parser = clap::value_parser!(u64).range(24..=72), conflicts_with_all = ["csv", "weeks", "seed"])]
    hours: u64,

    /// Weeks of LLM load to generate, from 2 to 12.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=12), conflicts_with = "source")]
    weeks: u32,

    /// Seed of the generated weeks.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "source")]
    seed: u64,

    /// Only series of this group, for example gpu-activity.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// Seconds of a step, 15 at least: values are put onto this grid [default: 60, or what --config says].
    #[arg(long, value_name = "SECONDS")]
    step: Option<u32>,

    /// Steps that a window shows.
    #[arg(long, value_name = "STEPS", default_value_t = 30)]
    look_back: usize,

    /// Steps that are forecast.
    #[arg(long, value_name = "STEPS", default_value_t = 10)]
    horizon: usize,
}

/// The series to work on.
struct Given {
    shape: Shape,
    series: Vec<Series>,
    /// Where they come from, for people.
    origin: String,
}

impl Input {
    fn read(&self) -> anyhow::Result<Given> {
        let config = self.config.as_deref().map(Config::load).transpose()?;
        let configured = config.as_ref().map(|config| config.prometheus.step_seconds);
        let step = self.step.or(configured).unwrap_or(STEP);
        let shape = Shape::new(self.look_back, self.horizon, step)?;
        let (mut series, origin) = match (&self.prometheus, config) {
            (Some(url), _) => (self.fetch(config::Prometheus::at(url)?, step)?, url.clone()),
            (None, Some(config)) => {
                let origin = config.prometheus.url.clone().unwrap_or_default();
                (self.fetch(config.prometheus, step)?, origin)
            }
            (None, None) if !self.csv.is_empty() => {
                let names: Vec<_> = self.csv.iter().map(|file| file.display().to_string()).collect();
                (source::read(&self.csv, step)?, names.join(", "))
            }
            (None, None) if step != STEP => bail!(
                "--step {step}: generated weeks have a step of {STEP} s; leave the option out or give --csv"
            ),
            (None, None) => {
                let origin = format!("{} generated weeks of LLM load, seed {}", self.weeks, self.seed);
                (source::generated(self.weeks, self.seed), origin)
            }
        };
        if let Some(group) = &self.group {
            let found = groups(&series);
            series.retain(|series| series.key.group == *group);
            if series.is_empty() {
                bail!("--group {group}: there is no such series; the groups are {}", found.join(", "));
            }
        }
        Ok(Given { shape, series, origin })
    }

    /// The series that a Prometheus has.
    fn fetch(&self, mut prometheus: config::Prometheus, step: u32) -> anyhow::Result<Vec<Series>> {
        if step > LONGEST_PROMETHEUS_STEP {
            bail!("--step {step}: from Prometheus, give 15 to {LONGEST_PROMETHEUS_STEP} seconds");
        }
        prometheus.step_seconds = step;
        prometheus.look_back = Duration::from_secs(self.hours * 3_600);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start")?;
        let fetched = runtime.block_on(prometheus::fetch(&prometheus, forecasts::unix_now()));
        let url = prometheus.url.as_deref().unwrap_or("prometheus.url");
        let (series, problems) = fetched.with_context(|| format!("cannot read from {url}"))?;
        problems.iter().for_each(|problem| eprintln!("note: {problem}"));
        if series.is_empty() {
            bail!("{url} has no usage of the last {} h: is the DCGM exporter scraped?", self.hours);
        }
        Ok(series.into_iter().map(source::in_per_cent).collect())
    }
}

/// The groups of series, each once.
fn groups(series: &[Series]) -> Vec<String> {
    let mut groups: Vec<String> = series.iter().map(|series| series.key.group.clone()).collect();
    groups.sort();
    groups.dedup();
    groups
}

/// The network for windows of `shape`: from `file`, or the one that the program brings along. That one fits the default shape
/// alone; with another, the simple models are by themselves, and that is said.
fn network(file: Option<&Path>, shape: Shape) -> anyhow::Result<Option<Lstm>> {
    match (weights::load(file, shape, Threads::Two), file) {
        (Ok(network), _) => Ok(Some(network)),
        (Err(error), Some(_)) => Err(error).context("--model"),
        (Err(error), None) => {
            eprintln!("note: without the network: {error}");
            Ok(None)
        }
    }
}
