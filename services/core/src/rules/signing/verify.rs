//! Verifying a Standard Webhooks signature, as a receiver does.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::Mac;
use http::HeaderMap;

use super::{HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, SigningKey, VERSION};

/// How far a timestamp may be from the clock, either way: what the reference libraries take.
pub const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);

/// Most signatures that are looked at: bounds the work that a stranger can ask for.
const MAX_SIGNATURES: usize = 64;

/// Why a message is not taken as genuine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A header is not there.
    #[error("the header `{0}` is missing")]
    Missing(&'static str),
    /// The id or the timestamp is there twice: neither is picked.
    #[error("the header `{0}` is there more than once")]
    Repeated(&'static str),
    /// A header is not visible ASCII.
    #[error("the header `{0}` can't be read")]
    Unreadable(&'static str),
    /// Not whole seconds since 1970.
    #[error("the timestamp is not a whole number of seconds since 1970")]
    Timestamp,
    /// Before the tolerance.
    #[error("the timestamp is {0} s in the past, beyond the tolerance")]
    TooOld(u64),
    /// After the tolerance.
    #[error("the timestamp is {0} s in the future, beyond the tolerance")]
    TooNew(u64),
    /// No signature matches any key.
    #[error("no signature matches: another secret, or an altered id, timestamp or body")]
    Signature,
}

/// Whether one of the keys signed this message, within the tolerance of `now` (seconds since
/// 1970).
///
/// Several `webhook-signature` lines count as one list. Elements that are empty, of another
/// version or not base64 are skipped. Signatures are compared in constant time.
///
/// # Errors
/// [`Rejection`].
pub fn verify(
    headers: &HeaderMap,
    body: &[u8],
    keys: &[SigningKey],
    now: i64,
    tolerance: Duration,
) -> Result<(), Rejection> {
    let id = single(headers, HEADER_ID)?;
    let timestamp = single(headers, HEADER_TIMESTAMP)?;
    check_time(timestamp, now, tolerance)?;
    let mut lines = headers.get_all(HEADER_SIGNATURE).iter().peekable();
    if lines.peek().is_none() {
        return Err(Rejection::Missing(HEADER_SIGNATURE));
    }
    let mut signatures = Vec::new();
    for line in lines {
        let line = line
            .to_str()
            .map_err(|_| Rejection::Unreadable(HEADER_SIGNATURE))?;
        signatures.extend(line.split(' ').filter_map(decode));
    }
    signatures.truncate(MAX_SIGNATURES);
    let genuine = keys.iter().any(|key| {
        let mac = key.mac(id, timestamp, body);
        signatures
            .iter()
            .any(|signature| mac.clone().verify_slice(signature).is_ok())
    });
    if genuine {
        Ok(())
    } else {
        Err(Rejection::Signature)
    }
}

fn single<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, Rejection> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Rejection::Missing(name))?;
    if values.next().is_some() {
        return Err(Rejection::Repeated(name));
    }
    value.to_str().map_err(|_| Rejection::Unreadable(name))
}

/// Digits only: `+5`, ` 5` and `5.0` would be signed as they stand but read as something else.
fn check_time(text: &str, now: i64, tolerance: Duration) -> Result<(), Rejection> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let at: i64 = Some(text)
        .filter(|_| digits)
        .and_then(|text| text.parse().ok())
        .ok_or(Rejection::Timestamp)?;
    let distance = now.abs_diff(at);
    if distance <= tolerance.as_secs() {
        Ok(())
    } else if at < now {
        Err(Rejection::TooOld(distance))
    } else {
        Err(Rejection::TooNew(distance))
    }
}

fn decode(element: &str) -> Option<Vec<u8>> {
    let (version, encoded) = element.split_once(',')?;
    if version != VERSION {
        return None;
    }
    STANDARD.decode(encoded).ok()
}
