//! The binary as a user calls it: what goes to stdout, what to stderr, and the exit code.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exit code, stdout and stderr of a call.
fn call(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mig-scheduler")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn default_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scheduler-config/scheduler-config.yaml")
}

#[test]
fn a_good_file_gives_one_line_and_exit_code_0() {
    let path = default_file();
    let (code, out, err) = call(&["config", "check", path.to_str().unwrap()]);
    let expected = format!("{}: valid; schedules pods with schedulerName mig-scheduler\n", path.display());
    assert_eq!((code, out, err), (0, expected, String::new()));
}

#[test]
fn a_bad_file_gives_one_line_on_stderr_and_exit_code_2() {
    let (code, out, err) = call(&["config", "check", "no/such.yaml"]);
    let expected =
        "error: no/such.yaml: no such file; print a complete one with `mig-scheduler config default`\n";
    assert_eq!((code, out.as_str(), err.as_str()), (2, "", expected));
}

#[test]
fn the_printed_default_passes_the_check() {
    let (code, out, _) = call(&["config", "default"]);
    assert_eq!(code, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("default.yaml");
    std::fs::write(&path, out).unwrap();
    assert_eq!(call(&["config", "check", path.to_str().unwrap()]).0, 0);
}

#[test]
fn the_schema_is_json() {
    let (code, out, _) = call(&["config", "schema"]);
    assert_eq!(code, 0);
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap().is_object());
}

#[test]
fn wrong_usage_ends_with_2_and_help_with_0() {
    for wrong in [
        &["conf"][..],
        &["config", "check"],
        &["run", "--log-format", "xml"],
        &["--log-format", "text", "simulate"],
        &[],
    ] {
        assert_eq!(call(wrong).0, 2, "{wrong:?}");
    }
    for help in [&["--help"][..], &["--version"], &["config", "check", "--help"]] {
        assert_eq!(call(help).0, 0, "{help:?}");
    }
}

#[test]
fn a_reader_that_closes_its_pipe_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mig-scheduler"))
        .args(["config", "schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
