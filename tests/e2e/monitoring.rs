//! A real Prometheus for one test, the exporter it scrapes, and a proxy before it that can go wrong in ways of its own.
//!
//! ```text
//!   exporter (this process, DCGM's names) ◄── scrape ── Prometheus ◄── proxy (this process) ◄── scheduler
//!                                                          ▲
//!                                                 history, written by promtool
//! ```
//!
//! Invariant: nothing here stands in for Prometheus' answers but the faults that a healthy one does not show.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::fixtures;
use crate::harness::{Process, TAIL, binaries};
use crate::scheduler::free_port;

/// A GPU's instances, each as id, profile and the pod that holds it.
const INSTANCES: [(&str, &str, Option<&str>); 2] = [("7", "1g.5gb", Some("web-0")), ("1", "3g.20gb", None)];

/// Ready in a second on two idle cores.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Seconds between two samples of a written history.
const HISTORY_STEP: i64 = 15;

/// Everything locked here is locked for moments, and a test that panicked has failed anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// One GPU in each of these nodes, its activity a wave of an hour.
pub struct Exporter {
    nodes: Vec<String>,
    address: SocketAddr,
    server: Option<JoinHandle<()>>,
}

impl Exporter {
    pub async fn start(nodes: &[&str]) -> Result<Exporter> {
        let nodes: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for scrapes")?;
        let address = listener.local_addr()?;
        let mut exporter = Exporter { nodes, address, server: None };
        exporter.serve(listener);
        Ok(exporter)
    }

    fn serve(&mut self, listener: TcpListener) {
        let nodes = self.nodes.clone();
        let page = move || async move { samples(&nodes, None) };
        let router = Router::new().route("/metrics", get(page));
        self.server = Some(tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        }));
    }

    /// Goes away, as it does while a node's layout changes.
    pub async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
    }

    /// Comes back where it was.
    pub async fn resume(&mut self) -> Result<()> {
        let listener = TcpListener::bind(self.address).await.context("listen for scrapes again")?;
        self.serve(listener);
        Ok(())
    }

    /// What it would have shown in the last `hours`, as a file that promtool reads.
    fn history(&self, hours: i64) -> String {
        let now = unix_now() / HISTORY_STEP * HISTORY_STEP;
        let times = (0..hours * 3600 / HISTORY_STEP).rev().map(|back| now - back * HISTORY_STEP);
        times.map(|time| samples(&self.nodes, Some((time, self.address)))).collect::<String>() + "# EOF\n"
    }
}

/// One page; with a time and the labels that a scrape adds, as a history has them.
fn samples(nodes: &[String], scraped: Option<(i64, SocketAddr)>) -> String {
    let time = scraped.map_or_else(unix_now, |(time, _)| time);
    let added = scraped.map(|(_, instance)| format!(",instance=\"{instance}\",job=\"dcgm\",{TARGET}"));
    let added = added.unwrap_or_default();
    let stamp = scraped.map(|(time, _)| format!(" {time}")).unwrap_or_default();
    let wave = (time as f64 / 3600.0 * std::f64::consts::TAU).sin() * 0.4 + 0.5;
    let mut text = String::new();
    for (name, scale) in [("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.0), ("DCGM_FI_DEV_FB_USED", 4_000.0)] {
        for (at, node) in nodes.iter().enumerate() {
            for (id, profile, pod) in INSTANCES {
                let kept = if scraped.is_some() { "exported_pod" } else { "pod" };
                let pod = pod.map(|pod| format!(",{kept}=\"{pod}\"")).unwrap_or_default();
                text += &format!(
                    "{name}{{gpu=\"0\",UUID=\"GPU-{at}\",modelName=\"NVIDIA A100-SXM4-40GB\",Hostname=\"{node}\",\
                     GPU_I_ID=\"{id}\",GPU_I_PROFILE=\"{profile}\"{pod}{added}}} {:.4}{stamp}\n",
                    wave * scale
                );
            }
        }
    }
    text
}

/// Labels of the exporter's own pod, as a scrape by service discovery adds them: they push the workload's aside.
const TARGET: &str = "pod=\"dcgm-exporter-x\"";

/// The server.
pub struct Prometheus {
    process: Option<Process>,
    binary: PathBuf,
    args: Vec<String>,
    dir: PathBuf,
    port: u16,
    scheme: &'static str,
}

impl Prometheus {
    /// Starts it in `dir` with `hours` of history; with a web configuration, if one is given.
    pub async fn start(dir: &Path, exporter: &Exporter, hours: i64, web: Option<&str>) -> Result<Prometheus> {
        let folder = binaries()?;
        let binary = folder.join("prometheus");
        ensure!(
            binary.is_file(),
            "Prometheus is not built: run `make controlplane` (no {})",
            binary.display()
        );
        let dir = dir.join("prometheus");
        fs::create_dir_all(&dir).context("make a directory for Prometheus")?;
        write_history(&folder, &dir, exporter, hours)?;
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: dcgm\n  static_configs:\n  \
             - targets: [\"{}\"]\n    labels: {{pod: dcgm-exporter-x}}\n",
            exporter.address
        );
        let port = free_port()?;
        let mut args = vec![
            format!("--config.file={}", write(&dir, "prometheus.yml", &config)?),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        if let Some(web) = web {
            args.push(format!("--web.config.file={}", write(&dir, "web.yml", web)?));
        }
        let scheme = if web.is_some_and(|web| web.contains("tls_server_config")) { "https" } else { "http" };
        let mut server = Prometheus { process: None, binary, args, dir, port, scheme };
        server.resume().await?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Kills it.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again with all that it had written. It listens before it answers queries, and says in its log when it does;
    /// asking it would need the credentials that a test may want refused.
    pub async fn resume(&mut self) -> Result<()> {
        let log = self.dir.join("prometheus.log");
        let before = times_ready(&log);
        let process = self.process.insert(Process::spawn(&self.binary, &self.args, &self.dir, log.clone())?);
        fixtures::wait_until("Prometheus answers queries", READY_WITHIN, || {
            let seen = match process.exited() {
                Ok(None) if times_ready(&log) > before => Ok(Ok(())),
                Ok(None) => Ok(Err(process.tail(TAIL))),
                Ok(Some(status)) => Err(anyhow!("Prometheus ended ({status}):\n{}", process.tail(TAIL))),
                Err(error) => Err(error),
            };
            async { seen }
        })
        .await
    }
}

/// How often a server with this log became ready.
fn times_ready(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().matches("Server is ready to receive web requests").count()
}

fn write_history(folder: &Path, dir: &Path, exporter: &Exporter, hours: i64) -> Result<()> {
    let file = write(dir, "history.txt", &exporter.history(hours))?;
    let data = dir.join("data");
    let run = Command::new(folder.join("promtool"))
        .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet", &file])
        .arg(&data)
        .output()
        .context("start promtool")?;
    ensure!(run.status.success(), "promtool: {}", String::from_utf8_lossy(&run.stderr));
    Ok(())
}

/// Writes a file; its path as an argument.
pub fn write(dir: &Path, name: &str, text: &str) -> Result<String> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path.display().to_string())
}

/// What the proxy does with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Passes it on.
    #[default]
    Pass,
    /// Answers with this status and text in the place of Prometheus.
    Say(u16, &'static str),
    /// Never answers.
    Hang,
    /// Passes on what carries this bearer token.
    Token(&'static str),
    /// Refuses more points than these, in Prometheus' words, and passes on the rest.
    Limit(i64),
}

#[derive(Default)]
struct Passage {
    mode: Mode,
    requests: usize,
}

/// A proxy before a server.
#[derive(Clone)]
pub struct Proxy {
    target: String,
    client: reqwest::Client,
    passage: Arc<Mutex<Passage>>,
    address: SocketAddr,
}

impl Proxy {
    pub async fn start(target: String) -> Result<Proxy> {
        // reqwest asks for a TLS provider even where it needs none; a second call finds the first one's.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().context("make a client")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the scheduler")?;
        let address = listener.local_addr()?;
        let proxy = Proxy { target, client, passage: Arc::default(), address };
        let router = Router::new().fallback(pass).with_state(proxy.clone());
        tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(proxy)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn set(&self, mode: Mode) {
        lock(&self.passage).mode = mode;
    }

    /// How many requests came.
    pub fn requests(&self) -> usize {
        lock(&self.passage).requests
    }
}

async fn pass(
    State(proxy): State<Proxy>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mode = {
        let mut passage = lock(&proxy.passage);
        passage.requests += 1;
        passage.mode.clone()
    };
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match mode {
        Mode::Say(status, text) => return answer(status, text.to_owned()),
        Mode::Hang => std::future::pending().await,
        Mode::Token(token) if authorization != Some(&format!("Bearer {token}")) => {
            return answer(401, "Unauthorized".to_owned());
        }
        Mode::Limit(limit) if points(&body) > limit => {
            let error = format!(
                "exceeded maximum resolution of {limit} points per timeseries. Try decreasing the query resolution (?step=XX)"
            );
            return answer(400, format!(r#"{{"status":"error","errorType":"bad_data","error":"{error}"}}"#));
        }
        Mode::Pass | Mode::Token(_) | Mode::Limit(_) => {}
    }
    let mut request = proxy.client.request(method, format!("{}{uri}", proxy.target)).body(body);
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    match request.send().await {
        Ok(response) => {
            let status = response.status();
            (status, response.bytes().await.unwrap_or_default()).into_response()
        }
        Err(error) => answer(502, error.to_string()),
    }
}

fn answer(status: u16, text: String) -> Response {
    (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY), text).into_response()
}

/// The points that a range query in a form asks for.
fn points(form: &[u8]) -> i64 {
    let form = String::from_utf8_lossy(form);
    let field = |name: &str| {
        let value = form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse::<i64>().ok()).unwrap_or(0)
    };
    (field("end") - field("start")) / field("step").max(1) + 1
}
