//! What the forecaster learns: taken over when this replica begins to lead, renewed every hour, kept.
//!
//! Invariant: whatever is wrong with what was kept, the forecaster begins anew and says why. Nothing is written by a replica that
//! does not lead, and learning ends with the lead.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::store::{Kept, Store, StoreError};
use super::voice::Voice;
use crate::forecast::lstm::{Lstm, Threads};
use crate::forecast::weights::Saved;
use crate::forecast::{Series, Shape};
use crate::shell::lease::LeaderToken;

/// When it is renewed and where it is kept.
pub struct Learning {
    shape: Shape,
    token: LeaderToken,
    /// None: nothing is read or written.
    store: Option<Store>,
    /// None: never renewed.
    interval: Option<Duration>,
    due: Option<Instant>,
}

impl Learning {
    /// Renews every `interval` while `token` is valid, and keeps what comes of it in `store`.
    pub fn new(
        shape: Shape,
        token: LeaderToken,
        store: Option<Store>,
        interval: Option<Duration>,
    ) -> Learning {
        Learning { shape, token, store, interval, due: None }
    }

    /// Takes over what was kept; to be called when this replica begins to lead.
    pub async fn begin(&mut self, voice: &mut Voice) {
        self.due = self.interval.map(|interval| Instant::now() + interval);
        let Some(store) = &mut self.store else { return };
        let kept = match store.load().await {
            Ok(None) => return,
            Ok(Some(kept)) => adopt(voice, kept, self.shape),
            Err(StoreError::Refused(problem)) => Err(problem),
            Err(error) => {
                return tracing::warn!(%error, "What the forecaster had learnt is not to be had.");
            }
        };
        let Err(problem) = kept else {
            return tracing::info!("What the forecaster had learnt is taken over.");
        };
        tracing::warn!(problem, "What the forecaster had learnt is not used.");
        store.tell_refused(&problem).await;
    }

    /// Learns anew from the series that `usage` gives, if it is time, and keeps what comes of it. Whether it was done; `None` where
    /// nothing was due.
    pub async fn renew(&mut self, voice: &mut Voice, usage: impl FnOnce() -> Vec<Series>) -> Option<bool> {
        let now = Instant::now();
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        self.due = self.interval.map(|interval| now + interval);
        let learnt = voice.relearn(usage(), &mut |_| match self.token.is_valid() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        if let Err(error) = learnt {
            tracing::warn!(%error, "The network is not tuned; it stays as it was.");
            return Some(false);
        }
        let took = now.elapsed();
        tracing::info!(seconds = took.as_secs_f32(), "The forecaster has learnt from the newest usage.");
        let Some(store) = &mut self.store else { return Some(true) };
        let kept = match kept(voice) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(error, "What the forecaster has learnt cannot be written down.");
                return Some(false);
            }
        };
        match store.save(kept).await {
            Ok(()) => Some(true),
            Err(error) => {
                tracing::warn!(%error, "What the forecaster has learnt is not kept.");
                Some(false)
            }
        }
    }
}

/// What is to be kept of a voice.
fn kept(voice: &Voice) -> Result<Kept, String> {
    let gate = serde_json::to_string(&voice.gate_state()).map_err(|error| error.to_string())?;
    let network = voice.network().map(Lstm::save).transpose().map_err(|error| error.to_string())?;
    let (model, weights) = network.map(|saved| (saved.header, saved.weights)).unwrap_or_default();
    Ok(Kept { model, gate, weights })
}

/// Puts what was kept to use, all of it or nothing, or says what is wrong with it.
fn adopt(voice: &mut Voice, kept: Kept, shape: Shape) -> Result<(), String> {
    let state = serde_json::from_str(&kept.gate).map_err(|error| format!("it cannot be read: {error}"))?;
    let network = match kept.model.is_empty() {
        // Written where there was no network.
        true => None,
        false => {
            let saved = Saved { header: kept.model, weights: kept.weights };
            Some(Lstm::load(&saved, shape, Threads::One).map_err(|error| error.to_string())?)
        }
    };
    if !voice.restore_gate(state) {
        return Err("it is about other models".to_owned());
    }
    if let Some(network) = network {
        voice.replace_network(network);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::shell::weights;

    fn voice(network: bool) -> Voice {
        let config = config::Prometheus::at("http://p").unwrap();
        let load = || weights::load(None, Shape::default(), Threads::One).unwrap();
        Voice::new(&config, network.then(load))
    }

    #[test]
    fn what_was_kept_is_taken_over_whole_or_not_at_all() {
        let kept = super::kept(&voice(true)).unwrap();
        let mut other = voice(false);
        adopt(&mut other, kept.clone(), Shape::default()).unwrap();
        assert_eq!(super::kept(&other).unwrap(), kept);
        let refused = |change: &dyn Fn(&mut Kept), expected: &str| {
            let mut changed = kept.clone();
            change(&mut changed);
            let mut voice = voice(false);
            let error = adopt(&mut voice, changed, Shape::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(voice.network().is_none(), "nothing was taken over");
        };
        refused(&|kept| kept.gate = "{}".to_owned(), "it cannot be read");
        refused(&|kept| kept.gate = kept.gate.replacen("persistence", "oracle", 1), "about other models");
        refused(&|kept| kept.weights[200] ^= 1, "its SHA-256 is");
        refused(&|kept| kept.model = kept.model.replace("\"schema\": 1", "\"schema\": 9"), "schema is 9");
        let mut none = voice(true);
        let simple = super::kept(&voice(false)).unwrap();
        assert!(simple.model.is_empty() && adopt(&mut none, simple, Shape::default()).is_ok());
    }

    #[tokio::test]
    async fn learning_ends_with_the_lead() {
        let series = || {
            let values = (0..1_440).map(|at| ((at % 37) as f32 * 0.02).sin()).collect();
            let key = crate::forecast::SeriesKey::new("g", "a");
            vec![Series { key, start: 1_796_040_000, step_seconds: 60, values }]
        };
        let hour = Some(Duration::from_secs(3_600));
        for (token, expected) in
            [(LeaderToken::unelected(), Some(true)), (LeaderToken::standby(), Some(false))]
        {
            let mut learning = Learning::new(Shape::default(), token, None, hour);
            let mut voice = voice(true);
            assert_eq!(learning.renew(&mut voice, series).await, None, "not begun");
            learning.due = Some(Instant::now());
            assert_eq!(learning.renew(&mut voice, series).await, expected);
            assert_eq!(learning.renew(&mut voice, series).await, None, "not due again");
        }
    }
}
