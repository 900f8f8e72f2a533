//! What every pod went through, from a watch, and what the nodes hold in the end, from a list.
//!
//! Both are counted from the objects in the API alone and share nothing with the scheduler or the emulator, so that a
//! mistake would have to be made twice, differently, to go unseen.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;

use crate::fixtures::{node_of, phase};

const POLL: Duration = Duration::from_millis(5);

/// The life of one pod: every value that a field had, in order.
#[derive(Clone, Debug, Default)]
pub struct Story {
    pub name: String,
    pub nodes: Vec<String>,
    pub phases: Vec<String>,
}

/// A watch on all pods that remembers. It ends when dropped.
pub struct History {
    stories: Arc<Mutex<BTreeMap<String, Story>>>,
    task: JoinHandle<()>,
}

impl History {
    /// Watches from now on. Pods that are there already are known before this returns, so a pod made later is seen
    /// from its first state on.
    pub async fn watch(client: &Client) -> Result<Self> {
        let stories = Arc::new(Mutex::new(BTreeMap::new()));
        let (listed, ready) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(record(client.clone(), stories.clone(), listed));
        ready.await.context("the first list of pods")?;
        Ok(History { stories, task })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Story>> {
        self.stories.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn stories(&self) -> Vec<Story> {
        self.lock().values().cloned().collect()
    }

    /// Pods that were ever seen on a node.
    pub fn bound(&self) -> usize {
        self.lock().values().filter(|story| !story.nodes.is_empty()).count()
    }

    /// Waits until at least `count` pods were seen on a node; how many they are.
    pub async fn wait_for_bound(&self, count: usize, limit: Duration) -> Result<usize> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let bound = self.bound();
            if bound >= count {
                return Ok(bound);
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "{bound} of {count} pods are bound after {limit:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Fails unless `count` pods exist, each bound exactly once and never failed.
    pub fn each_bound_once(&self, count: usize) -> Result<()> {
        let stories = self.stories();
        ensure!(stories.len() == count, "{} pods were seen, not {count}", stories.len());
        for story in &stories {
            ensure!(story.nodes.len() == 1, "{} was on the nodes {:?}", story.name, story.nodes);
            ensure!(!story.phases.iter().any(|phase| phase == "Failed"), "{} failed", story.name);
        }
        Ok(())
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends with the task only: a watcher begins again by itself after the API server was away.
async fn record(
    client: Client,
    stories: Arc<Mutex<BTreeMap<String, Story>>>,
    listed: tokio::sync::oneshot::Sender<()>,
) {
    let mut listed = Some(listed);
    let pods = watcher(Api::<Pod>::all(client), watcher::Config::default());
    let mut pods = pin!(pods.default_backoff());
    while let Some(event) = pods.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod)) => {
                let mut stories = stories.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let story = stories.entry(pod.uid().unwrap_or_default()).or_insert_with(|| Story {
                    name: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
                    ..Story::default()
                });
                note(&mut story.nodes, node_of(&pod));
                note(&mut story.phases, Some(phase(&pod)));
            }
            Ok(Event::InitDone) => drop(listed.take().map(|listed| listed.send(()))),
            Ok(Event::Init) | Err(_) => {}
        }
    }
}

/// Appends a value that differs from the last one. A field that was set and is empty again is a value, too.
fn note(values: &mut Vec<String>, value: Option<&str>) {
    match value {
        None if values.is_empty() => {}
        value => {
            let value = value.unwrap_or("(none)");
            if values.last().map(String::as_str) != Some(value) {
                values.push(value.to_owned());
            }
        }
    }
}

/// Every node and resource of which the unfinished pods hold more than is allocatable, in words.
pub fn oversubscribed(nodes: &[Node], pods: &[Pod]) -> Result<Vec<String>> {
    let mut over = Vec::new();
    for node in nodes {
        let name = node.name_any();
        let here = pods.iter().filter(|pod| {
            node_of(pod) == Some(name.as_str()) && !matches!(phase(pod), "Succeeded" | "Failed")
        });
        let mut held: BTreeMap<&str, u64> = BTreeMap::new();
        for pod in here {
            *held.entry("pods").or_default() += 1_000;
            for (resource, quantity) in requests(pod) {
                *held.entry(resource).or_default() += thousandths(quantity)?;
            }
        }
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        for (resource, held) in held {
            let offered = allocatable.and_then(|allocatable| allocatable.get(resource));
            let offered = offered.map(thousandths).transpose()?.unwrap_or_default();
            if held > offered {
                over.push(format!("{name}: {held}/1000 of {offered}/1000 {resource}"));
            }
        }
    }
    Ok(over)
}

/// What the containers ask for; no pod of these tests has init containers or overhead.
fn requests(pod: &Pod) -> impl Iterator<Item = (&str, &Quantity)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    requests.flatten().map(|(resource, quantity)| (resource.as_str(), quantity))
}

/// Reads the quantities that the fixtures write: whole numbers, thousandths and powers of 1,024.
fn thousandths(quantity: &Quantity) -> Result<u64> {
    let text = quantity.0.as_str();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(digits);
    let unit = match suffix {
        "m" => 1,
        "" => 1_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        "Ti" => 1_000 << 40,
        _ => bail!("no fixture writes a quantity like {text:?}"),
    };
    let number: u64 = digits.parse().with_context(|| format!("read the quantity {text:?}"))?;
    number.checked_mul(unit).with_context(|| format!("{text:?} is too large for a fixture"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sum_above_allocatable_is_found() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n0"}, "status": {"allocatable": {"pods": "9", "cpu": "2", "memory": "1Gi"}}}))
        .unwrap();
        let pod = |cpu: &str, phase: &str| -> Pod {
            let resources = json!({"requests": {"cpu": cpu, "memory": "256Mi"}});
            serde_json::from_value(json!({
                "metadata": {"name": "p"}, "status": {"phase": phase},
                "spec": {"nodeName": "n0", "containers": [{"name": "main", "resources": resources}]}}))
            .unwrap()
        };
        let nodes = [node];
        let fits = [pod("1500m", "Running"), pod("1", "Failed"), pod("500m", "Pending")];
        assert_eq!(oversubscribed(&nodes, &fits).unwrap(), Vec::<String>::new());
        let over = [pod("1500m", "Running"), pod("501m", "Pending")];
        assert_eq!(oversubscribed(&nodes, &over).unwrap(), ["n0: 2001/1000 of 2000/1000 cpu"]);
    }

    #[test]
    fn a_story_keeps_every_value_once() {
        let mut nodes = Vec::new();
        for value in [None, Some("a"), Some("a"), None, Some("b")] {
            note(&mut nodes, value);
        }
        assert_eq!(nodes, ["a", "(none)", "b"]);
    }
}
