//! What a node object shows of its MIG layout and of a change under way.
//!
//! Invariant: a node is looked at as one whose layout can be changed only if everything that a change depends on is known:
//! model, number of GPUs, mixed strategy, and who acts. A count that cannot be read is none, which no layout matches.

use std::collections::BTreeMap;

use super::quantity;
use super::wire::NodeView;
use crate::mig::{Counts, GpuModel, ProfileName};
use crate::model::Admission;
use crate::planner::Actuator;
use crate::safety::{Answer, CORDON, JOURNAL, Journal, NodeSight, PAUSE, Reading, open};

/// The label that mig-manager obeys.
pub const MIG_CONFIG: &str = "nvidia.com/mig.config";
/// What it answers with.
pub(super) const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
/// Whether the GPU Operator runs mig-manager on the node. The node agent acts where it is `false`.
const DEPLOY_MIG_MANAGER: &str = "nvidia.com/gpu.deploy.mig-manager";
const MIG_CAPABLE: &str = "nvidia.com/mig.capable";
const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
const GPU_COUNT: &str = "nvidia.com/gpu.count";
/// The GPU model, as feature discovery names it.
pub(super) const GPU_PRODUCT: &str = "nvidia.com/gpu.product";

type Text = BTreeMap<String, String>;

/// The node as far as its layout is concerned; `None` where that cannot be changed.
pub fn sight(view: &NodeView, selector: &Text) -> Option<NodeSight> {
    let labels = view.metadata.labels.as_ref()?;
    let label = |name: &str| labels.get(name).map(String::as_str);
    let (Some("true"), Some("mixed")) = (label(MIG_CAPABLE), label(MIG_STRATEGY)) else { return None };
    let model = GpuModel::by_product_label(label(GPU_PRODUCT)?).ok()?;
    let gpus = label(GPU_COUNT)?.parse().ok().filter(|count| *count > 0)?;
    let actuator = match (label(DEPLOY_MIG_MANAGER), label(MIG_CONFIG)) {
        (Some("false"), _) => Actuator::Agent,
        (_, Some(_)) => Actuator::MigManager,
        (_, None) => return None,
    };
    Some(NodeSight {
        name: view.metadata.name.as_deref()?.into(),
        version: view.metadata.resource_version.as_deref()?.into(),
        model,
        gpus,
        actuator,
        selected: selector.iter().all(|(name, value)| labels.get(name) == Some(value)),
        journal: journal(view),
        ready: is_ready(view),
        unschedulable: view.spec.unschedulable.unwrap_or_default(),
        our_cordon: has_our_cordon(view),
        paused: annotation(view, PAUSE).is_some_and(|value| value != "false"),
        told: label(MIG_CONFIG).map(str::to_owned),
        answer: answer(label(MIG_CONFIG_STATE)),
        allocatable: allocatable(view),
        discovered: discovered(labels),
    })
}

/// Which pods with MIG instances the node takes. Under a journal that cannot be read, while our cordon stands, none.
pub(super) fn admission(view: &NodeView) -> Admission {
    match journal(view) {
        Reading::Valid(journal) => journal.admission(),
        Reading::Absent | Reading::Damaged(_) if has_our_cordon(view) => Admission::None,
        Reading::Absent | Reading::Damaged(_) => Admission::All,
    }
}

/// Whether the annotation stands that says the cordon is ours.
pub(super) fn has_our_cordon(view: &NodeView) -> bool {
    annotation(view, CORDON).is_some()
}

fn annotation<'a>(view: &'a NodeView, name: &str) -> Option<&'a str> {
    view.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn journal(view: &NodeView) -> Reading<Journal> {
    open(annotation(view, JOURNAL))
}

fn is_ready(view: &NodeView) -> bool {
    let mut conditions = view.status.conditions.iter().flatten();
    conditions.any(|condition| condition.kind == "Ready" && condition.status == "True")
}

fn answer(state: Option<&str>) -> Answer {
    match state {
        None => Answer::None,
        Some("success") => Answer::Done,
        Some("pending" | "rebooting") => Answer::Working,
        Some(state) => Answer::Failed(format!("nvidia.com/mig.config.state={state}")),
    }
}

fn allocatable(view: &NodeView) -> Counts {
    let amounts = view.status.allocatable.iter().flatten();
    let count = |(name, amount): (&String, &String)| {
        let profile = ProfileName::from_resource(name)?.ok()?;
        Some((profile, u8::try_from(quantity::units(amount).ok()?).ok()?))
    };
    amounts.filter_map(count).filter(|(_, count)| *count > 0).collect()
}

fn discovered(labels: &Text) -> Counts {
    let count = |(name, value): (&String, &String)| {
        let resource = name.strip_suffix(".count")?;
        let profile = ProfileName::from_resource(resource)?.ok()?;
        Some((profile, value.parse().ok()?))
    };
    labels.iter().filter_map(count).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::safety::seal;

    fn view(edit: impl FnOnce(&mut Value)) -> NodeView {
        let mut node = json!({
            "metadata": {"name": "n0", "resourceVersion": "7", "annotations": {}, "labels": {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "2",
                "nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed",
                "nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/mig.config": "all-1g.5gb",
                "nvidia.com/mig.config.state": "success", "nvidia.com/mig-1g.5gb.count": "14",
                "nvidia.com/mig-1g.5gb.memory": "4864", "pool": "inference"}},
            "status": {"allocatable": {"cpu": "8", "nvidia.com/mig-1g.5gb": "14", "nvidia.com/mig-3g.20gb": "0"},
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        edit(&mut node);
        serde_json::from_value(node).unwrap()
    }

    fn seen(edit: impl FnOnce(&mut Value)) -> NodeSight {
        sight(&view(edit), &[("pool".to_owned(), "inference".to_owned())].into()).unwrap()
    }

    #[test]
    fn reads_a_node_of_mig_manager() {
        let node = seen(|_| {});
        assert_eq!((node.name.as_str(), &*node.version, node.gpus), ("n0", "7", 2));
        assert_eq!((node.model.name, node.actuator), ("A100-40GB", Actuator::MigManager));
        assert_eq!(
            (node.selected, node.ready, node.unschedulable, node.our_cordon),
            (true, true, false, false)
        );
        assert_eq!((node.told.as_deref(), node.answer), (Some("all-1g.5gb"), Answer::Done));
        let counts = Counts::from([("1g.5gb".parse().unwrap(), 14)]);
        assert_eq!((node.allocatable, node.discovered), (counts.clone(), counts));
        assert_eq!((node.journal, node.paused), (Reading::Absent, false));
    }

    #[test]
    fn what_people_and_actuators_say() {
        let label = |name: &'static str, value: &'static str| {
            seen(move |node| node["metadata"]["labels"][name] = json!(value))
        };
        assert_eq!(label("nvidia.com/gpu.deploy.mig-manager", "false").actuator, Actuator::Agent);
        assert!(!label("pool", "training").selected);
        assert_eq!(label("nvidia.com/mig.config.state", "rebooting").answer, Answer::Working);
        let failed = Answer::Failed("nvidia.com/mig.config.state=failed".to_owned());
        assert_eq!(label("nvidia.com/mig.config.state", "failed").answer, failed);
        for (value, paused) in [("true", true), ("", true), ("false", false)] {
            let node = seen(|node| node["metadata"]["annotations"][PAUSE] = json!(value));
            assert_eq!(node.paused, paused, "{value}");
        }
        assert!(!seen(|node| node["status"]["conditions"][1]["status"] = json!("Unknown")).ready);
    }

    #[test]
    fn a_node_of_which_too_little_is_known_stays_as_it_is() {
        let odd: [(&str, Value); 6] = [
            ("nvidia.com/gpu.product", json!("NVIDIA-Z9000")),
            ("nvidia.com/gpu.count", json!("many")),
            ("nvidia.com/gpu.count", json!("0")),
            ("nvidia.com/mig.capable", json!("false")),
            ("nvidia.com/mig.strategy", json!("single")),
            ("nvidia.com/mig.config", Value::Null),
        ];
        for (name, value) in odd {
            let node = view(|node| {
                let labels = node["metadata"]["labels"].as_object_mut().unwrap();
                match value.as_str() {
                    Some(text) => drop(labels.insert(name.to_owned(), json!(text))),
                    None => drop(labels.remove(name)),
                }
            });
            assert_eq!(sight(&node, &Text::new()), None, "{name}");
        }
    }

    #[test]
    fn the_journal_decides_who_is_admitted() {
        let admitted = |journal: Option<String>, cordon: bool| {
            admission(&view(|node| {
                let annotations = &mut node["metadata"]["annotations"];
                journal.into_iter().for_each(|text| annotations[JOURNAL] = json!(text));
                if cordon {
                    annotations[CORDON] = json!("true");
                }
            }))
        };
        assert_eq!(admitted(None, false), Admission::All);
        assert_eq!(admitted(None, true), Admission::None);
        assert_eq!(admitted(Some("{".to_owned()), true), Admission::None);
        assert_eq!(admitted(Some("{".to_owned()), false), Admission::All);
        assert_eq!(admitted(seal(&Journal::default()).ok(), true), Admission::All);
    }
}
