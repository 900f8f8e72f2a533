//! One server process of the control plane: its log, its death, its end.
//!
//! Invariant: no server outlives the test process, however that ends. A test that fails unwinds, and `Drop`
//! kills the server. A test process that is itself killed runs no destructor, so each server has a guard
//! beside it: a shell that reads from a pipe only we hold open. When we are gone the read ends, and the guard
//! kills the server. Both live in process groups of their own, so an interrupt at the terminal reaches the
//! test alone and takes this same path.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

pub struct Process {
    server: Child,
    guard: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `binary` in `dir`; what it prints goes to the end of `log`, so a restarted server keeps its
    /// history.
    pub fn spawn(binary: &Path, args: &[String], dir: &Path, log: PathBuf) -> Result<Self> {
        let out = open_log(&log)?;
        let mut server = Command::new(binary)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("share the log file")?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let guard = spawn_guard(server.id()).inspect_err(|_| end(&mut server))?;
        Ok(Process { server, guard, log })
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// How the server ended, or None while it runs.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.server.try_wait().context("ask after the server process")?;
        if status.is_some() {
            // The kernel may hand the number on from here; the guard must not fire at its next owner.
            end(&mut self.guard);
        }
        Ok(status)
    }

    /// The last `lines` lines of the log.
    pub fn tail(&self, lines: usize) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    pub fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.guard);
        end(&mut self.server);
    }
}

fn open_log(log: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("open the log file {}", log.display()))
}

fn spawn_guard(pid: u32) -> Result<Child> {
    Command::new("sh")
        .args(["-c", "read -r _; kill -KILL \"$1\"", "guard", &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("start the shell that guards a server")
}

/// Kills and reaps. Both calls fail only for a process that has been reaped already.
fn end(process: &mut Child) {
    let _ = process.kill();
    let _ = process.wait();
}
