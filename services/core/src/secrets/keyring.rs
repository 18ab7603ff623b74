//! The master keys that the config gives: the first encrypts, all decrypt.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::zeroize::Zeroize;
use secrecy::{ExposeSecret, SecretBox, SecretSlice, SecretString};
use serde::Deserialize;

use super::{Error, envelope};

/// What the check value encrypts, and its context.
const CHECK: (&[u8], &[u8]) = (b"hooklane", b"master key check");

/// What is shown where an id should stand and does not.
const NOT_AN_ID: &str = "<not an id>";

/// One master key in the config.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MasterKeyConfig {
    /// Its name, kept with everything it encrypts: 1 to 32 of A-Z, a-z, 0-9, `_` and `-`.
    pub id: String,
    /// 32 random bytes in standard base64, as `openssl rand -base64 32` gives them.
    pub key: SecretString,
}

impl fmt::Debug for MasterKeyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKeyConfig")
            .field("id", &shown_id(&self.id))
            .finish_non_exhaustive()
    }
}

/// A keyring that can't be used. Never holds any key, nor what stands in the place of an id, which
/// may be a key: it tells which of the keys it is, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyring {
    /// No key.
    #[error(
        "there is no master key; give one with an id and 32 random bytes in base64 (openssl rand -base64 32)"
    )]
    Empty,
    /// Not an id.
    #[error(
        "the id of master key number {0} is not an id; give 1 to 32 of A-Z, a-z, 0-9, `_` and `-`, and the key in its own place"
    )]
    Id(usize),
    /// The same id twice.
    #[error("the id of master key number {0} is that of an earlier one; give every key its own")]
    Repeated(usize),
    /// Not 32 bytes in base64.
    #[error(
        "master key number {0} is not 32 bytes in base64; make one with: openssl rand -base64 32"
    )]
    Key(usize),
    /// All bytes are zero.
    #[error(
        "master key number {0} is all zeros, which is no secret; make one with: openssl rand -base64 32"
    )]
    Zeros(usize),
}

struct MasterKey {
    id: String,
    bytes: SecretBox<[u8; 32]>,
}

/// The master keys, the current one first. Not `Clone` and not `Serialize`; `Debug` shows ids.
pub struct MasterKeys {
    current: MasterKey,
    older: Vec<MasterKey>,
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

impl MasterKeys {
    /// Takes the keys of the config, the current one first.
    ///
    /// # Errors
    /// [`InvalidKeyring`] for the first fault.
    pub fn new(config: &[MasterKeyConfig]) -> Result<Self, InvalidKeyring> {
        let mut keys: Vec<MasterKey> = Vec::with_capacity(config.len());
        for (number, entry) in (1..).zip(config) {
            if !is_id(&entry.id) {
                return Err(InvalidKeyring::Id(number));
            }
            if keys.iter().any(|key| key.id == entry.id) {
                return Err(InvalidKeyring::Repeated(number));
            }
            let bytes = decode(&entry.key).ok_or(InvalidKeyring::Key(number))?;
            if bytes.expose_secret().iter().all(|byte| *byte == 0) {
                return Err(InvalidKeyring::Zeros(number));
            }
            let id = entry.id.clone();
            keys.push(MasterKey { id, bytes });
        }
        let mut keys = keys.into_iter();
        let current = keys.next().ok_or(InvalidKeyring::Empty)?;
        let older = keys.collect();
        Ok(Self { current, older })
    }

    /// The id of the key that encrypts.
    #[must_use]
    pub fn current_id(&self) -> &str {
        &self.current.id
    }

    /// All ids, the current one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.all().map(|key| key.id.as_str())
    }

    /// An envelope around a secret, under the current key.
    ///
    /// `aad` names what the secret belongs to, such as an endpoint's id; the same is needed to
    /// open it.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn encrypt(&self, plaintext: &[u8], aad: &[u8]) -> Result<Vec<u8>, Error> {
        let MasterKey { id, bytes } = &self.current;
        envelope::seal(id, bytes.expose_secret(), plaintext, aad)
    }

    /// The secret in an envelope, under whichever key it names.
    ///
    /// # Errors
    /// [`Error::UnknownKey`], [`Error::WrongKey`] (also for another `aad` or altered bytes, which
    /// can't be told apart) or [`Error::Malformed`].
    pub fn decrypt(&self, stored: &[u8], aad: &[u8]) -> Result<SecretSlice<u8>, Error> {
        let opened = envelope::Envelope::parse(stored)?;
        let key = self
            .all()
            .find(|key| key.id == opened.key_id)
            .ok_or_else(|| Error::UnknownKey {
                id: opened.key_id.to_owned(),
            })?;
        opened.open(key.bytes.expose_secret(), aad)
    }

    /// Whether an envelope is under another key than the current one.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn needs_rotation(&self, stored: &[u8]) -> Result<bool, Error> {
        Ok(envelope::Envelope::parse(stored)?.key_id != self.current.id)
    }

    /// A value to keep beside the secrets, so that a wrong master key is found at start and not
    /// at the first attempt.
    ///
    /// # Errors
    /// As [`MasterKeys::encrypt`].
    pub fn check_value(&self) -> Result<Vec<u8>, Error> {
        self.encrypt(CHECK.0, CHECK.1)
    }

    /// Holds a kept check value against the keys.
    ///
    /// # Errors
    /// As [`MasterKeys::decrypt`]; [`Error::Malformed`] where it is no check value.
    pub fn verify_check_value(&self, stored: &[u8]) -> Result<(), Error> {
        let value = self.decrypt(stored, CHECK.1)?;
        if value.expose_secret() == CHECK.0 {
            Ok(())
        } else {
            Err(Error::Malformed("it is not a check value"))
        }
    }

    fn all(&self) -> impl Iterator<Item = &MasterKey> {
        std::iter::once(&self.current).chain(&self.older)
    }
}

/// What may be shown of what stands in the place of a master key's id: an id, and never a key that
/// got there by mistake.
#[must_use]
pub fn shown_id(text: &str) -> &str {
    if is_id(text) { text } else { NOT_AN_ID }
}

/// Whether a text is a master key, which got where it does not belong.
#[must_use]
pub fn is_key(text: &str) -> bool {
    decode(&SecretString::from(text)).is_some()
}

/// A key in base64 is longer than any id.
fn is_id(text: &str) -> bool {
    (1..=envelope::MAX_KEY_ID).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn decode(text: &SecretString) -> Option<SecretBox<[u8; 32]>> {
    let mut decoded = STANDARD.decode(text.expose_secret()).ok()?;
    let bytes = <[u8; 32]>::try_from(decoded.as_slice());
    decoded.zeroize();
    Some(SecretBox::new(Box::new(bytes.ok()?)))
}
