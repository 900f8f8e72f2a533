//! A decoder's complaint in the user's words: what was written there, and what to write instead.
//!
//! Invariant: the value comes from the document itself; of the decoder's text only the fixed part, which holds our own
//! names, is read. A complaint of unknown form is passed on as it is.

use super::error::quote;

/// How the decoder calls a type, by the beginning of its words, and what the user reads.
const EXPECTED: [(&str, &str); 9] = [
    ("struct ", "a mapping of fields; indent them below the key, or remove it"),
    ("a boolean", "true or false"),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("i32", "a whole number from -2147483648 to 2147483647"),
    ("a string", "a text; put it in quotes"),
    // What serde_yaml says for an enum.
    ("a Value::Tagged enum", "a text; put it in quotes"),
    ("a sequence", "a list; begin each entry with `- `"),
];

/// The head every document needs.
const HEAD: &str =
    r#"begin with "apiVersion: mig-scheduler.io/v1alpha1" and "kind: MigSchedulerConfiguration""#;

/// The fields that only the head has.
const HEAD_FIELDS: [&str; 2] = ["`apiVersion`", "`kind`"];

/// The problem for the decoder's `message` about `value`, which stands at the key `key`.
pub(super) fn explain(key: &str, value: &str, message: &str) -> String {
    if let Some(field) = message.strip_prefix("missing field ") {
        let fix = if HEAD_FIELDS.contains(&field) { HEAD } else { "add it" };
        return format!("{message}; {fix}");
    }
    let Some((complaint, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    if complaint.starts_with("unknown field ") {
        return unknown_field(key, &names(expected));
    }
    if complaint.starts_with("unknown variant ") {
        return format!("{value} is not known; write {}", names(expected).join(" or "));
    }
    if expected == "field identifier" {
        return "has a key that is not a text; write field names only".to_owned();
    }
    format!("{value} is not {}", in_words(expected))
}

fn unknown_field(key: &str, known: &[&str]) -> String {
    let guess = closest(key, known).map(|name| format!("; did you mean {}?", quote(name)));
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

/// The known name that differs from `word` in at most a third of its letters, case aside; two letters swapped are one slip.
fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer words are no slip of a name of ours, and the comparison stays cheap.
    let word: String = word.to_lowercase().chars().take(64).collect();
    let distance = |name: &str| strsim::osa_distance(&word, &name.to_lowercase());
    let (distance, name) = known.iter().map(|name| (distance(name), *name)).min()?;
    (distance * 3 <= word.chars().count()).then_some(name)
}
