//! Raw requests to the JetStream API.
//!
//! Answers stay JSON: the definitions are JSON files, so what is compared, updated and shown is
//! what the server says, with fields that a client library of another age would drop.

use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Client;
use crate::error::Error;

/// Longest wait for one answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// Calls `$JS.API.<request>`; `body` may be `Value::Null`.
pub(crate) async fn call<T: DeserializeOwned>(
    client: &Client,
    request: &str,
    body: &Value,
) -> Result<T, Error> {
    let payload = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let answer = client
        .ask(format!("$JS.API.{request}"), None, payload, TIMEOUT)
        .await?;
    read(request, &answer.payload)
}

/// Reads an API answer: an error, or what was asked for.
pub(crate) fn read<T: DeserializeOwned>(request: &str, answer: &[u8]) -> Result<T, Error> {
    let malformed = |source| Error::Malformed {
        request: request.to_owned(),
        source,
    };
    let Outcome { error } = serde_json::from_slice(answer).map_err(malformed)?;
    if let Some(error) = error {
        return Err(Error::Api {
            request: request.to_owned(),
            status: error.code,
            code: error.err_code,
            description: error.description,
        });
    }
    serde_json::from_slice(answer).map_err(malformed)
}

#[derive(serde::Deserialize)]
struct Outcome {
    error: Option<Failure>,
}

#[derive(serde::Deserialize)]
struct Failure {
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_code() {
        let answer = br#"{"type":"x","error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        let error = read::<Value>("STREAM.INFO.X", answer).unwrap_err();
        assert!(error.is_not_found() && !error.is_transient(), "{error}");
        let busy = br#"{"error":{"code":503,"err_code":10008,"description":"unavailable"}}"#;
        assert!(read::<Value>("X", busy).unwrap_err().is_transient());
    }
}
