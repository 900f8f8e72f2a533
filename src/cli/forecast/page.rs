//! The back-test as one HTML page: plots of forecast against actual as inline SVG, the tables beneath. No script, nothing loaded.

use super::report::{Report, unscale};
use crate::forecast::SeriesKey;
use crate::forecast::backtest::Replay;
use crate::forecast::scale::Scaled;

/// Series that are drawn; a page with more of them helps nobody.
const MOST_PLOTS: usize = 12;

/// Windows that are drawn of each, the newest: two days of ten minutes.
const MOST_POINTS: usize = 288;

/// Size of a plot and its margins.
const WIDTH: f32 = 960.0;
const HEIGHT: f32 = 220.0;
const LEFT: f32 = 60.0;
const TOP: f32 = 12.0;
const BOTTOM: f32 = 24.0;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
h2{font-size:1.1em;margin:1.6em 0 .3em}pre{background:#f5f5f5;padding:1em;overflow-x:auto}svg{width:100%;height:auto}\
text{font:12px system-ui,sans-serif;fill:#555}.band{fill:#9bc0e8;opacity:.45}.mean{fill:none;stroke:#1f5fa8;stroke-width:1.5}\
.actual{fill:none;stroke:#222;stroke-width:1}.grid{stroke:#ddd}";

/// One point of a plot: all values at the last step of a window's horizon.
struct Point {
    time: i64,
    actual: f32,
    mean: f32,
    low: f32,
    high: f32,
}

/// The page.
pub fn render(title: &str, report: &Report, replay: &Replay, scaled: &Scaled, tested: &[usize]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1>\n<p>Black: what came. Blue: what the gate had forecast for that time, a whole horizon before; the band is \
         from its 0.1 to its 0.9 quantile.</p>\n",
        title = escape(title),
    );
    let keys: Vec<&SeriesKey> = scaled.scalers.keys().collect();
    for key in keys.iter().take(MOST_PLOTS) {
        let points = points(key, replay, scaled, tested);
        if !points.is_empty() {
            page += &format!("<h2>{}</h2>\n{}\n", escape(&key.to_string()), plot(&points));
        }
    }
    if keys.len() > MOST_PLOTS {
        page += &format!("<p>{} more series are not drawn.</p>\n", keys.len() - MOST_PLOTS);
    }
    page + &format!("<h2>Scores</h2>\n<pre>{}</pre>\n</body></html>\n", escape(&report.text()))
}

fn points(key: &SeriesKey, replay: &Replay, scaled: &Scaled, tested: &[usize]) -> Vec<Point> {
    let windows = &replay.windows.windows;
    let last = windows.shape.horizon - 1;
    let ahead = windows.shape.horizon as i64 * i64::from(windows.shape.step_seconds);
    let of_series: Vec<usize> = tested.iter().copied().filter(|&at| windows.key(at) == Some(key)).collect();
    let point = |&at: &usize| {
        let value = |value: f32| unscale(windows, at, scaled, value);
        Point {
            time: windows.ends[at] + ahead,
            actual: value(replay.windows.target(at)[last]),
            mean: value(replay.gated.mean_of(at)[last]),
            low: value(replay.gated.quantile_of(0, at)[last]),
            high: value(replay.gated.quantile_of(2, at)[last]),
        }
    };
    of_series[of_series.len().saturating_sub(MOST_POINTS)..].iter().map(point).collect()
}

fn plot(points: &[Point]) -> String {
    let bounds = |of: &dyn Fn(&Point) -> f32| {
        points
            .iter()
            .map(of)
            .fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (low, high) = bounds(&|point| point.actual);
    let (mean_low, mean_high) = bounds(&|point| point.mean);
    let (low, high) = (low.min(mean_low), high.max(mean_high));
    // The band is cut where it leaves the plot: a wild one must not flatten the rest.
    let room = ((high - low) * 0.1).max(high.abs() * 1e-3).max(1e-6);
    let (low, high) = (low - room, high + room);
    let first = points.first().map_or(0, |point| point.time);
    let span = points.last().map_or(1, |point| (point.time - first).max(1)) as f32;
    let x = |point: &Point| LEFT + (point.time - first) as f32 / span * (WIDTH - LEFT - 10.0);
    let y = |value: f32| TOP + (high - value.clamp(low, high)) / (high - low) * (HEIGHT - TOP - BOTTOM);
    let line = |of: &dyn Fn(&Point) -> f32| -> String {
        points.iter().map(|point| format!("{:.1},{:.1} ", x(point), y(of(point)))).collect()
    };
    let back: String =
        points.iter().rev().map(|point| format!("{:.1},{:.1} ", x(point), y(point.low))).collect();
    let grid: String = [0.0, 0.5, 1.0]
        .into_iter()
        .map(|share| {
            let value = low + (high - low) * share;
            let at = y(value);
            format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                short(value)
            )
        })
        .collect();
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">{grid}<polygon class=\"band\" points=\"{}{back}\"/>\
         <polyline class=\"actual\" points=\"{}\"/><polyline class=\"mean\" points=\"{}\"/>\
         <text x=\"{LEFT}\" y=\"{text}\">{}</text><text x=\"{WIDTH}\" y=\"{text}\" text-anchor=\"end\">{}</text></svg>",
        line(&|point| point.high),
        line(&|point| point.actual),
        line(&|point| point.mean),
        time(first),
        time(points.last().map_or(0, |point| point.time)),
        text = HEIGHT - 6.0,
    )
}

/// Three digits are enough beside an axis.
fn short(value: f32) -> String {
    if value.abs() >= 1e5 { format!("{value:.1e}") } else { format!("{value:.2}") }
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_of_one_flat_point_has_only_numbers() {
        let point = Point { time: 0, actual: 1.0, mean: 1.0, low: 1.0, high: f32::MAX };
        let plot = plot(&[point]);
        assert!(!plot.contains("NaN") && !plot.contains("inf"), "{plot}");
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
