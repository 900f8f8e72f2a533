//! What a back-test came to, as data and as aligned text.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::forecast::backtest::Replay;
use crate::forecast::decision::{self, Quality, Rules};
use crate::forecast::scale::Scaled;
use crate::forecast::score::{Scorer, Scores, one_step_change};
use crate::forecast::{Forecasts, LabelledWindows, Series, Windows};

/// Results of a back-test.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Series tested.
    pub series: usize,
    /// Series that are constant in the training part and so cannot be scaled.
    pub left_out: Vec<String>,
    /// Windows scored.
    pub windows: usize,
    /// Errors by model, in units of each series' span in the training data.
    pub models: Vec<ModelReport>,
    /// Decisions by forecast, when values are percentages.
    pub decisions: Option<Vec<DecisionReport>>,
}

/// One model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// Its name.
    pub model: String,
    /// Its errors.
    #[serde(flatten)]
    pub scores: Scores,
    /// Its part in the gate's forecasts; the gate itself has none.
    pub share_of_the_word: Option<f64>,
}

/// Decisions by one forecast.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionReport {
    /// Whose forecast it was.
    pub forecast: String,
    /// How good they were.
    #[serde(flatten)]
    pub quality: Quality,
}

impl Report {
    /// Scores the windows `tested` of a replay over `scaled` series, of which the first `training` (0 to 1) is what naive errors
    /// are taken from.
    pub fn new(replay: &Replay, scaled: &Scaled, tested: &[usize], training: f64) -> Report {
        let naive: Vec<f64> = scaled
            .series
            .iter()
            .map(|series| one_step_change(&series.values[..(series.values.len() as f64 * training) as usize]))
            .collect();
        let votes = replay.votes(tested);
        let model = |(index, (name, forecasts)): (usize, (&'static str, &Forecasts))| {
            let mut scorer = Scorer::default();
            for &at in tested {
                let origin = replay.windows.windows.origin(at);
                let naive = origin.map_or(0.0, |origin| naive[origin.series]);
                scorer.add(forecasts, at, replay.windows.target(at), naive);
            }
            let share_of_the_word = votes.get(index).copied();
            ModelReport { model: name.to_owned(), scores: scorer.scores(), share_of_the_word }
        };
        Report {
            series: scaled.series.len(),
            left_out: scaled.without_scale.iter().map(ToString::to_string).collect(),
            windows: tested.len(),
            models: replay.all().enumerate().map(model).collect(),
            decisions: decisions(replay, scaled, tested),
        }
    }

    /// The tables for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} windows of {} series; errors in units of each series' span\n\n",
            self.windows, self.series
        );
        for name in &self.left_out {
            text += &format!("left out, because its training part never changes: {name}\n");
        }
        let rows = self.models.iter().map(|row| {
            let share =
                row.share_of_the_word.map_or(String::new(), |share| format!("{:.1} %", share * 100.0));
            let Scores { mse, mae, mase, wql, .. } = row.scores;
            let number = |value: f64| format!("{value:.5}");
            vec![row.model.clone(), number(mse), number(mae), format!("{mase:.3}"), number(wql), share]
        });
        text += &aligned(&["model", "MSE", "MAE", "MASE", "WQL", "word"], rows);
        let Some(decisions) = &self.decisions else {
            return text + "\nNo table of decisions: no group of series holds percentages.\n";
        };
        let rows = decisions.iter().map(|row| {
            let quality = row.quality;
            let share = |value: f64| format!("{:.1} %", value * 100.0);
            vec![
                row.forecast.clone(),
                format!("{} / {}", share(quality.split_precision), share(quality.split_recall)),
                format!("{} / {}", share(quality.merge_precision), share(quality.merge_recall)),
                format!("{:.2}", quality.changes_per_gpu_day),
                format!("{:.2}", quality.false_changes_per_gpu_day),
                format!("{:.0}", quality.regret_slice_minutes),
            ]
        });
        let heads = ["forecast", "split P / R", "merge P / R", "changes", "false", "regret"];
        text += "\nDecisions: precision and recall; changes, false ones and regret in slice-minutes a GPU and day\n\n";
        text + &aligned(&heads, rows)
    }
}

/// The groups that decisions are about: those whose values are all percentages, of which, if there are such, those of activity.
fn decided_about(scaled: &Scaled) -> BTreeSet<&str> {
    let groups: BTreeSet<&str> = scaled.series.iter().map(|series| series.key.group.as_str()).collect();
    let of =
        |group: &str| scaled.series.iter().filter(|series| series.key.group == group).collect::<Vec<_>>();
    let percentages = |group: &&str| {
        let inside = of(group).into_iter().all(|series| {
            let scaler = scaled.scalers.get(&series.key);
            let known = series.values.iter().filter(|value| value.is_finite());
            let real = |&value: &f32| scaler.map_or(value, |scaler| scaler.unscale(value));
            known.map(real).all(|value| (-0.01..=100.01).contains(&value))
        });
        // Shares of one look like percentages below one; decisions on them would all be splits.
        let high = |series: &Series| scaled.scalers.get(&series.key).is_some_and(|scaler| scaler.high > 1.5);
        inside && of(group).into_iter().any(high)
    };
    let is_activity = |group: &&str| group.ends_with("activity");
    let any_activity = groups.iter().any(is_activity);
    groups.into_iter().filter(|group| percentages(group) && (is_activity(group) || !any_activity)).collect()
}

/// The ablation: no forecast, some models, the gate, a perfect forecast; none where there is nothing to decide about.
fn decisions(replay: &Replay, scaled: &Scaled, tested: &[usize]) -> Option<Vec<DecisionReport>> {
    let groups = decided_about(scaled);
    let is_decided =
        |&at: &usize| replay.windows.windows.key(at).is_some_and(|key| groups.contains(key.group.as_str()));
    let tested: Vec<usize> = tested.iter().copied().filter(is_decided).collect();
    if tested.is_empty() {
        return None;
    }
    let windows = unscaled(&replay.windows.select(&tested), scaled);
    let judged = |name: &str, forecast: Option<&[f32]>| DecisionReport {
        forecast: name.to_owned(),
        quality: decision::judge(Rules::default(), &windows, forecast),
    };
    let horizon = windows.windows.shape.horizon;
    let mut reports = vec![judged("none", None)];
    for (name, forecasts) in replay.all().filter(|(name, _)| SHOWN.contains(name)) {
        let mean: Vec<f32> = tested
            .iter()
            .map(|&at| {
                let row = forecasts.mean_of(at);
                let mean = row.iter().sum::<f32>() / row.len() as f32;
                unscale(&replay.windows.windows, at, scaled, mean)
            })
            .collect();
        reports.push(judged(name, Some(&mean)));
    }
    let oracle = decision::horizon_means(&windows.targets, horizon);
    reports.push(judged("oracle", Some(&oracle)));
    Some(reports)
}

/// Models whose decisions are shown.
const SHOWN: [&str; 4] = ["persistence", "linear", "lstm", "gated"];

/// A value of window `at` in the unit of its series.
pub fn unscale(windows: &Windows, at: usize, scaled: &Scaled, value: f32) -> f32 {
    let scaler = windows.key(at).and_then(|key| scaled.scalers.get(key));
    scaler.map_or(value, |scaler| scaler.unscale(value))
}

/// The same windows with targets in the unit of their series.
fn unscaled(windows: &LabelledWindows, scaled: &Scaled) -> LabelledWindows {
    let horizon = windows.windows.shape.horizon;
    let target = |(index, &value): (usize, &f32)| unscale(&windows.windows, index / horizon, scaled, value);
    LabelledWindows {
        windows: windows.windows.clone(),
        targets: windows.targets.iter().enumerate().map(target).collect(),
    }
}

/// A table whose first column is text and the others numbers.
pub fn aligned(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = vec![heads.iter().map(|&head| head.to_owned()).collect::<Vec<_>>()];
    table.extend(rows);
    let width = |column: usize| {
        table.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cell = |(column, cell): (usize, &String)| match column {
            0 => format!("{cell:<width$}", width = widths[0]),
            _ => format!("  {cell:>width$}", width = widths[column]),
        };
        row.iter().enumerate().map(cell).collect::<String>().trim_end().to_owned() + "\n"
    };
    table.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let rows =
            [vec!["persistence".to_owned(), "1.0".to_owned()], vec!["x".to_owned(), "10.25".to_owned()]];
        let expected = "model          MSE\npersistence    1.0\nx            10.25\n";
        assert_eq!(aligned(&["model", "MSE"], rows.into_iter()), expected);
    }
}
