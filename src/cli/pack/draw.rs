//! GPUs as text: one box for each instance on the axis of memory slices, GPUs that look alike in one row.
//!
//! ```text
//!   A100-40GB    0       1       2       3       4       5       6       7
//!           x2   |3g.20gb *                     |2g.10gb        |1g.5gb+|       |
//!                n0/0 n0/1
//! ```
//!
//! Invariant: no line is wider than asked for as long as [`NARROWEST`] is; rows are ordered by model and number of GPUs, and
//! GPUs within a row as they were given.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::answer::{Gpu, Use};
use super::words::{number, plural};

/// A drawing needs at least this many columns: a margin, and four for each of twelve slices.
pub(super) const NARROWEST: usize = MARGIN + 4 * 12 + 1;

/// Columns before the first slice.
const MARGIN: usize = 15;

/// Widest box of one slice; wider ones are harder to read.
const WIDEST_SLICE: usize = 10;

/// What the marks mean.
pub(super) const LEGEND: &str =
    "* running pod stays   > pod moves here   + new pod   no mark: free instance   empty: no instance";

/// One row: what is drawn, and whose it is.
struct Row<'a> {
    picture: String,
    gpus: Vec<&'a Gpu>,
}

/// Draws `gpus` in at most `rows` rows of `width` columns. What does not fit is counted in a last line.
pub(super) fn draw(gpus: &[Gpu], width: usize, rows: usize) -> Vec<String> {
    let mut by_model: BTreeMap<&str, BTreeMap<String, Vec<&Gpu>>> = BTreeMap::new();
    for gpu in gpus {
        let pictures = by_model.entry(gpu.model).or_default();
        pictures.entry(picture(gpu, slice_width(gpu, width))).or_default().push(gpu);
    }
    let (mut lines, mut left) = (Vec::new(), rows);
    for (model, pictures) in by_model {
        let mut all: Vec<Row> = pictures.into_iter().map(|(picture, gpus)| Row { picture, gpus }).collect();
        // Full GPUs before idle ones of the same number.
        all.sort_by_key(|row| (Reverse(row.gpus.len()), Reverse(row.gpus[0].instances.len())));
        let shown = all.len().min(left);
        left -= shown;
        if let Some(first) = all.first().and_then(|row| row.gpus.first()) {
            lines.push(axis(model, first.slices, slice_width(first, width)));
        }
        for row in &all[..shown] {
            let times = format!("x{}", row.gpus.len());
            lines.push(format!("{times:>margin$} {}", row.picture, margin = MARGIN - 1));
            lines.push(format!("{:MARGIN$} {}", "", named(&row.gpus, width.saturating_sub(MARGIN + 1))));
        }
        let hidden: usize = all[shown..].iter().map(|row| row.gpus.len()).sum();
        if hidden > 0 {
            let rest = if all.len() - shown == 1 { "layout" } else { "layouts" };
            let (more, gpus) = (number((all.len() - shown) as u64), plural(hidden, "GPU"));
            lines.push(format!("{:MARGIN$} {more} more {rest} on {gpus}; --json lists them", ""));
        }
    }
    lines
}

/// Columns of one slice, its left border included.
fn slice_width(gpu: &Gpu, width: usize) -> usize {
    let room = width.max(NARROWEST) - MARGIN - 1;
    (room / usize::from(gpu.slices).max(1)).min(WIDEST_SLICE)
}

/// `A100-40GB      0    1    2`.
fn axis(model: &str, slices: u8, slice: usize) -> String {
    let numbers: String = (0..slices).map(|at| format!("{at:<slice$}")).collect();
    // A long name pushes nothing to the right: it gets a line of its own.
    let head = match model.chars().count() < MARGIN {
        true => format!("{model:MARGIN$}"),
        false => format!("{model}\n{:MARGIN$}", ""),
    };
    format!("{head} {}", numbers.trim_end())
}

/// The boxes of one GPU.
fn picture(gpu: &Gpu, slice: usize) -> String {
    let columns = |slices: u8| usize::from(slices) * slice;
    let (mut text, mut at) = (String::new(), 0);
    let gap = |text: &mut String, from: u8, to: u8| {
        for _ in from..to {
            text.push_str(&format!("|{:width$}", "", width = slice - 1));
        }
    };
    for instance in &gpu.instances {
        gap(&mut text, at, instance.start);
        let room = columns(instance.size) - 1;
        text.push_str(&format!("|{:room$}", label(&instance.profile, mark(instance.usage), room)));
        at = instance.start + instance.size;
    }
    gap(&mut text, at, gpu.slices);
    text.push('|');
    text
}

fn mark(usage: Use) -> &'static str {
    match usage {
        Use::Kept => "*",
        Use::Moved => ">",
        Use::Placed => "+",
        Use::Free => "",
    }
}

/// `3g.20gb *`, shortened to `3g.20gb*`, `3g*` or `3*` where there is no room.
fn label(profile: &str, mark: &str, room: usize) -> String {
    let compute = profile.split('.').next().unwrap_or(profile);
    let suffix = profile.find(['+', '-']).map_or("", |at| &profile[at..]);
    let spaced = if mark.is_empty() { profile.to_owned() } else { format!("{profile} {mark}") };
    let forms =
        [spaced, format!("{profile}{mark}"), format!("{compute}{suffix}{mark}"), format!("{compute}{mark}")];
    let fitting = forms.iter().find(|form| form.chars().count() <= room);
    fitting.cloned().unwrap_or_else(|| mark.chars().take(room).collect())
}

/// `n0/0 n0/1 n1/0 and 34 more`, as many as there is room for, one at least.
fn named(gpus: &[&Gpu], room: usize) -> String {
    let mut text = String::new();
    for (at, gpu) in gpus.iter().enumerate() {
        let name = format!("{}/{}", gpu.node, gpu.index);
        let rest = gpus.len() - at - 1;
        let tail = if rest > 0 { format!(" and {rest} more").len() } else { 0 };
        if at > 0 && text.chars().count() + 1 + name.chars().count() + tail > room {
            return format!("{text} and {} more", rest + 1);
        }
        if at > 0 {
            text.push(' ');
        }
        text.push_str(&name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::pack::answer::Instance;

    /// Reads `n0/0 A100-40GB 8 3g.20gb@0:4* 1g.5gb@6:1`.
    fn gpu(text: &str) -> Gpu {
        let mut words = text.split_whitespace();
        let (node, index) = words.next().unwrap().split_once('/').unwrap();
        let (model, slices) = (words.next().unwrap(), words.next().unwrap());
        let instance = |word: &str| {
            let usage = match word.chars().last() {
                Some('*') => Use::Kept,
                Some('>') => Use::Moved,
                Some('!') => Use::Placed,
                _ => Use::Free,
            };
            let (profile, place) = word.trim_end_matches(['*', '>', '!']).split_once('@').unwrap();
            let (start, size) = place.split_once(':').unwrap();
            let (start, size) = (start.parse().unwrap(), size.parse().unwrap());
            Instance { profile: profile.into(), start, size, usage, created: false, pod: None, demand: None }
        };
        Gpu {
            node: node.into(),
            index: index.parse().unwrap(),
            model: crate::mig::GpuModel::by_name(model).unwrap().name,
            slices: slices.parse().unwrap(),
            instances: words.map(instance).collect(),
        }
    }

    #[track_caller]
    fn check(gpus: &[&str], width: usize, rows: usize, expected: &str) {
        let gpus: Vec<_> = gpus.iter().map(|text| gpu(text)).collect();
        let lines: Vec<_> = draw(&gpus, width, rows).iter().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(lines.join("\n"), expected.trim_matches('\n'));
    }

    #[test]
    fn instances_are_boxes_on_the_axis() {
        check(
            &["n0/0 A100-40GB 8 3g.20gb@0:4* 2g.10gb@4:2 1g.5gb@6:1!"],
            88,
            9,
            "
A100-40GB       0        1        2        3        4        5        6        7
            x1 |3g.20gb *                          |2g.10gb          |1g.5gb +|        |
                n0/0",
        );
        // Free slices are empty boxes; names are shortened where there is no room.
        check(
            &["n0/3 A100-40GB 8 1g.5gb+me@1:1> 1g.5gb@2:1* 3g.20gb@4:4"],
            64,
            9,
            "
A100-40GB       0     1     2     3     4     5     6     7
            x1 |     |1g>  |1g*  |     |3g.20gb                |
                n0/3",
        );
    }

    #[test]
    fn equal_gpus_share_a_row() {
        let gpus: Vec<String> =
            (0..12).map(|at| format!("gpu-node-{at}/0 A30-24GB 4 4g.24gb@0:4*")).collect();
        let mut gpus: Vec<&str> = gpus.iter().map(String::as_str).collect();
        gpus.extend(["b/0 A30-24GB 4", "b/1 A30-24GB 4 1g.6gb@0:1", "c/0 A100-40GB 8"]);
        check(
            &gpus,
            70,
            3,
            "
A100-40GB       0     1     2     3     4     5     6     7
            x1 |     |     |     |     |     |     |     |     |
                c/0
A30-24GB        0         1         2         3
           x12 |4g.24gb *                              |
                gpu-node-0/0 gpu-node-1/0 gpu-node-2/0 and 9 more
            x1 |1g.6gb   |         |         |         |
                b/1
                1 more layout on 1 GPU; --json lists them",
        );
        check(
            &gpus,
            70,
            2,
            "
A100-40GB       0     1     2     3     4     5     6     7
            x1 |     |     |     |     |     |     |     |     |
                c/0
A30-24GB        0         1         2         3
           x12 |4g.24gb *                              |
                gpu-node-0/0 gpu-node-1/0 gpu-node-2/0 and 9 more
                2 more layouts on 2 GPUs; --json lists them",
        );
    }

    #[test]
    fn no_line_is_wider_than_asked_for() {
        let all = ["1g.24gb@0:3*", "1g.24gb+me@3:3>", "2g.48gb+me.all@6:6!"];
        let gpus = [
            gpu(&format!("a-node-with-a-name/7 RTX-PRO-6000-96GB 12 {}", all.join(" "))),
            gpu("n/0 A100-40GB 8 1g.5gb+me@0:1* 1g.10gb@2:2> 1g.5gb@4:1!"),
        ];
        for width in NARROWEST..140 {
            for line in draw(&gpus, width, 9).iter().flat_map(|line| line.lines()) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}
