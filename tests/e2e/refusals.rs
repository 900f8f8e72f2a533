//! `run` where it cannot: one clear line and an exit code, or patience where time may help.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::emulator::{Emulator, Machines};
use crate::fixtures::{self, MigNode, PodFixture};
use crate::harness::{ControlPlane, Options};
use crate::rights;
use crate::scheduler::{BINARY, Lease, SCHEDULER_NAME, Scheduler, free_port, write_config};

const SOON: Duration = Duration::from_secs(20);

fn run(config: &Path, kubeconfig: &Path) -> Result<Output> {
    let args = [format!("--config={}", config.display()), format!("--kubeconfig={}", kubeconfig.display())];
    Command::new(BINARY)
        .arg("run")
        .args(args)
        .env_remove("KUBECONFIG")
        .output()
        .context("start the scheduler")
}

/// Ends at once with `code`; stderr ends with one line, which begins with `error:` and contains all of `words`.
fn refuses(output: &Output, code: i32, words: &[&str]) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(code), "{}: {said}", output.status);
    let line = said.lines().last().unwrap_or_default();
    ensure!(line.starts_with("error: "), "{said}");
    ensure!(words.iter().all(|word| line.contains(word)), "{line:?} lacks some of {words:?}");
    ensure!(output.stdout.is_empty(), "stdout is for results");
    Ok(())
}

#[test]
fn a_wrong_file_or_setting_is_one_line_and_an_exit_code() -> Result<()> {
    let dir = tempfile::tempdir().context("make a directory")?;
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).map(|()| path).context("write a file")
    };
    let kubeconfig = |server: &str| {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        })
        .to_string()
    };
    let port = free_port()?;
    let good = write_config(dir.path(), "good", port, Lease::AsShipped)?;
    let good_kubeconfig = file("kubeconfig", &kubeconfig("https://127.0.0.1:1"))?;
    let absent = dir.path().join("absent");

    refuses(&run(&absent, &good_kubeconfig)?, 2, &[&absent.display().to_string(), "no such file"])?;
    let head = "apiVersion: mig-scheduler.io/v1alpha1\nkind: MigSchedulerConfiguration\n";
    let odd_field = file("odd-field.yaml", &format!("{head}leaderElection:\n  leaseDurations: 15s\n"))?;
    refuses(&run(&odd_field, &good_kubeconfig)?, 2, &["odd-field.yaml", "leaderElection", "leaseDurations"])?;
    let odd_value = file("odd-value.yaml", &format!("{head}bindLane:\n  concurrency: many\n"))?;
    refuses(&run(&odd_value, &good_kubeconfig)?, 2, &["odd-value.yaml", "bindLane.concurrency", "many"])?;
    let other_kind = file("other-kind.yaml", "apiVersion: v1\nkind: ConfigMap\n")?;
    refuses(&run(&other_kind, &good_kubeconfig)?, 2, &["other-kind.yaml", "apiVersion"])?;

    refuses(&run(&good, &absent)?, 1, &[&absent.display().to_string()])?;
    let odd_kubeconfig = file("odd-kubeconfig", "current-context: nowhere\n")?;
    refuses(&run(&good, &odd_kubeconfig)?, 1, &["odd-kubeconfig"])?;
    let bad_server = file("bad-server", &kubeconfig("not a url"))?;
    refuses(&run(&good, &bad_server)?, 1, &["bad-server"])?;

    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).context("take the port")?;
    refuses(&run(&good, &good_kubeconfig)?, 1, &[&format!("127.0.0.1:{port}"), "http.bindAddress"])?;
    drop(taken);
    Ok(())
}

/// An API server that is not there may come, so the process stays, says what it waits for, is alive and not ready, and
/// stops in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_not_there_is_waited_for() -> Result<()> {
    let dir = tempfile::tempdir().context("make a directory")?;
    let port = free_port()?;
    let config = write_config(dir.path(), "config", port, Lease::Short)?;
    let nobody = format!("https://127.0.0.1:{}", free_port()?);
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": nobody}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    let kubeconfig = dir.path().join("kubeconfig");
    fs::write(&kubeconfig, document.to_string()).context("write the kubeconfig")?;

    let mut scheduler = Scheduler::spawn(dir.path(), "ours", port, &config, &kubeconfig)?;
    fixtures::wait_until("it says what it waits for", SOON, || async {
        let log = scheduler.log();
        Ok(if log.contains(&nobody) && log.contains("Watch failed") { Ok(()) } else { Err(log) })
    })
    .await?;
    ensure!(scheduler.page("/livez")?.0 == 200);
    let (code, body) = scheduler.page("/readyz")?;
    ensure!(code == 500 && body.contains("readyz check failed"), "{code} {body}");
    ensure!(scheduler.log().len() < 20_000, "it must not flood its log:\n{}", scheduler.log());
    scheduler.stop().await
}

/// Without its rights it says which ones it lacks; once it gets them it goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rights_are_named_and_waited_for() -> Result<()> {
    let plane = ControlPlane::start(Options { kwok: true, ..Options::default() }).await?;
    let client = plane.client();
    fixtures::create_nodes(&client, &[MigNode::new("node-0", 1, &[("1g.5gb", 1)])]).await?;
    let _emulator = Emulator::start(client.clone(), Machines::default());
    fixtures::create_pods(
        &client,
        &[PodFixture::new("pod").mig("1g.5gb").scheduler(SCHEDULER_NAME).label("app", "a")],
    )
    .await?;

    let mut scheduler = Scheduler::launch(&plane, "ours", Lease::Short)?;
    let expected = [
        "leases.coordination.k8s.io",
        "nodes is forbidden",
        "pods is forbidden",
        "namespaces is forbidden",
        "Watch is forbidden",
    ];
    fixtures::wait_until("it names the rights it lacks", SOON, || async {
        let log = scheduler.log();
        let missing: Vec<_> = expected.iter().filter(|word| !log.contains(**word)).collect();
        Ok(if missing.is_empty() { Ok(()) } else { Err(format!("no word of {missing:?} in\n{log}")) })
    })
    .await?;
    ensure!(scheduler.page("/readyz")?.0 == 500, "it is not ready");
    rights::apply(&plane).await?;
    fixtures::wait_for_phase(&client, "app=a", 1, "Running", Duration::from_secs(30)).await?;
    scheduler.stop().await?;
    plane.finish()
}
