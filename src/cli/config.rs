//! `config check`, `config default`, `config schema`: the configuration file, without a cluster.
//!
//! Invariant: nothing is read but the file named, so the answer is the same on a laptop and in a pipeline. This takes
//! the place of the default scheduler's `--write-config-to`.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::config::{Config, schema};

const CHECK_EXAMPLES: &str = "\
Example:
  mig-scheduler config check scheduler-config/scheduler-config.yaml

Prints one line. Exit code 2 when the file is refused, and the line says where and what to write instead.";

const DEFAULT_EXAMPLES: &str = "\
Example:
  mig-scheduler config default > scheduler-config.yaml";

const SCHEMA_EXAMPLES: &str = "\
Example:
  mig-scheduler config schema > scheduler-config/schema.json

An editor with a YAML language server checks a file that begins with:
  # yaml-language-server: $schema=schema.json";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Read FILE as the scheduler would, and say what is wrong with it, if anything.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// A configuration file.
        file: PathBuf,
    },
    /// Print a configuration file with every field at its default.
    #[command(after_help = DEFAULT_EXAMPLES)]
    Default,
    /// Print the JSON schema of the configuration file.
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema,
}

impl Command {
    /// The text for stdout.
    pub(super) fn run(self) -> anyhow::Result<String> {
        match self {
            Command::Check { file } => check(&file),
            Command::Default => Ok(Config::default().to_yaml()?),
            Command::Schema => Ok(schema()),
        }
    }
}

fn check(file: &Path) -> anyhow::Result<String> {
    let config = Config::load(file)?;
    Ok(format!("{}: valid; schedules pods with schedulerName {}\n", file.display(), config.scheduler_name))
}
