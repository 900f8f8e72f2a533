//! What the forecaster has learnt, over a restart: in a ConfigMap of our own, some two hundred kilobytes.
//!
//! | key | holds |
//! |---|---|
//! | `schema` | what this is, and in which form |
//! | `sha256` | the hash of the three below |
//! | `model` | the header of the weights, JSON |
//! | `gate` | how the models did, JSON |
//! | `weights` (`binaryData`) | the weights |
//!
//! Invariants: only the leader writes, and only over what it has read (`resourceVersion`); what is read back is used only if
//! schema, size and hash are right. Anything else is refused with a log line and an event, and stays where it is until the next
//! update replaces it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use ring::digest::{Context, SHA256};

use crate::shell::connect::causes;
use crate::shell::lease::LeaderToken;

/// The rights that it needs in its namespace: API group, resource, verb. `get` and `update` are for the one name.
pub const RIGHTS: [(&str, &str, &str); 3] =
    [("", "configmaps", "create"), ("", "configmaps", "get"), ("", "configmaps", "update")];

/// What a ConfigMap of ours says it is. A new form gets a new number.
const SCHEMA: &str = "mig-scheduler.io/forecast-v1";

/// A ConfigMap holds 1 MiB with everything around the data; base64 is not counted.
const SIZE_LIMIT: usize = 900 << 10;

/// All that is kept; what each part means is for others to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The header of the weights.
    pub model: String,
    /// How the models did.
    pub gate: String,
    /// The weights.
    pub weights: Vec<u8>,
}

impl Kept {
    fn len(&self) -> usize {
        self.model.len() + self.gate.len() + self.weights.len()
    }

    /// SHA-256 of all parts with their lengths, in hexadecimal digits.
    fn hash(&self) -> String {
        let mut context = Context::new(&SHA256);
        for part in [self.model.as_bytes(), self.gate.as_bytes(), &self.weights] {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
        context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

const SCHEMA_KEY: &str = "schema";
const HASH_KEY: &str = "sha256";
const MODEL_KEY: &str = "model";
const GATE_KEY: &str = "gate";
const WEIGHTS_KEY: &str = "weights";

/// Why nothing was read or written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another replica may lead.
    #[error("this replica does not lead")]
    NotLeader,
    /// The API server did not answer, or not with a success.
    #[error("{0}")]
    Api(String),
    /// Somebody else has written it since it was read.
    #[error("it was changed since it was read")]
    Conflict,
    /// More than a ConfigMap holds.
    #[error("{0} bytes are more than a ConfigMap holds")]
    TooLarge(usize),
    /// What it holds is not what was written.
    #[error("{0}")]
    Refused(String),
}

/// The ConfigMap.
pub struct Store {
    maps: Api<ConfigMap>,
    events: Api<Event>,
    namespace: String,
    name: String,
    token: LeaderToken,
    timeout: Duration,
    reporter: String,
    /// As it was last read or written.
    version: Option<String>,
}

impl Store {
    /// The ConfigMap `name` in `namespace`. Nothing is read yet.
    pub fn new(
        client: kube::Client,
        (namespace, name): (&str, &str),
        token: LeaderToken,
        timeout: Duration,
        reporter: &str,
    ) -> Store {
        Store {
            maps: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            token,
            timeout,
            reporter: reporter.to_owned(),
            version: None,
        }
    }

    /// What was saved last; `None` where nothing ever was.
    pub async fn load(&mut self) -> Result<Option<Kept>, StoreError> {
        let Some(map) = self.limited(self.maps.get_opt(&self.name)).await? else { return Ok(None) };
        self.version = map.resource_version();
        kept(map).map(Some).map_err(StoreError::Refused)
    }

    /// Saves this in the place of what was read or saved before.
    pub async fn save(&mut self, kept: Kept) -> Result<(), StoreError> {
        if kept.len() > SIZE_LIMIT {
            return Err(StoreError::TooLarge(kept.len()));
        }
        if self.version.is_none() {
            let known = self.limited(self.maps.get_opt(&self.name)).await?;
            self.version = known.and_then(|map| map.resource_version());
        }
        let map = self.map(kept);
        // Asked last: the read above may have taken long.
        if !self.token.is_valid() {
            return Err(StoreError::NotLeader);
        }
        let params = PostParams::default();
        let written = match self.version.take() {
            None => self.limited(self.maps.create(&params, &map)).await?,
            Some(_) => self.limited(self.maps.replace(&self.name, &params, &map)).await?,
        };
        self.version = written.resource_version();
        Ok(())
    }

    fn map(&self, kept: Kept) -> ConfigMap {
        let hash = kept.hash();
        let data = [
            (SCHEMA_KEY, SCHEMA.to_owned()),
            (HASH_KEY, hash),
            (MODEL_KEY, kept.model),
            (GATE_KEY, kept.gate),
        ];
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some([label("app.kubernetes.io/name", "mig-scheduler")].into()),
                resource_version: self.version.clone(),
                ..ObjectMeta::default()
            },
            data: Some(data.map(|(key, value)| (key.to_owned(), value)).into()),
            binary_data: Some([(WEIGHTS_KEY.to_owned(), ByteString(kept.weights))].into()),
            immutable: None,
        }
    }

    /// Tells people, on the ConfigMap, that it was refused.
    pub async fn tell_refused(&self, problem: &str) {
        if !self.token.is_valid() {
            return;
        }
        let event = Event {
            metadata: ObjectMeta { generate_name: Some(format!("{}-", self.name)), ..ObjectMeta::default() },
            event_time: Some(MicroTime(Timestamp::now())),
            reporting_controller: Some("mig-scheduler".to_owned()),
            reporting_instance: Some(self.reporter.chars().take(128).collect()),
            action: Some("Loading".to_owned()),
            reason: Some("ForecastStateRefused".to_owned()),
            type_: Some("Warning".to_owned()),
            note: Some(format!("What the forecaster had learnt is not used: {problem}")),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("ConfigMap".to_owned()),
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectReference::default()
            }),
            ..Event::default()
        };
        if let Err(error) = self.limited(self.events.create(&PostParams::default(), &event)).await {
            tracing::warn!(%error, "Event was not written.");
        }
    }

    async fn limited<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, StoreError> {
        match tokio::time::timeout(self.timeout, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(StoreError::Conflict),
            Ok(Err(error)) => Err(StoreError::Api(causes(&error))),
            Err(_) => Err(StoreError::Api(format!("no answer within {:?}", self.timeout))),
        }
    }
}

/// What a ConfigMap holds, or what is wrong with it.
fn kept(map: ConfigMap) -> Result<Kept, String> {
    let mut text = map.data.unwrap_or_default();
    let mut entry = |key: &str| text.remove(key).unwrap_or_default();
    let schema = entry(SCHEMA_KEY);
    if schema != SCHEMA {
        let found: String = schema.chars().take(100).collect();
        return Err(format!("its schema is {found:?}, not {SCHEMA:?}"));
    }
    let mut data: BTreeMap<String, ByteString> = map.binary_data.unwrap_or_default();
    let Some(ByteString(weights)) = data.remove(WEIGHTS_KEY) else {
        return Err(format!("it has no binaryData.{WEIGHTS_KEY}"));
    };
    let kept = Kept { model: entry(MODEL_KEY), gate: entry(GATE_KEY), weights };
    if kept.len() > SIZE_LIMIT {
        return Err(format!("it has {} bytes, more than were ever written", kept.len()));
    }
    if kept.hash() != entry(HASH_KEY) {
        return Err("its parts do not have the hash that stands beside them".to_owned());
    }
    Ok(kept)
}

fn label(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[cfg(test)]
mod tests;
