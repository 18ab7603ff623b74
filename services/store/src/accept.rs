//! Accept: the one function by which an event enters the ledger, whichever way it came.
//!
//! Owns the transaction that makes an event accepted: its idempotency key, the message, and one
//! delivery per endpoint subscribed at this moment. Does not own how events are read from outboxes
//! ([`crate::outbox`]) or unpacked from NATS ([`crate::intake`]), nor their publication: it returns
//! the events to publish, and whatever becomes of those, the sweep drives what is lost.
//!
//! One call is one transaction and takes as much from the front of a batch as one transaction
//! should: at most [`Settings::max_deliveries`] deliveries, one message at the least. The caller
//! publishes and comes back with the rest. What can't be accepted is an [`Outcome`] of its item,
//! never a failure of its neighbours.
//!
//! - Keys are inserted in sorted order, so that concurrent batches with common keys wait for each
//!   other instead of deadlocking. A transaction that lost the race for a key sees the winner's
//!   row in its next statement (READ COMMITTED) and answers with the winner's receipt.
//! - Endpoints are read within the transaction, after the event came in: one whose creation was
//!   answered before gets the event. Pausing or deleting in the very same moment is settled by the
//!   lane, which knows the endpoint's newest version.
//! - The deliveries are inserted last, and the clock read there starts the time in which the event
//!   may be published: a long transaction does not use it up.

mod plan;
mod write;

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_proto::event::Event;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_proto::trace::TraceContext;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Transaction};
use tokio::time::Instant;

use crate::{Error, Store};

pub(crate) use plan::too_large;

/// Largest payload, in bytes.
pub const MAX_PAYLOAD: usize = 256 * 1024;
/// Longest idempotency key, in characters.
pub const MAX_KEY: usize = 255;
/// Longest content type, in bytes.
pub const MAX_CONTENT_TYPE: usize = 255;

/// Deadlocks and missing partitions in a row before a call gives up.
const RETRIES: u32 = 5;

/// The numbers that accept works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Subject partitions of the streams.
    pub partitions: NonZeroU16,
    /// How long after acceptance an event may still be published.
    pub publish_within: Duration,
    /// How long after acceptance an attempt may still be made.
    pub deadline: Duration,
    /// Deliveries that one transaction makes at the most, unless a single message has more.
    pub max_deliveries: usize,
    /// How long one transaction may take.
    pub timeout: Duration,
}

impl Settings {
    /// The defaults for streams with this many partitions.
    #[must_use]
    pub fn new(partitions: NonZeroU16) -> Self {
        Self {
            partitions,
            publish_within: Duration::from_secs(20),
            deadline: Duration::from_secs(48 * 60 * 60),
            max_deliveries: 10_000,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Which way an event came.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A row of an outbox; the source's name.
    Outbox(Arc<str>),
    /// A message on `INTAKE`.
    Intake,
    /// The HTTP API.
    Api,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outbox(name) => write!(f, "outbox:{name}"),
            Self::Intake => f.write_str("intake"),
            Self::Api => f.write_str("api"),
        }
    }
}

impl Origin {
    /// Reads the text form back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "intake" => Some(Self::Intake),
            "api" => Some(Self::Api),
            _ => text
                .strip_prefix("outbox:")
                .map(|name| Self::Outbox(Arc::from(name))),
        }
    }
}

/// An event on its way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The id to keep: an outbox row's. `None` makes a new one.
    pub id: Option<MessageId>,
    /// Whose endpoints get it.
    pub consumer: ConsumerId,
    /// What happened.
    pub event_type: EventType,
    /// The payload's media type.
    pub content_type: String,
    /// The exact bytes.
    pub payload: Bytes,
    /// The idempotency key. Without one, [`NewMessage::id`] is the key; without either the event
    /// is accepted as often as it is sent.
    pub key: Option<String>,
    /// The one endpoint that gets it, whatever its filters say, as for a test. `None`: all that are
    /// subscribed.
    pub only: Option<EndpointId>,
    /// Which way it came.
    pub origin: Origin,
    /// The trace that it belongs to.
    pub trace: Option<TraceContext>,
}

/// The proof of acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The message: the `webhook-id` of every attempt.
    pub message: MessageId,
    /// When the ledger took it.
    pub accepted_at: DateTime<Utc>,
}

/// What became of one item of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the ledger now.
    Accepted(Receipt),
    /// It was there already, under the same key and with the same content; here is the receipt of
    /// the first time. It is not published again.
    Repeat(Receipt),
    /// It can't be accepted.
    Rejected(Rejection),
}

/// Why an item can't be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The kind of reason.
    pub reason: Reason,
    /// For a person: what exactly, and what helps. No payload.
    pub detail: String,
}

/// The kinds of reasons for which an event can't be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its key stands for another content.
    Conflict,
    /// No consumer has this id.
    UnknownConsumer,
    /// No event type has this name.
    UnknownEventType,
    /// The consumer has no endpoint with the id of [`NewMessage::only`].
    UnknownEndpoint,
    /// The payload is larger than [`MAX_PAYLOAD`].
    PayloadTooLarge,
    /// There is no payload.
    PayloadMissing,
    /// The consumer id is absent or can't be one.
    BadConsumer,
    /// The event type is absent or can't be one.
    BadEventType,
    /// The idempotency key can't be one.
    BadKey,
    /// The content type can't be one.
    BadContentType,
    /// The database refuses to keep it.
    Refused,
    /// It came as a message that can't be delivered: its headers or its subject are malformed.
    Unreadable,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::Conflict,
        Self::UnknownConsumer,
        Self::UnknownEventType,
        Self::UnknownEndpoint,
        Self::PayloadTooLarge,
        Self::PayloadMissing,
        Self::BadConsumer,
        Self::BadEventType,
        Self::BadKey,
        Self::BadContentType,
        Self::Refused,
        Self::Unreadable,
    ];

    /// The name in the ledger, in output and in receipts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::UnknownConsumer => "unknown_consumer",
            Self::UnknownEventType => "unknown_event_type",
            Self::UnknownEndpoint => "unknown_endpoint",
            Self::PayloadTooLarge => "payload_too_large",
            Self::PayloadMissing => "payload_missing",
            Self::BadConsumer => "bad_consumer",
            Self::BadEventType => "bad_event_type",
            Self::BadKey => "bad_key",
            Self::BadContentType => "bad_content_type",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }

    /// Whether it may pass by itself: the name may be about to be registered.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::UnknownConsumer | Self::UnknownEventType)
    }
}

/// What one transaction took from the front of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "the events are to be published"]
pub struct Accepted {
    /// One for each item taken, in the batch's order; at least one, unless the batch was empty.
    /// Items behind were not looked at.
    pub outcomes: Vec<Outcome>,
    /// What to publish, already split into wire messages.
    pub events: Vec<Event>,
    /// When publishing them is to be given up, by this process's own clock; `None` without events.
    pub publish_until: Option<Instant>,
}

/// An item of a batch: an event, or why it was refused before it came here.
pub(crate) type Item = Result<NewMessage, Rejection>;

/// What else the transaction of an acceptance has to do.
pub(crate) trait Alongside: Sync {
    /// Called within the transaction, with the outcomes of the items taken.
    fn write(
        &self,
        conn: &mut PgConnection,
        outcomes: &[Outcome],
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Nothing else.
pub(crate) struct Alone;

impl Alongside for Alone {
    async fn write(&self, _: &mut PgConnection, _: &[Outcome]) -> Result<(), Error> {
        Ok(())
    }
}

/// Where the transaction runs: on a connection of the pool, or in a session that has a reason to
/// be the only one.
pub(crate) enum Via<'a> {
    /// Any connection.
    Pool,
    /// This session.
    Session(&'a mut PgConnection),
}

impl Store {
    /// Accepts as much from the front of `batch` as one transaction should take.
    ///
    /// Cancel-safe: a dropped call has either committed or rolled back, and a repetition answers
    /// with the same receipts as long as the items have keys.
    ///
    /// # Errors
    /// Where the database can't be reached or fails; nothing was accepted then, save where the
    /// answer to the commit was lost.
    pub async fn accept(
        &self,
        settings: &Settings,
        batch: &[NewMessage],
    ) -> Result<Accepted, Error> {
        let items: Vec<Item> = batch.iter().cloned().map(Ok).collect();
        accept(self, Via::Pool, settings, &items, &Alone).await
    }
}

/// [`Store::accept`] with everything that its callers in this crate need.
pub(crate) async fn accept(
    store: &Store,
    mut via: Via<'_>,
    settings: &Settings,
    items: &[Item],
    alongside: &impl Alongside,
) -> Result<Accepted, Error> {
    if items.is_empty() {
        return Ok(Accepted::default());
    }
    let mut size = items.len();
    let mut retries = 0;
    store.ensure_days([hooklane_core::clock::now()]).await?;
    loop {
        let taken = &items[..size];
        let error = match once(store, &mut via, settings, taken, alongside).await {
            Ok(accepted) => return Ok(accepted),
            Err(error) => error,
        };
        if error.is_timeout() && size > 1 {
            size = size.div_ceil(2);
            tracing::warn!(size, %error, "accept took too long, halving the batch");
        } else if is_missing_partition(&error) && retries < RETRIES {
            // The day turned, was dropped, or is another one by the database's clock.
            retries += 1;
            store.days.clear();
            store
                .ensure_days([write::clock(store.pool()).await?])
                .await?;
        } else if is_deadlock(&error) && retries < RETRIES {
            retries += 1;
        } else if error.is_data_fault() && !is_missing_partition(&error) {
            if size == 1 {
                return set_aside(store, &mut via, settings, &error, alongside).await;
            }
            // One of them is to blame; halving finds it, and the others get in.
            size = size.div_ceil(2);
        } else {
            return Err(error);
        }
    }
}

/// Refuses the one item that the database would not take.
async fn set_aside(
    store: &Store,
    via: &mut Via<'_>,
    settings: &Settings,
    error: &Error,
    alongside: &impl Alongside,
) -> Result<Accepted, Error> {
    let state = error.sqlstate().unwrap_or_default();
    tracing::error!(%error, "an event can't be kept, it is set aside");
    let refused = Err(Rejection {
        reason: Reason::Refused,
        detail: format!("the ledger refuses it (SQLSTATE {state})"),
    });
    once(store, via, settings, &[refused], alongside).await
}

async fn once(
    store: &Store,
    via: &mut Via<'_>,
    settings: &Settings,
    items: &[Item],
    alongside: &impl Alongside,
) -> Result<Accepted, Error> {
    let work = async {
        let mut tx = begin(store, via, settings).await?;
        let mut prepared = plan::prepare(&mut tx, settings, items).await?;
        alongside.write(&mut tx, &prepared.outcomes).await?;
        prepared.finish(&mut tx).await?;
        let written = Instant::now();
        tx.commit()
            .await
            .map_err(Error::doing("committing accepted events"))?;
        Ok(prepared.accepted(settings, written.elapsed()))
    };
    match tokio::time::timeout(settings.timeout, work).await {
        Ok(result) => result,
        Err(_elapsed) => Err(Error::TimedOut {
            doing: "accepting events",
            after: settings.timeout,
        }),
    }
}

async fn begin<'c>(
    store: &Store,
    via: &'c mut Via<'_>,
    settings: &Settings,
) -> Result<Transaction<'c, Postgres>, Error> {
    // The endpoints must be those of this moment, whatever the role's default isolation is.
    let begin = AssertSqlSafe(format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; \
         SET LOCAL statement_timeout = {0}; SET LOCAL idle_in_transaction_session_timeout = {0}",
        settings.timeout.as_millis().max(1)
    ));
    match via {
        Via::Pool => store.pool().begin_with(begin).await,
        Via::Session(conn) => conn.begin_with(begin).await,
    }
    .map_err(Error::doing("beginning to accept events"))
}

fn is_missing_partition(error: &Error) -> bool {
    // A row that fits no partition is a check violation; no table written here has a check.
    error.sqlstate().as_deref() == Some("23514")
}

fn is_deadlock(error: &Error) -> bool {
    matches!(error.sqlstate().as_deref(), Some("40P01" | "40001"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_read_back() {
        for origin in [
            Origin::Outbox(Arc::from("main")),
            Origin::Intake,
            Origin::Api,
        ] {
            assert_eq!(Origin::parse(&origin.to_string()), Some(origin));
        }
        assert_eq!(Origin::parse("elsewhere"), None);
    }

    #[test]
    fn reasons_have_distinct_names() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
