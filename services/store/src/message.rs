//! Accepted events as an operator looks for them: by message, by outbox row, by idempotency key.
//!
//! Reads alone. An event that is not accepted is found too, as long as the outbox or the list of
//! events set aside still has it.

mod find;
mod listing;

use chrono::{DateTime, Utc};
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;

use crate::delivery::{Delivery, Row as DeliveryRow};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

pub use find::{Found, find, place};
pub use listing::{Deliveries, Listed, Listing, Place, list};

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
