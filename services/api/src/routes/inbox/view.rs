//! Partners' events as the API shows them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use hooklane_store::inbox::{Conflict, Headers, Row, Shown, Trail};
use serde::Serialize;
use utoipa::ToSchema;

/// A partner's event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InboxEvent {
    /// Its id.
    #[schema(example = "inb_01987c3e-9d6a-7000-8000-000000000001")]
    id: String,
    /// Whose event it is.
    partner: String,
    /// The partner's own id of it.
    partner_event_id: String,
    /// Where it stands.
    #[schema(example = "PROCESSED")]
    status: &'static str,
    /// What is to be done with it next: `decide` or `hand_off`.
    stage: &'static str,
    /// How it is handed on: `stream`, `request` or `sql`; null until it is decided about.
    mode: Option<&'static str>,
    /// When it was received.
    received_at: DateTime<Utc>,
    /// When it was over.
    processed_at: Option<DateTime<Utc>>,
    /// What happened, in the partner's words.
    event_type: Option<String>,
    /// The kind of what it is about.
    entity_type: Option<String>,
    /// What it is about.
    entity_key: Option<String>,
    /// The partner's order value.
    order: Option<i64>,
    /// Which of its entity's events it is, from 1; null until it is applied.
    sequence: Option<i64>,
    /// Why it is in quarantine, or was superseded.
    reason: Option<String>,
    /// The same in words.
    detail: Option<String>,
    /// Hand-offs that failed since it was received or replayed.
    failures: u32,
    /// Hand-offs so far.
    attempt: u32,
    /// How often it was put off, since what comes before it was missing.
    deferrals: u32,
    /// When it is looked at next.
    next_at: Option<DateTime<Utc>>,
    /// Until when it waits for what comes before it.
    deadline_at: Option<DateTime<Utc>>,
    /// Whether a signature was verified.
    signature_verified: bool,
    /// Which secret verified it, by its place in the configuration.
    key_label: Option<String>,
    /// What the signature covers: `full`, or `partial: ` and what it does not cover.
    integrity: String,
    /// Whether the signature covers the partner's id of it.
    id_signed: bool,
    /// An earlier event with the same body under another id.
    same_body_as: Option<String>,
    /// The batch that it came in.
    parent: Option<String>,
    /// The size of its body, in bytes.
    bytes: u32,
    /// The SHA-256 digest of its body, in hexadecimal.
    body_sha256: String,
}

impl From<Row> for InboxEvent {
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
            received_at,
            processed_at,
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
            next_at,
            deadline_at,
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

/// A header as the partner sent it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InboxHeader {
    /// Its name, in lower case.
    name: String,
    /// Its value.
    value: String,
}

pub(super) fn headers(headers: Headers) -> Vec<InboxHeader> {
    let pairs = headers.0.into_iter();
    pairs
        .map(|(name, value)| InboxHeader { name, value })
        .collect()
}

/// A partner's event with its history. Its body is at `.../body`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WholeInboxEvent {
    #[serde(flatten)]
    event: InboxEvent,
    /// The body's media type, as the partner named it.
    content_type: Option<String>,
    /// The request's headers, without what is secret.
    headers: Vec<InboxHeader>,
    /// Whether the body is still kept.
    has_body: bool,
    /// What was decided about it, the first first.
    trail: Vec<InboxDecision>,
    /// Requests with its id and another body; the first body is the one that counts.
    conflicts: Vec<InboxConflict>,
    /// The events that it held, where it was a batch; the first 100.
    items: Vec<String>,
}

/// A decision about an event.
#[derive(Debug, Serialize, ToSchema)]
struct InboxDecision {
    /// When.
    at: DateTime<Utc>,
    /// What was decided.
    #[schema(example = "applied")]
    action: String,
    /// The entity's state before.
    from: Option<String>,
    /// The entity's state after.
    to: Option<String>,
    /// Which of its entity's events it became.
    sequence: Option<i64>,
    /// Why, as a name.
    reason: Option<String>,
    /// Why, in words.
    detail: Option<String>,
    /// Which state machine decided: a digest of its configuration.
    machine: Option<String>,
}

impl From<Trail> for InboxDecision {
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
            at,
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

/// A request with an event's id and another body.
#[derive(Debug, Serialize, ToSchema)]
struct InboxConflict {
    /// When it came.
    at: DateTime<Utc>,
    /// The SHA-256 digest of its body, in hexadecimal.
    body_sha256: String,
    /// The request's headers, without what is secret.
    headers: Vec<InboxHeader>,
    /// Its body, where that is text.
    body: Option<String>,
    /// The same in base64, where it is no text.
    body_base64: Option<String>,
}

impl From<Conflict> for InboxConflict {
    fn from(conflict: Conflict) -> Self {
        let Conflict {
            at,
            sha256,
            headers: pairs,
            body,
        } = conflict;
        let (body, body_base64) = text(body.to_vec());
        Self {
            at,
            body_sha256: hex(&sha256),
            headers: headers(pairs),
            body,
            body_base64,
        }
    }
}

impl From<Shown> for WholeInboxEvent {
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
        Self {
            event: InboxEvent::from(row),
            content_type,
            headers: headers(pairs),
            has_body: body.is_some(),
            trail: trail.into_iter().map(InboxDecision::from).collect(),
            conflicts: conflicts.into_iter().map(InboxConflict::from).collect(),
            items: items.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Bytes as JSON has them exactly: as a text, or else in base64.
pub(super) fn text(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
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
