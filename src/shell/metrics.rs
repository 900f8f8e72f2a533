//! The metrics, under kube-scheduler's names and with its buckets wherever the meaning is the same.
//!
//! Invariant: a name, once published, keeps its meaning; dashboards depend on it. The set of label values is closed (enums,
//! at most a few words each), so that no cluster, however large, can make the number of series grow. [`Metrics::record`] is
//! the one place where a fact becomes a number; what the engine cannot know (durations, connections) has a setter each.

mod forecasts;

use std::fmt::Write;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::fact::{Fact, QueueCause, QueueName};

use forecasts::ForecastMetrics;

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What every name begins with.
const PREFIX: &str = "mig_scheduler";

/// Attempts are told apart up to here, as kube-scheduler does.
const MANY_ATTEMPTS: u32 = 15;

/// How an attempt to schedule a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptResult {
    /// The pod is bound.
    Scheduled,
    /// No node can take it.
    Unschedulable,
    /// Something failed on the way.
    Error,
}

/// The lanes of API writes, by kube-scheduler's names for the calls in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallType {
    /// Binds.
    PodBinding,
    /// Conditions on pods.
    PodStatusPatch,
    /// Evictions: a condition and a deletion.
    PodEviction,
    /// Kubernetes events.
    Event,
    /// Writes about the claims of a pod, all together.
    Claims,
}

/// How an API call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallResult {
    /// As asked for.
    Success,
    /// Otherwise.
    Error,
}

/// What a watch follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// Nodes.
    Nodes,
    /// Pods.
    Pods,
    /// Namespaces.
    Namespaces,
    /// PodDisruptionBudgets.
    Budgets,
    /// Pods of ours that have failed.
    FailedPods,
    /// PersistentVolumeClaims.
    Claims,
    /// PersistentVolumes.
    Volumes,
    /// StorageClasses.
    StorageClasses,
    /// CSINodes.
    CsiNodes,
    /// CSIDrivers.
    CsiDrivers,
    /// CSIStorageCapacities.
    StorageCapacities,
    /// VolumeAttachments.
    Attachments,
}

/// What the engine's cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Nodes.
    pub nodes: usize,
    /// Pods on nodes, assumed ones included.
    pub pods: usize,
    /// Pods whose bind is under way.
    pub assumed_pods: usize,
}

impl AttemptResult {
    fn as_str(self) -> &'static str {
        match self {
            AttemptResult::Scheduled => "scheduled",
            AttemptResult::Unschedulable => "unschedulable",
            AttemptResult::Error => "error",
        }
    }
}

impl CallType {
    fn as_str(self) -> &'static str {
        match self {
            CallType::PodBinding => "pod_binding",
            CallType::PodStatusPatch => "pod_status_patch",
            CallType::PodEviction => "pod_eviction",
            CallType::Event => "event",
            CallType::Claims => "volume_binding",
        }
    }
}

impl CallResult {
    fn as_str(self) -> &'static str {
        match self {
            CallResult::Success => "success",
            CallResult::Error => "error",
        }
    }
}

impl Watched {
    /// All of them.
    pub const ALL: [Watched; 12] = [
        Watched::Nodes,
        Watched::Pods,
        Watched::Namespaces,
        Watched::Budgets,
        Watched::FailedPods,
        Watched::Claims,
        Watched::Volumes,
        Watched::StorageClasses,
        Watched::CsiNodes,
        Watched::CsiDrivers,
        Watched::StorageCapacities,
        Watched::Attachments,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Watched::Nodes => "nodes",
            Watched::Pods => "pods",
            Watched::Namespaces => "namespaces",
            Watched::Budgets => "poddisruptionbudgets",
            Watched::FailedPods => "failed_pods",
            Watched::Claims => "persistentvolumeclaims",
            Watched::Volumes => "persistentvolumes",
            Watched::StorageClasses => "storageclasses",
            Watched::CsiNodes => "csinodes",
            Watched::CsiDrivers => "csidrivers",
            Watched::StorageCapacities => "csistoragecapacities",
            Watched::Attachments => "volumeattachments",
        }
    }
}

/// A label's value. Static text costs nothing to look up by; the attempts are the only counted ones.
macro_rules! label_value {
    ($($name:ty),+) => {$(
        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder) -> std::fmt::Result {
                encoder.write_str(self.as_str())
            }
        }
    )+};
}

label_value!(AttemptResult, CallType, CallResult, Watched);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    result: AttemptResult,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SliLabels {
    attempts: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IncomingLabels {
    queue: &'static str,
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call_type: CallType,
    result: CallResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    call_type: CallType,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    resource: Watched,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// A histogram for each label set.
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics of the process. To be shared by `Arc`; every method takes `&self` and only atomics or short locks.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    profile: String,
    schedule_attempts: Family<AttemptLabels, Counter>,
    attempt_duration: Histograms<AttemptLabels>,
    algorithm_duration: Histogram,
    sli_duration: Histograms<SliLabels>,
    pod_attempts: Histogram,
    kubelet_rejections: Family<ReasonLabels, Counter>,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    pending_pods: Family<QueueLabels, Gauge>,
    incoming_pods: Family<IncomingLabels, Counter>,
    cache_size: Family<CacheLabels, Gauge>,
    calls: Family<CallLabels, Counter>,
    call_duration: Histograms<CallLabels>,
    pending_calls: Family<LaneLabels, Gauge>,
    dropped_calls: Family<LaneLabels, Counter>,
    watch_restarts: Family<WatchLabels, Counter>,
    leader: Gauge,
    forecasts: ForecastMetrics,
}

/// From 1 ms, doubling, as kube-scheduler has them for durations of its own work.
fn milliseconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// From 10 ms, doubling, to 88 minutes: how long a pod waits.
fn waiting_times() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

impl Metrics {
    /// All metrics, at zero, for the scheduler of this name.
    pub fn new(profile: &str) -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix(PREFIX),
            profile: profile.to_owned(),
            schedule_attempts: Family::default(),
            attempt_duration: Family::new_with_constructor(milliseconds),
            algorithm_duration: milliseconds(),
            sli_duration: Family::new_with_constructor(waiting_times),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            kubelet_rejections: Family::default(),
            preemption_attempts: Counter::default(),
            preemption_victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            pending_pods: Family::default(),
            incoming_pods: Family::default(),
            cache_size: Family::default(),
            calls: Family::default(),
            call_duration: Family::new_with_constructor(milliseconds),
            pending_calls: Family::default(),
            dropped_calls: Family::default(),
            watch_restarts: Family::default(),
            leader: Gauge::default(),
            forecasts: ForecastMetrics::default(),
        };
        metrics.register_scheduling();
        metrics.register_queue();
        metrics.register_calls();
        metrics.register_process();
        metrics.forecasts.register(&mut metrics.registry);
        metrics.zero();
        metrics
    }

    fn register_scheduling(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "schedule_attempts",
            "Number of attempts to schedule pods, by the result",
            self.schedule_attempts.clone(),
        );
        registry.register_with_unit(
            "scheduling_attempt_duration",
            "Scheduling attempt latency (scheduling algorithm and binding)",
            Unit::Seconds,
            self.attempt_duration.clone(),
        );
        registry.register_with_unit(
            "scheduling_algorithm_duration",
            "Scheduling algorithm latency",
            Unit::Seconds,
            self.algorithm_duration.clone(),
        );
        registry.register_with_unit(
            "pod_scheduling_sli_duration",
            "Time from a pod's first entry into the scheduling queue, without time spent gated, until it is bound",
            Unit::Seconds,
            self.sli_duration.clone(),
        );
        registry.register(
            "pod_scheduling_attempts",
            "Number of attempts it took to schedule a pod",
            self.pod_attempts.clone(),
        );
        registry.register(
            "kubelet_rejections",
            "Number of pods that were bound and then turned away by their node's kubelet, by its reason",
            self.kubelet_rejections.clone(),
        );
        registry.register(
            "preemption_attempts",
            "Number of times it was looked whether pods could go for another",
            self.preemption_attempts.clone(),
        );
        registry.register(
            "preemption_victims",
            "Number of pods chosen to go for another",
            self.preemption_victims.clone(),
        );
    }

    fn register_queue(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "pending_pods",
            "Number of pending pods, by the queue (active, backoff, unschedulable, gated)",
            self.pending_pods.clone(),
        );
        registry.register(
            "queue_incoming_pods",
            "Number of pods added to scheduling queues, by event and queue",
            self.incoming_pods.clone(),
        );
        registry.register(
            "cache_size",
            "Number of nodes, pods and assumed pods in the scheduler's cache",
            self.cache_size.clone(),
        );
    }

    fn register_calls(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "async_api_call_execution",
            "Number of API calls executed, by type and result",
            self.calls.clone(),
        );
        registry.register_with_unit(
            "async_api_call_execution_duration",
            "Duration of API calls, by type and result",
            Unit::Seconds,
            self.call_duration.clone(),
        );
        registry.register(
            "pending_async_api_calls",
            "Number of API calls that wait or are in flight, by type",
            self.pending_calls.clone(),
        );
        registry.register(
            "async_api_call_drops",
            "Number of API calls given up because their lane was full or the API server refused them, by type",
            self.dropped_calls.clone(),
        );
        registry.register(
            "watch_restarts",
            "Number of times a watch was broken off and begun again",
            self.watch_restarts.clone(),
        );
    }

    fn register_process(&mut self) {
        let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
        self.registry.register("build", "The program's version", build);
        self.registry.register("leader", "1 while this replica may act, 0 otherwise", self.leader.clone());
    }

    /// Creates the series whose labels are known beforehand: a rate over a series that is not there yet loses its first
    /// increment, and an alert on it never fires.
    fn zero(&self) {
        for queue in QUEUES {
            self.set_pending(queue, 0);
        }
        self.set_cache(CacheSize { nodes: 0, pods: 0, assumed_pods: 0 });
        for result in [AttemptResult::Scheduled, AttemptResult::Unschedulable, AttemptResult::Error] {
            drop(self.schedule_attempts.get_or_create(&self.attempt(result)));
            drop(self.attempt_duration.get_or_create(&self.attempt(result)));
        }
        for call_type in CALL_TYPES {
            drop(self.pending_calls.get_or_create(&LaneLabels { call_type }));
            drop(self.dropped_calls.get_or_create(&LaneLabels { call_type }));
            for result in [CallResult::Success, CallResult::Error] {
                drop(self.calls.get_or_create(&CallLabels { call_type, result }));
            }
        }
        for reason in REJECTIONS {
            drop(self.kubelet_rejections.get_or_create(&ReasonLabels { reason }));
        }
        self.forecasts.zero();
        for resource in Watched::ALL {
            drop(self.watch_restarts.get_or_create(&WatchLabels { resource }));
        }
    }

    fn attempt(&self, result: AttemptResult) -> AttemptLabels {
        AttemptLabels { result, profile: self.profile.clone() }
    }

    /// Counts a fact.
    pub fn record(&self, fact: &Fact) {
        match fact {
            Fact::PodQueued { queue, cause } => self.count_incoming(*queue, *cause),
            // Counted when the bind has ended.
            Fact::PodAssumed { .. } => {}
            Fact::PodUnschedulable { .. } => self.count_attempt(AttemptResult::Unschedulable),
            Fact::PodBound { attempts, waited, .. } => {
                self.count_attempt(AttemptResult::Scheduled);
                self.observe_bound(*attempts, *waited);
            }
            Fact::BindFailed { .. } => self.count_attempt(AttemptResult::Error),
            Fact::PodRejected { reason, .. } => {
                let labels = ReasonLabels { reason: rejection_label(reason) };
                self.kubelet_rejections.get_or_create(&labels).inc();
            }
            Fact::Preemption { chosen, .. } => {
                self.preemption_attempts.inc();
                if let Some((_, victims, _)) = chosen {
                    self.preemption_victims.observe(*victims as f64);
                }
            }
            // Counted as a call.
            Fact::EvictionRefused { .. } => {}
            Fact::Forecast { at, group, .. } => self.forecasts.set(*at, group),
        }
    }

    fn count_incoming(&self, queue: QueueName, cause: QueueCause) {
        let labels = IncomingLabels { queue: queue.as_str(), event: cause.as_str() };
        self.incoming_pods.get_or_create(&labels).inc();
    }

    fn count_attempt(&self, result: AttemptResult) {
        self.schedule_attempts.get_or_create(&self.attempt(result)).inc();
    }

    fn observe_bound(&self, attempts: u32, waited: Duration) {
        let label = if attempts >= MANY_ATTEMPTS { "15+".to_owned() } else { attempts.to_string() };
        let labels = SliLabels { attempts: label };
        self.sli_duration.get_or_create(&labels).observe(waited.as_secs_f64());
        self.pod_attempts.observe(f64::from(attempts));
    }

    /// An attempt took this long from its decision until its end, the bind included.
    pub fn observe_attempt(&self, result: AttemptResult, took: Duration) {
        self.attempt_duration.get_or_create(&self.attempt(result)).observe(took.as_secs_f64());
    }

    /// A decision took this long.
    pub fn observe_algorithm(&self, took: Duration) {
        self.algorithm_duration.observe(took.as_secs_f64());
    }

    /// The length of a part of the queue.
    pub fn set_pending(&self, queue: QueueName, pods: usize) {
        set(&self.pending_pods.get_or_create(&QueueLabels { queue: queue.as_str() }), pods);
    }

    /// What the cache holds.
    pub fn set_cache(&self, size: CacheSize) {
        let parts = [("nodes", size.nodes), ("pods", size.pods), ("assumed_pods", size.assumed_pods)];
        for (part, count) in parts {
            set(&self.cache_size.get_or_create(&CacheLabels { r#type: part }), count);
        }
    }

    /// An API call has ended.
    pub fn observe_call(&self, call_type: CallType, result: CallResult, took: Duration) {
        let labels = CallLabels { call_type, result };
        self.calls.get_or_create(&labels).inc();
        self.call_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The calls of a lane that wait or are in flight.
    pub fn set_pending_calls(&self, call_type: CallType, calls: usize) {
        set(&self.pending_calls.get_or_create(&LaneLabels { call_type }), calls);
    }

    /// A call was given up: its lane was full, or the API server refused it.
    pub fn count_drop(&self, call_type: CallType) {
        self.dropped_calls.get_or_create(&LaneLabels { call_type }).inc();
    }

    /// A watch was broken off and begins again.
    pub fn count_watch_restart(&self, resource: Watched) {
        self.watch_restarts.get_or_create(&WatchLabels { resource }).inc();
    }

    /// Usage was asked for.
    pub fn count_usage_poll(&self, result: CallResult) {
        self.forecasts.count_poll(result);
    }

    /// What the forecaster has learnt was renewed and kept, or not.
    pub fn count_forecast_update(&self, result: CallResult) {
        self.forecasts.count_update(result);
    }

    /// Whether this replica may act.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// All metrics as text, of type [`CONTENT_TYPE`].
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// kubelet's reasons that have a series of their own.
const REJECTIONS: [&str; 12] = [
    "UnexpectedAdmissionError",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "OutOfextended",
    "NodeAffinity",
    "NodePorts",
    "Preempting",
    "TaintToleration",
    "TopologyAffinityError",
    "other",
];

/// The label of a reason. Extended resources share one: their names are anybody's.
fn rejection_label(reason: &str) -> &'static str {
    let fallback = if reason.starts_with("OutOf") { "OutOfextended" } else { "other" };
    REJECTIONS.into_iter().find(|known| *known == reason).unwrap_or(fallback)
}

/// All lanes.
const CALL_TYPES: [CallType; 5] = [
    CallType::PodBinding,
    CallType::PodStatusPatch,
    CallType::PodEviction,
    CallType::Event,
    CallType::Claims,
];

/// All parts of the queue.
const QUEUES: [QueueName; 4] =
    [QueueName::Active, QueueName::Backoff, QueueName::Unschedulable, QueueName::Gated];

fn set(gauge: &Gauge, count: usize) {
    gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests;
