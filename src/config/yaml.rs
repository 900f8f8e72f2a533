//! YAML in and out; the only user of serde_yaml.
//!
//! Invariant: whatever the bytes are, the answer is a document or a one-line error, never a panic, and no more than
//! [`SIZE_LIMIT`] of a file is held. Decoding takes two steps, because each finds errors the other words badly: text to
//! a tree (syntax, duplicate keys, several documents), then the tree to the wire form (names and types, with their
//! path). serde_yaml is unmaintained: it is fed local files of an operator only, never anything from the network.

use std::fs::File;
use std::io::{self, Read};

use serde::Deserialize;
use serde_path_to_error::{Path, Segment};
use serde_yaml::{Deserializer, Value};

use super::error::{ConfigError, quote};
use super::explain::explain;
use super::v1alpha1::{MigSchedulerConfiguration, TypeMeta};

/// The largest file that is read, the limit of a ConfigMap.
const SIZE_LIMIT: u64 = 1 << 20;

/// The text of the file.
pub(super) fn read(path: &std::path::Path) -> Result<String, ConfigError> {
    let bytes = read_limited(path).map_err(|error| ConfigError::whole(reason(&error)))?;
    if bytes.len() as u64 > SIZE_LIMIT {
        return Err(ConfigError::whole("is larger than 1 MiB; this is not a configuration file"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ConfigError::whole(format!("is not UTF-8 text, from byte {at} on; save it as UTF-8"))
    })
}

/// Up to one byte more than the limit, so that a larger file shows.
fn read_limited(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SIZE_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "no such file; print a complete one with `mig-scheduler config default`".into()
        }
        io::ErrorKind::IsADirectory => "is a directory; name the file in it".into(),
        io::ErrorKind::PermissionDenied => "may not be read; give this user permission to read it".into(),
        _ => format!("cannot be read: {error}"),
    }
}

/// The document in `text`.
pub(super) fn decode(text: &str) -> Result<MigSchedulerConfiguration, ConfigError> {
    match tree(text)? {
        Value::Null => Err(empty()),
        tree @ Value::Mapping(_) => typed::<TypeMeta>(&tree).and_then(|_| typed(&tree)),
        _ => Err(ConfigError::whole("is not a mapping; begin with `apiVersion: mig-scheduler.io/v1alpha1`")),
    }
}

/// The only document of the text as a tree.
fn tree(text: &str) -> Result<Value, ConfigError> {
    // A byte order mark, which some editors leave; the parser takes what follows one for a second document.
    let mut documents = Deserializer::from_str(text.trim_start_matches('\u{feff}'));
    let tree = documents.next().map(Value::deserialize).ok_or_else(empty)?.map_err(|error| syntax(&error))?;
    match documents.next() {
        None => Ok(tree),
        Some(_) => Err(ConfigError::whole("holds several YAML documents; keep one, without a second `---`")),
    }
}

fn empty() -> ConfigError {
    ConfigError::whole("is empty; print a complete one with `mig-scheduler config default`")
}

/// What the parser says, which names line and column.
fn syntax(error: &serde_yaml::Error) -> ConfigError {
    let message = error.to_string();
    let Some((at, key)) = message.split_once("duplicate entry with key ") else {
        return ConfigError::whole(format!("is not valid YAML: {message}"));
    };
    // The position is that of the mapping, not of the key.
    let key = key.rsplit_once(" at line ").map_or(key, |(key, _)| key);
    ConfigError::at(at.trim_end_matches(": "), format!("the key {key} is written twice; keep one"))
}

fn typed<'a, T: Deserialize<'a>>(tree: &'a Value) -> Result<T, ConfigError> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let (at, key, value) = locate(tree, error.path());
        ConfigError::at(at, explain(&key, &value, &error.inner().to_string()))
    })
}

/// The path as a user writes it (`profiles[0].schedulerName`), its last key, and the value there in a few words.
fn locate(tree: &Value, path: &Path) -> (String, String, String) {
    let (mut at, mut last, mut value) = (String::new(), "", Some(tree));
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                at.push_str(&format!("[{index}]"));
                value = value.and_then(|value| value.get(index));
            }
            Segment::Map { key } => {
                let dot = if at.is_empty() { "" } else { "." };
                at.push_str(&format!("{dot}{key}"));
                value = value.and_then(|value| value.get(key));
                last = key;
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    (at, last.to_owned(), value.map_or_else(|| "this".to_owned(), in_few_words))
}

fn in_few_words(value: &Value) -> String {
    match value {
        Value::Null => "an empty value".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => quote(value),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Mapping(_) => "a mapping".to_owned(),
        Value::Tagged(value) => format!("the tag {}", quote(&value.tag.to_string())),
    }
}

/// The document as text.
pub(super) fn encode(document: &MigSchedulerConfiguration) -> Result<String, ConfigError> {
    serde_yaml::to_string(document).map_err(|error| ConfigError::whole(format!("cannot be written: {error}")))
}
