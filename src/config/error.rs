//! The one error of loading a configuration: a single line that says where, what, and what to write instead.
//!
//! Invariant: its text never contains a line break or another control character, and no part of it grows with the
//! file, whatever the file holds: it goes to a terminal and into a log.

use std::fmt;
use std::path::Path;

/// The longest a quoted value or a path may be before it is cut; a name in Kubernetes has at most 253 characters.
const QUOTE_LIMIT: usize = 256;

/// Why a configuration was refused.
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
    pub(super) fn at(at: impl fmt::Display, problem: impl fmt::Display) -> Self {
        ConfigError { file: String::new(), at: one_line(at), problem: one_line(problem) }
    }

    /// The file or the document as a whole is refused.
    pub(super) fn whole(problem: impl fmt::Display) -> Self {
        ConfigError::at("", problem)
    }

    /// The same error with the file's name in front.
    pub(super) fn in_file(mut self, path: &Path) -> Self {
        self.file = one_line(path.display());
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

/// A value as the error quotes it: strings in quotes, long ones cut.
pub(super) fn quote(value: &str) -> String {
    format!("{:?}", cut(value))
}

/// The text with control characters escaped.
fn one_line(text: impl fmt::Display) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.to_string().chars().map(escape).collect()
}

/// The beginning of a long text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(QUOTE_LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
