//! The figures of every GPU model with MIG that this scheduler knows.
//!
//! Invariant: a figure here comes from NVIDIA (user guide, NVML, GPU Operator's layout table) or from output of real
//! hardware; what nobody has printed is `None` or marks the model [`Confidence::Inferred`]. Starts are those of
//! `nvidia-smi mig -lgipp`, on the memory-slice axis.
//!
//! All data-centre models with seven compute slices share one geometry of eight memory slices and differ in sizes
//! only, so [`eight_slices`] holds that geometry once. The A30 has four slices. The RTX PRO 6000 counts twelve memory
//! slices, three to each of its four compute slices.

use super::geometry::{Confidence, GpuModel, ProfileGeometry};
use super::placement::Slots;
use super::profile::{Attribute, ProfileName};

use Attribute::{Gfx, Me, MeAll, NoMe, None as Base};
use Confidence::{Inferred, Verified};

/// Every model, large families first.
pub static MODELS: [GpuModel; 13] = [
    seven_compute_slices(
        "A100-40GB",
        &["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"],
        &[0x20B0_10DE, 0x20B1_10DE, 0x20F1_10DE, 0x20F6_10DE],
        Verified,
        &eight_slices(
            [5, 10, 10, 20, 20, 40],
            known_sm([14, 14, 28, 42, 56, 98]),
            known_mib([4864, 9856, 9856, 19968, 19968, 40192]),
        ),
    ),
    seven_compute_slices(
        "A100-80GB",
        &["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"],
        &[0x20B2_10DE, 0x20B5_10DE, 0x20F3_10DE, 0x20F5_10DE],
        Verified,
        &eight_slices(
            [10, 20, 20, 40, 40, 80],
            known_sm([14, 14, 28, 42, 56, 98]),
            known_mib([9856, 19968, 19968, 40192, 40192, 80384]),
        ),
    ),
    seven_compute_slices(
        "H100-80GB",
        &["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"],
        &[0x2330_10DE, 0x2331_10DE, 0x2322_10DE, 0x2324_10DE],
        Verified,
        &eight_slices(
            [10, 20, 20, 40, 40, 80],
            known_sm([16, 26, 32, 60, 64, 132]),
            known_mib([9984, 20096, 20096, 40320, 40448, 81152]),
        ),
    ),
    seven_compute_slices(
        "H100-NVL-94GB",
        &["NVIDIA-H100-NVL"],
        &[0x2321_10DE, 0x233A_10DE],
        Verified,
        &eight_slices(
            [12, 24, 24, 47, 47, 94],
            known_sm([16, 26, 32, 60, 64, 132]),
            known_mib([11008, 22144, 22144, 47488, 47488, 95360]),
        ),
    ),
    seven_compute_slices(
        "H100-96GB/GH200-96GB/H20",
        &["NVIDIA-GH200-480GB", "NVIDIA-H100-96GB-HBM3", "NVIDIA-H20"],
        &[0x2342_10DE, 0x233D_10DE, 0x20B6_10DE, 0x2329_10DE],
        Inferred,
        &eight_slices([12, 24, 24, 48, 48, 96], UNKNOWN_SM, UNKNOWN_MIB),
    ),
    seven_compute_slices(
        "GH200-144GB",
        &["NVIDIA-GH200-144G-HBM3e"],
        &[0x2348_10DE],
        Inferred,
        &eight_slices([18, 36, 36, 72, 72, 144], UNKNOWN_SM, UNKNOWN_MIB),
    ),
    seven_compute_slices(
        "H200-141GB",
        &["NVIDIA-H200", "NVIDIA-H200-NVL"],
        &[0x2335_10DE, 0x233B_10DE],
        Inferred,
        &eight_slices(
            [18, 35, 35, 71, 71, 141],
            known_sm([16, 26, 32, 60, 64, 132]),
            [Some(16384), Some(33280), Some(33280), None, None, Some(143360)],
        ),
    ),
    seven_compute_slices(
        "B200-180GB",
        &["NVIDIA-B200"],
        &[0x2901_10DE],
        Inferred,
        &eight_slices([23, 45, 45, 90, 90, 180], [Some(18), None, Some(36), None, None, None], UNKNOWN_MIB),
    ),
    seven_compute_slices(
        "GB200-186GB",
        &["NVIDIA-GB200"],
        &[0x2941_10DE],
        Inferred,
        &eight_slices([23, 47, 47, 93, 93, 186], UNKNOWN_SM, UNKNOWN_MIB),
    ),
    seven_compute_slices(
        "B300-269GB",
        &["NVIDIA-B300"],
        &[0x3182_10DE],
        Inferred,
        &eight_slices([34, 67, 67, 135, 135, 269], UNKNOWN_SM, UNKNOWN_MIB),
    ),
    seven_compute_slices(
        "GB300-278GB",
        &["NVIDIA-GB300"],
        &[0x31C2_10DE],
        Inferred,
        &eight_slices([35, 70, 70, 139, 139, 278], UNKNOWN_SM, UNKNOWN_MIB),
    ),
    GpuModel {
        name: "A30-24GB",
        products: &["NVIDIA-A30"],
        pci: &[0x20B7_10DE],
        memory_slices: 4,
        compute_slices: 4,
        confidence: Verified,
        profiles: &[
            profile(1, 6, Base, "1_SLICE", 14, 1, &[0, 1, 2, 3], 4, Some(14), Some(5952)),
            profile(1, 6, Me, "1_SLICE_REV1", 21, 1, &[0, 1, 2, 3], 1, Some(14), Some(5952)),
            profile(2, 12, Base, "2_SLICE", 5, 2, &[0, 2], 2, Some(28), Some(11968)),
            profile(2, 12, Me, "2_SLICE_REV1", 6, 2, &[0, 2], 1, Some(28), Some(11968)),
            profile(4, 24, Base, "4_SLICE", 0, 4, &[0], 1, Some(56), Some(24000)),
        ],
    },
    GpuModel {
        name: "RTX-PRO-6000-96GB",
        products: &["NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"],
        pci: &[0x2BB5_10DE],
        memory_slices: 12,
        compute_slices: 4,
        confidence: Verified,
        profiles: &[
            profile(1, 24, Base, "1_SLICE", 14, 3, &[0, 3, 6, 9], 4, Some(46), Some(24192)),
            profile(1, 24, Me, "1_SLICE_REV1", 21, 3, &[0, 3, 6, 9], 1, Some(46), Some(24192)),
            profile(1, 24, Gfx, "1_SLICE_GFX", 47, 3, &[0, 3, 6, 9], 4, Some(46), Some(24192)),
            profile(1, 24, MeAll, "1_SLICE_ALL_ME", 65, 3, &[0, 3, 6, 9], 1, Some(46), Some(24192)),
            profile(1, 24, NoMe, "1_SLICE_NO_ME", 67, 3, &[0, 3, 6, 9], 4, Some(46), Some(24192)),
            profile(2, 48, Base, "2_SLICE", 5, 6, &[0, 6], 2, Some(94), Some(48512)),
            profile(2, 48, Gfx, "2_SLICE_GFX", 35, 6, &[0, 6], 2, Some(94), Some(48512)),
            profile(2, 48, MeAll, "2_SLICE_ALL_ME", 64, 6, &[0, 6], 1, Some(94), Some(48512)),
            profile(2, 48, NoMe, "2_SLICE_NO_ME", 66, 6, &[0, 6], 2, Some(94), Some(48512)),
            profile(4, 96, Base, "4_SLICE", 0, 12, &[0], 1, Some(188), Some(97408)),
            profile(4, 96, Gfx, "4_SLICE_GFX", 32, 12, &[0], 1, Some(188), Some(97408)),
        ],
    },
];

const UNKNOWN_SM: [Option<u16>; 6] = [None; 6];
const UNKNOWN_MIB: [Option<u32>; 6] = [None; 6];

/// A model with the common geometry of eight memory and seven compute slices.
const fn seven_compute_slices(
    name: &'static str,
    products: &'static [&'static str],
    pci: &'static [u32],
    confidence: Confidence,
    profiles: &'static [ProfileGeometry],
) -> GpuModel {
    GpuModel { name, products, pci, memory_slices: 8, compute_slices: 7, confidence, profiles }
}

/// The seven profiles of that geometry. Sizes in GB, SMs and MiB are of 1g, 1g with double memory, 2g, 3g, 4g and 7g;
/// `1g+me` has the figures of 1g.
const fn eight_slices(gb: [u16; 6], sm: [Option<u16>; 6], mib: [Option<u32>; 6]) -> [ProfileGeometry; 7] {
    [
        profile(1, gb[0], Base, "1_SLICE", 19, 1, &[0, 1, 2, 3, 4, 5, 6], 7, sm[0], mib[0]),
        profile(1, gb[0], Me, "1_SLICE_REV1", 20, 1, &[0, 1, 2, 3, 4, 5, 6], 1, sm[0], mib[0]),
        profile(1, gb[1], Base, "1_SLICE_REV2", 15, 2, &[0, 2, 4, 6], 4, sm[1], mib[1]),
        profile(2, gb[2], Base, "2_SLICE", 14, 2, &[0, 2, 4], 3, sm[2], mib[2]),
        profile(3, gb[3], Base, "3_SLICE", 9, 4, &[0, 4], 2, sm[3], mib[3]),
        profile(4, gb[4], Base, "4_SLICE", 5, 4, &[0], 1, sm[4], mib[4]),
        profile(7, gb[5], Base, "7_SLICE", 0, 8, &[0], 1, sm[5], mib[5]),
    ]
}

/// One row of a table, in the order of nvidia-smi's own columns.
#[allow(clippy::too_many_arguments)]
const fn profile(
    compute_slices: u8,
    memory_gb: u16,
    attribute: Attribute,
    nvml: &'static str,
    smi_id: u16,
    memory_slices: u8,
    starts: &[u8],
    max: u8,
    sm: Option<u16>,
    memory_mib: Option<u32>,
) -> ProfileGeometry {
    let name = ProfileName::new(compute_slices, memory_gb, attribute);
    ProfileGeometry { name, nvml, smi_id, memory_slices, starts: slots(starts), max, sm, memory_mib }
}

const fn slots(slices: &[u8]) -> Slots {
    let (mut set, mut at) = (Slots::EMPTY, 0);
    while at < slices.len() {
        set = set.union(Slots::window(slices[at], 1));
        at += 1;
    }
    set
}

const fn known_sm(sm: [u16; 6]) -> [Option<u16>; 6] {
    [Some(sm[0]), Some(sm[1]), Some(sm[2]), Some(sm[3]), Some(sm[4]), Some(sm[5])]
}

const fn known_mib(mib: [u32; 6]) -> [Option<u32>; 6] {
    [Some(mib[0]), Some(mib[1]), Some(mib[2]), Some(mib[3]), Some(mib[4]), Some(mib[5])]
}
