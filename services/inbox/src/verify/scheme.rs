//! One scheme: where the signature is, what it is over, and which keys check it.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use ring::digest;

use super::Reject;
use super::certificate::Certificates;
use super::encoding::Encoding;
use super::key::{Algorithm, Key};
use super::place::{Parts, Place};
use super::signature::Location;
use super::template::Template;
use super::timestamp::Timestamp;
use crate::read::json::Pointer;

/// Most items of a body that have a signature each.
const MAX_SIGNED_ITEMS: usize = 100;

/// A way in which a partner signs.
#[derive(Debug)]
pub(crate) struct Scheme {
    pub(crate) label: String,
    /// What a request must hold to be signed this way.
    pub(crate) when: Vec<Condition>,
    /// What it must hold beside that.
    pub(crate) require: Vec<Condition>,
    pub(crate) signature: Location,
    pub(crate) algorithm: Algorithm,
    pub(crate) content: Template,
    pub(crate) timestamp: Option<Timestamp>,
    /// A signed place that holds the body's SHA-256 in hex.
    pub(crate) digest: Option<Place>,
    /// An array of the body; each of its elements has a signature of its own.
    pub(crate) each: Option<Pointer>,
    pub(crate) keys: Vec<Key>,
    pub(crate) certificates: Option<Certificates>,
    /// The public address as the partner may have written it, without its query.
    pub(crate) addresses: Vec<String>,
}

/// A place, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) place: Place,
    pub(crate) is: Expected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Something.
    Something,
    /// Nothing.
    Nothing,
    /// This.
    Text(String),
}

impl Condition {
    pub(crate) fn holds(&self, parts: &Parts<'_>) -> bool {
        let found = parts.text(&self.place);
        match &self.is {
            // What is there twice is there.
            Expected::Something => !matches!(&found, Ok(None)),
            Expected::Nothing => found.is_ok_and(|text| text.is_none_or(|text| text.is_empty())),
            Expected::Text(text) => found.is_ok_and(|found| found.as_deref() == Some(text)),
        }
    }
}

/// What verified a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    /// None: the certificate.
    pub(crate) key: Option<usize>,
    pub(crate) timestamp: Option<DateTime<Utc>>,
}

impl Scheme {
    /// Whether a request is signed this way, as far as it says.
    pub(crate) fn concerns(&self, parts: &Parts<'_>) -> bool {
        self.when.iter().all(|condition| condition.holds(parts))
    }

    /// Checks it.
    ///
    /// # Errors
    /// [`Reject`]. Times are looked at last, so that what is too old is the partner's for certain.
    pub(crate) fn check(
        &self,
        parts: &Parts<'_>,
        certificates: Option<&[u8]>,
        now: DateTime<Utc>,
    ) -> Result<Match, Reject> {
        let Some(pointer) = &self.each else {
            return self.check_one(parts, certificates, now);
        };
        let root = parts.json().map_err(|_| Reject::UnreadableBody)?;
        let list = root.at(pointer).map_err(|_| Reject::RepeatedPart)?;
        let items = list
            .and_then(|list| list.elements())
            .ok_or(Reject::MissingSignature)?;
        let mut first = None;
        for (index, item) in items.enumerate() {
            if index == MAX_SIGNED_ITEMS {
                return Err(Reject::TooManySignatures);
            }
            let found = self.check_one(&parts.item(item), certificates, now)?;
            first = first.or(Some(found));
        }
        first.ok_or(Reject::MissingSignature)
    }

    fn check_one(
        &self,
        parts: &Parts<'_>,
        certificates: Option<&[u8]>,
        now: DateTime<Utc>,
    ) -> Result<Match, Reject> {
        let signatures = self.signature.signatures(parts)?;
        if !self.require.iter().all(|condition| condition.holds(parts)) {
            return Err(Reject::RefusedAlgorithm);
        }
        let timestamp = self.timestamp.as_ref();
        let timestamp = timestamp
            .map(|at| at.read(parts).map(|read| (at, read)))
            .transpose()?;
        self.check_digest(parts)?;
        let key = self.check_content(parts, certificates, now, &signatures)?;
        if let Some((timestamp, at)) = timestamp {
            timestamp.check(at, now)?;
        }
        Ok(Match {
            key,
            timestamp: timestamp.map(|(_, at)| at),
        })
    }

    fn check_digest(&self, parts: &Parts<'_>) -> Result<(), Reject> {
        let Some(place) = &self.digest else {
            return Ok(());
        };
        let text = parts
            .text(place)
            .map_err(|_| Reject::RepeatedPart)?
            .ok_or(Reject::MissingPart)?;
        let found = digest::digest(&digest::SHA256, parts.body);
        if Encoding::Hex.decode(&text).as_deref() == Some(found.as_ref()) {
            Ok(())
        } else {
            Err(Reject::BodyDigest)
        }
    }

    fn check_content(
        &self,
        parts: &Parts<'_>,
        pem: Option<&[u8]>,
        now: DateTime<Utc>,
        signatures: &[Vec<u8>],
    ) -> Result<Option<usize>, Reject> {
        for url in self.urls(parts) {
            let content = self.content.content(parts, &url)?;
            if let Some(certificates) = &self.certificates {
                let pem = pem.ok_or(Reject::CertificateMissing)?;
                if certificates.verifies(pem, now, &content.concat(), signatures)? {
                    return Ok(None);
                }
            }
            let key = self
                .keys
                .iter()
                .position(|key| key.verifies(&content, signatures));
            if key.is_some() {
                return Ok(key);
            }
        }
        Err(Reject::WrongSignature)
    }

    /// The addresses that the partner may have signed; one that is empty where none is signed.
    fn urls(&self, parts: &Parts<'_>) -> Vec<String> {
        if self.addresses.is_empty() {
            return vec![String::new()];
        }
        let with_query = |address: &String| match parts.query {
            Some(query) => format!("{address}?{query}"),
            None => address.clone(),
        };
        self.addresses.iter().map(with_query).collect()
    }

    /// The SHA-256 of what was signed.
    pub(crate) fn content_sha256(&self, parts: &Parts<'_>) -> digest::Digest {
        let mut context = digest::Context::new(&digest::SHA256);
        let url = self.urls(parts).swap_remove(0);
        match self.content.content(parts, &url) {
            // Signed item by item, or not at all: only the body tells requests apart.
            Ok(content) if self.each.is_none() && !content.is_empty() => {
                content
                    .iter()
                    .for_each(|piece: &Cow<'_, [u8]>| context.update(piece));
            }
            _ => context.update(parts.body),
        }
        context.finish()
    }

    /// Whether the signature covers every byte of the body.
    pub(crate) fn covers_body(&self) -> bool {
        self.algorithm != Algorithm::Token
            && (self.digest.is_some() || self.content.places().any(|place| *place == Place::Raw))
    }

    /// Whether a request with another content has another signature.
    pub(crate) fn covers_content(&self) -> bool {
        self.algorithm != Algorithm::Token && (self.each.is_none() || self.covers_body())
    }

    /// Whether what stands at a place is a part of what is signed.
    pub(crate) fn names(&self, place: &Place) -> bool {
        self.content.places().any(|signed| signed == place)
    }

    /// Whether what stands at a place can't be changed without breaking the signature.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        match place {
            // Fields that are signed one after the other can be parted in other ways.
            Place::Json { .. } | Place::Form(_) => self.covers_body(),
            Place::Raw | Place::BodySha256 | Place::Crc32 => self.covers_body(),
            Place::Query(_) | Place::Url | Place::UrlUnescaped => {
                self.names(&Place::Url) || self.names(&Place::UrlUnescaped) || self.names(place)
            }
            Place::Param(_) => true,
            Place::Method | Place::FormSorted | Place::Header(_) | Place::Pair { .. } => {
                self.names(place)
            }
        }
    }
}
