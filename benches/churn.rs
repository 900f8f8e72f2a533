//! Queueing under churn near saturation: what placement, bounded moves and the product's own limits are worth.
//!
//! 100 A100-80GB GPUs at the level of slices (no nodes, CPU or Kubernetes), pods of one instance each, four mixes, loads 0.90,
//! 0.95 and 1.0. Every policy meets the same pods, seed by seed. One JSON line for each mix, load and policy on stdout, a table on
//! stderr:
//!
//! - `mean_wait`, `p95_wait`: from arrival to start, in mean lifetimes, over the pods that arrive within the window; the P95 is of
//!   all pods of a seed. `waits` and `p95_waits` are by profile. Figures are means over seeds, `ci95` half their 95 % interval.
//! - `utilisation`: mean share of memory slices held by running pods within the window. In a stable queue it is the offered load
//!   whatever the policy; only at load 1.0, where queues grow, does it tell policies apart.
//! - `moved`: running pods moved, as a share of those that arrived.
//! - `of_best_greedy`: paired ratio to the greedy rule with the least mean wait of that case, `of_best_simple` to the best of
//!   first fit, best fit and MFI; `gap_closed`: share of the way
//!   from that rule to the limit; `worse_than_first_fit`: profiles that wait longer than under first fit (95 % interval of the
//!   paired difference above zero).

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its command line and the time")]

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use mig_scheduler::mig::GpuModel;
use mig_scheduler::sim::churn::clock::{Outcome, Window};
use mig_scheduler::sim::churn::contest::{Case, Policy};
use mig_scheduler::sim::churn::report::{self, Row};
use mig_scheduler::sim::churn::workload::{Arrivals, Lifetimes};
use mig_scheduler::sim::mix::Mix;
use mig_scheduler::solver::states::LayoutStates;
use serde_json::{Map, Value, json};

/// The rules that users have: first fit, best fit and MFI; FGD has to be told the mix.
const SIMPLE: [&str; 3] = ["first-fit", "best-fit", "mfi"];

/// Runs every policy on the same pods.
#[derive(Debug, Parser)]
struct Args {
    /// Mixes.
    #[arg(long, value_enum, num_args = 1.., default_values = ["uniform", "skew-small", "skew-big", "bimodal"])]
    mixes: Vec<Mix>,
    /// Offered loads, as shares of all memory slices.
    #[arg(long, num_args = 1.., default_values_t = [0.90, 0.95, 1.0])]
    loads: Vec<f64>,
    /// Number of seeds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed. Seeds below 1,000 were used while the rules were developed.
    #[arg(long, default_value_t = 1_000)]
    first_seed: u64,
    /// How lifetimes are distributed.
    #[arg(long, value_enum, default_value = "uniform")]
    lifetimes: Lifetimes,
    /// When pods arrive.
    #[arg(long, value_enum, default_value = "regular")]
    arrivals: Arrivals,
    /// Number of GPUs.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    gpus: u16,
    /// Mean lifetimes before the measured window.
    #[arg(long, default_value_t = 15)]
    warm_up: u64,
    /// Mean lifetimes that are measured.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    length: u64,
    /// Only policies whose name contains one of these; first-fit and the limit are always there.
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let states = LayoutStates::new(GpuModel::by_name("A100-80GB")?);
    for &load in &args.loads {
        ensure!(load > 0.0 && load <= 2.0, "--loads: {load} is not between 0 and 2");
        for &mix in &args.mixes {
            let window = Window { warm_up: args.warm_up, length: args.length };
            let (lifetimes, arrivals) = (args.lifetimes, args.arrivals);
            let case = Case { gpus: usize::from(args.gpus), mix, load, lifetimes, arrivals, window };
            let began = Instant::now();
            let rows = rows(&args, &states, &case)?;
            print(&states, &case, &rows)?;
            eprintln!("{:.0} s\n", began.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// Every policy over all seeds.
fn rows(args: &Args, states: &LayoutStates, case: &Case) -> Result<Vec<Row>> {
    let wanted = |policy: &Policy| {
        let name = policy.name();
        let always = ["first-fit", "repack-limit"].contains(&name.as_str());
        always || args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()))
    };
    let row = |policy: Policy| Row {
        policy: policy.name(),
        greedy: matches!(policy, Policy::Greedy(_)),
        outcomes: Vec::new(),
    };
    let policies: Vec<Policy> = Policy::ALL.into_iter().filter(wanted).collect();
    let mut rows: Vec<Row> = policies.iter().copied().map(row).collect();
    for seed in args.first_seed..args.first_seed + args.seeds {
        let pods = case.pods(states, seed);
        for (policy, row) in policies.iter().zip(&mut rows) {
            row.outcomes.push(case.run(states, seed, &pods, *policy)?);
        }
    }
    Ok(rows)
}

fn print(states: &LayoutStates, case: &Case, rows: &[Row]) -> Result<()> {
    let best = report::best_greedy(rows, |_| true).context("find a greedy rule to compare with")?;
    let simple = report::best_greedy(rows, |name| SIMPLE.contains(&name)).context("find a simple rule")?;
    let first = rows.iter().find(|row| row.policy == "first-fit").context("find first fit")?;
    let limit = rows.last().context("find the limit")?;
    eprintln!("{} at {:.2}, best greedy: {}", case.mix.as_str(), case.load, best.policy);
    eprintln!(
        "  policy                    mean wait ± 95 %     of best       gap   P95    util  moved   7g mean/P95    worse than first fit"
    );
    for row in rows {
        let wait = report::estimate(&row.waits());
        let ratio = report::ratio(&row.waits(), &best.waits());
        let closed = report::gap_closed(row, best, limit);
        let p95 = row.over_seeds(Outcome::p95_wait);
        let utilisation = row.over_seeds(|outcome| outcome.utilisation);
        let moved = row.over_seeds(|outcome| outcome.moved);
        let name = |profile: usize| states.profiles()[profile].name.to_string();
        let worse: Vec<String> = report::worse_profiles(row, first).into_iter().map(name).collect();
        let largest = (row.over_seeds(|o| o.mean_wait_of(0)).mean, row.over_seeds(|o| o.p95_wait_of(0)).mean);
        eprintln!(
            "  {:24} {:.4} ± {:.4}   {:.2} ± {:.2}  {:5.0} %  {:.3}  {:.3}  {:.2} %  {:.3} / {:.3}   {}",
            row.policy,
            wait.mean,
            wait.ci95,
            ratio.mean,
            ratio.ci95,
            100.0 * closed,
            p95.mean,
            utilisation.mean,
            100.0 * moved.mean,
            largest.0,
            largest.1,
            worse.join(" "),
        );
        let by_profile = |figure: fn(&Outcome, usize) -> f64| -> Map<String, Value> {
            let profiles = 0..states.profiles().len();
            profiles.map(|p| (name(p), json!(row.over_seeds(|outcome| figure(outcome, p))))).collect()
        };
        let line = json!({
            "mix": case.mix.as_str(), "load": case.load, "policy": row.policy, "seeds": row.outcomes.len(),
            "mean_wait": wait.mean, "ci95": wait.ci95, "p95_wait": p95.mean, "utilisation": utilisation.mean,
            "moved": moved.mean, "of_best_greedy": ratio, "best_greedy": best.policy,
            "of_best_simple": report::ratio(&row.waits(), &simple.waits()), "best_simple": simple.policy, "gap_closed": closed,
            "worse_than_first_fit": worse,
            "waits": by_profile(Outcome::mean_wait_of), "p95_waits": by_profile(Outcome::p95_wait_of),
        });
        println!("{line}");
    }
    Ok(())
}
