//! `forecast backtest`: the past as if it were the present.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use super::course::Course;
use super::report::Report;
use super::{Input, network, page};
use crate::forecast::backtest::Split;

/// `forecast backtest`.
#[derive(Debug, Args)]
pub struct Backtest {
    #[command(flatten)]
    input: Input,

    /// Weights of the network, lstm.safetensors with lstm.json beside it; by default those that the program brings along.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Share of each series, at its end, that is tested; above 0 and at most 0.8.
    #[arg(long, value_name = "SHARE", default_value = "0.3", value_parser = tested_share)]
    tested: f64,

    /// Also write a page with plots of forecast against actual.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print one JSON document instead of the tables.
    #[arg(long)]
    json: bool,
}

/// Parses `--tested`.
fn tested_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|&share: &f64| share > 0.0 && share <= 0.8);
    share.ok_or_else(|| "give a number above 0 and at most 0.8".to_owned())
}

impl Backtest {
    pub(super) fn run(self) -> anyhow::Result<String> {
        let given = self.input.read()?;
        let shape = given.shape;
        let network = network(self.model.as_deref(), shape)?;
        let tested = 1.0 - self.tested;
        let split = Split { learnt: tested * 6.0 / 7.0, tested };
        let course = Course::run(&given, split, network)?;
        let chosen = course.tested(split);
        if chosen.is_empty() {
            bail!(
                "nothing to test: the last {:.0} % of every series hold no window of {} + {} values without a gap",
                self.tested * 100.0,
                shape.look_back,
                shape.horizon
            );
        }
        let report = Report::new(&course.replay, &course.scaled, &chosen, split.tested);
        if let Some(file) = &self.html {
            let page = page::render(&given.origin, &report, &course.replay, &course.scaled, &chosen);
            fs::write(file, page).with_context(|| format!("--html: cannot write {}", file.display()))?;
        }
        Ok(if self.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_outside_their_bounds_are_refused() {
        for text in ["0", "-1", "0.81", "nan", "x"] {
            assert!(tested_share(text).unwrap_err().contains("above 0 and at most 0.8"), "{text}");
        }
        assert_eq!(tested_share("0.3"), Ok(0.3));
    }
}
