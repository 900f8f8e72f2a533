//! Leader election by a Lease: of several replicas exactly one acts.
//!
//! ```text
//!             acquired                 renewed
//!   Standby ───────────► Leading ◄────────────┐
//!      ▲                  │  │  └─────────────┘
//!      └──────────────────┘  └──────► Lost (final: the process exits)
//!            released          deadline passed, or another holder seen
//! ```
//!
//! Invariant: a replica acts only before its renew deadline, which counts from the moment a successful write of the Lease
//! was *sent*; another one takes over only a lease duration after it *saw* that write. Both are durations on one machine's
//! monotonic clock, so that wall clocks may be wrong by any amount. The API server fences nothing for us: hence the
//! [`LeaderToken`], which every write of ours asks first and which expires by itself, whether or not this module's task
//! gets to run (API server silent, process stopped and continued, executor starved).
//!
//! Two parts: [`Election`] decides and touches nothing, the task of [`LeaseTask`] carries its requests out.

mod election;
mod identity;
mod token;

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::config;

pub use election::{Answer, Election, Leadership, Request, Step};
pub use identity::identity;
pub use token::LeaderToken;

/// Requests a release may take: write, and once more after reading when the first write met a conflict.
const RELEASE_ATTEMPTS: usize = 2;

/// How the election ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to stop; the Lease is free if it was ours.
    Released,
    /// It led, and does no more. The process has to exit with an error, since what it knows may be out of date.
    Lost,
    /// The task itself failed, by a bug; there is no election any more.
    Died(String),
}

/// The running election. Dropping it ends the leadership at once without freeing the Lease.
#[derive(Debug)]
pub struct LeaseTask {
    token: LeaderToken,
    leadership: watch::Receiver<Leadership>,
    release: Option<oneshot::Sender<()>>,
    task: JoinHandle<Ended>,
    /// What the task returned; it can be asked only once.
    ended: Option<Ended>,
}

impl LeaseTask {
    /// Begins to stand for election as `identity`. Each request ends within `request_timeout`, which is to be shorter than
    /// lease duration minus renew deadline.
    pub fn spawn(
        client: kube::Client,
        settings: &config::LeaderElection,
        request_timeout: Duration,
        identity: String,
    ) -> LeaseTask {
        let token = LeaderToken::standby();
        let (publish, leadership) = watch::channel(Leadership::Standby);
        let (release, released) = oneshot::channel();
        let driver = Driver {
            api: Api::namespaced(client, &settings.resource_namespace),
            name: settings.resource_name.clone(),
            retry_period: settings.retry_period,
            request_timeout,
            election: Election::new(identity, settings),
            token: token.clone(),
            publish,
            holder: None,
        };
        let task = tokio::spawn(driver.run(released));
        LeaseTask { token, leadership, release: Some(release), task, ended: None }
    }

    /// What every write has to ask before it is sent.
    pub fn token(&self) -> LeaderToken {
        self.token.clone()
    }

    /// Changes of leadership, each renewal included.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Waits until the election ends. The future may be dropped and asked for again.
    pub async fn ended(&mut self) -> Ended {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let ended = (&mut self.task).await.unwrap_or_else(|error| Ended::Died(error.to_string()));
        self.token.revoke();
        self.ended = Some(ended.clone());
        ended
    }

    /// Stops and frees the Lease, so that another replica need not wait for it to run out. To be called when the last
    /// write has ended.
    pub async fn release(mut self) -> Ended {
        if let Some(release) = self.release.take() {
            // It fails only when the task has ended already, which the next line reports.
            let _ = release.send(());
        }
        self.ended().await
    }
}

impl Drop for LeaseTask {
    fn drop(&mut self) {
        self.token.revoke();
        self.task.abort();
    }
}

/// The task: one attempt every retry period, each of a few requests.
struct Driver {
    api: Api<Lease>,
    name: String,
    retry_period: Duration,
    request_timeout: Duration,
    election: Election,
    token: LeaderToken,
    publish: watch::Sender<Leadership>,
    /// The holder that was logged last.
    holder: Option<String>,
}

impl Driver {
    async fn run(mut self, mut released: oneshot::Receiver<()>) -> Ended {
        loop {
            if self.attempt().await == Leadership::Lost {
                return Ended::Lost;
            }
            let pause = tokio::time::sleep_until(self.next_attempt().into());
            tokio::select! {
                () = pause => {}
                // A dropped sender means that the owner is gone: the same as a release.
                _ = &mut released => return self.release().await,
            }
        }
    }

    /// Tries to get or keep the Lease once.
    async fn attempt(&mut self) -> Leadership {
        self.election.begin();
        while let Step::Send(request) = self.election.next(Instant::now(), Timestamp::now()) {
            let sent = Instant::now();
            let answer = self.send(&request, self.time_limit(sent)).await;
            self.election.observe(sent, Instant::now(), answer);
            self.announce();
        }
        self.announce()
    }

    /// When a request sent now is given up: no later than the renew deadline, so that a silent API server cannot keep
    /// the loss of leadership from being noticed.
    fn time_limit(&self, sent: Instant) -> Instant {
        let limit = sent + self.request_timeout;
        self.election.deadline().map_or(limit, |deadline| deadline.min(limit))
    }

    /// When to try again: after the retry period, at the deadline if that comes first. Candidates spread by up to a
    /// fifth, since several that woke together would meet in conflicts for ever.
    fn next_attempt(&self) -> Instant {
        let now = Instant::now();
        match self.election.deadline() {
            Some(deadline) => deadline.min(now + self.retry_period),
            None => now + self.retry_period + self.retry_period.mul_f64(0.2 * identity::random_fraction()),
        }
    }

    async fn send(&self, request: &Request, limit: Instant) -> Answer {
        let answered = match tokio::time::timeout_at(limit.into(), self.call(request)).await {
            Ok(result) => result,
            Err(_) => {
                tracing::warn!(lease = self.name, "Lease request timed out.");
                return Answer::Failed;
            }
        };
        answered.unwrap_or_else(|error| self.explain(request, &error))
    }

    async fn call(&self, request: &Request) -> Result<Answer, kube::Error> {
        let params = PostParams::default();
        Ok(match request {
            Request::Read => Answer::Found(Box::new(self.api.get(&self.name).await?)),
            Request::Create(lease) => {
                let named = Lease { metadata: self.metadata(), ..Lease::clone(lease) };
                Answer::Written(Box::new(self.api.create(&params, &named).await?))
            }
            Request::Replace(lease) => {
                Answer::Written(Box::new(self.api.replace(&self.name, &params, lease).await?))
            }
        })
    }

    fn metadata(&self) -> kube::api::ObjectMeta {
        kube::api::ObjectMeta { name: Some(self.name.clone()), ..Default::default() }
    }

    /// What a refusal means to the election.
    fn explain(&self, request: &Request, error: &kube::Error) -> Answer {
        let code = match error {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        match request {
            _ if code == StatusCode::CONFLICT => Answer::Conflict,
            // A create that finds no place is about the namespace, not about the Lease.
            Request::Read | Request::Replace(_) if code == StatusCode::NOT_FOUND => Answer::Missing,
            _ => {
                tracing::warn!(lease = self.name, %error, "Lease request failed.");
                Answer::Failed
            }
        }
    }

    /// Publishes where the election stands: first to the token, since it is what writes ask.
    fn announce(&mut self) -> Leadership {
        let leadership = self.election.leadership(Instant::now());
        match leadership {
            Leadership::Leading { deadline } => self.token.extend_to(deadline),
            Leadership::Standby | Leadership::Lost => self.token.revoke(),
        }
        let before = self.publish.send_replace(leadership);
        if std::mem::discriminant(&before) != std::mem::discriminant(&leadership) {
            self.log_change(leadership);
        }
        self.log_holder();
        leadership
    }

    fn log_change(&self, leadership: Leadership) {
        let identity = self.election.identity();
        match leadership {
            Leadership::Leading { .. } => {
                tracing::info!(lease = self.name, identity, "Leadership acquired.");
            }
            Leadership::Lost => tracing::error!(lease = self.name, identity, "Leadership lost."),
            Leadership::Standby => tracing::info!(lease = self.name, identity, "Leadership given up."),
        }
    }

    fn log_holder(&mut self) {
        let holder = self.election.holder();
        if holder != self.holder.as_deref() {
            self.holder = holder.map(str::to_owned);
            let holder = self.holder.as_deref().unwrap_or_default();
            tracing::info!(lease = self.name, holder, "Lease holder changed.");
        }
    }

    /// Frees the Lease if it is ours.
    async fn release(mut self) -> Ended {
        self.token.revoke();
        for _ in 0..RELEASE_ATTEMPTS {
            let Some(lease) = self.election.release(Timestamp::now()) else { break };
            match self.send_now(Request::Replace(Box::new(lease))).await {
                Answer::Conflict => {
                    let answer = self.send_now(Request::Read).await;
                    let now = Instant::now();
                    self.election.observe(now, now, answer);
                }
                Answer::Written(_) => {
                    tracing::info!(lease = self.name, "Lease released.");
                    break;
                }
                Answer::Found(_) | Answer::Missing | Answer::Failed => break,
            }
        }
        self.publish.send_replace(Leadership::Standby);
        Ended::Released
    }

    async fn send_now(&self, request: Request) -> Answer {
        self.send(&request, Instant::now() + self.request_timeout).await
    }
}

#[cfg(test)]
mod tests;
