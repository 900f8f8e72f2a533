//! FGD and best fit on the real openb trace, against the figures that FGD's authors publish.

use mig_scheduler::sim::fractional::{Rule, Typical, read, run};

use crate::shared;

#[test]
fn known_rules_allocate_what_is_published() {
    let Some(folder) = shared::path("traces/openb") else { return };
    let trace = read(&folder, "default").unwrap();
    assert_eq!((trace.nodes.len(), trace.pods.len()), (1_213, 8_152));
    assert_eq!(trace.nodes.iter().map(|node| node.gpus.len()).sum::<usize>(), 6_212);
    let typical = Typical::new(&trace, 0.95, 1);
    // Means of ten seeds; single seeds lie within half a per cent.
    for (rule, published) in [(Rule::BestFit, 93.08), (Rule::Fgd, 95.39)] {
        let outcome = run(&trace, &typical, rule, 1.3, 1);
        let found = 100.0 * outcome.allocation;
        assert!((found - published).abs() < 0.6, "{}: {found} instead of {published}", rule.as_str());
        assert!(outcome.allocation + outcome.fragmentation <= 1.0 + 1e-9);
    }
}

#[test]
fn an_absent_trace_is_named() {
    let error = read(std::path::Path::new("/no/such/folder"), "default").unwrap_err().to_string();
    assert!(error.contains("/no/such/folder/openb_node_list_gpu_node.csv"), "{error}");
}
