//! The scheduler under test: the real binary as a process, with its log, its pages and its end.
//!
//! Invariant: a test that went well has ended each scheduler on purpose, by [`Scheduler::stop`], [`Scheduler::kill`] or
//! [`Scheduler::exit`]. One that is dropped otherwise belongs to a failed test and shows how its log ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, MIG_SCHEDULER, Process, TAIL};

/// The name that pods of ours carry.
pub const SCHEDULER_NAME: &str = "mig-scheduler";

/// The binary that this test was built with.
pub const BINARY: &str = env!("CARGO_BIN_EXE_mig-scheduler");

/// The first lists of 5,000 nodes and pods take seconds on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// A little more than the longest that the scheduler takes to stop: binds 10 s, events 5 s, the lease 8 s.
pub const DRAINED_WITHIN: Duration = Duration::from_secs(25);
const POLL: Duration = Duration::from_millis(20);

/// How long the lease is held and how soon its loss is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lease {
    /// 15 s, 10 s, 2 s.
    #[default]
    AsShipped,
    /// 5 s, 4 s, 0.5 s: where a test waits for a lease to run out.
    Short,
    /// 60 s, 50 s, 2 s: where the API server is away for as long as a busy machine needs to start it.
    Long,
}

impl Lease {
    fn settings(self) -> Option<(Value, &'static str)> {
        let election = |lease: &str, renew: &str, retry: &str| json!({"leaseDuration": lease, "renewDeadline": renew, "retryPeriod": retry});
        match self {
            Lease::AsShipped => None,
            Lease::Short => Some((election("5s", "4s", "500ms"), "900ms")),
            Lease::Long => Some((election("60s", "50s", "2s"), "4s")),
        }
    }
}

/// A running scheduler.
pub struct Scheduler {
    /// None once it has ended.
    process: Option<Process>,
    name: String,
    port: u16,
    log: PathBuf,
}

impl Scheduler {
    /// Starts a scheduler of this name (for its files) as its own user and waits until it is ready.
    pub async fn start(plane: &ControlPlane, name: &str, lease: Lease) -> Result<Self> {
        let mut scheduler = Scheduler::launch(plane, name, lease)?;
        scheduler.wait_until_ready().await?;
        Ok(scheduler)
    }

    /// [`Scheduler::start`] with these fields of the configuration in the place of the shipped ones.
    pub async fn start_with(plane: &ControlPlane, name: &str, lease: Lease, settings: Value) -> Result<Self> {
        let port = free_port()?;
        let config = write_config(plane.dir(), name, port, lease)?;
        let mut document: Value = serde_json::from_str(&fs::read_to_string(&config)?)?;
        for (field, value) in settings.as_object().into_iter().flatten() {
            document[field] = value.clone();
        }
        fs::write(&config, document.to_string()).context("write the settings")?;
        let kubeconfig = plane.kubeconfig_for(MIG_SCHEDULER)?;
        let mut scheduler = Scheduler::spawn(plane.dir(), name, port, &config, &kubeconfig)?;
        scheduler.wait_until_ready().await?;
        Ok(scheduler)
    }

    /// Starts it and does not wait.
    pub fn launch(plane: &ControlPlane, name: &str, lease: Lease) -> Result<Self> {
        let port = free_port()?;
        let config = write_config(plane.dir(), name, port, lease)?;
        Scheduler::spawn(plane.dir(), name, port, &config, &plane.kubeconfig_for(MIG_SCHEDULER)?)
    }

    /// Starts it with these two files.
    pub fn spawn(dir: &Path, name: &str, port: u16, config: &Path, kubeconfig: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let args = [
            "run".to_owned(),
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let process = Process::spawn(Path::new(BINARY), &args, dir, log.clone())?;
        Ok(Scheduler { process: Some(process), name: name.to_owned(), port, log })
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let seen = match self.page("/readyz") {
                Ok((200, _)) => return Ok(()),
                Ok((code, body)) => format!("{code}: {body}"),
                Err(error) => format!("{error:#}"),
            };
            let process = self.process.as_mut().context("it was started")?;
            if let Some(status) = process.exited()? {
                bail!("{} ended ({status}) before it was ready", self.name);
            }
            ensure!(Instant::now() < deadline, "{} is not ready after {READY_WITHIN:?}: {seen}", self.name);
            tokio::time::sleep(POLL).await;
        }
    }

    /// Status code and text of one of its pages.
    pub fn page(&self, path: &str) -> Result<(u16, String)> {
        get(self.port, path).with_context(|| format!("GET {path} of {}", self.name))
    }

    /// The sum of the samples of a metric whose labels contain all of `labels`, such as `result="scheduled"`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let (code, text) = self.page("/metrics")?;
        ensure!(code == 200, "{code}: {text}");
        let matching =
            samples(&text, name).filter(|(found, _)| labels.iter().all(|label| found.contains(label)));
        Ok(matching.map(|(_, value)| value).sum())
    }

    /// Whether it holds the lease.
    pub fn leads(&self) -> Result<bool> {
        let (_, text) = self.page("/statusz")?;
        let status: Value = serde_json::from_str(&text).context("read /statusz")?;
        status["leader"].as_bool().ok_or_else(|| anyhow!("/statusz says {status}"))
    }

    /// Asks it to stop, as Kubernetes does.
    pub fn terminate(&self) -> Result<()> {
        let pid = self.pid().context("it has ended already")?;
        let sent = Command::new("kill").args(["-TERM", &pid.to_string()]).status().context("run kill")?;
        ensure!(sent.success(), "kill: {sent}");
        Ok(())
    }

    /// Waits until it ends by itself.
    pub async fn exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        let process = self.process.as_mut().context("it has ended already")?;
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = process.exited()? {
                self.process = None;
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "{} still runs after {limit:?}", self.name);
            tokio::time::sleep(POLL).await;
        }
    }

    /// Asks it to stop and expects that it does so in order.
    pub async fn stop(&mut self) -> Result<()> {
        self.terminate()?;
        let status = self.exit(DRAINED_WITHIN).await?;
        ensure!(status.success(), "{} ended with {status} when asked to stop:\n{}", self.name, self.log());
        Ok(())
    }

    /// Kills it, without a chance to say anything.
    pub fn kill(&mut self) {
        self.process = None;
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            eprintln!("--- {} ({}) ---\n{}", self.name, self.log.display(), process.tail(TAIL));
        }
    }
}

/// A configuration as shipped but for the port, which has to be free, and the lease.
pub fn write_config(dir: &Path, name: &str, port: u16, lease: Lease) -> Result<PathBuf> {
    let mut document = json!({
        "apiVersion": "mig-scheduler.io/v1alpha1",
        "kind": "MigSchedulerConfiguration",
        "http": {"bindAddress": format!("127.0.0.1:{port}")},
    });
    if let Some((election, request)) = lease.settings() {
        document["leaderElection"] = election;
        document["clientConnection"] = json!({"requestTimeout": request});
    }
    let path = dir.join(format!("{name}.json"));
    // JSON is YAML.
    fs::write(&path, format!("{document:#}\n")).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// A loopback port that nobody uses now.
pub fn free_port() -> Result<u16> {
    let held = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(held.local_addr().context("read a port")?.port())
}

/// Labels and value of each sample of a metric.
pub fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.split(' ').next()?.parse().ok()?))
    })
}

/// One request, answered at once or not at all: the pages never wait for anything.
fn get(port: u16, path: &str) -> Result<(u16, String)> {
    const LIMIT: Duration = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of head")?;
    let code = head.split(' ').nth(1).context("the answer has no status")?;
    Ok((code.parse().with_context(|| format!("status {code:?}"))?, body.to_owned()))
}
