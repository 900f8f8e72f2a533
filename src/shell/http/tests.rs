//! The real server on a free port, asked over TCP.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

struct Server {
    address: SocketAddr,
    health: Health,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), HttpError>>,
}

/// Any free port.
const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

async fn start() -> Server {
    let health = Health::new();
    let metrics = Arc::new(Metrics::new("mig-scheduler"));
    let token = LeaderToken::unelected();
    let pages = Pages::new(&Config::default(), "host_1", health.clone(), metrics, token).unwrap();
    let listener = bind(FREE).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(serve(listener, pages, async move {
        let _ = stopped.await;
    }));
    Server { address, health, stop, task }
}

impl Server {
    /// Head and body of the answer to a GET.
    async fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }

    async fn check(&self, path: &str, status: u16, body: &str) {
        let (head, got) = self.get(path).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path}: {head}");
        assert_eq!(got, body, "{path}");
    }
}

/// Tests that readiness follows the lists and ends with shutdown, with the checks named as Kubernetes names them.
#[tokio::test]
async fn readiness_follows_sync_and_shutdown() {
    let server = start().await;
    let failed = "[+]ping ok\n[-]informer-sync failed: reason withheld\n[+]shutdown ok\n[+]forecasts ok: prometheus.url is not set; static scheduling\nreadyz check failed\n";
    server.check("/readyz", 500, failed).await;
    server.health.synced();
    server.check("/readyz", 200, "ok").await;
    let passed = "[+]ping ok\n[+]informer-sync ok\n[+]shutdown ok\n[+]forecasts ok: prometheus.url is not set; static scheduling\nreadyz check passed\n";
    server.check("/readyz?verbose", 200, passed).await;
    server.check("/readyz?verbose=1", 200, passed).await;
    server.check("/readyz?timeout=5s", 200, "ok").await;
    server.health.stopping();
    let stopping = "[+]ping ok\n[+]informer-sync ok\n[-]shutdown failed: reason withheld\n[+]forecasts ok: prometheus.url is not set; static scheduling\nreadyz check failed\n";
    server.check("/readyz", 500, stopping).await;
    server.check("/livez", 200, "ok").await;
}

/// Tests that readiness names what forecasts lack and since when, and is none the less for it.
#[tokio::test]
async fn readiness_says_what_forecasts_lack() {
    let server = start().await;
    server.health.synced();
    let checks = "[+]ping ok\n[+]informer-sync ok\n[+]shutdown ok\n";
    server.health.forecasts(Forecasts::Unreachable, 1_796_000_000);
    server.health.forecasts(Forecasts::Unreachable, 1_796_000_060);
    let missing = "Prometheus unreachable since 2026-11-30T00:53:20Z; static scheduling";
    server.check("/readyz", 200, "ok").await;
    let page = format!("{checks}[-]forecasts missing: {missing}\nreadyz check passed\n");
    server.check("/readyz?verbose", 200, &page).await;
    let (_, text) = server.get("/statusz").await;
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["forecasts"], json!({"ok": false, "message": missing}));
    server.health.forecasts(Forecasts::Trusted, 1_796_000_120);
    let page = format!("{checks}[+]forecasts ok: trusted since 2026-11-30T00:55:20Z\nreadyz check passed\n");
    server.check("/readyz?verbose", 200, &page).await;
}

/// Tests that an engine loop that has not turned for a minute counts as dead, and comes back by turning.
#[test]
fn liveness_follows_the_engine_loop() {
    let health = Health::new();
    let now = Instant::now();
    let alive = |health: &Health, at: Instant| health.live(at).iter().all(|check| check.passed);
    health.turn_at(now);
    assert!(alive(&health, now + Duration::from_secs(59)));
    assert!(!alive(&health, now + Duration::from_secs(61)));
    health.turn_at(now + Duration::from_secs(61));
    assert!(alive(&health, now + Duration::from_secs(61)));
}

/// Tests the pages that are data.
#[tokio::test]
async fn pages_show_what_runs() {
    let server = start().await;
    server.health.turn();
    server.check("/livez", 200, "ok").await;
    server.check("/healthz?verbose", 200, "[+]ping ok\n[+]engine-loop ok\nlivez check passed\n").await;

    let (head, text) = server.get("/metrics").await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.contains("\nmig_scheduler_leader 1\n") && text.ends_with("# EOF\n"), "{text}");

    let (head, text) = server.get("/configz").await;
    assert!(head.contains("content-type: application/json"), "{head}");
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["mig-scheduler.io"]["leaderElection"]["leaseDuration"], "15s");

    let (_, text) = server.get("/statusz").await;
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&shown["identity"], &shown["leader"]), (&"host_1".into(), &true.into()));
    assert!(shown["uptimeSeconds"].is_u64());

    assert!(server.get("/").await.0.starts_with("http/1.1 404 "));
}

/// Tests that shutdown is not held up by a client that stays connected and idle.
#[tokio::test]
async fn shutdown_ends_idle_connections() {
    let server = start().await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut some = [0; 16];
    assert!(idle.read(&mut some).await.unwrap() > 0);
    server.stop.send(()).unwrap();
    let ended = tokio::time::timeout(DRAIN + Duration::from_secs(20), server.task).await;
    ended.expect("in time").expect("no panic").expect("no error");
}

/// Tests that a port in use is one line that names the address and the field.
#[tokio::test]
async fn port_in_use_is_one_line() {
    let taken = bind(FREE).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = bind(address).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} (http.bindAddress): ")), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
