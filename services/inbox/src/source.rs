//! Sources: what each partner's webhooks look like, and all that can be said of one request
//! without asking anybody.
//!
//! A [`Block`] is a source as it is configured, a [`Source`] what it compiles to. A source says
//! whether a request is the partner's, what handshake it is, which id its event has, and, later,
//! what the event is about. All of it is pure; only compiling reads files, once.
//!
//! Does not own the HTTP around it, what is stored, or what becomes of an event.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Utc};
use hooklane_core::config::Faults;
use hooklane_core::rules::transition;
use http::{HeaderMap, HeaderName, Method};
use ring::digest::{self, SHA256};
use url::Url;

mod block;
mod challenge;
mod compile;
mod preset;
mod secrets;
#[cfg(test)]
mod tests;

pub use block::{
    Block, CertificateBlock, ChallengeBlock, EntityBlock, Format, GrammarName, HandOff, Mode,
    SameBody, SameBodyPolicy, SchemeBlock, SplitBlock, TimestampBlock,
};
pub use challenge::Answer;
pub use preset::names as presets;

pub use crate::read::{Entity, Event, Item, Part, Reading, Unreadable};
pub use crate::verify::Reject;
pub use crate::verify::encoding::Encoding;
pub use crate::verify::key::{Algorithm, KeyForm};
pub use crate::verify::timestamp::Unit;

use crate::read::Rules;
use crate::verify::encoding::hex;
use crate::verify::place::{Parts, Place};
use crate::verify::scheme::Scheme;
use crate::verify::template::Template;
use challenge::Challenge;

/// Longest id of a partner's event, in characters: what the ledger's column holds.
const MAX_ID: usize = 100;
/// What the ids begin with that are hashes.
const HASHED: &str = "sha256:";
/// Words of headers that hold secrets, whatever the source: `Authorization`, `X-Gitlab-Token`.
const SECRET_WORDS: [&str; 12] = [
    "authorization",
    "cookie",
    "token",
    "accesstoken",
    "secret",
    "password",
    "passwd",
    "credential",
    "credentials",
    "jwt",
    "assertion",
    "apikey",
];
/// Ends of those that hold secrets or signatures.
const SECRET_ENDS: [&str; 4] = ["api-key", "auth-key", "access-key", "signature"];
/// An id, though its name sounds like a secret.
const ID: &str = "idempotency-token";

/// A source that is ready to use. `Debug` shows its slug alone.
pub struct Source {
    slug: String,
    enabled: bool,
    warnings: Vec<String>,
    max_body: usize,
    methods: Vec<Method>,
    integrity: Integrity,
    hand_off: HandOff,
    same_body: SameBody,
    parameters: BTreeMap<String, String>,
    format: Format,
    schemes: Vec<Scheme>,
    challenges: Vec<Challenge>,
    event_id: Vec<Template>,
    rules: Rules,
    /// Headers that hold the signature, or the secret itself.
    proofs: Vec<HeaderName>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.slug)
    }
}

/// A request, as far as the checks need it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its query as it came, without the `?`.
    pub query: Option<&'a str>,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body as it came.
    pub body: &'a [u8],
    /// The certificate at [`Source::certificate_url`], in PEM.
    pub certificates: Option<&'a [u8]>,
}

/// What is known of a request that is the partner's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Where the key stands in the configuration, such as `secrets.0`; `certificate` where the request
    /// named one.
    pub key_label: String,
    /// The scheme's name.
    pub scheme: String,
    /// When the partner signed, where it says so.
    pub timestamp: Option<DateTime<Utc>>,
    by: usize,
    key: Option<usize>,
}

/// An event's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The partner's, or `sha256:` and a hash in hex where that doesn't fit or isn't there. 1 to 100
    /// characters, none of them a control character.
    pub id: String,
    /// Whether the signature covers it. Otherwise whoever repeats the request can choose it.
    pub signed: bool,
}

/// What a source's signatures cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integrity {
    /// Whether that is every byte of the body.
    pub full: bool,
    /// What is covered, for people.
    pub covers: String,
    /// What is not.
    pub not_covered: String,
}

/// `full`, or `partial:` and what is not covered; fit for a header.
impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.full {
            f.write_str("full")
        } else {
            write!(f, "partial: {}", self.not_covered)
        }
    }
}

impl Source {
    /// Compiles a block; none where something is wrong with it. Reads the files that it names.
    pub fn compile(slug: &str, block: &Block, faults: &mut Faults) -> Option<Self> {
        compile::compile(slug, block, faults)
    }

    /// Its name in addresses, subjects and the ledger.
    #[must_use]
    pub fn slug(&self) -> &str {
        &self.slug
    }

    /// Whether it takes anything.
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// What a person should know about its configuration, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Largest body, in bytes.
    #[must_use]
    pub fn max_body(&self) -> usize {
        self.max_body
    }

    /// The methods that it takes; `GET` where a challenge comes that way.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// What its signatures cover.
    #[must_use]
    pub fn integrity(&self) -> &Integrity {
        &self.integrity
    }

    /// How its events get to the adopter.
    #[must_use]
    pub fn hand_off(&self) -> &HandOff {
        &self.hand_off
    }

    /// What becomes of a body that comes again under another id.
    #[must_use]
    pub fn same_body(&self) -> &SameBody {
        &self.same_body
    }

    /// Whether a header may be kept. None that holds a secret may, of this source or any other: a
    /// partner may be sent here that belongs elsewhere. Nor may a signature, which is as good for
    /// whoever sends the request again.
    #[must_use]
    pub fn keeps(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let secret = text.split('-').any(|word| SECRET_WORDS.contains(&word))
            || SECRET_ENDS.iter().any(|end| text.ends_with(end));
        let named = || text.ends_with(ID) || self.reads(name);
        !self.proofs.contains(name) && (!secret || named())
    }

    /// Whether the source's own configuration looks for an id, a type or a key there.
    fn reads(&self, name: &HeaderName) -> bool {
        let looked = self.event_id.iter().flat_map(Template::places);
        let mut looked = looked.chain(self.rules.places());
        looked.any(|place| matches!(place, Place::Header(header) if header == name))
    }

    /// The address of the certificate that signed the request, where the source's partner signs with
    /// one: to be fetched without following redirects, and put into the request.
    ///
    /// # Errors
    /// [`Reject`] where the request has no signature that it could check, names no certificate, or one
    /// outside the partner's domain.
    pub fn certificate_url(&self, request: &Request<'_>) -> Result<Option<Url>, Reject> {
        let parts = self.parts(request);
        for scheme in &self.schemes {
            if let Some(certificates) = &scheme.certificates {
                scheme.signature.signatures(&parts)?;
                return certificates.url(&parts).map(Some);
            }
        }
        Ok(None)
    }

    /// Whether the request is the partner's.
    ///
    /// # Errors
    /// [`Reject`]: that of the first scheme which the request attempts.
    pub fn verify(&self, request: &Request<'_>, now: DateTime<Utc>) -> Result<Verified, Reject> {
        let parts = self.parts(request);
        let mut reject = Reject::NoScheme;
        for (by, scheme) in self.schemes.iter().enumerate() {
            if !scheme.concerns(&parts) {
                continue;
            }
            match scheme.check(&parts, request.certificates, now) {
                Ok(found) => {
                    let label = found.key.and_then(|key| scheme.keys.get(key));
                    return Ok(Verified {
                        key_label: label.map_or("certificate", |key| &key.label).to_owned(),
                        scheme: scheme.label.clone(),
                        timestamp: found.timestamp,
                        by,
                        key: found.key,
                    });
                }
                Err(error) => {
                    // A scheme that found no signature of its own says less than one that did.
                    let unattempted = matches!(
                        reject,
                        Reject::NoScheme | Reject::MissingSignature | Reject::MalformedSignature
                    );
                    if unattempted {
                        reject = error;
                    }
                }
            }
        }
        Err(reject)
    }

    /// The answer to a handshake, where the request is one. Asked for before the check with none, for
    /// those that come without a signature, and after it with what it found. An answer is final.
    #[must_use]
    pub fn challenge(&self, request: &Request<'_>, verified: Option<&Verified>) -> Option<Answer> {
        let parts = self.parts(request);
        let key = verified.and_then(|found| self.schemes.get(found.by)?.keys.get(found.key?));
        let asked = |challenge: &&Challenge| {
            challenge.signed() == verified.is_some() && challenge.concerns(&parts)
        };
        self.challenges
            .iter()
            .find(asked)
            .map(|challenge| challenge.answer(&parts, key))
    }

    /// The event's id. One that can't be read is a hash; the event then shows why it can't.
    #[must_use]
    pub fn identify(&self, request: &Request<'_>, verified: &Verified) -> Identity {
        let parts = self.parts(request);
        let Some(scheme) = self.schemes.get(verified.by) else {
            return Identity {
                id: hashed(request.body),
                signed: false,
            };
        };
        for template in &self.event_id {
            match template.text(&parts) {
                Ok(Some(text)) => {
                    let signed = template.places().all(|place| scheme.covers(place));
                    return Identity {
                        id: fitting(text),
                        signed,
                    };
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
        Identity {
            id: digested(scheme.content_sha256(&parts)),
            signed: scheme.covers_content(),
        }
    }

    /// What a stored event is about. `headers` are those that were kept; an item of a batch has its
    /// batch's.
    #[must_use]
    pub fn read(&self, part: Part, headers: &HeaderMap, body: &[u8]) -> Reading {
        let format = if part == Part::Item {
            Format::Json
        } else {
            self.format
        };
        let parts = Parts::new(headers, body, &self.parameters, format);
        self.rules
            .read(part, &parts, format, &self.event_id, &self.schemes)
    }

    /// The machine of an entity's type; none where every event applies.
    #[must_use]
    pub fn machine(&self, entity_type: &str) -> Option<&transition::Machine> {
        self.rules.machine(entity_type)
    }

    fn parts<'a>(&'a self, request: &Request<'a>) -> Parts<'a> {
        let mut parts = Parts::new(request.headers, request.body, &self.parameters, self.format);
        parts.method = Some(request.method);
        parts.query = request.query;
        parts
    }
}

/// An id that the ledger can hold, and that no other id is mistaken for.
pub(crate) fn fitting(id: String) -> String {
    let odd =
        |id: &str| id.is_empty() || id.chars().any(char::is_control) || id.starts_with(HASHED);
    if odd(&id) || id.chars().count() > MAX_ID {
        hashed(id.as_bytes())
    } else {
        id
    }
}

/// The id that is a hash of these bytes.
pub(crate) fn hashed(bytes: &[u8]) -> String {
    digested(digest::digest(&SHA256, bytes))
}

/// The id that is this hash.
pub(crate) fn digested(hash: digest::Digest) -> String {
    format!("{HASHED}{}", hex(hash.as_ref()))
}
