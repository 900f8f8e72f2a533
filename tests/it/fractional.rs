//! FGD and best fit on the real openb trace, against the figures that FGD's authors publish.

use mig_scheduler::sim::fractional::{Rule, Typical, read, run};

use crate::shared;

/// As many as the published means are of.
const SEEDS: u64 = 10;

#[test]
fn known_rules_allocate_what_is_published() {
    let Some(folder) = shared::path("traces/openb") else { return };
    let trace = read(&folder, "default").unwrap();
    assert_eq!((trace.nodes.len(), trace.pods.len()), (1_213, 8_152));
    assert_eq!(trace.nodes.iter().map(|node| node.gpus.len()).sum::<usize>(), 6_212);
    let typical = Typical::new(&trace, 0.95, 1);
    for (rule, published) in [(Rule::BestFit, 93.08), (Rule::Fgd, 95.39)] {
        let outcomes: Vec<_> = (0..SEEDS).map(|seed| run(&trace, &typical, rule, 1.3, seed)).collect();
        let found = 100.0 * outcomes.iter().map(|outcome| outcome.allocation).sum::<f64>() / SEEDS as f64;
        assert!((found - published).abs() < 0.3, "{}: {found} instead of {published}", rule.as_str());
        assert!(outcomes.iter().all(|outcome| outcome.allocation + outcome.fragmentation <= 1.0 + 1e-9));
    }
}

#[test]
fn an_absent_trace_is_named() {
    let error = read(std::path::Path::new("/no/such/folder"), "default").unwrap_err().to_string();
    assert!(error.contains("/no/such/folder/openb_node_list_gpu_node.csv"), "{error}");
}
