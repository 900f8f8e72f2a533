//! Watches disruption budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::Api;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::{mpsc, watch};

use super::{Tracker, Update, WATCH_SECONDS, follow};
use crate::event::Event;
use crate::model::BudgetId;
use crate::shell::convert::wire::BudgetView;
use crate::shell::convert::{Interner, budget_id, convert_budget};
use crate::shell::metrics::{Metrics, Watched};

/// Follows disruption budgets until the engine loop is gone.
pub async fn budgets(
    client: kube::Client,
    updates: mpsc::Sender<Update>,
    wanted: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let open = || watcher(Api::<BudgetView>::all(client.clone()), config.clone());
    follow(open, BudgetTracker::default(), updates, wanted, &metrics).await;
}

#[derive(Default)]
pub(super) struct BudgetTracker {
    interner: Interner,
    list: u64,
    /// The list that showed each last.
    known: BTreeMap<BudgetId, u64>,
}

impl Tracker for BudgetTracker {
    type View = BudgetView;
    const KIND: Watched = Watched::Budgets;

    fn begin_list(&mut self) {
        self.list += 1;
    }

    fn end_list(&mut self, updates: &mut Vec<Update>) {
        let list = self.list;
        let gone = self.known.extract_if(.., |_, known| *known != list);
        updates.extend(gone.map(|(id, _)| Update::Event(Event::BudgetDeleted(id))));
    }

    fn apply(&mut self, view: &BudgetView, updates: &mut Vec<Update>) {
        let id = budget_id(view, &mut self.interner);
        let budget = convert_budget(view, &mut self.interner);
        self.known.insert(id.clone(), self.list);
        updates.push(Update::Event(Event::BudgetApplied { id, budget }));
    }

    fn delete(&mut self, view: &BudgetView, updates: &mut Vec<Update>) {
        let id = budget_id(view, &mut self.interner);
        self.known.remove(&id);
        updates.push(Update::Event(Event::BudgetDeleted(id)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::follow_once;
    use super::*;

    fn view(name: &str) -> BudgetView {
        let mut view = BudgetView::default();
        (view.metadata.namespace, view.metadata.name) = (Some("ns".to_owned()), Some(name.to_owned()));
        view
    }

    #[tokio::test]
    async fn a_relist_ends_what_it_does_not_show() {
        let events = vec![
            Ok(watcher::Event::Init),
            Ok(watcher::Event::InitApply(view("a"))),
            Ok(watcher::Event::InitApply(view("b"))),
            Ok(watcher::Event::InitDone),
            Ok(watcher::Event::Delete(view("a"))),
            Ok(watcher::Event::Init),
            Ok(watcher::Event::InitDone),
        ];
        let heard = follow_once(BudgetTracker::default(), events).await;
        assert_eq!(heard, ["+a", "+b", "listed 7", "-a", "-b", "listed 7"]);
    }
}
