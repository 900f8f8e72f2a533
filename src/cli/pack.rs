//! `pack`: the solver alone. Demand and GPUs in; layouts, assignment, bound, steps and a drawing out.
//!
//! Invariant: nothing is read but the one document, nothing is written but stdout, and the same document gives the same answer.

mod answer;
mod draw;
mod input;
mod measured;
mod parted;
mod text;
mod wire;
mod words;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::config::error::ConfigError;
use crate::config::yaml;
use crate::mig::GpuModel;
use crate::solver::packing::{self, MAX_ITEMS, PackError};

/// Width of the text where stdout is no terminal.
const WIDTH: usize = 100;

/// Lines longer than this are hard to follow with the eye, however wide the terminal is.
const WIDEST: usize = 120;

/// The end of the help text.
const EXAMPLES: &str = "\
The document, in YAML or JSON (every field: `mig-scheduler pack --schema`):
  demand:
    - {profile: 3g.20gb, count: 2, priority: 10}
    - {profile: 1g.5gb, count: 9}
  gpus:
    - node: n0
      index: 0
      model: A100-40GB
      instances:
        - {profile: 3g.20gb, start: 0, pod: ai/llm-0}                  # stays where it is
        - {profile: 1g.5gb, start: 4, pod: ai/tts-0, movable: true}
        - {profile: 1g.5gb, start: 5}                                  # free

Examples:
  echo 'demand: [{profile: 1g.5gb, count: 9}, {profile: 3g.20gb, count: 2}]' |
    mig-scheduler pack --model A100-40GB
      how many empty GPUs this needs, and how they are cut
  mig-scheduler pack --model H100-80GB --gpus 16 demand.yaml
      what of it fits on sixteen
  mig-scheduler pack cluster.yaml
      the best layouts for the GPUs listed there, and the steps to get to them
  mig-scheduler pack --json cluster.yaml | jq .summary
      the whole answer as one document
  mig-scheduler pack --mig-parted cluster.yaml > config.yaml
      layouts as a configuration for NVIDIA's mig-parted and mig-manager; mig-manager destroys all instances of a GPU
      that it changes, so that every GPU which holds a pod keeps its layout (`actuator: mig-manager` plans the same)

Pods that find no place and GPUs that contradict their model's table are listed; neither is a failure.
Exit codes: 0 done, 1 failed, 2 usage or an invalid document.";

/// What is packed and how it is told.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The document with demand and GPUs; `-` or nothing for stdin.
    file: Option<PathBuf>,

    /// Pack onto empty GPUs of this model instead of those in the document, by default as many as are needed.
    #[arg(long, value_name = "MODEL", value_parser = model)]
    model: Option<&'static GpuModel>,

    /// How many such GPUs there are.
    #[arg(long, value_name = "N", requires = "model", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=MAX_ITEMS as i64))]
    gpus: Option<u32>,

    /// Print one JSON document.
    #[arg(long)]
    json: bool,

    /// Print the layouts as a mig-parted configuration (YAML); GPUs that hold a pod keep theirs.
    #[arg(long, conflicts_with = "json")]
    mig_parted: bool,

    /// Print the JSON schema of the document, and pack nothing.
    #[arg(long, conflicts_with_all = ["json", "mig_parted", "model", "gpus", "file"])]
    schema: bool,
}

impl Arguments {
    /// The text for stdout.
    pub(super) fn run(self) -> anyhow::Result<String> {
        if self.schema {
            return Ok(format!("{:#}\n", schemars::schema_for!(wire::PackRequest).as_value()));
        }
        let name = self.file.as_deref().filter(|path| *path != Path::new("-"));
        let named = |error: ConfigError| error.in_file(name.unwrap_or(Path::new("stdin")));
        let text = match name {
            Some(path) => yaml::read(path, &wire::FORM),
            None if io::stdin().is_terminal() => {
                let fix = "is a terminal; name a file with the demand, or pipe one in (`mig-scheduler pack --help` shows how)";
                Err(ConfigError::whole(fix))
            }
            None => yaml::read_from(io::stdin().lock(), &wire::FORM),
        };
        let request = text.and_then(|text| yaml::decode(&text, &wire::FORM)).map_err(named)?;
        let new = self.model.map(|model| input::NewGpus { model, count: self.gpus });
        let task = input::task(request, new, self.mig_parted).map_err(named)?;
        let plan = packing::pack(&task.problem).map_err(|error| match error {
            PackError::Unsound(_) => anyhow::Error::from(error),
            invalid => named(ConfigError::whole(invalid)).into(),
        })?;
        if self.mig_parted {
            return parted::document(&task, &plan);
        }
        let answer = answer::answer(&task, &plan).context("the plan cannot be carried out")?;
        match self.json {
            true => Ok(serde_json::to_string_pretty(&answer)? + "\n"),
            false => Ok(text::render(&answer, width(), task.purpose)),
        }
    }
}

/// Parses `--model`.
fn model(text: &str) -> Result<&'static GpuModel, String> {
    let found = GpuModel::by_name(text).or_else(|_| GpuModel::by_product_label(text));
    found.map_err(|error| error.to_string())
}

/// Columns of the text.
fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    terminal.map_or(WIDTH, |(width, _)| usize::from(width.0)).clamp(draw::NARROWEST, WIDEST)
}
