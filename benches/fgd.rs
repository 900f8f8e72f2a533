//! Known rules on a known trace: does the frame give the published allocation?
//!
//! The openb cluster (1,213 nodes, 6,212 GPUs shared in thousandths, no MIG) is filled until the pods that have arrived ask for
//! 130 % of its GPUs. The FGD authors publish 95.39 % of capacity allocated for FGD and 93.08 % for best fit, means of ten seeds.
//! One JSON line a policy. Fails when a mean differs by more than [`TOLERANCE`] from what is published for the same pods, unless an
//! option makes it another experiment.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its command line and the time")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use mig_scheduler::sim::churn::report::estimate;
use mig_scheduler::sim::fractional::{Rule, Typical, read, run};
use serde_json::json;

/// Per cent of GPU capacity allocated that the FGD authors publish at 130 %: pods, best fit, FGD.
const PUBLISHED: [(&str, f64, f64); 4] = [
    ("default", 93.08, 95.39),
    ("gpushare100", 85.01, 86.90),
    ("gpuspec33", 93.09, 94.55),
    ("multigpu50", 95.74, 97.18),
];

/// How far a mean of ten seeds may be from it, in per cent of capacity.
const TOLERANCE: f64 = 0.3;

/// Arrived demand, share of typical pods, and step in their number of the published experiment.
const EXPERIMENT: (f64, f64, usize) = (1.3, 0.95, 1);

/// Fills the openb cluster beyond its capacity.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of the traces.
    #[arg(long, default_value = "../shared/traces")]
    traces: PathBuf,
    /// Which list of pods: default, gpushare100, gpuspec33 or multigpu50.
    #[arg(long, default_value = "default")]
    workload: String,
    /// What arrives, as a share of all GPUs.
    #[arg(long, default_value_t = EXPERIMENT.0)]
    demand: f64,
    /// Number of seeds, from zero.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Share of pods that the typical ones make up.
    #[arg(long, default_value_t = EXPERIMENT.1)]
    typical_share: f64,
    /// By how many kinds the typical pods grow.
    #[arg(long, default_value_t = EXPERIMENT.2)]
    typical_step: usize,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// What is published for the same experiment.
    fn published(&self, rule: Rule) -> Option<f64> {
        let same = (self.demand, self.typical_share, self.typical_step) == EXPERIMENT;
        let of = PUBLISHED.iter().find(|(workload, ..)| same && *workload == self.workload);
        of.and_then(|&(_, best_fit, fgd)| match rule {
            Rule::BestFit => Some(best_fit),
            Rule::Fgd => Some(fgd),
            _ => None,
        })
    }
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let folder = args.traces.join("openb");
    ensure!(
        folder.is_dir(),
        "{} is not there; --traces takes the folder that holds openb/",
        folder.display()
    );
    ensure!(args.demand > 0.0 && args.demand <= 10.0, "--demand: {} is not between 0 and 10", args.demand);
    let trace = read(&folder, &args.workload)?;
    let typical = Typical::new(&trace, args.typical_share, args.typical_step.max(1));
    let mut good = true;
    for rule in [Rule::Random, Rule::BestFit, Rule::Fgd] {
        let began = Instant::now();
        let outcomes: Vec<_> =
            (0..args.seeds).map(|seed| run(&trace, &typical, rule, args.demand, seed)).collect();
        let allocation =
            estimate(&outcomes.iter().map(|outcome| 100.0 * outcome.allocation).collect::<Vec<_>>());
        let fragmented =
            estimate(&outcomes.iter().map(|outcome| 100.0 * outcome.fragmentation).collect::<Vec<_>>());
        let published = args.published(rule);
        let line = json!({
            "policy": rule.as_str(), "workload": args.workload, "allocation": allocation.mean, "ci95": allocation.ci95, "published": published,
            "fragmentation": fragmented.mean, "seeds": args.seeds, "pods": outcomes.first().map(|outcome| outcome.pods.0),
        });
        println!("{line}");
        eprintln!("{}: {:.1} s", rule.as_str(), began.elapsed().as_secs_f64());
        if let Some(published) = published.filter(|published| (allocation.mean - published).abs() > TOLERANCE)
        {
            eprintln!(
                "error: {} allocates {:.2} %, published are {published} %",
                rule.as_str(),
                allocation.mean
            );
            good = false;
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
