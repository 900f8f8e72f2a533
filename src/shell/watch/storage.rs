//! Follows what the API says of storage: seven kinds of object, told apart by their views alone.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use super::{Tracker, Update, WATCH_SECONDS, follow};
use crate::event::Event;
use crate::model::StorageKey;
use crate::shell::convert::wire::storage::{
    AttachmentView, ClaimView, CsiDriverView, CsiNodeView, PersistentVolumeView, StorageCapacityView,
    StorageClassView,
};
use crate::shell::convert::{Interner, StorageView};
use crate::shell::metrics::{Metrics, Watched};

/// A kind of object that is followed.
pub trait Followed:
    StorageView + Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static
{
    /// Its name in metrics and logs.
    const KIND: Watched;
}

macro_rules! followed {
    ($($view:ty => $kind:ident),+ $(,)?) => {$(
        impl Followed for $view {
            const KIND: Watched = Watched::$kind;
        }
    )+};
}

followed! {
    ClaimView => Claims,
    PersistentVolumeView => Volumes,
    StorageClassView => StorageClasses,
    CsiNodeView => CsiNodes,
    CsiDriverView => CsiDrivers,
    StorageCapacityView => StorageCapacities,
    AttachmentView => Attachments,
}

/// Follows one kind of object until the engine loop is gone.
pub async fn storage<V: Followed>(
    client: kube::Client,
    updates: mpsc::Sender<Update>,
    wanted: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let open = || watcher(Api::<V>::all(client.clone()), config.clone());
    follow(open, StorageTracker::<V>::default(), updates, wanted, &metrics).await;
}

/// What is known of an object besides its name.
struct Known {
    list: u64,
    notes: Vec<String>,
}

struct StorageTracker<V> {
    interner: Interner,
    list: u64,
    known: BTreeMap<StorageKey, Known>,
    view: PhantomData<V>,
}

impl<V> Default for StorageTracker<V> {
    fn default() -> Self {
        StorageTracker { interner: Interner::default(), list: 0, known: BTreeMap::new(), view: PhantomData }
    }
}

impl<V: Followed> Tracker for StorageTracker<V> {
    type View = V;
    const KIND: Watched = V::KIND;

    fn begin_list(&mut self) {
        self.list += 1;
    }

    fn end_list(&mut self, updates: &mut Vec<Update>) {
        let list = self.list;
        let gone = self.known.extract_if(.., |_, known| known.list != list);
        updates.extend(gone.map(|(key, _)| Update::Event(Event::StorageDeleted(key))));
    }

    fn apply(&mut self, view: &V, updates: &mut Vec<Update>) {
        let mut notes = Vec::new();
        let object = view.convert(&mut self.interner, &mut notes);
        let key = object.key();
        let before = self.known.get(&key).map_or(&[][..], |known| &known.notes);
        for note in notes.iter().filter(|note| !before.contains(note)) {
            tracing::warn!(object = ?key, note, "Part of an object cannot be read.");
        }
        self.known.insert(key, Known { list: self.list, notes });
        updates.push(Update::Event(Event::StorageApplied(object)));
    }

    fn delete(&mut self, view: &V, updates: &mut Vec<Update>) {
        let key = view.key();
        self.known.remove(&key);
        updates.push(Update::Event(Event::StorageDeleted(key)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_relist_ends_what_it_does_not_show() {
        let claim = |name: &str| -> ClaimView {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}})).unwrap()
        };
        let (mut tracker, mut updates) = (StorageTracker::default(), Vec::new());
        for names in [["a", "b"], ["b", "c"]] {
            tracker.begin_list();
            names.iter().for_each(|name| tracker.apply(&claim(name), &mut updates));
            tracker.end_list(&mut updates);
        }
        tracker.delete(&claim("c"), &mut updates);
        let told = updates.into_iter().map(|update| match update {
            Update::Event(Event::StorageApplied(object)) => format!("+{:?}", object.key()),
            Update::Event(Event::StorageDeleted(key)) => format!("-{key:?}"),
            other => panic!("{other:?}"),
        });
        let key = |sign: &str, name: &str| {
            format!("{sign}Claim(ClaimKey {{ namespace: \"ns\", name: \"{name}\" }})")
        };
        let expected = [("+", "a"), ("+", "b"), ("+", "b"), ("+", "c"), ("-", "a"), ("-", "c")];
        assert_eq!(told.collect::<Vec<_>>(), expected.map(|(sign, name)| key(sign, name)));
    }
}
