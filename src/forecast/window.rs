//! Windows: the last steps of a series, and the steps that followed where those are known.
//!
//! Invariants: every value of a window and of its targets is finite, so that no window crosses a gap, and none crosses a
//! layout change because that ends the series; what a window knows of its past ends with its last input.

use std::fmt;
use std::sync::Arc;

use super::{ForecastError, Series, SeriesKey};

/// The size of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Steps that a window shows.
    pub look_back: usize,
    /// Steps that are forecast.
    pub horizon: usize,
    /// Seconds of a step.
    pub step_seconds: u32,
}

/// The shortest step: what a Prometheus scrape interval of 15 s can fill.
const SHORTEST_STEP: u32 = 15;

/// Bounds of look-back and horizon: a day and four hours of minutes. They bound what a forecast costs.
const LONGEST_LOOK_BACK: usize = 1_440;
const LONGEST_HORIZON: usize = 240;

impl Default for Shape {
    /// 30 minutes that lead to the next 10.
    fn default() -> Shape {
        Shape { look_back: 30, horizon: 10, step_seconds: 60 }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} steps of {} s", self.look_back, self.horizon, self.step_seconds)
    }
}

impl Shape {
    /// A shape within bounds.
    pub fn new(look_back: usize, horizon: usize, step_seconds: u32) -> Result<Shape, ForecastError> {
        let refuse = |field, value, expected| Err(ForecastError::Shape { field, value, expected });
        if !(2..=LONGEST_LOOK_BACK).contains(&look_back) {
            return refuse("look-back", look_back, "from 2 to 1440 steps");
        }
        if !(1..=LONGEST_HORIZON).contains(&horizon) {
            return refuse("horizon", horizon, "from 1 to 240 steps");
        }
        if !(SHORTEST_STEP..=86_400).contains(&step_seconds) {
            return refuse("step", step_seconds as usize, "from 15 to 86400 seconds");
        }
        Ok(Shape { look_back, horizon, step_seconds })
    }

    /// Steps of a day, at least one.
    pub fn steps_per_day(&self) -> usize {
        (86_400 / self.step_seconds.max(1)).max(1) as usize
    }
}

/// A batch of n windows, and what is known of the time before each.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Their size.
    pub shape: Shape,
    /// `[n, look_back]`, row-major; the last column is the newest value.
    pub inputs: Vec<f32>,
    /// Unix seconds of each window's last input.
    pub ends: Vec<i64>,
    /// The series that windows were taken from, and where each ends in them.
    origins: Option<Origins>,
}

#[derive(Clone, Debug, PartialEq)]
struct Origins {
    series: Arc<[Series]>,
    ends: Vec<Origin>,
}

/// Where a window ends: the index of a series and of a value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Index of the series.
    pub series: usize,
    /// Index of the window's last input in the series' values.
    pub last: usize,
}

impl Windows {
    /// Windows of which nothing more is known.
    ///
    /// # Errors
    /// When `inputs` is not `[n, look_back]` for the n of `ends`, or holds a value that is not finite.
    pub fn new(shape: Shape, inputs: Vec<f32>, ends: Vec<i64>) -> Result<Windows, ForecastError> {
        check_table("inputs", &inputs, ends.len() * shape.look_back)?;
        Ok(Windows { shape, inputs, ends, origins: None })
    }

    /// The windows that end at `origins`. An origin whose window would cross a gap or the beginning of its series is left out.
    ///
    /// # Errors
    /// When a series has another step than `shape`.
    pub fn at(shape: Shape, series: &Arc<[Series]>, origins: &[Origin]) -> Result<Windows, ForecastError> {
        check_steps(shape, series)?;
        let whole = |origin: &&Origin| input(shape, series, **origin).is_some();
        let origins: Vec<Origin> = origins.iter().filter(whole).copied().collect();
        Ok(gather(shape, series, origins))
    }

    /// The window that ends with the newest value of each series that has one, in the order of the series.
    ///
    /// # Errors
    /// When a series has another step than `shape`.
    pub fn latest(shape: Shape, series: &Arc<[Series]>) -> Result<Windows, ForecastError> {
        let newest = |(at, series): (usize, &Series)| Some(Origin { series: at, last: series.last_known()? });
        let origins: Vec<Origin> = series.iter().enumerate().filter_map(newest).collect();
        Windows::at(shape, series, &origins)
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The inputs of window `at`.
    pub fn input(&self, at: usize) -> &[f32] {
        &self.inputs[at * self.shape.look_back..(at + 1) * self.shape.look_back]
    }

    /// Everything known of window `at`'s series up to and with its last input, oldest first, gaps as NaN: at least the inputs.
    pub fn history(&self, at: usize) -> &[f32] {
        match &self.origins {
            Some(Origins { series, ends }) => &series[ends[at].series].values[..=ends[at].last],
            None => self.input(at),
        }
    }

    /// The last values of the history after its last gap, at most `most` of them: at least the inputs if `most` allows it.
    pub fn recent(&self, at: usize, most: usize) -> &[f32] {
        let history = self.history(at);
        let tail = &history[history.len().saturating_sub(most)..];
        let from = tail.iter().rposition(|value| !value.is_finite()).map_or(0, |gap| gap + 1);
        &tail[from..]
    }

    /// Whose window `at` is, if that is known.
    pub fn key(&self, at: usize) -> Option<&SeriesKey> {
        self.origins.as_ref().map(|origins| &origins.series[origins.ends[at].series].key)
    }

    /// Where window `at` ends in the series it was taken from, if that is known.
    pub fn origin(&self, at: usize) -> Option<Origin> {
        self.origins.as_ref().map(|origins| origins.ends[at])
    }

    /// Some of the windows, in the order asked for.
    pub fn select(&self, which: &[usize]) -> Windows {
        let origins = self.origins.as_ref().map(|origins| Origins {
            series: Arc::clone(&origins.series),
            ends: which.iter().map(|&at| origins.ends[at]).collect(),
        });
        Windows {
            shape: self.shape,
            inputs: which.iter().flat_map(|&at| self.input(at)).copied().collect(),
            ends: which.iter().map(|&at| self.ends[at]).collect(),
            origins,
        }
    }
}

/// Windows with what followed: for training and back-testing.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledWindows {
    /// The windows.
    pub windows: Windows,
    /// `[n, horizon]`, row-major.
    pub targets: Vec<f32>,
}

impl LabelledWindows {
    /// Windows and their targets.
    ///
    /// # Errors
    /// When `targets` is not `[n, horizon]`, or holds a value that is not finite.
    pub fn new(windows: Windows, targets: Vec<f32>) -> Result<LabelledWindows, ForecastError> {
        check_table("targets", &targets, windows.len() * windows.shape.horizon)?;
        Ok(LabelledWindows { windows, targets })
    }

    /// Every window of every series whose inputs and targets lie in the series without a gap, each beginning `stride` steps
    /// after the one before (1 at least); series after series, oldest first.
    ///
    /// # Errors
    /// When a series has another step than `shape`.
    pub fn rolling(
        shape: Shape,
        series: &Arc<[Series]>,
        stride: usize,
    ) -> Result<LabelledWindows, ForecastError> {
        let ends = |(series, of): (usize, &Series)| {
            (shape.look_back - 1..of.values.len())
                .step_by(stride.max(1))
                .map(move |last| Origin { series, last })
        };
        let origins: Vec<Origin> = series.iter().enumerate().flat_map(ends).collect();
        LabelledWindows::at(shape, series, &origins)
    }

    /// The windows that end at `origins`; those without all of their inputs and targets are left out.
    ///
    /// # Errors
    /// When a series has another step than `shape`.
    pub fn at(
        shape: Shape,
        series: &Arc<[Series]>,
        origins: &[Origin],
    ) -> Result<LabelledWindows, ForecastError> {
        check_steps(shape, series)?;
        let whole = |origin: &&Origin| {
            input(shape, series, **origin).is_some() && target(shape, series, **origin).is_some()
        };
        let origins: Vec<Origin> = origins.iter().filter(whole).copied().collect();
        let targets = origins.iter().filter_map(|&origin| target(shape, series, origin));
        let targets = targets.flatten().copied().collect();
        Ok(LabelledWindows { windows: gather(shape, series, origins), targets })
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The targets of window `at`.
    pub fn target(&self, at: usize) -> &[f32] {
        &self.targets[at * self.windows.shape.horizon..(at + 1) * self.windows.shape.horizon]
    }

    /// Some of the windows, in the order asked for.
    pub fn select(&self, which: &[usize]) -> LabelledWindows {
        let targets = which.iter().flat_map(|&at| self.target(at)).copied().collect();
        LabelledWindows { windows: self.windows.select(which), targets }
    }
}

fn check_table(table: &'static str, values: &[f32], expected: usize) -> Result<(), ForecastError> {
    if values.len() != expected {
        return Err(ForecastError::Length { table, found: values.len(), expected });
    }
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(position) => Err(ForecastError::NotFinite { table, position }),
    }
}

fn check_steps(shape: Shape, series: &[Series]) -> Result<(), ForecastError> {
    match series.iter().find(|series| series.step_seconds != shape.step_seconds) {
        None => Ok(()),
        Some(other) => Err(ForecastError::Step {
            series: other.key.to_string(),
            found: other.step_seconds,
            expected: shape.step_seconds,
        }),
    }
}

/// The inputs that end at `origin`, if they are there without a gap.
fn input(shape: Shape, series: &[Series], origin: Origin) -> Option<&[f32]> {
    let after = origin.last + 1;
    finite(series.get(origin.series)?.values.get(after.checked_sub(shape.look_back)?..after)?)
}

/// The targets that follow `origin`, if they are there without a gap.
fn target(shape: Shape, series: &[Series], origin: Origin) -> Option<&[f32]> {
    let after = origin.last + 1;
    finite(series.get(origin.series)?.values.get(after..after + shape.horizon)?)
}

fn finite(values: &[f32]) -> Option<&[f32]> {
    values.iter().all(|value| value.is_finite()).then_some(values)
}

/// Copies the inputs of origins that are known to have them.
fn gather(shape: Shape, series: &Arc<[Series]>, ends: Vec<Origin>) -> Windows {
    let inputs = ends.iter().filter_map(|&origin| input(shape, series, origin));
    Windows {
        shape,
        inputs: inputs.flatten().copied().collect(),
        ends: ends.iter().map(|origin| series[origin.series].time_of(origin.last)).collect(),
        origins: Some(Origins { series: Arc::clone(series), ends }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;
    const SHAPE: Shape = Shape { look_back: 3, horizon: 2, step_seconds: 60 };

    fn series(name: &str, values: &[f32]) -> Series {
        Series { key: SeriesKey::new("g", name), start: 600, step_seconds: 60, values: values.to_vec() }
    }

    /// One line a window: its end, inputs and targets.
    fn text(windows: &LabelledWindows) -> Vec<String> {
        let line = |at: usize| {
            let ends = windows.windows.ends[at];
            format!("{ends}: {:?} {:?}", windows.windows.input(at), windows.target(at))
        };
        (0..windows.len()).map(line).collect()
    }

    #[track_caller]
    fn rolling(values: &[f32], stride: usize, expected: &[&str]) {
        let all: Arc<[Series]> = [series("a", values)].into();
        assert_eq!(text(&LabelledWindows::rolling(SHAPE, &all, stride).unwrap()), expected);
    }

    #[test]
    fn windows_roll() {
        let values: Vec<f32> = (0..7).map(|value| value as f32).collect();
        let all = [
            "720: [0.0, 1.0, 2.0] [3.0, 4.0]",
            "780: [1.0, 2.0, 3.0] [4.0, 5.0]",
            "840: [2.0, 3.0, 4.0] [5.0, 6.0]",
        ];
        rolling(&values, 1, &all);
        rolling(&values, 2, &[all[0], all[2]]);
        rolling(&values, 0, &all);
        rolling(&values[..4], 1, &[]);
        rolling(&[], 1, &[]);
    }

    #[test]
    fn no_window_crosses_a_gap() {
        let values = [0.0, 1.0, 2.0, 3.0, 4.0, NAN, 6.0, 7.0, 8.0, 9.0, 10.0];
        rolling(&values, 1, &["720: [0.0, 1.0, 2.0] [3.0, 4.0]", "1080: [6.0, 7.0, 8.0] [9.0, 10.0]"]);
        rolling(&[0.0, 1.0, f32::INFINITY, 3.0, 4.0], 1, &[]);
    }

    #[test]
    fn the_latest_window_of_each_series() {
        let all: Arc<[Series]> = [
            series("whole", &[1.0, 2.0, 3.0, 4.0]),
            series("gap", &[1.0, NAN, 3.0, 4.0]),
            series("short", &[1.0]),
            series("late", &[1.0, 2.0, 3.0, NAN]),
            series("none", &[]),
        ]
        .into();
        let latest = Windows::latest(SHAPE, &all).unwrap();
        let names: Vec<_> = (0..latest.len()).map(|at| latest.key(at).unwrap().name.as_str()).collect();
        assert_eq!((names, latest.ends.clone()), (vec!["whole", "late"], vec![780, 720]));
        assert_eq!(latest.inputs, [2.0, 3.0, 4.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn the_past_ends_with_the_last_input() {
        let all: Arc<[Series]> = [series("a", &[9.0, NAN, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0])].into();
        let windows = LabelledWindows::rolling(SHAPE, &all, 1).unwrap().windows;
        let second = windows.select(&[1]);
        assert_eq!(second.recent(0, 100), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!((second.recent(0, 2), second.history(0).len()), (&[2.0, 3.0][..], 6));
        let bare = Windows::new(SHAPE, vec![1.0, 2.0, 3.0], vec![60]).unwrap();
        assert_eq!((bare.history(0), bare.key(0)), (&[1.0, 2.0, 3.0][..], None));
    }

    #[test]
    fn wrong_tables_are_refused() {
        let refused = |result: Result<Windows, ForecastError>| result.unwrap_err().to_string();
        assert_eq!(
            refused(Windows::new(SHAPE, vec![1.0, 2.0], vec![60])),
            "inputs holds 2 values where 3 belong"
        );
        assert_eq!(
            refused(Windows::new(SHAPE, vec![1.0, NAN, 3.0], vec![60])),
            "inputs is not finite at position 1"
        );
        let other: Arc<[Series]> = [Series { step_seconds: 300, ..series("a", &[1.0]) }].into();
        let expected = "series g/a has a step of 300 s; the forecaster works at 60 s";
        assert_eq!(refused(Windows::latest(SHAPE, &other)), expected);
    }

    #[test]
    fn shapes_have_bounds() {
        assert_eq!(Shape::new(30, 10, 60), Ok(Shape::default()));
        for (look_back, horizon, step, part) in [
            (1, 10, 60, "look-back is 1"),
            (1_441, 10, 60, "look-back is 1441"),
            (30, 0, 60, "horizon is 0"),
            (30, 241, 60, "horizon is 241"),
            (30, 10, 14, "step is 14"),
        ] {
            assert!(Shape::new(look_back, horizon, step).unwrap_err().to_string().starts_with(part));
        }
    }
}
