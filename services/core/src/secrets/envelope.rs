//! The encrypted form of one secret; see the module above for its layout.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use secrecy::SecretSlice;

use super::Error;

/// Longest id of a master key, in bytes.
pub(super) const MAX_KEY_ID: usize = 32;

const VERSION: u8 = 1;
const NONCE: usize = 24;
const TAG: usize = 16;

/// An envelope's parts.
pub(super) struct Envelope<'e> {
    /// Which master key it is under.
    pub(super) key_id: &'e str,
    /// Version and key id as they stand, which are authenticated too.
    head: &'e [u8],
    nonce: [u8; NONCE],
    ciphertext: &'e [u8],
}

impl<'e> Envelope<'e> {
    /// Takes an envelope apart without a key.
    pub(super) fn parse(stored: &'e [u8]) -> Result<Self, Error> {
        let [version, id_len, rest @ ..] = stored else {
            return Err(Error::Malformed("it is too short"));
        };
        if *version != VERSION {
            return Err(Error::Malformed("its version is unknown"));
        }
        let id_len = usize::from(*id_len);
        if !(1..=MAX_KEY_ID).contains(&id_len) {
            return Err(Error::Malformed("its key id has an impossible length"));
        }
        let too_short = Error::Malformed("it is too short");
        let Some((key_id, rest)) = rest.split_at_checked(id_len) else {
            return Err(too_short);
        };
        let Some((&nonce, ciphertext)) = rest.split_first_chunk::<NONCE>() else {
            return Err(too_short);
        };
        if ciphertext.len() < TAG {
            return Err(too_short);
        }
        let key_id = std::str::from_utf8(key_id)
            .ok()
            .filter(|id| id.bytes().all(|b| b.is_ascii_graphic()))
            .ok_or(Error::Malformed("its key id is not text"))?;
        Ok(Self {
            key_id,
            head: &stored[..2 + id_len],
            nonce,
            ciphertext,
        })
    }

    /// The secret inside.
    pub(super) fn open(&self, key: &[u8; 32], aad: &[u8]) -> Result<SecretSlice<u8>, Error> {
        let aad = [self.head, aad].concat();
        let payload = Payload {
            msg: self.ciphertext,
            aad: &aad,
        };
        XChaCha20Poly1305::new(key.into())
            .decrypt(&XNonce::from(self.nonce), payload)
            .map(SecretSlice::from)
            .map_err(|_| Error::WrongKey {
                id: self.key_id.to_owned(),
            })
    }
}

/// An envelope around a secret, with a random nonce: 192 bits are enough to never meet one twice.
pub(super) fn seal(
    key_id: &str,
    key: &[u8; 32],
    plaintext: &[u8],
    aad: &[u8],
) -> Result<Vec<u8>, Error> {
    let id_len = u8::try_from(key_id.len()).map_err(|_| Error::Malformed("its key id is long"))?;
    let nonce: [u8; NONCE] = rand::random();
    let mut stored = vec![VERSION, id_len];
    stored.extend_from_slice(key_id.as_bytes());
    let aad = [&stored, aad].concat();
    let payload = Payload {
        msg: plaintext,
        aad: &aad,
    };
    let ciphertext = XChaCha20Poly1305::new(key.into())
        .encrypt(&XNonce::from(nonce), payload)
        .map_err(|_| Error::TooLarge)?;
    stored.extend_from_slice(&nonce);
    stored.extend_from_slice(&ciphertext);
    Ok(stored)
}
