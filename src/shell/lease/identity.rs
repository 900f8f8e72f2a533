//! The name a replica stands for election under.
//!
//! Invariant: no two processes ever share it, also not two on one host or one after the other in the same pod: a process
//! that read its own name in the Lease of its predecessor would believe to lead. It begins with the host's name, which is
//! the pod's name in a cluster, for people.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

/// Where Linux keeps the host's name.
const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";

/// A new identity, such as `mig-scheduler-7d4b9c-x2x7z_5be1f0d3a4c2e687`.
pub fn identity() -> String {
    format!("{}_{:016x}", hostname(), random_bits())
}

fn hostname() -> String {
    let from_kernel = std::fs::read_to_string(HOSTNAME_FILE).ok();
    let name = from_kernel.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    match name.trim() {
        "" => "unknown-host".to_owned(),
        name => name.to_owned(),
    }
}

/// 64 bits that differ by process, time and call. The hasher's keys come from the operating system's random source.
fn random_bits() -> u64 {
    RandomState::new().hash_one((std::process::id(), SystemTime::now()))
}

/// A number in 0.0..1.0 to spread retries with.
pub(super) fn random_fraction() -> f64 {
    (random_bits() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_differ_and_name_the_host() {
        let (a, b) = (identity(), identity());
        assert_ne!(a, b);
        assert_eq!(a.rsplit_once('_').unwrap().0, hostname());
    }

    #[test]
    fn fractions_stay_in_range() {
        assert!((0..1000).map(|_| random_fraction()).all(|x| (0.0..1.0).contains(&x)));
    }
}
