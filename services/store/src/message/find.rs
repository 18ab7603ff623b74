//! What an id or an idempotency key stands for, wherever the event is on its way.
//!
//! Looks where the ledger knows it: among accepted events, among those set aside, and in its own
//! outbox. What still stands in another source is [`crate::outbox::pending`]'s to find.

use chrono::{DateTime, Utc};
use hooklane_proto::id::MessageId;
use hooklane_proto::token::ConsumerId;

use crate::manage::Error;
use crate::outbox::Pending;
use crate::rejected::Rejected;
use crate::{Error as Fault, Store, operational};

/// Most messages that one idempotency key brings up: it is unique per consumer only.
const MAX_MATCHES: i64 = 20;

/// What an id or key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Accepted events.
    Accepted(Vec<(DateTime<Utc>, MessageId)>),
    /// A row of an outbox that the relay has not taken yet.
    Pending(Pending),
    /// An event set aside: it waits for its consumer or event type, or can't be accepted.
    SetAside(Box<Rejected>),
}

/// Finds what `text` stands for: a message's id, an outbox row's id, the place of a message in
/// `INTAKE`, or an idempotency key (of `consumer`, or else of any). A row of one of the outboxes
/// `sources` is also known by its id there.
///
/// `None` where the ledger knows nothing of it; it may still be pending in another source.
///
/// # Errors
/// A fault of the database.
pub async fn find(
    store: &Store,
    text: &str,
    consumer: Option<&ConsumerId>,
    sources: &[&str],
) -> Result<Option<Found>, Error> {
    let id = text.parse::<MessageId>().ok();
    if let Some(id) = id {
        let accepted = by_id(store, id).await?;
        if !accepted.is_empty() {
            return Ok(Some(Found::Accepted(accepted)));
        }
    }
    // What came without a key goes by the place where it stood.
    let mut keys = vec![text.to_owned(), format!("intake:{text}")];
    let outboxes = sources.iter().copied().chain([operational::SOURCE]);
    keys.extend(outboxes.map(|name| format!("{name}:{text}")));
    let accepted = by_key(store, &keys, consumer.map(ConsumerId::as_str)).await?;
    if !accepted.is_empty() {
        return Ok(Some(Found::Accepted(accepted)));
    }
    let mut ids = vec![text.to_owned()];
    ids.extend(id.map(|id| id.uuid().to_string()));
    if let Some(rejected) = store.set_aside_as(&ids, &keys, consumer).await? {
        return Ok(Some(Found::SetAside(Box::new(rejected))));
    }
    match id {
        Some(id) => own_row(store, id).await,
        None => Ok(None),
    }
}

/// When the message with this id was accepted and whose it is; the last one, where its id has returned.
///
/// # Errors
/// A fault of the database.
pub async fn place(
    store: &Store,
    id: MessageId,
) -> Result<Option<(DateTime<Utc>, ConsumerId)>, Error> {
    let doing = "looking for a message";
    let row = sqlx::query!(
        "SELECT accepted_at, consumer_id FROM hooklane.messages
          WHERE id = $1 ORDER BY accepted_at DESC LIMIT 1",
        id.uuid(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    let place = row.map(|row| {
        let consumer = ConsumerId::new(&row.consumer_id).map_err(Fault::unreadable(doing))?;
        Ok::<_, Fault>((row.accepted_at, consumer))
    });
    Ok(place.transpose()?)
}

async fn by_id(store: &Store, id: MessageId) -> Result<Vec<(DateTime<Utc>, MessageId)>, Error> {
    let accepted = sqlx::query_scalar!(
        "SELECT accepted_at FROM hooklane.messages WHERE id = $1 ORDER BY accepted_at DESC",
        id.uuid(),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("looking for a message"))?;
    Ok(accepted.into_iter().map(|at| (at, id)).collect())
}

async fn by_key(
    store: &Store,
    keys: &[String],
    consumer: Option<&str>,
) -> Result<Vec<(DateTime<Utc>, MessageId)>, Error> {
    // From consumer to consumer: the key's index has the consumer first.
    let matches = sqlx::query!(
        "SELECT k.accepted_at, k.message_id FROM hooklane.consumers c
           JOIN LATERAL (SELECT accepted_at, message_id FROM hooklane.idempotency_keys
                          WHERE consumer_id = c.id AND key = ANY($1)) AS k ON true
          WHERE $2::text IS NULL OR c.id = $2
          ORDER BY k.accepted_at DESC LIMIT $3",
        keys,
        consumer,
        MAX_MATCHES,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("looking for an idempotency key"))?;
    Ok(matches
        .into_iter()
        .map(|row| (row.accepted_at, MessageId::from_uuid(row.message_id)))
        .collect())
}

/// The row of the ledger's own outbox with this id.
async fn own_row(store: &Store, id: MessageId) -> Result<Option<Found>, Error> {
    let doing = "looking for an outbox row";
    let row = sqlx::query!(
        "SELECT consumer_id, event_type, idempotency_key, created_at, processed_at
           FROM hooklane.outbox_events WHERE id = $1",
        id.uuid(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    let Some(row) = row else {
        return Ok(None);
    };
    if row.processed_at.is_none() {
        return Ok(Some(Found::Pending(Pending {
            consumer: Some(row.consumer_id),
            event_type: Some(row.event_type),
            created_at: Some(row.created_at),
        })));
    }
    // Taken, yet no message has its id: its key stood for an earlier one with the same content.
    let Some(key) = row.idempotency_key else {
        return Ok(None);
    };
    let first = by_key(store, &[key], Some(&row.consumer_id)).await?;
    Ok((!first.is_empty()).then_some(Found::Accepted(first)))
}
