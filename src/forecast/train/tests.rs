//! Training on series that a line cannot follow.

use super::*;
use crate::forecast::{Forecaster, SeriesKey};

/// Windows of series in which a line does not suffice: the load climbs by a slope that depends on its phase, and falls at
/// once when it has reached a bound.
pub(in crate::forecast) fn learnable(series: usize, steps: usize) -> LabelledWindows {
    rolling(Shape::default(), series, steps)
}

fn rolling(shape: Shape, series: usize, steps: usize) -> LabelledWindows {
    LabelledWindows::rolling(shape, &waves(series, steps), 2).unwrap()
}

fn waves(series: usize, steps: usize) -> Arc<[Series]> {
    let one = |index: usize| {
        let rng = &mut Rng::new(index as u64, 9);
        let period = 17 + rng.below(13) as usize;
        let mut value = |step: usize| {
            let phase = step % period;
            let slope = if phase < period / 2 { 0.01 } else { 0.05 };
            0.2 + phase as f32 * slope + rng.below(1_000) as f32 * 1e-5
        };
        let values = (0..steps).map(&mut value).collect();
        Series { key: SeriesKey::new("load", index.to_string()), start: 0, step_seconds: 60, values }
    };
    (0..series).map(one).collect()
}

pub(in crate::forecast) fn quick() -> TrainOptions {
    TrainOptions { epochs: 2, threads: Threads::One, ..TrainOptions::default() }
}

fn go(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn weights(model: &Lstm) -> Vec<u32> {
    model.weights.to_vec1::<f32>().unwrap().iter().map(|weight| weight.to_bits()).collect()
}

#[test]
fn it_learns_what_a_line_cannot() {
    let windows = learnable(6, 700);
    let options = TrainOptions { epochs: 12, learning_rate: 3e-3, ..quick() };
    let mut told = Vec::new();
    let model = train(&windows, &options, &mut |progress| {
        told.push(*progress);
        ControlFlow::Continue(())
    });
    let model = model.unwrap();
    let mse = model.training().mse;
    assert!(mse.lstm < 0.7 * mse.linear && mse.linear < mse.persistence, "{mse:?}");
    assert_eq!((told.len(), told[0].epochs), (12, 12));
    assert!(told[11].loss < told[0].loss, "{told:?}");
    let forecasts = model.forecast(&windows.windows).unwrap();
    let [low, middle, high] = &forecasts.quantiles;
    assert!(low.iter().zip(middle).zip(high).all(|((low, middle), high)| low <= middle && middle <= high));
    let inside = low.iter().zip(high).zip(&windows.targets);
    let inside = inside.filter(|((low, high), target)| (*low..=*high).contains(target)).count();
    let share = inside as f64 / windows.targets.len() as f64;
    assert!((0.6..0.97).contains(&share), "{share} of the targets lie between the outer quantiles");
}

#[test]
fn a_seed_gives_its_weights_bit_for_bit() {
    let windows = learnable(3, 500);
    let run = |seed, threads| train(&windows, &TrainOptions { seed, threads, ..quick() }, &mut go).unwrap();
    let first = weights(&run(1, Threads::One));
    assert_eq!(first, weights(&run(1, Threads::One)));
    assert_eq!(first, weights(&run(1, Threads::Two)));
    assert_ne!(first, weights(&run(2, Threads::One)));
}

#[test]
fn the_plan_is_what_happens_at_most() {
    let windows = learnable(3, 500);
    let options = TrainOptions { most_windows: 300, ..quick() };
    let plan = plan(&windows, &options).unwrap();
    assert_eq!((plan.windows, plan.validation_windows, plan.steps_per_epoch, plan.epochs), (300, 75, 10, 2));
    let model = train(&windows, &options, &mut go).unwrap();
    assert_eq!((model.training().windows, model.training().validation_windows), (300, 75));
}

#[test]
fn many_series_are_thinned_out() {
    let options = TrainOptions { most_windows: 300, ..quick() };
    let count = |series| windows_of(Shape::default(), &waves(series, 500), &options).unwrap().len();
    assert_eq!((count(1), count(2), count(20)), (461, 462, 560));
}

#[test]
fn validation_lies_after_training() {
    let windows = learnable(3, 500);
    let (training, validation) = split(&windows, &TrainOptions::default());
    let end = |at: &usize| windows.windows.ends[*at];
    let last_target = training.iter().map(end).max().unwrap() + 10 * 60;
    assert!(last_target <= validation.iter().map(end).min().unwrap());
}

#[test]
fn an_update_starts_from_the_model() {
    let windows = learnable(3, 500);
    let model = train(&windows, &quick(), &mut go).unwrap();
    let updated = update(
        &model,
        &windows,
        &TrainOptions { epochs: 8, learning_rate: 1e-3, ..TrainOptions::update() },
        &mut go,
    )
    .unwrap();
    assert!(updated.training().mse.lstm < model.training().mse.lstm);
    assert_eq!((updated.training().updates, updated.training().epochs), (1, model.training().epochs));
    // One that makes nothing better changes nothing.
    let useless =
        TrainOptions { learning_rate: 1.0, longest_gradient: 1e9, epochs: 1, ..TrainOptions::update() };
    let same = update(&updated, &windows, &useless, &mut go).unwrap();
    assert_eq!((weights(&same), same.training()), (weights(&updated), updated.training()));
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let windows = learnable(3, 500);
    let refused = |result: Result<Lstm, TrainError>, part: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let few = learnable(1, 100);
    refused(train(&few, &quick(), &mut go), "31 windows are too few to train on: 302 are needed");
    let with = |change: &dyn Fn(&mut TrainOptions)| {
        let mut options = quick();
        change(&mut options);
        train(&windows, &options, &mut go)
    };
    refused(with(&|options| options.epochs = 0), "epochs is 0");
    refused(with(&|options| options.batch = 0), "batch is 0; it must be from 1 to 1024");
    refused(with(&|options| options.learning_rate = f64::NAN), "learning_rate is NaN");
    refused(with(&|options| options.longest_gradient = 0.0), "longest_gradient is 0");
    refused(with(&|options| options.most_windows = 0), "most_windows is 0");
    refused(train(&windows, &quick(), &mut |_| ControlFlow::Break(())), "stopped after epoch 1");
    let huge = windows.targets.iter().map(|target| target * 1e30).collect();
    let huge = LabelledWindows::new(windows.windows.clone(), huge).unwrap();
    let model = train(&windows, &quick(), &mut go).unwrap();
    refused(update(&model, &huge, &TrainOptions::update(), &mut go), "diverged in epoch 1");
    let other = rolling(Shape { horizon: 5, ..Shape::default() }, 3, 500);
    refused(
        update(&model, &other, &TrainOptions::update(), &mut go),
        "takes windows of 30 -> 10 steps of 60 s, not",
    );
}
