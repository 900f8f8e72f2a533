//! Packs pods onto the MIG instances of a whole cluster: which layout each GPU gets, and which pod goes where.
//!
//! # The program
//!
//! GPUs in the same state (model, what must stay, free instances, movable pods, cost of a change) form a *class* `c` of `n_c`
//! GPUs. A *column* `j` of a class is one thing that can be done with such a GPU: which movable pods leave, and which pattern
//! of instances is used by others, at the best starts for it. Columns follow from the tables, so there are at most some
//! hundred in a class, and the program does not grow with the number of GPUs, only with the number of different states:
//!
//! ```text
//!   integer  x_j ≥ 0   GPUs of its class that do j            Σ_{j∈c} x_j = n_c               for each class
//!            y_kp      pods of profile k, priority p, placed  0 ≤ y_kp ≤ demand_kp
//!            Σ_j (instances of k used by j − pods of k that j moves away) x_j = Σ_p y_kp     for each profile
//!            Σ_j (pods that j moves away) x_j ≤ limit
//!
//!   lexicographically   max  Σ_k y_kp            for each priority p, highest first
//!                       min  Σ_j used_j x_j      GPUs that hold pods
//!                       min  Σ_j cost_j x_j      moves, instances created and destroyed, nodes paused
//!                       min  Σ_j F_j x_j         demand-weighted fragmentation left behind
//! ```
//!
//! Equality costs nothing: a column that uses fewer instances is a column, too.
//! A pod that moves is placed again or stays: its profile's row counts it. Profiles tie models together only where the same
//! name exists on several (`1g.10gb` is a pair of slices on one A100 and a single one on the other); what is not tied is
//! solved apart.
//!
//! # How it is solved
//!
//! 1. The linear relaxation by a simplex for sets (`simplex`): its basis has a row for each profile, not for each class.
//! 2. A bound from its prices, rounded to whole numbers and evaluated in them (`bound`): floating point can make it weaker but
//!    never wrong. Where the closed form applies it is exact and replaces the first parts.
//! 3. Whole numbers by diving and, until score and bound meet or the limit is reached, by branch and bound (`search`, `branch`).
//! 4. The chosen columns become layouts and places (`assign`), and the score is counted from these.
//!
//! A node that is paused once for several changes is charged in the program by equal shares, which keeps the bound valid; the
//! score counts it exactly.

mod answer;
mod assign;
mod bound;
mod branch;
mod cluster;
mod column;
mod inverse;
mod model;
mod packer;
mod problem;
mod program;
mod search;
mod simplex;

pub use answer::{Bound, Excluded, Move, Placed, Plan, Reason, Score, Unplaced};
pub use packer::Packer;
pub use problem::{ChangeCost, Demand, Gpu, Holder, Instance, Limits, MAX_ITEMS, PackError, Problem};

#[cfg(test)]
mod tests;

#[cfg(test)]
use model::priorities;

/// Packs a cluster: the best answer within the problem's limits, with its bound.
pub fn pack(problem: &Problem) -> Result<Plan, PackError> {
    Packer::new(problem.clone())?.pack()
}
