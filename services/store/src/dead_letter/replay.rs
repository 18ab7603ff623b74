//! Replay: a new series for a delivery that has ended.
//!
//! The series begins with no attempts counted and a deadline anew; the numbers of attempts and of
//! drives go on, and the message keeps its id. The row waits in the ledger, due at once, and the
//! scheduler feeds it to its lane at the endpoint's own rate, so that any number may be replayed at
//! once.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Days, NaiveTime, TimeDelta, Utc};
use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::EndpointId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Columns, Filed, Series, audited};
use crate::audit_log::{self, Action};
use crate::{Error, Store};

/// What holds for all new series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long after now a new series may last.
    pub deadline: Duration,
    /// Days that are kept besides today.
    pub retention_days: u32,
}

/// Why a delivery is not replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// It is not there (any more).
    Missing,
    /// It is under way.
    Open,
    /// It is in another series than was meant: somebody else replayed it.
    Replayed,
    /// Its endpoint is paused.
    Paused,
    /// Its endpoint is disabled.
    Disabled,
    /// Its endpoint is deleted.
    Deleted,
    /// Its payload goes before the new series would end.
    Expires,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Self; 7] = [
        Self::Missing,
        Self::Open,
        Self::Replayed,
        Self::Paused,
        Self::Disabled,
        Self::Deleted,
        Self::Expires,
    ];

    /// The name in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Open => "open",
            Self::Replayed => "replayed",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
            Self::Expires => "expires",
        }
    }
}

impl Refusal {
    /// What it says of a delivery to `endpoint`, which the fix names where it is known.
    #[must_use]
    pub fn told(self, endpoint: Option<EndpointId>) -> String {
        let resume = |state: &str| {
            let which = endpoint.map_or_else(|| "ENDPOINT".to_owned(), |id| id.to_string());
            format!(
                "its endpoint is {state}; resume it first with: hooklane endpoint resume {which}"
            )
        };
        match self {
            Self::Missing => "it is not in the ledger any more".to_owned(),
            Self::Open => "it is under way already".to_owned(),
            Self::Replayed => "it was replayed meanwhile".to_owned(),
            Self::Paused => resume("paused"),
            Self::Disabled => resume("disabled"),
            Self::Deleted => "its endpoint is deleted".to_owned(),
            Self::Expires => "its payload would expire before the new series' deadline; keep days \
                              longer with recorder.retention_days, or make retry.deadline shorter"
                .to_owned(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(None))
    }
}

/// What a replay did with one delivery: where its dead letter stood in `DLQ`, or why nothing was
/// done.
pub type Outcome = Result<Option<Filed>, Refusal>;

/// The rows that a replay is about, locked or not.
macro_rules! rows {
    ($columns:ident, $lock:literal) => {
        sqlx::query_as!(
            Row,
            r#"SELECT d.accepted_at, d.message_id, d.endpoint_id, d.series, d.status::text AS "status!",
                      e.state::text AS "state!", d.dead_letter, d.dead_lettered_at,
                      statement_timestamp() AS "now!"
                 FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[])
                      AS r (accepted_at, message_id, endpoint_id)
                 JOIN hooklane.deliveries d ON d.accepted_at = r.accepted_at
                  AND d.message_id = r.message_id AND d.endpoint_id = r.endpoint_id
                 JOIN hooklane.endpoints e ON e.id = d.endpoint_id "#
                + $lock,
            &$columns.accepted_at,
            &$columns.message,
            &$columns.endpoint,
        )
    };
}

impl Store {
    /// Opens a new series for each of these deliveries that has ended in the one named. Answers in
    /// their order.
    ///
    /// Locks deliveries by key, then backlogs by endpoint.
    ///
    /// # Errors
    /// Where the database fails: then none of them is replayed.
    pub async fn replay(&self, series: &[Series], terms: Terms) -> Result<Vec<Outcome>, Error> {
        let mut tx = self.begin_probing().await?;
        let outcomes = replay(&mut tx, series, terms).await?;
        let replayed = series.iter().zip(&outcomes);
        let replayed = replayed.filter(|(_, outcome)| outcome.is_ok());
        let replayed: Vec<Series> = replayed.map(|(series, _)| *series).collect();
        if !replayed.is_empty() {
            let change = audited(Action::DeadLetterReplay, &replayed);
            audit_log::note(&mut tx, self, change).await?;
        }
        tx.commit()
            .await
            .map_err(Error::doing("committing a replay"))?;
        Ok(outcomes)
    }

    /// What [`Store::replay`] would do, without doing it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn may_replay(&self, series: &[Series], terms: Terms) -> Result<Vec<Outcome>, Error> {
        let doing = "looking at deliveries to replay";
        let columns = Columns::of(series.iter().copied());
        let mut tx = self.begin_probing().await?;
        let rows = rows!(columns, "")
            .fetch_all(&mut *tx)
            .await
            .map_err(Error::doing(doing))?;
        tx.rollback().await.map_err(Error::doing(doing))?;
        outcomes(series, rows, terms)
    }
}

/// [`Store::replay`] as a part of a transaction that [`Store::begin_probing`] began.
pub(crate) async fn replay(
    tx: &mut PgConnection,
    series: &[Series],
    terms: Terms,
) -> Result<Vec<Outcome>, Error> {
    let columns = Columns::of(series.iter().copied());
    let rows = rows!(columns, "FOR UPDATE OF d")
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing("locking deliveries for a replay"))?;
    let outcomes = outcomes(series, rows, terms)?;
    let allowed = series
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| outcome.is_ok())
        .map(|(series, _)| *series);
    open_series(tx, Columns::of(allowed), terms).await?;
    Ok(outcomes)
}

/// Makes locked rows due now, in their next series, and their backlogs with them.
async fn open_series(tx: &mut PgConnection, columns: Columns, terms: Terms) -> Result<(), Error> {
    if columns.message.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "WITH replayed AS (
             UPDATE hooklane.deliveries d
                SET status = 'stalled', series = d.series + 1, settled = 0, counted = 0, faults = 0,
                    next_attempt_at = statement_timestamp(),
                    deadline = statement_timestamp() + make_interval(secs => $4),
                    failure_reason = NULL, settled_at = NULL, dead_lettered_at = NULL,
                    dead_letter = NULL, discarded_at = NULL
               FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[])
                    AS r (accepted_at, message_id, endpoint_id)
              WHERE d.accepted_at = r.accepted_at AND d.message_id = r.message_id
                AND d.endpoint_id = r.endpoint_id
          RETURNING d.accepted_at, d.endpoint_id, d.consumer_id, d.partition, d.next_attempt_at)
         INSERT INTO hooklane.backlogs AS b (endpoint_id, consumer_id, partition, due_at, accepted_from)
         SELECT endpoint_id, min(consumer_id), min(partition), min(next_attempt_at), min(accepted_at)
           FROM replayed GROUP BY endpoint_id ORDER BY endpoint_id
         ON CONFLICT (endpoint_id) DO UPDATE SET due_at = least(b.due_at, excluded.due_at),
             accepted_from = least(b.accepted_from, excluded.accepted_from)
          WHERE b.due_at > excluded.due_at OR b.accepted_from > excluded.accepted_from",
        &columns.accepted_at,
        &columns.message,
        &columns.endpoint,
        terms.deadline.as_secs_f64(),
    )
    .execute(tx)
    .await
    .map(|_done| ())
    .map_err(Error::doing("replaying deliveries"))
}

struct Row {
    accepted_at: DateTime<Utc>,
    message_id: Uuid,
    endpoint_id: Uuid,
    series: i32,
    status: String,
    state: String,
    dead_letter: Option<i64>,
    dead_lettered_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
}

fn outcomes(asked: &[Series], rows: Vec<Row>, terms: Terms) -> Result<Vec<Outcome>, Error> {
    let mut found: HashMap<DeliveryKey, (i32, Outcome)> = HashMap::with_capacity(rows.len());
    for row in rows {
        let key = DeliveryKey::from_uuids(row.accepted_at, row.message_id, row.endpoint_id);
        let status: DeliveryStatus = row
            .status
            .parse()
            .map_err(Error::unreadable("reading a delivery"))?;
        let outcome = match refusal(status, &row.state, row.accepted_at, row.now, terms) {
            Some(refusal) => Err(refusal),
            None => Ok(Filed::read(row.dead_letter, row.dead_lettered_at)),
        };
        found.insert(key, (row.series, outcome));
    }
    let outcome = |asked: &Series| match found.get(&asked.key) {
        None => Err(Refusal::Missing),
        Some((series, _)) if *series != asked.series => Err(Refusal::Replayed),
        Some((_, outcome)) => *outcome,
    };
    Ok(asked.iter().map(outcome).collect())
}

/// Why a delivery can't have a new series.
pub(crate) fn refusal(
    status: DeliveryStatus,
    state: &str,
    accepted_at: DateTime<Utc>,
    now: DateTime<Utc>,
    terms: Terms,
) -> Option<Refusal> {
    if !status.is_terminal() {
        return Some(Refusal::Open);
    }
    if let Some(stopped) = stopped(state) {
        return Some(stopped);
    }
    let ends = TimeDelta::from_std(terms.deadline)
        .ok()
        .and_then(|deadline| now.checked_add_signed(deadline));
    match (ends, expires(accepted_at, terms.retention_days)) {
        (_, None) => None,
        (Some(ends), Some(expires)) if ends <= expires => None,
        _ => Some(Refusal::Expires),
    }
}

/// Why an endpoint in this state takes no deliveries.
pub(crate) fn stopped(state: &str) -> Option<Refusal> {
    match state {
        "paused" => Some(Refusal::Paused),
        "disabled" => Some(Refusal::Disabled),
        "deleted" => Some(Refusal::Deleted),
        _ => None,
    }
}

/// When the day of a message may be dropped; `None` for never.
fn expires(accepted_at: DateTime<Utc>, retention_days: u32) -> Option<DateTime<Utc>> {
    let kept = Days::new(u64::from(retention_days) + 1);
    let day = accepted_at.date_naive().checked_add_days(kept)?;
    Some(day.and_time(NaiveTime::MIN).and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        deadline: Duration::from_secs(48 * 3600),
        retention_days: 35,
    };

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn only_what_has_ended_is_replayed_and_only_to_an_endpoint_that_takes_it() {
        let now = at("2026-03-02T00:00:00Z");
        let of = |status, state| refusal(status, state, now, now, TERMS);
        for status in DeliveryStatus::ALL {
            let expected = (!status.is_terminal()).then_some(Refusal::Open);
            assert_eq!(of(status, "active"), expected, "{status:?}");
            assert_eq!(of(status, "failing"), expected, "{status:?}");
        }
        let failed = DeliveryStatus::Failed;
        assert_eq!(of(failed, "paused"), Some(Refusal::Paused));
        assert_eq!(of(failed, "disabled"), Some(Refusal::Disabled));
        assert_eq!(of(failed, "deleted"), Some(Refusal::Deleted));
    }

    #[test]
    fn a_payload_has_to_outlive_the_new_deadline() {
        // Kept through April 5th, 35 days after March 1st.
        let accepted = at("2026-03-01T12:00:00Z");
        assert_eq!(expires(accepted, 35), Some(at("2026-04-06T00:00:00Z")));
        let of = |now: &str| refusal(DeliveryStatus::Failed, "active", accepted, at(now), TERMS);
        assert_eq!(of("2026-04-04T00:00:00Z"), None);
        assert_eq!(of("2026-04-04T00:00:01Z"), Some(Refusal::Expires));
    }
}
