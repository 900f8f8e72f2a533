//! `simulate`: the real engine in virtual time, on a built-in workload or on a trace.
//!
//! Invariant: stdout gets the result alone, one table or one JSON document; progress goes to stderr and only to a terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::mig::{GpuModel, Layout};
use crate::model::Time;
use crate::sim::policy::{self, Policy};
use crate::sim::report::Report;
use crate::sim::scenario::Scenario;
use crate::sim::static_layout::best_layouts;
use crate::sim::traces;
use crate::sim::workload::{self, Mix};

/// Bounds of the options. The largest run has about 1.5 million pods and fits into some GB of memory.
const MOST_GPUS: u32 = 10_000;
const MOST_HOURS: f64 = 744.0;
const MOST_LOAD: f64 = 2.0;

/// The end of the help text.
const EXAMPLES: &str = "\
Examples:
  mig-scheduler simulate
      a day on 100 A100-40GB: a static layout against instances created on demand
  mig-scheduler simulate --load 0.95 --mix uniform --seed 7 --json > result.json
      another workload, as one JSON document
  mig-scheduler simulate --trace ../shared/traces/openb --baseline
      a real trace: ours, best fit and spreading

The same options give the same output, byte for byte, on every machine.
Exit codes: 0 done, 1 failed or an invariant was violated, 2 usage.";

/// What is run and how it is told.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// GPUs of the built-in workload (A100-40GB, four a node).
    #[arg(long, value_name = "N", default_value_t = 100, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_GPUS)), conflicts_with = "trace")]
    gpus: u32,

    /// Length of the measured time in hours, above 0 and at most 744 (a month); 13 days of warm-up come before it.
    #[arg(long, value_name = "H", default_value = "24", allow_negative_numbers = true, value_parser = hours, conflicts_with = "trace")]
    hours: Duration,

    /// Seed of everything that is drawn by chance.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        conflicts_with = "trace"
    )]
    seed: u64,

    /// Mean demand as a share of all memory slices, above 0 and at most 2.
    #[arg(long, value_name = "SHARE", default_value = "0.8", allow_negative_numbers = true, value_parser = load, conflicts_with = "trace")]
    load: f64,

    /// How often pods ask for each profile.
    #[arg(long, value_enum, default_value_t, conflicts_with = "trace")]
    mix: Mix,

    /// Replay an openb trace instead: its folder, or one of its pod files (the node file is read from beside it).
    #[arg(long, value_name = "PATH")]
    trace: Option<PathBuf>,

    /// With --trace: let no pod end, so that the cluster fills up until some find no room.
    #[arg(long, requires = "trace")]
    no_departures: bool,

    /// Also run kube-scheduler's default score (spreading) with instances created on demand.
    #[arg(long)]
    baseline: bool,

    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

/// What a simulation came to.
pub struct Outcome {
    /// For stdout.
    pub text: String,
    /// An error when something happened that must never happen; the text tells more.
    pub verdict: anyhow::Result<()>,
}

impl Arguments {
    /// Runs every policy.
    pub fn run(self) -> anyhow::Result<Outcome> {
        let (scenario, layouts, policies) = self.plan()?;
        let progress = Progress::new(&policies, scenario.end);
        let runs = policy::compare(&scenario, &layouts, &policies, &mut |done, now| progress.show(done, now));
        progress.finish();
        let report = Report::new(&scenario, &layouts, &runs);
        let violations: usize = report.policies.iter().map(|policy| policy.violations.len()).sum();
        let text = if self.json { report.json()? } else { report.text() };
        let first = report.policies.iter().flat_map(|policy| &policy.violations).next();
        let verdict = match first {
            None => Ok(()),
            Some(first) => Err(anyhow::anyhow!("{violations} violated invariants, the first: {first}")),
        };
        Ok(Outcome { text, verdict })
    }

    fn plan(&self) -> anyhow::Result<(Scenario, Vec<Layout>, Vec<Policy>)> {
        if let Some(path) = &self.trace {
            let mut scenario = traces::read(path).context("--trace")?;
            if self.no_departures {
                scenario.without_departures();
            }
            return Ok((scenario, Vec::new(), policy::for_trace(self.baseline)));
        }
        let options = workload::Options {
            gpus: self.gpus,
            window: self.hours,
            seed: self.seed,
            load: self.load,
            mix: self.mix,
        };
        let model = GpuModel::by_name(workload::MODEL)?;
        let layouts = best_layouts(model, self.gpus, &workload::mean_demand(&options, model))?;
        Ok((workload::generate(&options)?, layouts, policy::for_workload(self.baseline)))
    }
}

/// Parses `--hours`.
fn hours(text: &str) -> Result<Duration, String> {
    let hours = within(text, MOST_HOURS)?;
    Ok(Duration::from_secs((hours * 3_600.0).round().max(1.0) as u64))
}

/// Parses `--load`.
fn load(text: &str) -> Result<f64, String> {
    within(text, MOST_LOAD)
}

/// A number above zero and at most `most`.
fn within(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&number: &f64| number > 0.0 && number <= most);
    number.ok_or_else(|| format!("give a number above 0 and at most {most}"))
}

/// The bar on stderr; nothing unless that is a terminal.
struct Progress {
    bar: ProgressBar,
    policies: Vec<String>,
    end: Time,
}

impl Progress {
    fn new(policies: &[Policy], end: Time) -> Progress {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let minutes = minutes(end) * policies.len() as u64;
        let bar = ProgressBar::with_draw_target(Some(minutes), target);
        if let Ok(style) = ProgressStyle::with_template("{msg:32} {wide_bar} {percent:>3} % {elapsed}") {
            bar.set_style(style);
        }
        let policies = policies.iter().map(|policy| policy.heading.join(", ")).collect();
        Progress { bar, policies, end }
    }

    fn show(&self, done: usize, now: Time) {
        if let Some(policy) = self.policies.get(done) {
            self.bar.set_message(policy.clone());
        }
        self.bar.set_position(minutes(self.end) * done as u64 + minutes(now));
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn minutes(time: Time) -> u64 {
    time.as_micros() / 60_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_bounds_are_refused() {
        for text in ["0", "-1", "nan", "inf", "744.5", "x", ""] {
            assert!(hours(text).unwrap_err().contains("above 0 and at most 744"), "{text}");
        }
        assert_eq!(hours("0.5"), Ok(Duration::from_secs(1_800)));
        assert_eq!(load("2"), Ok(2.0));
        assert!(load("2.01").is_err());
    }
}
