//! What set of instances serves these request rates within their latency limits on the fewest GPUs.
//!
//! A service can run on instances of several sizes, with several batch sizes and numbers of processes; what each of these
//! operating points gives has been measured. For one size only the fastest point that keeps the latency limit matters, so that
//! the joint choice of size, batch and processes is a choice of a *cover* for each service: how many instances of each size it
//! gets, so that together they serve its rate.
//!
//! ```text
//!   minimise  G        such that the chosen covers fit together onto G GPUs
//!
//!   bound     prices w(p) ≥ 0 for an instance of each profile, with Σ_p n(l,p) · w(p) ≤ 1 for every layout l of one GPU
//!             ⇒  G ≥ Σ_s (price of the cheapest cover of s),  whatever is chosen         (prices: the best such w)
//!   search    for G = bound, bound + 1, …: the services one after the other, every cover that the bound leaves room for
//!             (covers), sums with the lowest prices first (search), until one fits
//! ```
//!
//! Invariant: the answer keeps every rate and limit, its layouts are legal, and [`Sizing::bound`] GPUs are needed whatever is
//! chosen. Prices are whole numbers, so that the bound holds exactly. All work is bounded by counts, never by time, so that
//! the same input gives the same answer; where a limit is met, the answer may be above the bound and says so by it.

mod covers;
mod prices;
mod search;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use self::covers::Cover;
use crate::mig::{
    Counts, GpuModel, Layout, Placement, ProfileGeometry, ProfileName, UnknownProfile, Variants,
    enumerate_layouts,
};

/// Requests a second by which a rate may be missed through rounding.
const SLACK: f64 = 1e-6;

/// The most requests a second that a service may ask for.
pub const MOST_RATE: f64 = 1e9;

/// The most instances that one service may need.
pub const MOST_INSTANCES: u32 = 10_000;

/// One measured way to run a service on an instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatingPoint {
    /// The instance's profile.
    pub profile: ProfileName,
    /// Requests that are worked on together.
    pub batch: u32,
    /// Processes that share the instance.
    pub processes: u32,
    /// Requests a second of all processes together.
    pub throughput: f64,
    /// Latency of a request in seconds.
    pub latency: f64,
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Its name, for messages.
    pub name: String,
    /// Requests a second that arrive.
    pub rate: f64,
    /// The longest latency allowed, in seconds.
    pub latency_limit: f64,
    /// What has been measured.
    pub points: Vec<OperatingPoint>,
}

/// An instance that serves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Where it is.
    pub placement: Placement,
    /// Position of its service in the input.
    pub service: usize,
    /// How the service runs there.
    pub point: OperatingPoint,
}

/// Which GPUs are needed and what runs on them.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizing {
    /// One list for each GPU, ordered by start.
    pub gpus: Vec<Vec<Segment>>,
    /// No choice needs fewer GPUs.
    pub bound: usize,
}

/// Why services cannot be sized.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ServiceError {
    /// A rate that is not a number above zero.
    #[error(
        "service {service}: the rate {rate} is not possible: give requests a second above 0 and at most {MOST_RATE}"
    )]
    Rate {
        /// The service's name.
        service: String,
        /// What was given.
        rate: f64,
    },
    /// No operating point keeps the limit.
    #[error(
        "service {service}: nothing measured keeps a latency of {limit} s (the fastest takes {fastest} s): allow more, or \
         measure smaller batches"
    )]
    TooSlow {
        /// The service's name.
        service: String,
        /// Its limit in seconds.
        limit: f64,
        /// The least latency measured, in seconds.
        fastest: f64,
    },
    /// So little throughput that the number of instances is absurd.
    #[error(
        "service {service}: {rate} requests a second need over {MOST_INSTANCES} instances: check rate and throughput"
    )]
    TooMany {
        /// The service's name.
        service: String,
        /// Its rate.
        rate: f64,
    },
    /// An operating point on a profile that the model lacks.
    #[error(transparent)]
    Profile(#[from] UnknownProfile),
    /// The linear solver gave up on the prices.
    #[error("the linear program for the bound could not be solved: {0}")]
    Prices(String),
}

/// The fewest GPUs of `model` that serve all of `services`, and what runs where.
///
/// When the search meets its limits, the answer may need more GPUs than [`Sizing::bound`] says are necessary.
pub fn size(model: &'static GpuModel, services: &[Service]) -> Result<Sizing, ServiceError> {
    let options =
        services.iter().map(|service| best_points(model, service)).collect::<Result<Vec<_>, _>>()?;
    let used: BTreeSet<ProfileName> = options.iter().flat_map(BTreeMap::keys).copied().collect();
    let sizes = Sizes::new(model, &used);
    let needs: Vec<Need> =
        services.iter().zip(&options).map(|(s, options)| Need::new(s, options, &sizes)).collect();
    let prices = prices::best(&sizes, &needs)?;
    let mut bound = prices.gpus(&needs);
    let mut gpus = bound;
    loop {
        match search::choose(&sizes, &needs, &prices, gpus) {
            search::Found::Covers { covers, layouts } => {
                let segments = deploy(&sizes, &options, &covers, &layouts);
                return Ok(Sizing { gpus: segments, bound });
            }
            // Only an unbroken row of numbers shown to be too few raises the bound.
            search::Found::Nothing if bound == gpus => bound = gpus + 1,
            search::Found::Nothing | search::Found::Unknown => {}
        }
        gpus += 1;
    }
}

/// By profile, the fastest operating point within the limit.
type Options = BTreeMap<ProfileName, OperatingPoint>;

fn best_points(model: &GpuModel, service: &Service) -> Result<Options, ServiceError> {
    let name = || service.name.clone();
    if !(service.rate > 0.0 && service.rate <= MOST_RATE) {
        return Err(ServiceError::Rate { service: name(), rate: service.rate });
    }
    let mut best = Options::new();
    for &point in &service.points {
        model.profile(point.profile)?;
        if point.latency <= service.latency_limit && point.throughput > 0.0 && point.throughput.is_finite() {
            let kept = best.entry(point.profile).or_insert(point);
            if (point.throughput, -point.latency) > (kept.throughput, -kept.latency) {
                *kept = point;
            }
        }
    }
    let Some(fastest) = best.values().map(|point| point.throughput).max_by(f64::total_cmp) else {
        let works = service.points.iter().filter(|point| point.throughput > 0.0);
        let fastest = works.map(|point| point.latency).fold(f64::INFINITY, f64::min);
        return Err(ServiceError::TooSlow { service: name(), limit: service.latency_limit, fastest });
    };
    if service.rate / fastest > f64::from(MOST_INSTANCES) {
        return Err(ServiceError::TooMany { service: name(), rate: service.rate });
    }
    // A slow profile that would need absurdly many is no option.
    best.retain(|_, point| service.rate / point.throughput <= f64::from(MOST_INSTANCES));
    Ok(best)
}

/// The profiles that matter, large ones first, and what one GPU can hold of them.
struct Sizes {
    model: &'static GpuModel,
    profiles: Vec<&'static ProfileGeometry>,
    /// Instances by position in `profiles`: those of one GPU that no others contain.
    patterns: Vec<Cover>,
    /// Whether [`Sizes::place`] finds a place whenever there is one: the rule is proven for base profiles alone.
    exact: bool,
}

impl Sizes {
    fn new(model: &'static GpuModel, used: &BTreeSet<ProfileName>) -> Self {
        let mut profiles: Vec<_> =
            model.profiles.iter().filter(|profile| used.contains(&profile.name)).collect();
        profiles.sort_by_key(|profile| {
            (std::cmp::Reverse(profile.memory_slices), profile.starts.len(), profile.name)
        });
        let vector = |counts: &Counts| -> Cover {
            profiles.iter().map(|profile| counts.get(&profile.name).map_or(0, |&n| u32::from(n))).collect()
        };
        let table = enumerate_layouts(model, Variants::All);
        let all: BTreeSet<Cover> = table.multisets().iter().map(vector).collect();
        let within = |small: &Cover, large: &Cover| small.iter().zip(large).all(|(a, b)| a <= b);
        let maximal = |one: &&Cover| !all.iter().any(|other| other != *one && within(one, other));
        let patterns = all.iter().filter(maximal).cloned().collect();
        Sizes { model, exact: profiles.iter().all(|profile| profile.name.is_base()), profiles, patterns }
    }

    /// Layouts of at most `gpus` GPUs that hold all of `wanted`.
    ///
    /// Large instances first, each at the last start that is free on any GPU: what fits into the right half of an eight-slice
    /// GPU fits into the left half, which alone can hold a `4g`, and its last pair of slices can hold no `2g`.
    fn place(&self, wanted: &Cover, gpus: usize) -> Option<Vec<Layout>> {
        let mut layouts = vec![Layout::empty(self.model); gpus];
        for (profile, &count) in self.profiles.iter().zip(wanted) {
            let mut left = count;
            for start in profile.starts.iter().rev() {
                let placement = Placement::new(profile.name, start);
                for layout in &mut layouts {
                    if left > 0 && layout.admit(placement).is_ok() {
                        *layout = layout.clone().with(placement).ok()?;
                        left -= 1;
                    }
                }
            }
            if left > 0 {
                return None;
            }
        }
        Some(layouts)
    }
}

/// What one service needs, by position in [`Sizes::profiles`].
struct Need {
    rate: f64,
    /// Requests a second of an instance; zero where the service cannot run.
    throughput: Vec<f64>,
}

impl Need {
    fn new(service: &Service, options: &Options, sizes: &Sizes) -> Self {
        let throughput =
            |profile: &&ProfileGeometry| options.get(&profile.name).map_or(0.0, |point| point.throughput);
        Need { rate: service.rate, throughput: sizes.profiles.iter().map(throughput).collect() }
    }
}

/// Gives each service its instances on the layouts, by service and then from the first GPU on.
fn deploy(sizes: &Sizes, options: &[Options], covers: &[Cover], layouts: &[Layout]) -> Vec<Vec<Segment>> {
    let mut waiting: BTreeMap<ProfileName, Vec<usize>> = BTreeMap::new();
    for (service, cover) in covers.iter().enumerate().rev() {
        for (profile, &count) in sizes.profiles.iter().zip(cover) {
            waiting.entry(profile.name).or_default().extend(std::iter::repeat_n(service, count as usize));
        }
    }
    let segments = |layout: &Layout| -> Vec<Segment> {
        let segment = |&placement: &Placement| {
            let service = waiting.get_mut(&placement.profile)?.pop()?;
            Some(Segment { placement, service, point: options[service][&placement.profile] })
        };
        layout.placements().iter().filter_map(segment).collect()
    };
    let gpus: Vec<_> = layouts.iter().map(segments).collect();
    gpus.into_iter().filter(|segments| !segments.is_empty()).collect()
}

#[cfg(test)]
mod tests;
