//! The one error of loading a configuration: a single line that says where, what, and what to write instead.
//!
//! Invariant: its text never contains a line break or another control character, and no part of it grows with the
//! file, whatever the file holds: it goes to a terminal and into a log.

use std::fmt;
use std::path::Path;

/// The longest a quoted value or a place may be before it is cut: enough to find it again.
const QUOTE_LIMIT: usize = 100;

/// The longest a whole problem may be; a quoted value beside the list of all known fields needs half of it.
const PROBLEM_LIMIT: usize = 1000;

/// Why a configuration, or another document of the user's, was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file as the user named it; empty for text that came from elsewhere.
    file: String,
    /// The path inside the document, `leaderElection.leaseDuration`; empty for the document as a whole.
    at: String,
    /// The offending value and what is expected.
    problem: String,
}

impl ConfigError {
    /// A field whose value is refused.
    pub(crate) fn at(at: impl fmt::Display, problem: impl fmt::Display) -> Self {
        let part = |text: String, limit| one_line(&cut(&text, limit));
        ConfigError {
            file: String::new(),
            at: part(at.to_string(), QUOTE_LIMIT),
            problem: part(problem.to_string(), PROBLEM_LIMIT),
        }
    }

    /// The file or the document as a whole is refused.
    pub(crate) fn whole(problem: impl fmt::Display) -> Self {
        ConfigError::at("", problem)
    }

    /// The same error with the file's name in front.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        self.file = one_line(&path.display().to_string());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for prefix in [&self.file, &self.at].into_iter().filter(|prefix| !prefix.is_empty()) {
            write!(f, "{prefix}: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// A text as the error quotes it.
pub(crate) fn quote(text: &str) -> String {
    format!("{:?}", cut(text, QUOTE_LIMIT))
}

/// The text with control characters escaped.
fn one_line(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// The beginning of a long text.
fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
