//! Deliveries as an operator sees them: listing and cancelling.
//!
//! Reads and one manual step alone. How a delivery moves by itself is the recorder's and the
//! scheduler's.

use chrono::{DateTime, Utc};
pub use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_core::rules::merge::UnknownStatus;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use uuid::Uuid;

use crate::manage::{Error, Kind, Page};
use crate::{Error as Fault, Store};

/// A message for one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Which.
    pub key: DeliveryKey,
    /// Whose endpoint it is.
    pub consumer: ConsumerId,
    /// Where it stands.
    pub status: DeliveryStatus,
    /// The series of attempts, from 1.
    pub series: i32,
    /// The trip through the broker, from 1.
    pub drive: i32,
    /// Attempts made, in all series.
    pub attempts: i32,
    /// Attempts counted against the schedule, in this series.
    pub counted: i32,
    /// When the next attempt is due, where one is.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// No attempt after this.
    pub deadline: DateTime<Utc>,
    /// Hooklane's own faults with it.
    pub faults: i32,
    /// The last answer's status code.
    pub last_status: Option<i16>,
    /// The last attempt's error class.
    pub last_error: Option<String>,
    /// Why it failed, was skipped or cancelled.
    pub failure_reason: Option<String>,
    /// When it ended.
    pub settled_at: Option<DateTime<Utc>>,
}

pub(crate) struct Row {
    pub(crate) accepted_at: DateTime<Utc>,
    pub(crate) message_id: Uuid,
    pub(crate) endpoint_id: Uuid,
    pub(crate) consumer_id: String,
    pub(crate) status: String,
    pub(crate) series: i32,
    pub(crate) drive: i32,
    pub(crate) attempt_count: i32,
    pub(crate) counted: i32,
    pub(crate) next_attempt_at: DateTime<Utc>,
    pub(crate) deadline: DateTime<Utc>,
    pub(crate) faults: i32,
    pub(crate) last_status: Option<i16>,
    pub(crate) last_error: Option<String>,
    pub(crate) failure_reason: Option<String>,
    pub(crate) settled_at: Option<DateTime<Utc>>,
}

impl Row {
    pub(crate) fn delivery(self) -> Result<Delivery, Fault> {
        let Self {
            accepted_at,
            message_id,
            endpoint_id,
            consumer_id,
            status,
            series,
            drive,
            attempt_count,
            counted,
            next_attempt_at,
            deadline,
            faults,
            last_status,
            last_error,
            failure_reason,
            settled_at,
        } = self;
        let unreadable = |problem: String| Fault::Unreadable {
            doing: "reading a delivery",
            problem,
        };
        let status: DeliveryStatus = status
            .parse()
            .map_err(|error: UnknownStatus| unreadable(error.to_string()))?;
        Ok(Delivery {
            key: DeliveryKey {
                accepted_at,
                message: MessageId::from_uuid(message_id),
                endpoint: EndpointId::from_uuid(endpoint_id),
            },
            consumer: ConsumerId::new(&consumer_id)
                .map_err(|error| unreadable(error.to_string()))?,
            status,
            series,
            drive,
            attempts: attempt_count,
            counted,
            next_attempt_at: (!status.is_terminal()).then_some(next_attempt_at),
            deadline,
            faults,
            last_status,
            last_error,
            failure_reason,
            settled_at,
        })
    }
}

/// Which deliveries to list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Those of one consumer.
    pub consumer: Option<ConsumerId>,
    /// Those to one endpoint.
    pub endpoint: Option<EndpointId>,
    /// Those with one status.
    pub status: Option<DeliveryStatus>,
    /// Those accepted at or after this.
    pub since: Option<DateTime<Utc>>,
    /// Those behind this one, that is, before it in time.
    pub after: Option<DeliveryKey>,
}

/// Deliveries, the last accepted first.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    listing: &Listing,
    limit: u32,
) -> Result<Page<Delivery, DeliveryKey>, Error> {
    let after = listing.after;
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT accepted_at, message_id, endpoint_id, consumer_id, status::text AS "status!", series,
                  drive, attempt_count, counted, next_attempt_at, deadline, faults, last_status,
                  last_error, failure_reason, settled_at
             FROM hooklane.deliveries
            WHERE ($1::text IS NULL OR consumer_id = $1)
              AND ($2::uuid IS NULL OR endpoint_id = $2)
              AND ($3::text IS NULL OR status = $3::text::hooklane.delivery_status)
              AND ($9 OR status = 'stalled') AND ($10 OR status = 'received')
              AND accepted_at >= coalesce($4, '-infinity'::timestamptz)
              AND accepted_at <= coalesce($5, 'infinity'::timestamptz)
              AND ($5::timestamptz IS NULL OR (accepted_at, message_id, endpoint_id) < ($5, $6, $7))
            ORDER BY accepted_at DESC, message_id DESC, endpoint_id DESC LIMIT $8"#,
        listing.consumer.as_ref().map(ConsumerId::as_str),
        listing.endpoint.map(EndpointId::uuid),
        listing.status.map(DeliveryStatus::as_str),
        listing.since,
        after.map(|key| key.accepted_at),
        after.map(|key| key.message.uuid()),
        after.map(|key| key.endpoint.uuid()),
        i64::from(limit) + 1,
        // Said again with constants: only these find the indexes of open rows.
        listing.status != Some(DeliveryStatus::Stalled),
        listing.status != Some(DeliveryStatus::Received),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing deliveries"))?;
    let deliveries: Result<Vec<Delivery>, Fault> = rows.into_iter().map(Row::delivery).collect();
    Ok(Page::cut(deliveries?, limit, |delivery| delivery.key))
}

/// Cancels the open deliveries of a message, or the one to `endpoint`; answers with their keys.
/// One that an endpoint is taking at this moment still ends as `sent`.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Conflict`] where none is open, or a fault of the database.
pub async fn cancel(
    store: &Store,
    message: MessageId,
    endpoint: Option<EndpointId>,
) -> Result<Vec<DeliveryKey>, Error> {
    let doing = "cancelling deliveries";
    let accepted = sqlx::query_scalar!(
        "SELECT accepted_at FROM hooklane.messages WHERE id = $1",
        message.uuid(),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    if accepted.is_empty() {
        return Err(Error::not_found(Kind::Message, message));
    }
    let cancelled = sqlx::query!(
        "WITH open AS (
             SELECT accepted_at, message_id, endpoint_id FROM hooklane.deliveries
              WHERE accepted_at = ANY($1) AND message_id = $2
                AND ($3::uuid IS NULL OR endpoint_id = $3) AND status IN ('received', 'stalled')
              ORDER BY endpoint_id FOR UPDATE)
         UPDATE hooklane.deliveries d
            SET status = 'cancelled', failure_reason = 'cancelled', settled_at = clock_timestamp()
           FROM open o
          WHERE d.accepted_at = o.accepted_at AND d.message_id = o.message_id
            AND d.endpoint_id = o.endpoint_id
      RETURNING d.accepted_at, d.message_id, d.endpoint_id",
        &accepted,
        message.uuid(),
        endpoint.map(EndpointId::uuid),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing(doing))?;
    if cancelled.is_empty() {
        return Err(none_open(store, &accepted, message, endpoint).await?);
    }
    let key = |row: (DateTime<Utc>, Uuid, Uuid)| DeliveryKey {
        accepted_at: row.0,
        message: MessageId::from_uuid(row.1),
        endpoint: EndpointId::from_uuid(row.2),
    };
    Ok(cancelled
        .into_iter()
        .map(|row| key((row.accepted_at, row.message_id, row.endpoint_id)))
        .collect())
}

/// Why there was nothing to cancel.
async fn none_open(
    store: &Store,
    accepted: &[DateTime<Utc>],
    message: MessageId,
    endpoint: Option<EndpointId>,
) -> Result<Error, Error> {
    let statuses = sqlx::query_scalar!(
        r#"SELECT DISTINCT status::text AS "status!" FROM hooklane.deliveries
            WHERE accepted_at = ANY($1) AND message_id = $2 AND ($3::uuid IS NULL OR endpoint_id = $3)"#,
        accepted,
        message.uuid(),
        endpoint.map(EndpointId::uuid),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("reading deliveries"))?;
    Ok(match (statuses.is_empty(), endpoint) {
        (true, Some(endpoint)) => {
            Error::not_found(Kind::Delivery, format_args!("{message} to {endpoint}"))
        }
        (true, None) => Error::Conflict(format!("{message} has no deliveries")),
        (false, _) => Error::Conflict(format!(
            "no delivery of {message} is open: {}",
            statuses.join(", ")
        )),
    })
}
