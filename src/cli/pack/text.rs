//! The answer as text for people: what was reached, the layouts drawn, and what has to be done.
//!
//! Invariant: no line is wider than the terminal (names and reasons aside, which are never cut), and no list longer than
//! [`LIST`] however many GPUs there are; what is not shown is counted.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::{Answer, Change, Place, Summary};
use super::draw::{LEGEND, draw};

/// Most rows of a drawing and most entries of any other list.
const LIST: usize = 20;

/// The whole text, at most `width` columns wide; `changes` are of interest where the GPUs exist.
pub(super) fn render(answer: &Answer, width: usize, changes: bool) -> String {
    let mut lines = summary(&answer.summary, changes);
    section(&mut lines, "Left out of planning", excluded(answer));
    section(&mut lines, "Not placed", unplaced(answer));
    if !answer.gpus.is_empty() {
        section(&mut lines, "Layouts", draw(&answer.gpus, width, LIST));
        lines.push(String::new());
        lines.extend(wrapped("", LEGEND, width));
    }
    if changes {
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

fn summary(summary: &Summary, changes: bool) -> Vec<String> {
    let proof = |reached: u64, bound: u64, limit: String| match reached == bound {
        true => "proven to be the best".to_owned(),
        false => format!("{limit}; gap {:.2} %", 100.0 * summary.gap),
    };
    let (placed, gpus) = (summary.placed, summary.gpus_used);
    let placed_limit = format!("no plan places more than {}", number(summary.placed_bound));
    let gpus_limit = format!("no plan uses fewer than {}", number(summary.gpus_bound));
    let mut lines = vec![format!(
        "Pods placed    {} of {}, {}",
        number(placed),
        number(summary.pods),
        proof(placed, summary.placed_bound, placed_limit)
    )];
    let used = format!("GPUs in use    {} of {}", number(gpus), number(summary.gpus as u64));
    lines.push(match placed == summary.placed_bound {
        true => format!("{used}, {}", proof(gpus, summary.gpus_bound, gpus_limit)),
        false => used,
    });
    if !changes {
        return lines;
    }
    lines.push(format!(
        "Changes        {}, {} moved, {} slice-seconds lost",
        plural(summary.gpus_changed, "GPU"),
        plural(summary.pods_moved, "running pod"),
        number(summary.disruption)
    ));
    lines
}

fn excluded(answer: &Answer) -> Vec<String> {
    let line = |excluded: &super::answer::Excluded| {
        format!("  {}/{}: {}", excluded.node, excluded.index, excluded.reason)
    };
    limited(answer.excluded.iter().map(line), "GPU")
}

fn unplaced(answer: &Answer) -> Vec<String> {
    let line = |unplaced: &super::answer::Unplaced| {
        let (count, profile) = (number(u64::from(unplaced.count)), &unplaced.profile);
        let priority = match unplaced.priority {
            0 => String::new(),
            priority => format!(" of priority {priority}"),
        };
        format!("  {count} x {profile}{priority} (demand[{}]): {}", unplaced.demand, unplaced.reason)
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
    let with_pods =
        steps.iter().filter(|step| !matches!(step, Change::Create { .. } | Change::Destroy { .. }));
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
    let text = format!(
        "{} on {} lose all their instances before new ones are made, and {}.",
        plural(answer.mig_manager.len(), "GPU"),
        plural(nodes.len(), "node"),
        match pods.len() {
            0 => "no running pod is on them".to_owned(),
            some if some <= LIST => format!("{} with them: {}", plural(some, "running pod"), pods.join(" ")),
            some => format!("{} with them; --json lists them", plural(some, "running pod")),
        }
    );
    wrapped("  ", &text, width)
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

/// Running text, every line after the first indented by two more.
fn wrapped(indent: &str, text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        let margin = indent.len() + if lines.is_empty() { 0 } else { 2 };
        if !line.is_empty() && margin + line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    let hang = |(at, line): (usize, &String)| format!("{indent}{}{line}", if at > 0 { "  " } else { "" });
    lines.iter().enumerate().map(hang).collect()
}

/// `1 GPU`, `3 GPUs`, `2 entries`, `2 kinds of change`.
fn plural(count: usize, noun: &str) -> String {
    let many = match noun.split_once(' ') {
        _ if noun == "entry" => "entries".to_owned(),
        Some(("kind", rest)) => format!("kinds {rest}"),
        _ => format!("{noun}s"),
    };
    format!("{} {}", number(count as u64), if count == 1 { noun } else { &many })
}

/// With commas between thousands.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_nouns_read_well() {
        assert_eq!(
            (number(0), number(999), number(1_234_567)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
        assert_eq!((plural(1, "GPU"), plural(2_000, "GPU")), ("1 GPU".into(), "2,000 GPUs".into()));
        assert_eq!(
            (plural(2, "entry"), plural(2, "kind of change")),
            ("2 entries".into(), "2 kinds of change".into())
        );
    }

    #[test]
    fn running_text_is_wrapped() {
        assert_eq!(wrapped("  ", "aa bb cc dd", 9), ["  aa bb", "    cc dd"]);
        assert_eq!(wrapped("", "a-word-too-long b", 4), ["a-word-too-long", "  b"]);
    }

    #[test]
    fn long_lists_are_counted() {
        let lines = limited((0..23).map(|at| at.to_string()).collect::<Vec<_>>().into_iter(), "GPU");
        assert_eq!((lines.len(), lines[20].as_str()), (21, "  3 more GPUs; --json lists them"));
    }
}
