//! Every figure of the geometry tables against the collected facts, where those are present.

use std::collections::BTreeMap;

use mig_scheduler::mig::tables::MODELS;
use mig_scheduler::mig::{Confidence, GpuModel, ProfileGeometry};
use serde::Deserialize;

use crate::shared;

#[derive(Deserialize)]
struct Facts {
    models: BTreeMap<String, Model>,
}

#[derive(Deserialize)]
struct Model {
    gfd_products: Vec<String>,
    pci: Vec<String>,
    mem_slices: u8,
    compute_slices: u8,
    confidence: String,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    profile: String,
    nvml: String,
    smi_id: u16,
    compute_slices: u8,
    memory_slices: u8,
    starts: Vec<u8>,
    max: u8,
    sm: Option<u16>,
    memory_mib: Option<u32>,
}

#[test]
fn tables_agree_with_the_facts() {
    let Some(text) = shared::text("facts/mig_placements.yaml") else { return };
    let facts: Facts = serde_yaml::from_str(&text).unwrap();
    assert_eq!(facts.models.len(), MODELS.len());
    for (name, fact) in &facts.models {
        check_model(GpuModel::by_name(name).unwrap(), fact);
    }
}

fn check_model(model: &'static GpuModel, fact: &Model) {
    let slices = (model.memory_slices, model.compute_slices);
    assert_eq!(slices, (fact.mem_slices, fact.compute_slices), "{model}");
    assert_eq!(model.confidence == Confidence::Verified, fact.confidence.starts_with("verified"), "{model}");
    for product in &fact.gfd_products {
        let label = product.trim_end_matches(" (old drivers)");
        assert_eq!(GpuModel::by_product_label(label), Ok(model));
    }
    let pci: Vec<_> = model.pci.iter().map(|id| format!("0x{id:08X}")).collect();
    assert_eq!(pci, fact.pci, "{model}");
    assert_eq!(model.profiles.len(), fact.profiles.len(), "{model}");
    for (profile, fact) in model.profiles.iter().zip(&fact.profiles) {
        check_profile(profile, fact);
    }
}

fn check_profile(profile: &ProfileGeometry, fact: &Profile) {
    assert_eq!(profile.name.to_string(), fact.profile);
    assert_eq!(profile.nvml, fact.nvml, "{}", fact.profile);
    assert_eq!(profile.starts.iter().collect::<Vec<_>>(), fact.starts, "{}", fact.profile);
    assert_eq!(
        (profile.smi_id, profile.name.compute_slices(), profile.memory_slices, profile.max),
        (fact.smi_id, fact.compute_slices, fact.memory_slices, fact.max),
        "{}",
        fact.profile
    );
    assert_eq!((profile.sm, profile.memory_mib), (fact.sm, fact.memory_mib), "{}", fact.profile);
}
