//! Standard Webhooks signatures, version `v1`: HMAC-SHA256 over `id.timestamp.body`.
//!
//! Owns secrets' text form, signing and verifying. Does not own where secrets are kept (see
//! [`crate::secrets`]), when they rotate, or the clock. The asymmetric version `v1a` is not
//! offered: its keys are refused with a message that says so, and its signatures are skipped.
//!
//! Signing is on the path of every attempt, so that a [`SigningKey`] keeps the HMAC with its key
//! already mixed in: two blocks of SHA-256 fewer each time, and no base64 to decode.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;
use std::fmt;

#[cfg(test)]
mod tests;
mod verify;

pub use verify::{DEFAULT_TOLERANCE, Rejection, verify};

/// The header with the message's id.
pub const HEADER_ID: &str = "webhook-id";
/// The header with the attempt's time, in seconds since 1970.
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures.
pub const HEADER_SIGNATURE: &str = "webhook-signature";

/// Most secrets that sign at once: the newest and those still in their grace time.
pub const MAX_KEYS: usize = 8;

const PREFIX: &str = "whsec_";
const VERSION: &str = "v1";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const MAX_ID: usize = 255;

/// An endpoint's signing secret: 24 to 64 bytes, written `whsec_` and base64.
#[derive(Clone)]
pub struct Secret(SecretSlice<u8>);

/// A text that is no signing secret. Never holds any of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// White space around it.
    #[error("the secret has white space around it; remove it")]
    Blank,
    /// An ed25519 key.
    #[error(
        "the secret is an ed25519 key (whsk_ or whpk_), which is not offered; give a whsec_ one"
    )]
    Asymmetric,
    /// Another prefix, or none.
    #[error("the secret does not start with `whsec_`; give it whole, with nothing in front")]
    Prefix,
    /// Not base64.
    #[error("the secret is not base64 after `whsec_`; give standard base64 with its padding")]
    Base64,
    /// Too short or too long.
    #[error("the secret has {0} bytes; give 24 to 64, in base64 after `whsec_`")]
    Length(usize),
}

impl Secret {
    /// Reads `whsec_…`.
    ///
    /// # Errors
    /// [`InvalidSecret`]; nothing is trimmed or guessed, since a secret that is silently read as
    /// another one fails at the receiver.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        if text.trim() != text {
            return Err(InvalidSecret::Blank);
        }
        if text.starts_with("whsk_") || text.starts_with("whpk_") {
            return Err(InvalidSecret::Asymmetric);
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(InvalidSecret::Prefix)?;
        let bytes = STANDARD
            .decode(encoded)
            .map_err(|_| InvalidSecret::Base64)?;
        Self::from_bytes(bytes)
    }

    /// Takes the bytes themselves.
    ///
    /// # Errors
    /// [`InvalidSecret::Length`] outside 24 to 64.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, InvalidSecret> {
        let len = bytes.len();
        // Moved into the secret first, so that it is wiped also where it is refused.
        let secret = SecretSlice::from(bytes);
        if KEY_BYTES.contains(&len) {
            Ok(Self(secret))
        } else {
            Err(InvalidSecret::Length(len))
        }
    }

    /// Takes 32 bytes, the length that new secrets have.
    #[must_use]
    pub fn from_key(bytes: [u8; 32]) -> Self {
        Self(SecretSlice::from(bytes.to_vec()))
    }

    /// The text form, for its owner and for encryption; not to be logged.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(self.0.expose_secret()))
    }

    /// What signs with it.
    #[must_use]
    pub fn key(&self) -> SigningKey {
        SigningKey(keyed(self.0.expose_secret()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([redacted])")
    }
}

/// A secret made ready to sign; cheap to clone and to use.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(id.as_bytes());
        mac.update(b".");
        mac.update(timestamp.as_bytes());
        mac.update(b".");
        mac.update(body);
        mac
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey([redacted])")
    }
}

/// The error of `new_from_slice` is for other MACs: HMAC takes keys of any length.
fn keyed(bytes: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(bytes).expect("HMAC takes keys of any length")
}

/// A message that can't be signed: a fault of ours, never the receiver's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotSign {
    /// No secret at all: unsigned messages are not sent.
    #[error("the endpoint has no signing secret")]
    NoKey,
    /// More than [`MAX_KEYS`].
    #[error("the endpoint has {0} signing secrets; at most 8 can sign at once")]
    TooManyKeys(usize),
    /// An id that another message's id, timestamp and body could spell.
    #[error(
        "the message id can't be signed; it must be 1 to 255 visible ASCII characters without a dot"
    )]
    Id,
}

/// The value of `webhook-signature`: one signature a key, in the order of the keys, the newest
/// first.
///
/// `timestamp` is the attempt's own time in seconds since 1970. A dot in `id` is refused, since
/// the signed text joins its parts with dots: ids could otherwise be chosen so that one signature
/// covers two messages.
///
/// # Errors
/// [`CannotSign`].
pub fn sign(
    id: &str,
    timestamp: i64,
    body: &[u8],
    keys: &[SigningKey],
) -> Result<String, CannotSign> {
    match keys.len() {
        0 => return Err(CannotSign::NoKey),
        1..=MAX_KEYS => {}
        more => return Err(CannotSign::TooManyKeys(more)),
    }
    let visible = |b: u8| b.is_ascii_graphic() && b != b'.';
    if id.is_empty() || id.len() > MAX_ID || !id.bytes().all(visible) {
        return Err(CannotSign::Id);
    }
    let timestamp = timestamp.to_string();
    let mut header = String::with_capacity(keys.len() * 48);
    for key in keys {
        if !header.is_empty() {
            header.push(' ');
        }
        header.push_str(VERSION);
        header.push(',');
        let tag = key.mac(id, &timestamp, body).finalize().into_bytes();
        STANDARD.encode_string(tag, &mut header);
    }
    Ok(header)
}
