//! A bound for each part of the objective that holds whatever floating point did.
//!
//! For any prices `q` of the rows (not negative where the row is `≥`) and any weights `λ` of the earlier parts, whose values
//! are held at their own limits, no answer's part `p` is above
//!
//! ```text
//!   Σ_s count_s · max_{j∈s} ( worth_jp + Σ_{i<p} λ_i worth_ji + Σ_r q_r a_rj )  −  Σ_r q_r b_r  −  Σ_{i<p} λ_i limit_i
//! ```
//!
//! (Lagrangian relaxation of the rows). The simplex only proposes `q`; they are rounded to multiples of 2⁻⁴⁴, and everything
//! from there on is integer arithmetic. The weights stand for "an earlier part must not get worse": one that is too small
//! makes the bound weaker, so several are tried and the best bound counts.

use super::program::{Program, Row, Sum};

/// One, in the fixed-point numbers of prices.
const ONE: i128 = 1 << 44;

/// Weights tried: each part counts so many times as much as the next one, up to a cap that keeps products below 2¹²⁷.
const EMPHASES: [i128; 5] = [1, 1 << 5, 1 << 10, 1 << 15, 1 << 20];
const CAP: i128 = 1 << 20;

/// The largest value that `part` can have in answers whose earlier parts are equal to `limits`.
///
/// `prices` are by part, up to this one, and row; `guess` is the relaxation's value: a bound that rounds down to it cannot be
/// improved, and the search for weights stops there.
pub(super) fn limit(program: &Program, part: usize, prices: &[Vec<f64>], limits: &[i64], guess: f64) -> i64 {
    let fixed: Vec<Vec<i128>> = prices.iter().map(|prices| in_integers(prices)).collect();
    let mut best = trivial(program, part);
    for emphasis in EMPHASES {
        let weights: Vec<i128> = (0..=part).map(|at| power(emphasis, part - at)).collect();
        if let Some(bound) = evaluate(program, part, &fixed, limits, &weights) {
            best = best.min(bound);
        }
        if part == 0 || best as f64 <= guess + 1e-6 {
            break;
        }
    }
    best
}

/// Whether these prices prove that no answer satisfies the rows: at any feasible point the rows' excess, priced, is not
/// negative, and its largest value over all points is the formula without any worth.
pub(super) fn impossible(program: &Program, prices: &[f64]) -> bool {
    let mut prices = in_integers(prices);
    clamp(&program.rows, &mut prices);
    priced(program, &prices, &vec![0; program.matrix.parts]).is_some_and(|most| most < 0)
}

fn power(base: i128, exponent: usize) -> i128 {
    (0..exponent).fold(1, |product: i128, _| (product * base).min(CAP))
}

fn in_integers(prices: &[f64]) -> Vec<i128> {
    prices.iter().map(|price| (price * ONE as f64).round() as i128).collect()
}

/// Prices that no row forbids. Only the sum over all parts must not be negative: on the face of an earlier part's optima a
/// later part may price a row the other way.
fn clamp(rows: &[Row], prices: &mut [i128]) {
    for (price, _) in prices.iter_mut().zip(rows).filter(|(_, row)| !row.equal) {
        *price = (*price).max(0);
    }
}

/// Every set at its best column, the rows forgotten: what holds before anything is computed.
pub(super) fn trivial(program: &Program, part: usize) -> i64 {
    let best = |(columns, count): (&std::ops::Range<usize>, &i64)| {
        let worths = columns.clone().map(|column| program.matrix.worth(column)[part]);
        count.saturating_mul(worths.max().unwrap_or(0))
    };
    let sets = program.matrix.sets.iter().zip(&program.counts).filter(|(_, count)| **count > 0);
    sets.map(best).fold(0, i64::saturating_add)
}

/// The formula of the module, rounded down; `None` where a product leaves 128 bits.
fn evaluate(
    program: &Program,
    part: usize,
    prices: &[Vec<i128>],
    limits: &[i64],
    weights: &[i128],
) -> Option<i64> {
    let mut row_prices = vec![0i128; program.rows.len()];
    for (prices, weight) in prices.iter().zip(weights) {
        for (sum, price) in row_prices.iter_mut().zip(prices) {
            *sum = sum.checked_add(price.checked_mul(*weight)?)?;
        }
    }
    clamp(&program.rows, &mut row_prices);
    let mut worths = vec![0i128; program.matrix.parts];
    worths.iter_mut().zip(weights).for_each(|(worth, weight)| *worth = weight * ONE);
    let mut total = priced(program, &row_prices, &worths)?;
    for (limit, weight) in limits[..part].iter().zip(weights) {
        total = total.checked_sub((weight * ONE).checked_mul(i128::from(*limit))?)?;
    }
    i64::try_from(total.div_euclid(ONE)).ok()
}

/// The largest worth of any point, by the worth of a unit of each part, with what it has beyond each row's bound priced.
fn priced(program: &Program, prices: &[i128], worths: &[i128]) -> Option<i128> {
    let mut worths = worths.to_vec();
    let mut branches = Vec::new();
    let mut total = 0i128;
    for (row, price) in program.rows.iter().zip(prices) {
        total = total.checked_sub(price.checked_mul(i128::from(row.bound))?)?;
        match row.sum {
            Sum::Matrix => {}
            Sum::Part(of) => worths[of] = worths[of].checked_sub(*price)?,
            Sum::Column(column) => branches.push((column, *price)),
        }
    }
    let value = |column: usize| -> Option<i128> {
        let mut value = 0i128;
        for (worth, weight) in program.matrix.worth(column).iter().zip(&worths) {
            value = value.checked_add(weight.checked_mul(i128::from(*worth))?)?;
        }
        for (row, coefficient) in program.matrix.coefficients(column) {
            value = value.checked_add(prices[*row].checked_mul(i128::from(*coefficient))?)?;
        }
        let branch: i128 = branches.iter().filter(|(of, _)| *of == column).map(|(_, price)| price).sum();
        value.checked_sub(branch)
    };
    for (columns, count) in program.matrix.sets.iter().zip(&program.counts) {
        if *count > 0 {
            let mut best = i128::MIN;
            for column in columns.clone() {
                best = best.max(value(column)?);
            }
            total = total.checked_add(best.checked_mul(i128::from(*count))?)?;
        }
    }
    Some(total)
}
