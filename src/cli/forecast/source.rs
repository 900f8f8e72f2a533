//! Where the forecaster's commands get their series from: CSV files, or generated weeks of LLM load.
//!
//! Invariant: no row is dropped or repaired in silence. A row that cannot be read ends the reading with its file, line, column and
//! value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use csv::StringRecord;
use jiff::Timestamp;
use thiserror::Error;

use crate::forecast::{Series, SeriesKey};
use crate::sim::llm_week::{Service, WEEK};

/// The group of series whose file has no `group` column.
const DEFAULT_GROUP: &str = "series";

/// Shares of a service's traffic that generated series carry: from the whole service to that of a small deployment.
const SHARES: [f64; 3] = [1.0, 0.125, 0.02];

/// Monday, 6 January 2025, midnight UTC: generated weeks begin on a Monday.
const FIRST_MONDAY: i64 = 1_736_121_600;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file cannot be opened or is not CSV.
    #[error("cannot read {}: {cause}; --csv takes a file with the columns time, series, value and, if series are of several kinds, group", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        cause: csv::Error,
    },
    /// The header lacks a column.
    #[error("{} has no column `{column}`; its header must have time, series and value", file.display())]
    Column {
        /// The file.
        file: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A value cannot be what its column says.
    #[error("{}, line {line}, column `{column}`: `{value}` {expected}", file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// Line, counted from one.
        line: u64,
        /// The column.
        column: &'static str,
        /// The text as it stands.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
    /// There is nothing to forecast.
    #[error("{} has no rows with a value", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

/// Samples by series: unix seconds and values.
type Samples = BTreeMap<SeriesKey, Vec<(i64, f32)>>;

/// Reads files; rows may be in any order, and a series may be spread over files. `step_seconds` is the grid.
pub fn read(files: &[PathBuf], step_seconds: u32) -> Result<Vec<Series>, SourceError> {
    let mut samples = Samples::new();
    for file in files {
        let before: usize = samples.values().map(Vec::len).sum();
        read_file(file, &mut samples)?;
        if samples.values().map(Vec::len).sum::<usize>() == before {
            return Err(SourceError::Empty { file: file.clone() });
        }
    }
    let series = |(key, samples)| Series::from_samples(key, step_seconds, samples);
    Ok(samples.into_iter().map(series).collect())
}

fn read_file(file: &Path, samples: &mut Samples) -> Result<(), SourceError> {
    let wrong = |cause| SourceError::Read { file: file.to_owned(), cause };
    let mut reader = csv::Reader::from_path(file).map_err(wrong)?;
    let columns: Vec<String> =
        reader.headers().map_err(wrong)?.iter().map(|name| name.trim().to_owned()).collect();
    let position = |column: &str| columns.iter().position(|name| name == column);
    let needed = |column| position(column).ok_or(SourceError::Column { file: file.to_owned(), column });
    let (time, name, value) = (needed("time")?, needed("series")?, needed("value")?);
    let group = position("group");
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(wrong)? {
        let text = |column: usize| record.get(column).unwrap_or("").trim();
        let line = record.position().map_or(0, csv::Position::line);
        let refuse = |column: &'static str, value: &str, expected| {
            Err(SourceError::Value { file: file.to_owned(), line, column, value: value.to_owned(), expected })
        };
        let Some(seconds) = seconds(text(time)) else {
            return refuse(
                "time",
                text(time),
                "is not a time; write unix seconds or RFC 3339, for example 2025-01-06T00:00:00Z",
            );
        };
        if text(name).is_empty() {
            return refuse("series", "", "must not be empty");
        }
        let Some(number) = number(text(value)) else {
            return refuse("value", text(value), "is not a number; leave a gap empty");
        };
        let group = group.map_or(DEFAULT_GROUP, text);
        let of_series = samples.entry(SeriesKey::new(group, text(name))).or_default();
        of_series.extend(number.map(|number| (seconds, number)));
    }
    Ok(())
}

/// Unix seconds, or RFC 3339; from 1970 to 9999.
fn seconds(text: &str) -> Option<i64> {
    let seconds = match text.parse::<f64>() {
        Ok(seconds) => seconds.floor() as i64,
        Err(_) => text.parse::<Timestamp>().ok()?.as_second(),
    };
    (0..=253_402_207_200).contains(&seconds).then_some(seconds)
}

/// A number, `None` inside for a gap (an empty field or NaN).
fn number(text: &str) -> Option<Option<f32>> {
    if text.is_empty() {
        return Some(None);
    }
    let number: f32 = text.parse().ok()?;
    if number.is_nan() { Some(None) } else { number.is_finite().then_some(Some(number)) }
}

/// A series from Prometheus with activity, which is 0 to 1 there, in per cent.
pub fn in_per_cent(mut series: Series) -> Series {
    if series.key.group.ends_with("-activity") {
        series.values.iter_mut().for_each(|value| *value *= 100.0);
    }
    series
}

/// Weeks of activity, in per cent, of deployments of both services, minute by minute.
pub fn generated(weeks: u32, seed: u64) -> Vec<Series> {
    let series = |service: Service| {
        SHARES.into_iter().zip(1u64..).map(move |(share, stream)| Series {
            key: SeriesKey::new("llm-activity", format!("{}-{}%", service.name(), share * 100.0)),
            start: FIRST_MONDAY,
            step_seconds: 60,
            values: service.activity(
                weeks as usize * WEEK,
                share,
                seed.wrapping_mul(31).wrapping_add(stream),
            ),
        })
    };
    [Service::Coding, Service::Conversation].into_iter().flat_map(series).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Series>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("usage.csv");
        std::fs::write(&file, text).unwrap();
        read(&[file], 60).map_err(|error| {
            let text = error.to_string();
            text.replace(&format!("{}/", dir.path().display()), "")
        })
    }

    #[test]
    fn columns_in_any_order_times_of_both_kinds_and_gaps() {
        let text = "value,time,series,group\n1,0,a,g\n,60,a,g\n3,1970-01-01T00:02:00Z,a,g\n4,1970-01-01T01:00:00+01:00,b,h\n";
        let series = read_text(text).unwrap();
        let shown: Vec<_> =
            series.iter().map(|series| format!("{} {:?}", series.key, series.values)).collect();
        assert_eq!(shown, ["g/a [1.0, NaN, 3.0]", "h/b [4.0]"]);
    }

    #[test]
    fn errors_name_file_line_column_value_and_fix() {
        let check = |text: &str, expected: &str| assert_eq!(read_text(text).unwrap_err(), expected);
        check(
            "time,value\n0,1\n",
            "usage.csv has no column `series`; its header must have time, series and value",
        );
        check(
            "time,series,value\n0,a,1\nmonday,a,2\n",
            "usage.csv, line 3, column `time`: `monday` is not a time; write unix seconds or RFC 3339, for example 2025-01-06T00:00:00Z",
        );
        check(
            "time,series,value\n0,a,x\n",
            "usage.csv, line 2, column `value`: `x` is not a number; leave a gap empty",
        );
        check(
            "time,series,value\n0,a,inf\n",
            "usage.csv, line 2, column `value`: `inf` is not a number; leave a gap empty",
        );
        check("time,series,value\n0,,1\n", "usage.csv, line 2, column `series`: `` must not be empty");
        check("time,series,value\n0,a,\n", "usage.csv has no rows with a value");
        check("time,series,value\n", "usage.csv has no rows with a value");
        assert!(
            read_text("time,series,value\n0,a\n")
                .unwrap_err()
                .starts_with("cannot read usage.csv: CSV error")
        );
    }

    #[test]
    fn generated_weeks_are_percentages_of_one_length() {
        let series = generated(1, 1);
        assert!(series.iter().all(|series| series.values.len() == WEEK && series.start == FIRST_MONDAY));
        assert_eq!((series.len(), FIRST_MONDAY % 86_400), (6, 0));
        assert_ne!(series[0].values, generated(1, 2)[0].values);
    }
}
