//! Usage from a real Prometheus: forecasts arrive, and whatever happens to their source, pods are bound.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use mig_scheduler::config::{self, ClientCertificate, PrometheusAuth, PrometheusTls};
use mig_scheduler::forecast::Series;
use mig_scheduler::shell::prometheus::{FeedError, QueryError, fetch};
use serde_json::{Value, json};

use crate::cluster::{self, Cluster};
use crate::fixtures::{self, PodFixture};
use crate::harness::Options;
use crate::monitoring::{Exporter, Mode, Prometheus, Proxy, unix_now, write};
use crate::rights::NAMESPACE;
use crate::scheduler::{BINARY, Lease, SCHEDULER_NAME, Scheduler};

const SOON: Duration = Duration::from_secs(20);
/// Tuning takes seconds of the time that nobody else wants: on a busy machine these come late.
const TUNED: Duration = Duration::from_secs(600);

/// Two nodes whose usage of the last hours is known, and a scheduler that reads it through a proxy.
struct Watched {
    cluster: Cluster,
    exporter: Exporter,
    prometheus: Prometheus,
    proxy: Proxy,
    scheduler: Scheduler,
    settings: Value,
    pods: usize,
}

impl Watched {
    async fn start() -> Result<Watched> {
        let nodes = cluster::nodes(2, 1, &[("1g.5gb", 7)]);
        let cluster = Cluster::start(Options::default(), &nodes).await?;
        let exporter = Exporter::start(&["node-0", "node-1"]).await?;
        let prometheus = Prometheus::start(cluster.plane.dir(), &exporter, 6, None).await?;
        let proxy = Proxy::start(prometheus.url()).await?;
        let settings = json!({
            // The shortest periods that are allowed: a step of 15 s, and series that are out of date after two.
            "prometheus": {"url": proxy.url(), "step": "15s", "lookBack": "24h", "staleness": "30s", "requestTimeout": "2s"},
            "forecasting": {"pollInterval": "1s", "updateInterval": "0s", "modelFile": train(cluster.plane.dir(), &prometheus)?},
        });
        let scheduler = Scheduler::start_with(&cluster.plane, "ours", Lease::Long, settings.clone()).await?;
        Ok(Watched { cluster, exporter, prometheus, proxy, scheduler, settings, pods: 0 })
    }

    /// Another process in the place of the one that runs.
    async fn restart(&mut self, name: &str) -> Result<()> {
        self.scheduler.stop().await?;
        let settings = self.settings.clone();
        self.scheduler = Scheduler::start_with(&self.cluster.plane, name, Lease::Long, settings).await?;
        Ok(())
    }

    /// From the next start on, what is learnt is renewed every minute, the shortest that is allowed.
    fn learn_every_minute(&mut self) {
        self.settings["forecasting"]["updateInterval"] = json!("1m");
    }

    async fn wait_for_log(&self, part: &str) -> Result<()> {
        fixtures::wait_until(&format!("the log says {part:?}"), SOON, || async {
            let log = self.scheduler.log();
            Ok(if log.contains(part) { Ok(()) } else { Err(log) })
        })
        .await
    }

    /// Waits until the readiness page says this of forecasts; the scheduler stays ready meanwhile.
    async fn wait_for_note(&self, part: &str, limit: Duration) -> Result<()> {
        fixtures::wait_until(&format!("the readiness page says {part:?}"), limit, || async {
            let (code, page) = self.scheduler.page("/readyz?verbose")?;
            ensure!(code == 200, "forecasts made the scheduler unready: {code} {page}");
            Ok(if page.contains(part) { Ok(()) } else { Err(page) })
        })
        .await
    }

    async fn wait_for_metric(&self, name: &str, label: &str, value: f64, limit: Duration) -> Result<()> {
        fixtures::wait_until(&format!("{name}{{{label}}} is {value}"), limit, || async {
            let found = self.scheduler.metric(name, &[label])?;
            Ok(if found == value { Ok(()) } else { Err(found.to_string()) })
        })
        .await
    }

    /// A pod is bound as fast as ever.
    async fn binds(&mut self) -> Result<()> {
        self.pods += 1;
        let label = format!("pod-{}", self.pods);
        let pod = PodFixture::new(&label).mig("1g.5gb").scheduler(SCHEDULER_NAME).label("app", &label);
        let begun = Instant::now();
        fixtures::create_pods(&self.cluster.client, &[pod]).await?;
        fixtures::wait_for_phase(&self.cluster.client, &format!("app={label}"), 1, "Running", SOON).await?;
        println!("{label} runs after {:?}", begun.elapsed());
        Ok(())
    }

    async fn finish(mut self) -> Result<()> {
        self.scheduler.stop().await?;
        self.cluster.finish().await
    }
}

/// Forecasts of GPUs and nodes arrive. Then everything goes wrong that can, one after the other: pods are bound all the while,
/// the readiness page says what is missing and since when, and forecasts resume by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forecasts_come_and_go_and_binding_never_waits() -> Result<()> {
    let mut watched = Watched::start().await?;
    let series = "mig_scheduler_forecast_series";
    for group in ["group=\"gpu-activity\"", "group=\"node-activity\"", "group=\"node-memory\""] {
        watched.wait_for_metric(series, group, 2.0, Duration::from_secs(60)).await?;
    }
    let pid = watched.scheduler.pid().context("it runs")?;
    ensure!(niceness(pid, "forecasts")? == 19, "the forecaster takes what nobody else wants");
    ensure!(niceness(pid, "mig-scheduler")? < 19, "and nothing else does");
    // Six hours of history are enough to see who forecasts it well.
    watched.wait_for_note("[+]forecasts ok: trusted since 20", SOON).await?;
    let predicted = predict(&watched.prometheus)?;
    ensure!(predicted.contains("gpu-activity/") && predicted.contains("trusted"), "{predicted}");
    watched.binds().await?;

    let faults = [
        (Mode::Say(500, "internal error"), "Prometheus answers with errors since 20"),
        (Mode::Say(200, "<html>Sign in</html>"), "Prometheus answers with errors since 20"),
        (Mode::Say(200, NOT_A_NUMBER), "usage in Prometheus is out of date since 20"),
        (Mode::Say(401, ""), "Prometheus refuses our credentials since 20"),
        (Mode::Hang, "Prometheus unreachable since 20"),
    ];
    for (fault, note) in faults {
        println!("{fault:?}");
        watched.proxy.set(fault);
        watched.wait_for_note(note, Duration::from_secs(60)).await?;
        watched.wait_for_note("; static scheduling", SOON).await?;
        watched.binds().await?;
        watched.proxy.set(Mode::Pass);
        watched.wait_for_metric(series, "group=\"gpu-activity\"", 2.0, SOON).await?;
        watched.wait_for_note("[+]forecasts ok: trusted since 20", SOON).await?;
    }

    println!("Prometheus dies");
    watched.prometheus.stop();
    watched.wait_for_note("Prometheus answers with errors since 20", SOON).await?;
    watched.binds().await?;
    watched.prometheus.resume().await?;
    // On a busy machine it may have missed a step, and a series with a gap takes its time to be trusted again.
    fixtures::wait_until("usage is read again", SOON, || async {
        let (_, page) = watched.scheduler.page("/readyz?verbose")?;
        Ok(if page.contains("Prometheus answers with errors") { Err(page) } else { Ok(()) })
    })
    .await?;

    // Five steps: what five minutes are at a step of a minute.
    println!("the exporter is gone for five steps");
    let gone = Instant::now();
    watched.exporter.stop().await;
    let stale = "mig_scheduler_forecast_stale_series";
    watched.wait_for_metric(stale, "group=\"gpu-activity\"", 2.0, Duration::from_secs(90)).await?;
    watched.wait_for_note("usage in Prometheus is out of date since 20", SOON).await?;
    watched.binds().await?;
    tokio::time::sleep(Duration::from_secs(75).saturating_sub(gone.elapsed())).await;
    watched.wait_for_note("usage in Prometheus is out of date since 20", SOON).await?;
    watched.exporter.resume().await?;
    watched.wait_for_metric(stale, "group=\"gpu-activity\"", 0.0, Duration::from_secs(60)).await?;

    println!("the network is tuned and kept");
    watched.learn_every_minute();
    watched.restart("second").await?;
    let updates = "mig_scheduler_forecast_updates_total";
    watched.wait_for_metric(updates, "result=\"success\"", 1.0, TUNED).await?;
    watched.wait_for_metric(updates, "result=\"error\"", 0.0, SOON).await?;
    let maps: Api<ConfigMap> = Api::namespaced(watched.cluster.client.clone(), NAMESPACE);
    let map = maps.get("mig-scheduler-forecast").await?;
    let header = map.data.unwrap_or_default().remove("model").unwrap_or_default();
    ensure!(header.contains("\"stepSeconds\": 15") && header.contains("\"updates\": "), "{header}");
    watched.restart("third").await?;
    watched.wait_for_log("What the forecaster had learnt is taken over.").await?;

    println!("what is kept is damaged");
    let damaged = Patch::Merge(json!({"data": {"gate": "{}"}}));
    maps.patch("mig-scheduler-forecast", &PatchParams::default(), &damaged).await?;
    watched.restart("fourth").await?;
    watched.wait_for_log("What the forecaster had learnt is not used.").await?;
    let events: Api<Event> = Api::namespaced(watched.cluster.client.clone(), NAMESPACE);
    fixtures::wait_until("an event says so", SOON, || async {
        let events = events.list(&ListParams::default().fields("reason=ForecastStateRefused")).await?;
        let note = events.items.into_iter().find_map(|event| event.note);
        Ok(match note {
            Some(note) if note.contains("do not have the hash") => Ok(()),
            note => Err(format!("{note:?}")),
        })
    })
    .await?;
    watched.binds().await?;
    watched.finish().await
}

/// What `forecast predict` says of the same usage.
fn predict(prometheus: &Prometheus) -> Result<String> {
    let output = Command::new(BINARY)
        .args(["forecast", "predict", "--prometheus", &prometheus.url(), "--step", "15", "--hours", "24"])
        .output()
        .context("start the prediction")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Weights of a network for the steps of this test, from what Prometheus has, as an operator would make them.
fn train(dir: &Path, prometheus: &Prometheus) -> Result<String> {
    let out = dir.join("weights");
    let output = Command::new(BINARY)
        .args(["forecast", "train", "--prometheus", &prometheus.url(), "--step", "15", "--hours", "24"])
        .args(["--epochs", "2", "--windows", "1000", "--out"])
        .arg(&out)
        .output()
        .context("start the training")?;
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "training failed: {error}");
    ensure!(error.contains("1000 windows to train on, 250 newer ones to choose by"), "{error}");
    ensure!(told.contains("lstm.safetensors"), "{told}");
    Ok(out.join("lstm.safetensors").display().to_string())
}

/// The niceness of the thread of this name.
fn niceness(pid: u32, name: &str) -> Result<i64> {
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("list the threads")? {
        let stat = fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
        // The name stands in brackets; the niceness is the 17th field after it.
        let Some((head, rest)) = stat.rsplit_once(") ") else { continue };
        if head.ends_with(&format!("({name}")) {
            let field = rest.split(' ').nth(16).context("the niceness")?;
            return field.parse().context("read the niceness");
        }
    }
    bail!("no thread is called {name}")
}

/// A success that holds no number.
const NOT_A_NUMBER: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"UUID":"GPU-0"},"values":[[1796000000,"NaN"]]}]}}"#;

/// The values of a group's series by name, those of the newest steps left out: they may still change between two questions.
fn settled(series: &[Series], group: &str) -> Vec<(String, Vec<f32>)> {
    let settled = |series: &Series| {
        let values = &series.values[..series.values.len().saturating_sub(8)];
        (series.key.name.clone(), values.iter().copied().filter(|value| value.is_finite()).collect())
    };
    series.iter().filter(|series| series.key.group == group).map(settled).collect()
}

/// A server with TLS by an authority of its own and passwords, one behind a token, and one that takes shorter questions only:
/// each gives the same series to whom it should and nothing to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_and_limits_of_a_real_server() -> Result<()> {
    // For the certificate that its API server makes for 127.0.0.1.
    let plane = crate::harness::ControlPlane::start(Options::default()).await?;
    let (dir, certs) = (plane.dir(), plane.dir().join("certs"));
    let exporter = Exporter::start(&["node-0"]).await?;
    let web = format!(
        "tls_server_config: {{cert_file: {0}/apiserver.crt, key_file: {0}/apiserver.key}}\nbasic_auth_users: {{me: \
         $2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy}}\n",
        certs.display()
    );
    let server = Prometheus::start(dir, &exporter, 6, Some(&web)).await?;
    let password = write(dir, "password", "open sesame\n")?;
    let settings = |user: &str| config::Prometheus {
        auth: PrometheusAuth::Basic { username: user.to_owned(), password_file: password.clone() },
        tls: PrometheusTls { ca_file: Some(certs.join("apiserver.crt").display().to_string()), client: None },
        step_seconds: 15,
        look_back: Duration::from_secs(72 * 3600),
        ..config::Prometheus::default()
    };
    let mut good = settings("me");
    good.url = Some(server.url());
    let (series, problems) = fetch(&good, unix_now()).await?;
    ensure!(problems.is_empty(), "{problems:?}");
    // 17,281 points are more than the server gives at once.
    let gpu = settled(&series, "gpu-activity");
    ensure!(
        gpu.len() == 1 && gpu[0].0 == "GPU-0" && gpu[0].1.len() > 1_400,
        "{:?}",
        series.iter().map(|s| &s.key).collect::<Vec<_>>()
    );

    let mut stranger = settings("you");
    stranger.url = Some(server.url());
    let refused = fetch(&stranger, unix_now()).await;
    ensure!(
        matches!(refused, Err(FeedError::Query(QueryError::Unauthorized { status: 401, .. }))),
        "{refused:?}"
    );
    let unknown = config::Prometheus { tls: PrometheusTls::default(), ..good.clone() };
    let refused = fetch(&unknown, unix_now()).await;
    ensure!(matches!(refused, Err(FeedError::Query(QueryError::Unreachable { .. }))), "{refused:?}");
    let key = ClientCertificate { cert_file: password.clone(), key_file: password.clone() };
    let odd =
        config::Prometheus { tls: PrometheusTls { client: Some(key), ..good.tls.clone() }, ..good.clone() };
    let refused = fetch(&odd, unix_now()).await;
    ensure!(
        matches!(refused, Err(FeedError::Query(QueryError::File { field: "prometheus.tls.certFile", .. }))),
        "{refused:?}"
    );
    drop(server);
    plane.finish()
}

/// The same behind a proxy: a token that is rotated, and a limit that is found out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_read_again_and_limits_are_found_out() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let exporter = Exporter::start(&["node-0"]).await?;
    let server = Prometheus::start(dir.path(), &exporter, 6, None).await?;
    let proxy = Proxy::start(server.url()).await?;
    let token = write(dir.path(), "token", "first\n")?;
    let config = config::Prometheus {
        auth: PrometheusAuth::Bearer { token_file: token.clone() },
        look_back: Duration::from_secs(24 * 3600),
        ..config::Prometheus::at(&proxy.url())?
    };
    proxy.set(Mode::Token("second"));
    let refused = fetch(&config, unix_now()).await;
    ensure!(matches!(refused, Err(FeedError::Query(QueryError::Unauthorized { .. }))), "{refused:?}");
    fs::write(&token, "second").context("rotate the token")?;
    let before = proxy.requests();
    let (whole, _) = fetch(&config, unix_now()).await?;
    ensure!(proxy.requests() - before == 2, "a day of minutes is one question for each query");
    proxy.set(Mode::Limit(100));
    let before = proxy.requests();
    let (parts, _) = fetch(&config, unix_now()).await?;
    println!("{} requests at 100 points each", proxy.requests() - before);
    // One that is refused, then 15 for each of the two queries.
    ensure!(proxy.requests() - before == 31, "{}", proxy.requests() - before);
    for group in ["gpu-activity", "node-activity", "gpu-memory"] {
        let (whole, parts) = (settled(&whole, group), settled(&parts, group));
        ensure!(!whole.is_empty() && parts[0].1.starts_with(&whole[0].1), "{group} differs");
    }
    Ok(())
}
