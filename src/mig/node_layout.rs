//! The layouts of all GPUs of one node: what a change leads from and to, and the text in which it is kept.
//!
//! Invariant: all GPUs are of one model, as GPU feature discovery labels a node with one; what is written is read back as the
//! same value, or refused.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::geometry::{GpuModel, UnknownModel};
use super::layout::{Counts, Layout, LayoutError};
use super::parted::NodeConfig;
use super::placement::Placement;
use super::profile::ParseProfileError;

/// One layout for each GPU of a node, by NVML index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "Text")]
pub struct NodeLayout {
    model: &'static GpuModel,
    gpus: Vec<Layout>,
}

/// The form in documents: `{"model": "A100-40GB", "gpus": ["3g.20gb@0 2g.10gb@4", "-"]}`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    model: String,
    gpus: Vec<String>,
}

impl NodeLayout {
    /// The layouts of a node's GPUs, which must be of `model`.
    pub fn new(model: &'static GpuModel, gpus: Vec<Layout>) -> Result<Self, LayoutError> {
        match gpus.iter().find(|gpu| gpu.model() != model) {
            Some(other) => Err(LayoutError::ModelMismatch { from: other.model().name, to: model.name }),
            None => Ok(Self { model, gpus }),
        }
    }

    /// The model of every GPU.
    pub const fn model(&self) -> &'static GpuModel {
        self.model
    }

    /// By GPU.
    pub fn gpus(&self) -> &[Layout] {
        &self.gpus
    }

    /// Instances per profile of the whole node: what `allocatable` shows once every layout is in force.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for placement in self.gpus.iter().flat_map(Layout::placements) {
            let count = counts.entry(placement.profile).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// Instances per profile of each GPU: all that mig-manager is told.
    pub fn counts_by_gpu(&self) -> Vec<Counts> {
        self.gpus.iter().map(Layout::counts).collect()
    }

    /// mig-parted's configuration; `None` for a node without GPUs.
    pub fn config(&self) -> Option<NodeConfig> {
        NodeConfig::new(&self.counts_by_gpu())
    }

    /// The GPUs whose instances differ: by number alone, or by their starts as well.
    pub fn differing(&self, other: &Self, starts_matter: bool) -> Vec<u16> {
        let none = Layout::empty(self.model);
        let differ = |at: usize| {
            let [a, b] = [self, other].map(|node| node.gpus.get(at).unwrap_or(&none));
            if starts_matter { a != b } else { a.counts() != b.counts() }
        };
        let most = self.gpus.len().max(other.gpus.len());
        (0..most).filter(|at| differ(*at)).filter_map(|at| u16::try_from(at).ok()).collect()
    }
}

/// `3g.20gb@0 2g.10gb@4 | -`.
impl fmt::Display for NodeLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for gpu in &self.gpus {
            write!(f, "{separator}{gpu}")?;
            separator = " | ";
        }
        Ok(())
    }
}

/// Why a text holds no layouts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeLayoutError {
    /// Of no known model.
    #[error("model: {0}")]
    Model(#[from] UnknownModel),
    /// Something that is no instance.
    #[error("gpus[{gpu}]: `{word}` is not an instance: write it as `3g.20gb@4`")]
    Malformed {
        /// Position of the GPU.
        gpu: usize,
        /// The text.
        word: String,
    },
    /// An instance of an unknown profile.
    #[error("gpus[{gpu}]: {error}")]
    Profile {
        /// Position of the GPU.
        gpu: usize,
        /// What is wrong.
        error: ParseProfileError,
    },
    /// Instances that cannot exist together.
    #[error("gpus[{gpu}]: {error}")]
    Layout {
        /// Position of the GPU.
        gpu: usize,
        /// What is wrong.
        error: LayoutError,
    },
}

impl TryFrom<Text> for NodeLayout {
    type Error = NodeLayoutError;

    fn try_from(text: Text) -> Result<Self, Self::Error> {
        let model = GpuModel::by_name(&text.model)?;
        let gpus = text.gpus.iter().enumerate().map(|(gpu, text)| read(model, gpu, text));
        Ok(Self { model, gpus: gpus.collect::<Result<_, _>>()? })
    }
}

impl From<NodeLayout> for Text {
    fn from(node: NodeLayout) -> Text {
        Text { model: node.model.name.to_owned(), gpus: node.gpus.iter().map(Layout::to_string).collect() }
    }
}

/// Reads what [`Layout`] displays.
fn read(model: &'static GpuModel, gpu: usize, text: &str) -> Result<Layout, NodeLayoutError> {
    let mut layout = Layout::empty(model);
    for word in text.split_whitespace().filter(|word| *word != "-") {
        let malformed = || NodeLayoutError::Malformed { gpu, word: word.to_owned() };
        let (profile, start) = word.split_once('@').ok_or_else(malformed)?;
        let profile = profile.parse().map_err(|error| NodeLayoutError::Profile { gpu, error })?;
        let start = start.parse().map_err(|_| malformed())?;
        let placement = Placement::new(profile, start);
        layout = layout.with(placement).map_err(|error| NodeLayoutError::Layout { gpu, error })?;
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(gpus: &[&str]) -> Result<NodeLayout, String> {
        let text = json!({"model": "A100-40GB", "gpus": gpus});
        serde_json::from_value(text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let layout = node(&["3g.20gb@0 1g.5gb+me@4", "-"]).unwrap();
        assert_eq!(layout.to_string(), "3g.20gb@0 1g.5gb+me@4 | -");
        let text = serde_json::to_string(&layout).unwrap();
        assert_eq!(serde_json::from_str::<NodeLayout>(&text).unwrap(), layout);
        assert_eq!(layout.counts().len(), 2);
        assert_eq!(layout.config().map(|config| config.name().len()), Some(30));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (gpu, part) in [
            ("3g.20gb@0 4g.20gb@0", "gpus[0]: 4g.20gb@0 overlaps"),
            ("3g.20gb", "gpus[0]: `3g.20gb` is not an instance"),
            ("3g.20gb@x", "is not an instance"),
            ("banana@0", "`banana` is not a MIG profile"),
        ] {
            let error = node(&[gpu]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let unknown = serde_json::from_value::<NodeLayout>(json!({"model": "T4", "gpus": []}));
        assert!(unknown.unwrap_err().to_string().starts_with("model: unknown GPU model `T4`"));
    }

    #[test]
    fn differences_are_by_number_or_by_start() {
        let check = |from: &[&str], to: &[&str], counts: &[u16], starts: &[u16]| {
            let (from, to) = (node(from).unwrap(), node(to).unwrap());
            assert_eq!(from.differing(&to, false), counts);
            assert_eq!(from.differing(&to, true), starts);
        };
        check(&["1g.5gb@0", "1g.5gb@0"], &["1g.5gb@1", "2g.10gb@0"], &[1], &[0, 1]);
        check(&["-", "-"], &["-", "-"], &[], &[]);
        check(&["-"], &["-", "7g.40gb@0"], &[1], &[1]);
    }
}
