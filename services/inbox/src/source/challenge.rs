//! Handshakes: requests by which a partner finds out whether somebody is there.

use std::fmt;

use http::{Method, StatusCode};

use crate::verify::encoding::hex;
use crate::verify::key::Key;
use crate::verify::place::{Parts, Place};
use crate::verify::scheme::Condition;

/// Longest value that is given back, in bytes.
const MAX_VALUE: usize = 1024;

/// What a handshake is answered. To be sent with `X-Content-Type-Options: nosniff`, since a part of it
/// is the requester's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The body's type; none without a body.
    pub content_type: Option<&'static str>,
    /// The body, of 8 KiB at most.
    pub body: String,
}

impl Answer {
    fn refusal(status: StatusCode) -> Self {
        Self {
            status,
            content_type: None,
            body: String::new(),
        }
    }
}

/// A handshake.
pub(super) struct Challenge {
    pub(super) method: Method,
    pub(super) when: Vec<Condition>,
    pub(super) proof: Proof,
    pub(super) value: Option<Place>,
    pub(super) status: StatusCode,
    pub(super) json: bool,
    pub(super) body: String,
}

/// What shows that it is the partner's.
pub(super) enum Proof {
    /// Its signature.
    Signature,
    /// A token at this place.
    Token(Place, Box<Key>),
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenge({})", self.method)
    }
}

impl Challenge {
    /// Whether it is to be signed.
    pub(super) fn signed(&self) -> bool {
        matches!(self.proof, Proof::Signature)
    }

    /// Whether a request is this handshake.
    pub(super) fn concerns(&self, parts: &Parts<'_>) -> bool {
        parts.method == Some(&self.method) && self.when.iter().all(|one| one.holds(parts))
    }

    /// The answer. `key` is the one that verified the request.
    pub(super) fn answer(&self, parts: &Parts<'_>, key: Option<&Key>) -> Answer {
        if let Proof::Token(place, token) = &self.proof {
            let presented = parts.text(place).ok().flatten().unwrap_or_default();
            if !token.verifies(&[], &[presented.as_bytes().to_vec()]) {
                return Answer::refusal(StatusCode::FORBIDDEN);
            }
        }
        let value = match &self.value {
            None => String::new(),
            Some(place) => match parts.text(place) {
                Ok(Some(value)) if value.len() <= MAX_VALUE => value.into_owned(),
                _ => return Answer::refusal(StatusCode::BAD_REQUEST),
            },
        };
        if self.body.is_empty() {
            return Answer::refusal(self.status);
        }
        let hmac = key.and_then(|key| key.hmac(value.as_bytes()));
        let hmac = hmac.map(|tag| hex(tag.as_ref())).unwrap_or_default();
        let shown = if self.json { quoted(&value) } else { value };
        Answer {
            status: self.status,
            content_type: Some(if self.json {
                "application/json"
            } else {
                "text/plain; charset=utf-8"
            }),
            // The value last: what stands in it is not looked into.
            body: self
                .body
                .replace("{hmac}", &hmac)
                .replace("{value}", &shown),
        }
    }
}

/// A text as it stands between the quotes of a JSON string.
fn quoted(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
