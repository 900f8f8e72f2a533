//! What a pod's volumes have to say about a node: disks that are not shared, claims for one pod alone, attach limits, where bound volumes can be reached
//! from, and for claims that wait for their first consumer the volumes that would be theirs there.
//!
//! Invariant: besides the pod's kind a verdict depends on the node, on its pods, on what is attached to it, and, for waiting
//! claims only, on the volumes and the room on offer. The cache gives a node a new generation when one of the first changes,
//! and counts changes of the last ([`crate::cache::Storage::offers`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::reason::Reason;
use crate::cache::{Cache, NodeInfo, Storage};
use crate::model::{
    BoundVolume, HOST_LABEL, Node, NodeSelectorTerm, PodKind, PodSpec, Volume, VolumeId, VolumeNeeds,
    WaitingClaim, ZONE_LABELS,
};

/// A provisioner that makes no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Whether the pod's volumes allow the node. Costs nothing for a pod without any.
pub(super) fn admits(cache: &Cache, kind: &PodKind, info: &NodeInfo, node: &Node) -> bool {
    if !has_free_disks(&kind.spec, info) {
        return false;
    }
    let Some(needs) = kind.volumes.as_deref() else { return true };
    let storage = cache.storage();
    needs.blocked.is_none()
        && !needs.in_use
        && needs.bound.iter().all(|volume| volume.exists && is_reachable(volume.affinity.as_deref(), node))
        && in_zones(&needs.bound, node)
        && can_attach(storage, needs, info, node)
        && assign(storage, &needs.waiting, node).is_ok()
}

/// Why the pod's volumes do not allow the node: the reasons of the first of kube-scheduler's plugins that would say no.
pub(super) fn rejections(cache: &Cache, kind: &PodKind, info: &NodeInfo, node: &Node) -> Vec<Reason> {
    if !has_free_disks(&kind.spec, info) {
        return vec![Reason::DiskConflict];
    }
    let Some(needs) = kind.volumes.as_deref() else { return Vec::new() };
    let storage = cache.storage();
    if needs.in_use {
        return vec![Reason::ClaimInUse];
    }
    if !can_attach(storage, needs, info, node) {
        return vec![Reason::TooManyVolumes];
    }
    let bound = needs.bound.iter().find_map(|volume| {
        let reachable = || is_reachable(volume.affinity.as_deref(), node);
        match volume.exists {
            false => Some(Reason::VolumeMissing),
            true => (!reachable()).then_some(Reason::VolumeAffinity),
        }
    });
    let waiting = assign(storage, &needs.waiting, node).err();
    let reasons: Vec<_> = bound.into_iter().chain(waiting).collect();
    if reasons.is_empty() && !in_zones(&needs.bound, node) {
        return vec![Reason::VolumeZone];
    }
    reasons
}

fn has_free_disks(pod: &PodSpec, info: &NodeInfo) -> bool {
    let mut taken = info.occupants().flat_map(|occupant| &occupant.spec.disks);
    pod.disks.is_empty() || !taken.any(|taken| pod.disks.iter().any(|disk| disk.conflicts(taken)))
}

/// Whether a volume with this node affinity can be reached from the node. It speaks of labels alone; a node's name matches
/// nothing in it.
pub fn is_reachable(affinity: Option<&[NodeSelectorTerm]>, node: &Node) -> bool {
    affinity.is_none_or(|terms| terms.iter().any(|term| term.matches("", &node.labels)))
}

/// Whether the node is where the volumes' labels say they are. A node that says nothing of itself is everywhere.
fn in_zones(volumes: &[BoundVolume], node: &Node) -> bool {
    let mut zones = volumes.iter().flat_map(|volume| &volume.zones).peekable();
    if zones.peek().is_none() || !ZONE_LABELS.iter().any(|(label, _)| node.labels.contains_key(*label)) {
        return true;
    }
    zones.all(|(label, zones)| {
        let today = || ZONE_LABELS.iter().find(|(known, _)| **known == **label).map(|(_, today)| *today);
        let own = node.labels.get(label).or_else(|| node.labels.get(today()?));
        own.is_some_and(|own| zones.contains(own))
    })
}

/// Whether the node can attach the volumes that its pods have not brought there already.
fn can_attach(storage: &Storage, needs: &VolumeNeeds, info: &NodeInfo, node: &Node) -> bool {
    let limits = storage.node(&node.name).map(|csi| &csi.limits);
    let Some(limits) = limits.filter(|limits| needs.attaches() && !limits.is_empty()) else { return true };
    let brought: BTreeSet<VolumeId> = info
        .occupants()
        .filter_map(|pod| Some((pod, pod.volumes.as_deref()?)))
        .flat_map(|(pod, uses)| storage.brings(&pod.namespace, uses))
        .collect();
    let mut wanted = needs.fresh.clone();
    for id in needs.shared.iter().filter(|id| !brought.contains(id)) {
        *wanted.entry(Arc::clone(&id.driver)).or_default() += 1;
    }
    let mut taken: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    let others: BTreeSet<VolumeId> =
        storage.attached(&node.name).filter(|id| !brought.contains(id)).collect();
    for id in brought.into_iter().chain(others) {
        *taken.entry(id.driver).or_default() += 1;
    }
    wanted.iter().all(|(driver, wanted)| {
        let taken = taken.get(driver).copied().unwrap_or_default();
        limits.get(driver).is_none_or(|limit| taken + wanted <= *limit)
    })
}

/// For each claim that waits for its first consumer the volume that would be its own on the node, or `None` if one would be
/// made; or why there is no such thing. The claims are in order of size, so that each gets the smallest that is left.
pub fn assign(
    storage: &Storage,
    claims: &[WaitingClaim],
    node: &Node,
) -> Result<Vec<Option<Arc<str>>>, Reason> {
    let elsewhere =
        |claim: &WaitingClaim| claim.selected_node.as_ref().is_some_and(|selected| *selected != node.name);
    if claims.iter().any(elsewhere) {
        return Err(Reason::NoVolumeToBind);
    }
    let mut taken = BTreeSet::new();
    let mut found = Vec::with_capacity(claims.len());
    for claim in claims {
        let volume = match claim.selected_node {
            // A volume is being made for it.
            Some(_) => None,
            None => find(storage, claim, node, &taken),
        };
        taken.extend(volume.clone());
        found.push(volume);
    }
    let to_make = || claims.iter().zip(&found).filter(|(_, volume)| volume.is_none()).map(|(claim, _)| claim);
    let begun = to_make().filter(|claim| claim.selected_node.is_some());
    let others = to_make().filter(|claim| claim.selected_node.is_none());
    begun.chain(others).try_for_each(|claim| can_make(storage, claim, node))?;
    Ok(found)
}

/// The volume for a claim on a node: one that is kept for it, else the smallest that suits it.
fn find(
    storage: &Storage,
    claim: &WaitingClaim,
    node: &Node,
    taken: &BTreeSet<Arc<str>>,
) -> Option<Arc<str>> {
    let size = claim.size.unwrap_or_default();
    let suits = |volume: &Volume| {
        !taken.contains(&volume.name)
            && volume.block == claim.block
            && volume.attributes_class == claim.attributes_class
            && !volume.terminating
    };
    if let Some(kept) = claim.kept.iter().find(|kept| !taken.contains(&kept.name)) {
        return is_reachable(kept.affinity.as_deref(), node).then(|| kept.name.clone());
    }
    let volume = storage.smallest(&claim.class, size, node.labels.get(HOST_LABEL), |volume| {
        suits(volume)
            && claim.modes.is_subset(&volume.modes)
            && claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
            && is_reachable(volume.affinity.as_deref(), node)
    });
    volume.map(|volume| volume.name.clone())
}

/// Whether a volume for the claim can be made for the node.
fn can_make(storage: &Storage, claim: &WaitingClaim, node: &Node) -> Result<(), Reason> {
    let class = storage.class(&claim.class);
    let class = class.filter(|class| !matches!(&*class.provisioner, "" | NO_PROVISIONER));
    let class = class.ok_or(Reason::NoVolumeToBind)?;
    if !class.topologies.is_empty() && !class.topologies.iter().any(|term| term.matches(&node.labels)) {
        return Err(Reason::NoVolumeToBind);
    }
    if claim.size.is_some_and(|size| !storage.has_room(class, size, &node.labels)) {
        return Err(Reason::NotEnoughStorage);
    }
    Ok(())
}
