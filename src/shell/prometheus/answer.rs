//! What Prometheus answers to a range query, read without trust.
//!
//! Invariant: every sample that comes out is a finite number at a whole second. What is not a number (`NaN`, `+Inf`, a stale
//! marker) is left out, which makes it a gap; what is no answer at all is an error that says so.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

/// The labels of a series, the metric's name among them where the query kept it.
pub type Labels = BTreeMap<String, String>;

/// One series of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// Whose it is.
    pub labels: Labels,
    /// Unix seconds and value, in the order of the answer.
    pub samples: Vec<(i64, f32)>,
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its series.
    pub vectors: Vec<Vector>,
    /// What the server had to say beside: the answer may lack something.
    pub warnings: Vec<String>,
}

/// Why there is no answer in what was received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The server says why.
    #[error("{kind}: {message}")]
    Refused {
        /// The server's word for the kind of error, such as `bad_data`.
        kind: String,
        /// Its text.
        message: String,
    },
    /// Something else answers in its place.
    #[error("the answer is not Prometheus' ({0})")]
    Foreign(String),
    /// The query gives something else than series over time.
    #[error("the query gives a {0}, not series over time")]
    NotAMatrix(String),
}

/// Reads the body of an answer.
pub fn read(body: &[u8]) -> Result<Answer, AnswerError> {
    let foreign = |problem: &dyn fmt::Display| AnswerError::Foreign(problem.to_string());
    let envelope: Envelope = serde_json::from_slice(body).map_err(|error| foreign(&error))?;
    match (envelope.status.as_str(), envelope.data) {
        ("success", Some(Data { result_type, result: Some(vectors) })) if result_type == "matrix" => {
            let vectors = vectors.into_iter().map(Vector::from).collect();
            Ok(Answer { vectors, warnings: envelope.warnings.unwrap_or_default() })
        }
        ("success", Some(Data { result_type, .. })) => Err(AnswerError::NotAMatrix(result_type)),
        ("error", _) => Err(AnswerError::Refused { kind: envelope.error_type, message: envelope.error }),
        (status, _) => Err(foreign(&format_args!("status {status:?}"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    status: String,
    data: Option<Data>,
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error: String,
    warnings: Option<Vec<String>>,
}

struct Data {
    result_type: String,
    /// None for another type than a matrix, which is not read.
    result: Option<Vec<WireVector>>,
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw<'a> {
            result_type: String,
            #[serde(borrow)]
            result: &'a serde_json::value::RawValue,
        }
        let raw = Raw::deserialize(deserializer)?;
        let matrix = raw.result_type == "matrix";
        let result = matrix.then(|| serde_json::from_str(raw.result.get())).transpose();
        Ok(Data { result_type: raw.result_type, result: result.map_err(de::Error::custom)? })
    }
}

#[derive(Deserialize)]
struct WireVector {
    metric: Labels,
    /// Absent where a series holds histograms only.
    #[serde(default)]
    values: Vec<WireSample>,
}

impl From<WireVector> for Vector {
    fn from(wire: WireVector) -> Vector {
        let finite = wire.values.iter().filter(|sample| sample.value.is_finite());
        Vector { labels: wire.metric, samples: finite.map(|sample| (sample.time, sample.value)).collect() }
    }
}

struct WireSample {
    time: i64,
    value: f32,
}

impl<'de> Deserialize<'de> for WireSample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(2, SampleVisitor)
    }
}

/// `[1700000000.123, "0.5"]`, without a copy of the text: there are millions of them.
struct SampleVisitor;

impl<'de> Visitor<'de> for SampleVisitor {
    type Value = WireSample;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time and a value in quotes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<WireSample, A::Error> {
        let time: f64 = pair.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let Number(value) = pair.next_element()?.ok_or_else(|| de::Error::invalid_length(1, &self))?;
        // A cast saturates; times beyond the grid are left out later.
        Ok(WireSample { time: time.round() as i64, value })
    }
}

struct Number(f32);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number in quotes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                let value: f64 =
                    text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))?;
                // Beyond an f32 it becomes infinite, and so a gap.
                Ok(Number(value as f32))
            }
        }
        deserializer.deserialize_str(NumberVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let said = match read(body.as_bytes()) {
            Ok(answer) => {
                let vectors = answer.vectors.iter().map(|v| format!("{:?} {:?}", v.labels, v.samples));
                let warnings = answer.warnings.iter().map(|warning| format!("warning: {warning}"));
                vectors.chain(warnings).collect::<Vec<_>>().join("; ")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn what_is_not_a_number_is_a_gap() {
        check(
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":
            [[60,"0.5"],[120.4,"NaN"],[180,"+Inf"],[240,"-Inf"],[300,"1e99"],[360,"-2e-3"]]},{"metric":{}}]}}"#,
            r#"{"a": "1"} [(60, 0.5), (360, -0.002)]; {} []"#,
        );
    }

    #[test]
    fn a_partial_answer_says_so() {
        check(
            r#"{"status":"success","warnings":["store is away"],"infos":["x"],"data":{"resultType":"matrix","result":[],"stats":{}}}"#,
            "warning: store is away",
        );
    }

    #[test]
    fn refusals_and_foreign_answers() {
        check(r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#, "bad_data: parse error");
        check(
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]}}"#,
            "the query gives a vector, not series over time",
        );
        for foreign in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"status":"success"}"#,
            r#"{"status":"fine","data":null}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":{}}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":1},"values":[]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[60,"x"]]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[60]]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[["60","1"]]}]}}"#,
        ] {
            let error = read(foreign.as_bytes()).unwrap_err();
            assert!(matches!(error, AnswerError::Foreign(_)), "{foreign}: {error}");
        }
    }
}
