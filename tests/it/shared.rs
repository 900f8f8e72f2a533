//! Real layouts, labels and traces that lie beside the repository and are no part of it.
//!
//! Invariant: a test that does not find them says so where it is seen, and fails where `MIG_SCHEDULER_REQUIRE_SHARED` says that
//! they have to be there. A check that silently did not run is worse than none.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Set where the files have to be there.
const REQUIRE: &str = "MIG_SCHEDULER_REQUIRE_SHARED";

/// A file or folder, unless it is absent and may be.
pub fn path(name: &str) -> Option<PathBuf> {
    find(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")),
        name,
        std::env::var_os(REQUIRE).is_some(),
    )
}

/// The text of a file, unless it is absent and may be.
pub fn text(name: &str) -> Option<String> {
    path(name).map(|path| fs::read_to_string(path).unwrap())
}

fn find(folder: &Path, name: &str, required: bool) -> Option<PathBuf> {
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(!required, "{} is not there, and {REQUIRE} is set", path.display());
    // Not by the macro, whose lines are kept from sight when a test passes.
    let _ = writeln!(std::io::stderr(), "NOT CHECKED: {} is not there.", path.display());
    None
}

#[test]
fn what_is_required_has_to_be_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(find(folder, "Cargo.toml", true).is_some());
    assert_eq!(find(folder, "no/such/file (a test of this line)", false), None);
    assert!(std::panic::catch_unwind(|| find(folder, "no/such/file", true)).is_err());
}
