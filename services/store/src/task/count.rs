//! What a task would do: counted, and nothing done.

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use hooklane_core::rules::merge::DeliveryStatus;

use super::{Refused, Work, page};
use crate::dead_letter::{self, Terms};
use crate::manage::Error;
use crate::{Error as Fault, Store};

/// What a task would come to if it ran now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Deliveries that it would look at.
    pub found: u64,
    /// Those that it would make due.
    pub due: u64,
    /// The others.
    pub refused: Refused,
}

/// Deliveries that are refused, or not, all alike.
struct Group {
    status: String,
    state: String,
    /// When their messages were accepted.
    day: NaiveDate,
    count: i64,
    now: DateTime<Utc>,
}

/// Counts what a task would do. Reads indexes alone, and of failed deliveries the rows too: a million
/// of them take seconds.
///
/// # Errors
/// [`Error::NotFound`] where what it is about is not there, [`Error::Invalid`] for a span without an
/// inside, or a fault of the database.
pub async fn count(store: &Store, work: &Work, terms: Terms) -> Result<Counted, Error> {
    super::create::subject(store, work).await?;
    Ok(tally(store, work, terms).await?)
}

/// [`count`], of what is known to be there.
pub(super) async fn tally(store: &Store, work: &Work, terms: Terms) -> Result<Counted, Fault> {
    let mut counted = Counted::default();
    for group in groups(store, work).await? {
        let status: DeliveryStatus = group
            .status
            .parse()
            .map_err(Fault::unreadable("reading a delivery"))?;
        let count = group.count.unsigned_abs();
        counted.found += count;
        let hurried = matches!(work, Work::Retry { .. }) && status == DeliveryStatus::Stalled;
        let refusal = if hurried {
            dead_letter::stopped(&group.state)
        } else {
            let accepted_at = group.day.and_time(NaiveTime::MIN).and_utc();
            dead_letter::refusal(status, &group.state, accepted_at, group.now, terms)
        };
        match refusal {
            None => counted.due += count,
            Some(why) => *counted.refused.entry(why).or_insert(0) += count,
        }
    }
    Ok(counted)
}

/// What an endpoint was not sent. The query names the status: the index is partial.
macro_rules! ended {
    ($status:literal, $and:literal, $tx:expr, $endpoint:expr, $span:expr) => {
        sqlx::query_as!(
            Group,
            "WITH days AS MATERIALIZED (
                 SELECT (accepted_at AT TIME ZONE 'UTC')::date AS day, count(*) AS count
                   FROM hooklane.deliveries
                  WHERE status = '"
                + $status
                + "'"
                + $and
                + " AND endpoint_id = $1
                    AND settled_at >= $2 AND settled_at <= coalesce($3, statement_timestamp())
                  GROUP BY 1)
             SELECT '"
                + $status
                + r#"' AS "status!", e.state::text AS "state!", day AS "day!",
                    count AS "count!", statement_timestamp() AS "now!"
               FROM days JOIN hooklane.endpoints e ON e.id = $1"#,
            $endpoint.uuid(),
            $span.since,
            $span.until
        )
        .fetch_all($tx)
        .await
    };
}

async fn groups(store: &Store, work: &Work) -> Result<Vec<Group>, Fault> {
    let doing = "counting deliveries of a task";
    let mut tx = store.begin_probing().await?;
    let groups = match *work {
        Work::Retry { message, endpoint } => {
            let page = page::one(&mut tx, message, endpoint, None).await;
            let page = page.map_err(Fault::doing(doing))?;
            let Some((series, _)) = page.into_iter().next().map(page::Row::placed) else {
                return Ok(Vec::new());
            };
            sqlx::query_as!(
                Group,
                r#"SELECT d.status::text AS "status!", e.state::text AS "state!",
                          (d.accepted_at AT TIME ZONE 'UTC')::date AS "day!", 1::bigint AS "count!",
                          statement_timestamp() AS "now!"
                     FROM hooklane.deliveries d JOIN hooklane.endpoints e ON e.id = d.endpoint_id
                    WHERE d.accepted_at = $1 AND d.message_id = $2 AND d.endpoint_id = $3"#,
                series.key.accepted_at,
                series.key.message.uuid(),
                series.key.endpoint.uuid()
            )
            .fetch_all(&mut *tx)
            .await
        }
        Work::Replay { message } => {
            sqlx::query_as!(
                Group,
                r#"SELECT d.status::text AS "status!", e.state::text AS "state!",
                          (d.accepted_at AT TIME ZONE 'UTC')::date AS "day!", count(*) AS "count!",
                          statement_timestamp() AS "now!"
                     FROM hooklane.messages m
                     JOIN hooklane.deliveries d ON d.accepted_at = m.accepted_at AND d.message_id = m.id
                     JOIN hooklane.endpoints e ON e.id = d.endpoint_id
                    WHERE m.id = $1 GROUP BY 1, 2, 3"#,
                message.uuid()
            )
            .fetch_all(&mut *tx)
            .await
        }
        Work::Recover { endpoint, span } => {
            ended!("failed", " AND discarded_at IS NULL", &mut *tx, endpoint, span)
        }
        Work::ReplayMissing { endpoint, span } => {
            ended!("skipped", "", &mut *tx, endpoint, span)
        }
    };
    let groups = groups.map_err(Fault::doing(doing))?;
    tx.rollback().await.map_err(Fault::doing(doing))?;
    Ok(groups)
}
