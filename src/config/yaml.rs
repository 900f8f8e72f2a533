//! YAML (and JSON, which is YAML) in and out; the only user of serde_yaml.
//!
//! Invariant: whatever the bytes are, the answer is a document or a one-line error, never a panic, and no more than the
//! limit of its [`Form`] is held. Decoding takes two steps, because each finds errors the other words badly: text to
//! a tree (syntax, duplicate keys, several documents), then the tree to the wire form (names and types, with their
//! path). serde_yaml is unmaintained: it is fed local files of an operator only, never anything from the network.

use std::fs::File;
use std::io::{self, Read};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_path_to_error::{Path, Segment};
use serde_yaml::{Deserializer, Value};

use super::error::{ConfigError, quote};
use super::explain::explain;
use super::v1alpha1::{MigSchedulerConfiguration, TypeMeta};

/// What the errors of one kind of document say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// What it is called.
    pub name: &'static str,
    /// The largest that is read, in MiB.
    pub size_limit_mib: u64,
    /// Where one to start from comes from.
    pub example: &'static str,
    /// How one begins.
    pub head: &'static str,
}

/// The configuration file. Its limit is that of a ConfigMap.
pub(super) const CONFIGURATION: Form = Form {
    name: "configuration file",
    size_limit_mib: 1,
    example: "print a complete one with `mig-scheduler config default`",
    head: "begin with `apiVersion: mig-scheduler.io/v1alpha1`",
};

/// The text of the file.
pub(crate) fn read(path: &std::path::Path, form: &Form) -> Result<String, ConfigError> {
    File::open(path)
        .map_err(|error| ConfigError::whole(reason(&error, form)))
        .and_then(|file| read_from(file, form))
}

/// The text that `source` has until it ends.
pub(crate) fn read_from(source: impl Read, form: &Form) -> Result<String, ConfigError> {
    let limit = form.size_limit_mib << 20;
    let mut bytes = Vec::new();
    // One byte more than the limit, so that a larger file shows.
    let read = source.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| ConfigError::whole(reason(&error, form)))?;
    if bytes.len() as u64 > limit {
        let problem = format!("is larger than {} MiB; this is not a {}", form.size_limit_mib, form.name);
        return Err(ConfigError::whole(problem));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ConfigError::whole(format!("is not UTF-8 text, from byte {at} on; save it as UTF-8"))
    })
}

fn reason(error: &io::Error, form: &Form) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("no such file; {}", form.example),
        io::ErrorKind::IsADirectory => "is a directory; name the file in it".into(),
        io::ErrorKind::PermissionDenied => "may not be read; give this user permission to read it".into(),
        _ => format!("cannot be read: {error}"),
    }
}

/// The configuration in `text`.
pub(super) fn decode_configuration(text: &str) -> Result<MigSchedulerConfiguration, ConfigError> {
    let tree = tree(text, &CONFIGURATION)?;
    typed::<TypeMeta>(&tree).and_then(|_| typed(&tree))
}

/// The document in `text`.
pub(crate) fn decode<T: DeserializeOwned>(text: &str, form: &Form) -> Result<T, ConfigError> {
    typed(&tree(text, form)?)
}

/// The only document of the text as a tree, which is a mapping.
fn tree(text: &str, form: &Form) -> Result<Value, ConfigError> {
    let empty = || ConfigError::whole(format!("is empty; {}", form.example));
    // A byte order mark, which some editors leave; the parser takes what follows one for a second document.
    let mut documents = Deserializer::from_str(text.trim_start_matches('\u{feff}'));
    let tree = documents.next().map(Value::deserialize).ok_or_else(empty)?.map_err(|error| syntax(&error))?;
    match (documents.next(), tree) {
        (Some(_), _) => {
            Err(ConfigError::whole("holds several YAML documents; keep one, without a second `---`"))
        }
        (None, Value::Null) => Err(empty()),
        (None, tree @ Value::Mapping(_)) => Ok(tree),
        (None, _) => Err(ConfigError::whole(format!("is not a mapping; {}", form.head))),
    }
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
pub(crate) fn encode(document: &impl Serialize) -> Result<String, ConfigError> {
    serde_yaml::to_string(document).map_err(|error| ConfigError::whole(format!("cannot be written: {error}")))
}
