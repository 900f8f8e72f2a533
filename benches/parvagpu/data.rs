//! ParvaGPU's measurements and scenarios (Lee et al., SC '24), as they lie in a folder: `prof_data/MODEL.csv` with what was
//! measured on MIG instances of an A100-80GB, `SLO/SLO_latency.csv` and `SLO/SLO_req_rate.csv` with a line for each scenario
//! and a column for each network, and `deployment/SLOn/` with what was published.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mig_scheduler::mig::{GpuModel, ProfileName};
use mig_scheduler::solver::services::{OperatingPoint, Service};

/// The GPU on which everything was measured.
pub const MODEL: &str = "A100-80GB";

/// GPUs that each scenario may need at most: one less than published in the last two.
pub const GPUS: [usize; 6] = [2, 3, 5, 7, 12, 15];

/// The latency that a request may take of its objective: half of the objective passes while a batch fills, and a tenth of the
/// rest is kept as a margin. It is the rule of the published configurator.
const SHARE_OF_SLO: f64 = 0.45;

/// The networks in the order of the scenario files' columns.
const NETWORKS: [&str; 11] = [
    "bert",
    "densenet121",
    "densenet169",
    "densenet201",
    "inceptionv3",
    "mobilenetv2",
    "resnet101",
    "resnet152",
    "resnet50",
    "vgg16",
    "vgg19",
];

/// One scenario.
pub struct Scenario {
    /// `S1` to `S6`.
    pub name: String,
    /// The networks that take part.
    pub services: Vec<Service>,
    /// GPUs of the published deployment.
    pub published: usize,
}

/// Every scenario in `folder`.
pub fn scenarios(folder: &Path) -> Result<Vec<Scenario>, String> {
    let limits = rows(&folder.join("SLO/SLO_latency.csv"), false)?;
    let rates = rows(&folder.join("SLO/SLO_req_rate.csv"), false)?;
    let points = NETWORKS.map(|network| points(folder, network));
    let points = points.into_iter().collect::<Result<Vec<_>, _>>()?;
    let scenario = |(number, (limits, rates)): (usize, (&Vec<String>, &Vec<String>))| {
        let mut services = Vec::new();
        for (at, network) in NETWORKS.iter().enumerate() {
            let (limit, rate) = (number_at(limits, at)?, number_at(rates, at)?);
            if let (Some(limit), Some(rate)) = (limit, rate) {
                let latency_limit = SHARE_OF_SLO * limit / 1_000.0;
                let points = points[at].clone();
                services.push(Service { name: (*network).to_owned(), rate, latency_limit, points });
            }
        }
        Ok(Scenario { name: format!("S{number}"), services, published: published(folder, number)? })
    };
    (1..).zip(limits.iter().zip(&rates)).map(scenario).collect()
}

/// What was measured of one network. A throughput of zero stands for a run that did not fit into the instance's memory.
fn points(folder: &Path, network: &str) -> Result<Vec<OperatingPoint>, String> {
    let path = folder.join("prof_data").join(format!("{network}.csv"));
    let mut points = Vec::new();
    for row in rows(&path, true)? {
        let field = |at: usize| {
            number_at(&row, at)?.ok_or_else(|| format!("{}: no number in {row:?}", path.display()))
        };
        let (throughput, processes) = (field(3)?, field(2)?);
        if throughput > 0.0 {
            points.push(OperatingPoint {
                profile: profile(field(0)? as u8)?,
                batch: field(1)? as u32,
                processes: processes as u32,
                // The file has it for one process.
                throughput: throughput * processes,
                latency: field(4)?,
            });
        }
    }
    Ok(points)
}

/// The profile of an instance with so many compute slices; of two with one slice the ordinary one was measured.
fn profile(compute_slices: u8) -> Result<ProfileName, String> {
    let model = GpuModel::by_name(MODEL).map_err(|error| error.to_string())?;
    let mut profiles = model.profiles.iter().filter(|profile| profile.name.is_base());
    let found = profiles.find(|profile| profile.name.compute_slices() == compute_slices);
    found
        .map(|profile| profile.name)
        .ok_or_else(|| format!("{MODEL} has no profile of {compute_slices} slices"))
}

/// GPUs in the published deployment; a file numbers those of each machine from zero.
fn published(folder: &Path, number: usize) -> Result<usize, String> {
    let path = folder.join(format!("deployment/SLO{number}/SLO{number}_ParvaGPU_deploy.csv"));
    let gpus: BTreeSet<Vec<String>> =
        rows(&path, true)?.into_iter().map(|row| row.into_iter().take(2).collect()).collect();
    Ok(gpus.len())
}

/// The number in a column, `None` for `N/A`.
fn number_at(row: &[String], at: usize) -> Result<Option<f64>, String> {
    match row.get(at).map(String::as_str) {
        None => Err(format!("no column {at} in {row:?}")),
        Some("N/A") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| format!("`{text}` in {row:?} is not a number")),
    }
}

/// The lines of a file, split at commas.
fn rows(path: &PathBuf, headed: bool) -> Result<Vec<Vec<String>>, String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(headed)
        .trim(csv::Trim::All)
        .from_path(path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        record
            .map(|record| record.iter().map(str::to_owned).collect())
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    reader.records().map(row).collect()
}
