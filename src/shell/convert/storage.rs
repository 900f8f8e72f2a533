//! Claims, volumes and what else the API says of storage.
//!
//! Invariant: nothing here is refused. What cannot be read is read as what helps nobody (a volume without room, a term that
//! matches no node, a claim that nothing is large enough for), and a note says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pod::Reader;
use super::wire::storage::{
    AttachmentView, ClaimView, CsiDriverView, CsiNodeView, PersistentVolumeView, StorageCapacityView,
    StorageClassView, TopologyTermView,
};
use super::wire::{Amounts, LabelSelectorView, NodeSelectorView};
use super::{Interner, convert_labels, quantity};
use crate::model::{
    Attachment, Claim, ClaimKey, CsiDriver, CsiNode, LabelSelector, MAX_QUANTITY, NodeSelectorTerm, Operator,
    Requirement, StorageCapacity, StorageClass, StorageKey, StorageObject, Volume, VolumeId,
};

/// Set by the controller once it has bound a claim.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The node for which a volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// What named a storage class before there was a field for it, and takes precedence still.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// An object of storage as the API shows it.
pub trait StorageView {
    /// The object as the model has it; what could not be read goes to `notes`.
    fn convert(&self, interner: &mut Interner, notes: &mut Vec<String>) -> StorageObject;

    /// How it is addressed.
    fn key(&self) -> StorageKey;
}

impl StorageView for ClaimView {
    fn convert(&self, interner: &mut Interner, notes: &mut Vec<String>) -> StorageObject {
        let spec = &self.spec;
        let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let annotation = |name| annotation(&self.metadata, name);
        let owners = self.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        StorageObject::Claim(Claim {
            key: namespaced(&self.metadata, interner),
            uid: self.metadata.uid.as_deref().unwrap_or_default().into(),
            version: version(&self.metadata),
            class: class(&self.metadata, spec.storage_class_name.as_deref(), interner),
            size: storage("spec.resources.requests", requests, MAX_QUANTITY, notes),
            modes: texts(spec.access_modes.as_deref(), interner),
            block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: interner.text(spec.volume_attributes_class_name.as_deref().unwrap_or_default()),
            selector: selector("spec.selector", spec.selector.as_ref(), interner, notes),
            volume: given(spec.volume_name.as_deref()).map(|name| interner.text(name)),
            bind_completed: annotation(BIND_COMPLETED).is_some(),
            selected_node: annotation(SELECTED_NODE).map(|node| interner.text(node).into()),
            lost: self.status.phase.as_deref() == Some("Lost"),
            terminating: self.metadata.deletion_timestamp.is_some(),
            controller: controllers.next().map(|owner| owner.uid.as_str().into()),
        })
    }

    fn key(&self) -> StorageKey {
        StorageKey::Claim(namespaced(&self.metadata, &mut Interner::default()))
    }
}

impl StorageView for PersistentVolumeView {
    fn convert(&self, interner: &mut Interner, notes: &mut Vec<String>) -> StorageObject {
        let spec = &self.spec;
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let claim = spec.claim_ref.as_ref().map(|claim| {
            let mut text = |text: &Option<String>| interner.text(text.as_deref().unwrap_or_default());
            let key = ClaimKey { namespace: text(&claim.namespace), name: text(&claim.name) };
            (key, claim.uid.as_deref().unwrap_or_default().into())
        });
        let capacity = storage("spec.capacity", spec.capacity.as_ref(), 0, notes);
        StorageObject::Volume(Volume {
            name: name(&self.metadata, interner),
            version: version(&self.metadata),
            labels: convert_labels(self.metadata.labels.as_ref(), interner),
            class: class(&self.metadata, spec.storage_class_name.as_deref(), interner),
            capacity: capacity.unwrap_or_default(),
            modes: texts(spec.access_modes.as_deref(), interner),
            block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: interner.text(spec.volume_attributes_class_name.as_deref().unwrap_or_default()),
            affinity: required.map(|selector| affinity(selector, interner, notes)),
            claim,
            available: self.status.phase.as_deref() == Some("Available"),
            terminating: self.metadata.deletion_timestamp.is_some(),
            id: spec.csi.as_ref().map(|csi| VolumeId {
                driver: interner.text(&csi.driver),
                handle: csi.volume_handle.as_str().into(),
            }),
        })
    }

    fn key(&self) -> StorageKey {
        StorageKey::Volume(name(&self.metadata, &mut Interner::default()))
    }
}

impl StorageView for StorageClassView {
    fn convert(&self, interner: &mut Interner, _: &mut Vec<String>) -> StorageObject {
        let topologies = self.allowed_topologies.iter().flatten();
        StorageObject::Class(StorageClass {
            name: name(&self.metadata, interner),
            provisioner: interner.text(&self.provisioner),
            waits: self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            topologies: topologies.map(|term| topology(term, interner)).collect(),
        })
    }

    fn key(&self) -> StorageKey {
        StorageKey::Class(name(&self.metadata, &mut Interner::default()))
    }
}

impl StorageView for CsiNodeView {
    fn convert(&self, interner: &mut Interner, _: &mut Vec<String>) -> StorageObject {
        let drivers = self.spec.drivers.iter().flatten();
        let limits = drivers.filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((interner.text(&driver.name), u64::try_from(count).unwrap_or_default()))
        });
        let limits: BTreeMap<_, _> = limits.collect();
        StorageObject::Node(CsiNode { node: name(&self.metadata, interner).into(), limits })
    }

    fn key(&self) -> StorageKey {
        StorageKey::Node(name(&self.metadata, &mut Interner::default()).into())
    }
}

impl StorageView for CsiDriverView {
    fn convert(&self, interner: &mut Interner, _: &mut Vec<String>) -> StorageObject {
        StorageObject::Driver(CsiDriver {
            name: name(&self.metadata, interner),
            tracks_capacity: self.spec.storage_capacity == Some(true),
        })
    }

    fn key(&self) -> StorageKey {
        StorageKey::Driver(name(&self.metadata, &mut Interner::default()))
    }
}

impl StorageView for StorageCapacityView {
    fn convert(&self, interner: &mut Interner, notes: &mut Vec<String>) -> StorageObject {
        let largest = self.maximum_volume_size.as_ref().or(self.capacity.as_ref());
        let limit = largest.map(|text| {
            quantity::units(text).unwrap_or_else(|error| {
                notes.push(format!("capacity: \"{text}\" {error}; counted as zero"));
                0
            })
        });
        StorageObject::Capacity(StorageCapacity {
            key: namespaced(&self.metadata, interner),
            class: interner.text(&self.storage_class_name),
            nodes: selector("nodeTopology", self.node_topology.as_ref(), interner, notes).unwrap_or_default(),
            limit,
        })
    }

    fn key(&self) -> StorageKey {
        StorageKey::Capacity(namespaced(&self.metadata, &mut Interner::default()))
    }
}

impl StorageView for AttachmentView {
    fn convert(&self, interner: &mut Interner, _: &mut Vec<String>) -> StorageObject {
        StorageObject::Attachment(Attachment {
            name: name(&self.metadata, interner),
            node: interner.text(&self.spec.node_name).into(),
            driver: interner.text(&self.spec.attacher),
            volume: interner.text(self.spec.source.persistent_volume_name.as_deref().unwrap_or_default()),
        })
    }

    fn key(&self) -> StorageKey {
        StorageKey::Attachment(name(&self.metadata, &mut Interner::default()))
    }
}

fn name(meta: &ObjectMeta, interner: &mut Interner) -> Arc<str> {
    interner.text(meta.name.as_deref().unwrap_or_default())
}

/// Versions are numbers that grow, by the API's word.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn namespaced(meta: &ObjectMeta, interner: &mut Interner) -> ClaimKey {
    ClaimKey {
        namespace: interner.text(meta.namespace.as_deref().unwrap_or_default()),
        name: interner.text(meta.name.as_deref().unwrap_or_default()),
    }
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn class(meta: &ObjectMeta, field: Option<&str>, interner: &mut Interner) -> Arc<str> {
    interner.text(annotation(meta, BETA_CLASS).or(field).unwrap_or_default())
}

fn texts(texts: Option<&[String]>, interner: &mut Interner) -> BTreeSet<Arc<str>> {
    texts.unwrap_or_default().iter().map(|text| interner.text(text)).collect()
}

/// Bytes of storage; `bad` stands for an amount that cannot be read.
fn storage(path: &str, amounts: Option<&Amounts>, bad: u64, notes: &mut Vec<String>) -> Option<u64> {
    let text = amounts?.get("storage")?;
    Some(quantity::units(text).unwrap_or_else(|error| {
        notes.push(format!("{path}[storage]: \"{text}\" {error}; counted as {bad}"));
        bad
    }))
}

fn selector(
    path: &str,
    view: Option<&LabelSelectorView>,
    interner: &mut Interner,
    notes: &mut Vec<String>,
) -> Option<LabelSelector> {
    let mut reader = Reader::new(interner);
    let selector = reader.label_selector(path, Some(view?));
    let Some(error) = reader.into_error() else { return Some(selector) };
    notes.push(format!("{error}; the selector matches nothing"));
    Some(LabelSelector::Nothing)
}

fn affinity(
    view: &NodeSelectorView,
    interner: &mut Interner,
    notes: &mut Vec<String>,
) -> Arc<[NodeSelectorTerm]> {
    let terms = view.node_selector_terms.iter().flatten().enumerate();
    let terms = terms.filter_map(|(at, view)| {
        let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{at}]");
        let mut reader = Reader::new(interner);
        let term = reader.term(&path, view);
        let Some(error) = reader.into_error() else { return Some(term) };
        notes.push(format!("{error}; the term matches no node"));
        None
    });
    terms.collect()
}

/// A term without requirements matches nothing.
fn topology(view: &TopologyTermView, interner: &mut Interner) -> LabelSelector {
    let views = view.match_label_expressions.as_deref().unwrap_or_default();
    if views.is_empty() {
        return LabelSelector::Nothing;
    }
    let requirements = views.iter().map(|view| Requirement {
        key: interner.text(&view.key),
        operator: Operator::In,
        values: view.values.iter().flatten().map(|value| interner.text(value)).collect(),
    });
    LabelSelector::All(requirements.collect())
}
