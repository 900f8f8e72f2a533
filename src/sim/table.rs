//! The report as text: columns are policies, rows are measures, every number with its unit.
//!
//! Invariant: a line is at most [`WIDTH`] characters wide as long as there are at most four policies.

use super::report::{PolicyReport, Report, Waits};

/// Where running text is wrapped.
const WIDTH: usize = 100;

/// Width of the first column.
const LABEL: usize = 38;

/// Width of a policy's column.
const COLUMN: usize = 15;

/// A class whose pods all wait for less than this, in seconds, needs one line.
const AT_ONCE_S: f64 = 1.0;

/// Reasons that are printed for waiting pods; JSON has all of them.
const REASONS: usize = 3;

/// The whole text.
pub fn render(report: &Report) -> String {
    let mut text = Text::default();
    introduce(report, &mut text);
    measures(report, &mut text);
    waits_by_class(report, &mut text);
    waiting_reasons(report, &mut text);
    text.lines.join("\n") + "\n"
}

#[derive(Default)]
struct Text {
    lines: Vec<String>,
}

impl Text {
    fn line(&mut self, line: impl Into<String>) {
        let line: String = line.into();
        self.lines.push(line.trim_end().to_owned());
    }

    /// Running text after `mark`, wrapped and indented.
    fn item(&mut self, mark: &str, text: &str) {
        let indent = mark.chars().count();
        let mut line = mark.to_owned();
        for word in text.split_whitespace() {
            let started = line.chars().count() > indent;
            if started && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.line(std::mem::replace(&mut line, " ".repeat(indent)));
            } else if started {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(line);
    }

    fn row(&mut self, label: &str, cells: impl Iterator<Item = String>) {
        let cells: String = cells.map(|cell| format!("{cell:>COLUMN$}")).collect();
        self.line(format!("{label:<LABEL$}{cells}"));
    }
}

/// `A`, `B`, …: how a policy is called below its description.
fn letter(at: usize) -> char {
    u8::try_from(at).map_or('?', |at| char::from(b'A' + at % 26))
}

fn introduce(report: &Report, text: &mut Text) {
    let scenario = &report.scenario;
    text.item("", &scenario.title);
    for note in &scenario.notes {
        text.item("  ", note);
    }
    let share = percent(scenario.offered_load);
    let peak = percent(scenario.offered_load_peak_hour);
    text.item(
        "  ",
        &format!(
            "Offered load of this run, if every pod started when created: {share} of all memory slices, {peak} in the \
             fullest hour."
        ),
    );
    text.line("");
    text.line("Policies");
    for (at, policy) in report.policies.iter().enumerate() {
        text.item(&format!("  {}  ", letter(at)), policy.about);
    }
    let on_demand = report.policies.iter().any(|policy| policy.policy.starts_with("on_demand"));
    if on_demand {
        text.item(
            "  ",
            "On demand means without any limit on layout changes: what packing alone can give, not yet what a cluster gives \
             in which a change costs time.",
        );
    }
    if !scenario.static_layout.is_empty() {
        text.line("");
        text.line("Static layout (GPUs by their instances)");
        for (layout, gpus) in &scenario.static_layout {
            text.line(format!("  {gpus:>5}  {layout}"));
        }
    }
}

fn heading(report: &Report, title: &str, text: &mut Text) {
    text.line("");
    let letters = (0..report.policies.len()).map(|at| letter(at).to_string());
    text.row(title, letters);
    let names = |part: usize| {
        let runs = report.policies.iter();
        runs.map(move |policy| policy.heading.get(part).copied().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    text.row("", names(0).into_iter());
    text.row("", names(1).into_iter());
    text.line("-".repeat(LABEL + COLUMN * report.policies.len()));
}

fn measures(report: &Report, text: &mut Text) {
    heading(report, "", text);
    let mut row = |label: &str, cell: &dyn Fn(&PolicyReport) -> String| {
        text.row(label, report.policies.iter().map(cell));
    };
    row("pods created in the measured time", &|p| p.pods.created.to_string());
    row("  bound to a node", &|p| p.pods.bound().to_string());
    row("    ran to their end", &|p| p.pods.completed.to_string());
    row("    running at the end", &|p| p.pods.running.to_string());
    row("  waiting at the end", &|p| p.pods.waiting.to_string());
    row("  refused by kubelet", &|p| p.pods.refused.to_string());
    row("queue time, mean (s)", &|p| seconds(p.queue_time.mean_s));
    row("queue time, median (s)", &|p| seconds(p.queue_time.p50_s));
    row("queue time, P95 (s)", &|p| seconds(p.queue_time.p95_s));
    row("queue time, P99 (s)", &|p| seconds(p.queue_time.p99_s));
    row("queue time, longest (s)", &|p| seconds(p.queue_time.max_s));
    row("pods put off and waiting, mean", &|p| format!("{:.2}", p.fragmentation.waiting_pods_mean));
    row("compute slices allocated", &|p| percent(p.allocated.compute));
    row("memory slices allocated", &|p| percent(p.allocated.memory));
    row("compute slices allocated at the end", &|p| percent(p.allocated.compute_at_end));
    row("memory slices allocated at the end", &|p| percent(p.allocated.memory_at_end));
    row("fragmentation (memory slices)", &|_| String::new());
    row("  demand-weighted, of all", &|p| percent(p.fragmentation.demand_weighted));
    row("  demand-weighted, of free", &|p| percent(p.fragmentation.demand_weighted_of_free));
    row("  stranded, of free", &|p| percent(p.fragmentation.stranded_of_free));
    row("pods put off at least once", &|p| p.fragmentation.put_off_pods.to_string());
    row("  although enough slices were free", &|p| p.fragmentation.blocked_pods.to_string());
    row("  share of those put off", &|p| share(p.fragmentation.blocked_pods, p.fragmentation.put_off_pods));
    row("  share of their waiting time", &|p| percent(p.fragmentation.blocked_share_of_waiting));
    row("invariants violated", &|p| p.violations.len().to_string());
    text.line("");
    text.item(
        "",
        "Queue time runs from creation until the bind is in force; a pod that still waits at the end counts with its time so \
         far, which is a lower bound. Allocation and fragmentation are averages over the measured time.",
    );
}

fn waits_by_class(report: &Report, text: &mut Text) {
    heading(report, "queue time by profile (s)", text);
    let Some(first) = report.policies.first() else { return };
    for (at, class) in first.classes.iter().enumerate() {
        let mut row = |label: &str, cell: &dyn Fn(&Waits) -> String| {
            let cells = report.policies.iter().filter_map(|policy| policy.classes.get(at));
            text.row(label, cells.map(|class| cell(&class.queue_time)));
        };
        if class.queue_time.pods == 0 {
            continue;
        }
        let of_all = report.policies.iter().filter_map(|policy| policy.classes.get(at));
        let label = format!("{}: {} pods", class.class, class.queue_time.pods);
        if of_all.map(|class| class.queue_time.max_s).fold(0.0, f64::max) < AT_ONCE_S {
            row(&label, &|_| "at once".to_owned());
            continue;
        }
        row(&label, &|_| String::new());
        row("  waiting at the end", &|w| w.still_waiting.to_string());
        row("  mean", &|w| seconds(w.mean_s));
        row("  P95", &|w| seconds(w.p95_s));
        row("  P99", &|w| seconds(w.p99_s));
    }
}

fn waiting_reasons(report: &Report, text: &mut Text) {
    if report.policies.iter().all(|policy| policy.waiting_reasons.is_empty()) {
        return;
    }
    text.line("");
    text.line("Why pods wait at the end (pods: reason)");
    for (at, policy) in report.policies.iter().enumerate() {
        for reason in policy.waiting_reasons.iter().take(REASONS) {
            text.item(&format!("  {} {:>6}: ", letter(at), reason.pods), &reason.reason);
        }
        let rest = policy.waiting_reasons.iter().skip(REASONS);
        let (reasons, pods) = rest.fold((0, 0), |(reasons, pods), reason| (reasons + 1, pods + reason.pods));
        if reasons > 0 {
            text.item(
                &format!("  {} {pods:>6}: ", letter(at)),
                &format!("{reasons} further reasons, listed by --json"),
            );
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn share(part: usize, whole: usize) -> String {
    if whole == 0 { "-".to_owned() } else { percent(part as f64 / whole as f64) }
}

/// With one decimal and commas between thousands.
fn seconds(value: f64) -> String {
    let text = format!("{value:.1}");
    let (whole, rest) = text.split_at(text.len() - 2);
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (value, expected) in
            [(0.0, "0.0"), (0.01, "0.0"), (999.96, "1,000.0"), (1_234_567.89, "1,234,567.9")]
        {
            assert_eq!(seconds(value), expected);
        }
        assert_eq!((share(1, 4), share(0, 0)), ("25.0 %".to_owned(), "-".to_owned()));
    }

    #[test]
    fn running_text_is_wrapped_and_indented() {
        let mut text = Text::default();
        text.item("  A  ", &"word ".repeat(30));
        assert_eq!(text.lines.len(), 2);
        assert!(text.lines[0].starts_with("  A  word") && text.lines[0].len() <= WIDTH);
        assert!(text.lines[1].starts_with("     word"));
    }
}
