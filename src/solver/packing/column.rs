//! What can be done with one GPU of a class: the columns of the program.
//!
//! A column says which movable pods leave and which pattern of instances pods get instead. Of all ways to place that pattern
//! the one with the least disruption counts, then the one that leaves the least fragmentation: whatever the rest of the
//! cluster does, no other way could be better, so the choice is made here and the program stays small.
//!
//! Invariant: the first column of a class does nothing. Instances that nobody uses stay unless one that is created needs
//! their slices; where the layout must not change only instances that exist are used.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::cluster::{Component, ModelTables, State, wanted};
use super::problem::Limits;
use crate::mig::{Layout, Placement, Slots};
use crate::solver::patterns::{Occupied, PackedCounts, PlacedId};

/// One column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Bit i: the i-th movable pod leaves.
    pub leaves: u16,
    /// Instances that pods get: free ones or new ones.
    pub used: PlacedId,
    /// Whether instances are created or destroyed.
    pub changed: bool,
    /// Whether the GPU counts as one in use.
    pub in_use: bool,
    /// Moves and changes in slice-seconds.
    pub cost: i64,
    /// Demand-weighted fragmentation left, in 1/1024 slices.
    pub lost: i64,
    /// (row, instances for others less pods that leave), by row, without zeros.
    pub supply: Vec<(usize, i64)>,
}

impl Column {
    /// Pods that leave.
    pub const fn moves(&self) -> u32 {
        self.leaves.count_ones()
    }

    /// What decides between columns with the same supply, but for ties.
    const fn rank(&self) -> (bool, i64, i64) {
        (self.in_use, self.cost, self.lost)
    }
}

/// Whether the `index`-th movable pod is among those that leave.
pub(super) const fn is_leaving(leaves: u16, index: usize) -> bool {
    leaves & (1 << index) != 0
}

/// All columns of a class, for at most `most` pods by row. Where the limit on moves could be reached moves are scarce, too, and a
/// column with fewer of them is kept beside a better one with more.
pub(super) fn columns(
    state: &State,
    tables: &ModelTables,
    component: &Component,
    most: &[u64],
    limits: &Limits,
) -> Vec<Column> {
    let rows = component.rows(state.model);
    let cap = tables.patterns.most(|index| {
        let row = wanted(&rows)(index).then(|| rows[usize::from(index.0)]).flatten();
        row.map_or(0, |row| most[row])
    });
    // By supply and, where they are scarce, moves.
    let mut best: BTreeMap<(Vec<(usize, i64)>, u32), Column> = BTreeMap::new();
    let mut idle = None;
    let subsets = (0..1u16 << state.movable.len()).filter(|leaves| leaves.count_ones() <= limits.moves);
    for leaves in subsets {
        let rest = Rest::new(state, leaves);
        for column in rest.columns(state, tables, cap, &rows, limits) {
            if column.leaves == 0 && tables.patterns.layout(column.used).placements().is_empty() {
                idle = Some(column);
                continue;
            }
            let moves = if component.tied { column.moves() } else { 0 };
            match best.entry((column.supply.clone(), moves)) {
                Entry::Vacant(entry) => drop(entry.insert(column)),
                Entry::Occupied(mut entry)
                    if (column.rank(), column.leaves) < (entry.get().rank(), entry.get().leaves) =>
                {
                    drop(entry.insert(column))
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    let mut columns: Vec<Column> = idle.into_iter().collect();
    for column in best.into_values() {
        // Of one supply the columns with fewer moves come first.
        let surpasses = |kept: &Column| kept.supply != column.supply || column.rank() < kept.rank();
        if columns.iter().skip(1).next_back().is_none_or(surpasses) {
            columns.push(column);
        }
    }
    columns
}

/// A GPU after some of its pods have left.
struct Rest {
    leaves: u16,
    /// The instances that they leave.
    left: Vec<Placement>,
    /// What stays held.
    held: Occupied,
    /// Instances that exist and nobody holds, and what each holds.
    existing: Vec<(Placement, Occupied)>,
    /// Cost of the moves.
    cost: i64,
}

impl Rest {
    fn new(state: &State, leaves: u16) -> Rest {
        let of = |placement| (placement, Occupied::of(state.model, placement));
        let mut rest = Rest { leaves, left: Vec::new(), held: state.held, existing: Vec::new(), cost: 0 };
        rest.existing.extend(state.free.iter().map(|placement| of(*placement)));
        for (index, &(placement, cost)) in state.movable.iter().enumerate() {
            if is_leaving(leaves, index) {
                rest.existing.push(of(placement));
                rest.left.push(placement);
                rest.cost += i64::from(cost);
            } else {
                rest.held = rest.held.union(of(placement).1);
            }
        }
        rest
    }

    /// The best column for each pattern that is possible here.
    fn columns(
        &self,
        state: &State,
        tables: &ModelTables,
        cap: PackedCounts,
        rows: &[Option<usize>],
        limits: &Limits,
    ) -> Vec<Column> {
        let before = state.held.slots != Slots::EMPTY || !state.movable.is_empty();
        let patterns = tables.patterns.patterns().filter(|id| tables.patterns.counts(*id).within(cap));
        let best = |pattern| {
            let ways = tables.patterns.placed(self.held, pattern).filter_map(|id| {
                let used = tables.patterns.layout(id);
                // A pod that leaves an instance which then another one gets might as well have stayed.
                if used.placements().iter().any(|placement| self.left.contains(placement)) {
                    return None;
                }
                let (cost, changed) = self.disruption(used, state.change)?;
                let after = self.held.slots.union(used.mask());
                Some((cost, tables.fragmentation.lost(after), id, changed))
            });
            let (cost, lost, id, changed) = ways.min_by_key(|(cost, lost, ..)| (*cost, *lost))?;
            let used = tables.patterns.layout(id);
            let occupied = !self.held.slots.union(used.mask()).is_empty();
            Some(Column {
                leaves: self.leaves,
                used: id,
                changed,
                in_use: occupied || before && !limits.consolidate,
                cost,
                lost: i64::from(lost),
                supply: self.supply(state, used, rows),
            })
        };
        patterns.filter_map(best).collect()
    }

    /// What it costs that `used` become the instances of pods, and whether the layout changes; `None` if it must not.
    fn disruption(&self, used: &Layout, change: Option<(u32, u32)>) -> Option<(i64, bool)> {
        let exists = |placement: &Placement| self.existing.iter().any(|(other, _)| other == placement);
        let created = used.placements().iter().filter(|placement| !exists(placement));
        let created: Vec<Occupied> = created.map(|p| Occupied::of(used.model(), *p)).collect();
        if created.is_empty() {
            return Some((self.cost, false));
        }
        let (once, each) = change?;
        let in_the_way = |(placement, held): &&(Placement, Occupied)| {
            !used.placements().contains(placement) && created.iter().any(|new| !held.admits(*new))
        };
        let destroyed = self.existing.iter().filter(in_the_way).count();
        let steps = i64::try_from(created.len() + destroyed).unwrap_or(i64::MAX);
        Some((self.cost + i64::from(once) + steps * i64::from(each), true))
    }

    fn supply(&self, state: &State, used: &Layout, rows: &[Option<usize>]) -> Vec<(usize, i64)> {
        let row = |placement: &Placement| {
            let index = state.model.index_of(placement.profile).ok()?;
            rows[usize::from(index.0)]
        };
        let mut supply: BTreeMap<usize, i64> = BTreeMap::new();
        for row in used.placements().iter().filter_map(row) {
            *supply.entry(row).or_default() += 1;
        }
        for (index, (placement, _)) in state.movable.iter().enumerate() {
            if let Some(row) = row(placement).filter(|_| is_leaving(self.leaves, index)) {
                *supply.entry(row).or_default() -= 1;
            }
        }
        supply.into_iter().filter(|(_, count)| *count != 0).collect()
    }
}
