//! The answer as text for people: what was reached, the layouts drawn, and what has to be done.
//!
//! Invariant: no line is wider than the terminal (names and reasons aside, which are never cut), and no list longer than
//! [`LIST`] however many GPUs there are; what is not shown is counted.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::{Answer, Change, Place, Summary};
use super::draw::{LEGEND, draw};
use super::input::Purpose;
use super::measured::Fragmentation;
use super::words::{hanging, number, plural, wrapped};

/// Most rows of a drawing and most entries of any other list.
const LIST: usize = 20;

/// Columns before what a line of the summary says.
const LABEL: usize = 15;

/// The whole text, at most `width` columns wide.
pub(super) fn render(answer: &Answer, width: usize, purpose: Purpose) -> String {
    if answer.summary.pods == 0 && purpose != Purpose::Change {
        return "No GPU is needed: the demand names no pod.\n".to_owned();
    }
    let mut lines = summary(&answer.summary, purpose, width);
    lines.extend(scattered(answer, purpose, width));
    section(&mut lines, "Left out of planning", excluded(answer, width));
    section(&mut lines, "Not placed", unplaced(answer, width));
    if !answer.gpus.is_empty() {
        section(&mut lines, "Layouts", draw(&answer.gpus, width, LIST));
        lines.push(String::new());
        lines.extend(wrapped("", LEGEND, width));
    }
    if purpose == Purpose::Change {
        section(&mut lines, "Steps", steps(answer, width));
        section(&mut lines, "With mig-manager", mig_manager(answer, width));
    }
    let lines =
        lines.iter().flat_map(|line| line.lines().map(str::trim_end).chain(line.is_empty().then_some("")));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn section(lines: &mut Vec<String>, title: &str, body: Vec<String>) {
    if !body.is_empty() {
        lines.extend([String::new(), title.to_owned()]);
        lines.extend(body);
    }
}

fn summary(summary: &Summary, purpose: Purpose, width: usize) -> Vec<String> {
    let line = |label: &str, text: String| {
        hanging(&format!("{label:LABEL$}"), &" ".repeat(LABEL), &text, width).join("\n")
    };
    let placed = format!("{} of {}", number(summary.placed), number(summary.pods));
    let mut lines = vec![line("Pods placed", format!("{placed}, {}", placed_proof(summary)))];
    let all_placed = summary.priorities.iter().all(|priority| priority.placed == priority.bound);
    let used = number(summary.gpus_used);
    let (label, used) = match purpose {
        Purpose::Count => ("GPUs needed", used),
        Purpose::Change | Purpose::Fit => {
            ("GPUs in use", format!("{used} of {}", number(summary.gpus as u64)))
        }
    };
    let few = summary.gpus_used == summary.gpus_bound;
    let limit = format!(", no plan uses fewer than {}; {}", number(summary.gpus_bound), gap(summary));
    lines.push(line(label, used + &proof(all_placed, few, limit)));
    if purpose == Purpose::Change {
        let lost = format!(
            "{}, {} moved, {} slice-seconds lost",
            plural(summary.gpus_changed, "GPU"),
            plural(summary.pods_moved, "running pod"),
            number(summary.disruption)
        );
        let least = summary.disruption == summary.disruption_bound;
        let limit = format!(
            ", no plan as good as this one so far loses fewer than {}",
            number(summary.disruption_bound)
        );
        lines.push(line("Changes", lost + &proof(all_placed && few, least, limit)));
    }
    lines
}

/// What is known about pods placed. A priority's limit means something where those above it are at theirs.
fn placed_proof(summary: &Summary) -> String {
    let Some(at) = summary.priorities.iter().position(|priority| priority.placed != priority.bound) else {
        return "proven to be the best".to_owned();
    };
    let limited = &summary.priorities[at];
    let plan = if at == 0 { "no plan" } else { "no plan that serves the higher priorities as well" };
    let which = match summary.priorities.len() {
        1 => String::new(),
        _ => format!(" of priority {}", limited.priority),
    };
    format!("{plan} places more than {}{which}; {}", number(limited.bound), gap(summary))
}

/// What is known about a part: `limit` where it is not proven, and nothing where a part before it is not.
fn proof(before: bool, proven: bool, limit: String) -> String {
    match (before, proven) {
        (false, _) => String::new(),
        (true, true) => ", proven to be the best".to_owned(),
        (true, false) => limit,
    }
}

fn gap(summary: &Summary) -> String {
    format!("gap {:.2} %", 100.0 * summary.gap)
}

/// What the free slices are still good for.
fn scattered(answer: &Answer, purpose: Purpose, width: usize) -> Vec<String> {
    let (indent, summary) = (" ".repeat(LABEL), &answer.summary);
    let free: u64 = answer.fragmentation.iter().map(|model| model.free).sum();
    if purpose == Purpose::Count || free == 0 {
        return Vec::new();
    }
    let stranded: u64 = answer.fragmentation.iter().map(|model| model.stranded).sum();
    let text = format!(
        "{:.1} of {} free slices are of no use to the recent demand{}; {} stay empty whatever comes",
        summary.fragmentation,
        number(free),
        if summary.optimal { ", proven to be the least" } else { "" },
        number(stranded)
    );
    let mut lines = hanging(&format!("{:LABEL$}", "Fragmentation"), &indent, &text, width);
    let blocked = |model: &Fragmentation| format!("{} ({})", model.blocked.join(" "), model.model);
    let blocked: Vec<_> =
        answer.fragmentation.iter().filter(|model| !model.blocked.is_empty()).map(blocked).collect();
    if !blocked.is_empty() {
        let text =
            format!("enough slices are free for one more, and no GPU has room: {}", blocked.join(", "));
        lines.extend(hanging(&format!("{:LABEL$}", "Blocked"), &indent, &text, width));
    }
    lines
}

fn excluded(answer: &Answer, width: usize) -> Vec<String> {
    let line = |excluded: &super::answer::Excluded| {
        let text = format!("{}/{}: {}", excluded.node, excluded.index, excluded.reason);
        wrapped("  ", &text, width).join("\n")
    };
    limited(answer.excluded.iter().map(line), "GPU")
}

fn unplaced(answer: &Answer, width: usize) -> Vec<String> {
    let line = |unplaced: &super::answer::Unplaced| {
        let (count, profile) = (number(u64::from(unplaced.count)), &unplaced.profile);
        let priority = match unplaced.priority {
            0 => String::new(),
            priority => format!(" of priority {priority}"),
        };
        let text =
            format!("{count} x {profile}{priority} (demand[{}]): {}", unplaced.demand, unplaced.reason);
        wrapped("  ", &text, width).join("\n")
    };
    limited(answer.unplaced.iter().map(line), "entry")
}

/// GPUs with the same steps and no pod that moves together; the others in the order in which things have to happen.
fn steps(answer: &Answer, width: usize) -> Vec<String> {
    let tied = tied(&answer.steps);
    let mut alone: BTreeMap<(&str, u16), Vec<String>> = BTreeMap::new();
    let mut order: Vec<&Change> = Vec::new();
    for step in &answer.steps {
        match gpus_of(step)[..] {
            [gpu] if !tied.contains(&gpu) => alone.entry(gpu).or_default().push(in_words(step)),
            _ => order.push(step),
        }
    }
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((node, index), steps) in alone {
        groups.entry(steps.join(", ")).or_default().push(format!("{node}/{index}"));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, gpus)| std::cmp::Reverse(gpus.len()));
    let group = |(steps, gpus): (String, Vec<String>)| {
        let names = match &gpus[..] {
            [first, second, third, _, ..] => {
                format!("{first} {second} {third} and {} more", gpus.len() - 3)
            }
            few => few.join(" "),
        };
        wrapped("    ", &format!("{names}: {steps}"), width).join("\n")
    };
    let mut lines = limited(groups.into_iter().map(group), "kind of change");
    if !order.is_empty() {
        lines.push("  in this order:".to_owned());
        let step = |(at, step): (usize, &&Change)| {
            let text = format!("{}. {}", at + 1, with_gpu(step));
            wrapped("    ", &text, width).join("\n")
        };
        lines.extend(limited(order.iter().enumerate().map(step), "step"));
    }
    lines
}

/// GPUs between or on which a pod moves.
fn tied(steps: &[Change]) -> BTreeSet<(&str, u16)> {
    let with_pods = steps.iter().filter(|step| !step.is_of_layout());
    with_pods.flat_map(gpus_of).collect()
}

fn gpus_of(step: &Change) -> Vec<(&str, u16)> {
    fn gpu(place: &Place) -> (&str, u16) {
        (place.node.as_str(), place.index)
    }
    match step {
        Change::Destroy { at } | Change::Create { at } => vec![gpu(at)],
        Change::Move { from, to, .. } if gpu(from) == gpu(to) => vec![gpu(from)],
        Change::Move { from, to, .. } => vec![gpu(from), gpu(to)],
        Change::Evict { from: at, .. } | Change::Bind { to: at, .. } => vec![gpu(at)],
    }
}

fn in_words(step: &Change) -> String {
    match step {
        Change::Destroy { at } => format!("destroy {}@{}", at.profile, at.start),
        Change::Create { at } => format!("create {}@{}", at.profile, at.start),
        other => with_gpu(other),
    }
}

fn with_gpu(step: &Change) -> String {
    let name = |place: &Place| format!("{}/{} {}@{}", place.node, place.index, place.profile, place.start);
    match step {
        Change::Destroy { at } => format!("destroy {}", name(at)),
        Change::Create { at } => format!("create {}", name(at)),
        Change::Move { pod, from, to } => format!("move {pod} from {} to {}", name(from), name(to)),
        Change::Evict { pod, from } => format!("stop {pod} in {}", name(from)),
        Change::Bind { pod, to } => format!("start {pod} in {}", name(to)),
    }
}

fn mig_manager(answer: &Answer, width: usize) -> Vec<String> {
    if answer.mig_manager.is_empty() {
        return Vec::new();
    }
    let nodes: BTreeSet<&str> = answer.mig_manager.iter().map(|down| down.node.as_str()).collect();
    let pods: Vec<&str> =
        answer.mig_manager.iter().flat_map(|down| down.pods.iter().map(String::as_str)).collect();
    let gpus = answer.mig_manager.len();
    let lose = if gpus == 1 { "loses all its" } else { "lose all their" };
    let stops = if pods.len() == 1 { "stops" } else { "stop" };
    let stopped = |which: String| format!("{} {stops}{which}", plural(pods.len(), "running pod"));
    let text = format!(
        "{} on {} {lose} instances before new ones are made, and {}.",
        plural(gpus, "GPU"),
        plural(nodes.len(), "node"),
        match pods.len() {
            0 => "no running pod stops".to_owned(),
            some if some <= LIST => stopped(format!(": {}", pods.join(" "))),
            _ => stopped("; --json lists them".to_owned()),
        }
    );
    let mut lines = wrapped("  ", &text, width);
    if !pods.is_empty() {
        lines.extend(wrapped(
            "  ",
            "A plan that stops none: `actuator: mig-manager` in the document.",
            width,
        ));
    }
    lines
}

/// At most [`LIST`] lines, and one that counts the rest.
fn limited(lines: impl ExactSizeIterator<Item = String>, what: &str) -> Vec<String> {
    let rest = lines.len().saturating_sub(LIST);
    let mut shown: Vec<String> = lines.take(LIST).collect();
    if rest > 0 {
        let more = plural(rest, what);
        let (count, noun) = more.split_once(' ').unwrap_or((&more, ""));
        shown.push(format!("  {count} more {noun}; --json lists them"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::pack::answer::Priority;

    /// Priorities as (priority, pods, placed, bound).
    fn reached(priorities: &[(i32, u64, u64, u64)], gpus: (u64, u64), gap: f64) -> Summary {
        let priority = |&(priority, pods, placed, bound): &_| Priority { priority, pods, placed, bound };
        Summary {
            pods: priorities.iter().map(|priority| priority.1).sum(),
            placed: priorities.iter().map(|priority| priority.2).sum(),
            priorities: priorities.iter().map(priority).collect(),
            gpus: 4,
            gpus_used: gpus.0,
            gpus_bound: gpus.1,
            gap,
            optimal: false,
            pods_moved: 0,
            gpus_changed: 1,
            disruption: 8,
            disruption_bound: 0,
            fragmentation: 0.0,
            fragmentation_bound: 0.0,
        }
    }

    #[track_caller]
    fn check(reached: &Summary, purpose: Purpose, expected: &[&str]) {
        assert_eq!(summary(reached, purpose, 200), expected);
    }

    /// One priority below its limit and another above its own make no proof of each other.
    #[test]
    fn what_is_proven_is_proven_priority_by_priority() {
        let lost = reached(&[(2, 4, 3, 4), (1, 5, 2, 1)], (1, 1), 0.25);
        check(
            &lost,
            Purpose::Change,
            &[
                "Pods placed    5 of 9, no plan places more than 4 of priority 2; gap 25.00 %",
                "GPUs in use    1 of 4",
                "Changes        1 GPU, 0 running pods moved, 8 slice-seconds lost",
            ],
        );
        check(
            &reached(&[(2, 4, 4, 4), (1, 5, 1, 2)], (1, 1), 0.5),
            Purpose::Fit,
            &[
                "Pods placed    5 of 9, no plan that serves the higher priorities as well places more than 2 of priority 1; \
                 gap 50.00 %",
                "GPUs in use    1 of 4",
            ],
        );
        check(
            &reached(&[(0, 9, 4, 5)], (1, 1), 0.2),
            Purpose::Count,
            &["Pods placed    4 of 9, no plan places more than 5; gap 20.00 %", "GPUs needed    1"],
        );
    }

    #[test]
    fn a_part_is_proven_only_after_those_before_it() {
        check(
            &reached(&[(0, 9, 9, 9)], (2, 2), 0.0),
            Purpose::Change,
            &[
                "Pods placed    9 of 9, proven to be the best",
                "GPUs in use    2 of 4, proven to be the best",
                "Changes        1 GPU, 0 running pods moved, 8 slice-seconds lost, no plan as good as this one so far loses \
                 fewer than 0",
            ],
        );
        check(
            &reached(&[(0, 9, 9, 9)], (3, 2), 0.5),
            Purpose::Change,
            &[
                "Pods placed    9 of 9, proven to be the best",
                "GPUs in use    3 of 4, no plan uses fewer than 2; gap 50.00 %",
                "Changes        1 GPU, 0 running pods moved, 8 slice-seconds lost",
            ],
        );
    }

    #[test]
    fn long_lists_are_counted() {
        let lines = limited((0..23).map(|at| at.to_string()).collect::<Vec<_>>().into_iter(), "GPU");
        assert_eq!((lines.len(), lines[20].as_str()), (21, "  3 more GPUs; --json lists them"));
    }
}
