//! The network's weights: from the configured file, or those that the program brings along.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::forecast::Shape;
use crate::forecast::lstm::{Lstm, Threads};
use crate::forecast::weights::{LoadError, Saved};

/// A hundred times what there is to read; a wrong file does not fill the memory.
const SIZE_LIMIT: u64 = 16 << 20;

/// Why there is no network.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}; both lstm.safetensors and lstm.json, side by side, are needed", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// It was read, and cannot be used.
    #[error("{}{cause}", place.as_ref().map(|place| format!("{}: ", place.display())).unwrap_or_default())]
    Refused {
        /// The folder; none for the weights that the program brings along.
        place: Option<PathBuf>,
        /// What is wrong with it.
        cause: LoadError,
    },
}

/// The network for windows of `shape` from `file`, which holds the numbers and has the header beside it under the same name with
/// the ending `.json`; without a file, the one that the program brings along.
///
/// # Errors
/// When a file cannot be read, is damaged, or belongs to another model, version or shape.
pub fn load(file: Option<&Path>, shape: Shape, threads: Threads) -> Result<Lstm, WeightsError> {
    let saved = match file {
        None => Saved::brought_along(),
        Some(file) => {
            let header = String::from_utf8_lossy(&read(&file.with_extension("json"))?).into_owned();
            Saved { header, weights: read(file)? }
        }
    };
    let place = file.map(|file| file.parent().unwrap_or(Path::new("")).to_owned());
    Lstm::load(&saved, shape, threads).map_err(|cause| WeightsError::Refused { place, cause })
}

fn read(file: &Path) -> Result<Vec<u8>, WeightsError> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(SIZE_LIMIT).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(cause) => Err(WeightsError::Read { file: file.to_owned(), cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_brings_along_is_read_back_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.safetensors");
        let saved = Saved::brought_along();
        let load = || load(Some(&file), Shape::default(), Threads::One);
        let missing = load().unwrap_err().to_string();
        assert!(missing.contains("mine.json") && missing.contains("side by side"), "{missing}");
        std::fs::write(file.with_extension("json"), &saved.header).unwrap();
        std::fs::write(&file, &saved.weights).unwrap();
        assert_eq!(load().unwrap().save().unwrap(), saved);
        std::fs::write(&file, &saved.weights[1..]).unwrap();
        let damaged = load().unwrap_err().to_string();
        assert!(damaged.contains("its SHA-256 is") && damaged.contains("restore both files"), "{damaged}");
    }

    #[test]
    fn another_shape_is_refused_by_name() {
        let shape = Shape { step_seconds: 15, ..Shape::default() };
        let refused = load(None, shape, Threads::One).unwrap_err().to_string();
        assert!(refused.contains("the configuration asks for 30 -> 10 steps of 15 s"), "{refused}");
    }
}
