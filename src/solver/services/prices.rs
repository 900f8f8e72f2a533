//! The prices of instances under which the cheapest covers cost the most GPUs.
//!
//! They solve a linear program with a row for every cover. Few of these rows matter, so that they are added one by one: solve,
//! ask each service for its cheapest cover at these prices, add it if the program did not know it, until nothing is new.
//!
//! Invariant: prices are whole numbers of which every layout of one GPU costs at most [`ONE_GPU`], checked in whole numbers. So
//! the bound is valid whatever the linear solver's rounding did; that could only make it weaker.

use good_lp::{Expression, Solution, SolverModel, Variable, constraint, microlp, variable, variables};

use super::covers::{Cover, cheapest};
use super::{Need, ServiceError, Sizes};

/// The price of a whole GPU.
pub(super) const ONE_GPU: u64 = 1 << 32;

/// Most rounds of adding covers. The prices of any round give a valid bound.
const ROUNDS: usize = 200;

/// Prices, and what each service must pay at least.
pub(super) struct Prices {
    /// By position in `Sizes::profiles`.
    pub of: Vec<u64>,
    /// By service.
    pub least: Vec<u64>,
}

impl Prices {
    /// GPUs that are needed whatever is chosen.
    pub fn gpus(&self, needs: &[Need]) -> usize {
        let total: u64 = self.least.iter().take(needs.len()).sum();
        usize::try_from(total.div_ceil(ONE_GPU)).unwrap_or(usize::MAX)
    }
}

/// The prices with the highest bound.
pub(super) fn best(sizes: &Sizes, needs: &[Need]) -> Result<Prices, ServiceError> {
    let mut rows: Vec<Vec<Cover>> = needs.iter().map(|_| Vec::new()).collect();
    let mut best: Option<Prices> = None;
    // To begin with, a slice costs the same whatever it is part of.
    let slices = u64::from(sizes.model.memory_slices);
    let equal = sizes.profiles.iter().map(|profile| u64::from(profile.memory_slices) * ONE_GPU / slices);
    let mut of: Vec<u64> = equal.collect();
    for _ in 0..ROUNDS {
        let (least, covers): (Vec<u64>, Vec<Cover>) = needs.iter().map(|need| cheapest(need, &of)).unzip();
        if best.as_ref().is_none_or(|best| least.iter().sum::<u64>() > best.least.iter().sum()) {
            best = Some(Prices { of: of.clone(), least });
        }
        let mut new = false;
        for (rows, cover) in rows.iter_mut().zip(covers) {
            if !rows.contains(&cover) {
                rows.push(cover);
                new = true;
            }
        }
        if !new {
            break;
        }
        of = solve(sizes, &rows)?;
    }
    best.ok_or_else(|| ServiceError::Prices("no round was made".to_owned()))
}

/// The prices that are best as long as the services have no other covers than `rows`.
fn solve(sizes: &Sizes, rows: &[Vec<Cover>]) -> Result<Vec<u64>, ServiceError> {
    let mut unknowns = variables!();
    let prices: Vec<Variable> = sizes.profiles.iter().map(|_| unknowns.add(variable().min(0.0))).collect();
    let paid: Vec<Variable> = rows.iter().map(|_| unknowns.add(variable().min(0.0))).collect();
    let cost = |cover: &Cover| -> Expression {
        cover.iter().zip(&prices).map(|(&count, &price)| f64::from(count) * price).sum()
    };
    let total: Expression = paid.iter().sum();
    let mut program = unknowns.maximise(total).using(microlp);
    for pattern in &sizes.patterns {
        program.add_constraint(constraint!(cost(pattern) <= 1.0));
    }
    for (covers, &paid) in rows.iter().zip(&paid) {
        for cover in covers {
            program.add_constraint(constraint!(paid <= cost(cover)));
        }
    }
    let solution = program.solve().map_err(|error| ServiceError::Prices(error.to_string()))?;
    let values: Vec<f64> = prices.iter().map(|&price| solution.value(price)).collect();
    Ok(whole(sizes, &values))
}

/// Prices in whole numbers, scaled so that the dearest layout costs one GPU and none costs more.
fn whole(sizes: &Sizes, values: &[f64]) -> Vec<u64> {
    let rounded: Vec<u64> =
        values.iter().map(|price| (price.clamp(0.0, 1.0) * ONE_GPU as f64) as u64).collect();
    let cost = |pattern: &Cover| -> u64 {
        pattern.iter().zip(&rounded).map(|(&count, price)| u64::from(count) * price).sum()
    };
    let dearest = sizes.patterns.iter().map(cost).max().unwrap_or(0);
    let scale = |price: &u64| match dearest > ONE_GPU {
        true => u64::try_from(u128::from(*price) * u128::from(ONE_GPU) / u128::from(dearest)).unwrap_or(0),
        false => *price,
    };
    rounded.iter().map(scale).collect()
}
