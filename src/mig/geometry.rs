//! GPU models and what each offers: profiles, their legal starts and their size on the memory-slice axis.
//!
//! Invariant: a model is identified or refused by name, never guessed. A wrong model would make every later answer
//! (does it fit, what is free) wrong without a sign of it. The figures are in [`tables`](super::tables).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use thiserror::Error;

use super::placement::Slots;
use super::profile::ProfileName;
use super::tables::MODELS;

/// How well the placements of a model are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// Profiles or their placements rest on a vendor's configuration or on a sibling of the same design.
    Inferred,
    /// Seen printed by real hardware or in NVIDIA's own tables.
    Verified,
}

/// One profile on one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileGeometry {
    /// The profile.
    pub name: ProfileName,
    /// `NVML_GPU_INSTANCE_PROFILE_<this>`: the index that NVML takes.
    pub nvml: &'static str,
    /// The profile id that nvidia-smi prints and takes; it depends on the device and the driver.
    pub smi_id: u16,
    /// Memory slices that an instance occupies, from its start.
    pub memory_slices: u8,
    /// Bit i is set when an instance may start at memory slice i.
    pub starts: Slots,
    /// Most instances of this profile on one GPU.
    pub max: u8,
    /// Streaming multiprocessors of an instance, where known.
    pub sm: Option<u16>,
    /// Memory of an instance in MiB, where known.
    pub memory_mib: Option<u32>,
}

impl ProfileGeometry {
    /// The memory slices of an instance that starts at `start`, legal or not.
    pub const fn window(&self, start: u8) -> Slots {
        Slots::window(start, self.memory_slices)
    }

    /// The legal starts whose windows are free, for a GPU whose `occupied` slices are taken.
    pub fn free_starts(&self, occupied: Slots) -> Slots {
        self.starts.iter().filter(|&start| !self.window(start).overlaps(occupied)).collect()
    }
}

/// Position of a profile in [`GpuModel::profiles`]; meaningful only together with the model that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileIndex(pub u8);

/// A GPU model with MIG; equal and ordered by its name.
#[derive(Debug)]
pub struct GpuModel {
    /// Short name, for example `A100-40GB`.
    pub name: &'static str,
    /// Product names as GPU feature discovery labels them, with the `NVIDIA-` prefix.
    pub products: &'static [&'static str],
    /// PCI device and vendor id as NVML reports it, for example `0x20B010DE`.
    pub pci: &'static [u32],
    /// Length of the memory-slice axis.
    pub memory_slices: u8,
    /// Compute slices of the whole GPU.
    pub compute_slices: u8,
    /// How well the placements are known.
    pub confidence: Confidence,
    /// Profiles from small to large, variants after their base.
    pub profiles: &'static [ProfileGeometry],
}

impl GpuModel {
    /// Finds a model by its short name.
    pub fn by_name(name: &str) -> Result<&'static GpuModel, UnknownModel> {
        find(name, |model| model.name == name)
    }

    /// Finds the model behind a `nvidia.com/gpu.product` label.
    ///
    /// The single strategy appends `-MIG-<profile>` (or `-MIG-INVALID`) and sharing appends `-SHARED`; old drivers omit
    /// `NVIDIA-`. What remains must be a known product in full: `NVIDIA-H100-80GB-HBM3` and `NVIDIA-H100-96GB-HBM3`
    /// differ in every profile.
    pub fn by_product_label(label: &str) -> Result<&'static GpuModel, UnknownModel> {
        let whole = label.strip_suffix("-SHARED").unwrap_or(label);
        let product = bare(whole.split_once("-MIG-").map_or(whole, |(product, _)| product));
        find(label, |model| model.products.iter().any(|known| bare(known) == product))
    }

    /// Finds a model by PCI device and vendor id, for example `0x20B010DE`.
    pub fn by_pci(id: u32) -> Result<&'static GpuModel, UnknownModel> {
        MODELS
            .iter()
            .find(|model| model.pci.contains(&id))
            .ok_or_else(|| UnknownModel { value: format!("0x{id:08X}") })
    }

    /// What `name` is on this model.
    pub fn profile(&self, name: ProfileName) -> Result<&'static ProfileGeometry, UnknownProfile> {
        self.profiles.iter().find(|profile| profile.name == name).ok_or_else(|| self.unknown(name))
    }

    /// The position of `name`, for the tables that are indexed by it.
    pub fn index_of(&self, name: ProfileName) -> Result<ProfileIndex, UnknownProfile> {
        (0u8..)
            .zip(self.profiles)
            .find(|(_, profile)| profile.name == name)
            .map(|(index, _)| ProfileIndex(index))
            .ok_or_else(|| self.unknown(name))
    }

    /// Every memory slice of the GPU.
    pub const fn all_slots(&self) -> Slots {
        Slots::window(0, self.memory_slices)
    }

    fn unknown(&self, name: ProfileName) -> UnknownProfile {
        let known = self.profiles.iter().map(|profile| profile.name).collect();
        UnknownProfile { model: self.name, profile: name, known }
    }
}

impl PartialEq for GpuModel {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for GpuModel {}

impl PartialOrd for GpuModel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GpuModel {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl Hash for GpuModel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A GPU that the tables do not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown GPU model `{value}`: known are {}", listed(MODELS.iter().map(|model| model.name)))]
pub struct UnknownModel {
    /// The name, product label or PCI id as it was given.
    pub value: String,
}

/// A profile that a model does not offer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{model} has no profile `{profile}`: it has {}", listed(known))]
pub struct UnknownProfile {
    /// The model's short name.
    pub model: &'static str,
    /// What was asked for.
    pub profile: ProfileName,
    /// What there is.
    pub known: Vec<ProfileName>,
}

fn find(value: &str, matches: impl Fn(&GpuModel) -> bool) -> Result<&'static GpuModel, UnknownModel> {
    MODELS.iter().find(|model| matches(model)).ok_or_else(|| UnknownModel { value: value.to_owned() })
}

/// A product name without the prefix that old drivers omit.
fn bare(product: &str) -> &str {
    product.strip_prefix("NVIDIA-").unwrap_or(product)
}

fn listed<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check_label(label: &str, expected: Option<&str>) {
        let found = GpuModel::by_product_label(label);
        assert_eq!(found.as_ref().map(|model| model.name).ok(), expected, "{label}");
        if let Err(error) = found {
            assert!(
                error.to_string().starts_with(&format!("unknown GPU model `{label}`: known are A100-40GB"))
            );
        }
    }

    #[test]
    fn product_labels_name_one_model_or_none() {
        check_label("NVIDIA-A100-SXM4-40GB", Some("A100-40GB"));
        check_label("A100-SXM4-40GB", Some("A100-40GB"));
        check_label("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", Some("A100-40GB"));
        check_label("A100-PCIE-40GB-MIG-1g.5gb.me", Some("A100-40GB"));
        check_label("NVIDIA-A100-80GB-PCIe-SHARED", Some("A100-80GB"));
        check_label("NVIDIA-H100-80GB-HBM3-MIG-INVALID", Some("H100-80GB"));
        check_label("NVIDIA-H100-PCIe", Some("H100-80GB"));
        check_label("NVIDIA-H100-96GB-HBM3", Some("H100-96GB/GH200-96GB/H20"));
        check_label("NVIDIA-H100-NVL-MIG-3g.47gb", Some("H100-NVL-94GB"));
        check_label("NVIDIA-H200-NVL", Some("H200-141GB"));
        check_label("NVIDIA-H20", Some("H100-96GB/GH200-96GB/H20"));
        check_label("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", Some("RTX-PRO-6000-96GB"));
        for unknown in
            ["", "NVIDIA-", "NVIDIA-H100", "NVIDIA-H100-80GB-HBM3e", "NVIDIA-H2", "Tesla-T4", "NVIDIA-A10"]
        {
            check_label(unknown, None);
        }
    }

    #[test]
    fn pci_ids_name_one_model_or_none() {
        assert_eq!(GpuModel::by_pci(0x20B0_10DE).unwrap().name, "A100-40GB");
        assert_eq!(GpuModel::by_pci(0x2BB5_10DE).unwrap().name, "RTX-PRO-6000-96GB");
        let error = GpuModel::by_pci(0x1EB8_10DE).unwrap_err().to_string();
        assert!(error.starts_with("unknown GPU model `0x1EB810DE`"), "{error}");
    }

    /// Names, products, PCI ids and profiles identify; every window lies on the axis.
    #[test]
    fn the_tables_are_consistent() {
        fn distinct<T: Ord>(items: impl Iterator<Item = T> + Clone) -> bool {
            items.clone().collect::<BTreeSet<_>>().len() == items.count()
        }
        assert!(distinct(MODELS.iter().map(|model| model.name)));
        assert!(distinct(MODELS.iter().flat_map(|model| model.products)));
        assert!(distinct(MODELS.iter().flat_map(|model| model.pci)));
        for model in &MODELS {
            assert!(distinct(model.profiles.iter().map(|profile| profile.name)));
            assert!(distinct(model.profiles.iter().map(|profile| profile.smi_id)));
            for (index, profile) in (0..).map(ProfileIndex).zip(model.profiles) {
                assert_eq!(model.profile(profile.name), Ok(profile));
                assert_eq!(model.index_of(profile.name), Ok(index));
                for start in profile.starts.iter() {
                    let window = profile.window(start);
                    assert_eq!(window.len(), profile.memory_slices);
                    assert!(window.minus(model.all_slots()).is_empty(), "{model} {} {window}", profile.name);
                }
            }
        }
    }
}
