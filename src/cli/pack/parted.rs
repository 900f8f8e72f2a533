//! The plan as a mig-parted configuration, one entry for each layout that a node can have.
//!
//! Invariant: a node is configured as a whole or not at all: a document that leaves one of its GPUs out would never count as
//! applied, and one that guesses would destroy instances. No GPU that holds a pod is cut anew: mig-manager would destroy all of its
//! instances, so that the task keeps such GPUs as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::input::{Purpose, Task};
use crate::config::yaml;
use crate::mig::Counts;
use crate::mig::parted::{NodeConfig, PartedDocument};
use crate::solver::packing::Plan;

/// The document, after comments that say which node gets which name.
pub(super) fn document(task: &Task, plan: &Plan) -> anyhow::Result<String> {
    let excluded: BTreeSet<usize> = plan.excluded.iter().map(|excluded| excluded.gpu).collect();
    let mut nodes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (gpu, name) in task.names.iter().enumerate() {
        nodes.entry(&name.node).or_default().push(gpu);
    }
    let (mut configs, mut by_name, mut refused) =
        (Vec::new(), BTreeMap::<String, Vec<&str>>::new(), Vec::new());
    for (node, mut gpus) in nodes {
        if task.purpose == Purpose::Count && gpus.iter().all(|&gpu| plan.layouts[gpu].placements().is_empty())
        {
            continue;
        }
        gpus.sort_by_key(|&gpu| task.names[gpu].index);
        match node_config(task, plan, &gpus, &excluded) {
            Ok(config) => {
                by_name.entry(config.name()).or_default().push(node);
                configs.push(config);
            }
            Err(reason) => refused.push((node, reason)),
        }
    }
    let mut text =
        String::from("# Starts are the driver's choice: mig-parted is told how many instances, not where.\n");
    for (node, reason) in &refused {
        writeln!(text, "# Not configured: {node}: {reason}.")?;
    }
    for (name, nodes) in by_name {
        writeln!(text, "# kubectl label --overwrite node {} nvidia.com/mig.config={name}", nodes.join(" "))?;
    }
    let document: PartedDocument = configs.into_iter().collect();
    if document.is_empty() {
        let reasons = refused.iter().map(|(node, reason)| format!("{node}: {reason}"));
        anyhow::bail!("no node can be configured: {}", reasons.collect::<Vec<_>>().join("; "));
    }
    Ok(text + &yaml::encode(&document)?)
}

/// The configuration of a node whose GPUs are `gpus`, by index.
fn node_config(
    task: &Task,
    plan: &Plan,
    gpus: &[usize],
    excluded: &BTreeSet<usize>,
) -> Result<NodeConfig, String> {
    for (expected, &gpu) in gpus.iter().enumerate() {
        let index = task.names[gpu].index;
        if usize::from(index) != expected {
            return Err(format!(
                "GPU {expected} is not listed, and a configuration must name every GPU of the node"
            ));
        }
        if excluded.contains(&gpu) {
            return Err(format!(
                "GPU {index} is left out of planning, and a configuration must name every GPU of the node"
            ));
        }
    }
    let counts: Vec<Counts> = gpus.iter().map(|&gpu| plan.layouts[gpu].counts()).collect();
    NodeConfig::new(&counts).ok_or_else(|| "it has no GPU".to_owned())
}
