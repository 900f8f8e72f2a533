//! Reads the openb trace: nodes and pods of a large production GPU cluster, as two CSV files.
//!
//! The trace knows fractions of GPUs of several models; here every GPU is an A100-40GB that is cut on demand, and a fraction
//! becomes the smallest profile that holds it: compute slices = ceil(7 x gpu_milli / 1000), 5 to 7 of them the whole GPU. What
//! that rounding up costs is a property of the profiles, not of any scheduler, and is reported apart.
//!
//! Invariant: no row is dropped or repaired in silence. A row that cannot be read ends the reading with its file, line, column
//! and value.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use csv::StringRecord;
use thiserror::Error;

use crate::mig::{GpuModel, ProfileName, UnknownModel};
use crate::model::{NodeSelector, NodeSelectorTerm, Operator, PodSpec, Requirement, Time};

use super::scenario::{Class, Machine, PodPlan, Scenario, bare_node, new_pod, pod_spec};
use super::workload::MODEL;

/// The nodes' file in a trace folder; with nodes that have no GPU.
pub const NODES_FILE: &str = "openb_node_list_all_node.csv";

/// The pods' file that is read when a folder is given.
pub const PODS_FILE: &str = "openb_pod_list_default.csv";

/// The label that carries the GPU model which a node has in the trace, for pods that name some (`gpu_spec`).
pub const MODEL_LABEL: &str = "openb/gpu-model";

/// The profile for 1, 2, … 7 compute slices.
const PROFILES: [&str; 7] = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "7g.40gb", "7g.40gb"];

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {cause}; --trace takes a folder with {NODES_FILE} and {PODS_FILE}, or a pods file beside {NODES_FILE}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        cause: csv::Error,
    },
    /// The header lacks a column.
    #[error("{} has no column `{column}`{}", file.display(), why_column(column))]
    Column {
        /// The file.
        file: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A value cannot be what its column says.
    #[error("{}, line {line}, column `{column}`: `{value}` {expected}", file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// Line, counted from one.
        line: u64,
        /// The column.
        column: &'static str,
        /// The text as it stands.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// There is nothing to run.
    #[error("{} has no rows", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// The tables lack the model that stands in for the trace's GPUs.
    #[error(transparent)]
    Model(#[from] UnknownModel),
}

fn why_column(column: &str) -> &'static str {
    if column.ends_with("_time") {
        ": without times there is nothing to replay (the multigpu50 mix has none)"
    } else {
        ""
    }
}

/// Reads a folder with both files, or a pods file with the nodes' file beside it.
pub fn read(path: &Path) -> Result<Scenario, TraceError> {
    let model = GpuModel::by_name(MODEL)?;
    let (folder, pods_file) = if path.is_dir() {
        (path.to_owned(), path.join(PODS_FILE))
    } else {
        (path.parent().map(Path::to_owned).unwrap_or_default(), path.to_owned())
    };
    let pods = Table::open(&pods_file)?;
    let machines = Table::open(&folder.join(NODES_FILE))?.rows(|row| read_machine(row, model))?;
    let rows = pods.rows(read_pod)?;
    Ok(assemble(&pods_file, model, machines, rows))
}

/// An open CSV file.
pub(super) struct Table {
    file: PathBuf,
    reader: csv::Reader<File>,
    columns: BTreeMap<String, usize>,
}

/// One row of a table.
pub(super) struct Row<'a> {
    file: &'a Path,
    columns: &'a BTreeMap<String, usize>,
    record: &'a StringRecord,
}

impl Table {
    pub(super) fn open(file: &Path) -> Result<Table, TraceError> {
        let wrong = |cause| TraceError::Read { file: file.to_owned(), cause };
        let mut reader = csv::Reader::from_path(file).map_err(wrong)?;
        let headers = reader.headers().map_err(wrong)?;
        let columns = headers.iter().enumerate().map(|(at, name)| (name.trim().to_owned(), at)).collect();
        Ok(Table { file: file.to_owned(), reader, columns })
    }

    /// Reads every row; names must be unique and there must be one.
    pub(super) fn rows<T: Named>(
        mut self,
        read: impl Fn(&Row<'_>) -> Result<T, TraceError>,
    ) -> Result<Vec<T>, TraceError> {
        let mut record = StringRecord::new();
        let mut names = BTreeSet::new();
        let mut rows = Vec::new();
        loop {
            let more = self.reader.read_record(&mut record);
            if !more.map_err(|cause| TraceError::Read { file: self.file.clone(), cause })? {
                break;
            }
            let row = Row { file: &self.file, columns: &self.columns, record: &record };
            let item = read(&row)?;
            if !names.insert(item.name().to_owned()) {
                return Err(row.wrong(T::NAME_COLUMN, "stands in an earlier row already"));
            }
            rows.push(item);
        }
        if rows.is_empty() { Err(TraceError::Empty { file: self.file }) } else { Ok(rows) }
    }
}

impl Row<'_> {
    /// Whether the file has this column.
    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    pub(super) fn text(&self, column: &'static str) -> Result<&str, TraceError> {
        let missing = || TraceError::Column { file: self.file.to_owned(), column };
        let at = *self.columns.get(column).ok_or_else(missing)?;
        Ok(self.record.get(at).unwrap_or("").trim())
    }

    /// A whole number from zero to `most`; `None` when the field is empty.
    fn optional(&self, column: &'static str, most: u64) -> Result<Option<u64>, TraceError> {
        let text = self.text(column)?;
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse().ok().filter(|&number: &u64| number <= most);
        number.map(Some).ok_or_else(|| self.wrong(column, &format!("is not a whole number from 0 to {most}")))
    }

    pub(super) fn number(&self, column: &'static str, most: u64) -> Result<u64, TraceError> {
        let expected = || self.wrong(column, &format!("is not a whole number from 0 to {most}"));
        self.optional(column, most)?.ok_or_else(expected)
    }

    pub(super) fn name(&self, column: &'static str) -> Result<String, TraceError> {
        let text = self.text(column)?;
        if text.is_empty() { Err(self.wrong(column, "must not be empty")) } else { Ok(text.to_owned()) }
    }

    pub(super) fn wrong(&self, column: &'static str, expected: &str) -> TraceError {
        TraceError::Value {
            file: self.file.to_owned(),
            line: self.record.position().map_or(0, csv::Position::line),
            column,
            value: self.text(column).unwrap_or("").to_owned(),
            expected: expected.to_owned(),
        }
    }
}

pub(super) trait Named {
    const NAME_COLUMN: &'static str;
    fn name(&self) -> &str;
}

impl Named for Machine {
    const NAME_COLUMN: &'static str = "sn";
    fn name(&self) -> &str {
        self.node.name.as_str()
    }
}

/// Largest amounts that are taken for real: ten thousand cores, 64 TiB, 64 GPUs a node or pod, a hundred years.
pub(super) const MOST_MILLI: u64 = 10_000_000;
pub(super) const MOST_MIB: u64 = 64 << 20;
pub(super) const MOST_GPUS: u64 = 64;
const MOST_SECONDS: u64 = 100 * 365 * 86_400;

fn read_machine(row: &Row<'_>, model: &'static GpuModel) -> Result<Machine, TraceError> {
    let name = row.name("sn")?;
    let gpus = u16::try_from(row.number("gpu", MOST_GPUS)?).unwrap_or(0);
    let memory = row.number("memory_mib", MOST_MIB)? << 20;
    let mut node = bare_node(&name, row.number("cpu_milli", MOST_MILLI)?, memory, gpus, model);
    if gpus > 0 {
        node.labels.insert(MODEL_LABEL.into(), row.name("model")?.into());
    }
    // The trace states no limit on pods a node, so none shall bind.
    node.allocatable.pods = 1_000;
    Ok(Machine { node, gpus })
}

/// One pod as the trace has it.
struct PodRow {
    name: String,
    cpu_milli: u64,
    memory: u64,
    gpus: u64,
    gpu_milli: u64,
    models: Vec<Arc<str>>,
    created: u64,
    seconds: u64,
    end: u64,
    scheduled: bool,
}

impl Named for PodRow {
    const NAME_COLUMN: &'static str = "name";
    fn name(&self) -> &str {
        &self.name
    }
}

fn read_pod(row: &Row<'_>) -> Result<PodRow, TraceError> {
    let gpus = row.number("num_gpu", MOST_GPUS)?;
    let gpu_milli = row.number("gpu_milli", 1_000)?;
    if gpus > 1 && gpu_milli != 1_000 {
        return Err(row.wrong("gpu_milli", "must be 1000 for a pod with several GPUs"));
    }
    if gpus == 1 && gpu_milli == 0 {
        return Err(row.wrong("gpu_milli", "must be above 0 for a pod with a GPU"));
    }
    let created = row.number("creation_time", MOST_SECONDS)?;
    let scheduled = row.optional("scheduled_time", MOST_SECONDS)?;
    let begin = scheduled.unwrap_or(created);
    let end = row.number("deletion_time", MOST_SECONDS)?;
    let seconds = end.checked_sub(begin.max(created));
    Ok(PodRow {
        name: row.name("name")?,
        cpu_milli: row.number("cpu_milli", MOST_MILLI)?,
        memory: row.number("memory_mib", MOST_MIB)? << 20,
        gpus,
        gpu_milli,
        models: row.text("gpu_spec")?.split('|').filter(|model| !model.is_empty()).map(Arc::from).collect(),
        created,
        seconds: seconds.ok_or_else(|| row.wrong("deletion_time", "lies before the pod's start"))?,
        end,
        scheduled: scheduled.is_some(),
    })
}

impl PodRow {
    /// The instances that stand in for its GPUs.
    fn instances(&self) -> Option<(ProfileName, u64)> {
        let slices = (7 * self.gpu_milli).div_ceil(1_000) as usize;
        let text = PROFILES.get(slices.checked_sub(1)?)?;
        Some((text.parse().ok()?, self.gpus)).filter(|_| self.gpus > 0)
    }

    fn spec(&self) -> PodSpec {
        let mut spec = pod_spec(self.cpu_milli, self.memory, self.instances());
        if !self.models.is_empty() {
            let values = self.models.clone();
            let one_of = Requirement { key: MODEL_LABEL.into(), operator: Operator::In, values };
            let term = NodeSelectorTerm { match_expressions: vec![one_of], ..NodeSelectorTerm::default() };
            spec.selector = NodeSelector { terms: Some(vec![term]), ..NodeSelector::default() };
        }
        spec
    }
}

fn assemble(file: &Path, model: &'static GpuModel, machines: Vec<Machine>, rows: Vec<PodRow>) -> Scenario {
    let notes = notes(&machines, &rows);
    let mut order: Vec<_> = rows.iter().collect();
    order.sort_by_key(|row| row.created);
    let mut classes: Vec<Class> = rows.iter().map(|row| class(row.instances())).collect();
    classes.sort_by_key(|class| (std::cmp::Reverse(class.instances), class.name.clone()));
    classes.dedup();
    let mut specs: BTreeMap<PodSpec, Arc<PodSpec>> = BTreeMap::new();
    let plan = |row: &&PodRow| {
        let spec = row.spec();
        let spec = specs.entry(spec.clone()).or_insert_with(|| Arc::new(spec)).clone();
        PodPlan {
            pod: new_pod(&row.name, Time::from_secs(row.created), spec),
            lifetime: Duration::from_secs(row.seconds),
            class: classes.iter().position(|known| *known == class(row.instances())).unwrap_or(0),
        }
    };
    let pods: Vec<_> = order.iter().map(plan).collect();
    // One second more than the trace, so that a pod that is bound at once also ends within the run.
    let end = rows.iter().map(|row| row.end).max().unwrap_or(0) + 1;
    Scenario {
        title: title(file, &machines, &rows, end),
        notes,
        model,
        machines,
        demand: demand(&rows),
        pods,
        classes,
        measure_from: Time::ZERO,
        end: Time::from_secs(end),
    }
}

fn class(instances: Option<(ProfileName, u64)>) -> Class {
    let name = match instances {
        None => "no GPU".to_owned(),
        Some((profile, 1)) => profile.to_string(),
        Some((profile, count)) => format!("{count} x {profile}"),
    };
    Class { name, instances }
}

/// How often each profile is asked for.
fn demand(rows: &[PodRow]) -> Vec<(ProfileName, u64)> {
    let mut demand = BTreeMap::new();
    for (profile, count) in rows.iter().filter_map(PodRow::instances) {
        *demand.entry(profile).or_insert(0) += count;
    }
    demand.into_iter().rev().collect()
}

fn title(file: &Path, machines: &[Machine], rows: &[PodRow], end: u64) -> String {
    let gpus: u64 = machines.iter().map(|machine| u64::from(machine.gpus)).sum();
    let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let days = end as f64 / 86_400.0;
    format!(
        "trace {name}: {} pods over {days:.1} days on {} nodes with {gpus} GPUs",
        rows.len(),
        machines.len()
    )
}

fn notes(machines: &[Machine], rows: &[PodRow]) -> Vec<String> {
    let bare = machines.iter().filter(|machine| machine.gpus == 0).count();
    let never = rows.iter().filter(|row| !row.scheduled).count();
    let without = rows.iter().filter(|row| row.gpus == 0).count();
    let fraction = rounding_loss(rows, |row| row.gpus == 1 && row.gpu_milli < 1_000);
    let single = rounding_loss(rows, |row| row.gpus == 1);
    vec![
        format!("Every GPU is treated as an {MODEL} cut on demand, whatever it is in the trace; {bare} nodes have none."),
        "A fraction of a GPU becomes the smallest profile that holds it (1g to 4g, else 7g); n GPUs become n x 7g.40gb.".to_owned(),
        format!(
            "That rounding up costs {:.1} % more compute than the fractional pods ask for ({:.1} % over all pods with one \
             GPU): no scheduler can avoid it.",
            100.0 * fraction,
            100.0 * single
        ),
        format!(
            "{without} pods want no GPU and are scheduled too. {never} pods never started in the trace; here they live from \
             their start as long as they existed there."
        ),
    ]
}

/// Compute that profiles hold beyond what these pods ask for, as a share of what they ask for.
fn rounding_loss(rows: &[PodRow], of: impl Fn(&PodRow) -> bool) -> f64 {
    let mut asked = 0u64;
    let mut held = 0u64;
    for row in rows.iter().filter(|row| of(row)) {
        let slices =
            row.instances().map_or(0, |(profile, count)| u64::from(profile.compute_slices()) * count);
        asked += 7 * row.gpu_milli * row.gpus;
        held += 1_000 * slices;
    }
    if asked == 0 { 0.0 } else { held as f64 / asked as f64 - 1.0 }
}

#[cfg(test)]
mod tests;
