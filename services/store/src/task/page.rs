//! Which deliveries a step looks at: the next ones in the order of the task's kind.
//!
//! Each kind walks an index, so that a page costs what it holds. What was driven since the task was
//! made is left out: only the database's clock set that time, while the time of an end is the
//! dispatcher's. So neither what a task made due nor what another one drove meanwhile is found again.

use chrono::{DateTime, Utc};
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Work;
use crate::Error;
use crate::dead_letter::Series;

/// A place in the order of a task's kind, behind which it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// When the delivery ended, or when its message was accepted.
    pub(super) time: DateTime<Utc>,
    /// The message, or the endpoint.
    pub(super) id: Uuid,
}

/// Deliveries, and where each of them stands.
pub(super) type Page = Vec<(Series, Place)>;

/// What an endpoint was not sent, by when each ended. The query names the status: the index is
/// partial.
macro_rules! ended {
    ($which:literal, $tx:expr, $endpoint:expr, $span:expr, $after:expr, $made:expr, $limit:expr) => {
        sqlx::query_as!(
            Row,
            r#"SELECT accepted_at, message_id, endpoint_id, series, settled_at AS "time!",
                      message_id AS "id!"
                 FROM hooklane.deliveries
                WHERE "#
                + $which
                + " AND endpoint_id = $1 AND (settled_at, message_id) > ($2, $3)
                  AND settled_at <= $4 AND driven_at <= $5
                ORDER BY settled_at, message_id LIMIT $6",
            $endpoint.uuid(),
            $after.map_or($span.since, |place| place.time),
            $after.map_or(Uuid::nil(), |place| place.id),
            $span.until.unwrap_or($made),
            $made,
            i64::from($limit)
        )
        .fetch_all($tx)
        .await
    };
}

/// At most `limit` deliveries behind `after`, and of them only what was driven for the last time
/// before `made`.
pub(super) async fn read(
    tx: &mut PgConnection,
    work: &Work,
    after: Option<Place>,
    made: DateTime<Utc>,
    limit: u32,
) -> Result<Page, Error> {
    let doing = "looking for deliveries of a task";
    // The index has the order; a plan that sorts would read all of it for each page.
    sqlx::query("SET LOCAL enable_sort = off")
        .execute(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
    let rows = match *work {
        Work::Retry { message, endpoint } => one(&mut *tx, message, endpoint, Some(made)).await,
        Work::Replay { message } => of_message(&mut *tx, message, after, made, limit).await,
        Work::Recover { endpoint, span } => ended!(
            "status = 'failed' AND discarded_at IS NULL AND settled_at IS NOT NULL",
            &mut *tx,
            endpoint,
            span,
            after,
            made,
            limit
        ),
        Work::ReplayMissing { endpoint, span } => ended!(
            "status = 'skipped'",
            &mut *tx,
            endpoint,
            span,
            after,
            made,
            limit
        ),
    };
    let rows = rows.map_err(Error::doing(doing))?;
    sqlx::query("SET LOCAL enable_sort = on")
        .execute(tx)
        .await
        .map_err(Error::doing(doing))?;
    Ok(rows.into_iter().map(Row::placed).collect())
}

/// A delivery as a page reads it.
pub(super) struct Row {
    accepted_at: DateTime<Utc>,
    message_id: Uuid,
    endpoint_id: Uuid,
    series: i32,
    time: DateTime<Utc>,
    id: Uuid,
}

impl Row {
    pub(super) fn placed(self) -> (Series, Place) {
        let Self {
            accepted_at,
            message_id,
            endpoint_id,
            series,
            time,
            id,
        } = self;
        let key = DeliveryKey::from_uuids(accepted_at, message_id, endpoint_id);
        (Series { key, series }, Place { time, id })
    }
}

/// The last accepted delivery of a message to an endpoint, or nothing; nothing too where it was driven
/// since `made`.
pub(super) async fn one(
    tx: &mut PgConnection,
    message: MessageId,
    endpoint: EndpointId,
    made: Option<DateTime<Utc>>,
) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"SELECT accepted_at, message_id, endpoint_id, series, accepted_at AS "time!",
                  endpoint_id AS "id!"
             FROM (SELECT d.accepted_at, d.message_id, d.endpoint_id, d.series, d.driven_at
                     FROM hooklane.messages m
                     JOIN hooklane.deliveries d
                       ON d.accepted_at = m.accepted_at AND d.message_id = m.id
                    WHERE m.id = $1 AND d.endpoint_id = $2
                    ORDER BY m.accepted_at DESC LIMIT 1) last
            WHERE $3::timestamptz IS NULL OR driven_at <= $3"#,
        message.uuid(),
        endpoint.uuid(),
        made
    )
    .fetch_all(tx)
    .await
}

async fn of_message(
    tx: &mut PgConnection,
    message: MessageId,
    after: Option<Place>,
    made: DateTime<Utc>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    let accepted = sqlx::query_scalar!(
        "SELECT accepted_at FROM hooklane.messages WHERE id = $1",
        message.uuid()
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query_as!(
        Row,
        r#"SELECT accepted_at, message_id, endpoint_id, series, accepted_at AS "time!",
                  endpoint_id AS "id!"
             FROM hooklane.deliveries
            WHERE accepted_at = ANY($1) AND message_id = $2
              AND (accepted_at, endpoint_id) > ($3, $4) AND driven_at <= $5
            ORDER BY accepted_at, endpoint_id LIMIT $6"#,
        &accepted,
        message.uuid(),
        after.map_or(DateTime::UNIX_EPOCH, |place| place.time),
        after.map_or(Uuid::nil(), |place| place.id),
        made,
        i64::from(limit)
    )
    .fetch_all(tx)
    .await
}
