//! The same random clusters and pods through kube-scheduler and through the scheduler under test.
//!
//! ```text
//!   generate ─► scenario ─► peer: real kube-apiserver and kube-scheduler ─► extender: the set of feasible nodes ─┐
//!                    └────► ours: the same objects, converted and examined in this process ──────────────────────┤
//!                                                                                        equal? ◄────────────────┘
//!                    both are forced to one node of the set, then the next pod            └► tally, or shrink
//! ```
//!
//! Invariant: for every pod the two sets of feasible nodes are equal, and where the set is empty so are the words in which
//! the pod is told why. `PARITY_N` sets the number of scenarios, `PARITY_SEED` the seed of the first; each scenario depends
//! on its own seed alone.

mod extender;
mod generate;
mod ours;
mod peer;
mod predicates;
mod replay;
mod scenario;
mod shrink;
mod tally;
mod verdict;

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::generate::generate;
use self::peer::Peer;
use self::replay::replay;
use self::scenario::Scenario;
use self::shrink::shrink;
use self::tally::Tally;

/// The scheduler's name in every pod to place.
const SCHEDULER: &str = "default-scheduler";

/// Scenarios in an ordinary run of the tests.
const SHORT_RUN: u64 = 40;
/// From so many scenarios on a run has to have used every predicate.
const FULL_RUN: u64 = 1_000;
/// After so many different disagreements a run ends early.
const ENOUGH: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feasible_nodes_are_those_of_kube_scheduler() -> Result<()> {
    let (count, first) = (setting("PARITY_N", SHORT_RUN)?, setting("PARITY_SEED", 1)?);
    println!("{count} scenarios from seed {first} (PARITY_N, PARITY_SEED)");
    let mut peer = Peer::start().await?;
    let (mut tally, mut found) = (Tally::default(), Vec::new());
    let started = Instant::now();
    for seed in first..first + count {
        let scenario = generate(seed);
        let replay = replay(&mut peer, &scenario).await.with_context(|| format!("scenario {seed}"))?;
        match replay.disagreement() {
            None => tally.add(&replay)?,
            Some(step) => {
                println!("{scenario}{step}");
                found.push(explain(&mut peer, &scenario).await?);
            }
        }
        if found.len() == ENOUGH {
            break;
        }
    }
    let mut summary = tally.summary();
    summary["disagreements"] = found.len().into();
    summary["seconds"] = started.elapsed().as_secs().into();
    println!("{summary}");
    ensure!(found.is_empty(), "{} disagreements:\n{}", found.len(), found.join("\n"));
    if count >= FULL_RUN {
        tally.check()?;
    }
    peer.finish()
}

/// Runs a scenario that disagreed again, and makes it small.
async fn explain(peer: &mut Peer, scenario: &Scenario) -> Result<String> {
    let again = replay(peer, scenario).await?;
    let Some(step) = again.disagreement() else {
        return Ok(format!("seed {}: disagreed once, and not again", scenario.seed));
    };
    let smallest = shrink(peer, scenario, step).await?;
    let shown = replay(peer, &smallest).await?;
    let step = shown.disagreement().map(ToString::to_string).unwrap_or_default();
    let report = format!("{smallest}{step}");
    println!("{report}");
    Ok(report)
}

fn setting(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => {
            text.parse().with_context(|| format!("{name}: \"{text}\" is not a number of scenarios or a seed"))
        }
        Err(_) => Ok(default),
    }
}
