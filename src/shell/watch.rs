//! Watches nodes, pods, namespaces, disruption budgets and storage and turns what the API says into the engine's events.
//!
//! ```text
//!   kube watcher ── Init, InitApply…, InitDone, Apply, Delete ──► tracker ── Update… ──► engine loop
//!                        (list, then watch; again after a 410)      │ names seen, and in which list
//! ```
//!
//! Invariant: after `Update::Listed` the engine knows exactly what existed when that list was taken, and everything since.
//! So whatever an earlier list or watch had shown and this list does not is reported as deleted, and a pod that took the
//! name of another is reported after that one's end. A watch that fails is logged and begun anew, never given up.
//!
//! No API object is kept: an object is converted when it arrives, and only its name and uid stay here. Their number is that
//! of the nodes, the namespaces, the objects of storage and the pods that concern us; the channel to the engine loop is bounded, and a full one slows the watch.

mod storage;

mod budgets;
mod rejections;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, pin_mut};
use kube::api::Api;
use kube::runtime::watcher::{self, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::event::Event;
use crate::model::{NodeName, PodId, PodUid};
use crate::shell::connect::causes;
use crate::shell::convert::wire::{NamespaceView, NodeView, PodView};
use crate::shell::convert::{
    Condition, Interner, Unreadable, condition, convert_labels, convert_node, convert_pod, is_ours_or_bound,
    pod_id,
};
use crate::shell::metrics::{Metrics, Watched};

pub use budgets::budgets;
pub use rejections::rejections;
pub use storage::{Followed, storage};

/// Updates that may wait for the engine loop: a page of a list and what is watched meanwhile, half a kilobyte each.
pub const CHANNEL_CAPACITY: usize = 1024;

/// The API server ends a watch after this long and we begin the next where it ended. Short, because a connection that died
/// without a word is noticed only by the end that does not come.
pub const WATCH_SECONDS: u32 = 60;

/// Finished pods hold nothing; a pod that finishes leaves the selection, which the watch shows as its end.
const UNFINISHED_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Pauses before a failed list or watch is tried again: doubling from 0.1 s to 1 s. An API server that restarts is back
/// within seconds, and pods wait for us to see it; a request a second for each kind burdens nobody.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The rights that the watches need, in all namespaces: API group, resource, verb.
pub const RIGHTS: [(&str, &str, &str); 22] = [
    ("", "nodes", "list"),
    ("", "nodes", "watch"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("", "namespaces", "list"),
    ("", "namespaces", "watch"),
    ("policy", "poddisruptionbudgets", "list"),
    ("policy", "poddisruptionbudgets", "watch"),
    ("", "persistentvolumeclaims", "list"),
    ("", "persistentvolumeclaims", "watch"),
    ("", "persistentvolumes", "list"),
    ("", "persistentvolumes", "watch"),
    ("storage.k8s.io", "storageclasses", "list"),
    ("storage.k8s.io", "storageclasses", "watch"),
    ("storage.k8s.io", "csinodes", "list"),
    ("storage.k8s.io", "csinodes", "watch"),
    ("storage.k8s.io", "csidrivers", "list"),
    ("storage.k8s.io", "csidrivers", "watch"),
    ("storage.k8s.io", "csistoragecapacities", "list"),
    ("storage.k8s.io", "csistoragecapacities", "watch"),
    ("storage.k8s.io", "volumeattachments", "list"),
    ("storage.k8s.io", "volumeattachments", "watch"),
];

/// What a watch tells the engine loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// Something for the engine.
    Event(Event),
    /// What an unbound pod's `PodScheduled` condition says; comes before the pod's event.
    Condition(PodUid, Condition),
    /// A pod of ours that cannot be read. An earlier state of it may have been readable; that holds no more.
    Unreadable(Box<Unreadable>),
    /// All objects of a kind have been listed. The list was begun when lists of this number were asked for.
    Listed(Watched, u64),
}

/// Follows nodes until the engine loop is gone. A new number in `wanted` asks for a new list.
pub async fn nodes(
    client: kube::Client,
    updates: mpsc::Sender<Update>,
    wanted: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let open = || watcher(Api::<NodeView>::all(client.clone()), config.clone());
    follow(open, NodeTracker::default(), updates, wanted, &metrics).await;
}

/// Follows pods until the engine loop is gone: all that are bound, and the unbound ones of `scheduler_name`.
pub async fn pods(
    client: kube::Client,
    scheduler_name: &str,
    updates: mpsc::Sender<Update>,
    wanted: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS).fields(UNFINISHED_PODS);
    let open = || watcher(Api::<PodView>::all(client.clone()), config.clone());
    follow(open, PodTracker::new(scheduler_name), updates, wanted, &metrics).await;
}

/// Follows namespaces until the engine loop is gone.
pub async fn namespaces(
    client: kube::Client,
    updates: mpsc::Sender<Update>,
    wanted: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let open = || watcher(Api::<NamespaceView>::all(client.clone()), config.clone());
    follow(open, NamespaceTracker::default(), updates, wanted, &metrics).await;
}

/// Turns one kind of object into updates.
trait Tracker {
    /// The object.
    type View: DeserializeOwned + Clone + Debug + Send + 'static;
    /// Its name in metrics and logs.
    const KIND: Watched;

    /// A list begins.
    fn begin_list(&mut self);
    /// The list is complete: what it did not show is gone.
    fn end_list(&mut self, updates: &mut Vec<Update>);
    /// An object is there, in this state.
    fn apply(&mut self, view: &Self::View, updates: &mut Vec<Update>);
    /// An object is gone.
    fn delete(&mut self, view: &Self::View, updates: &mut Vec<Update>);
}

/// The engine loop is gone.
struct Closed;

async fn follow<T, S>(
    open: impl Fn() -> S,
    mut tracker: T,
    updates: mpsc::Sender<Update>,
    mut wanted: watch::Receiver<u64>,
    metrics: &Metrics,
) where
    T: Tracker,
    S: Stream<Item = watcher::Result<watcher::Event<T::View>>>,
{
    let mut pauses = Pauses::default();
    loop {
        let number = *wanted.borrow_and_update();
        let stream = open();
        pin_mut!(stream);
        loop {
            let next = async {
                // Even a sleep of no length takes a timer's millisecond, and a list has an item for each pod.
                if !pauses.now.is_zero() {
                    tokio::time::sleep(pauses.now).await;
                }
                stream.next().await
            };
            let item = tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                item = next => item,
            };
            let Some(item) = item else { break };
            pauses.observe(&item);
            if pass_on(item, number, &mut tracker, &updates, metrics).await.is_err() {
                return;
            }
        }
    }
}

async fn pass_on<T: Tracker>(
    item: watcher::Result<watcher::Event<T::View>>,
    number: u64,
    tracker: &mut T,
    updates: &mpsc::Sender<Update>,
    metrics: &Metrics,
) -> Result<(), Closed> {
    let mut out = Vec::new();
    match item {
        Ok(watcher::Event::Init) => tracker.begin_list(),
        Ok(watcher::Event::InitApply(view) | watcher::Event::Apply(view)) => tracker.apply(&view, &mut out),
        Ok(watcher::Event::Delete(view)) => tracker.delete(&view, &mut out),
        Ok(watcher::Event::InitDone) => {
            tracker.end_list(&mut out);
            out.push(Update::Listed(T::KIND, number));
        }
        Err(error) => {
            metrics.count_watch_restart(T::KIND);
            log_failure(T::KIND, &error);
        }
    }
    for update in out {
        updates.send(update).await.map_err(|_| Closed)?;
    }
    Ok(())
}

fn log_failure(kind: Watched, error: &watcher::Error) {
    let forbidden = is_forbidden(error);
    let error = causes(error);
    if forbidden {
        tracing::error!(
            resource = ?kind,
            error,
            "Watch is forbidden: the service account needs list and watch on this resource in all namespaces."
        );
    } else {
        tracing::warn!(resource = ?kind, error, "Watch failed and is begun again.");
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.is_forbidden(),
        _ => false,
    }
}

/// Growing pauses before what a stream is asked for next. Without chance: there is one of us, not a herd.
struct Pauses {
    now: Duration,
    after_failure: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { now: Duration::ZERO, after_failure: FIRST_PAUSE }
    }
}

impl Pauses {
    /// A failure is followed by a pause, longer at each one until the API server shows something. That a list begins shows
    /// nothing: kube says so before it asks.
    fn observe<K>(&mut self, item: &watcher::Result<watcher::Event<K>>) {
        match item {
            Err(_) => {
                self.now = self.after_failure;
                self.after_failure = (self.now * 2).min(LONGEST_PAUSE);
            }
            Ok(watcher::Event::Init) => self.now = Duration::ZERO,
            Ok(_) => *self = Pauses::default(),
        }
    }
}

/// What is known of a node besides its name.
struct KnownNode {
    list: u64,
    notes: Vec<String>,
}

#[derive(Default)]
struct NodeTracker {
    interner: Interner,
    list: u64,
    known: BTreeMap<NodeName, KnownNode>,
}

impl Tracker for NodeTracker {
    type View = NodeView;
    const KIND: Watched = Watched::Nodes;

    fn begin_list(&mut self) {
        self.list += 1;
    }

    fn end_list(&mut self, updates: &mut Vec<Update>) {
        let list = self.list;
        let gone = self.known.extract_if(.., |_, known| known.list != list);
        updates.extend(gone.map(|(name, _)| Update::Event(Event::NodeDeleted(name))));
    }

    fn apply(&mut self, view: &NodeView, updates: &mut Vec<Update>) {
        let converted = convert_node(view, &mut self.interner);
        let name = converted.node.name.clone();
        let known = KnownNode { list: self.list, notes: converted.notes };
        let before = self.known.get(&name).map_or(&[][..], |known| &known.notes);
        for note in known.notes.iter().filter(|note| !before.contains(note)) {
            tracing::warn!(node = %name, note, "Part of a node cannot be read.");
        }
        self.known.insert(name, known);
        updates.push(Update::Event(Event::NodeApplied(converted.node)));
    }

    fn delete(&mut self, view: &NodeView, updates: &mut Vec<Update>) {
        let name = NodeName::from(view.metadata.name.as_deref().unwrap_or_default());
        self.known.remove(&name);
        updates.push(Update::Event(Event::NodeDeleted(name)));
    }
}

#[derive(Default)]
struct NamespaceTracker {
    interner: Interner,
    list: u64,
    /// The list that showed each last.
    known: BTreeMap<Arc<str>, u64>,
}

impl Tracker for NamespaceTracker {
    type View = NamespaceView;
    const KIND: Watched = Watched::Namespaces;

    fn begin_list(&mut self) {
        self.list += 1;
    }

    fn end_list(&mut self, updates: &mut Vec<Update>) {
        let list = self.list;
        let gone = self.known.extract_if(.., |_, known| *known != list);
        updates.extend(gone.map(|(name, _)| Update::Event(Event::NamespaceDeleted(name))));
    }

    fn apply(&mut self, view: &NamespaceView, updates: &mut Vec<Update>) {
        let name = self.interner.text(view.metadata.name.as_deref().unwrap_or_default());
        let labels = convert_labels(view.metadata.labels.as_ref(), &mut self.interner);
        self.known.insert(Arc::clone(&name), self.list);
        updates.push(Update::Event(Event::NamespaceApplied { name, labels }));
    }

    fn delete(&mut self, view: &NamespaceView, updates: &mut Vec<Update>) {
        let name: Arc<str> = view.metadata.name.as_deref().unwrap_or_default().into();
        self.known.remove(&name);
        updates.push(Update::Event(Event::NamespaceDeleted(name)));
    }
}

/// Namespace and name.
type PodKey = (Arc<str>, Arc<str>);

/// Which pod has a name, and which list showed it last.
struct KnownPod {
    list: u64,
    uid: PodUid,
}

struct PodTracker {
    scheduler_name: Arc<str>,
    interner: Interner,
    list: u64,
    known: BTreeMap<PodKey, KnownPod>,
}

impl PodTracker {
    fn new(scheduler_name: &str) -> PodTracker {
        PodTracker {
            scheduler_name: scheduler_name.into(),
            interner: Interner::default(),
            list: 0,
            known: BTreeMap::new(),
        }
    }

    /// Ends the pod that had this name before, if it was another.
    fn end_predecessor(&mut self, id: &PodId, updates: &mut Vec<Update>) {
        let key = key(id);
        if self.known.get(&key).is_some_and(|known| known.uid != id.uid)
            && let Some(known) = self.known.remove(&key)
        {
            updates.push(Update::Event(Event::PodDeleted(known.uid)));
        }
    }
}

impl Tracker for PodTracker {
    type View = PodView;
    const KIND: Watched = Watched::Pods;

    fn begin_list(&mut self) {
        self.list += 1;
    }

    fn end_list(&mut self, updates: &mut Vec<Update>) {
        let list = self.list;
        let gone = self.known.extract_if(.., |_, known| known.list != list);
        updates.extend(gone.map(|(_, known)| Update::Event(Event::PodDeleted(known.uid))));
    }

    fn apply(&mut self, view: &PodView, updates: &mut Vec<Update>) {
        let id = pod_id(view, &mut self.interner);
        self.end_predecessor(&id, updates);
        if !is_ours_or_bound(view, &self.scheduler_name) {
            return;
        }
        self.known.insert(key(&id), KnownPod { list: self.list, uid: id.uid.clone() });
        match convert_pod(view, id, &mut self.interner) {
            Ok(pod) => {
                let said = if pod.node.is_none() { condition(view) } else { None };
                updates.extend(said.map(|said| Update::Condition(pod.id.uid.clone(), said)));
                updates.push(Update::Event(Event::PodApplied(pod)));
            }
            Err(unreadable) => {
                let said = condition(view).map(|said| Update::Condition(unreadable.pod.uid.clone(), said));
                updates.extend(said);
                updates.push(Update::Unreadable(unreadable));
            }
        }
    }

    fn delete(&mut self, view: &PodView, updates: &mut Vec<Update>) {
        let id = pod_id(view, &mut self.interner);
        self.end_predecessor(&id, updates);
        if self.known.remove(&key(&id)).is_some() {
            updates.push(Update::Event(Event::PodDeleted(id.uid)));
        }
    }
}

fn key(id: &PodId) -> PodKey {
    (id.namespace.clone(), id.name.clone())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Poll;

    use futures::stream;
    use serde_json::json;

    use super::*;

    type PodEvents = Vec<watcher::Result<watcher::Event<PodView>>>;

    /// `uid` is `name.generation`, so that `a.1` and `a.2` are two pods of one name.
    fn pod(uid: &str, scheduler: &str, node: &str) -> PodView {
        let name = uid.split('.').next().unwrap();
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "spec": {"schedulerName": scheduler, "nodeName": node},
        }))
        .unwrap()
    }

    fn node(name: &str) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    /// Words: `+a.1` apply, `-a.1` delete, `[` list begins, `]` list ends, `!` the watch fails; in a list `+` is a listed
    /// object. `?` marks a foreign unbound pod, `@` a foreign bound one.
    fn pod_events(script: &str) -> PodEvents {
        let mut listing = false;
        let mut events = PodEvents::new();
        for word in script.split_whitespace() {
            let (kind, uid) = word.split_at(1);
            let view = match uid.chars().next() {
                Some('?') => pod(&uid[1..], "other", ""),
                Some('@') => pod(&uid[1..], "other", "n0"),
                Some(_) => pod(uid, "mig-scheduler", ""),
                None => PodView::default(),
            };
            let event = match kind {
                "[" => watcher::Event::Init,
                "]" => watcher::Event::InitDone,
                "-" => watcher::Event::Delete(view),
                "+" if listing => watcher::Event::InitApply(view),
                "+" => watcher::Event::Apply(view),
                _ => {
                    events.push(Err(watcher::Error::NoResourceVersion));
                    continue;
                }
            };
            listing = (listing || kind == "[") && kind != "]";
            events.push(Ok(event));
        }
        events
    }

    /// What the engine loop hears of a stream, at whose end the engine loop goes.
    pub(super) async fn follow_once<T: Tracker>(
        tracker: T,
        events: Vec<watcher::Result<watcher::Event<T::View>>>,
    ) -> Vec<String> {
        let (updates, mut heard) = mpsc::channel(CHANNEL_CAPACITY);
        let (want, wanted) = watch::channel(7);
        let (events, want) = (Cell::new(events), Cell::new(Some(want)));
        let end = || {
            stream::poll_fn(|_| {
                drop(want.take());
                Poll::Pending
            })
        };
        let open = || stream::iter(events.take()).chain(end());
        follow(open, tracker, updates, wanted, &Metrics::new("test")).await;
        let mut lines = Vec::new();
        while let Some(update) = heard.recv().await {
            lines.push(line(&update));
        }
        lines
    }

    fn line(update: &Update) -> String {
        match update {
            Update::Event(Event::PodApplied(pod)) => format!("+{}", pod.id.uid),
            Update::Event(Event::PodDeleted(uid)) => format!("-{uid}"),
            Update::Event(Event::NodeApplied(node)) => format!("+{}", node.name),
            Update::Event(Event::NodeDeleted(name)) => format!("-{name}"),
            Update::Event(Event::NamespaceApplied { name, labels }) => format!("+{name} {}", labels.len()),
            Update::Event(Event::NamespaceDeleted(name)) => format!("-{name}"),
            Update::Event(Event::PodRejected(rejection)) => {
                format!("{} {}", rejection.pod.uid, rejection.reason)
            }
            Update::Event(Event::BudgetApplied { id, .. }) => format!("+{}", id.name),
            Update::Event(Event::BudgetDeleted(id)) => format!("-{}", id.name),
            Update::Listed(_, number) => format!("listed {number}"),
            other => format!("{other:?}"),
        }
    }

    async fn check(script: &str, expected: &[&str]) {
        let heard = follow_once(PodTracker::new("mig-scheduler"), pod_events(script)).await;
        assert_eq!(heard, expected, "{script}");
    }

    #[tokio::test]
    async fn lists_then_watches() {
        check("[ +a.1 +b.1 ] +c.1 -a.1", &["+a.1", "+b.1", "listed 7", "+c.1", "-a.1"]).await;
        check("[ ]", &["listed 7"]).await;
    }

    #[tokio::test]
    async fn a_relist_ends_what_it_does_not_show() {
        check(
            "[ +a.1 +b.1 ] +c.1 ! [ +b.1 ]",
            &["+a.1", "+b.1", "listed 7", "+c.1", "+b.1", "-a.1", "-c.1", "listed 7"],
        )
        .await;
    }

    #[tokio::test]
    async fn a_list_that_breaks_off_ends_nothing() {
        check(
            "[ +a.1 +b.1 ] ! [ +a.1 ! [ +b.1 +c.1 ]",
            &["+a.1", "+b.1", "listed 7", "+a.1", "+b.1", "+c.1", "-a.1", "listed 7"],
        )
        .await;
    }

    #[tokio::test]
    async fn a_successor_of_the_same_name_comes_after_the_end_of_the_first() {
        check("[ +a.1 ] [ +a.2 ]", &["+a.1", "listed 7", "-a.1", "+a.2", "listed 7"]).await;
        check("[ +a.1 ] +a.2", &["+a.1", "listed 7", "-a.1", "+a.2"]).await;
        check("[ +a.1 ] [ +?a.2 ]", &["+a.1", "listed 7", "-a.1", "listed 7"]).await;
        check("[ +a.1 ] -a.2", &["+a.1", "listed 7", "-a.1"]).await;
    }

    #[tokio::test]
    async fn foreign_pods_count_once_they_are_bound() {
        check("[ +?a.1 +@b.1 ] +@a.1 +?c.1 -?c.1 -@a.1", &["+b.1", "listed 7", "+a.1", "-a.1"]).await;
    }

    #[tokio::test]
    async fn nodes_are_tracked_alike() {
        use watcher::Event::*;
        let script = [
            Init,
            InitApply(node("n0")),
            InitApply(node("n1")),
            InitDone,
            Apply(node("n2")),
            Delete(node("n0")),
        ];
        let again = [Init, InitApply(node("n1")), InitDone];
        let heard =
            follow_once(NodeTracker::default(), script.into_iter().chain(again).map(Ok).collect()).await;
        assert_eq!(heard, ["+n0", "+n1", "listed 7", "+n2", "-n0", "+n1", "-n2", "listed 7"]);
    }

    #[tokio::test]
    async fn namespaces_are_tracked_alike() {
        use watcher::Event::*;
        let namespace = |name: &str| -> NamespaceView {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"team": "a"}}})).unwrap()
        };
        let script = [Init, InitApply(namespace("a")), InitApply(namespace("b")), InitDone];
        let again =
            [Delete(namespace("a")), Apply(namespace("c")), Init, InitApply(namespace("c")), InitDone];
        let events = script.into_iter().chain(again).map(Ok).collect();
        let heard = follow_once(NamespaceTracker::default(), events).await;
        assert_eq!(heard, ["+a 1", "+b 1", "listed 7", "-a", "+c 1", "+c 1", "-b", "listed 7"]);
    }

    #[tokio::test]
    async fn conditions_and_unreadable_pods_are_passed_on() {
        let mut view = pod("a.1", "mig-scheduler", "");
        view.status =
            serde_json::from_value(json!({"conditions": [{"type": "PodScheduled", "status": "False"}]}))
                .unwrap();
        let mut odd = view.clone();
        odd.spec.overhead = Some([("cpu".to_owned(), "x".to_owned())].into());
        let mut tracker = PodTracker::new("mig-scheduler");
        let mut updates = Vec::new();
        tracker.apply(&view, &mut updates);
        tracker.apply(&odd, &mut updates);
        assert!(
            matches!(
                updates.as_slice(),
                [
                    Update::Condition(..),
                    Update::Event(Event::PodApplied(_)),
                    Update::Condition(..),
                    Update::Unreadable(_)
                ]
            ),
            "{updates:?}"
        );
    }

    #[tokio::test]
    async fn a_new_list_is_taken_when_it_is_wanted() {
        let (updates, mut heard) = mpsc::channel(CHANNEL_CAPACITY);
        let (want, wanted) = watch::channel(0);
        let metrics = Metrics::new("test");
        let open = || stream::iter(pod_events("[ +a.1 ]")).chain(stream::pending());
        let ask = async {
            tokio::task::yield_now().await;
            want.send_replace(1);
            tokio::task::yield_now().await;
            drop(want);
        };
        futures::join!(follow(open, PodTracker::new("mig-scheduler"), updates, wanted, &metrics), ask);
        let mut lines = Vec::new();
        while let Some(update) = heard.recv().await {
            lines.push(line(&update));
        }
        assert_eq!(lines, ["+a.1", "listed 0", "+a.1", "listed 1"]);
    }

    /// The pause, in milliseconds, after each failure of the script.
    fn check_pauses(script: &str, expected: &[u128]) {
        let mut pauses = Pauses::default();
        let mut found = Vec::new();
        for item in pod_events(script) {
            pauses.observe(&item);
            match item {
                Err(_) => found.push(pauses.now.as_millis()),
                Ok(_) => assert!(pauses.now.is_zero(), "{script}"),
            }
        }
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn pauses_grow_until_something_is_shown() {
        check_pauses("[ ! [ ! [ ! [ ! [ ! [ ! [ ] !", &[100, 200, 400, 800, 1000, 1000, 100]);
        check_pauses("[ ] ! ! ! +a.1 !", &[100, 200, 400, 100]);
        check_pauses("[ +a.1 ! [ +a.1 ! [ ! -a.1 !", &[100, 100, 200, 100]);
    }

    /// A list that is refused again and again, as the watcher shows it, is not asked for without a pause.
    #[tokio::test]
    async fn a_list_that_keeps_failing_is_asked_for_ever_more_rarely() {
        let (updates, _heard) = mpsc::channel(CHANNEL_CAPACITY);
        let (want, wanted) = watch::channel(0);
        let asked = Cell::new(0);
        let open = || {
            stream::iter(pod_events("[ ! [ ! [ ! [ ! [ ! [ ! [ ! [ !")).inspect(|item| {
                asked.set(asked.get() + usize::from(item.is_err()));
            })
        };
        let stop = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            drop(want);
        };
        let metrics = Metrics::new("test");
        futures::join!(follow(open, PodTracker::new("mig-scheduler"), updates, wanted, &metrics), stop);
        // At 0, 100 and 300 ms; without growing pauses it would be six times or more.
        assert!((2..=3).contains(&asked.get()), "{} lists", asked.get());
    }
}
