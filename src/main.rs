//! The binary: parse, dispatch, exit code. Everything else is in the library, where tests reach it.

use std::process::ExitCode;

use clap::Parser;
use mig_scheduler::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
