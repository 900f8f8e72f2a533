//! A value kept as a text in somebody else's object, so that it can be told whether it is still what was written.
//!
//! ```text
//! {"version":1,"hash":"8c5f…","body":{…}}        hash = FNV-1a of the body's text
//! ```
//!
//! Invariant: what comes out of [`open`] as valid is what [`seal`] was given by a program that knew the same version. An edit
//! by hand, a cut text or a newer version is damaged and says why; nothing is guessed from it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mig::parted::content_hash;

/// The version that is written and the only one that is read.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    version: u32,
    hash: String,
    body: Box<RawValue>,
}

/// What stands where a document is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading<T> {
    /// Nothing.
    Absent,
    /// What was written.
    Valid(T),
    /// Something else, and what is wrong with it.
    Damaged(String),
}

/// The text that keeps `value`.
pub fn seal<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let body = serde_json::value::to_raw_value(value)?;
    serde_json::to_string(&Sealed { version: VERSION, hash: hash(&body), body })
}

/// Reads what [`seal`] wrote.
pub fn open<T: DeserializeOwned>(text: Option<&str>) -> Reading<T> {
    let Some(text) = text else { return Reading::Absent };
    let sealed: Sealed = match serde_json::from_str(text) {
        Ok(sealed) => sealed,
        Err(error) => return Reading::Damaged(error.to_string()),
    };
    if sealed.version != VERSION {
        return Reading::Damaged(format!("version: {} is not {VERSION}", sealed.version));
    }
    if sealed.hash != hash(&sealed.body) {
        return Reading::Damaged(format!("hash: {} is not that of the body", sealed.hash));
    }
    serde_json::from_str(sealed.body.get()).map_or_else(|e| Reading::Damaged(e.to_string()), Reading::Valid)
}

fn hash(body: &RawValue) -> String {
    format!("{:016x}", content_hash(body.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: Option<&str>, expected: Result<Option<Vec<u8>>, &str>) {
        match (open::<Vec<u8>>(text), expected) {
            (Reading::Damaged(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (Reading::Absent, Ok(None)) => {}
            (Reading::Valid(found), Ok(Some(expected))) => assert_eq!(found, expected),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn only_what_was_sealed_is_valid() {
        let text = seal(&vec![1, 2]).unwrap();
        check(Some(&text), Ok(Some(vec![1, 2])));
        check(None, Ok(None));
        check(Some(&text.replace("[1,2]", "[1,3]")), Err("hash"));
        check(Some(&text.replace("\"version\":1", "\"version\":2")), Err("version: 2 is not 1"));
        check(Some(&text[..text.len() - 4]), Err("EOF"));
        check(Some(""), Err("EOF"));
        check(Some(&seal(&"text").unwrap()), Err("invalid type"));
        check(Some(&text.replace("{", "{\"more\":1,")), Err("unknown field"));
    }
}
