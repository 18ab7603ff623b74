//! Single attempts: listed, and shown whole.
//!
//! Reads alone; the recorder writes them. An attempt is found by its id alone because that holds the
//! time when it ended, which is at most as long after its start as an attempt may take. An endpoint's
//! attempts are looked for backwards in time: an index that begins with the endpoint would cost the
//! recorder more than it is worth to readers.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use uuid::Uuid;

use crate::lookback::Lookback;
use crate::manage::{Error, Kind, Page};
use crate::{Error as Fault, Store};

mod statistics;

pub use statistics::{Failures, MAX_ATTEMPTS, MAX_WINDOW, Statistics, statistics};

/// The longest that an attempt takes, from its start to its id, with a margin for a clock that is set.
const LONGEST: TimeDelta = TimeDelta::seconds(90);
/// How far an id may lie before its attempt's start.
const SLACK: TimeDelta = TimeDelta::seconds(5);

/// One POST, without what was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// Of which delivery.
    pub key: DeliveryKey,
    /// The series it belongs to, from 1.
    pub series: i32,
    /// The drive it belongs to, from 1.
    pub drive: i32,
    /// Its number in all series, from 1.
    pub number: i32,
    /// When the lane started it.
    pub started_at: DateTime<Utc>,
    /// From the start to the last byte read.
    pub duration: Duration,
    /// The answer's status code.
    pub status: Option<i16>,
    /// The error class, where there was no answer of use.
    pub error: Option<String>,
    /// The error in words.
    pub detail: Option<String>,
    /// What followed: `sent`, `failed` or `retry`.
    pub verdict: String,
    /// The attempt's own trace.
    pub traceparent: Option<String>,
}

/// An attempt with what was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The attempt.
    pub attempt: Attempt,
    /// The answer's headers, at most 8 KiB of them, in their order.
    pub headers: Vec<(String, String)>,
    /// The answer's first bytes, at most 4 KiB.
    pub body: Vec<u8>,
}

struct Row {
    started_at: DateTime<Utc>,
    id: Uuid,
    accepted_at: DateTime<Utc>,
    message_id: Uuid,
    endpoint_id: Uuid,
    series: i32,
    drive: i32,
    number: i32,
    duration_us: i64,
    status: Option<i16>,
    error: Option<String>,
    detail: Option<String>,
    verdict: String,
    traceparent: Option<String>,
    headers: Option<String>,
    body: Option<Vec<u8>>,
}

impl Row {
    fn attempt(self) -> Result<Attempt, Fault> {
        Ok(self.answered()?.attempt)
    }

    fn answered(self) -> Result<Answered, Fault> {
        let Self {
            started_at,
            id,
            accepted_at,
            message_id,
            endpoint_id,
            series,
            drive,
            number,
            duration_us,
            status,
            error,
            detail,
            verdict,
            traceparent,
            headers,
            body,
        } = self;
        let headers = headers
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(Fault::unreadable("reading an attempt's headers"))?;
        Ok(Answered {
            attempt: Attempt {
                id: AttemptId::from_uuid(id),
                key: DeliveryKey::from_uuids(accepted_at, message_id, endpoint_id),
                series,
                drive,
                number,
                started_at,
                duration: Duration::from_micros(duration_us.unsigned_abs()),
                status,
                error,
                detail,
                verdict,
                traceparent,
            },
            headers: headers.unwrap_or_default(),
            body: body.unwrap_or_default(),
        })
    }
}

/// Where an attempt stands among all: when it started, and its id among those of the same time.
pub type Place = (DateTime<Utc>, AttemptId);

/// Whose attempts to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those of one message, or of its delivery to one endpoint.
    Message(MessageId, Option<EndpointId>),
    /// Those to one endpoint.
    Endpoint(EndpointId),
}

/// Which attempts to list.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    /// Whose.
    pub which: Which,
    /// Those behind this one, that is, started before it.
    pub after: Option<Place>,
    /// How long to look for an endpoint's, at least once in any case. Where that was not enough, the
    /// page may hold fewer than asked for, or none, and still names where to go on.
    pub patience: Duration,
}

impl Listing {
    /// From the last one on, looked for at most 5 s and one look.
    #[must_use]
    pub fn of(which: Which) -> Self {
        Self {
            which,
            after: None,
            patience: Duration::from_secs(5),
        }
    }
}

/// Attempts, the last started first.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    listing: &Listing,
    limit: u32,
) -> Result<Page<Attempt, Place>, Error> {
    let place = |attempt: &Attempt| (attempt.started_at, attempt.id);
    match listing.which {
        Which::Message(message, endpoint) => {
            let found = of_message(store, message, endpoint, listing.after, limit).await?;
            Ok(Page::cut(found, limit, place))
        }
        Which::Endpoint(endpoint) => {
            let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
            let mut found = Vec::new();
            let Some(oldest) = oldest(store).await? else {
                return Ok(Page::cut(found, limit, place));
            };
            let mut lookback = Lookback::new(oldest, listing.patience);
            let mut after = listing.after;
            loop {
                let from = lookback.from(after.map_or_else(clock::now, |(at, _)| at));
                let most = i64::from(limit) + 1 - i64::try_from(found.len()).unwrap_or(0);
                found.extend(of_endpoint(store, endpoint, from, after, most).await?);
                if found.len() > wanted || lookback.is_last(from) {
                    return Ok(Page::cut(found, limit, place));
                }
                after = Some((from, AttemptId::from_uuid(Uuid::nil())));
                if !lookback.goes_on() {
                    return Ok(Page {
                        items: found,
                        next: after,
                    });
                }
            }
        }
    }
}

/// When the earliest attempt that is still kept started.
async fn oldest(store: &Store) -> Result<Option<DateTime<Utc>>, Fault> {
    sqlx::query_scalar!("SELECT started_at FROM hooklane.attempts ORDER BY started_at LIMIT 1")
        .fetch_optional(store.pool())
        .await
        .map_err(Fault::doing("listing attempts"))
}

/// Found whole, and then cut: by the wish for the first few the planner might walk through all
/// attempts in their order instead.
async fn of_message(
    store: &Store,
    message: MessageId,
    endpoint: Option<EndpointId>,
    after: Option<Place>,
    limit: u32,
) -> Result<Vec<Attempt>, Fault> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH all_of_it AS MATERIALIZED (
               SELECT started_at, id, accepted_at, message_id, endpoint_id, series, drive, number,
                      duration_us, status, error, detail, verdict, traceparent
                 FROM hooklane.attempts
                WHERE message_id = $1 AND ($2::uuid IS NULL OR endpoint_id = $2))
           SELECT started_at, id, accepted_at, message_id, endpoint_id, series, drive, number,
                  duration_us, status, error, detail, verdict, traceparent,
                  NULL::text AS headers, NULL::bytea AS body
             FROM all_of_it
            WHERE $3::timestamptz IS NULL OR (started_at, id) < ($3, $4)
            ORDER BY started_at DESC, id DESC LIMIT $5"#,
        message.uuid(),
        endpoint.map(EndpointId::uuid),
        after.map(|(at, _)| at),
        after.map(|(_, id)| id.uuid()),
        i64::from(limit) + 1,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing attempts"))?;
    rows.into_iter().map(Row::attempt).collect()
}

/// At most so many of those started from `from` on that come behind `after`.
async fn of_endpoint(
    store: &Store,
    endpoint: EndpointId,
    from: DateTime<Utc>,
    after: Option<Place>,
    most: i64,
) -> Result<Vec<Attempt>, Fault> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT started_at, id, accepted_at, message_id, endpoint_id, series, drive, number,
                duration_us, status, error, detail, verdict, traceparent,
                NULL::text AS headers, NULL::bytea AS body
           FROM hooklane.attempts
          WHERE endpoint_id = $1 AND started_at >= $2
            AND started_at <= coalesce($3, 'infinity'::timestamptz)
            AND ($3::timestamptz IS NULL OR (started_at, id) < ($3, $4))
          ORDER BY started_at DESC, id DESC LIMIT $5",
        endpoint.uuid(),
        from,
        after.map(|(at, _)| at),
        after.map(|(_, id)| id.uuid()),
        most,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing attempts"))?;
    rows.into_iter().map(Row::attempt).collect()
}

/// The attempt with this id, whole.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, id: AttemptId) -> Result<Answered, Error> {
    let missing = || Error::not_found(Kind::Attempt, id);
    let ended = made_at(id).ok_or_else(missing)?;
    let row = sqlx::query_as!(
        Row,
        "SELECT started_at, id, accepted_at, message_id, endpoint_id, series, drive, number,
                duration_us, status, error, detail, verdict, traceparent,
                headers::text AS headers, body
           FROM hooklane.attempts WHERE started_at BETWEEN $1 AND $2 AND id = $3",
        ended - LONGEST,
        ended + SLACK,
        id.uuid(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing("reading an attempt"))?;
    Ok(row.ok_or_else(missing)?.answered()?)
}

/// When an id was made; `None` for one that says no time that the ledger could hold.
fn made_at(id: AttemptId) -> Option<DateTime<Utc>> {
    let (seconds, nanos) = id.uuid().get_timestamp()?.to_unix();
    let at = DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)?;
    // The days around it are to be reckoned with as well.
    let known =
        DateTime::UNIX_EPOCH + TimeDelta::days(1)..DateTime::<Utc>::MAX_UTC - TimeDelta::days(1);
    known.contains(&at).then_some(at)
}
