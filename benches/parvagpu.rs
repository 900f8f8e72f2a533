//! How many GPUs ParvaGPU's scenarios need when instance size, batch and processes are chosen together with the packing.
//!
//! `make bench-parvagpu`, or with another folder `cargo bench --bench parvagpu -- --traces DIR`. Prints a table on stderr and
//! one JSON line for each scenario on stdout; fails when a deployment needs more GPUs than `docs/packing.md` states.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "parvagpu/data.rs"]
mod data;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use mig_scheduler::mig::GpuModel;
use mig_scheduler::solver::services::size;
use serde_json::json;

/// Sizes ParvaGPU's scenarios.
#[derive(Parser)]
struct Arguments {
    /// The folder that holds `parvagpu/`.
    #[arg(long, value_name = "DIR", default_value = "../shared/traces")]
    traces: PathBuf,

    /// Passed by cargo, without a meaning here.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no scenario needs more GPUs than are stated, and none is missing.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let folder = arguments.traces.join("parvagpu");
    if !folder.is_dir() {
        let fix = "name the folder that holds ParvaGPU's `prof_data` and `SLO` as parvagpu/ with --traces";
        return Err(format!("{} is not there: {fix}", folder.display()));
    }
    let model = GpuModel::by_name(data::MODEL).map_err(|error| error.to_string())?;
    let scenarios = data::scenarios(&folder)?;
    let mut good = scenarios.len() == data::GPUS.len();
    eprintln!("scenario  services  GPUs  bound  published      ms");
    for (scenario, most) in scenarios.iter().zip(data::GPUS) {
        let started = Instant::now();
        let sizing = size(model, &scenario.services).map_err(|error| error.to_string())?;
        let ms = started.elapsed().as_secs_f64() * 1_000.0;
        let (gpus, services) = (sizing.gpus.len(), scenario.services.len());
        let (bound, published) = (sizing.bound, scenario.published);
        eprintln!("{:<8}  {services:>8}  {gpus:>4}  {bound:>5}  {published:>9}  {ms:>6.0}", scenario.name);
        println!(
            "{}",
            json!({"scenario": scenario.name, "gpus": gpus, "bound": bound, "published": published,
                   "services": services, "instances": sizing.gpus.iter().map(Vec::len).sum::<usize>(),
                   "ms": (ms * 10.0).round() / 10.0})
        );
        if gpus > most {
            eprintln!("error: {} needs {gpus} GPUs instead of {most}", scenario.name);
            good = false;
        }
    }
    Ok(good)
}
