//! A source as it is written: one `[inbox.sources.<slug>]` block, or a preset's file.
//!
//! Owns the keys and their defaults. What they mean together, and what is wrong with them, is
//! found when they are compiled.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hooklane_core::config::Secret;
use hooklane_core::rules::transition;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::verify::encoding::Encoding;
use crate::verify::key::{Algorithm, KeyForm};
use crate::verify::timestamp::Unit;

/// One partner's way in.
///
/// Where a value names a place in a request, it is written `header:x-github-event`,
/// `json:/data/object/id` (a JSON pointer), `form:MessageSid`, `query:token` or `param:webhook_id`.
/// Templates hold places in braces: `{json:/type}.{json:/action}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Block {
    /// Whether it takes anything; otherwise it answers as if it were not there.
    pub enabled: bool,
    /// The partner's way to sign, by name. Without one, `scheme` says it.
    pub preset: Option<String>,
    /// What the partner signs with, at most 8: the new one and the old while they change.
    pub secrets: Vec<Secret>,
    /// Files with one secret each; a line end after it is taken off.
    pub secret_files: Vec<PathBuf>,
    /// What the partner's `GET` must present before its challenge is answered.
    pub verify_token: Option<Secret>,
    /// Values that a preset asks for, such as PayPal's `webhook_id`.
    pub parameters: BTreeMap<String, String>,
    /// The address that the partner calls, without a query, byte for byte. Wanted where the address is
    /// signed.
    pub public_url: Option<String>,
    /// A PEM file with the roots that a partner's certificate must lead to. Without one, the system's.
    pub ca_file: Option<PathBuf>,
    /// How far the partner's clock may be from ours, both ways, 1 s to 7 days; instead of the preset's.
    #[serde(with = "humantime_serde")]
    pub tolerance: Option<Duration>,
    /// Largest body, in bytes, 1 KiB to 16 MiB.
    pub max_body: u32,
    /// `POST`, `PUT`.
    pub methods: Vec<String>,
    /// How bodies are read.
    pub format: Option<Format>,
    /// Templates of the event's id; the first that has something in all its places is it.
    pub event_id: Vec<String>,
    /// Templates of the event's type.
    pub event_type: Vec<String>,
    /// How the partner signs: any of these does.
    pub scheme: Vec<SchemeBlock>,
    /// Handshakes that are answered here.
    pub challenge: Vec<ChallengeBlock>,
    /// How a request with many events is taken apart.
    pub split: Option<SplitBlock>,
    /// What the signature covers, for people; with `not_covered` for a scheme of your own.
    pub covers: Option<String>,
    /// What it does not cover.
    pub not_covered: Option<String>,
    /// What the events are about, and in which order they may change it.
    pub entities: Vec<EntityBlock>,
    /// What becomes of a body that comes again under another id, where ids are not signed.
    pub same_body: SameBody,
    /// How events get to the adopter.
    pub hand_off: HandOff,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            enabled: true,
            preset: None,
            secrets: Vec::new(),
            secret_files: Vec::new(),
            verify_token: None,
            parameters: BTreeMap::new(),
            public_url: None,
            ca_file: None,
            tolerance: None,
            max_body: 1 << 20,
            methods: vec!["POST".to_owned()],
            format: None,
            event_id: Vec::new(),
            event_type: Vec::new(),
            scheme: Vec::new(),
            challenge: Vec::new(),
            split: None,
            covers: None,
            not_covered: None,
            entities: Vec::new(),
            same_body: SameBody::default(),
            hand_off: HandOff::default(),
        }
    }
}

/// How bodies are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON; what is none goes into quarantine.
    #[default]
    Json,
    /// A form.
    Form,
    /// A form where the body is one, else JSON.
    Auto,
    /// Anything: places in JSON are looked for where it is some.
    Any,
}

/// One way in which a partner signs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemeBlock {
    /// Its name, in logs.
    pub label: String,
    /// Where the signature is: `header:…`, or `json:…` for one in the body.
    pub signature: String,
    /// How that is read.
    #[serde(default)]
    pub grammar: GrammarName,
    /// What stands before the signature, for `prefix`.
    #[serde(default)]
    pub prefix: String,
    /// What separates pairs or signatures, for `kv` and `list`; white space around it is taken off.
    #[serde(default = "comma")]
    pub separator: char,
    /// What stands between a name and its value, or a version and its signature.
    #[serde(default = "equals")]
    pub assign: char,
    /// The name of the pairs, or the version, that are signatures.
    #[serde(default)]
    pub name: String,
    /// How a signature is written. Not for tokens.
    pub encoding: Option<Encoding>,
    /// How it is made.
    pub algorithm: Algorithm,
    /// How the secrets are written.
    pub key: KeyForm,
    /// What is signed: a template of `{raw}`, `{ts}`, `{url}`, `{url_unescaped}`, `{method}`,
    /// `{form_sorted}`, `{crc32}` and places. Not for tokens.
    #[serde(default)]
    pub content: String,
    /// When it was signed.
    pub timestamp: Option<TimestampBlock>,
    /// What the request must hold to be signed this way: places, and what is in them. `*` is
    /// something, the empty text is nothing.
    #[serde(default)]
    pub when: BTreeMap<String, String>,
    /// What it must hold beside that; otherwise it is refused.
    #[serde(default)]
    pub require: BTreeMap<String, String>,
    /// A signed place with the body's SHA-256 in hex.
    pub digest: Option<String>,
    /// A JSON pointer to an array whose elements have a signature each; places are seen from there.
    pub each: Option<String>,
    /// Whether the address is also tried with its port, or without.
    #[serde(default)]
    pub url_ports: bool,
    /// Where the certificate is that signs, for the key form `x509`.
    pub certificate: Option<CertificateBlock>,
}

fn comma() -> char {
    ','
}

fn equals() -> char {
    '='
}

/// How a signature's place is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrammarName {
    /// It is the signature.
    #[default]
    Raw,
    /// The signature stands after `prefix`.
    Prefix,
    /// Pairs of a name and a value.
    Kv,
    /// Versions with a signature each.
    List,
}

/// A timestamp that is signed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimestampBlock {
    /// Its place; `kv:t` for a pair of the signature's header.
    pub from: String,
    /// Its unit.
    pub unit: Unit,
    /// How old it may be.
    #[serde(with = "humantime_serde")]
    pub past: Duration,
    /// How far ahead of our clock it may be.
    #[serde(with = "humantime_serde")]
    pub future: Duration,
}

/// A certificate that requests name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateBlock {
    /// The place of its address.
    pub address: String,
    /// The domain that the address and the certificate's name must be in.
    pub domain: String,
}

/// A handshake.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChallengeBlock {
    /// `GET` or `POST`.
    pub method: String,
    /// Whether the request must be signed. Without that it must present the `verify_token`.
    pub signed: bool,
    /// What the request holds, as in a scheme's `when`.
    pub when: BTreeMap<String, String>,
    /// The place of the token.
    pub token: Option<String>,
    /// The place of the value that the answer gives back.
    pub value: Option<String>,
    /// The answer's status.
    #[serde(default = "ok")]
    pub status: u16,
    /// Whether the answer is JSON; else plain text.
    #[serde(default)]
    pub json: bool,
    /// The answer's body; `{value}` is the value, `{hmac}` its HMAC in hex under the secret that
    /// verified the request.
    #[serde(default)]
    pub body: String,
}

fn ok() -> u16 {
    200
}

/// How a request with many events is taken apart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitBlock {
    /// A JSON pointer to the array of events; the empty text for a body that is one.
    pub at: String,
    /// Pointers to arrays within each of those. An element with none of them is one event.
    #[serde(default)]
    pub then: Vec<String>,
    /// Templates of an event's id, seen from the event.
    #[serde(default)]
    pub event_id: Vec<String>,
    /// Templates of its type.
    #[serde(default)]
    pub event_type: Vec<String>,
}

/// What some events are about.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntityBlock {
    /// What it is called, such as `subscription`, 1 to 50 characters.
    #[serde(rename = "type")]
    pub entity_type: String,
    /// The events that are about it: types, or beginnings with a `*` after them.
    #[serde(rename = "match")]
    pub events: Vec<String>,
    /// A template of its key.
    pub key: String,
    /// The place of a number or time that grows from event to event of one entity.
    pub order: Option<String>,
    /// Its states. Without them every event applies.
    pub machine: Option<transition::Config>,
}

/// What becomes of a body that comes again under another id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SameBody {
    /// For how long it is looked for, 0 s to 30 days; 0 s is never.
    #[serde(with = "humantime_serde")]
    pub within: Duration,
    /// What becomes of it.
    pub policy: SameBodyPolicy,
}

impl Default for SameBody {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(24 * 60 * 60),
            policy: SameBodyPolicy::Flag,
        }
    }
}

/// What becomes of a body that came already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SameBodyPolicy {
    /// It is an event, and says which one had the body before.
    Flag,
    /// It is answered like a duplicate and not kept.
    Drop,
}

/// How events get to the adopter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandOff {
    /// The way.
    pub mode: Mode,
    /// The NATS subject that is asked, for `request`.
    pub subject: Option<String>,
    /// The address that is asked, for `request`.
    pub url: Option<Url>,
    /// How long an answer may take, 100 ms to 1 minute.
    #[serde(with = "humantime_serde")]
    pub within: Duration,
}

impl Default for HandOff {
    fn default() -> Self {
        Self {
            mode: Mode::Stream,
            subject: None,
            url: None,
            within: Duration::from_secs(10),
        }
    }
}

/// A way to the adopter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The stream `INBOX`.
    Stream,
    /// A request to a subject or an address, and its answer.
    Request,
    /// The adopter takes events from the database.
    Sql,
}

impl Mode {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Request => "request",
            Self::Sql => "sql",
        }
    }
}
