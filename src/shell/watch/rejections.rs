//! Watches pods of ours that have failed, for those that never ran.
//!
//! The watch of pods leaves failed ones out, and the API server shows a pod that leaves a selection as it was before; so why it
//! failed has to be asked for separately. Invariant: each rejection is told once. Bound: the uids of our failed pods in the API
//! server, whose garbage collector limits them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::Api;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::{mpsc, watch};

use super::{Tracker, Update, WATCH_SECONDS, follow};
use crate::event::Event;
use crate::model::PodUid;
use crate::shell::convert::wire::PodView;
use crate::shell::convert::{Interner, convert_rejection};
use crate::shell::metrics::{Metrics, Watched};

/// Follows failed pods of `scheduler_name` until the engine loop is gone.
pub async fn rejections(
    client: kube::Client,
    scheduler_name: &str,
    updates: mpsc::Sender<Update>,
    wanted: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
) {
    let fields = format!("status.phase=Failed,spec.schedulerName={scheduler_name}");
    let config = watcher::Config::default().timeout(WATCH_SECONDS).fields(&fields);
    let open = || watcher(Api::<PodView>::all(client.clone()), config.clone());
    follow(open, RejectionTracker::default(), updates, wanted, &metrics).await;
}

#[derive(Default)]
pub(super) struct RejectionTracker {
    interner: Interner,
    list: u64,
    /// The list that showed each last.
    known: BTreeMap<PodUid, u64>,
}

fn uid(view: &PodView) -> PodUid {
    PodUid::from(view.metadata.uid.as_deref().unwrap_or_default())
}

impl Tracker for RejectionTracker {
    type View = PodView;
    const KIND: Watched = Watched::FailedPods;

    fn begin_list(&mut self) {
        self.list += 1;
    }

    fn end_list(&mut self, _: &mut Vec<Update>) {
        let list = self.list;
        self.known.retain(|_, known| *known == list);
    }

    fn apply(&mut self, view: &PodView, updates: &mut Vec<Update>) {
        if self.known.insert(uid(view), self.list).is_none() {
            let rejection = convert_rejection(view, &mut self.interner);
            updates.extend(rejection.map(|rejection| Update::Event(Event::PodRejected(rejection))));
        }
    }

    fn delete(&mut self, view: &PodView, _: &mut Vec<Update>) {
        self.known.remove(&uid(view));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::follow_once;
    use super::*;

    fn view(uid: &str, reason: &str) -> PodView {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": uid},
            "spec": {"nodeName": "n0"},
            "status": {"phase": "Failed", "reason": reason},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_rejection_is_told_once() {
        let events = vec![
            Ok(watcher::Event::Init),
            Ok(watcher::Event::InitApply(view("a", "OutOfcpu"))),
            Ok(watcher::Event::InitDone),
            Ok(watcher::Event::Apply(view("a", "OutOfcpu"))),
            Ok(watcher::Event::Apply(view("b", "Evicted"))),
            Ok(watcher::Event::Init),
            Ok(watcher::Event::InitApply(view("a", "OutOfcpu"))),
            Ok(watcher::Event::InitApply(view("c", "NodeAffinity"))),
            Ok(watcher::Event::InitDone),
        ];
        let heard = follow_once(RejectionTracker::default(), events).await;
        assert_eq!(heard, ["a OutOfcpu", "listed 7", "c NodeAffinity", "listed 7"]);
    }
}
