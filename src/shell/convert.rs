//! Kubernetes' objects as the model's values: the only place that knows both.
//!
//! Invariant: a conversion loses nothing that decides where a pod may run. What cannot be read is an error that names the
//! field and its value; a pod like that is reported on, never dropped and never read as something milder than it says.
//!
//! `layout` reads what changes of layouts are decided by, `wire` holds the API's side, `quantity` its numbers, `intern` shares equal
//! results; `pod`, `relation`, `node` and `storage` do the work.

mod budget;
mod intern;
pub mod layout;
mod node;
mod pod;
pub mod quantity;
mod rejection;
mod relation;
mod storage;
pub mod wire;

pub use budget::{budget_id, convert_budget};
pub use intern::Interner;
pub use node::{ConvertedNode, convert_node};
pub use pod::{Condition, Unreadable, condition, convert_pod, is_ours_or_bound, pod_id};
pub use rejection::convert_rejection;
pub use storage::{SELECTED_NODE, StorageView};

use std::collections::BTreeMap;

use quantity::QuantityError;

use crate::model::{Labels, ResourceName, Resources};
use wire::Amounts;

/// Labels as the model has them.
pub fn convert_labels(labels: Option<&BTreeMap<String, String>>, interner: &mut Interner) -> Labels {
    let labels = labels.into_iter().flatten();
    labels.map(|(key, value)| (interner.text(key), interner.text(value))).collect()
}

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: \"{value}\" {problem}")]
pub struct ConvertError {
    /// Its path in the object.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
}

impl ConvertError {
    fn new(field: impl Into<String>, value: impl Into<String>, problem: impl ToString) -> ConvertError {
        ConvertError { field: field.into(), value: value.into(), problem: problem.to_string() }
    }
}

/// Reads every amount; `bad` decides what stands for one that cannot be read.
fn resources(
    amounts: Option<&Amounts>,
    interner: &mut Interner,
    mut bad: impl FnMut(&str, &str, QuantityError) -> u64,
) -> Resources {
    let mut read = Resources::default();
    for (name, text) in amounts.into_iter().flatten() {
        let amount = match name.as_str() {
            "cpu" => quantity::milli(text),
            _ => quantity::units(text),
        };
        let amount = amount.unwrap_or_else(|error| bad(name, text, error));
        match name.as_str() {
            "cpu" => read.cpu_milli = amount,
            "memory" => read.memory = amount,
            "ephemeral-storage" => read.ephemeral_storage = amount,
            "pods" => read.pods = amount,
            _ => read.set(ResourceName::from(interner.text(name)), amount),
        }
    }
    read
}
