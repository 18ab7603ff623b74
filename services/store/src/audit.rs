//! Whether the ledger keeps its invariants: questions for tests, the load test and a worried
//! operator. Reads only.
//!
//! Owns what the ledger alone can prove (I1, I3, I4, I9 and the ledger's half of I5); that an attempt
//! here was really made, and that every one made is here, only a receiver can say, and
//! [`attempts`] gives it the list to compare with. Does not own the judgement on what a crash
//! excuses.

mod checks;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use hooklane_proto::id::{EndpointId, MessageId};
use sqlx::Row;
use uuid::Uuid;

use crate::{Error, Store};

pub use checks::{Finding, findings};

/// What is still on its way. Cheap: it reads partial indexes, so it may be asked often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Open {
    /// Outbox rows not yet taken.
    pub outbox: u64,
    /// Deliveries somewhere in the broker.
    pub received: u64,
    /// Deliveries waiting in the ledger.
    pub stalled: u64,
}

impl Open {
    /// Whether nothing is.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Everything counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Accepted messages.
    pub messages: u64,
    /// Deliveries somewhere in the broker.
    pub received: u64,
    /// Deliveries waiting in the ledger.
    pub stalled: u64,
    /// Deliveries to endpoints that were paused or disabled.
    pub skipped: u64,
    /// Deliveries given up.
    pub failed: u64,
    /// Deliveries to deleted endpoints, or cancelled by hand.
    pub cancelled: u64,
    /// Deliveries that the endpoint took.
    pub sent: u64,
    /// Attempts recorded.
    pub attempts: u64,
    /// Events set aside.
    pub rejected: u64,
    /// Outbox rows not yet taken.
    pub outbox_pending: u64,
}

impl Totals {
    /// Deliveries of any status.
    #[must_use]
    pub fn deliveries(&self) -> u64 {
        self.received + self.stalled + self.skipped + self.failed + self.cancelled + self.sent
    }
}

/// One recorded attempt, as much of it as a receiver can compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The message.
    pub message: MessageId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The series.
    pub series: i32,
    /// The drive.
    pub drive: i32,
    /// Its number in all series.
    pub number: i32,
    /// When the lane started it.
    pub started_at: DateTime<Utc>,
    /// From start to end, in microseconds.
    pub duration_us: i64,
    /// The answer's status code.
    pub status: Option<i16>,
    /// The error class, where there was no answer.
    pub error: Option<String>,
    /// What was noted beside it, such as that the request went out twice within the attempt.
    pub detail: Option<String>,
}

/// How often rows were driven and parked before their first attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vain {
    /// Deliveries looked at.
    pub deliveries: u64,
    /// Of these, how many have been attempted.
    pub attempted: u64,
    /// By how many drives they made in vain: the first entry counts those with none, the last
    /// those with at least as many as it has entries less one.
    pub by_drives: [u64; 6],
    /// The most that any of them made.
    pub most: u32,
}

impl Vain {
    /// How many deliveries made more than `limit` drives in vain, `limit` from 0 to 4.
    #[must_use]
    pub fn over(&self, limit: usize) -> u64 {
        self.by_drives.iter().skip(limit + 1).sum()
    }
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// What is still on its way.
///
/// # Errors
/// Where the database can't be reached or refuses.
pub async fn open(store: &Store) -> Result<Open, Error> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NULL) AS outbox,
                (SELECT count(*) FROM hooklane.deliveries WHERE status = 'received') AS received,
                (SELECT count(*) FROM hooklane.deliveries WHERE status = 'stalled') AS stalled",
    )
    .fetch_one(store.pool())
    .await
    .map_err(Error::doing("counting what is on its way"))?;
    Ok(Open {
        outbox: unsigned(row.get("outbox")),
        received: unsigned(row.get("received")),
        stalled: unsigned(row.get("stalled")),
    })
}

/// The deliveries that are not ended: what a broker that lost everything would owe.
///
/// # Errors
/// Where the database can't be reached or refuses.
pub async fn not_ended(store: &Store) -> Result<Vec<(MessageId, EndpointId)>, Error> {
    let rows: Vec<(Uuid, Uuid)> = sqlx::query_as(
        "SELECT message_id, endpoint_id FROM hooklane.deliveries
         WHERE status = 'received' UNION ALL
         SELECT message_id, endpoint_id FROM hooklane.deliveries WHERE status = 'stalled'",
    )
    .fetch_all(store.pool())
    .await
    .map_err(Error::doing("reading what is on its way"))?;
    let pair = |(message, endpoint)| {
        (
            MessageId::from_uuid(message),
            EndpointId::from_uuid(endpoint),
        )
    };
    Ok(rows.into_iter().map(pair).collect())
}

/// Everything counted once; reads whole tables.
///
/// # Errors
/// Where the database can't be reached or refuses.
pub async fn totals(store: &Store) -> Result<Totals, Error> {
    let row = sqlx::query(
        "SELECT count(*) FILTER (WHERE status = 'received') AS received,
                count(*) FILTER (WHERE status = 'stalled') AS stalled,
                count(*) FILTER (WHERE status = 'skipped') AS skipped,
                count(*) FILTER (WHERE status = 'failed') AS failed,
                count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
                count(*) FILTER (WHERE status = 'sent') AS sent,
                (SELECT count(*) FROM hooklane.messages) AS messages,
                (SELECT count(*) FROM hooklane.attempts) AS attempts,
                (SELECT count(*) FROM hooklane.rejected_events) AS rejected,
                (SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NULL) AS outbox
         FROM hooklane.deliveries",
    )
    .fetch_one(store.pool())
    .await
    .map_err(Error::doing("counting the ledger"))?;
    Ok(Totals {
        messages: unsigned(row.get("messages")),
        received: unsigned(row.get("received")),
        stalled: unsigned(row.get("stalled")),
        skipped: unsigned(row.get("skipped")),
        failed: unsigned(row.get("failed")),
        cancelled: unsigned(row.get("cancelled")),
        sent: unsigned(row.get("sent")),
        attempts: unsigned(row.get("attempts")),
        rejected: unsigned(row.get("rejected")),
        outbox_pending: unsigned(row.get("outbox")),
    })
}

/// Gives every recorded attempt to `each`, in no particular order, without keeping them.
///
/// # Errors
/// Where the database can't be reached or refuses.
pub async fn attempts(store: &Store, mut each: impl FnMut(Attempt)) -> Result<(), Error> {
    let doing = "reading the attempts";
    let mut rows = sqlx::query_as::<_, AttemptRow>(
        "SELECT message_id, endpoint_id, series, drive, number, started_at, duration_us, status, error,
                detail
         FROM hooklane.attempts",
    )
    .fetch(store.pool());
    while let Some(row) = rows.try_next().await.map_err(Error::doing(doing))? {
        each(row.into());
    }
    Ok(())
}

#[derive(sqlx::FromRow)]
struct AttemptRow {
    message_id: Uuid,
    endpoint_id: Uuid,
    series: i32,
    drive: i32,
    number: i32,
    started_at: DateTime<Utc>,
    duration_us: i64,
    status: Option<i16>,
    error: Option<String>,
    detail: Option<String>,
}

impl From<AttemptRow> for Attempt {
    fn from(row: AttemptRow) -> Self {
        let AttemptRow {
            message_id,
            endpoint_id,
            series,
            drive,
            number,
            started_at,
            duration_us,
            status,
            error,
            detail,
        } = row;
        Self {
            message: MessageId::from_uuid(message_id),
            endpoint: EndpointId::from_uuid(endpoint_id),
            series,
            drive,
            number,
            started_at,
            duration_us,
            status,
            error,
            detail,
        }
    }
}

/// How often the deliveries of one endpoint were driven and parked before their first attempt. A
/// delivery without one yet counts the drives that have ended so far.
///
/// # Errors
/// Where the database can't be reached or refuses.
pub async fn vain_drives(store: &Store, endpoint: EndpointId) -> Result<Vain, Error> {
    let rows: Vec<(i32, bool, i64)> = sqlx::query_as(
        "WITH firsts AS (
             SELECT message_id, min(drive) AS drive FROM hooklane.attempts
             WHERE endpoint_id = $1 GROUP BY message_id)
         SELECT CASE WHEN f.drive IS NOT NULL THEN f.drive - 1
                     WHEN d.settled = 0 THEN d.drive - 1
                     ELSE d.drive END AS vain,
                f.drive IS NOT NULL AS attempted,
                count(*) AS deliveries
         FROM hooklane.deliveries d LEFT JOIN firsts f USING (message_id)
         WHERE d.endpoint_id = $1
         GROUP BY 1, 2",
    )
    .bind(endpoint.uuid())
    .fetch_all(store.pool())
    .await
    .map_err(Error::doing("counting drives in vain"))?;
    let mut vain = Vain::default();
    for (drives, attempted, deliveries) in rows {
        let (drives, deliveries) = (u32::try_from(drives).unwrap_or(0), unsigned(deliveries));
        vain.deliveries += deliveries;
        if attempted {
            vain.attempted += deliveries;
        }
        vain.most = vain.most.max(drives);
        let last = vain.by_drives.len() - 1;
        vain.by_drives[usize::try_from(drives).map_or(last, |drives| drives.min(last))] +=
            deliveries;
    }
    Ok(vain)
}
