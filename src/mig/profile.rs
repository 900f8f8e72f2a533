//! The name of a MIG profile, read from every spelling in use and written in two.
//!
//! Invariant: two values are equal exactly when they mean the same profile. NVML and mig-parted write `1g.5gb+me`, the
//! device plugin's resource is `nvidia.com/mig-1g.5gb.me`, a layout is called `all-1g.5gb.me`, and one driver reports
//! `7g.79gb` where another reports `7g.80gb`. All of that is settled while parsing, so that no other module compares
//! strings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the device plugin's mixed strategy puts before a profile (k8s-device-plugin `internal/rm/rm.go`).
pub const RESOURCE_PREFIX: &str = "nvidia.com/mig-";

/// What mig-parted puts before a profile to name the layout of a GPU that holds nothing else.
const CONFIG_PREFIX: &str = "all-";

/// Sizes that only differ because an older driver rounds the memory size another way: (reported, canonical).
///
/// NVIDIA computes the size in a name from the instance's memory (go-nvlib `mig_profile.go`), which made early drivers
/// call the whole A100-80GB and H100-80GB `7g.79gb`.
const SIZE_ALIASES: [((u8, u16), (u8, u16)); 1] = [((7, 79), (7, 80))];

/// Media or graphics capability that a profile adds to, or takes from, its base profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attribute {
    /// The base profile, without a suffix.
    None,
    /// `+me`: with the media extensions (JPEG and optical flow engines), which a GPU has once.
    Me,
    /// `+gfx`: with graphics.
    Gfx,
    /// `+me.all`: with all media engines of the GPU.
    MeAll,
    /// `-me`: without media engines.
    NoMe,
}

impl Attribute {
    const SUFFIXED: [Attribute; 4] = [Attribute::Me, Attribute::Gfx, Attribute::MeAll, Attribute::NoMe];

    /// NVIDIA's suffix of the profile name, sign included.
    pub const fn suffix(self) -> &'static str {
        match self {
            Attribute::None => "",
            Attribute::Me => "+me",
            Attribute::Gfx => "+gfx",
            Attribute::MeAll => "+me.all",
            Attribute::NoMe => "-me",
        }
    }

    /// Reads a suffix whose `+` may have been replaced by `.`.
    fn from_suffix(suffix: &str) -> Option<Attribute> {
        if suffix.is_empty() {
            return Some(Attribute::None);
        }
        let added = suffix.strip_prefix(['+', '.']);
        Self::SUFFIXED.into_iter().find(|attribute| match attribute.suffix().strip_prefix('+') {
            Some(name) => added == Some(name),
            None => suffix == attribute.suffix(),
        })
    }
}

/// A MIG profile such as `3g.20gb` or `1g.5gb+me`, independent of the GPU model.
///
/// Ordered by compute slices, then memory, then attribute: smallest first. In documents it is a text in NVIDIA's own spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileName {
    compute_slices: u8,
    memory_gb: u16,
    attribute: Attribute,
}

impl ProfileName {
    /// Makes the name of a profile; a size that is an alias becomes the canonical size.
    pub const fn new(compute_slices: u8, memory_gb: u16, attribute: Attribute) -> Self {
        let mut at = 0;
        while at < SIZE_ALIASES.len() {
            let (reported, canonical) = SIZE_ALIASES[at];
            if reported.0 == compute_slices && reported.1 == memory_gb {
                return Self { compute_slices: canonical.0, memory_gb: canonical.1, attribute };
            }
            at += 1;
        }
        Self { compute_slices, memory_gb, attribute }
    }

    /// Reads the name of an extended resource; `None` when the resource is not a MIG instance at all.
    pub fn from_resource(resource: &str) -> Option<Result<Self, ParseProfileError>> {
        resource.strip_prefix(RESOURCE_PREFIX).map(|profile| parse(profile, resource))
    }

    /// Reads the name of a mig-parted configuration that cuts a GPU into one profile, such as `all-1g.5gb.me`; `None` for
    /// one of another kind: `all-balanced`, `all-disabled`, a name of the operator's own.
    pub fn from_config_name(config: &str) -> Option<Self> {
        parse(config.strip_prefix(CONFIG_PREFIX)?, config).ok()
    }

    /// Compute slices, the number before `g`.
    pub const fn compute_slices(self) -> u8 {
        self.compute_slices
    }

    /// Nominal memory in GB, the number before `gb`; the exact size is the model's [`memory_mib`].
    ///
    /// [`memory_mib`]: crate::mig::ProfileGeometry::memory_mib
    pub const fn memory_gb(self) -> u16 {
        self.memory_gb
    }

    /// The capability that the suffix names.
    pub const fn attribute(self) -> Attribute {
        self.attribute
    }

    /// The same slices without a suffix.
    pub const fn base(self) -> Self {
        Self { attribute: Attribute::None, ..self }
    }

    /// Whether the name has no suffix.
    pub const fn is_base(self) -> bool {
        matches!(self.attribute, Attribute::None)
    }

    /// The extended resource that the device plugin advertises with the mixed strategy: `+` is written as `.`, `-me`
    /// stays as it is.
    pub fn resource_name(self) -> String {
        format!("{RESOURCE_PREFIX}{self}").replace('+', ".")
    }
}

/// NVIDIA's own spelling, as NVML and mig-parted write it.
impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}g.{}gb{}", self.compute_slices, self.memory_gb, self.attribute.suffix())
    }
}

/// Accepts NVIDIA's spelling, the resource name, and the resource's suffix with or without `mig-`.
impl FromStr for ProfileName {
    type Err = ParseProfileError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let profile = value.strip_prefix("nvidia.com/").unwrap_or(value);
        parse(profile.strip_prefix("mig-").unwrap_or(profile), value)
    }
}

impl TryFrom<String> for ProfileName {
    type Error = ParseProfileError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ProfileName> for String {
    fn from(profile: ProfileName) -> String {
        profile.to_string()
    }
}

/// Why a text is not the name of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseProfileError {
    /// Not of the form `<compute>g.<memory>gb`.
    #[error("`{value}` is not a MIG profile: write it as `1g.5gb` or `1g.5gb+me`")]
    Malformed {
        /// The text as it was given.
        value: String,
    },
    /// A compute instance inside a GPU instance: the device plugin does not expose those.
    #[error(
        "`{value}` is a compute instance inside a larger GPU instance: ask for a whole one such as `3g.20gb`"
    )]
    ComputeInstance {
        /// The text as it was given.
        value: String,
    },
    /// A suffix that NVIDIA does not document.
    #[error("`{value}` has the unknown suffix `{suffix}`: known are +me, +gfx, +me.all and -me")]
    UnknownAttribute {
        /// The text as it was given.
        value: String,
        /// What follows `gb`.
        suffix: String,
    },
}

/// Parses `profile`; `value` is the whole text, for the error.
fn parse(profile: &str, value: &str) -> Result<ProfileName, ParseProfileError> {
    let value = || value.to_owned();
    let malformed = || ParseProfileError::Malformed { value: value() };
    let (first, rest) = profile.split_once('.').ok_or_else(malformed)?;
    if count(first, "c").is_some() {
        return Err(ParseProfileError::ComputeInstance { value: value() });
    }
    let compute_slices = count(first, "g").and_then(|n| u8::try_from(n).ok()).ok_or_else(malformed)?;
    let unit = rest.find("gb").ok_or_else(malformed)?;
    let (memory, suffix) = rest.split_at(unit + "gb".len());
    let memory_gb = count(memory, "gb").ok_or_else(malformed)?;
    let attribute = Attribute::from_suffix(suffix)
        .ok_or_else(|| ParseProfileError::UnknownAttribute { value: value(), suffix: suffix.to_owned() })?;
    Ok(ProfileName::new(compute_slices, memory_gb, attribute))
}

/// Reads a positive number in plain digits before `unit`.
fn count(text: &str, unit: &str) -> Option<u16> {
    let digits = text.strip_suffix(unit)?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(spellings: &[&str], display: &str, resource: &str) {
        for spelling in spellings {
            let name: ProfileName = spelling.parse().unwrap();
            assert_eq!(name.to_string(), display, "{spelling}");
            assert_eq!(name.resource_name(), resource, "{spelling}");
        }
        assert_eq!(ProfileName::from_resource(resource).unwrap().unwrap().to_string(), display);
    }

    #[test]
    fn every_spelling_is_one_value() {
        check(&["1g.5gb", "mig-1g.5gb", "nvidia.com/mig-1g.5gb"], "1g.5gb", "nvidia.com/mig-1g.5gb");
        check(&["1g.5gb+me", "1g.5gb.me", "mig-1g.5gb.me"], "1g.5gb+me", "nvidia.com/mig-1g.5gb.me");
        check(&["2g.48gb+gfx", "2g.48gb.gfx"], "2g.48gb+gfx", "nvidia.com/mig-2g.48gb.gfx");
        check(&["1g.24gb+me.all", "1g.24gb.me.all"], "1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all");
        check(&["1g.24gb-me", "mig-1g.24gb-me"], "1g.24gb-me", "nvidia.com/mig-1g.24gb-me");
        check(&["7g.79gb", "nvidia.com/mig-7g.79gb", "7g.80gb"], "7g.80gb", "nvidia.com/mig-7g.80gb");
    }

    fn check_refused(value: &str, names: &str) {
        let error = value.parse::<ProfileName>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{value}`")) && error.contains(names), "{error}");
    }

    #[test]
    fn refusals_name_the_value_and_the_fix() {
        for value in [
            "",
            "gpu",
            "1g",
            "1g.gb",
            "g.5gb",
            "0g.5gb",
            "01g.5gb",
            "+1g.5gb",
            "1g.5",
            "300g.5gb",
            "1g.99999gb",
        ] {
            check_refused(value, "write it as");
        }
        check_refused("1c.3g.20gb", "compute instance");
        check_refused("1g.5gb+foo", "`+foo`");
        check_refused("nvidia.com/mig-1g.5gb.shared", "`.shared`");
        check_refused("1g.5gb.-me", "`.-me`");
    }

    #[test]
    fn only_mig_resources_are_profiles() {
        for resource in ["cpu", "nvidia.com/gpu", "mig-1g.5gb", "amd.com/mig-1g.5gb"] {
            assert_eq!(ProfileName::from_resource(resource), None, "{resource}");
        }
        assert!(ProfileName::from_resource("nvidia.com/mig-banana").unwrap().is_err());
    }

    #[test]
    fn configurations_of_one_profile_name_it() {
        let check = |config: &str, expected: Option<&str>| {
            let found = ProfileName::from_config_name(config).map(|name| name.to_string());
            assert_eq!(found.as_deref(), expected, "{config}");
        };
        check("all-1g.5gb", Some("1g.5gb"));
        check("all-1g.5gb.me", Some("1g.5gb+me"));
        check("all-1g.5gb+me", Some("1g.5gb+me"));
        check("all-1g.24gb-me", Some("1g.24gb-me"));
        check("all-2g.48gb.gfx", Some("2g.48gb+gfx"));
        check("all-1g.24gb.me.all", Some("1g.24gb+me.all"));
        check("all-7g.79gb", Some("7g.80gb"));
        for other in
            ["all-balanced", "all-disabled", "all-enabled", "1g.5gb", "all-", "custom", "all-all-1g.5gb"]
        {
            check(other, None);
        }
    }

    proptest! {
        #[test]
        fn writing_and_reading_are_inverse(compute in 1u8.., memory in 1u16.., at in 0usize..4) {
            let name = ProfileName::new(compute, memory, Attribute::SUFFIXED[at]);
            prop_assert_eq!(name.to_string().parse(), Ok(name));
            prop_assert_eq!(ProfileName::from_resource(&name.resource_name()), Some(Ok(name)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,24}") {
            let _ = text.parse::<ProfileName>();
        }
    }
}
