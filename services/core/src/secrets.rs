//! Secrets at rest: the master keys, and the envelope that endpoint secrets are kept in.
//!
//! Owns the keyring that the config gives, the encrypted form, and making new secrets. Does not
//! own where the envelopes are stored or the command that rotates master keys; it tells which
//! envelopes need it.
//!
//! # The envelope
//!
//! ```text
//! 1 byte   version, 1
//! 1 byte   length of the key's id
//! n bytes  the key's id
//! 24 bytes nonce, random
//! rest     XChaCha20-Poly1305 ciphertext with its tag
//! ```
//!
//! Everything before the nonce is authenticated, and so is the caller's context, which names
//! what the secret belongs to: an envelope copied to another endpoint's row does not open there.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretBox, SecretString};

use crate::rules::signing::Secret;

mod envelope;
mod keyring;
#[cfg(test)]
mod tests;

pub use keyring::{InvalidKeyring, MasterKeyConfig, MasterKeys, is_key, shown_id};

/// Why an envelope does not open. Never holds any of its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Written with a key that the config no longer has.
    #[error(
        "the master key `{id}` is not in the config, but a stored secret needs it; add it again \
         (behind the current one) until all secrets are rotated"
    )]
    UnknownKey {
        /// The key's id.
        id: String,
    },
    /// The key by this name does not open it.
    #[error(
        "the master key `{id}` does not decrypt a stored secret; was it changed? Give the key \
         that the secret was stored with: a new key needs a new id (if the key is right, the \
         stored secret was altered or belongs to another row)"
    )]
    WrongKey {
        /// The key's id.
        id: String,
    },
    /// Not an envelope.
    #[error("a stored secret is malformed: {0}")]
    Malformed(&'static str),
    /// The cipher takes no more than 256 GiB.
    #[error("the secret is too large to encrypt")]
    TooLarge,
}

/// A new signing secret for an endpoint: 32 random bytes.
#[must_use]
pub fn generate_signing_secret() -> Secret {
    Secret::from_key(rand::random())
}

/// What every API key begins with, so that one that leaked is recognised as what it is.
pub const API_KEY_PREFIX: &str = "hlk_";
/// Random bytes of an API key.
const API_KEY_BYTES: usize = 32;
/// Length of an API key's text.
const API_KEY_CHARS: usize = API_KEY_PREFIX.len() + (API_KEY_BYTES * 4).div_ceil(3);

/// The text of a new API key: `hlk_` and 32 random bytes in base64 for URLs, 47 characters.
#[must_use]
pub fn generate_api_key() -> SecretString {
    let bytes: SecretBox<[u8; API_KEY_BYTES]> = SecretBox::new(Box::new(rand::random()));
    // Of its final size from the start: no copy of it stays behind.
    let mut text = String::with_capacity(API_KEY_CHARS);
    text.push_str(API_KEY_PREFIX);
    URL_SAFE_NO_PAD.encode_string(bytes.expose_secret(), &mut text);
    SecretString::from(text)
}

/// Whether a text has the form of an API key, so that it may be one.
#[must_use]
pub fn is_api_key(text: &str) -> bool {
    text.len() == API_KEY_CHARS
        && text
            .strip_prefix(API_KEY_PREFIX)
            .is_some_and(|rest| URL_SAFE_NO_PAD.decode(rest).is_ok())
}

/// The text of a new master key, as the config takes it: 32 random bytes in base64.
#[must_use]
pub fn generate_master_key() -> SecretString {
    let bytes: SecretBox<[u8; 32]> = SecretBox::new(Box::new(rand::random()));
    SecretString::from(STANDARD.encode(bytes.expose_secret()))
}
