//! The LSTM beside Keras and candle's stock layers: one forward pass and one training step, alternating in one run.
//!
//! One JSON line a batch on stdout, everything else on stderr. Times are medians of the rounds, in milliseconds; in every round
//! each of the programs does the same number of passes, one after the other. The shape is the same for all: 30 steps of six
//! features, two layers of 50, and 10 steps ahead. What differs is to our disadvantage: our head gives four numbers a step
//! (mean and quantiles), theirs one. All use two threads. Keras runs as a child process ([`PEER`]) that measures itself and is
//! asleep while the others run; of its ways to run (graph, unrolled, XLA) it uses the fastest.
//!
//! On stderr follows what does not concern Keras: how the time of a forecast grows with series and horizon, and what the hourly
//! update of 1,000 series takes on one thread.
//!
//! How to read it: compare numbers of one line, never of two machines.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures real processes in real time"
)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::rnn::{LSTM, LSTMConfig, RNN};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use clap::Parser;
use mig_scheduler::forecast::lstm::{FEATURES, Lstm, Network, Sizes, Threads};
use mig_scheduler::forecast::train::{self, Descent, TrainOptions, Trainer};
use mig_scheduler::forecast::{Forecaster, LabelledWindows, Series, SeriesKey, Shape, Windows};
use serde_json::json;

/// What speaks for Keras.
const PEER: &str = "benches/peers/keras_lstm.py";

const SIZES: Sizes = Sizes { steps: 30, features: FEATURES.len(), hidden: 50, layers: 2, horizon: 10 };

/// Measures the LSTM beside Keras.
#[derive(Parser)]
struct Args {
    /// A Python that has what benches/peers/keras-requirements.txt names; without it Keras is left out.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Batches.
    #[arg(long, num_args = 1.., default_values_t = [32, 256, 1_024])]
    batches: Vec<usize>,
    /// Rounds; the medians over them are told.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A pass: what is timed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Forward,
    Train,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Forward => "forward",
            Kind::Train => "train",
        }
    }
}

/// Something that does passes and says how long each took, in milliseconds.
trait Contestant {
    fn name(&self) -> &'static str;
    fn passes(&mut self, kind: Kind, batch: usize, count: usize) -> Result<Vec<f64>>;
}

fn timed(count: usize, mut pass: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let one = |_| -> Result<f64> {
        let begin = Instant::now();
        pass()?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    (0..count).map(one).collect()
}

fn data(batch: usize) -> Result<(Tensor, Tensor)> {
    let device = &Device::Cpu;
    let inputs = Tensor::rand(-1f32, 1.0, (batch, SIZES.steps, SIZES.features), device)?;
    Ok((inputs, Tensor::rand(-1f32, 1.0, (batch, SIZES.horizon), device)?))
}

struct Ours {
    network: Network,
    weights: Tensor,
    trainer: Trainer,
}

impl Ours {
    fn new() -> Result<Ours> {
        let network = Network::new(SIZES, Threads::Two);
        let weights = Tensor::rand(-0.1f32, 0.1, SIZES.weights(), &Device::Cpu)?;
        let descent = Descent { longest_gradient: f64::MAX, weight_decay: 0.0 };
        let trainer = Trainer::new(network.clone(), weights.to_vec1()?, descent);
        Ok(Ours { network, weights, trainer })
    }
}

impl Contestant for Ours {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn passes(&mut self, kind: Kind, batch: usize, count: usize) -> Result<Vec<f64>> {
        let (inputs, targets) = data(batch)?;
        let loss = |answers: &Tensor| (answers.narrow(2, 0, 1)?.squeeze(2)? - &targets)?.sqr()?.mean_all();
        timed(count, || {
            match kind {
                Kind::Forward => drop(self.network.infer(&inputs, &self.weights)?),
                Kind::Train => {
                    ensure!(self.trainer.step(&inputs, 1e-3, loss)?.is_some(), "the gradient is not finite")
                }
            }
            Ok(())
        })
    }
}

/// Candle's own layers.
struct Stock {
    layers: [LSTM; 2],
    head: candle_nn::Linear,
    optimizer: AdamW,
}

impl Stock {
    fn new() -> Result<Stock> {
        let vars = VarMap::new();
        let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
        let layer = |name, inputs| LSTM::new(inputs, SIZES.hidden, LSTMConfig::default(), builder.pp(name));
        let layers = [layer("0", SIZES.features)?, layer("1", SIZES.hidden)?];
        let head = candle_nn::linear(SIZES.hidden, SIZES.horizon, builder.pp("head"))?;
        let adam = ParamsAdamW { weight_decay: 0.0, ..ParamsAdamW::default() };
        let optimizer = AdamW::new(vars.all_vars(), adam)?;
        Ok(Stock { layers, head, optimizer })
    }

    fn answer(&self, inputs: &Tensor) -> Result<Tensor> {
        let mut states = inputs.clone();
        for layer in &self.layers {
            states = layer.states_to_tensor(&layer.seq(&states)?)?;
        }
        let last = states.narrow(1, SIZES.steps - 1, 1)?.squeeze(1)?.contiguous()?;
        Ok(candle_nn::Module::forward(&self.head, &last)?)
    }
}

impl Contestant for Stock {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn passes(&mut self, kind: Kind, batch: usize, count: usize) -> Result<Vec<f64>> {
        let (inputs, targets) = data(batch)?;
        timed(count, || {
            let answer = self.answer(&inputs)?;
            if kind == Kind::Train {
                self.optimizer.backward_step(&(answer - &targets)?.sqr()?.mean_all()?)?;
            }
            Ok(())
        })
    }
}

struct Keras {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Keras {
    fn start(python: &Path) -> Result<Keras> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(PEER);
        let mut child = Command::new(python)
            .arg(script)
            .arg(SIZES.features.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", python.display()))?;
        let (Some(ask), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the child has no pipes");
        };
        Ok(Keras { child, ask, answers: BufReader::new(answers) })
    }
}

impl Contestant for Keras {
    fn name(&self) -> &'static str {
        "keras"
    }

    fn passes(&mut self, kind: Kind, batch: usize, count: usize) -> Result<Vec<f64>> {
        writeln!(self.ask, "{} {batch} {count}", kind.name())?;
        self.ask.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let times = line.split_whitespace().map(|time| time.parse::<f64>().context("not a time"));
        let times: Vec<f64> = times.collect::<Result<_>>()?;
        if times.len() != count {
            bail!("Keras answered {line:?} instead of {count} times; its own words are above");
        }
        Ok(times)
    }
}

impl Drop for Keras {
    fn drop(&mut self) {
        // It ends by itself when its input closes; a child that hangs is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Passes of a round: more of the short ones.
fn passes_per_round(batch: usize) -> usize {
    (1_024 / batch).clamp(1, 8)
}

/// The medians by contestant and kind.
fn measure(
    contestants: &mut [Box<dyn Contestant>],
    batch: usize,
    rounds: usize,
) -> Result<HashMap<(&'static str, Kind), f64>> {
    let count = passes_per_round(batch);
    let mut times: HashMap<_, Vec<f64>> = HashMap::new();
    for round in 0..=rounds {
        for kind in [Kind::Forward, Kind::Train] {
            for contestant in contestants.iter_mut() {
                let taken = contestant.passes(kind, batch, count)?;
                // The first round warms up.
                if round > 0 {
                    times.entry((contestant.name(), kind)).or_default().extend(taken);
                }
            }
        }
    }
    Ok(times.into_iter().map(|(key, times)| (key, median(times))).collect())
}

/// Series that look like load: a daily wave with noise, each with its own level.
fn series(count: usize, steps: usize) -> Arc<[Series]> {
    let one = |index: usize| {
        let mut state = index as u64 + 1;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let level = 0.3 + 0.4 * (index % 10) as f32 / 10.0;
        let value =
            |step: usize| level + 0.2 * (step as f32 / 1_440.0 * std::f32::consts::TAU).sin() + 0.1 * noise();
        let values = (0..steps).map(value).collect();
        Series { key: SeriesKey::new("load", format!("series-{index}")), start: 0, step_seconds: 60, values }
    };
    (0..count).map(one).collect()
}

fn quiet(_: &train::Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A model of a shape, hardly trained: its speed is what counts.
fn model(shape: Shape) -> Result<Lstm> {
    let windows = LabelledWindows::rolling(shape, &series(4, 600), 5)?;
    Ok(train::train(&windows, &TrainOptions { epochs: 1, ..TrainOptions::default() }, &mut quiet)?)
}

/// The time of a forecast, the median of some.
fn forecast_ms(model: &Lstm, count: usize) -> Result<f64> {
    let windows = Windows::latest(model.shape(), &series(count, model.shape().look_back))?;
    let once = || -> Result<()> {
        model.forecast(&windows)?;
        Ok(())
    };
    timed(2, once)?;
    Ok(median(timed(9, once)?))
}

fn growth() -> Result<()> {
    let usual = model(Shape::default())?;
    for count in [1, 10, 100, 1_000, 10_000] {
        eprintln!("forecast of {count:>6} series, 10 steps ahead: {:8.2} ms", forecast_ms(&usual, count)?);
    }
    for horizon in [5, 10, 30, 60] {
        let model = model(Shape { horizon, ..Shape::default() })?;
        eprintln!("forecast of   1000 series, {horizon} steps ahead: {:8.2} ms", forecast_ms(&model, 1_000)?);
    }
    let windows = LabelledWindows::rolling(Shape::default(), &series(1_000, 180), 1)?;
    let begin = Instant::now();
    train::update(&usual, &windows, &TrainOptions::update(), &mut quiet)?;
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!("hourly update, 1000 series of 3 h ({} windows), one thread: {seconds:.1} s", windows.len());
    Ok(())
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut contestants: Vec<Box<dyn Contestant>> = vec![Box::new(Ours::new()?), Box::new(Stock::new()?)];
    match &args.python {
        Some(python) => contestants.push(Box::new(Keras::start(python)?)),
        None => eprintln!("no --python: Keras is left out"),
    }
    for &batch in &args.batches {
        let medians = measure(&mut contestants, batch, args.rounds)?;
        let mut line = serde_json::Map::from_iter([("batch".to_owned(), json!(batch))]);
        for ((name, kind), median) in &medians {
            line.insert(format!("{name}_{}_ms", kind.name()), json!((median * 1e3).round() / 1e3));
        }
        println!("{}", serde_json::Value::Object(line));
    }
    growth()
}
