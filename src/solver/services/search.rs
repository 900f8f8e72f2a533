//! A cover for each service, so that all fit onto a number of GPUs.
//!
//! The services come one after the other, and what is kept are sums of covers. A sum is dropped when its price and the least
//! that the remaining services must pay exceed the GPUs; of those left the cheapest are kept, and the others too when there are
//! few enough. Whether a sum fits is asked at the end.
//!
//! Invariant: `Nothing` is answered only when no sum was dropped for want of room.

use std::collections::BTreeMap;

use super::covers::{Cover, Covers, up_to};
use super::prices::{ONE_GPU, Prices};
use super::{Need, Sizes};
use crate::mig::Layout;

/// Sums that are kept after each service: few at first, since a solution is mostly among the cheapest.
const WIDTHS: [usize; 3] = [64, 1_024, 16_384];

/// Covers of one service that are tried with each sum.
const COVERS: usize = 256;

/// What a search came to.
pub(super) enum Found {
    /// A cover for each service, and where they go.
    Covers { covers: Vec<Cover>, layouts: Vec<Layout> },
    /// That many GPUs are too few.
    Nothing,
    /// The limits were met first.
    Unknown,
}

/// The sum of some services' covers, and the last one's choice with the sum before it.
struct Sum {
    price: u64,
    from: usize,
    cover: usize,
}

/// Looks for covers that fit onto `gpus` GPUs.
pub(super) fn choose(sizes: &Sizes, needs: &[Need], prices: &Prices, gpus: usize) -> Found {
    let budget = ONE_GPU.saturating_mul(gpus as u64);
    let least: u64 = prices.least.iter().sum();
    let Some(slack) = budget.checked_sub(least) else { return Found::Nothing };
    let covers: Vec<Covers> = (needs.iter().zip(&prices.least))
        .map(|(need, least)| up_to(need, &prices.of, least.saturating_add(slack)))
        .collect();
    let mut complete = false;
    for width in WIDTHS {
        let (found, all) = walk(sizes, &covers, prices, budget, gpus, width);
        if let Some(found) = found {
            return found;
        }
        complete = all;
        if complete {
            break;
        }
    }
    if complete && sizes.exact { Found::Nothing } else { Found::Unknown }
}

/// One walk over the services, and whether it left nothing out.
fn walk(
    sizes: &Sizes,
    covers: &[Covers],
    prices: &Prices,
    budget: u64,
    gpus: usize,
    width: usize,
) -> (Option<Found>, bool) {
    let mut complete = covers.iter().all(|covers| covers.complete && covers.list.len() <= COVERS);
    let mut remaining: u64 = prices.least.iter().sum();
    let mut layers: Vec<Vec<(Cover, Sum)>> =
        vec![vec![(vec![0; sizes.profiles.len()], Sum { price: 0, from: 0, cover: 0 })]];
    for (covers, least) in covers.iter().zip(&prices.least) {
        remaining -= least;
        let mut next: BTreeMap<Cover, Sum> = BTreeMap::new();
        for (from, (sum, so_far)) in layers[layers.len() - 1].iter().enumerate() {
            for (cover, (price, counts)) in covers.list.iter().take(COVERS).enumerate() {
                let price = so_far.price + price;
                if price + remaining > budget {
                    break;
                }
                let total: Cover = sum.iter().zip(counts).map(|(a, b)| a + b).collect();
                next.entry(total).or_insert(Sum { price, from, cover });
            }
        }
        let mut next: Vec<(Cover, Sum)> = next.into_iter().collect();
        next.sort_by(|a, b| a.1.price.cmp(&b.1.price).then_with(|| a.0.cmp(&b.0)));
        complete &= next.len() <= width;
        next.truncate(width);
        layers.push(next);
    }
    let last = &layers[layers.len() - 1];
    let placed = last.iter().enumerate().find_map(|(at, (sum, _))| Some((at, sizes.place(sum, gpus)?)));
    let found = placed.map(|(at, layouts)| Found::Covers { covers: chosen(&layers, covers, at), layouts });
    (found, complete)
}

/// The covers whose sum is the last layer's at `at`.
fn chosen(layers: &[Vec<(Cover, Sum)>], covers: &[Covers], mut at: usize) -> Vec<Cover> {
    let mut chosen = Vec::new();
    for (layer, covers) in layers[1..].iter().zip(covers).rev() {
        let sum = &layer[at].1;
        chosen.push(covers.list[sum.cover].1.clone());
        at = sum.from;
    }
    chosen.reverse();
    chosen
}
