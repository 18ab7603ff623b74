//! How events are read: the service's half of a step, behind a trait.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_core::rules::transition::Machine;
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;

use super::claim::{Body, Taken};
use super::decide::Known;
use super::{Headers, Mode, Reason};

/// What a reader is told of an event.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// Its id.
    pub id: InboxId,
    /// Whose it is.
    pub partner: Partner,
    /// The partner's id of it.
    pub partner_event_id: String,
    /// Whether it is an item of a batch, which is never split again.
    pub item: bool,
    /// What happened, where that was known before.
    pub event_type: Option<String>,
    /// The body's media type.
    pub content_type: Option<String>,
    /// The kept headers; an item has those of its request.
    pub headers: Headers,
    /// The exact bytes.
    pub body: Bytes,
    /// When it was received.
    pub received_at: DateTime<Utc>,
}

/// What is configured, and how a source's events are read. Pure, and quick: it is asked within a
/// transaction.
pub trait Reader: Send + Sync {
    /// What an event says. A panic is caught and counted: after the third the event is quarantined.
    fn read(&self, event: &Claimed) -> Reading;

    /// The machine of an entity type; `None`: its events take effect as they come.
    fn machine(&self, partner: &Partner, entity_type: &str) -> Option<&Machine>;

    /// Which way a source hands its events off; `None`: this process does not know the source, and its
    /// events are left alone.
    fn mode(&self, partner: &Partner) -> Option<Mode>;
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// One thing that happened.
    Event {
        /// What.
        event_type: String,
        /// To what.
        entity: Option<Entity>,
    },
    /// Several, each an event of its own; at most 10,000.
    Items(Vec<Item>),
    /// Nothing that can be made out.
    Unreadable {
        /// Why.
        reason: Reason,
        /// For a person; no values of the body.
        detail: String,
    },
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// Its type, as it is configured.
    pub entity_type: String,
    /// Which one; longer than 255 bytes, its hash is the key.
    pub key: String,
    /// Where the event stands among the entity's, higher is later.
    pub order: Option<i64>,
    /// The state that the body names.
    pub to_field: Option<String>,
}

/// An item of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The partner's id of it, at most 100 characters.
    pub partner_event_id: String,
    /// Whether the signature covers that id.
    pub id_signed: bool,
    /// What happened, where that is known already.
    pub event_type: Option<String>,
    /// The exact bytes.
    pub body: Bytes,
}

/// What is known of an event that is to be decided.
pub(super) fn know(reader: &impl Reader, taken: &Taken, body: Option<Body>) -> Known {
    if reader.mode(&taken.partner).is_none() {
        return Known::Unknown;
    }
    let Some(Body {
        body,
        headers,
        content_type,
    }) = body
    else {
        return Known::Bodiless;
    };
    let event = Claimed {
        id: InboxId::from_uuid(taken.id),
        partner: taken.partner.clone(),
        partner_event_id: taken.partner_event_id.clone(),
        item: taken.parent.is_some(),
        event_type: taken.event_type.clone(),
        content_type,
        headers,
        body,
        received_at: taken.received_at,
    };
    match catch_unwind(AssertUnwindSafe(|| reader.read(&event))) {
        Ok(reading) => Known::Read(reading),
        Err(_panic) => Known::Panicked,
    }
}
