//! A key-value bucket by compare-and-set, read from its leader.
//!
//! Plain stream requests: a value is the last message of `$KV.<bucket>.<key>`, its revision that
//! message's sequence, and a write names the revision that it replaces. Owns no meaning of keys.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::{Error, MESSAGE_NOT_FOUND, WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT};
use crate::publisher::PubAck;
use crate::{api, inspect, topology};

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const OPERATION: &str = "KV-Operation";
/// A write that takes longer is not worth waiting for: leases live for seconds.
const WRITE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct Bucket {
    pub(crate) client: Client,
    name: &'static str,
}

/// A key's last entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) revision: u64,
    /// `None` where the key was deleted.
    pub(crate) value: Option<Bytes>,
    pub(crate) stored: DateTime<Utc>,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Stored, as this revision.
    Stored(u64),
    /// The key has another revision than expected.
    Moved,
}

impl Bucket {
    pub(crate) fn new(client: &Client, name: &'static str) -> Self {
        Self {
            client: client.clone(),
            name,
        }
    }

    /// The name of the stream that the bucket is.
    pub(crate) fn stream(&self) -> String {
        format!("KV_{}", self.name)
    }

    pub(crate) fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name)
    }

    /// When the bucket was made: another time, another bucket.
    pub(crate) async fn created(&self) -> Result<DateTime<Utc>, Error> {
        let state = inspect::stream_state(&self.client, &self.stream()).await;
        match state {
            Err(error) if error.is_not_found() => {
                self.ensure().await?;
                let state = inspect::stream_state(&self.client, &self.stream()).await?;
                Ok(state.created)
            }
            state => Ok(state?.created),
        }
    }

    /// Makes the bucket where it is missing.
    pub(crate) async fn ensure(&self) -> Result<(), Error> {
        topology::ensure_stream(&self.client, &self.stream()).await
    }

    /// A key's last entry, deletions included.
    pub(crate) async fn last(&self, key: &str) -> Result<Option<Entry>, Error> {
        let request = format!("STREAM.MSG.GET.{}", self.stream());
        let body = json!({"last_by_subj": self.subject(key)});
        match api::call::<Answer>(&self.client, &request, &body).await {
            Ok(answer) => answer.message.entry(&request).map(Some),
            Err(Error::Api { code, .. }) if code == MESSAGE_NOT_FOUND => Ok(None),
            Err(error) if error.is_not_found() => {
                self.ensure().await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes where the key's last entry has `revision`, or there is none and it is 0.
    pub(crate) async fn put(&self, key: &str, revision: u64, value: Bytes) -> Result<Write, Error> {
        self.write(key, revision, value, HeaderMap::new()).await
    }

    /// Marks as deleted where the key's last entry has `revision`.
    pub(crate) async fn delete(&self, key: &str, revision: u64) -> Result<Write, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(OPERATION), HeaderValue::from("DEL"));
        self.write(key, revision, Bytes::new(), headers).await
    }

    async fn write(
        &self,
        key: &str,
        revision: u64,
        value: Bytes,
        mut headers: HeaderMap,
    ) -> Result<Write, Error> {
        headers.insert(
            HeaderName::from_static(EXPECTED),
            HeaderValue::from(revision),
        );
        let subject = self.subject(key);
        let asked = self
            .client
            .ask(subject.clone(), Some(headers), value, WRITE);
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(error @ Error::NoResponders { .. }) => {
                // No such stream: made now, written at the caller's next try.
                self.ensure().await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        match api::read::<PubAck>(&subject, &answer.payload) {
            Ok(ack) => Ok(Write::Stored(ack.sequence)),
            Err(Error::Api { code, .. })
                if code == WRONG_LAST_SEQUENCE || code == WRONG_LAST_SEQUENCE_CONSTANT =>
            {
                Ok(Write::Moved)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether headers say that a key was deleted or purged.
pub(crate) fn is_marker(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| {
        headers.get(HeaderName::from_static(OPERATION)).is_some()
            || headers
                .get(HeaderName::from_static("Nats-Marker-Reason"))
                .is_some()
    })
}

#[derive(Deserialize)]
struct Answer {
    message: Stored,
}

#[derive(Deserialize)]
struct Stored {
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
    time: DateTime<Utc>,
}

impl Stored {
    fn entry(self, request: &str) -> Result<Entry, Error> {
        let decode = |text: &str| {
            STANDARD.decode(text).map_err(|error| Error::Malformed {
                request: request.to_owned(),
                source: serde::de::Error::custom(error),
            })
        };
        let headers = decode(&self.hdrs)?;
        let headers = String::from_utf8_lossy(&headers);
        let deleted = headers
            .lines()
            .any(|line| line.starts_with(OPERATION) || line.starts_with("Nats-Marker-Reason"));
        let value = decode(&self.data)?;
        Ok(Entry {
            revision: self.seq,
            value: (!deleted).then(|| value.into()),
            stored: self.time,
        })
    }
}

/// Reads a JSON value; `None` where it is none of ours.
pub(crate) fn json<T: serde::de::DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

/// Writes a JSON value.
pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> Bytes {
    // Plain structs with text keys: this can't fail.
    serde_json::to_vec(value)
        .unwrap_or_else(|_| Value::Null.to_string().into_bytes())
        .into()
}
