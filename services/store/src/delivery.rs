//! Deliveries as an operator sees them: listing and cancelling.
//!
//! Reads and one manual step alone. How a delivery moves by itself is the recorder's and the
//! scheduler's.

use chrono::{DateTime, Utc};
pub use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use serde_json::json;
use uuid::Uuid;

use crate::audit_log::{self, Action, Change};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

mod listing;

pub use listing::{Listing, list};

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
        let doing = "reading a delivery";
        let status: DeliveryStatus = status.parse().map_err(Fault::unreadable(doing))?;
        Ok(Delivery {
            key: DeliveryKey::from_uuids(accepted_at, message_id, endpoint_id),
            consumer: ConsumerId::new(&consumer_id).map_err(Fault::unreadable(doing))?,
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
    let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
    let accepted = sqlx::query_scalar!(
        "SELECT accepted_at FROM hooklane.messages WHERE id = $1",
        message.uuid(),
    )
    .fetch_all(&mut *tx)
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
      RETURNING d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id",
        &accepted,
        message.uuid(),
        endpoint.map(EndpointId::uuid),
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let Some(first) = cancelled.first() else {
        tx.rollback().await.map_err(Fault::doing(doing))?;
        return Err(none_open(store, &accepted, message, endpoint).await?);
    };
    let change = Change::of(Action::DeliveryCancel, Some(&first.consumer_id), message);
    let change = change.with(json!({
        "endpoint": endpoint.map(|id| id.to_string()), "deliveries": cancelled.len(),
    }));
    audit_log::note(&mut tx, store, change).await?;
    tx.commit().await.map_err(Fault::doing(doing))?;
    Ok(cancelled
        .into_iter()
        .map(|row| DeliveryKey::from_uuids(row.accepted_at, row.message_id, row.endpoint_id))
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
