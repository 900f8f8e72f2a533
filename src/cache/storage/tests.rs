//! The indices against a plain rebuild.

use std::collections::BTreeMap;

use super::Storage;
use crate::cache::{Cache, NodeIndex};
use crate::fixture::{chance, pod, storage};
use crate::model::{ClaimKey, NodeName, StorageKey, StorageObject};

#[test]
fn indices_are_what_objects_and_pods_make_them() {
    for seed in 0..40 {
        let mut next = chance(seed);
        let mut cache = Cache::default();
        let mut objects: BTreeMap<StorageKey, StorageObject> = BTreeMap::new();
        let mut pods = BTreeMap::new();
        for _ in 0..150 {
            let mut any = |words: &[&'static str]| words[next(words.len() as u64) as usize];
            let text = match any(&["claim", "volume", "attachment", "pod"]) {
                "claim" => {
                    format!("claim {} {}", any(&["a", "b"]), any(&["", "volume=v", "volume=w", "lost"]))
                }
                "volume" => {
                    let (name, kept) = (any(&["v", "w"]), any(&["", "for=a", "for=b", "released"]));
                    format!("volume {name} {kept} {} {}", any(&["size=1", "size=2"]), any(&["", "handle=h"]))
                }
                "attachment" => {
                    let (name, node) = (any(&["x", "y"]), any(&["n0", "n1"]));
                    format!("attachment {name} on={node} volume={}", any(&["v", "w"]))
                }
                _ => {
                    let (name, node) = (any(&["p0", "p1"]), any(&["n0", "n1"]));
                    let text =
                        format!("{name} on={node} {}", any(&["claim=a", "claim=a claim=b", "ephemeral=own"]));
                    let pod = pod(&text);
                    if any(&["apply", "remove"]) == "apply" {
                        cache.apply_pod(&pod, &pod.node.clone().unwrap());
                        pods.insert(pod.id.uid.clone(), pod);
                    } else {
                        cache.remove_pod(&pod.id.uid);
                        pods.remove(&pod.id.uid);
                    }
                    continue;
                }
            };
            let object = storage(&text);
            if any(&["apply", "apply", "delete"]) == "delete" {
                let known = objects.remove(&object.key()).is_some();
                assert_eq!(cache.delete_storage(&object.key()).is_some(), known, "seed {seed}: {text}");
            } else {
                let before = objects.insert(object.key(), object.clone());
                assert_eq!(
                    cache.apply_storage(object.clone()).is_some(),
                    before != Some(object),
                    "seed {seed}: {text}"
                );
            }
            let mut fresh = Cache::default();
            objects.values().for_each(|object| drop(fresh.apply_storage(object.clone())));
            pods.values().for_each(|pod| drop(fresh.apply_pod(pod, &pod.node.clone().unwrap())));
            assert_eq!(indices(&cache), indices(&fresh), "seed {seed}: {text}");
            assert_eq!(users(&cache), users(&fresh), "seed {seed}: {text}");
        }
    }
}

/// Everything that is derived from the objects, and how many pods share a claim.
fn indices(cache: &Cache) -> impl PartialEq + std::fmt::Debug + use<> {
    let Storage { attached, attached_volume, named, kept, free, handles, sharers, .. } = &cache.storage;
    let attachments = (attached.clone(), attached_volume.clone());
    (attachments, named.clone(), kept.clone(), free.clone(), handles.clone(), sharers.clone())
}

/// Where claims are used; positions depend on what came first, names do not.
fn users(cache: &Cache) -> BTreeMap<ClaimKey, BTreeMap<NodeName, usize>> {
    let by_name = |(at, pods): (&NodeIndex, &usize)| (cache.at(*at).name().clone(), *pods);
    let users = cache.storage.users.iter();
    users.map(|(claim, nodes)| (claim.clone(), nodes.iter().map(by_name).collect())).collect()
}
