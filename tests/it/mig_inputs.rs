//! The geometry against layouts and labels that are in use: NVIDIA's and a cloud's mig-parted files, and node labels.
//!
//! The files are material beside the repository and no part of it; see `shared`.

use std::collections::BTreeMap;

use mig_scheduler::mig::tables::MODELS;
use mig_scheduler::mig::{Counts, GpuModel, LayoutError, PlacementError, ProfileName, find_layout};
use mig_scheduler::model::MigConfigState;
use mig_scheduler::shell::convert::{Interner, convert_node};
use serde::Deserialize;
use serde_json::json;

use crate::shared;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MigParted {
    mig_configs: BTreeMap<String, Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Spec {
    #[serde(default)]
    device_filter: Filter,
    #[serde(default)]
    mig_devices: BTreeMap<String, u8>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Filter {
    One(String),
    Many(Vec<String>),
}

impl Default for Filter {
    fn default() -> Self {
        Filter::Many(Vec::new())
    }
}

impl Filter {
    /// The models that the filter names.
    fn models(&self) -> Vec<&'static GpuModel> {
        let ids = match self {
            Filter::One(id) => std::slice::from_ref(id),
            Filter::Many(ids) => ids,
        };
        let pci = |id: &String| u32::from_str_radix(id.strip_prefix("0x").unwrap(), 16).unwrap();
        ids.iter().map(|id| GpuModel::by_pci(pci(id)).unwrap()).collect()
    }
}

/// The mig-parted documents in a file, which may be one itself or carry one in a ConfigMap.
fn configs(text: &str) -> Vec<MigParted> {
    let documents =
        serde_yaml::Deserializer::from_str(text).map(|d| serde_yaml::Value::deserialize(d).unwrap());
    documents
        .filter_map(|document| match &document["data"]["config.yaml"] {
            serde_yaml::Value::String(inner) => Some(serde_yaml::from_str(inner).unwrap()),
            _ => serde_yaml::from_value(document).ok(),
        })
        .collect()
}

/// Every model that a filter names must hold the spec; without a filter, one model of all.
fn place(spec: &Spec) -> Result<(), Vec<LayoutError>> {
    let counts: Counts = spec.mig_devices.iter().map(|(name, n)| (name.parse().unwrap(), *n)).collect();
    let filtered = spec.device_filter.models();
    let models = if filtered.is_empty() { MODELS.iter().collect() } else { filtered.clone() };
    let refusals: Vec<_> = models.iter().filter_map(|model| find_layout(model, &counts).err()).collect();
    let placeable = if filtered.is_empty() { refusals.len() < models.len() } else { refusals.is_empty() };
    if placeable { Ok(()) } else { Err(refusals) }
}

/// Checks a file's non-empty specs: how many are placeable, and the profiles that no model knows.
fn check(path: &str, placeable: usize, unknown: &[&str]) {
    let Some(text) = shared::text(path) else { return };
    let configs = configs(&text);
    configs.iter().flat_map(|config| &config.mig_configs).for_each(|(name, specs)| check_name(name, specs));
    let specs = configs.iter().flat_map(|config| config.mig_configs.values().flatten());
    let (mut placed, mut refused) = (0, Vec::new());
    for spec in specs.filter(|spec| !spec.mig_devices.is_empty()) {
        match place(spec) {
            Ok(()) => placed += 1,
            Err(refusals) => refused.push(only_unknown(&refusals)),
        }
    }
    refused.sort_unstable();
    let expected: Vec<ProfileName> = unknown.iter().map(|name| name.parse().unwrap()).collect();
    assert_eq!((placed, refused), (placeable, expected), "{path}");
}

/// A configuration named after a profile holds nothing else.
fn check_name(name: &str, specs: &[Spec]) {
    let Some(profile) = ProfileName::from_config_name(name) else { return };
    for device in specs.iter().flat_map(|spec| spec.mig_devices.keys()) {
        assert_eq!(device.parse(), Ok(profile), "{name}");
    }
}

/// The one profile that all refusals call unknown.
fn only_unknown(refusals: &[LayoutError]) -> ProfileName {
    let names: Vec<_> = refusals
        .iter()
        .map(|refusal| match refusal {
            LayoutError::Placement(PlacementError::UnknownProfile(unknown)) => unknown.profile,
            other => panic!("refused for another reason: {other}"),
        })
        .collect();
    assert!(names.windows(2).all(|pair| pair[0] == pair[1]), "{names:?}");
    names[0]
}

#[test]
fn mig_parted_files_are_placeable() {
    // GB200 with 189 GB: names of a variant whose placements nobody has published.
    let gb200_189 = ["3g.95gb", "4g.95gb", "7g.189gb"];
    let container = "inputs/NVIDIA+mig-parted/deployments/container";
    check("inputs/NVIDIA+gpu-operator/assets/state-mig-manager/0400_configmap.yaml", 89, &gb200_189);
    check(&format!("{container}/nvidia-mig-manager-example-hopper-blackwell.yaml"), 53, &gb200_189);
    check(&format!("{container}/nvidia-mig-manager-example.yaml"), 27, &[]);
    check("inputs/NVIDIA+mig-parted/examples/config.yaml", 10, &[]);
    check("inputs/NVIDIA+mig-parted/examples/dgx-station-80gb-config.yaml", 9, &[]);
    let chart = "inputs/aws+sagemaker-hyperpod-cli/helm_chart/HyperPodHelmChart/charts/gpu-operator";
    check(&format!("{chart}/config/default-mig-config.yaml"), 59, &[]);
}

/// Checks the product labels of a real node, and that its `mig-<profile>.` labels name profiles of the model.
fn check_labels(path: &str, model: &str) {
    let Some(text) = shared::text(path) else { return };
    let labels: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
    let products = labels.iter().filter(|(key, _)| key.ends_with(".product"));
    let found: Vec<_> = products.map(|(_, label)| GpuModel::by_product_label(label).unwrap().name).collect();
    assert!(!found.is_empty() && found.iter().all(|name| *name == model), "{path}: {found:?}");
    check_node(&labels, path);
    for key in labels.keys().filter_map(|key| key.strip_suffix(".count")) {
        if let Some(profile) = ProfileName::from_resource(key) {
            GpuModel::by_name(model).unwrap().profile(profile.unwrap()).unwrap();
        }
    }
}

/// A node with these labels is read without a remark.
fn check_node(labels: &BTreeMap<String, String>, path: &str) {
    let view = serde_json::from_value(json!({"metadata": {"name": "n0", "labels": labels}})).unwrap();
    let read = convert_node(&view, &mut Interner::default());
    assert_eq!(read.notes, Vec::<String>::new(), "{path}");
    assert!(read.node.gpu_model.is_some_and(|model| model.name.starts_with("H100")), "{path}");
    assert_eq!(read.node.mig_config_state, MigConfigState::Success, "{path}");
}

#[test]
fn node_labels_name_their_model() {
    check_labels("inputs/NVIDIA+cloud-native-docs/mig-mixed-node-labels.json", "H100-80GB");
    check_labels("inputs/NVIDIA+cloud-native-docs/mig-node-labels.json", "H100-80GB");
}
