//! Accepted events, the last accepted first.
//!
//! Those of one consumer have an index; those of all are found by walking the primary key backwards.
//! What is rare (an event type, a status, an endpoint) is looked for in stretches of time; when its
//! patience is at an end the listing answers with what it has, and with where to go on.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::{ConsumerId, EventType};
use uuid::Uuid;

use crate::lookback::Lookback;
use crate::manage::{Error, Page};
use crate::{Error as Fault, Store};

const DOING: &str = "listing messages";

/// Where a message stands among all: when it was accepted, and its id among those of the same time.
pub type Place = (DateTime<Utc>, MessageId);

/// Which messages to list.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Those of one consumer.
    pub consumer: Option<ConsumerId>,
    /// Those of one event type.
    pub event_type: Option<EventType>,
    /// Those with a delivery to this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Those with a delivery that has this status; to the endpoint, where one is named.
    pub status: Option<DeliveryStatus>,
    /// Those accepted at or after this.
    pub since: Option<DateTime<Utc>>,
    /// Those accepted before this.
    pub until: Option<DateTime<Utc>>,
    /// Those behind this one, that is, before it in time.
    pub after: Option<Place>,
    /// How long to look, at least once in any case. Where that was not enough, the page may hold
    /// fewer than asked for, or none, and still names where to go on.
    pub patience: Duration,
}

impl Default for Listing {
    /// Everything, looked for at most 5 s and one look.
    fn default() -> Self {
        Self {
            consumer: None,
            event_type: None,
            endpoint: None,
            status: None,
            since: None,
            until: None,
            after: None,
            patience: Duration::from_secs(5),
        }
    }
}

/// How many deliveries a message has, by status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// Somewhere in the broker.
    pub received: u64,
    /// Waiting in the ledger for their next attempt.
    pub stalled: u64,
    /// Taken by their endpoint.
    pub sent: u64,
    /// Failed for good.
    pub failed: u64,
    /// Not attempted: the endpoint was paused or disabled.
    pub skipped: u64,
    /// Cancelled by hand, or with their endpoint.
    pub cancelled: u64,
}

impl Deliveries {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self {
            received,
            stalled,
            sent,
            failed,
            skipped,
            cancelled,
        } = *self;
        received + stalled + sent + failed + skipped + cancelled
    }

    fn of(&mut self, status: DeliveryStatus) -> &mut u64 {
        match status {
            DeliveryStatus::Received => &mut self.received,
            DeliveryStatus::Stalled => &mut self.stalled,
            DeliveryStatus::Sent => &mut self.sent,
            DeliveryStatus::Failed => &mut self.failed,
            DeliveryStatus::Skipped => &mut self.skipped,
            DeliveryStatus::Cancelled => &mut self.cancelled,
        }
    }
}

/// An accepted event, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
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
    /// The payload's size in bytes.
    pub size: u64,
    /// Which way it came: `outbox:<source>`, `intake` or `api`.
    pub source: String,
    /// The producer's idempotency key.
    pub idempotency_key: Option<String>,
    /// What became of it.
    pub deliveries: Deliveries,
}

struct Row {
    accepted_at: DateTime<Utc>,
    id: Uuid,
    consumer_id: String,
    event_type: String,
    content_type: String,
    size: i32,
    source: String,
    idempotency_key: Option<String>,
}

impl Row {
    fn listed(self) -> Result<Listed, Fault> {
        let Self {
            accepted_at,
            id,
            consumer_id,
            event_type,
            content_type,
            size,
            source,
            idempotency_key,
        } = self;
        Ok(Listed {
            id: MessageId::from_uuid(id),
            accepted_at,
            consumer: ConsumerId::new(&consumer_id).map_err(Fault::unreadable(DOING))?,
            event_type,
            content_type,
            size: u64::from(size.unsigned_abs()),
            source,
            idempotency_key,
            deliveries: Deliveries::default(),
        })
    }
}

/// Messages, the last accepted first.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    listing: &Listing,
    limit: u32,
) -> Result<Page<Listed, Place>, Error> {
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let place = |listed: &Listed| (listed.accepted_at, listed.id);
    let mut found = Vec::new();
    let Some(oldest) = oldest(store).await? else {
        return Ok(Page::cut(found, limit, place));
    };
    let floor = listing.since.unwrap_or(oldest).max(oldest);
    let mut lookback = Lookback::new(floor, listing.patience);
    let until = listing.until.map(before);
    let mut after = match (listing.after, until) {
        (Some(after), Some(until)) => Some(after.min(until)),
        (after, until) => after.or(until),
    };
    let mut page = loop {
        let now = clock::now();
        let top = after.map_or(now, |(accepted_at, _)| accepted_at.min(now));
        let from = lookback.from(top);
        let most = i64::from(limit) + 1 - i64::try_from(found.len()).unwrap_or(0);
        found.extend(look(store, listing, from, after, most).await?);
        if found.len() > wanted || lookback.is_last(from) {
            break Page::cut(found, limit, place);
        }
        after = Some(before(from));
        if !lookback.goes_on() {
            break Page {
                items: found,
                next: after,
            };
        }
    };
    count(store, &mut page.items).await?;
    Ok(page)
}

/// When the earliest message that is still kept was accepted.
async fn oldest(store: &Store) -> Result<Option<DateTime<Utc>>, Fault> {
    sqlx::query_scalar!("SELECT accepted_at FROM hooklane.messages ORDER BY accepted_at LIMIT 1")
        .fetch_optional(store.pool())
        .await
        .map_err(Fault::doing(DOING))
}

/// The place that comes after none of those accepted before `at`, and before all others.
fn before(at: DateTime<Utc>) -> Place {
    (at, MessageId::from_uuid(Uuid::nil()))
}

/// Messages that the first condition chooses. The join is a loop, with an end at the first hit: it
/// looks at a message's deliveries in their primary key.
macro_rules! messages {
    ($which:literal, $consumer:expr, $listing:ident, $from:ident, $after:ident, $most:ident) => {
        sqlx::query_as!(
            Row,
            r#"SELECT m.accepted_at, m.id, m.consumer_id, m.event_type, m.content_type,
                      octet_length(m.payload) AS "size!", m.source, m.idempotency_key
                 FROM hooklane.messages m
                 LEFT JOIN LATERAL (
                      SELECT true AS hit FROM hooklane.deliveries d
                       WHERE $7 AND d.accepted_at = m.accepted_at AND d.message_id = m.id
                         AND ($5::uuid IS NULL OR d.endpoint_id = $5)
                         AND ($6::text IS NULL OR d.status = $6::text::hooklane.delivery_status)
                       LIMIT 1) AS w ON true
                WHERE "#
                + $which
                + r#" AND m.accepted_at >= $2 AND m.accepted_at <= coalesce($3, 'infinity'::timestamptz)
                  AND ($3::timestamptz IS NULL OR (m.accepted_at, m.id) < ($3, $4))
                  AND ($8::text IS NULL OR m.event_type = $8)
                  AND (NOT $7 OR w.hit)
                ORDER BY m.accepted_at DESC, m.id DESC LIMIT $9"#,
            $consumer,
            $from,
            $after.map(|(accepted_at, _)| accepted_at),
            $after.map(|(_, id)| id.uuid()),
            $listing.endpoint.map(EndpointId::uuid),
            $listing.status.map(DeliveryStatus::as_str),
            $listing.endpoint.is_some() || $listing.status.is_some(),
            $listing.event_type.as_ref().map(EventType::as_str),
            $most,
        )
    };
}

/// At most so many of those accepted from `from` on that come behind `after`.
async fn look(
    store: &Store,
    listing: &Listing,
    from: DateTime<Utc>,
    after: Option<Place>,
    most: i64,
) -> Result<Vec<Listed>, Fault> {
    // Two statements: each finds its index whatever the planner makes of the other conditions.
    let rows = match &listing.consumer {
        Some(id) => {
            messages!(
                "m.consumer_id = $1",
                id.as_str(),
                listing,
                from,
                after,
                most
            )
            .fetch_all(store.pool())
            .await
        }
        None => {
            messages!("$1::text IS NULL", None::<&str>, listing, from, after, most)
                .fetch_all(store.pool())
                .await
        }
    };
    let rows = rows.map_err(Fault::doing(DOING))?;
    rows.into_iter().map(Row::listed).collect()
}

/// Counts the deliveries of these.
async fn count(store: &Store, listed: &mut [Listed]) -> Result<(), Fault> {
    if listed.is_empty() {
        return Ok(());
    }
    let accepted: Vec<DateTime<Utc>> = listed.iter().map(|one| one.accepted_at).collect();
    let ids: Vec<Uuid> = listed.iter().map(|one| one.id.uuid()).collect();
    let mut tx = store.begin_probing().await?;
    let rows = sqlx::query!(
        r#"SELECT r.at AS "at!", d.status::text AS "status!", count(*) AS "count!"
             FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY AS r (accepted_at, id, at)
             JOIN hooklane.deliveries d ON d.accepted_at = r.accepted_at AND d.message_id = r.id
            GROUP BY r.at, d.status"#,
        &accepted,
        &ids,
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(Fault::doing(DOING))?;
    tx.rollback().await.map_err(Fault::doing(DOING))?;
    for row in rows {
        let status: DeliveryStatus = row.status.parse().map_err(Fault::unreadable(DOING))?;
        let at = usize::try_from(row.at - 1).ok();
        if let Some(one) = at.and_then(|at| listed.get_mut(at)) {
            *one.deliveries.of(status) = row.count.unsigned_abs();
        }
    }
    Ok(())
}
