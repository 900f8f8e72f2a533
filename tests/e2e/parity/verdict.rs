//! What came of one pod, in the eyes of either scheduler.

use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not tried.
    Gated,
    /// These nodes can take it.
    Feasible(BTreeSet<String>),
    /// No node can take it, in the words that it is told.
    Refused(String),
}

impl Verdict {
    /// Whether a node can take it.
    pub fn admits(&self, node: &str) -> bool {
        matches!(self, Verdict::Feasible(nodes) if nodes.contains(node))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Gated => f.write_str("not tried"),
            Verdict::Feasible(nodes) => write!(f, "{nodes:?}"),
            Verdict::Refused(why) => f.write_str(why),
        }
    }
}
