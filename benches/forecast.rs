//! Forecast accuracy beside other forecasters, on the same windows.
//!
//! ```text
//!   traces, generated weeks ─► scale ─► learn │ hold out │ replay ─► ours, the gate included ─┐
//!                                │                │                                            ├─► scores, JSON lines
//!                                └─► windows as files ─► forecast_peers.py ─► forecasts ───────┘
//! ```
//!
//! One JSON line a set, seed and model on stdout (`set, seed, model, mse, mae, mase, wql`, and the share of the word for models of
//! the gate), then one a set and model with `"seed": "mean"`; progress on stderr.
//!
//! Conditions. 30 steps lead to the next 10. Series are scaled by what the first 70 % span, so errors are in units of that; the last
//! 30 % are tested. Every model sees 60 % to learn from and 10 % to choose by (early stopping, quantiles, the gate's first errors).
//! A seed draws the tested windows, the generated weeks, the training windows of LightGBM and the LSTMs, and their first weights.
//! Ours forecast every tenth step of the last 40 % in order of time, the gate learning as targets become known, and linear models
//! learning once a day; scores are of the drawn windows alone, the same for everybody.
//!
//! What each sees when it forecasts a window: the LSTMs, LightGBM, `linear` and `linear-own` its 30 values; `ets`, `arima` and the
//! statistical peers the last 300 (fitted anew for every window); `seasonal-naive` a day, `seasonal-linear` a week and a day.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads files, starts a process and measures in real time"
)]

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use mig_scheduler::forecast::backtest::{Plan, Replay, Split, replay};
use mig_scheduler::forecast::gate::{Gate, Memory};
use mig_scheduler::forecast::lstm::{Lstm, Threads};
use mig_scheduler::forecast::scale::Scaled;
use mig_scheduler::forecast::score::{Scorer, Scores, one_step_change};
use mig_scheduler::forecast::train::{self, TrainOptions};
use mig_scheduler::forecast::{Forecasts, LabelledWindows, Model, Series, SeriesKey, Shape, baselines};
use mig_scheduler::sim::llm_week::{Service, WEEK};
use mig_scheduler::sim::rng::Rng;
use serde_json::json;

/// What others are shown of a series before a window's end.
const HISTORY: usize = 300;
/// A series that spans less in training is a counter of a handful of GPUs.
const LEAST_SPAN: f32 = 4.0;
/// Shares of a service's traffic in the generated weeks.
const SHARES: [f64; 3] = [1.0, 0.125, 0.02];
const GENERATED_WEEKS: usize = 4;

/// The peers that the script knows.
const PEERS: [&str; 5] = ["auto-arima", "auto-ets", "auto-theta", "lightgbm", "keras-lstm"];

/// Measures forecasts of every model on every set.
#[derive(Debug, Parser)]
struct Args {
    /// Folder with helios_earth, philly and nab; sets that are not there are left out, and that is said.
    #[arg(long, default_value = "../shared/traces")]
    traces: PathBuf,
    /// Python with the packages of benches/peers/requirements.txt; without it, ours are measured alone.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Sets to measure.
    #[arg(long, num_args = 1.., default_values_t = ["helios_earth", "nab", "philly", "llm_weeks"].map(str::to_owned))]
    sets: Vec<String>,
    /// Peers to run.
    #[arg(long, num_args = 1.., default_values_t = PEERS.map(str::to_owned))]
    peers: Vec<String>,
    /// Windows drawn from each set.
    #[arg(long, default_value_t = 400)]
    windows: usize,
    /// Windows that LightGBM and the LSTMs learn from at most; they choose by a quarter as many.
    #[arg(long, default_value_t = 20_000)]
    learnt: usize,
    /// Number of seeds.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Where windows and the peers' forecasts are kept; peers do not forecast the same windows twice.
    #[arg(long, default_value = "target/bench-forecast")]
    work: PathBuf,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    for set in &args.sets {
        let mut sums: BTreeMap<(usize, String), (f64, [f64; 4], f64)> = BTreeMap::new();
        for seed in 1..=args.seeds {
            let Some((series, step)) = load(set, &args.traces, seed)? else {
                eprintln!("{set}: not at {}; left out (--traces DIR)", args.traces.display());
                continue;
            };
            let rows = measure(set, &series, step, seed, &args)?;
            for (order, (model, scores, share)) in rows.into_iter().enumerate() {
                print(set, json!(seed), &model, &[scores.mse, scores.mae, scores.mase, scores.wql], share);
                let sum = sums.entry((order, model)).or_default();
                sum.0 += 1.0;
                let four = [scores.mse, scores.mae, scores.mase, scores.wql];
                sum.1.iter_mut().zip(four).for_each(|(sum, score)| *sum += score);
                sum.2 += share.unwrap_or(f64::NAN);
            }
        }
        for ((_, model), (count, sums, share)) in sums {
            let share = (share / count).is_finite().then_some(share / count);
            print(set, json!("mean"), &model, &sums.map(|sum| sum / count), share);
        }
    }
    Ok(())
}

fn print(set: &str, seed: serde_json::Value, model: &str, scores: &[f64; 4], share: Option<f64>) {
    let [mse, mae, mase, wql] = scores;
    let mut line =
        json!({"set": set, "seed": seed, "model": model, "mse": mse, "mae": mae, "mase": mase, "wql": wql});
    if let (Some(share), Some(line)) = (share, line.as_object_mut()) {
        line.insert("share_of_the_word".to_owned(), json!(share));
    }
    println!("{line}");
}

type Row = (String, Scores, Option<f64>);

/// Scores of every model on the windows that `seed` draws.
fn measure(set: &str, series: &[Series], step: u32, seed: u64, args: &Args) -> Result<Vec<Row>> {
    let shape = Shape::new(30, 10, step)?;
    let split = Split::default();
    let scaled = Scaled::by_training(series, split.tested);
    let started = Instant::now();
    let ours = replay_ours(set, shape, &scaled, split, (args.learnt, seed))?;
    let seconds = started.elapsed().as_secs_f64();
    let tested: Vec<usize> = (0..ours.windows.len())
        .filter(|&at| {
            let origin = ours.windows.windows.origin(at);
            origin.is_some_and(|origin| {
                origin.last + 1 >= split.bounds(scaled.series[origin.series].values.len()).tested
            })
        })
        .collect();
    let drawn = draw(&tested, args.windows, seed);
    eprintln!(
        "{set}, seed {seed}: {} series, {} windows replayed in {seconds:.0} s, {} of {} drawn",
        scaled.series.len(),
        ours.windows.len(),
        drawn.len(),
        tested.len()
    );
    let chosen = ours.windows.select(&drawn);
    let naive: Vec<f64> = scaled
        .series
        .iter()
        .map(|series| one_step_change(&series.values[..split.bounds(series.values.len()).tested]))
        .collect();
    let score = |forecasts: &Forecasts, which: &dyn Fn(usize) -> usize| {
        let mut scorer = Scorer::default();
        for at in 0..chosen.len() {
            let series = chosen.windows.origin(at).map_or(0, |origin| origin.series);
            scorer.add(forecasts, which(at), chosen.target(at), naive[series]);
        }
        scorer.scores()
    };
    let votes = ours.votes(&drawn);
    let mut rows: Vec<Row> = ours
        .all()
        .enumerate()
        .map(|(index, (name, forecasts))| {
            (name.to_owned(), score(forecasts, &|at| drawn[at]), votes.get(index).copied())
        })
        .collect();
    if let Some(python) = &args.python {
        let dir = args.work.join(format!("{set}-{seed}"));
        write_windows(&dir, shape, &scaled, split, &chosen, (args.learnt, seed))?;
        for peer in &args.peers {
            let forecasts = run_peer(python, &dir, peer, seed, &chosen)?;
            rows.push((peer.clone(), score(&forecasts, &|at| at), None));
        }
    }
    Ok(rows)
}

/// Ours, in order of time.
fn replay_ours(
    set: &str,
    shape: Shape,
    scaled: &Scaled,
    split: Split,
    (most, seed): (usize, u64),
) -> Result<Replay> {
    let learnt = split.learnt(shape, &scaled.series, 1)?;
    let held_out = split.held_out(shape, &scaled.series, 1)?;
    let mut models = baselines::all(&learnt, &held_out);
    let started = Instant::now();
    let lstm = trained(&learnt, most, seed)?;
    let (training, seconds) = (lstm.training(), started.elapsed().as_secs_f64());
    eprintln!(
        "{set}, seed {seed}: lstm trained on {} windows, best after {} epochs, {seconds:.0} s",
        training.windows, training.epochs
    );
    models.push(Box::new(lstm) as Model);
    let names = models.iter().map(|model| model.name()).collect();
    let mut gate = Gate::new(names, Memory::default(), 5 * shape.step_seconds);
    let mut last = 0;
    let mut progress = |done: usize, of: usize| {
        let percent = done * 100 / of.max(1);
        if percent >= last + 25 {
            eprintln!("{set}: {percent} % of {of} windows");
            last = percent;
        }
    };
    let plan = Plan::daily(shape);
    Ok(replay(&mut models, &mut gate, shape, &scaled.series, split, plan, &mut progress)?)
}

/// The network, trained on a sample of the same windows and with the same patience as the peers that learn.
fn trained(learnt: &LabelledWindows, most: usize, seed: u64) -> Result<Lstm> {
    let options = TrainOptions {
        epochs: 30,
        batch: 128,
        patience: 5,
        most_windows: most,
        threads: Threads::One,
        seed,
        ..TrainOptions::default()
    };
    Ok(train::train(learnt, &options, &mut |_| ControlFlow::Continue(()))?)
}

/// So many of the indices, in their order.
fn draw(from: &[usize], count: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed, 0x5749_4E44);
    let mut pool = from.to_vec();
    let count = count.min(pool.len());
    for at in 0..count {
        let other = at + rng.below((pool.len() - at) as u64) as usize;
        pool.swap(at, other);
    }
    pool.truncate(count);
    pool.sort_unstable();
    pool
}

/// Writes what the peers learn from and what they are asked, as little-endian single precision without a header.
fn write_windows(
    dir: &Path,
    shape: Shape,
    scaled: &Scaled,
    split: Split,
    chosen: &LabelledWindows,
    (most, seed): (usize, u64),
) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("--work: cannot create {}", dir.display()))?;
    let table = |name: &str, values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let file = dir.join(name);
        fs::write(&file, bytes).with_context(|| format!("--work: cannot write {}", file.display()))
    };
    let sample = |windows: &LabelledWindows, most: usize| {
        windows.select(&draw(&(0..windows.len()).collect::<Vec<_>>(), most, seed))
    };
    let learnt = sample(&split.learnt(shape, &scaled.series, 1)?, most);
    let held_out = sample(&split.held_out(shape, &scaled.series, 1)?, most / 4);
    for (name, windows) in [("train", &learnt), ("valid", &held_out)] {
        table(&format!("{name}_inputs.f32"), &windows.windows.inputs)?;
        table(&format!("{name}_targets.f32"), &windows.targets)?;
    }
    table("test_inputs.f32", &chosen.windows.inputs)?;
    let history = |at: usize| {
        let recent = chosen.windows.recent(at, HISTORY);
        std::iter::repeat_n(f32::NAN, HISTORY - recent.len()).chain(recent.iter().copied())
    };
    let histories: Vec<f32> = (0..chosen.len()).flat_map(history).collect();
    table("test_history.f32", &histories)?;
    let meta = json!({"look_back": shape.look_back, "horizon": shape.horizon, "history": HISTORY});
    fs::write(dir.join("meta.json"), meta.to_string()).context("--work: cannot write meta.json")
}

/// Lets a peer forecast the windows in `dir`.
fn run_peer(python: &Path, dir: &Path, peer: &str, seed: u64, chosen: &LabelledWindows) -> Result<Forecasts> {
    let started = Instant::now();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/forecast_peers.py");
    let status = Command::new(python)
        .arg(&script)
        .arg(dir)
        .args(["--model", peer, "--seed", &seed.to_string()])
        .status()
        .with_context(|| format!("--python: cannot start {}", python.display()))?;
    ensure!(status.success(), "{peer} failed on {} ({status})", dir.display());
    eprintln!("{}: {peer} took {:.0} s", dir.display(), started.elapsed().as_secs_f64());
    let file = dir.join(format!("{peer}.f32"));
    let bytes = fs::read(&file).with_context(|| format!("{peer} left no {}", file.display()))?;
    let mut values =
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let horizon = chosen.windows.shape.horizon;
    let length = chosen.len() * horizon;
    ensure!(
        bytes.len() == 4 * 4 * length,
        "{} has {} bytes, not 4 tables of {length}",
        file.display(),
        bytes.len()
    );
    let mut table = || values.by_ref().take(length).collect::<Vec<f32>>();
    Ok(Forecasts { horizon, mean: table(), quantiles: [table(), table(), table()] })
}

/// The series of a set and their step; `None` when they are not there.
fn load(set: &str, traces: &Path, seed: u64) -> Result<Option<(Vec<Series>, u32)>> {
    let series = match set {
        "llm_weeks" => return Ok(Some((llm_weeks(seed), 60))),
        "helios_earth" => wide(&traces.join("helios_earth/running_gpus_1min_2020-05.csv"), set, &[])?,
        "philly" => wide(&traces.join("philly/philly_active_nodes_1min.csv"), set, &["total"])?,
        "nab" => return Ok(nab(&traces.join("nab"))?.map(|series| (series, 300))),
        other => bail!("--sets: {other} is none of helios_earth, nab, philly, llm_weeks"),
    };
    let spans = |series: &Series| {
        let training = &series.values[..series.values.len() * 7 / 10];
        training.iter().copied().fold(f32::MIN, f32::max) - training.iter().copied().fold(f32::MAX, f32::min)
            >= LEAST_SPAN
    };
    Ok(series.map(|series| (series.into_iter().filter(spans).collect(), 60)))
}

fn llm_weeks(seed: u64) -> Vec<Series> {
    let series = |service: Service| {
        SHARES.into_iter().zip(1u64..).map(move |(share, stream)| Series {
            key: SeriesKey::new("llm-activity", format!("{}-{share}", service.name())),
            start: 0,
            step_seconds: 60,
            values: service.activity(GENERATED_WEEKS * WEEK, share, seed * 31 + stream),
        })
    };
    [Service::Coding, Service::Conversation].into_iter().flat_map(series).collect()
}

/// A file with a column of minutes and a column a series.
fn wide(file: &Path, group: &str, without: &[&str]) -> Result<Option<Vec<Series>>> {
    if !file.exists() {
        return Ok(None);
    }
    let mut reader = csv::Reader::from_path(file)?;
    let names: Vec<String> = reader.headers()?.iter().skip(1).map(str::to_owned).collect();
    let mut columns = vec![Vec::new(); names.len()];
    for record in reader.records() {
        let record = record?;
        for (column, field) in columns.iter_mut().zip(record.iter().skip(1)) {
            column.push(field.parse::<f32>().with_context(|| format!("{}: `{field}`", file.display()))?);
        }
    }
    let series = names.into_iter().zip(columns).filter(|(name, _)| !without.contains(&name.as_str()));
    let series = series.map(|(name, values)| Series {
        key: SeriesKey::new(group, name),
        start: 0,
        step_seconds: 60,
        values,
    });
    Ok(Some(series.collect()))
}

/// Every `timestamp,value` file of a folder.
fn nab(dir: &Path) -> Result<Option<Vec<Series>>> {
    if !dir.exists() {
        return Ok(None);
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    let read = |file: &PathBuf| -> Result<Series> {
        let mut samples = Vec::new();
        for record in csv::Reader::from_path(file)?.records() {
            let record = record?;
            let text = format!("{}Z", record[0].replace(' ', "T"));
            let time: jiff::Timestamp =
                text.parse().with_context(|| format!("{}: `{text}`", file.display()))?;
            let value = record[1].parse().with_context(|| format!("{}: `{}`", file.display(), &record[1]))?;
            samples.push((time.as_second(), value));
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Series::from_samples(SeriesKey::new("nab", name), 300, samples))
    };
    files.iter().map(read).collect::<Result<Vec<_>>>().map(Some)
}
