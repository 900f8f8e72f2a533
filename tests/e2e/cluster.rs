//! A control plane with virtual machines, their emulator and the shipped rights of the scheduler: what most tests start
//! from, and the checks that each of them ends with.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};

use crate::emulator::{Admission, Emulator, Machines};
use crate::fixtures::{self, MigNode};
use crate::harness::{ControlPlane, Options};
use crate::{history, rights};

pub struct Cluster {
    pub plane: ControlPlane,
    pub client: Client,
    pub emulator: Emulator<Machines>,
}

impl Cluster {
    pub async fn start(options: Options, nodes: &[MigNode]) -> Result<Self> {
        let plane = ControlPlane::start(Options { kwok: true, ..options }).await?;
        let client = plane.client();
        rights::apply(&plane).await?;
        fixtures::create_nodes(&client, nodes).await?;
        let emulator = Emulator::start(client.clone(), Machines::default());
        Ok(Cluster { plane, client, emulator })
    }

    /// Fails if any node ever had to refuse a pod, or now holds more than it has by the objects in the API alone.
    pub async fn check(&self) -> Result<()> {
        let report = self.emulator.report();
        if let Some(first) = report.violations.first() {
            bail!("{} pods were refused by their nodes, such as {first}", report.violations.len());
        }
        self.check_sums().await
    }

    /// The part of [`Cluster::check`] that holds even where a race with another scheduler is allowed to cost a pod.
    pub async fn check_sums(&self) -> Result<()> {
        let report = self.emulator.report();
        ensure!(report.errors.is_empty(), "the emulator could not tell the API server: {:?}", report.errors);
        let faults = self.emulator.with(|machines| machines.faults());
        ensure!(faults.is_empty(), "{faults:?}");
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let pods = Api::<Pod>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let over = history::oversubscribed(&nodes, &pods)?;
        ensure!(over.is_empty(), "oversubscribed: {over:?}");
        Ok(())
    }

    /// [`Cluster::check`], then the end.
    pub async fn finish(self) -> Result<()> {
        self.check().await?;
        self.plane.finish()
    }
}

/// `count` machines of one GPU kind: `gpus` GPUs that offer `instances` together.
pub fn nodes(count: usize, gpus: u32, instances: &[(&str, u32)]) -> Vec<MigNode> {
    (0..count).map(|i| MigNode::new(format!("node-{i}"), gpus, instances)).collect()
}

/// How many pods each node has.
pub fn by_node(pods: &[Pod]) -> BTreeMap<&str, usize> {
    let mut count = BTreeMap::new();
    for node in pods.iter().filter_map(fixtures::node_of) {
        *count.entry(node).or_default() += 1;
    }
    count
}
