//! Lines as a collector would read them.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::fact::{QueueCause, QueueName};
use crate::model::{NodeName, PodId, PodUid};

/// A writer that keeps what it is given.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged about `facts`.
fn logged(format: LogFormat, level: &str, facts: &[Fact]) -> String {
    let kept = Kept::default();
    let writer = kept.clone();
    let settings = config::Logging { format, level: level.to_owned() };
    let subscriber = subscriber(&settings, false, move || writer.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || facts.iter().for_each(fact));
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// One of each, with a line break where the API could have put one.
fn all_facts() -> Vec<Fact> {
    let pod = || PodId { namespace: "ns".into(), name: "a".into(), uid: PodUid::from("1") };
    let node = || NodeName::from("n0");
    let message = "0/1 nodes are available:\n1 no".to_owned();
    vec![
        Fact::PodQueued { queue: QueueName::Active, cause: QueueCause::PodAdd },
        Fact::PodAssumed { pod: pod(), node: node(), feasible: 3 },
        Fact::PodUnschedulable { pod: pod(), message: message.clone() },
        Fact::PodBound { pod: pod(), node: node(), attempts: 2, waited: Duration::from_millis(1500) },
        Fact::BindFailed { pod: pod(), node: node(), message },
        forecast(None, true),
        forecast(Some("worse than persistence"), true),
        forecast(None, false),
    ]
}

fn forecast(distrust: Option<&str>, changed: bool) -> Fact {
    let group = GroupOutlook {
        group: "gpu-activity".to_owned(),
        series: 3,
        trusted: 2,
        stale: 1,
        models: vec![("lstm", 1.0)],
        distrust: distrust.map(str::to_owned),
        error: Some(0.25),
        persistence_error: None,
        said: None,
        actual: None,
    };
    Fact::Forecast { at: 0, group, changed }
}

/// Tests that each fact is one JSON object with its fields, and its message a fixed sentence.
#[test]
fn json_lines_carry_fields() {
    let text = logged(LogFormat::Json, "trace", &all_facts());
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 8);
    for line in &lines {
        let message = line["message"].as_str().unwrap();
        assert!(message.starts_with(char::is_uppercase) && message.ends_with('.'), "{message}");
    }
    let bound = &lines[3];
    assert_eq!((&bound["pod"], &bound["node"]), (&"ns/a".into(), &"n0".into()));
    assert_eq!((&bound["attempt"], &bound["waited_seconds"]), (&2.into(), &1.5.into()));
    assert_eq!(lines[2]["reason"], "0/1 nodes are available:\n1 no");
    assert_eq!((&lines[5]["model"], &lines[5]["error"]), (&"lstm".into(), &0.25.into()));
    assert_eq!(lines[6]["reason"], "worse than persistence");
}

/// Tests that text is one line a fact too, whatever a message holds, and that the level filters.
#[test]
fn text_lines_are_filtered() {
    let text = logged(LogFormat::Text, "info", &all_facts());
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("Pod bound. pod=ns/a uid=1 node=n0 attempt=2 waited_seconds=1.5"), "{text}");
    assert_eq!(logged(LogFormat::Text, "off", &all_facts()), "");
}

/// Tests that a bad level is named.
#[test]
fn bad_level_is_named() {
    let settings = config::Logging { format: LogFormat::Text, level: "a=b=c".to_owned() };
    let error = init(&settings).unwrap_err().to_string();
    assert!(error.starts_with(r#"logging.level "a=b=c" is not a log filter: "#), "{error}");
}
