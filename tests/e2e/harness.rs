//! A real Kubernetes control plane for one test: etcd, kube-apiserver and, on demand, KWOK, kube-scheduler
//! and kube-controller-manager, as plain processes on loopback ports in a fresh temporary directory.
//!
//! ```text
//!   etcd ◄── kube-apiserver ◄─┬─ KWOK                       (heartbeats, pod phases)
//!                             ├─ kube-scheduler             (the peer; user system:kube-scheduler)
//!                             ├─ kube-controller-manager    (ReplicaSets, taints, budgets, claims)
//!                             └─ the test, the emulator, the scheduler under test
//! ```
//!
//! Invariants: a component that `start_*` returned for answers its readiness probe; one that cannot is an
//! error that carries the end of its log, within a bounded time; dropping the `ControlPlane` leaves no
//! process behind, and unless the test called `finish`, it keeps the logs and shows how they end. Only one
//! control plane runs on a machine at a time (a file lock, so it holds across test binaries too): two of them
//! would share the cores and measure each other.
//!
//! Nothing here is skipped when the binaries are missing. `make controlplane` builds them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use axum::http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

// Named by path, so that the file is found from a bench that includes this module, too.
#[path = "harness/process.rs"]
mod process;

pub use process::Process;

/// May do everything, and is exempt from API priority and fairness. Tests, KWOK and the controller manager
/// use it.
pub const ADMIN: &str = "admin";
/// The scheduler under test, under the name that the API server gives to the shipped service account, so that the shipped
/// bindings apply as they stand: may do nothing until a test applies them.
pub const MIG_SCHEDULER: &str = "system:serviceaccount:mig-scheduler:mig-scheduler";
/// The peer, with the rights that the API server's own bootstrap policy gives it.
pub const KUBE_SCHEDULER: &str = "system:kube-scheduler";

/// The users of the token file and their groups. The groups decide by which priority level the API server serves a user.
const USERS: [(&str, &str); 3] = [
    (ADMIN, "system:masters"),
    (MIG_SCHEDULER, "system:serviceaccounts,system:serviceaccounts:mig-scheduler"),
    (KUBE_SCHEDULER, ""),
];

/// The API server is ready in one to three seconds on two idle cores; a busy machine gets twenty times that.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Waiting for another control plane of this machine: longer than any single test runs.
const TURN_WITHIN: Duration = Duration::from_secs(30 * 60);
const POLL: Duration = Duration::from_millis(50);
/// Lines of each log that an error or a failed test shows.
pub const TAIL: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Etcd,
    ApiServer,
    Kwok,
    KubeScheduler,
    ControllerManager,
}

impl Component {
    const ALL: [Component; 5] = [
        Component::Etcd,
        Component::ApiServer,
        Component::Kwok,
        Component::KubeScheduler,
        Component::ControllerManager,
    ];

    /// The name of the binary, and of the log file.
    pub fn name(self) -> &'static str {
        match self {
            Component::Etcd => "etcd",
            Component::ApiServer => "kube-apiserver",
            Component::Kwok => "kwok",
            Component::KubeScheduler => "kube-scheduler",
            Component::ControllerManager => "kube-controller-manager",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to start beside etcd and the API server. The rest can be started later, one by one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub kwok: bool,
    pub kube_scheduler: Option<ClientLimits>,
    /// Without it nothing creates pods from workloads or taints a dead node, and new nodes carry no not-ready
    /// taint.
    pub controller_manager: bool,
}

/// The client-side rate limit of kube-scheduler. Its own default (50 and 100) is what a test would measure
/// otherwise.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    pub qps: u32,
    pub burst: u32,
}

impl ClientLimits {
    /// Far above what an API server on this machine answers: the limit is the server then.
    pub const UNLIMITED: ClientLimits = ClientLimits { qps: 5_000, burst: 5_000 };
}

/// One TCP port each, chosen at start and kept, so that a restarted server is found where it was.
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
    kwok: u16,
    kube_scheduler: u16,
    controller_manager: u16,
}

pub struct ControlPlane {
    // Dropped in this order: the servers, then their directory, then the turn.
    processes: BTreeMap<Component, Process>,
    client: Client,
    options: Options,
    binaries: PathBuf,
    ports: Ports,
    tokens: BTreeMap<&'static str, String>,
    dir: Option<TempDir>,
    started_in: Duration,
    finished: bool,
    _turn: File,
}

impl ControlPlane {
    /// Waits for its turn, then starts everything that `options` names, each server ready before the next.
    pub async fn start(options: Options) -> Result<Self> {
        let binaries = binaries()?;
        let turn = take_turn().await?;
        let started = Instant::now();
        let dir = tempfile::Builder::new().prefix("controlplane-").tempdir().context("make a directory")?;
        let ports = reserve_ports()?;
        let tokens =
            USERS.iter().map(|&(user, _)| Ok((user, token()?))).collect::<Result<BTreeMap<_, _>>>()?;
        write_identities(dir.path(), &ports, &tokens)?;

        let mut plane = ControlPlane {
            processes: BTreeMap::new(),
            client: probe_client(&format!("https://127.0.0.1:{}", ports.api_server), &tokens[ADMIN])?,
            options,
            binaries,
            ports,
            tokens,
            dir: Some(dir),
            started_in: Duration::ZERO,
            finished: false,
            _turn: turn,
        };
        plane.start_etcd().await?;
        plane.start_api_server().await?;
        plane.client = plane.client_for(ADMIN).await?;
        if plane.options.controller_manager {
            plane.start_controller_manager().await?;
        }
        if plane.options.kwok {
            plane.start_kwok().await?;
        }
        if let Some(limits) = plane.options.kube_scheduler {
            plane.start_kube_scheduler(limits).await?;
        }
        plane.started_in = started.elapsed();
        Ok(plane)
    }

    /// How long [`ControlPlane::start`] took once it had its turn.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// A client with every right.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig file of [`ADMIN`].
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig_path(self.dir(), ADMIN)
    }

    /// The kubeconfig file of one of the users named at the top of this module.
    pub fn kubeconfig_for(&self, user: &str) -> Result<PathBuf> {
        ensure!(self.tokens.contains_key(user), "the control plane has no user {user:?}");
        Ok(kubeconfig_path(self.dir(), user))
    }

    pub async fn client_for(&self, user: &str) -> Result<Client> {
        let file = Kubeconfig::read_from(self.kubeconfig_for(user)?)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Client::try_from(config).context("make a client from the kubeconfig")
    }

    /// Where the servers keep their state and logs, and where a test may keep its own.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("the directory lives as long as the control plane").path()
    }

    /// The process id of a running component: to read its CPU time, or to send it a signal.
    pub fn pid(&self, component: Component) -> Option<u32> {
        self.processes.get(&component).map(Process::pid)
    }

    /// Kills a component at once, without a chance to say goodbye to its clients.
    pub fn stop(&mut self, component: Component) {
        self.processes.remove(&component);
    }

    /// The text of a component's endpoint, such as `/metrics`; as [`ADMIN`].
    pub async fn fetch(&self, component: Component, path: &str) -> Result<String> {
        fetch(&self.endpoint(component), &self.tokens[ADMIN], path).await
    }

    /// Ends a test that went well: fails if a component died meanwhile, and leaves neither process nor file
    /// behind.
    pub fn finish(mut self) -> Result<()> {
        for (component, process) in &mut self.processes {
            if let Some(status) = process.exited()? {
                bail!("{component} ended by itself ({status}):\n{}", process.tail(TAIL));
            }
        }
        self.finished = true;
        Ok(())
    }

    async fn start_etcd(&mut self) -> Result<()> {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        let args = [
            "--name=test".to_owned(),
            format!("--data-dir={}", self.dir().join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=test={peer}"),
            // The data need not survive the machine, and a sync per write is slow on a shared disk.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        self.launch(Component::Etcd, &args, "/health").await
    }

    /// Starts the API server, or starts it again after [`ControlPlane::stop`]: same port, same keys, same
    /// etcd.
    pub async fn start_api_server(&mut self) -> Result<()> {
        let certs = self.dir().join("certs");
        // The server makes its own certificate at the first start; that key signs the service account tokens
        // as well.
        let key = certs.join("apiserver.key");
        // Only the controller manager takes the not-ready taint of a new node away again.
        let disabled = match self.options.controller_manager {
            true => "ServiceAccount",
            false => "ServiceAccount,TaintNodesByCondition",
        };
        let args = [
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.ports.api_server),
            format!("--cert-dir={}", certs.display()),
            format!("--service-account-key-file={}", key.display()),
            format!("--service-account-signing-key-file={}", key.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--token-auth-file={}", self.dir().join(TOKENS).display()),
            "--authorization-mode=RBAC".to_owned(),
            format!("--disable-admission-plugins={disabled}"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            // A benchmark deletes thousands of pods between its runs; by default one at a time.
            "--delete-collection-workers=16".to_owned(),
            // A loopback address is no endpoint for the kubernetes Service, and nobody looks for one.
            "--endpoint-reconciler-type=none".to_owned(),
            "--profiling=false".to_owned(),
        ];
        self.launch(Component::ApiServer, &args, "/readyz").await?;
        self.wait_for_namespace().await
    }

    /// The default namespace is made a moment after the server calls itself ready.
    async fn wait_for_namespace(&mut self) -> Result<()> {
        // A client of its own: the tests' client may be busy trying what failed while the server was away.
        let namespaces: Api<Namespace> =
            Api::all(probe_client(&self.endpoint(Component::ApiServer), &self.tokens[ADMIN])?);
        let deadline = Instant::now() + READY_WITHIN;
        while namespaces.get_opt("default").await.context("look for the default namespace")?.is_none() {
            ensure!(
                Instant::now() < deadline,
                "kube-apiserver made no default namespace in {READY_WITHIN:?}"
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    pub async fn start_kwok(&mut self) -> Result<()> {
        let args = [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--config={}", manifest_dir().join("tests/controlplane/stages.yaml").display()),
            "--node-ip=127.0.0.1".to_owned(),
            format!("--server-address=127.0.0.1:{}", self.ports.kwok),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
        ];
        self.launch(Component::Kwok, &args, "/healthz").await
    }

    pub async fn start_kube_scheduler(&mut self, limits: ClientLimits) -> Result<()> {
        self.start_kube_scheduler_with(limits, BTreeMap::new(), &[]).await
    }

    /// The same with further fields of its configuration, and further arguments.
    pub async fn start_kube_scheduler_with(
        &mut self,
        limits: ClientLimits,
        fields: BTreeMap<&str, Value>,
        arguments: &[&str],
    ) -> Result<()> {
        let config = self.dir().join("kube-scheduler.json");
        let mut document = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": self.kubeconfig_for(KUBE_SCHEDULER)?,
                "qps": limits.qps,
                "burst": limits.burst,
            },
            "leaderElection": {"leaderElect": false},
        });
        for (field, value) in fields {
            document[field] = value;
        }
        fs::write(&config, document.to_string()).context("write the configuration of kube-scheduler")?;
        let kubeconfig = self.kubeconfig_for(KUBE_SCHEDULER)?;
        let mut args = secure_serving(self.ports.kube_scheduler, &kubeconfig);
        args.push(format!("--config={}", config.display()));
        args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.launch(Component::KubeScheduler, &args, "/readyz").await
    }

    pub async fn start_controller_manager(&mut self) -> Result<()> {
        self.start_controllers(&["*"]).await
    }

    /// Starts the controller manager with these controllers alone, by their names. Where it was not there from the start, the
    /// API server leaves new nodes without the taint that a controller would take away.
    pub async fn start_controllers(&mut self, names: &[&str]) -> Result<()> {
        let kubeconfig = self.kubeconfig();
        let mut args = secure_serving(self.ports.controller_manager, &kubeconfig);
        args.extend([
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            format!("--controllers={}", names.join(",")),
            format!(
                "--service-account-private-key-file={}",
                self.dir().join("certs/apiserver.key").display()
            ),
            // Tests create workloads by the hundred and wait for their pods.
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ]);
        self.launch(Component::ControllerManager, &args, "/healthz").await
    }

    /// Starts a component and waits until it answers `probe`.
    async fn launch(&mut self, component: Component, args: &[String], probe: &str) -> Result<()> {
        ensure!(!self.processes.contains_key(&component), "{component} runs already");
        let log = self.log(component);
        let binary = self.binaries.join(component.name());
        let mut process = Process::spawn(&binary, args, self.dir(), log)?;

        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = process.exited()? {
                bail!("{component} ended ({status}) before it was ready:\n{}", process.tail(TAIL));
            }
            let Err(last) = self.fetch(component, probe).await else { break };
            if Instant::now() >= deadline {
                let tail = process.tail(TAIL);
                bail!("{component} is not ready after {READY_WITHIN:?} ({last:#}); its log ends:\n{tail}");
            }
            tokio::time::sleep(POLL).await;
        }
        self.processes.insert(component, process);
        Ok(())
    }

    fn endpoint(&self, component: Component) -> String {
        let (scheme, port) = match component {
            Component::Etcd => ("http", self.ports.etcd),
            Component::ApiServer => ("https", self.ports.api_server),
            Component::Kwok => ("http", self.ports.kwok),
            Component::KubeScheduler => ("https", self.ports.kube_scheduler),
            Component::ControllerManager => ("https", self.ports.controller_manager),
        };
        format!("{scheme}://127.0.0.1:{port}")
    }

    fn log(&self, component: Component) -> PathBuf {
        self.dir().join(component.name()).with_extension("log")
    }
}

impl Drop for ControlPlane {
    /// Whatever was not finished has failed: it keeps its directory and shows how each log ends.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        for (component, process) in &self.processes {
            eprintln!("--- {component} ({}) ---\n{}", process.log().display(), process.tail(TAIL));
        }
        self.processes.clear();
        if let Some(dir) = self.dir.take() {
            eprintln!("--- kept {} ---", dir.keep().display());
        }
    }
}

const TOKENS: &str = "tokens.csv";

/// The folder of built binaries: `MIG_SCHEDULER_CONTROLPLANE` if set (a machine without Go), else where the
/// build puts them.
pub fn binaries() -> Result<PathBuf> {
    let missing = "the control plane is not built: run `make controlplane`";
    let folder = match std::env::var_os("MIG_SCHEDULER_CONTROLPLANE") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let script = manifest_dir().join("tests/controlplane/build.sh");
            let run =
                Command::new("bash").arg(script).arg("--path").output().context("ask for the binaries")?;
            let said = String::from_utf8_lossy(&run.stderr);
            ensure!(run.status.success(), "{missing} ({})", said.trim());
            PathBuf::from(String::from_utf8_lossy(&run.stdout).trim())
        }
    };
    match Component::ALL.iter().find(|component| !folder.join(component.name()).is_file()) {
        None => Ok(folder),
        Some(component) => Err(anyhow!("{missing} (no {component} in {})", folder.display())),
    }
}

/// The root of the repository.
pub fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Holds the machine's only turn until the file is dropped; the kernel gives it back if the process dies.
async fn take_turn() -> Result<File> {
    let path = std::env::temp_dir().join("mig-scheduler-controlplane.lock");
    let turn = File::options().create(true).truncate(false).write(true).open(&path);
    let turn = turn.with_context(|| format!("open {}", path.display()))?;
    let deadline = Instant::now() + TURN_WITHIN;
    loop {
        match turn.try_lock() {
            Ok(()) => return Ok(turn),
            Err(fs::TryLockError::WouldBlock) => {
                ensure!(
                    Instant::now() < deadline,
                    "another control plane has held {} for too long",
                    path.display()
                );
                tokio::time::sleep(POLL).await;
            }
            Err(fs::TryLockError::Error(error)) => return Err(error).context("lock the turn"),
        }
    }
}

/// All ports are held at once, so that they differ, and let go just before the servers take them.
fn reserve_ports() -> Result<Ports> {
    let held: Vec<TcpListener> = (0..6)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<std::io::Result<_>>()
        .context("find free ports")?;
    let mut ports = held.iter().map(|listener| listener.local_addr().map(|address| address.port()));
    let mut next = || ports.next().context("one port each")?.context("read a port");
    Ok(Ports {
        etcd: next()?,
        etcd_peer: next()?,
        api_server: next()?,
        kwok: next()?,
        kube_scheduler: next()?,
        controller_manager: next()?,
    })
}

/// A token nobody else on the machine can guess: the API server listens where every local user can reach it.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("draw a token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The token file of the API server, and for each user a kubeconfig (JSON is YAML) that trusts its
/// certificate.
fn write_identities(dir: &Path, ports: &Ports, tokens: &BTreeMap<&str, String>) -> Result<()> {
    let mut csv = String::new();
    for (user, groups) in USERS {
        csv += &format!("{},{user},{user},\"{groups}\"\n", tokens[user]);
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{}", ports.api_server),
                "certificate-authority": dir.join("certs/apiserver.crt"),
            }}],
            "users": [{"name": user, "user": {"token": tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        });
        let path = kubeconfig_path(dir, user);
        fs::write(&path, format!("{document:#}\n")).with_context(|| format!("write {}", path.display()))?;
    }
    fs::write(dir.join(TOKENS), csv).context("write the token file")
}

fn kubeconfig_path(dir: &Path, user: &str) -> PathBuf {
    dir.join(format!("{}.kubeconfig", user.replace(':', "-")))
}

/// The HTTPS endpoint of a scheduler or controller manager, which asks the API server who may read it.
fn secure_serving(port: u16, kubeconfig: &Path) -> Vec<String> {
    vec![
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--authentication-kubeconfig={}", kubeconfig.display()),
        format!("--authorization-kubeconfig={}", kubeconfig.display()),
        "--profiling=false".to_owned(),
    ]
}

async fn fetch(endpoint: &str, token: &str, path: &str) -> Result<String> {
    let request = Request::get(path).body(Vec::new()).context("build the request")?;
    probe_client(endpoint, token)?
        .request_text(request)
        .await
        .with_context(|| format!("GET {endpoint}{path}"))
}

/// For servers whose certificate is made in memory, and for one that has not made it yet.
fn probe_client(endpoint: &str, token: &str) -> Result<Client> {
    let mut config = Config::new(endpoint.parse().context("parse the address of a server")?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(5));
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    Client::try_from(config).context("make a client")
}
