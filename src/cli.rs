//! The command line: one subcommand a file.
//!
//! Invariant: results go to stdout, everything else to stderr, and the exit code says how it ended: 0 done, 1 failed,
//! 2 usage or invalid configuration. A reader that closes its pipe early is no failure.

mod config;
mod forecast;
mod pack;
mod run;
mod simulate;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::config::ConfigError;

/// The exit code of a refused configuration; clap ends with the same for wrong usage.
const INVALID: u8 = 2;

/// The end of the help text.
const EXAMPLES: &str = "\
Examples:
  mig-scheduler run --config scheduler-config.yaml
      the scheduler
  mig-scheduler config default > scheduler-config.yaml
      a complete file to start from
  mig-scheduler config check scheduler-config.yaml
      says what is wrong with it, if anything
  mig-scheduler simulate
      a day of inference pods on 100 GPUs, against a static layout
  echo 'demand: [{profile: 1g.5gb, count: 9}]' | mig-scheduler pack --model A100-40GB
      how many GPUs that needs and how they are cut
  mig-scheduler forecast backtest
      how good every forecast is on three generated weeks of LLM load

Exit codes: 0 done, 1 failed, 2 usage or invalid configuration.";

/// A Kubernetes scheduler for NVIDIA GPUs that are cut into MIG instances.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the scheduler.
    Run(run::Command),
    /// Check, print or describe the configuration file.
    #[command(subcommand)]
    Config(config::Command),
    /// Pack demand onto GPUs: layouts, assignment, lower bound and the steps to get there.
    Pack(pack::Arguments),
    /// Run the whole scheduler in virtual time on virtual nodes and compare policies.
    Simulate(simulate::Arguments),
    /// Forecast usage, and show how good forecasts are.
    #[command(subcommand)]
    Forecast(forecast::Command),
}

impl Cli {
    /// Runs the subcommand, reports its error on stderr and returns the exit code.
    pub fn run(self) -> ExitCode {
        match self.dispatch() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // Nobody is left to tell when stderr is closed; the exit code still says it.
                let _ = writeln!(io::stderr(), "error: {error:#}");
                exit_code(&error)
            }
        }
    }

    fn dispatch(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(command) => command.run(),
            Command::Config(command) => print(&command.run()?),
            Command::Pack(arguments) => print(&arguments.run()?),
            Command::Simulate(arguments) => {
                let outcome = arguments.run()?;
                print(&outcome.text)?;
                outcome.verdict
            }
            Command::Forecast(command) => print(&command.run()?),
        }
    }
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    match error.chain().any(|cause| cause.is::<ConfigError>()) {
        true => ExitCode::from(INVALID),
        false => ExitCode::FAILURE,
    }
}

/// Writes a command's result to stdout.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}
