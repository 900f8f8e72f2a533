//! Trained models as files: `lstm.safetensors` (the numbers) and `lstm.json` (what they mean).
//!
//! The numbers lie under the names and in the order that other libraries use. The header says for which windows the model is,
//! how it scales them, what it was trained on and how well it did, and holds the hash of the numbers. Both together take some
//! 150 kB, which fits a ConfigMap.
//!
//! Invariant: a file is either read whole and sound, or refused with what is wrong and what to do about it.

use std::collections::BTreeMap;
use std::ops::Range;

use candle_core::{Device, Tensor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::lstm::{FEATURES, GROUP, Linear, Lstm, Network, Scaler, Sizes, Threads, Training, sizes};
use super::train::hexadecimal;
use super::{QUANTILES, Shape};

/// The version of the header that this program writes and reads.
const SCHEMA: u32 = 1;

/// The model that the files are for.
const MODEL: &str = "lstm";

/// A model as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The header, JSON; kept as `lstm.json`.
    pub header: String,
    /// The numbers; kept as `lstm.safetensors`.
    pub weights: Vec<u8>,
}

impl Saved {
    /// The model that the program brings along, for the default shape.
    pub fn brought_along() -> Saved {
        Saved {
            header: include_str!("../../weights/lstm.json").to_owned(),
            weights: include_bytes!("../../weights/lstm.safetensors").to_vec(),
        }
    }

    /// The contents of [`SUMS`].
    pub fn sums(&self) -> String {
        format!("{}  {HEADER}\n{}  {NUMBERS}\n", sha256(self.header.as_bytes()), sha256(&self.weights))
    }
}

/// Why a model is not read. Every message ends with what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}: {problem}; {remedy}")]
pub struct LoadError {
    /// `lstm.json` or `lstm.safetensors`.
    pub file: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The name of the header's file.
pub const HEADER: &str = "lstm.json";
/// The name of the file with the numbers.
pub const NUMBERS: &str = "lstm.safetensors";
/// The name of the file with the hashes of both, as `sha256sum --check` reads it.
pub const SUMS: &str = "SHA256SUMS";

/// What helps against files that belong to something else, or to another time.
const RETRAIN: &str = "train a new model with `mig-scheduler forecast train`";
/// What helps against files that were damaged on their way.
const RESTORE: &str =
    "restore both files from where they were written, or train anew with `mig-scheduler forecast train`";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Header {
    schema: u32,
    model: String,
    weights_sha256: String,
    look_back: usize,
    horizon: usize,
    step_seconds: u32,
    features: Vec<String>,
    hidden: usize,
    layers: usize,
    quantiles: Vec<f32>,
    scaler: Scaler,
    training: Training,
}

/// The part of every version's header that says which it is.
#[derive(Debug, Deserialize)]
struct Version {
    schema: u32,
    model: String,
}

impl Lstm {
    /// The model as it is kept.
    ///
    /// # Errors
    /// When the tensor library or the writer of the format fails; no model is known to make them.
    pub fn save(&self) -> Result<Saved, candle_core::Error> {
        let weights = self.weights.to_vec1::<f32>()?;
        let mut tensors = BTreeMap::new();
        for place in places(self.network.sizes()) {
            let values = place.indices().map(|index| weights[index]);
            tensors.insert(place.name.clone(), (place.shape(), bytes(values)));
        }
        let linear =
            (vec![self.shape.horizon, self.shape.look_back], bytes(self.linear.weights.iter().copied()));
        tensors.insert(LINEAR.to_owned(), linear);
        let views = tensors.iter().map(|(name, (shape, bytes))| {
            Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        });
        let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
        let weights = safetensors::serialize(views, None)?;
        let sizes = self.network.sizes();
        let header = Header {
            schema: SCHEMA,
            model: MODEL.to_owned(),
            weights_sha256: sha256(&weights),
            look_back: self.shape.look_back,
            horizon: self.shape.horizon,
            step_seconds: self.shape.step_seconds,
            features: FEATURES.map(str::to_owned).to_vec(),
            hidden: sizes.hidden,
            layers: sizes.layers,
            quantiles: QUANTILES.to_vec(),
            scaler: self.scaler.clone(),
            training: self.training.clone(),
        };
        let mut header = serde_json::to_string_pretty(&header).map_err(candle_core::Error::wrap)?;
        header.push('\n');
        Ok(Saved { header, weights })
    }

    /// Reads a model for windows of `shape`.
    ///
    /// # Errors
    /// When a file is damaged, belongs to another model, version or shape, or holds a number that is not finite.
    pub fn load(saved: &Saved, shape: Shape, threads: Threads) -> Result<Lstm, LoadError> {
        let header = read_header(&saved.header)?;
        check_header(&header, shape)?;
        let found = sha256(&saved.weights);
        if found != header.weights_sha256 {
            let expected = header.weights_sha256;
            return damaged(format!("its SHA-256 is {found}; the header says {expected}"));
        }
        let tensors = match SafeTensors::deserialize(&saved.weights) {
            Ok(tensors) => tensors,
            Err(error) => return damaged(format!("not a safetensors file ({error})")),
        };
        let sizes = sizes(shape);
        let mut weights = vec![0.0; sizes.weights()];
        let places = places(&sizes);
        for place in &places {
            let values = numbers(&tensors, &place.name, &place.shape())?;
            place.indices().zip(values).for_each(|(index, value)| weights[index] = value);
        }
        let linear = numbers(&tensors, LINEAR, &[shape.horizon, shape.look_back])?;
        let known = |name: &str| name == LINEAR || places.iter().any(|place| place.name == name);
        if let Some(name) = tensors.names().into_iter().find(|name| !known(name)) {
            return refuse(
                NUMBERS,
                format!("holds a tensor {name} that this version does not know"),
                RETRAIN,
            );
        }
        let weights = Tensor::from_vec(weights, sizes.weights(), &Device::Cpu);
        let weights = weights.map_err(|error| problem(NUMBERS, error.to_string(), RESTORE))?;
        let (scaler, training) = (header.scaler, header.training);
        let linear = Linear { look_back: shape.look_back, weights: linear };
        Ok(Lstm { shape, scaler, linear, network: Network::new(sizes, threads), weights, training })
    }
}

/// The linear map's name.
const LINEAR: &str = "linear.weight";

/// Where a tensor of the file lies in the weights.
struct Place {
    name: String,
    part: super::lstm::Affine,
    inputs: Range<usize>,
}

impl Place {
    /// A bias is a vector, everything else a matrix.
    fn shape(&self) -> Vec<usize> {
        let rows = self.part.groups * GROUP;
        match self.inputs.start == self.part.inputs {
            true => vec![rows],
            false => vec![rows, self.inputs.len()],
        }
    }

    fn indices(&self) -> impl Iterator<Item = usize> + use<> {
        self.part.matrix(self.inputs.clone())
    }
}

/// The tensors of a file, but for the linear map.
fn places(sizes: &Sizes) -> Vec<Place> {
    let mut places = Vec::new();
    for layer in 0..sizes.layers {
        let part = sizes.layer(layer);
        let below = part.inputs - sizes.hidden;
        for (name, inputs) in [
            ("weight_ih", 0..below),
            ("weight_hh", below..part.inputs),
            ("bias", part.inputs..part.inputs + 1),
        ] {
            places.push(Place { name: format!("lstm.{name}_l{layer}"), part, inputs });
        }
    }
    let part = sizes.head();
    for (name, inputs) in [("weight", 0..part.inputs), ("bias", part.inputs..part.inputs + 1)] {
        places.push(Place { name: format!("head.{name}"), part, inputs });
    }
    places
}

fn bytes(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hexadecimal(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn problem(file: &'static str, problem: impl Into<String>, remedy: &'static str) -> LoadError {
    LoadError { file, problem: problem.into(), remedy }
}

fn refuse<T>(file: &'static str, text: impl Into<String>, remedy: &'static str) -> Result<T, LoadError> {
    Err(problem(file, text, remedy))
}

fn damaged<T>(text: impl Into<String>) -> Result<T, LoadError> {
    refuse(NUMBERS, text, RESTORE)
}

fn read_header(text: &str) -> Result<Header, LoadError> {
    let version: Version = serde_json::from_str(text)
        .map_err(|error| problem(HEADER, format!("not the header of a model ({error})"), RESTORE))?;
    if version.model != MODEL {
        return refuse(HEADER, format!("model is {:?}, not {MODEL:?}", version.model), RETRAIN);
    }
    if version.schema != SCHEMA {
        return refuse(HEADER, format!("schema is {}; this version reads {SCHEMA}", version.schema), RETRAIN);
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| problem(HEADER, format!("{}: {}", error.path(), error.inner()), RESTORE))
}

fn check_header(header: &Header, shape: Shape) -> Result<(), LoadError> {
    let found =
        Shape { look_back: header.look_back, horizon: header.horizon, step_seconds: header.step_seconds };
    if found != shape {
        return refuse(
            HEADER,
            format!("the model is for windows of {found}; the configuration asks for {shape}"),
            RETRAIN,
        );
    }
    if header.features != FEATURES {
        return refuse(
            HEADER,
            format!("features are {:?}; this version uses {FEATURES:?}", header.features),
            RETRAIN,
        );
    }
    let sizes = sizes(shape);
    if (header.hidden, header.layers) != (sizes.hidden, sizes.layers) {
        let text = format!(
            "the model has {} layers of {} cells; this version has {} of {}",
            header.layers, header.hidden, sizes.layers, sizes.hidden
        );
        return refuse(HEADER, text, RETRAIN);
    }
    if header.quantiles != QUANTILES {
        let text = format!("quantiles are {:?}; this version has {QUANTILES:?}", header.quantiles);
        return refuse(HEADER, text, RETRAIN);
    }
    match header.scaler.unsound() {
        None => Ok(()),
        Some(group) => {
            let text = format!("scaler.{group}: min must not exceed max, and unit must be positive");
            refuse(HEADER, text, RETRAIN)
        }
    }
}

/// The numbers of a tensor.
fn numbers(tensors: &SafeTensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
    let Ok(tensor) = tensors.tensor(name) else {
        return refuse(NUMBERS, format!("has no tensor {name}"), RETRAIN);
    };
    if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
        let text = format!(
            "tensor {name} is {:?} of {:?}; F32 of {shape:?} belongs there",
            tensor.dtype(),
            tensor.shape()
        );
        return refuse(NUMBERS, text, RETRAIN);
    }
    let (chunks, _) = tensor.data().as_chunks::<4>();
    let values: Vec<f32> = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(values),
        Some(at) => refuse(NUMBERS, format!("tensor {name} holds {} at position {at}", values[at]), RETRAIN),
    }
}

#[cfg(test)]
mod tests;
