//! A decoder's complaint in the user's words: where it is, what was written there, what to write instead.
//!
//! Invariant: the place and the value come from the document itself; of the decoder's text only the fixed part, which
//! holds our own names, is read. A complaint of unknown form is passed on as it is.

use serde_path_to_error::{Path, Segment};
use serde_yaml::Value;

use super::error::{ConfigError, cut, quote};

/// How the decoder calls a type, by the beginning of its words, and what the user reads.
const EXPECTED: [(&str, &str); 5] = [
    ("struct ", "a mapping of fields; indent them below the key, or remove it"),
    ("a boolean", "true or false"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("a string", "a text; put it in quotes"),
    ("a sequence", "a list; begin each entry with `- `"),
];

/// The error for `message`, raised at `path` of the document `tree`.
pub(super) fn explain(tree: &Value, path: &Path, message: &str) -> ConfigError {
    let at = render_path(path);
    if let Some(known) = message.strip_prefix("unknown field ") {
        return ConfigError::at(at, unknown_field(&last_key(path), known));
    }
    if message.starts_with("missing field ") {
        let fix =
            r#"begin with "apiVersion: mig-scheduler.io/v1alpha1" and "kind: MigSchedulerConfiguration""#;
        return ConfigError::at(at, format!("{message}; {fix}"));
    }
    let Some((_, expected)) = message.rsplit_once(", expected ") else {
        return ConfigError::at(at, cut(message));
    };
    let value = lookup(tree, path).map_or_else(|| "this".to_owned(), render_value);
    if message.starts_with("unknown variant ") {
        return ConfigError::at(at, format!("{value} is not known; write {}", names(expected).join(" or ")));
    }
    ConfigError::at(at, format!("{value} is not {}", in_words(expected)))
}

/// The complaint about the key `unknown`; `message` lists the known ones in backticks.
fn unknown_field(unknown: &str, message: &str) -> String {
    let known = names(message.rsplit_once(", expected ").map_or("", |(_, names)| names));
    let guess = closest(unknown, &known).map(|name| format!("; did you mean {}?", quote(name)));
    format!("unknown field{} (known: {})", guess.unwrap_or_default(), known.join(", "))
}

/// The names between backticks.
fn names(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn in_words(expected: &str) -> &str {
    let named = EXPECTED.iter().find(|(beginning, _)| expected.starts_with(beginning));
    named.map_or(expected, |(_, words)| words)
}

/// The path as a user would write it: `profiles[0].schedulerName`.
fn render_path(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } if text.is_empty() => {
                text.push_str(&cut(key))
            }
            Segment::Map { key } | Segment::Enum { variant: key } => text.push_str(&format!(".{}", cut(key))),
            Segment::Unknown => {}
        }
    }
    text
}

fn last_key(path: &Path) -> String {
    match path.iter().next_back() {
        Some(Segment::Map { key }) => cut(key),
        _ => String::new(),
    }
}

/// The value at `path`.
fn lookup<'a>(tree: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(tree, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    })
}

/// A value in a few words.
fn render_value(value: &Value) -> String {
    match value {
        Value::Null => "an empty value".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => quote(value),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Mapping(_) => "a mapping".to_owned(),
        Value::Tagged(value) => format!("the tag {}", cut(&value.tag.to_string())),
    }
}

/// The known name that differs from `word` in at most a third of its letters, case aside.
fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    let distance = |name: &str| edits(&word, &name.to_lowercase().chars().collect::<Vec<_>>());
    let (distance, name) = known.iter().map(|name| (distance(name), *name)).min()?;
    (distance * 3 <= word.len()).then_some(name)
}

/// Letters to insert, delete or replace to get from one word to the other (Levenshtein's distance).
fn edits(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
