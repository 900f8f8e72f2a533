//! From the series of parts to that of the whole: instances to their GPU, GPUs to their node.
//!
//! ```text
//!   1g.5gb  id 7   .2 .2 .3 -  -  -        the layout {7, 8} ends where 9 appears: what was before is cut off
//!   1g.5gb  id 8   .4 .4 .4 -  -  -
//!   3g.20gb id 9   -  -  -  -  .8 .9
//!   whole                      └─────►  start here
//! ```
//!
//! Invariant: a value of the whole stands only where every part of its layout has one. All parts away at once is a gap (the
//! exporter rests during a layout change). A part that is away alone is a gap, too, until it has been away for [`PATIENCE`]
//! steps on end: then the layout without it holds from the first of these steps on.

/// Steps after which a part that is away alone is gone. An answer may lack one for a step or two.
pub const PATIENCE: usize = 3;

/// The values of a part, and how much of the whole it is.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// One value a step, NaN for a gap.
    pub values: &'a [f32],
    /// Its weight.
    pub weight: f32,
}

/// What the weighted sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divisor {
    /// This: what is not cut counts as idle.
    Fixed(f32),
    /// The weights of the parts in the layout.
    Layout,
}

/// The whole since its last layout change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    /// The step of the first value.
    pub start: usize,
    /// From there on, NaN for a gap.
    pub values: Vec<f32>,
    /// The parts that make it up now, by their position.
    pub layout: Vec<usize>,
}

/// Combines parts that are all of one length.
pub fn combine(pieces: &[Piece], divisor: Divisor) -> Whole {
    let steps = pieces.iter().map(|piece| piece.values.len()).min().unwrap_or(0);
    let mut whole = Whole::default();
    // How many steps, up to the one before, the same part of the layout has answered alone.
    let (mut alone, mut patience) = (Vec::new(), 0);
    for step in 0..steps {
        let present: Vec<usize> =
            (0..pieces.len()).filter(|&at| pieces[at].values[step].is_finite()).collect();
        let lacks_some = !present.is_empty() && is_part_of(&present, &whole.layout);
        patience = if !lacks_some {
            0
        } else if alone == present {
            patience + 1
        } else {
            1
        };
        let changed = !present.is_empty() && !lacks_some && present != whole.layout;
        if changed || patience == PATIENCE {
            whole = Whole {
                start: step - patience.saturating_sub(1),
                values: Vec::new(),
                layout: present.clone(),
            };
            let missed = whole.start..step;
            whole.values.extend(missed.map(|earlier| weighted(pieces, &present, earlier, divisor)));
            patience = 0;
        }
        let complete = !present.is_empty() && present == whole.layout;
        whole.values.push(if complete { weighted(pieces, &present, step, divisor) } else { f32::NAN });
        alone = present;
    }
    if whole.layout.is_empty() {
        return Whole::default();
    }
    whole
}

/// Whether `some` are in `all` and fewer; both in order.
fn is_part_of(some: &[usize], all: &[usize]) -> bool {
    some.len() < all.len() && some.iter().all(|at| all.binary_search(at).is_ok())
}

fn weighted(pieces: &[Piece], layout: &[usize], step: usize, divisor: Divisor) -> f32 {
    let parts = layout.iter().map(|&at| pieces[at]);
    let sum: f32 = parts.clone().map(|piece| piece.weight * piece.values[step]).sum();
    sum / match divisor {
        Divisor::Fixed(whole) => whole,
        Divisor::Layout => parts.map(|piece| piece.weight).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<f32> {
        text.split_whitespace().map(|word| word.parse().unwrap_or(f32::NAN)).collect()
    }

    /// Parts as `weight: values`; the whole as `start: values`.
    #[track_caller]
    fn check(parts: &[&str], divisor: Divisor, expected: &str) {
        let parts: Vec<(f32, Vec<f32>)> = parts
            .iter()
            .map(|part| part.split_once(':').map(|(w, v)| (w.parse().unwrap(), values(v))).unwrap())
            .collect();
        let pieces: Vec<_> = parts.iter().map(|(weight, values)| Piece { values, weight: *weight }).collect();
        let whole = combine(&pieces, divisor);
        let value = |value: &f32| if value.is_finite() { format!("{value:.2}") } else { "-".to_owned() };
        let shown = whole.values.iter().map(value).collect::<Vec<_>>().join(" ");
        assert_eq!(format!("{}: {shown}", whole.start), expected);
    }

    #[test]
    fn parts_count_by_their_weight() {
        check(&["14: 1 0 .5", "42: 0 1 .5"], Divisor::Fixed(98.0), "0: 0.14 0.43 0.29");
        check(&["98: 1 0", "132: 0 1"], Divisor::Layout, "0: 0.43 0.57");
        check(&["1: 2 3", "1: 4 5"], Divisor::Fixed(1.0), "0: 6.00 8.00");
    }

    #[test]
    fn all_away_is_a_gap_and_no_cut() {
        check(&["1: 1 - - - - 1", "1: 1 - - - - 1"], Divisor::Layout, "0: 1.00 - - - - 1.00");
        check(&["1: - 1", "1: - 1"], Divisor::Layout, "1: 1.00");
        check(&["1: 1 -", "1: 1 -"], Divisor::Layout, "0: 1.00 -");
        check(&["1: - -"], Divisor::Layout, "0: ");
        check(&[], Divisor::Layout, "0: ");
    }

    #[test]
    fn one_away_for_a_moment_is_a_gap() {
        check(&["1: 1 - - 1", "1: 1 1 1 1"], Divisor::Layout, "0: 1.00 - - 1.00");
        check(&["1: 1 - - 1 -", "1: 1 1 1 1 1"], Divisor::Layout, "0: 1.00 - - 1.00 -");
        // Not the same part each time, and an outage in between: nothing is certain.
        check(&["1: 1 - - 1 1", "1: 1 1 - - 1"], Divisor::Layout, "0: 1.00 - - - 1.00");
    }

    #[test]
    fn one_away_for_long_is_gone_since_then() {
        check(&["1: 1 1 - - - -", "1: 1 1 .5 .6 .7 .8"], Divisor::Fixed(2.0), "2: 0.25 0.30 0.35 0.40");
    }

    #[test]
    fn another_layout_cuts() {
        check(&["1: .2 .2 - - -", "1: .4 .4 - - -", "3: - - - .8 .9"], Divisor::Fixed(7.0), "3: 0.34 0.39");
        check(&["1: .2 .2 .2", "1: - .4 .4"], Divisor::Fixed(2.0), "1: 0.30 0.30");
        check(&["1: 1 - 1", "1: - 1 -"], Divisor::Layout, "2: 1.00");
    }
}
