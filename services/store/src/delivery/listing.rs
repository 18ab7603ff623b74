//! Deliveries, the last accepted first.
//!
//! There is no index for this: every update of a delivery changes its status, so each index is
//! written to a second time, on the hot path. A listing walks the primary key backwards instead,
//! which finds the last deliveries at once, and those of a busy consumer. What is rare is looked
//! for in stretches of time, each twice as long as the one before as long as they are quick; when
//! its patience is at an end the listing answers with what it has, and with where to go on.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use uuid::Uuid;

use super::{Delivery, Row};
use crate::lookback::Lookback;
use crate::manage::{Error, Page};
use crate::{Error as Fault, Store};

/// Which deliveries to list.
#[derive(Debug, Clone)]
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
    /// How long to look, at least once in any case. Where that was not enough, the page may hold
    /// fewer than asked for, or none, and still names where to go on.
    pub patience: Duration,
}

impl Default for Listing {
    /// Everything, looked for at most 5 s and one look.
    fn default() -> Self {
        Self {
            consumer: None,
            endpoint: None,
            status: None,
            since: None,
            after: None,
            patience: Duration::from_secs(5),
        }
    }
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
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let Some(oldest) = oldest(store).await? else {
        return Ok(Page::cut(found, limit, |delivery: &Delivery| delivery.key));
    };
    let floor = listing.since.unwrap_or(oldest).max(oldest);
    let mut lookback = Lookback::new(floor, listing.patience);
    let mut after = listing.after;
    loop {
        let from = lookback.from(after.map_or_else(clock::now, |key| key.accepted_at));
        let most = i64::from(limit) + 1 - i64::try_from(found.len()).unwrap_or(0);
        found.extend(look(store, listing, from, after, most).await?);
        if found.len() > wanted || lookback.is_last(from) {
            return Ok(Page::cut(found, limit, |delivery| delivery.key));
        }
        after = Some(before(from));
        if !lookback.goes_on() {
            return Ok(Page {
                items: found,
                next: after,
            });
        }
    }
}

/// When the earliest delivery that is still kept was accepted.
async fn oldest(store: &Store) -> Result<Option<DateTime<Utc>>, Fault> {
    sqlx::query_scalar!("SELECT accepted_at FROM hooklane.deliveries ORDER BY accepted_at LIMIT 1")
        .fetch_optional(store.pool())
        .await
        .map_err(Fault::doing("listing deliveries"))
}

/// The key that comes after none of those accepted before `at`, and before all others.
fn before(at: DateTime<Utc>) -> DeliveryKey {
    DeliveryKey {
        accepted_at: at,
        message: MessageId::from_uuid(Uuid::nil()),
        endpoint: EndpointId::from_uuid(Uuid::nil()),
    }
}

/// At most so many of those accepted from `from` on that come behind `after`.
async fn look(
    store: &Store,
    listing: &Listing,
    from: DateTime<Utc>,
    after: Option<DeliveryKey>,
    most: i64,
) -> Result<Vec<Delivery>, Fault> {
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
        from,
        after.map(|key| key.accepted_at),
        after.map(|key| key.message.uuid()),
        after.map(|key| key.endpoint.uuid()),
        most,
        // Said again with constants: only these find the indexes of open rows.
        listing.status != Some(DeliveryStatus::Stalled),
        listing.status != Some(DeliveryStatus::Received),
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing deliveries"))?;
    rows.into_iter().map(Row::delivery).collect()
}
