//! Events as JSON has them.

use std::fmt::Write as _;

use hooklane_store::inbox::{Conflict, Headers, Row, Shown, Trail};
use serde::Serialize;

use crate::output::{exact, time};

/// An event of a listing.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) id: String,
    pub(super) partner: String,
    pub(super) partner_event_id: String,
    pub(super) status: &'static str,
    /// What is to be done with it next: `decide` or `hand_off`.
    pub(super) stage: &'static str,
    /// How it is handed on.
    pub(super) mode: Option<&'static str>,
    pub(super) received_at: String,
    pub(super) processed_at: Option<String>,
    pub(super) event_type: Option<String>,
    pub(super) entity_type: Option<String>,
    pub(super) entity_key: Option<String>,
    pub(super) order: Option<i64>,
    /// Which of its entity's events it is, from 1; once it was applied.
    pub(super) sequence: Option<i64>,
    pub(super) reason: Option<String>,
    pub(super) detail: Option<String>,
    /// Failed hand-offs since it was received or replayed.
    pub(super) failures: u32,
    /// Hand-offs so far.
    pub(super) attempt: u32,
    pub(super) deferrals: u32,
    pub(super) next_at: Option<String>,
    pub(super) deadline_at: Option<String>,
    pub(super) signature_verified: bool,
    /// Which secret verified it, by its place in the configuration.
    pub(super) key_label: Option<String>,
    pub(super) integrity: String,
    /// Whether the signature covers the partner's id of it.
    pub(super) id_signed: bool,
    /// An earlier event that had the same body.
    pub(super) same_body_as: Option<String>,
    /// The batch that it came in.
    pub(super) parent: Option<String>,
    pub(super) bytes: u32,
    pub(super) body_sha256: String,
}

impl From<Row> for View {
    fn from(row: Row) -> Self {
        let Row {
            id,
            partner,
            partner_event_id,
            status,
            stage,
            mode,
            received_at,
            processed_at,
            signature_verified,
            key_label,
            id_signed,
            same_body_as,
            integrity,
            event_type,
            entity,
            order,
            sequence,
            parent,
            failures,
            attempt,
            deferrals,
            next_at,
            deadline_at,
            reason,
            detail,
            bytes,
            sha256,
        } = row;
        let (entity_type, entity_key) = entity.unzip();
        Self {
            id: id.to_string(),
            partner: partner.to_string(),
            partner_event_id,
            status: status.as_str(),
            stage: stage.as_str(),
            mode: mode.map(|mode| mode.as_str()),
            received_at: time(received_at),
            processed_at: processed_at.map(time),
            event_type,
            entity_type,
            entity_key,
            order,
            sequence,
            reason,
            detail,
            failures,
            attempt,
            deferrals,
            next_at: next_at.map(time),
            deadline_at: deadline_at.map(time),
            signature_verified,
            key_label,
            integrity,
            id_signed,
            same_body_as: same_body_as.map(|id| id.to_string()),
            parent: parent.map(|id| id.to_string()),
            bytes,
            body_sha256: hex(&sha256),
        }
    }
}

impl View {
    /// `type/key`, where it is about something.
    pub(super) fn entity(&self) -> Option<String> {
        let kind = self.entity_type.as_ref()?;
        Some(format!("{kind}/{}", self.entity_key.as_ref()?))
    }
}

/// A header as it came.
#[derive(Debug, Serialize)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) value: String,
}

pub(super) fn headers(headers: Headers) -> Vec<Header> {
    let pairs = headers.0.into_iter();
    pairs.map(|(name, value)| Header { name, value }).collect()
}

/// An event, whole.
#[derive(Debug, Serialize)]
pub(super) struct Whole {
    #[serde(flatten)]
    pub(super) event: View,
    pub(super) content_type: Option<String>,
    pub(super) headers: Vec<Header>,
    /// The exact body where it is text; null where it is kept no more.
    pub(super) body: Option<String>,
    /// The exact body in base64 where it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body_base64: Option<String>,
    /// What was decided about it, the first first.
    pub(super) trail: Vec<Decision>,
    /// What came under its id with another body.
    pub(super) conflicts: Vec<Other>,
    /// What it held, where it was a batch.
    pub(super) items: Vec<String>,
}

/// One entry of the trail.
#[derive(Debug, Serialize)]
pub(super) struct Decision {
    pub(super) at: String,
    pub(super) action: String,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) sequence: Option<i64>,
    pub(super) reason: Option<String>,
    pub(super) detail: Option<String>,
    /// Which state machine decided, as a digest of its configuration.
    pub(super) machine: Option<String>,
}

impl From<Trail> for Decision {
    fn from(trail: Trail) -> Self {
        let Trail {
            at,
            action,
            from,
            to,
            sequence,
            reason,
            detail,
            machine,
        } = trail;
        Self {
            at: time(at),
            action,
            from,
            to,
            sequence,
            reason,
            detail,
            machine,
        }
    }
}

/// A request with the id of an event and another body.
#[derive(Debug, Serialize)]
pub(super) struct Other {
    pub(super) at: String,
    pub(super) body_sha256: String,
    pub(super) headers: Vec<Header>,
    pub(super) body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body_base64: Option<String>,
}

impl From<Conflict> for Other {
    fn from(conflict: Conflict) -> Self {
        let Conflict {
            at,
            sha256,
            headers: pairs,
            body,
        } = conflict;
        let (text, base64) = exact(body.to_vec());
        Self {
            at: time(at),
            body_sha256: hex(&sha256),
            headers: headers(pairs),
            body: text,
            body_base64: base64,
        }
    }
}

impl From<Shown> for Whole {
    fn from(shown: Shown) -> Self {
        let Shown {
            row,
            trail,
            conflicts,
            content_type,
            headers: pairs,
            body,
            items,
        } = shown;
        let (text, base64) = body.map_or((None, None), |body| exact(body.to_vec()));
        Self {
            event: View::from(row),
            content_type,
            headers: headers(pairs),
            body: text,
            body_base64: base64,
            trail: trail.into_iter().map(Decision::from).collect(),
            conflicts: conflicts.into_iter().map(Other::from).collect(),
            items: items.iter().map(ToString::to_string).collect(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
