//! `hooklane sign` and `hooklane verify`: Standard Webhooks signatures by hand, for whoever
//! writes a receiver.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hooklane_core::clock;
use hooklane_core::error::ErrorCode;
use hooklane_core::rules::signing::{
    self, HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, SigningKey,
};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;

use super::input;
use crate::context::Context;
use crate::failure::Failure;

/// The secrets to sign or verify with.
#[derive(Debug, Args)]
struct Secrets {
    /// A secret, `whsec_…`; may be repeated. Others on this machine can read a command line:
    /// prefer the variable or --secret-file for a real one.
    #[arg(
        long = "secret",
        value_name = "SECRET",
        env = "HOOKLANE_SIGNING_SECRET",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    secrets: Vec<String>,
    /// A file with a secret; may be repeated.
    #[arg(long = "secret-file", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Secrets {
    fn keys(&self) -> Result<Vec<SigningKey>, Failure> {
        let mut keys = Vec::new();
        for path in &self.files {
            keys.push(input::secret_file(path)?.key());
        }
        if self.files.is_empty() {
            for text in &self.secrets {
                keys.push(input::secret(text)?.key());
            }
        }
        if keys.is_empty() {
            return Err(Failure::usage(
                "there is no secret; give --secret-file, --secret or HOOKLANE_SIGNING_SECRET",
            ));
        }
        Ok(keys)
    }
}

/// Sign a payload as an attempt is signed.
#[derive(Debug, Args)]
pub(crate) struct Sign {
    #[command(flatten)]
    secrets: Secrets,
    /// The message's id.
    #[arg(long)]
    id: String,
    /// Seconds since 1970. [default: now]
    #[arg(long)]
    timestamp: Option<i64>,
    /// The payload (- for standard input).
    #[arg(default_value = "-")]
    body: PathBuf,
}

#[derive(Debug, Serialize)]
struct Signed {
    #[serde(rename = "webhook-id")]
    id: String,
    #[serde(rename = "webhook-timestamp")]
    timestamp: String,
    #[serde(rename = "webhook-signature")]
    signature: String,
}

impl Sign {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let keys = self.secrets.keys()?;
        let body = input::read(&self.body)?;
        let timestamp = self.timestamp.unwrap_or_else(|| clock::now().timestamp());
        let signature = signing::sign(&self.id, timestamp, &body, &keys)
            .map_err(|error| Failure::data(error.to_string()))?;
        let signed = Signed {
            id: self.id,
            timestamp: timestamp.to_string(),
            signature,
        };
        context.output.print(&signed, || {
            format!(
                "{HEADER_ID}: {}\n{HEADER_TIMESTAMP}: {}\n{HEADER_SIGNATURE}: {}",
                signed.id, signed.timestamp, signed.signature
            )
        })
    }
}

/// Verify a signature as a receiver does.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    secrets: Secrets,
    /// The header `webhook-id`.
    #[arg(long)]
    id: String,
    /// The header `webhook-timestamp`.
    #[arg(long)]
    timestamp: String,
    /// The header `webhook-signature`; may be repeated.
    #[arg(long, required = true)]
    signature: Vec<String>,
    /// How far the timestamp may be from now.
    #[arg(long, default_value = "5m", value_parser = input::duration)]
    tolerance: Duration,
    /// The payload (- for standard input).
    #[arg(default_value = "-")]
    body: PathBuf,
}

#[derive(Debug, Serialize)]
struct Verified {
    valid: bool,
}

impl Verify {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let keys = self.secrets.keys()?;
        let mut headers = HeaderMap::new();
        let given = [(HEADER_ID, &self.id), (HEADER_TIMESTAMP, &self.timestamp)];
        let signatures = self.signature.iter().map(|text| (HEADER_SIGNATURE, text));
        for (name, text) in given.into_iter().chain(signatures) {
            let value = HeaderValue::from_str(text)
                .map_err(|_| Failure::data(format!("{name} is no header value")))?;
            headers.append(name, value);
        }
        let body = input::read(&self.body)?;
        let now = clock::now().timestamp();
        signing::verify(&headers, &body, &keys, now, self.tolerance)
            .map_err(|error| Failure::new(ErrorCode::BadSignature, format!("invalid: {error}")))?;
        context
            .output
            .print(&Verified { valid: true }, || "valid".to_owned())
    }
}
