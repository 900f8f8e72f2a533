//! Which sets of instances can be added to a partly occupied GPU, by table.
//!
//! A *pattern* is a number of instances for each profile of a model, wherever they stand; a *placed set* says where. All
//! placed sets of a model are enumerated once ([`enumerate_layouts`]) and kept by pattern, each with its slices and its claims
//! on media engines as bits, so that "does this pattern still fit" is a scan over some tens of words: a placed set fits when
//! neither meets what is held already.
//!
//! Invariant: the answers are exact. Two placed sets can exist together exactly when their slices are disjoint and their
//! media claims compatible, which is what [`Layout::admit`] decides instance by instance; a test holds the two against each
//! other. Patterns are closed under taking instances away, so an undominated one is found by looking one instance further.

use crate::mig::{
    Attribute, Counts, GpuModel, Layout, OccupancyTable, Placement, ProfileIndex, Slots, Variants,
    enumerate_layouts,
};

/// Claims on the media engines that a GPU has once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MediaClaims(u8);

impl MediaClaims {
    /// `+me`: the media extensions.
    const EXTENSIONS: u8 = 1;
    /// `+me.all`: every media engine.
    const ALL: u8 = 2;
    /// Any other profile but `-me`: the share of the engines that comes with its slices.
    const SHARE: u8 = 4;

    /// What one instance claims.
    pub const fn of(attribute: Attribute) -> MediaClaims {
        MediaClaims(match attribute {
            Attribute::Me => Self::EXTENSIONS,
            Attribute::MeAll => Self::ALL,
            Attribute::None | Attribute::Gfx => Self::SHARE,
            Attribute::NoMe => 0,
        })
    }

    /// Whether instances with these claims cannot exist beside ones with the others.
    pub const fn conflict(self, other: MediaClaims) -> bool {
        self.0 & other.0 & Self::EXTENSIONS != 0
            || self.0 & Self::ALL != 0 && other.0 != 0
            || other.0 & Self::ALL != 0 && self.0 != 0
    }

    const fn union(self, other: MediaClaims) -> MediaClaims {
        MediaClaims(self.0 | other.0)
    }
}

/// What is held on one GPU, as far as it matters to what can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occupied {
    /// Memory slices.
    pub slots: Slots,
    /// Media engines.
    pub media: MediaClaims,
}

impl Occupied {
    /// What the instances of a layout hold.
    pub fn by(layout: &Layout) -> Occupied {
        let claims =
            layout.placements().iter().map(|placement| MediaClaims::of(placement.profile.attribute()));
        Occupied { slots: layout.mask(), media: claims.fold(MediaClaims::default(), MediaClaims::union) }
    }

    /// What one instance holds; nothing if the model does not allow it.
    pub fn of(model: &GpuModel, placement: Placement) -> Occupied {
        let slots = placement.slots(model).unwrap_or_default();
        Occupied { slots, media: MediaClaims::of(placement.profile.attribute()) }
    }

    /// Whether both can exist on one GPU.
    pub const fn admits(self, other: Occupied) -> bool {
        !self.slots.overlaps(other.slots) && !self.media.conflict(other.media)
    }

    /// What both hold together.
    pub const fn union(self, other: Occupied) -> Occupied {
        Occupied { slots: self.slots.union(other.slots), media: self.media.union(other.media) }
    }
}

/// Numbers of instances by profile, four bits each: no GPU holds more than seven of one profile, and no model has more than
/// twelve profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackedCounts(u64);

impl PackedCounts {
    const BITS: u32 = 4;

    /// One instance of one profile.
    pub const fn one(profile: ProfileIndex) -> PackedCounts {
        PackedCounts(1 << (Self::BITS * profile.0 as u32))
    }

    /// How many of `profile`.
    pub const fn of(self, profile: ProfileIndex) -> u8 {
        (self.0 >> (Self::BITS * profile.0 as u32)) as u8 & 0xF
    }

    /// Whether no count is larger than in `other`, all profiles at once: a number larger than its counterpart borrows from the
    /// highest of the four bits, which no count uses.
    pub const fn within(self, other: PackedCounts) -> bool {
        const HIGHEST: u64 = 0x8888_8888_8888_8888;
        ((other.0 | HIGHEST) - self.0) & HIGHEST == HIGHEST
    }

    const fn plus(self, other: PackedCounts) -> PackedCounts {
        PackedCounts(self.0 + other.0)
    }

    /// Reads counts by name; `None` when the model has no such profile or a number is beyond any GPU.
    fn read(model: &GpuModel, counts: &Counts) -> Option<PackedCounts> {
        counts.iter().try_fold(PackedCounts::default(), |sum, (&name, &count)| {
            let one = Self::one(model.index_of(name).ok()?);
            (count <= 7).then(|| PackedCounts(sum.0 + one.0 * u64::from(count)))
        })
    }
}

/// Position of a pattern in its [`PatternTable`]; 0 is the pattern without instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PatternId(u16);

/// Position of a placed set in its [`PatternTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacedId(u32);

/// The patterns and placed sets of one model.
#[derive(Clone, Debug)]
pub struct PatternTable {
    occupancy: OccupancyTable,
    /// By pattern, ascending.
    counts: Vec<PackedCounts>,
    /// By pattern: where its placed sets begin; one more entry than patterns.
    begins: Vec<u32>,
    /// By placed set, grouped by pattern: what it holds.
    held: Vec<Occupied>,
    /// By placed set: the instances.
    layouts: Vec<Layout>,
    /// By pattern: those with one instance more.
    larger: Vec<Vec<PatternId>>,
}

impl PatternTable {
    /// Enumerates the patterns of `model`, all variants included: 3,000 placed sets in 128 patterns on eight slices.
    pub fn new(model: &'static GpuModel) -> PatternTable {
        let mut sets: Vec<(PackedCounts, Layout)> = std::iter::once(Layout::empty(model))
            .chain(enumerate_layouts(model, Variants::All).layouts().iter().cloned())
            .map(|layout| (packed(&layout), layout))
            .collect();
        sets.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.placements().cmp(b.1.placements())));
        let (mut counts, mut begins) = (Vec::new(), Vec::new());
        for (at, (key, _)) in (0u32..).zip(&sets) {
            if counts.last() != Some(key) {
                counts.push(*key);
                begins.push(at);
            }
        }
        begins.push(u32::try_from(sets.len()).unwrap_or(u32::MAX));
        let larger = counts.iter().map(|&smaller| one_more(model, &counts, smaller)).collect();
        PatternTable {
            occupancy: OccupancyTable::new(model),
            counts,
            begins,
            held: sets.iter().map(|(_, layout)| Occupied::by(layout)).collect(),
            layouts: sets.into_iter().map(|(_, layout)| layout).collect(),
            larger,
        }
    }

    /// The model.
    pub const fn model(&self) -> &'static GpuModel {
        self.occupancy.model()
    }

    /// What single profiles find on a GPU.
    pub const fn occupancy(&self) -> &OccupancyTable {
        &self.occupancy
    }

    /// The pattern with these counts, or `None` if not even an empty GPU holds it.
    pub fn find(&self, counts: &Counts) -> Option<PatternId> {
        self.find_packed(PackedCounts::read(self.model(), counts)?)
    }

    fn find_packed(&self, counts: PackedCounts) -> Option<PatternId> {
        position(&self.counts, counts)
    }

    /// All patterns, the empty one first.
    pub fn patterns(&self) -> impl Iterator<Item = PatternId> + use<> {
        (0..self.counts.len()).filter_map(|at| u16::try_from(at).ok()).map(PatternId)
    }

    /// Instances by profile.
    pub fn counts(&self, pattern: PatternId) -> PackedCounts {
        self.counts[usize::from(pattern.0)]
    }

    /// Whether the pattern can be added to a GPU on which `held` must stay.
    pub fn fits(&self, held: Occupied, pattern: PatternId) -> bool {
        self.held[self.range(pattern)].iter().any(|set| held.admits(*set))
    }

    /// Every way to add the pattern to a GPU on which `held` must stay, in a fixed order.
    pub fn placed(&self, held: Occupied, pattern: PatternId) -> impl Iterator<Item = PlacedId> {
        let fitting = self.range(pattern).filter(move |at| held.admits(self.held[*at]));
        fitting.filter_map(|at| u32::try_from(at).ok()).map(PlacedId)
    }

    /// The instances of a placed set.
    pub fn layout(&self, placed: PlacedId) -> &Layout {
        &self.layouts[placed.0 as usize]
    }

    /// The patterns of the `wanted` profiles that fit beside `held` and to which none of these can be added: all that remains
    /// placeable, since every other such pattern that fits is part of one of them.
    pub fn undominated(&self, held: Occupied, wanted: impl Fn(ProfileIndex) -> bool) -> Vec<PatternId> {
        let wanted = self.most(|profile| if wanted(profile) { u64::MAX } else { 0 });
        let usable = |pattern: PatternId| self.counts(pattern).within(wanted) && self.fits(held, pattern);
        let larger = |pattern: PatternId| &self.larger[usize::from(pattern.0)];
        let last = |pattern: &PatternId| usable(*pattern) && !larger(*pattern).iter().any(|id| usable(*id));
        self.patterns().filter(last).collect()
    }

    /// The largest counts with no more of each profile than `most` says: the patterns [`within`](PackedCounts::within) it are
    /// those that so many pods can use.
    pub fn most(&self, most: impl Fn(ProfileIndex) -> u64) -> PackedCounts {
        let profiles = (0u8..).map(ProfileIndex).take(self.model().profiles.len());
        let counts =
            profiles.map(|profile| PackedCounts(PackedCounts::one(profile).0 * most(profile).min(7)));
        counts.fold(PackedCounts::default(), PackedCounts::plus)
    }

    fn range(&self, pattern: PatternId) -> std::ops::Range<usize> {
        let at = usize::from(pattern.0);
        self.begins[at] as usize..self.begins[at + 1] as usize
    }
}

fn packed(layout: &Layout) -> PackedCounts {
    let index = |placement: &Placement| layout.model().index_of(placement.profile).ok();
    let ones = layout.placements().iter().filter_map(index).map(PackedCounts::one);
    ones.fold(PackedCounts::default(), PackedCounts::plus)
}

fn position(sorted: &[PackedCounts], counts: PackedCounts) -> Option<PatternId> {
    let at = sorted.binary_search(&counts).ok()?;
    u16::try_from(at).ok().map(PatternId)
}

/// The patterns that have one instance more than `smaller`.
fn one_more(model: &GpuModel, sorted: &[PackedCounts], smaller: PackedCounts) -> Vec<PatternId> {
    let profiles = (0u8..).map(ProfileIndex).take(model.profiles.len());
    profiles.filter_map(|profile| position(sorted, smaller.plus(PackedCounts::one(profile)))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fixture::chance;
    use crate::mig::tables::MODELS;

    /// Whether all instances find a place beside those of `layout`, by trying every start for every one.
    fn brute(layout: &Layout, wanted: &[ProfileIndex]) -> bool {
        let Some((next, rest)) = wanted.split_first() else { return true };
        let name = layout.model().profiles[usize::from(next.0)].name;
        (0..layout.model().memory_slices).any(|start| {
            let larger = layout.clone().with(Placement::new(name, start));
            larger.is_ok_and(|larger| brute(&larger, rest))
        })
    }

    /// A random legal layout: every placement is offered once, in random order, and taken with a chance.
    fn some_layout(model: &'static GpuModel, next: &mut impl FnMut(u64) -> u64) -> Layout {
        let mut layout = Layout::empty(model);
        for _ in 0..next(4) {
            let profile = &model.profiles[next(model.profiles.len() as u64) as usize];
            let start = next(u64::from(model.memory_slices)) as u8;
            layout = layout.clone().with(Placement::new(profile.name, start)).unwrap_or(layout);
        }
        layout
    }

    /// For every model 10,000 random demands on a randomly occupied GPU: the table against trying everything.
    #[test]
    fn exact_equals_brute_force() {
        for model in &MODELS {
            let table = PatternTable::new(model);
            let mut next = chance(5);
            let mut feasible = 0;
            for round in 0..10_000 {
                let held = some_layout(model, &mut next);
                let size = 1 + next(if round % 2 == 0 { 3 } else { 5 });
                let mut wanted: Vec<_> =
                    (0..size).map(|_| ProfileIndex(next(model.profiles.len() as u64) as u8)).collect();
                wanted.sort_by_key(|p| std::cmp::Reverse(model.profiles[usize::from(p.0)].memory_slices));
                let mut counts = Counts::new();
                for index in &wanted {
                    *counts.entry(model.profiles[usize::from(index.0)].name).or_default() += 1;
                }
                let found = table.find(&counts).filter(|id| table.fits(Occupied::by(&held), *id));
                assert_eq!(found.is_some(), brute(&held, &wanted), "{model} {held} {counts:?}");
                for id in found.iter().flat_map(|id| table.placed(Occupied::by(&held), *id)) {
                    let added = table.layout(id);
                    assert_eq!(added.counts(), counts);
                    let all = held.placements().iter().chain(added.placements()).copied();
                    Layout::new(model, all).unwrap();
                }
                feasible += usize::from(found.is_some());
            }
            assert!(
                (1_000..9_000).contains(&feasible),
                "{model}: {feasible} of 10,000 feasible: hardly a test"
            );
        }
    }

    #[test]
    fn media_claims_are_those_of_the_layouts() {
        let model = GpuModel::by_name("RTX-PRO-6000-96GB").unwrap();
        let single = |name, start| Layout::new(model, [Placement::new(name, start)]).ok();
        for a in model.profiles {
            for b in model.profiles {
                let (Some(left), Some(right)) = (single(a.name, 0), single(b.name, 6)) else { continue };
                let together = left.admit(right.placements()[0]).is_ok();
                assert_eq!(
                    Occupied::by(&left).admits(Occupied::by(&right)),
                    together,
                    "{} {}",
                    a.name,
                    b.name
                );
            }
        }
    }

    /// Every pattern that fits is part of an undominated one, and nothing can be added to those.
    #[test]
    fn undominated_patterns_are_all_that_matters() {
        for model in [&MODELS[0], &MODELS[11], &MODELS[12]] {
            let table = PatternTable::new(model);
            let mut next = chance(7);
            for _ in 0..20 {
                let held = Occupied::by(&some_layout(model, &mut next));
                let undominated = table.undominated(held, |_| true);
                let within = |small: PatternId, large: PatternId| {
                    let mut indices = (0..model.profiles.len() as u8).map(ProfileIndex);
                    let each = indices.all(|i| table.counts(small).of(i) <= table.counts(large).of(i));
                    assert_eq!(table.counts(small).within(table.counts(large)), each);
                    each
                };
                for pattern in table.patterns() {
                    let inside = undominated.iter().filter(|large| within(pattern, **large)).count();
                    assert_eq!(table.fits(held, pattern), inside > 0, "{model}");
                    assert!(!undominated.contains(&pattern) || inside == 1, "{model}");
                }
            }
        }
    }

    #[test]
    fn an_empty_gpu_has_the_published_number_of_patterns() {
        let mut found = BTreeMap::new();
        for model in &MODELS {
            let table = PatternTable::new(model);
            let base = |id: &PatternId| {
                let named = (0..).map(ProfileIndex).zip(model.profiles);
                named.filter(|(_, p)| !p.name.is_base()).all(|(i, _)| table.counts(*id).of(i) == 0)
            };
            found.insert(model.name, table.patterns().filter(base).count());
        }
        for model in &MODELS {
            assert_eq!(found[model.name], if model.memory_slices == 8 { 78 } else { 10 }, "{model}");
        }
    }
}
