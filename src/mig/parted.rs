//! What mig-parted is told: the instances per profile of every GPU of a node, under a name.
//!
//! mig-parted refuses a document with a field it does not know, takes counts and no starts, and regards a configuration as
//! applied only when it names every GPU of the node (`api/spec/v1/spec.go`, `cmd/nvidia-mig-parted/assert/config.go`). mig-manager
//! acts when the *name* in a node's label changes and never looks at a configuration again, so that a name must not be used for
//! a second one: it is made of the configuration's content.
//!
//! Invariant: a [`NodeConfig`] names each GPU of its node exactly once, has no count of zero, and equal ones have equal names.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::layout::Counts;
use super::profile::ProfileName;

/// What every name begins with. With sixteen digits it stays far below the 63 characters of a label's value.
const NAME_PREFIX: &str = "mig-scheduler-";

/// FNV-1a over 64 bits: for names and for telling a damaged text from a whole one, not against anybody who means harm.
pub fn content_hash(content: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    content.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The GPUs of a node that are cut alike.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spec {
    /// NVML indices, ascending.
    devices: Vec<usize>,
    /// Instances per profile; none for a GPU in MIG mode without instances.
    counts: Counts,
}

/// The configuration of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    specs: Vec<Spec>,
}

impl NodeConfig {
    /// The configuration of a node whose GPU with NVML index i is to have `gpus[i]`; `None` for a node without GPUs.
    pub fn new(gpus: &[Counts]) -> Option<Self> {
        let mut specs: Vec<Spec> = Vec::new();
        for (device, counts) in gpus.iter().enumerate() {
            let counts: Counts = counts.iter().filter(|(_, n)| **n > 0).map(|(p, n)| (*p, *n)).collect();
            match specs.iter_mut().find(|spec| spec.counts == counts) {
                Some(spec) => spec.devices.push(device),
                None => specs.push(Spec { devices: vec![device], counts }),
            }
        }
        (!specs.is_empty()).then_some(Self { specs })
    }

    /// The name under which it is published: the same content has the same name, another content another one.
    ///
    /// It ends with the [`content_hash`]: among the 100,000 layouts that a large cluster might see in its life, two get the same
    /// name with a probability of 3 in 10 billion.
    pub fn name(&self) -> String {
        format!("{NAME_PREFIX}{:016x}", content_hash(&self.content()))
    }

    /// Everything that distinguishes it: `0,2:1g.5gb=2,3g.20gb=1;1:`.
    fn content(&self) -> String {
        let spec = |spec: &Spec| {
            let devices: Vec<_> = spec.devices.iter().map(usize::to_string).collect();
            let counts: Vec<_> = spec.counts.iter().map(|(p, n)| format!("{p}={n}")).collect();
            format!("{}:{}", devices.join(","), counts.join(","))
        };
        self.specs.iter().map(spec).collect::<Vec<_>>().join(";")
    }
}

/// Several configurations under their names: the whole of mig-parted's `config.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartedDocument {
    configs: BTreeMap<String, NodeConfig>,
}

impl PartedDocument {
    /// Whether it holds no configuration; mig-parted refuses such a document.
    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }
}

impl FromIterator<NodeConfig> for PartedDocument {
    fn from_iter<I: IntoIterator<Item = NodeConfig>>(configs: I) -> Self {
        Self { configs: configs.into_iter().map(|config| (config.name(), config)).collect() }
    }
}

/// mig-parted's form, field by field.
impl Serialize for PartedDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serializer.serialize_map(Some(2))?;
        document.serialize_entry("version", "v1")?;
        document.serialize_entry("mig-configs", &self.configs)?;
        document.end()
    }
}

impl Serialize for NodeConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.specs)
    }
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let profiles: BTreeMap<String, u8> =
            self.counts.iter().map(|(profile, count)| (ProfileName::to_string(profile), *count)).collect();
        let mut spec = serializer.serialize_map(Some(3))?;
        spec.serialize_entry("devices", &self.devices)?;
        spec.serialize_entry("mig-enabled", &true)?;
        spec.serialize_entry("mig-devices", &profiles)?;
        spec.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Reads `1g.5gb=2 3g.20gb=1`.
    fn counts(text: &str) -> Counts {
        let count = |word: &str| {
            let (profile, count) = word.split_once('=').unwrap();
            (profile.parse().unwrap(), count.parse().unwrap())
        };
        text.split_whitespace().map(count).collect()
    }

    fn config(gpus: &[&str]) -> NodeConfig {
        NodeConfig::new(&gpus.iter().map(|text| counts(text)).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn equal_gpus_share_an_entry_and_every_gpu_is_named() {
        let node = config(&["1g.5gb+me=1 3g.20gb=1", "", "3g.20gb=1 1g.5gb+me=1 2g.10gb=0"]);
        let document: PartedDocument = [node.clone(), node.clone()].into_iter().collect();
        let expected = json!({
            "version": "v1",
            "mig-configs": { (node.name()): [
                {"devices": [0, 2], "mig-enabled": true, "mig-devices": {"1g.5gb+me": 1, "3g.20gb": 1}},
                {"devices": [1], "mig-enabled": true, "mig-devices": {}},
            ]},
        });
        assert_eq!(serde_json::to_value(&document).unwrap(), expected);
        assert_eq!(NodeConfig::new(&[]), None);
        assert!(PartedDocument::default().is_empty() && !document.is_empty());
    }

    /// Names are on disk and in labels: they must not change from one version of this program to the next.
    #[test]
    fn a_name_is_of_the_content_alone() {
        assert_eq!(config(&["1g.5gb=7"]).name(), "mig-scheduler-ddb904fa34057103");
        let different =
            [&["1g.5gb=7"][..], &["1g.5gb=7"; 2], &["1g.5gb=6"], &["1g.5gb+me=1"], &["", "1g.5gb=7"], &[""]];
        let names: BTreeSet<_> = different.iter().map(|gpus| config(gpus).name()).collect();
        assert_eq!(names.len(), different.len());
        assert!(names.iter().all(|name| name.len() <= 63));
    }

    proptest! {
        /// Each GPU is named once, with the counts that were asked for.
        #[test]
        fn every_gpu_once(cut in prop::collection::vec(0u8..4, 1..17)) {
            let profile = "1g.5gb".parse().unwrap();
            let gpus: Vec<Counts> = cut.iter().map(|&count| Counts::from([(profile, count)])).collect();
            let config = NodeConfig::new(&gpus).unwrap();
            let mut named: Vec<_> = config.specs.iter()
                .flat_map(|spec| spec.devices.iter().map(|&at| (at, spec.counts.get(&profile).copied().unwrap_or(0))))
                .collect();
            named.sort_unstable();
            prop_assert_eq!(named, cut.into_iter().enumerate().collect::<Vec<_>>());
        }
    }
}
