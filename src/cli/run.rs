//! `run`: the scheduler.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;

use crate::config::{Config, LogFormat};
use crate::shell::log;
use crate::shell::run::{Settings, run};

const EXAMPLES: &str = "\
Examples:
  mig-scheduler run
      with defaults: by $KUBECONFIG if it is set, or else inside a cluster as its service account, elsewhere by
      ~/.kube/config
  mig-scheduler run --config scheduler-config.yaml --dry-run
      says where the pods that wait now would go, and changes nothing

Ends with 0 after SIGTERM or SIGINT, with 1 when it can no longer be sure to lead.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Command {
    /// Configuration file; without one every setting has its default.
    #[arg(long, value_name = "FILE", env = "MIG_SCHEDULER_CONFIG")]
    config: Option<PathBuf>,

    /// Credentials for the API server; overrides clientConnection.kubeconfig, $KUBECONFIG and the service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Form of the log on stderr; overrides logging.format of the configuration file.
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    /// Decide and log, write nothing to the cluster. Takes no part in leader election.
    #[arg(long)]
    dry_run: bool,
}

impl Command {
    /// Runs the scheduler until it is told to stop.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        config.logging.format = self.log_format.unwrap_or(config.logging.format);
        log::init(&config.logging)?;
        let settings = Settings { config, kubeconfig: self.kubeconfig, dry_run: self.dry_run };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
        let ended = runtime.block_on(run(settings));
        // Tasks that are left hold nothing worth waiting for.
        runtime.shutdown_background();
        // Its text names the cause already; with its sources it would be printed twice.
        ended.map_err(|error| anyhow!("{error}"))
    }
}
