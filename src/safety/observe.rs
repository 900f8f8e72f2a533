//! Whether a change did harm: utilisation after it against utilisation before, with what else happened taken out.
//!
//! ```text
//!   fell = 1 − after / (before · expected)        after, before: means of the changed node
//!
//!   expected = rate after / rate before           where the request rate is known
//!            = Σ after / Σ before                 of unchanged nodes of the same class, otherwise
//!            = 1                                  where there are none
//! ```
//!
//! All activity is weighted by multiprocessors, so that instances of different sizes add up to the GPU. Traffic that falls
//! everywhere, as at night, falls out of the quotient.
//!
//! Invariant: a gap is not a zero. Fewer than [`Rule::least`] samples on either side decide nothing, and neither does a node
//! that was idle before: a fraction of nothing is noise.

/// Activity below which a node, or a rate below which a service, counts as idle.
const IDLE: f64 = 0.01;

/// When a change counts as harmful.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The fall, as a share of the expected mean, beyond which it is harm.
    pub fall: f64,
    /// Samples that are looked at, after and before.
    pub samples: usize,
    /// Samples of these that must be there.
    pub least: usize,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { fall: 0.10, samples: 10, least: 8 }
    }
}

/// Samples before and after a change, one a step; not a number where there was none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// The last ones before the change began, newest last.
    pub before: Vec<f64>,
    /// The first ones after the new instances were advertised and warm, oldest first.
    pub after: Vec<f64>,
}

/// What is known of a change's effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// SM-weighted activity of the changed node, 0 to 1.
    pub node: Course,
    /// Requests a second that its services get; `None` where unknown.
    pub rate: Option<Course>,
    /// SM-weighted activity of nodes of the same class that did not change at the time.
    pub others: Vec<Course>,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judgement {
    /// Nothing yet.
    Undecided,
    /// The change did no harm.
    Held,
    /// It did.
    Harmful {
        /// By how much utilisation fell, as a share of what was to be expected.
        fell: f64,
    },
}

/// Judges a change. All samples that will be looked at must have had their time: whoever asks earlier gets `Undecided`.
pub fn judge(rule: &Rule, trial: &Trial) -> Judgement {
    if trial.node.after.len() < rule.samples {
        return Judgement::Undecided;
    }
    let Some((before, after)) = means(rule, &trial.node) else { return Judgement::Undecided };
    if before < IDLE {
        return Judgement::Held;
    }
    let fell = 1.0 - after / (before * expected(rule, trial));
    if fell > rule.fall { Judgement::Harmful { fell } } else { Judgement::Held }
}

/// The factor by which activity would have changed anyway.
fn expected(rule: &Rule, trial: &Trial) -> f64 {
    let known = |course: &Course| means(rule, course).filter(|(before, _)| *before >= IDLE);
    if let Some((before, after)) = trial.rate.as_ref().and_then(known) {
        return (after / before).max(IDLE);
    }
    let sums = trial.others.iter().filter_map(known);
    let (before, after) = sums.fold((0.0, 0.0), |(b, a), (before, after)| (b + before, a + after));
    if before > 0.0 { (after / before).max(IDLE) } else { 1.0 }
}

/// Means before and after; `None` with too few samples on a side.
fn means(rule: &Rule, course: &Course) -> Option<(f64, f64)> {
    let before = course.before.iter().rev().take(rule.samples);
    let after = course.after.iter().take(rule.samples);
    Some((mean(rule, before)?, mean(rule, after)?))
}

fn mean<'a>(rule: &Rule, samples: impl Iterator<Item = &'a f64>) -> Option<f64> {
    let known: Vec<f64> = samples.copied().filter(|sample| sample.is_finite()).collect();
    (known.len() >= rule.least.max(1)).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `0.5*10 0.4*10`: before and after, `-*2` for gaps.
    fn course(before: &str, after: &str) -> Course {
        let samples = |text: &str| {
            let run = |word: &str| {
                let (value, count) = word.split_once('*').unwrap();
                vec![value.parse().unwrap_or(f64::NAN); count.parse().unwrap()]
            };
            text.split_whitespace().flat_map(run).collect()
        };
        Course { before: samples(before), after: samples(after) }
    }

    #[track_caller]
    fn check(trial: Trial, expected: &str) {
        let found = match judge(&Rule::default(), &trial) {
            Judgement::Undecided => "undecided".to_owned(),
            Judgement::Held => "held".to_owned(),
            Judgement::Harmful { fell } => format!("{:.0}%", fell * 100.0),
        };
        assert_eq!(found, expected, "{trial:?}");
    }

    fn alone(before: &str, after: &str) -> Trial {
        Trial { node: course(before, after), ..Trial::default() }
    }

    #[test]
    fn a_fall_beyond_a_tenth_is_harm() {
        check(alone("0.5*10", "0.40*10"), "20%");
        check(alone("0.5*10", "0.46*10"), "held");
        check(alone("0.5*10", "0.9*10"), "held");
        // Only the last ten before and the first ten after are looked at.
        check(alone("0.1*20 0.5*10", "0.4*10 0.9*9"), "20%");
    }

    #[test]
    fn too_few_samples_decide_nothing() {
        check(alone("0.5*10", "0.1*9"), "undecided");
        check(alone("0.5*10", "0.1*7 -*3"), "undecided");
        check(alone("0.5*10", "0.1*8 -*2"), "80%");
        check(alone("0.5*7", "0.1*10"), "undecided");
        check(alone("", "0.1*10"), "undecided");
    }

    #[test]
    fn an_idle_node_cannot_fall() {
        check(alone("0.001*10", "0*10"), "held");
    }

    #[test]
    fn what_falls_everywhere_is_no_harm() {
        let night = [course("0.6*10", "0.3*10"), course("0.2*10", "0.1*10")];
        let node = course("0.5*10", "0.24*10");
        check(Trial { node: node.clone(), others: night.to_vec(), rate: None }, "held");
        let harmed = Trial { node: course("0.5*10", "0.2*10"), others: night.to_vec(), rate: None };
        check(harmed, "20%");
        // The request rate knows better than the neighbours.
        let rate = Some(course("100*10", "100*10"));
        check(Trial { node: node.clone(), others: night.to_vec(), rate }, "52%");
        // Neighbours that say too little, or were idle, are no measure.
        let silent = [course("0.6*10", "-*10"), course("0*10", "0.9*10")];
        check(Trial { node, others: silent.to_vec(), rate: None }, "52%");
    }
}
