//! What forecasts are worth as decisions: split GPUs that will be idle, merge instances that will be overloaded.
//!
//! The rules are the product's: forecast activity over the horizon below 40 % means split, above 80 % merge; nothing happens unless
//! the load has moved by 10 % since the last change, nor within an hour of it. Each series stands for one GPU.
//!
//! ```text
//!   layout wanted by what comes ─► its mean over the horizon: Split (< 40 %), Keep, Merge (> 80 %)
//!   misfit   minutes in which the layout in force is not the one wanted x 7 slices
//!   regret   misfit - misfit of a perfect forecast under the same rules
//! ```

use std::collections::BTreeMap;

use serde::Serialize;

use super::{LabelledWindows, SeriesKey};

/// Compute slices of a GPU.
const SLICES: f64 = 7.0;

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Mean activity in per cent below which a GPU is split.
    pub split_below: f32,
    /// Above which instances are merged.
    pub merge_above: f32,
    /// Percentage points that the load must have moved since the last change.
    pub least_move: f32,
    /// Seconds between two changes of a GPU.
    pub cool_down: i64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { split_below: 40.0, merge_above: 80.0, least_move: 10.0, cool_down: 3_600 }
    }
}

/// How a GPU is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// Into small instances.
    Split,
    /// As it was.
    Keep,
    /// Into large instances.
    Merge,
}

impl Rules {
    /// The layout for a mean activity.
    pub fn wanted(&self, mean: f32) -> Layout {
        if mean < self.split_below {
            Layout::Split
        } else if mean > self.merge_above {
            Layout::Merge
        } else {
            Layout::Keep
        }
    }
}

/// How good decisions were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quality {
    /// Of the windows for which a split was forecast: the share for which it was right. One when none was.
    pub split_precision: f64,
    /// Of the windows in which a split was right: the share for which it was forecast.
    pub split_recall: f64,
    /// The same of merges.
    pub merge_precision: f64,
    /// The same of merges.
    pub merge_recall: f64,
    /// Changes a GPU and day under the rules.
    pub changes_per_gpu_day: f64,
    /// Of them, those to a layout that what came did not want.
    pub false_changes_per_gpu_day: f64,
    /// Slice-minutes a GPU and day in a layout that what came did not want.
    pub misfit_slice_minutes: f64,
    /// The part of them that a perfect forecast would have avoided.
    pub regret_slice_minutes: f64,
}

/// Judges decisions by `forecast`, the mean activity of each window's horizon; windows of a series are in order of time. `None`
/// never changes anything.
pub fn judge(rules: Rules, windows: &LabelledWindows, forecast: Option<&[f32]>) -> Quality {
    let actual = horizon_means(&windows.targets, windows.windows.shape.horizon);
    let static_layout = vec![Layout::Keep; windows.len()];
    let said: Vec<Layout> = match forecast {
        Some(forecast) => forecast.iter().map(|&mean| rules.wanted(mean)).collect(),
        None => static_layout,
    };
    let right: Vec<Layout> = actual.iter().map(|&mean| rules.wanted(mean)).collect();
    let ours = course(rules, windows, forecast, &right);
    let perfect = course(rules, windows, Some(&actual), &right);
    let share = |of: f64| if ours.gpu_days > 0.0 { of / ours.gpu_days } else { 0.0 };
    let (split_precision, split_recall) = precision_recall(&said, &right, Layout::Split);
    let (merge_precision, merge_recall) = precision_recall(&said, &right, Layout::Merge);
    Quality {
        split_precision,
        split_recall,
        merge_precision,
        merge_recall,
        changes_per_gpu_day: share(ours.changes),
        false_changes_per_gpu_day: share(ours.false_changes),
        misfit_slice_minutes: share(ours.misfit),
        regret_slice_minutes: share(ours.misfit - perfect.misfit),
    }
}

/// The mean over the horizon of every window.
pub fn horizon_means(table: &[f32], horizon: usize) -> Vec<f32> {
    table.chunks(horizon.max(1)).map(|row| row.iter().sum::<f32>() / row.len() as f32).collect()
}

fn precision_recall(said: &[Layout], right: &[Layout], which: Layout) -> (f64, f64) {
    let count = |is: &dyn Fn(usize) -> bool| (0..said.len()).filter(|&at| is(at)).count() as f64;
    let both = count(&|at| said[at] == which && right[at] == which);
    let share = |of: f64| if of > 0.0 { both / of } else { 1.0 };
    (share(count(&|at| said[at] == which)), share(count(&|at| right[at] == which)))
}

#[derive(Clone, Copy, Debug, Default)]
struct Course {
    gpu_days: f64,
    changes: f64,
    false_changes: f64,
    misfit: f64,
}

/// A GPU under the rules.
#[derive(Clone, Copy, Debug)]
struct Gpu {
    layout: Layout,
    /// When it was changed last, and the load that was forecast then.
    changed: Option<(i64, f32)>,
    seen: i64,
}

/// What the rules make of forecasts: each window's layout stays in force until the series' next window.
fn course(rules: Rules, windows: &LabelledWindows, forecast: Option<&[f32]>, right: &[Layout]) -> Course {
    let mut course = Course::default();
    let mut gpus: BTreeMap<&SeriesKey, Gpu> = BTreeMap::new();
    let longest = windows.windows.shape.horizon as i64 * i64::from(windows.windows.shape.step_seconds);
    for (at, (&now, &right)) in windows.windows.ends.iter().zip(right).enumerate() {
        let Some(key) = windows.windows.key(at) else { continue };
        let gpu = gpus.entry(key).or_insert(Gpu { layout: Layout::Keep, changed: None, seen: now - longest });
        // After a gap no more than the horizon is known to have passed in this state.
        let minutes = (now - gpu.seen).clamp(0, longest) as f64 / 60.0;
        gpu.seen = now;
        if let Some(&mean) = forecast.and_then(|forecast| forecast.get(at)) {
            let wanted = rules.wanted(mean);
            let may = gpu.changed.is_none_or(|(then, load)| {
                now - then >= rules.cool_down && (mean - load).abs() >= rules.least_move
            });
            if wanted != gpu.layout && may {
                (gpu.layout, gpu.changed) = (wanted, Some((now, mean)));
                course.changes += 1.0;
                course.false_changes += f64::from(u8::from(wanted != right));
            }
        }
        course.gpu_days += minutes / 1_440.0;
        course.misfit += if gpu.layout == right { 0.0 } else { minutes * SLICES };
    }
    course
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::forecast::{Series, Shape};

    const SHAPE: Shape = Shape { look_back: 2, horizon: 10, step_seconds: 60 };

    /// Windows every ten minutes over a load that holds each of `levels` for an hour.
    fn hours(levels: &[f32]) -> LabelledWindows {
        let values = levels.iter().flat_map(|&level| [level; 60]).collect();
        let series: Arc<[Series]> =
            [Series { key: SeriesKey::new("g", "gpu"), start: 0, step_seconds: 60, values }].into();
        LabelledWindows::rolling(SHAPE, &series, 10).unwrap()
    }

    fn perfect(windows: &LabelledWindows) -> Vec<f32> {
        horizon_means(&windows.targets, SHAPE.horizon)
    }

    #[test]
    fn a_perfect_forecast_has_no_regret() {
        let windows = hours(&[20.0, 20.0, 60.0, 60.0, 95.0, 95.0, 20.0, 20.0]);
        let quality = judge(Rules::default(), &windows, Some(&perfect(&windows)));
        assert_eq!((quality.split_precision, quality.split_recall), (1.0, 1.0));
        assert_eq!((quality.merge_precision, quality.merge_recall), (1.0, 1.0));
        assert_eq!((quality.regret_slice_minutes, quality.false_changes_per_gpu_day), (0.0, 0.0));
        assert!(quality.changes_per_gpu_day > 0.0);
    }

    #[test]
    fn none_keeps_the_layout() {
        let windows = hours(&[20.0; 8]);
        let quality = judge(Rules::default(), &windows, None);
        assert_eq!(
            (quality.changes_per_gpu_day, quality.split_recall, quality.split_precision),
            (0.0, 0.0, 1.0)
        );
        assert!((quality.misfit_slice_minutes - 1_440.0 * 7.0).abs() < 1e-6, "{quality:?}");
        assert!((quality.regret_slice_minutes - 1_440.0 * 7.0).abs() < 1e-6, "{quality:?}");
    }

    #[test]
    fn the_hour_and_the_ten_per_cent_hold_changes_back() {
        let windows = hours(&[60.0; 4]);
        let swinging: Vec<f32> = (0..windows.len()).map(|at| if at % 2 == 0 { 39.0 } else { 41.0 }).collect();
        // 39 % splits at once; 41 % is 2 points away and so nothing happens ever after.
        let changes = |forecast: &[f32]| {
            let quality = judge(Rules::default(), &windows, Some(forecast));
            let days = windows.len() as f64 * 10.0 / 1_440.0;
            ((quality.changes_per_gpu_day * days).round(), (quality.false_changes_per_gpu_day * days).round())
        };
        assert_eq!(changes(&swinging), (1.0, 1.0));
        let wild: Vec<f32> = (0..windows.len()).map(|at| if at % 2 == 0 { 10.0 } else { 60.0 }).collect();
        // Every ten minutes it would change; the hour lets through one in six or seven.
        assert!(changes(&wild).0 <= 4.0, "{:?}", changes(&wild));
    }

    #[test]
    fn thresholds_are_open() {
        let rules = Rules::default();
        let wanted = [39.9, 40.0, 80.0, 80.1, f32::NAN].map(|mean| rules.wanted(mean));
        assert_eq!(wanted, [Layout::Split, Layout::Keep, Layout::Keep, Layout::Merge, Layout::Keep]);
    }
}
