//! Our side: the engine, fed with the API server's own objects through the same conversion as in a real cluster.

use anyhow::{Context, Result, bail};
use mig_scheduler::engine::{Engine, Examination, Options};
use mig_scheduler::event::Event;
use mig_scheduler::model::{Pod, Time};
use mig_scheduler::shell::convert::wire::storage::{
    ClaimView, CsiDriverView, CsiNodeView, PersistentVolumeView, StorageCapacityView, StorageClassView,
};
use mig_scheduler::shell::convert::wire::{NodeView, PodView};
use mig_scheduler::shell::convert::{Interner, StorageView, convert_node, convert_pod, pod_id};
use serde_json::Value;

use super::SCHEDULER;
use super::peer::{NAMESPACES, storage_classes};
use super::scenario::text;
use super::verdict::Verdict;

pub struct Ours {
    engine: Engine,
    interner: Interner,
}

impl Ours {
    /// An engine that knows what every scenario finds.
    pub fn new() -> Result<Ours> {
        let options = Options { scheduler_name: SCHEDULER.into(), ..Options::default() };
        let mut ours = Ours { engine: Engine::new(options), interner: Interner::default() };
        for (name, team, env) in NAMESPACES {
            let labels = [("team", team), ("env", env), ("kubernetes.io/metadata.name", name)];
            let labels = labels.map(|(key, value)| (key.into(), value.into())).into();
            ours.tell(Event::NamespaceApplied { name: name.into(), labels });
        }
        storage_classes().iter().try_for_each(|class| ours.apply_storage(class))?;
        ours.tell(Event::Synced);
        Ok(ours)
    }

    /// Takes in a volume, a claim, a storage class or what a node says of its volumes.
    pub fn apply_storage(&mut self, object: &Value) -> Result<()> {
        match text(object, "/kind") {
            "PersistentVolumeClaim" => self.store::<ClaimView>(object),
            "PersistentVolume" => self.store::<PersistentVolumeView>(object),
            "StorageClass" => self.store::<StorageClassView>(object),
            "CSINode" => self.store::<CsiNodeView>(object),
            "CSIDriver" => self.store::<CsiDriverView>(object),
            "CSIStorageCapacity" => self.store::<StorageCapacityView>(object),
            other => bail!("no scenario has a {other:?}"),
        }
    }

    fn store<V: StorageView + serde::de::DeserializeOwned>(&mut self, object: &Value) -> Result<()> {
        let view: V = serde_json::from_value(object.clone()).context("read an object of storage")?;
        let mut notes = Vec::new();
        let object = view.convert(&mut self.interner, &mut notes);
        self.tell(Event::StorageApplied(object));
        Ok(())
    }

    pub fn apply_node(&mut self, node: &Value) -> Result<()> {
        let view: NodeView = serde_json::from_value(node.clone()).context("read a node")?;
        let node = convert_node(&view, &mut self.interner).node;
        self.tell(Event::NodeApplied(node));
        Ok(())
    }

    /// Takes in a bound pod.
    pub fn apply_pod(&mut self, pod: &Value) -> Result<()> {
        let pod = self.read(pod)?;
        self.tell(Event::PodApplied(pod));
        Ok(())
    }

    /// What the engine would do with an unbound pod.
    pub fn examine(&mut self, pod: &Value) -> Result<Verdict> {
        let pod = self.read(pod)?;
        Ok(match self.engine.examine(&pod) {
            Examination::Gated => Verdict::Gated,
            Examination::Feasible(nodes) => {
                Verdict::Feasible(nodes.iter().map(|node| node.as_str().to_owned()).collect())
            }
            Examination::Refused(why) => Verdict::Refused(why.to_string()),
        })
    }

    fn read(&mut self, pod: &Value) -> Result<Pod> {
        let view: PodView = serde_json::from_value(pod.clone()).context("read a pod")?;
        let id = pod_id(&view, &mut self.interner);
        Ok(convert_pod(&view, id, &mut self.interner)?)
    }

    fn tell(&mut self, event: Event) {
        // What the engine wants done about it is of no interest: kube-scheduler does it.
        self.engine.step(Time::ZERO, event, &mut Vec::new());
    }
}
