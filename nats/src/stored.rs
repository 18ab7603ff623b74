//! Single messages of a stream, by sequence: read and deleted without a durable.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api;
use crate::client::Client;
use crate::error::Error;

/// The code of a deletion of what is not there.
const SEQUENCE_NOT_FOUND: u64 = 10043;
/// The code of any other failed deletion.
const DELETE_FAILED: u64 = 10057;

/// A message as its stream keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The stored subject, with the partition where the stream has a transform.
    pub subject: String,
    /// Its place in the stream.
    pub sequence: u64,
    /// When the stream's leader stored it, by the leader's clock.
    pub stored_at: DateTime<Utc>,
    /// The exact bytes.
    pub payload: Bytes,
    headers: Vec<(String, String)>,
}

impl Stored {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Reads one message; `None` where it is not there.
///
/// # Errors
/// Where the stream's leader can't be asked, or there is no such stream.
pub async fn get(client: &Client, stream: &str, sequence: u64) -> Result<Option<Stored>, Error> {
    let raw = read(client, stream, &json!({ "seq": sequence })).await?;
    Ok(raw.map(|raw| raw.message))
}

/// Reads the first message at or above a sequence whose subject matches; `None` where there is none.
///
/// # Errors
/// As [`get`].
pub async fn next(
    client: &Client,
    stream: &str,
    from: u64,
    subject_filter: &str,
) -> Result<Option<Stored>, Error> {
    let raw = next_raw(client, stream, from, subject_filter).await?;
    Ok(raw.map(|raw| raw.message))
}

/// As [`next`], with the header block.
pub(crate) async fn next_raw(
    client: &Client,
    stream: &str,
    from: u64,
    subject_filter: &str,
) -> Result<Option<Raw>, Error> {
    let which = json!({ "seq": from, "next_by_subj": subject_filter });
    read(client, stream, &which).await
}

/// A message and its header block, which is empty where it has none.
pub(crate) struct Raw {
    pub(crate) message: Stored,
    pub(crate) headers: Vec<u8>,
}

/// Reads the message that `which` asks for; `None` where there is none.
async fn read(client: &Client, stream: &str, which: &Value) -> Result<Option<Raw>, Error> {
    let request = format!("STREAM.MSG.GET.{stream}");
    let answer = api::call::<Answer>(client, &request, which).await;
    let message = match answer {
        Ok(answer) => answer.message,
        Err(error) if error.code() == Some(crate::error::MESSAGE_NOT_FOUND) => return Ok(None),
        Err(error) => return Err(error),
    };
    let block = decoded(&request, message.hdrs)?;
    Ok(Some(Raw {
        message: Stored {
            subject: message.subject,
            sequence: message.seq,
            stored_at: message.time,
            payload: decoded(&request, message.data)?.into(),
            headers: headers(&block),
        },
        headers: block,
    }))
}

/// Deletes one message; `false` where it was not there any more.
///
/// # Errors
/// Where the stream's leader can't be asked or fails, or there is no such stream.
pub async fn delete(client: &Client, stream: &str, sequence: u64) -> Result<bool, Error> {
    let request = format!("STREAM.MSG.DELETE.{stream}");
    // Without overwriting its bytes on disk, which would be slow and is not needed.
    let body = json!({ "seq": sequence, "no_erase": true });
    match api::call::<serde::de::IgnoredAny>(client, &request, &body).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(SEQUENCE_NOT_FOUND) => Ok(false),
        Err(error) if error.code() == Some(DELETE_FAILED) => {
            match get(client, stream, sequence).await? {
                None => Ok(false),
                Some(_) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
struct Answer {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    subject: String,
    seq: u64,
    time: DateTime<Utc>,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
}

fn decoded(request: &str, text: String) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|error| Error::Malformed {
        request: request.to_owned(),
        source: <serde_json::Error as serde::de::Error>::custom(error),
    })
}

/// `NATS/1.0`, then a line a header.
fn headers(block: &[u8]) -> Vec<(String, String)> {
    String::from_utf8_lossy(block)
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_from_their_block() {
        let block = b"NATS/1.0\r\nHooklane-Series: 2\r\nEmpty:\r\nA: b: c\r\n\r\n";
        let read = headers(block);
        let expected = [("Hooklane-Series", "2"), ("Empty", ""), ("A", "b: c")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read, expected);
        assert_eq!(headers(b""), []);
    }
}
