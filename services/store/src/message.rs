//! Accepted events as an operator looks for them: by message, by outbox row, by idempotency key.
//!
//! Reads alone. An event that is not accepted is found too, as long as the outbox or the list of
//! rejected events still has it.

use chrono::{DateTime, Utc};
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;

use crate::delivery::{Delivery, Row as DeliveryRow};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

/// Most messages that one idempotency key brings up: it is unique per consumer only.
const MAX_MATCHES: i64 = 20;

/// An accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// When the ledger took it.
    pub accepted_at: DateTime<Utc>,
    /// Whose endpoints get it.
    pub consumer: ConsumerId,
    /// What happened.
    pub event_type: String,
    /// The payload's media type.
    pub content_type: String,
    /// The exact bytes.
    pub payload: Vec<u8>,
    /// Which way it came: `outbox:<source>`, `intake` or `api`.
    pub source: String,
    /// The producer's idempotency key.
    pub idempotency_key: Option<String>,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
}

/// One POST, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// The series it belongs to.
    pub series: i32,
    /// The drive it belongs to.
    pub drive: i32,
    /// Its number in all series.
    pub number: i32,
    /// When the lane started it.
    pub started_at: DateTime<Utc>,
    /// From the start to the last byte read, in microseconds.
    pub duration_us: i64,
    /// The answer's status code.
    pub status: Option<i16>,
    /// The answer's first bytes.
    pub body: Option<Vec<u8>>,
    /// The error class, where there was no answer of use.
    pub error: Option<String>,
    /// The error in words.
    pub detail: Option<String>,
    /// What followed: `sent`, `failed` or `retry`.
    pub verdict: String,
    /// The attempt's own trace.
    pub traceparent: Option<String>,
}

/// A delivery with where it goes and what was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The delivery.
    pub delivery: Delivery,
    /// The endpoint's present URL.
    pub url: Option<String>,
    /// Attempts, the first one first.
    pub attempts: Vec<Attempt>,
}

/// A message with its deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The message.
    pub message: Message,
    /// How many deliveries it has.
    pub deliveries: u64,
    /// As many of them as were asked for.
    pub branches: Vec<Branch>,
}

/// What an id or key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Accepted events.
    Accepted(Vec<(DateTime<Utc>, MessageId)>),
    /// A row of the ledger's own outbox that the relay has not taken yet.
    Pending {
        /// Whose it is, as written.
        consumer: String,
        /// What happened, as written.
        event_type: String,
        /// When it was written.
        created_at: DateTime<Utc>,
    },
    /// An event that could not be accepted.
    Rejected {
        /// Its number in the list of rejected events.
        number: i64,
        /// Which way it came.
        source: String,
        /// The kind of reason.
        reason: String,
        /// The reason in words.
        detail: String,
    },
}

/// Finds what `text` stands for: a message id, an outbox row's id, or an idempotency key (of
/// `consumer`, or else of any).
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn find(
    store: &Store,
    text: &str,
    consumer: Option<&ConsumerId>,
) -> Result<Found, Error> {
    if let Ok(id) = text.parse::<MessageId>()
        && let Some(found) = by_id(store, id).await?
    {
        return Ok(found);
    }
    // From consumer to consumer: the key's index has the consumer first.
    let matches = sqlx::query!(
        "SELECT k.accepted_at, k.message_id FROM hooklane.consumers c
           JOIN LATERAL (SELECT accepted_at, message_id FROM hooklane.idempotency_keys
                          WHERE consumer_id = c.id AND key = $1) AS k ON true
          WHERE $2::text IS NULL OR c.id = $2
          ORDER BY k.accepted_at DESC LIMIT $3",
        text,
        consumer.map(ConsumerId::as_str),
        MAX_MATCHES,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("looking for an idempotency key"))?;
    if matches.is_empty() {
        return Err(Error::not_found(Kind::Message, text));
    }
    let matches = matches
        .into_iter()
        .map(|row| (row.accepted_at, MessageId::from_uuid(row.message_id)))
        .collect();
    Ok(Found::Accepted(matches))
}

async fn by_id(store: &Store, id: MessageId) -> Result<Option<Found>, Error> {
    let doing = "looking for a message";
    let accepted = sqlx::query_scalar!(
        "SELECT accepted_at FROM hooklane.messages WHERE id = $1 ORDER BY accepted_at DESC",
        id.uuid(),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    if !accepted.is_empty() {
        let accepted = accepted.into_iter().map(|at| (at, id)).collect();
        return Ok(Some(Found::Accepted(accepted)));
    }
    let rejected = sqlx::query!(
        "SELECT id, source, reason, detail FROM hooklane.rejected_events
          WHERE source_id = $1 AND source LIKE 'outbox:%' ORDER BY id DESC LIMIT 1",
        id.uuid().to_string(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    if let Some(row) = rejected {
        return Ok(Some(Found::Rejected {
            number: row.id,
            source: row.source,
            reason: row.reason,
            detail: row.detail,
        }));
    }
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
        return Ok(Some(Found::Pending {
            consumer: row.consumer_id,
            event_type: row.event_type,
            created_at: row.created_at,
        }));
    }
    // Taken, yet no message has its id: its key stood for an earlier one with the same content.
    let Some(key) = row.idempotency_key else {
        return Ok(None);
    };
    let first = sqlx::query!(
        "SELECT accepted_at, message_id FROM hooklane.idempotency_keys
          WHERE consumer_id = $1 AND key = $2",
        row.consumer_id,
        key,
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    Ok(first.map(|row| {
        Found::Accepted(vec![(
            row.accepted_at,
            MessageId::from_uuid(row.message_id),
        )])
    }))
}

/// A message with `limit` of its deliveries at the most (or the one to `endpoint`), and all their
/// attempts.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn tree(
    store: &Store,
    accepted_at: DateTime<Utc>,
    id: MessageId,
    endpoint: Option<EndpointId>,
    limit: u32,
) -> Result<Tree, Error> {
    let doing = "reading a message";
    let row = sqlx::query!(
        r#"SELECT consumer_id, event_type, content_type, payload, source, idempotency_key, traceparent,
                  (SELECT count(*) FROM hooklane.deliveries d
                    WHERE d.accepted_at = $1 AND d.message_id = $2) AS "deliveries!"
             FROM hooklane.messages WHERE accepted_at = $1 AND id = $2"#,
        accepted_at,
        id.uuid(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::Message, id))?;
    let message = Message {
        id,
        accepted_at,
        consumer: ConsumerId::new(&row.consumer_id).map_err(Fault::unreadable(doing))?,
        event_type: row.event_type,
        content_type: row.content_type,
        payload: row.payload,
        source: row.source,
        idempotency_key: row.idempotency_key,
        traceparent: row.traceparent,
    };
    Ok(Tree {
        message,
        deliveries: u64::try_from(row.deliveries).unwrap_or(0),
        branches: branches(store, accepted_at, id, endpoint, limit).await?,
    })
}

async fn branches(
    store: &Store,
    accepted_at: DateTime<Utc>,
    id: MessageId,
    endpoint: Option<EndpointId>,
    limit: u32,
) -> Result<Vec<Branch>, Error> {
    let rows = sqlx::query_as!(
        DeliveryRow,
        r#"SELECT accepted_at, message_id, endpoint_id, consumer_id, status::text AS "status!", series,
                  drive, attempt_count, counted, next_attempt_at, deadline, faults, last_status,
                  last_error, failure_reason, settled_at
             FROM hooklane.deliveries
            WHERE accepted_at = $1 AND message_id = $2 AND ($3::uuid IS NULL OR endpoint_id = $3)
            ORDER BY endpoint_id LIMIT $4"#,
        accepted_at,
        id.uuid(),
        endpoint.map(EndpointId::uuid),
        i64::from(limit),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("reading a message's deliveries"))?;
    let deliveries: Result<Vec<Delivery>, Fault> =
        rows.into_iter().map(DeliveryRow::delivery).collect();
    let deliveries = deliveries?;
    let endpoints: Vec<_> = deliveries.iter().map(|d| d.key.endpoint.uuid()).collect();
    let urls = sqlx::query!(
        "SELECT id, url FROM hooklane.endpoints WHERE id = ANY($1)",
        &endpoints,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("reading endpoints"))?;
    let rows = sqlx::query!(
        "SELECT endpoint_id, id, series, drive, number, started_at, duration_us, status, body,
                error, detail, verdict, traceparent
           FROM hooklane.attempts
          WHERE message_id = $1 AND endpoint_id = ANY($2) AND accepted_at = $3
            AND started_at >= $3 - interval '1 minute'
          ORDER BY number, started_at, id",
        id.uuid(),
        &endpoints,
        accepted_at,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("reading attempts"))?;
    let mut branches: Vec<Branch> = deliveries
        .into_iter()
        .map(|delivery| Branch {
            url: urls
                .iter()
                .find(|row| row.id == delivery.key.endpoint.uuid())
                .map(|row| row.url.clone()),
            delivery,
            attempts: Vec::new(),
        })
        .collect();
    for row in rows {
        let branch = branches
            .iter_mut()
            .find(|branch| branch.delivery.key.endpoint.uuid() == row.endpoint_id);
        if let Some(branch) = branch {
            branch.attempts.push(Attempt {
                id: AttemptId::from_uuid(row.id),
                series: row.series,
                drive: row.drive,
                number: row.number,
                started_at: row.started_at,
                duration_us: row.duration_us,
                status: row.status,
                body: row.body,
                error: row.error,
                detail: row.detail,
                verdict: row.verdict,
                traceparent: row.traceparent,
            });
        }
    }
    Ok(branches)
}
