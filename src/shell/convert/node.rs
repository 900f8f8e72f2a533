//! Nodes.
//!
//! Invariant: a node is never refused. What cannot be read on it offers nothing (an amount) or keeps nobody away (a taint's
//! effect that Kubernetes itself would not act on), and a note says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::layout::{GPU_PRODUCT, MIG_CONFIG_STATE, admission, has_our_cordon};
use super::pod::taint_effect;
use super::wire::{NodeView, TaintView};
use super::{Interner, convert_labels, resources};
use crate::mig::GpuModel;
use crate::model::{MigConfigState, Node, Partitioning, Taint};

/// A node, and what an operator should know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertedNode {
    /// The node as the model has it.
    pub node: Node,
    /// What could not be read; worth one log line each when it changes.
    pub notes: Vec<String>,
}

/// The node as the model has it.
pub fn convert_node(view: &NodeView, interner: &mut Interner) -> ConvertedNode {
    let mut notes = Vec::new();
    let labels = convert_labels(view.metadata.labels.as_ref(), interner);
    let allocatable = resources(view.status.allocatable.as_ref(), interner, |name, text, problem| {
        notes.push(format!("status.allocatable[{name}]: \"{text}\" {problem}; counted as zero"));
        0
    });
    let taints = view.spec.taints.iter().flatten();
    let node = Node {
        name: interner.text(view.metadata.name.as_deref().unwrap_or_default()).into(),
        taints: taints.filter_map(|taint| convert_taint(taint, interner, &mut notes)).collect(),
        unschedulable: view.spec.unschedulable.unwrap_or_default(),
        our_cordon: has_our_cordon(view),
        admission: admission(view),
        allocatable,
        mig_config_state: mig_config_state(labels.get(MIG_CONFIG_STATE)),
        gpu_model: labels.get(GPU_PRODUCT).and_then(|label| gpu_model(label, &mut notes)),
        partitioning: Partitioning::Fixed,
        features: view.status.declared_features.iter().flatten().map(|name| interner.text(name)).collect(),
        images: images(view, interner),
        labels,
    };
    ConvertedNode { node, notes }
}

/// Sizes that make no sense count as none.
fn images(view: &NodeView, interner: &mut Interner) -> BTreeMap<Arc<str>, u64> {
    let sized = |size: Option<i64>| size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0);
    let images = view.status.images.iter().flatten();
    let images = images.filter_map(|image| Some((image.names.iter().flatten(), sized(image.size_bytes)?)));
    images
        .flat_map(|(names, size)| names.map(move |name| (name, size)))
        .map(|(name, size)| (interner.text(name), size))
        .collect()
}

fn convert_taint(view: &TaintView, interner: &mut Interner, notes: &mut Vec<String>) -> Option<Taint> {
    let Some(effect) = taint_effect(&view.effect) else {
        notes.push(format!("spec.taints[{}]: \"{}\" is not a known effect; ignored", view.key, view.effect));
        return None;
    };
    let value = interner.text(view.value.as_deref().unwrap_or_default());
    Some(Taint { key: interner.text(&view.key), value, effect })
}

fn mig_config_state(label: Option<&Arc<str>>) -> MigConfigState {
    match label {
        None => MigConfigState::Absent,
        Some(state) if &**state == "success" => MigConfigState::Success,
        Some(state) => MigConfigState::Unsettled(state.clone()),
    }
}

fn gpu_model(label: &str, notes: &mut Vec<String>) -> Option<&'static GpuModel> {
    GpuModel::by_product_label(label)
        .map_err(|error| notes.push(format!("metadata.labels[{GPU_PRODUCT}]: {error}")))
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::TaintEffect;

    fn convert(node: Value) -> ConvertedNode {
        convert_node(&serde_json::from_value(node).unwrap(), &mut Interner::default())
    }

    fn labelled(labels: Value) -> ConvertedNode {
        convert(json!({"metadata": {"name": "n0", "labels": labels}}))
    }

    #[test]
    fn reads_a_gpu_node() {
        let ConvertedNode { node, notes } = convert(json!({
            "metadata": {"name": "n0", "labels": {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/mig.config.state": "success"}},
            "spec": {"unschedulable": true, "taints": [
                {"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "1", "effect": "NoExecute"}]},
            "status": {
                "capacity": {"nvidia.com/mig-7g.40gb": "0"},
                "allocatable": {"cpu": "63500m", "memory": "512Gi", "pods": "110", "nvidia.com/mig-1g.5gb": "56",
                    "nvidia.com/gpu": "0"},
            },
        }));
        assert_eq!(notes, Vec::<String>::new());
        assert_eq!((node.name.as_str(), node.unschedulable), ("n0", true));
        assert_eq!((node.allocatable.cpu_milli, node.allocatable.pods), (63_500, 110));
        assert_eq!(node.allocatable.extended(), [("nvidia.com/mig-1g.5gb".into(), 56)]);
        assert_eq!(node.gpu_model.map(|model| model.name), Some("A100-40GB"));
        assert_eq!(node.mig_config_state, MigConfigState::Success);
        assert_eq!(
            node.taints.iter().map(|t| t.effect).collect::<Vec<_>>(),
            [TaintEffect::NoSchedule, TaintEffect::NoExecute]
        );
    }

    #[test]
    fn features_and_images() {
        let ConvertedNode { node, notes } = convert(json!({"metadata": {"name": "n0"}, "status": {
            "declaredFeatures": ["B", "A"],
            "images": [{"names": ["server@sha256:ab", "server:1.2"], "sizeBytes": 7}, {"names": ["odd"], "sizeBytes": -1},
                {"names": null, "sizeBytes": 5}],
        }}));
        assert_eq!((node.features, notes.len()), (["A".into(), "B".into()].into(), 0));
        assert_eq!(node.images, [("server@sha256:ab".into(), 7), ("server:1.2".into(), 7)].into());
    }

    #[test]
    fn a_node_without_anything_is_a_node() {
        let ConvertedNode { node, notes } = convert(json!({"metadata": {"name": "bare"}}));
        assert_eq!((node.mig_config_state, node.gpu_model, notes.len()), (MigConfigState::Absent, None, 0));
        assert_eq!(node.allocatable, Default::default());
    }

    #[test]
    fn states_of_mig_manager() {
        for (word, settled) in
            [("success", true), ("pending", false), ("rebooting", false), ("failed", false), ("", false)]
        {
            let state = labelled(json!({"nvidia.com/mig.config.state": word})).node.mig_config_state;
            assert_eq!(state == MigConfigState::Success, settled, "{word}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_noted() {
        let unknown = labelled(json!({"nvidia.com/gpu.product": "NVIDIA-Z9000"}));
        assert_eq!((unknown.node.gpu_model, unknown.notes.len()), (None, 1));
        assert!(unknown.notes[0].contains("NVIDIA-Z9000"), "{:?}", unknown.notes);
        let odd = convert(json!({
            "spec": {"taints": [{"key": "a", "effect": "Perhaps"}]}, "status": {"allocatable": {"cpu": "x", "pods": "-1"}},
        }));
        assert_eq!(
            odd.notes,
            [
                "status.allocatable[cpu]: \"x\" is not a quantity; counted as zero",
                "status.allocatable[pods]: \"-1\" is negative; counted as zero",
                "spec.taints[a]: \"Perhaps\" is not a known effect; ignored",
            ]
        );
    }
}
