//! Claims, volumes and what else the API says of storage, and what a pod's volumes ask of a node by that.
//!
//! Invariants:
//! - The indices (`named`, `kept`, `free`, `handles`, the attachments by node and by volume) are always what the objects make
//!   them, and `users` what the counted pods do.
//! - A change tells of every claim whose pods it may concern, so whoever resolves those anew has missed nothing.
//!
//! Bound: one entry per object of the API server, and one per claim of a counted pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::NodeIndex;
use crate::model::{
    Attachment, BoundVolume, Claim, ClaimKey, ClaimUse, CsiDriver, CsiNode, HOST_LABEL, KeptVolume, Labels,
    NodeName, NodeSelectorTerm, Operator, PodId, StorageCapacity, StorageClass, StorageKey, StorageObject,
    Volume, VolumeId, VolumeNeeds, WaitingClaim, ZONE_LABELS,
};

/// What separates several zones in one label.
const ZONE_DELIMITER: &str = "__";

/// What the names of the storage plugins begin with that Kubernetes once had built in.
const IN_TREE: &str = "kubernetes.io/";

/// Where volumes are looked for: their class, and the host that they confine their pods to (`None` for those that do not).
type Place = (Arc<str>, Option<Arc<str>>);

/// What came of showing the cache an object of storage that is new or differs from before, or the end of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageChange {
    /// Claims that may be something else to their pods.
    pub claims: BTreeSet<ClaimKey>,
    /// Whether every pod with volumes may be concerned.
    pub all: bool,
    /// Whether claims that wait for a consumer may find other volumes or more room than before.
    pub offers: bool,
    /// Nodes that may attach other volumes than before.
    pub nodes: BTreeSet<NodeName>,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub struct Storage {
    claims: BTreeMap<ClaimKey, Claim>,
    volumes: BTreeMap<Arc<str>, Volume>,
    classes: BTreeMap<Arc<str>, StorageClass>,
    nodes: BTreeMap<NodeName, CsiNode>,
    drivers: BTreeMap<Arc<str>, CsiDriver>,
    capacities: BTreeMap<ClaimKey, StorageCapacity>,
    attachments: BTreeMap<Arc<str>, Attachment>,
    /// The attachments of each node.
    attached: BTreeMap<NodeName, BTreeSet<Arc<str>>>,
    /// The attachments of each volume.
    attached_volume: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The claims that name a volume.
    named: BTreeMap<Arc<str>, BTreeSet<ClaimKey>>,
    /// The volumes that name a claim.
    kept: BTreeMap<ClaimKey, BTreeSet<Arc<str>>>,
    /// The volumes that anybody may have, by where they are and by size.
    free: BTreeMap<Place, BTreeSet<(u64, Arc<str>)>>,
    /// How many volumes are the same to their driver.
    handles: BTreeMap<VolumeId, usize>,
    /// Where counted pods use a claim, and how many on each node.
    users: BTreeMap<ClaimKey, BTreeMap<NodeIndex, usize>>,
    /// How many pods use a claim that is not made for them.
    sharers: BTreeMap<ClaimKey, usize>,
    /// Claims for which a node was chosen that the API may not show yet, and by how many pods.
    chosen: BTreeMap<ClaimKey, (NodeName, usize)>,
    /// Volumes that were given to a claim, which the API may not show yet, and by how many pods.
    given: BTreeMap<Arc<str>, (ClaimKey, usize)>,
    /// Grows whenever claims that wait for a consumer may find other volumes or more room than before.
    offers: u64,
}

impl Storage {
    /// Grows whenever claims that wait for a consumer may find other volumes or more room than before.
    pub fn offers(&self) -> u64 {
        self.offers
    }

    /// Whether nothing is chosen for any claim that the API may not show yet.
    pub fn is_settled(&self) -> bool {
        self.chosen.is_empty() && self.given.is_empty()
    }

    /// A claim.
    pub fn claim(&self, key: &ClaimKey) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// The claims of a pod that wait for their first consumer, the smallest first.
    pub fn waiting_claims(&self, namespace: &Arc<str>, uses: &[ClaimUse]) -> Vec<(ClaimKey, WaitingClaim)> {
        let claims = uses.iter().filter_map(|used| self.claims.get(&key(namespace, used)));
        let waiting = claims.filter(|claim| self.waits(claim));
        let mut waiting: Vec<_> = waiting.map(|claim| (claim.key.clone(), self.waiting(claim))).collect();
        waiting.sort_by_key(|(_, claim)| claim.size);
        waiting
    }

    /// A storage class.
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name)
    }

    /// A volume.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(name)
    }

    /// The smallest volume of a class that anybody may have, that holds this many bytes and that `suits`. Volumes confined to
    /// hosts other than this one are not looked at.
    pub fn smallest(
        &self,
        class: &Arc<str>,
        size: u64,
        host: Option<&Arc<str>>,
        suits: impl Fn(&Volume) -> bool,
    ) -> Option<&Volume> {
        let first = |host: Option<&Arc<str>>| {
            let free = self.free.get(&(class.clone(), host.cloned()))?;
            let names = free.range((size, "".into())..).map(|(_, name)| name);
            let volumes = names.filter(|name| !self.given.contains_key(*name));
            volumes.filter_map(|name| self.volumes.get(name)).find(|volume| suits(volume))
        };
        let found = first(None).into_iter().chain(host.and_then(|host| first(Some(host))));
        found.min_by(|a, b| (a.capacity, &a.name).cmp(&(b.capacity, &b.name)))
    }

    /// Whether a volume of this many bytes can be made for a node with these labels, as far as the class's driver says how much
    /// room it has.
    pub fn has_room(&self, class: &StorageClass, size: u64, node: &Labels) -> bool {
        let tracks = self.drivers.get(&class.provisioner).is_some_and(|driver| driver.tracks_capacity);
        let fits = |capacity: &StorageCapacity| {
            capacity.class == class.name
                && capacity.limit.is_some_and(|limit| limit >= size)
                && capacity.nodes.matches(node)
        };
        !tracks || self.capacities.values().any(fits)
    }

    /// What a node says of the volumes it can attach.
    pub fn node(&self, name: &NodeName) -> Option<&CsiNode> {
        self.nodes.get(name)
    }

    /// The volumes attached to a node, as far as they are a CSI driver's.
    pub fn attached(&self, node: &NodeName) -> impl Iterator<Item = VolumeId> {
        let attachments = self.attached.get(node).into_iter().flatten();
        attachments.filter_map(|name| {
            let attachment = self.attachments.get(name)?;
            let id = self.volumes.get(&attachment.volume)?.id.as_ref()?;
            Some(VolumeId { driver: attachment.driver.clone(), handle: id.handle.clone() })
        })
    }

    /// What a counted pod attaches to its node.
    pub fn brings<'a>(
        &'a self,
        namespace: &'a Arc<str>,
        uses: &'a [ClaimUse],
    ) -> impl Iterator<Item = VolumeId> {
        uses.iter().filter_map(|used| self.attachable(self.claims.get(&key(namespace, used))?))
    }

    /// What a pod's volumes ask of a node.
    pub fn needs(&self, pod: &PodId, uses: &[ClaimUse]) -> VolumeNeeds {
        let claims = match self.look_up(pod, uses) {
            Ok(claims) => claims,
            Err(why) => return VolumeNeeds::blocked(why),
        };
        let mut needs = VolumeNeeds::default();
        for (used, claim) in uses.iter().zip(&claims) {
            needs.in_use |= !used.ephemeral && claim.is_exclusive() && self.sharers.contains_key(&claim.key);
            match &claim.volume {
                Some(volume) => needs.bound.push(self.bound(volume, used.ephemeral)),
                None => needs.waiting.push(self.waiting(claim)),
            }
        }
        needs.waiting.sort_by_key(|claim| claim.size);
        for (claim, id) in claims.iter().filter_map(|claim| Some((claim, self.attachable(claim)?))) {
            let shared = self.users.contains_key(&claim.key)
                || self.handles.get(&id).is_some_and(|volumes| *volumes > 1);
            if shared {
                needs.shared.insert(id);
            } else {
                *needs.fresh.entry(id.driver).or_default() += 1;
            }
        }
        needs
    }

    /// The claims of a pod, each once; or why it has to wait for one of them, in the order in which kube-scheduler's plugins ask
    /// and in their words.
    fn look_up(&self, pod: &PodId, uses: &[ClaimUse]) -> Result<Vec<&Claim>, String> {
        let find = |used: &ClaimUse| self.claims.get(&key(&pod.namespace, used));
        let own = |used: &&ClaimUse| !used.ephemeral;
        if let Some(used) = uses.iter().filter(own).find(|used| find(used).is_none()) {
            return Err(format!("persistentvolumeclaim \"{}\" not found", used.name));
        }
        let mut claims = Vec::with_capacity(uses.len());
        for used in uses {
            let Some(claim) = find(used) else {
                let name = &used.name;
                return Err(format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                ));
            };
            if let Some(why) = unusable(pod, used, claim) {
                return Err(why);
            }
            claims.push(claim);
        }
        if claims.iter().any(|claim| !claim.is_bound() && !self.waits(claim)) {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        let mut volumes = uses.iter().zip(&claims).filter(|(used, _)| own(used));
        let missing = volumes.find_map(|(_, claim)| {
            claim.volume.as_ref().filter(|volume| !self.volumes.contains_key(&***volume))
        });
        match missing {
            Some(volume) => Err(format!("persistentvolume \"{volume}\" not found")),
            None => Ok(claims),
        }
    }

    /// Whether a claim waits for a consumer to be bound.
    fn waits(&self, claim: &Claim) -> bool {
        claim.volume.is_none() && self.classes.get(&claim.class).is_some_and(|class| class.waits)
    }

    fn bound(&self, name: &Arc<str>, ephemeral: bool) -> BoundVolume {
        let Some(volume) = self.volumes.get(name) else { return BoundVolume::default() };
        // Only what is not made for the pod is looked at for its zone.
        let zones = if ephemeral { Vec::new() } else { zones(volume) };
        BoundVolume { exists: true, affinity: volume.affinity.clone(), zones }
    }

    fn waiting(&self, claim: &Claim) -> WaitingClaim {
        WaitingClaim {
            size: claim.size,
            class: claim.class.clone(),
            modes: claim.modes.clone(),
            block: claim.block,
            attributes_class: claim.attributes_class.clone(),
            selector: claim.selector.clone(),
            selected_node: match self.chosen.get(&claim.key) {
                Some((node, _)) => Some(node.clone()),
                None => claim.selected_node.clone(),
            },
            kept: self.kept_for(claim),
        }
    }

    /// The volumes that are kept for just this claim, by the API's word or by ours, as far as they suit it.
    fn kept_for(&self, claim: &Claim) -> Vec<KeptVolume> {
        let names = self.kept.get(&claim.key).into_iter().flatten();
        let named = |volume: &&Volume| {
            volume.claim.as_ref().is_some_and(|(_, uid)| uid.is_empty() || *uid == claim.uid)
        };
        let kept = names.filter_map(|name| self.volumes.get(name)).filter(named);
        let given = self.given.iter().filter(|(_, (key, _))| *key == claim.key);
        let given = given.filter_map(|(name, _)| self.volumes.get(name));
        let all: BTreeMap<_, _> = kept.chain(given).map(|volume| (&volume.name, volume)).collect();
        let suits = |volume: &&Volume| {
            volume.class == claim.class
                && volume.capacity >= claim.size.unwrap_or_default()
                && volume.block == claim.block
                && volume.attributes_class == claim.attributes_class
                && !volume.terminating
        };
        let suiting = all.into_values().filter(suits);
        let kept =
            |volume: &Volume| KeptVolume { name: volume.name.clone(), affinity: volume.affinity.clone() };
        suiting.map(kept).collect()
    }

    /// What is attached to a node for a claim; `None` for what no driver counts. Until a volume is bound the claim stands for it.
    fn attachable(&self, claim: &Claim) -> Option<VolumeId> {
        let volume = claim.volume.as_ref().and_then(|name| self.volumes.get(name));
        if let Some(volume) = volume {
            return volume.id.clone();
        }
        let driver = &self.classes.get(&claim.class)?.provisioner;
        let ClaimKey { namespace, name } = &claim.key;
        let handle = format!("unbound claim {namespace}/{name}").into();
        (!driver.starts_with(IN_TREE)).then(|| VolumeId { driver: driver.clone(), handle })
    }

    /// A pod with these volumes counts on a node from now on.
    pub(super) fn insert_pod(&mut self, namespace: &Arc<str>, uses: &[ClaimUse], at: NodeIndex) {
        for used in uses {
            let key = key(namespace, used);
            if !used.ephemeral {
                *self.sharers.entry(key.clone()).or_default() += 1;
            }
            *self.users.entry(key).or_default().entry(at).or_default() += 1;
        }
    }

    /// A pod with these volumes counts on a node no more.
    pub(super) fn remove_pod(&mut self, namespace: &Arc<str>, uses: &[ClaimUse], at: NodeIndex) {
        for used in uses {
            let key = key(namespace, used);
            if !used.ephemeral {
                take(&mut self.sharers, &key);
            }
            if let Some(nodes) = self.users.get_mut(&key) {
                take(nodes, &at);
                if nodes.is_empty() {
                    self.users.remove(&key);
                }
            }
        }
    }

    /// A volume is to be made for the claim on a node.
    pub(super) fn choose(&mut self, claim: &ClaimKey, node: &NodeName) -> StorageChange {
        self.chosen.entry(claim.clone()).or_insert_with(|| (node.clone(), 0)).1 += 1;
        StorageChange { claims: [claim.clone()].into(), ..StorageChange::default() }
    }

    /// The volume is to be the claim's.
    pub(super) fn give(&mut self, volume: &Arc<str>, claim: &ClaimKey) -> StorageChange {
        self.given.entry(volume.clone()).or_insert_with(|| (claim.clone(), 0)).1 += 1;
        self.offers += 1;
        StorageChange { claims: [claim.clone()].into(), ..StorageChange::default() }
    }

    /// One pod less waits for what was chosen for its claim: a volume, or a node where one is made.
    pub(super) fn settle(&mut self, claim: &ClaimKey, volume: Option<&Arc<str>>) -> StorageChange {
        let Some(volume) = volume else {
            if let Some((_, pods)) = self.chosen.get_mut(claim) {
                *pods -= 1;
                if *pods == 0 {
                    self.chosen.remove(claim);
                }
            }
            return StorageChange { claims: [claim.clone()].into(), ..StorageChange::default() };
        };
        if let Some((_, pods)) = self.given.get_mut(volume) {
            *pods -= 1;
            if *pods == 0 {
                self.given.remove(volume);
            }
        }
        let offers = self.volumes.get(volume).is_some_and(is_free);
        self.offers += u64::from(offers);
        StorageChange { claims: [claim.clone()].into(), offers, ..StorageChange::default() }
    }

    /// Where counted pods use one of these claims.
    pub(super) fn users(&self, claims: &BTreeSet<ClaimKey>) -> Vec<NodeIndex> {
        let nodes = claims.iter().filter_map(|key| self.users.get(key));
        nodes.flat_map(|nodes| nodes.keys().copied()).collect()
    }

    /// Takes in an object. Returns what that changes, if it is new or differs from before.
    pub(super) fn apply(&mut self, object: StorageObject) -> Option<StorageChange> {
        let mut change = StorageChange::default();
        match object {
            StorageObject::Claim(claim) => {
                if let Some(known) = self.claims.get_mut(&claim.key).filter(|known| known.is_like(&claim)) {
                    known.version = claim.version;
                    return None;
                }
                self.take_claim(&claim.key.clone(), &mut change);
                if let Some(volume) = &claim.volume {
                    self.named.entry(volume.clone()).or_default().insert(claim.key.clone());
                }
                self.claims.insert(claim.key.clone(), claim);
            }
            StorageObject::Volume(volume) => {
                let known = self.volumes.get_mut(&volume.name);
                if let Some(known) = known.filter(|known| known.is_like(&volume)) {
                    known.version = volume.version;
                    return None;
                }
                self.take_volume(&volume.name.clone(), &mut change);
                self.put_volume(volume, &mut change);
            }
            StorageObject::Class(class) => {
                let before = self.classes.insert(class.name.clone(), class.clone());
                if before.as_ref() == Some(&class) {
                    return None;
                }
                (change.all, change.offers) = (true, true);
            }
            StorageObject::Node(node) => {
                let before = self.nodes.insert(node.node.clone(), node.clone());
                if before.as_ref() == Some(&node) {
                    return None;
                }
                change.nodes.insert(node.node);
            }
            StorageObject::Driver(driver) => {
                let before = self.drivers.insert(driver.name.clone(), driver.clone());
                if before.as_ref() == Some(&driver) {
                    return None;
                }
                change.offers = true;
            }
            StorageObject::Capacity(capacity) => {
                let before = self.capacities.insert(capacity.key.clone(), capacity.clone());
                if before.as_ref() == Some(&capacity) {
                    return None;
                }
                change.offers = true;
            }
            StorageObject::Attachment(attachment) => {
                if self.attachments.get(&attachment.name) == Some(&attachment) {
                    return None;
                }
                self.take_attachment(&attachment.name.clone(), &mut change);
                self.put_attachment(attachment, &mut change);
            }
        }
        self.offers += u64::from(change.offers);
        Some(change)
    }

    /// Takes out an object. Returns what that changes, if it was known.
    pub(super) fn delete(&mut self, key: &StorageKey) -> Option<StorageChange> {
        let mut change = StorageChange::default();
        let known = match key {
            StorageKey::Claim(key) => self.take_claim(key, &mut change),
            StorageKey::Volume(name) => self.take_volume(name, &mut change),
            StorageKey::Class(name) => {
                (change.all, change.offers) = (true, true);
                self.classes.remove(name).is_some()
            }
            StorageKey::Node(name) => {
                change.nodes.insert(name.clone());
                self.nodes.remove(name).is_some()
            }
            StorageKey::Driver(name) => {
                change.offers = true;
                self.drivers.remove(name).is_some()
            }
            StorageKey::Capacity(key) => {
                change.offers = true;
                self.capacities.remove(key).is_some()
            }
            StorageKey::Attachment(name) => self.take_attachment(name, &mut change),
        };
        self.offers += u64::from(known && change.offers);
        known.then_some(change)
    }

    fn take_claim(&mut self, key: &ClaimKey, change: &mut StorageChange) -> bool {
        change.claims.insert(key.clone());
        let Some(claim) = self.claims.remove(key) else { return false };
        if let Some(volume) = &claim.volume {
            forget(&mut self.named, volume, key);
        }
        true
    }

    fn put_volume(&mut self, volume: Volume, change: &mut StorageChange) {
        self.note_claims(&volume, change);
        if let Some((claim, _)) = &volume.claim {
            self.kept.entry(claim.clone()).or_default().insert(volume.name.clone());
        } else if is_free(&volume) {
            change.offers = true;
            for place in places(&volume) {
                self.free.entry(place).or_default().insert((volume.capacity, volume.name.clone()));
            }
        }
        if let Some(id) = &volume.id {
            *self.handles.entry(id.clone()).or_default() += 1;
        }
        self.volumes.insert(volume.name.clone(), volume);
    }

    fn take_volume(&mut self, name: &Arc<str>, change: &mut StorageChange) -> bool {
        let Some(volume) = self.volumes.remove(name) else { return false };
        self.note_claims(&volume, change);
        if let Some((claim, _)) = &volume.claim {
            forget(&mut self.kept, claim, name);
        }
        if is_free(&volume) {
            change.offers = true;
            for place in places(&volume) {
                forget(&mut self.free, &place, &(volume.capacity, name.clone()));
            }
        }
        if let Some(id) = &volume.id {
            take(&mut self.handles, id);
        }
        true
    }

    /// Whom a change of this volume concerns.
    fn note_claims(&self, volume: &Volume, change: &mut StorageChange) {
        change.claims.extend(volume.claim.as_ref().map(|(claim, _)| claim.clone()));
        change.claims.extend(self.given.get(&volume.name).map(|(claim, _)| claim.clone()));
        change.claims.extend(self.named.get(&volume.name).into_iter().flatten().cloned());
        let attachments = self.attached_volume.get(&volume.name).into_iter().flatten();
        let nodes = attachments.filter_map(|name| self.attachments.get(name));
        change.nodes.extend(nodes.map(|attachment| attachment.node.clone()));
    }

    fn put_attachment(&mut self, attachment: Attachment, change: &mut StorageChange) {
        let Attachment { name, node, volume, .. } = &attachment;
        change.nodes.insert(node.clone());
        self.attached.entry(node.clone()).or_default().insert(name.clone());
        self.attached_volume.entry(volume.clone()).or_default().insert(name.clone());
        self.attachments.insert(name.clone(), attachment);
    }

    fn take_attachment(&mut self, name: &Arc<str>, change: &mut StorageChange) -> bool {
        let Some(attachment) = self.attachments.remove(name) else { return false };
        change.nodes.insert(attachment.node.clone());
        forget(&mut self.attached, &attachment.node, name);
        forget(&mut self.attached_volume, &attachment.volume, name);
        true
    }
}

/// The claim that stands behind a volume of a pod in this namespace.
fn key(namespace: &Arc<str>, used: &ClaimUse) -> ClaimKey {
    ClaimKey { namespace: namespace.clone(), name: used.name.clone() }
}

/// Why a claim that exists is of no use to a pod.
fn unusable(pod: &PodId, used: &ClaimUse, claim: &Claim) -> Option<String> {
    let name = &claim.key.name;
    if claim.lost {
        let volume = claim.volume.as_deref().unwrap_or_default();
        return Some(format!(
            "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
        ));
    }
    if claim.terminating {
        return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    let foreign = used.ephemeral && claim.controller.as_ref() != Some(&pod.uid);
    foreign.then(|| {
        let PodId { namespace, name: owner, .. } = pod;
        format!("PVC {namespace}/{name} was not created for pod {namespace}/{owner} (pod is not owner)")
    })
}

/// Whether anybody may have the volume.
fn is_free(volume: &Volume) -> bool {
    volume.claim.is_none() && volume.available && !volume.terminating
}

/// Where a volume is looked for: at each of its hosts, if each term of its affinity confines it to hosts by name.
fn places(volume: &Volume) -> BTreeSet<Place> {
    let hosts = |term: &NodeSelectorTerm| {
        let mut confining = term
            .match_expressions
            .iter()
            .filter(|requirement| &*requirement.key == HOST_LABEL && requirement.operator == Operator::In);
        confining.next().map(|requirement| requirement.values.clone())
    };
    let terms = volume.affinity.iter().flat_map(|terms| terms.iter());
    let hosts: Option<Vec<_>> = terms.map(hosts).collect();
    match hosts.filter(|hosts| !hosts.is_empty()) {
        None => [(volume.class.clone(), None)].into(),
        Some(hosts) => hosts.into_iter().flatten().map(|host| (volume.class.clone(), Some(host))).collect(),
    }
}

/// Where a volume's labels say it is. A label with an empty part says nothing.
fn zones(volume: &Volume) -> Vec<(Arc<str>, BTreeSet<Arc<str>>)> {
    let labels = ZONE_LABELS.iter().filter_map(|(label, _)| volume.labels.get_key_value(*label));
    let read = labels.filter_map(|(label, value)| {
        let zones: BTreeSet<Arc<str>> = value.split(ZONE_DELIMITER).map(|zone| zone.trim().into()).collect();
        (!zones.contains("")).then(|| (label.clone(), zones))
    });
    read.collect()
}

/// Takes one from a count, and the count out once there is nothing left.
fn take<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Takes a member out of a set, and the set out once it is empty.
fn forget<K: Ord, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, key: &K, member: &T) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(member);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
