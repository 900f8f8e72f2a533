//! Reads the openb trace with its shares of GPUs as they are.

use std::path::Path;

use super::{Node, Request, Trace, WHOLE};
use crate::sim::traces::{MOST_GPUS, MOST_MIB, MOST_MILLI, Named, Row, Table, TraceError};

/// The nodes that have GPUs.
const NODES_FILE: &str = "openb_node_list_gpu_node.csv";

/// Models that the bits of [`Request::models`] can name.
const MOST_MODELS: usize = 32;

/// Reads the nodes of `folder` and the pods of its file `openb_pod_list_<workload>.csv`.
pub fn read(folder: &Path, workload: &str) -> Result<Trace, TraceError> {
    let machines = Table::open(&folder.join(NODES_FILE))?.rows(read_machine)?;
    let mut models: Vec<String> = machines.iter().map(|machine| machine.model.clone()).collect();
    models.sort_unstable();
    models.dedup();
    let node = |machine: Machine| Node {
        cpu: machine.cpu,
        memory: machine.memory,
        gpus: vec![WHOLE; machine.gpus],
        model: models.iter().position(|model| *model == machine.model).unwrap_or(0) as u8,
    };
    let nodes = machines.into_iter().map(node).collect();
    let pods = Table::open(&folder.join(format!("openb_pod_list_{workload}.csv")))?
        .rows(|row| read_pod(row, &models))?;
    Ok(Trace { models, nodes, pods: pods.into_iter().map(|pod| pod.request).collect() })
}

struct Machine {
    name: String,
    cpu: u64,
    memory: u64,
    gpus: usize,
    model: String,
}

impl Named for Machine {
    const NAME_COLUMN: &'static str = "sn";
    fn name(&self) -> &str {
        &self.name
    }
}

fn read_machine(row: &Row<'_>) -> Result<Machine, TraceError> {
    Ok(Machine {
        name: row.name("sn")?,
        cpu: row.number("cpu_milli", MOST_MILLI)?,
        memory: row.number("memory_mib", MOST_MIB)? << 20,
        gpus: row.number("gpu", MOST_GPUS)? as usize,
        model: row.name("model")?,
    })
}

struct PodRow {
    name: String,
    request: Request,
}

impl Named for PodRow {
    const NAME_COLUMN: &'static str = "name";
    fn name(&self) -> &str {
        &self.name
    }
}

fn read_pod(row: &Row<'_>, models: &[String]) -> Result<PodRow, TraceError> {
    let gpus = row.number("num_gpu", MOST_GPUS)? as u32;
    let milli = row.number("gpu_milli", u64::from(WHOLE))? as u32;
    if gpus > 1 && milli != WHOLE {
        return Err(row.wrong("gpu_milli", "must be 1000 for a pod with several GPUs"));
    }
    let named = |model: &&str| !model.is_empty();
    let wanted: Vec<&str> = match row.has("gpu_spec") {
        true => row.text("gpu_spec")?.split('|').filter(named).collect(),
        false => Vec::new(),
    };
    let bit = |(at, model): (usize, &String)| {
        u32::from(wanted.is_empty() || wanted.contains(&model.as_str())) << at
    };
    let models = models.iter().enumerate().take(MOST_MODELS).map(bit).sum();
    let request = Request {
        cpu: row.number("cpu_milli", MOST_MILLI)?,
        milli: if gpus == 0 { 0 } else { milli },
        gpus,
        models,
        memory: row.number("memory_mib", MOST_MIB)? << 20,
    };
    Ok(PodRow { name: row.name("name")?, request })
}
