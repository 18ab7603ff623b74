//! Which endpoints have deliveries waiting in the ledger, and when the earliest is due.
//!
//! A backlog row may be too early but never too late, so that due work is never overlooked, and the
//! same holds for the time of acceptance from which on it looks for its deliveries. Who stalls a
//! delivery writes the earlier of the two times, in the transaction and after the delivery; who looks for the truth locks the row first and looks in a later statement. So either
//! the one who looks sees the other's delivery, or the other waits and then writes over it.

use chrono::{DateTime, Utc};
use hooklane_proto::id::EndpointId;
use hooklane_proto::token::ConsumerId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Error, Store};

/// An endpoint with work that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Whose it is, which tells the partition.
    pub consumer: ConsumerId,
    /// When its earliest delivery is due, or earlier.
    pub due_at: DateTime<Utc>,
}

impl Store {
    /// Running endpoints with work that is due, longest due first, at most `limit`, those after
    /// `after` where it is given.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn due(&self, after: Option<&Due>, limit: u32) -> Result<Vec<Due>, Error> {
        let doing = "looking for due deliveries";
        let rows = sqlx::query!(
            r#"SELECT b.endpoint_id, b.consumer_id, b.due_at
                 FROM hooklane.backlogs b
                 JOIN hooklane.endpoints e ON e.id = b.endpoint_id
                WHERE b.due_at <= clock_timestamp() AND e.state IN ('active', 'failing')
                  AND (b.due_at, b.endpoint_id) > ($1, $2)
                ORDER BY b.due_at, b.endpoint_id LIMIT $3"#,
            after.map_or(DateTime::UNIX_EPOCH, |due| due.due_at),
            after.map_or(Uuid::nil(), |due| due.endpoint.uuid()),
            i64::from(limit)
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing(doing))?;
        rows.into_iter()
            .map(|row| {
                let consumer =
                    ConsumerId::new(&row.consumer_id).map_err(Error::unreadable(doing))?;
                Ok(Due {
                    endpoint: EndpointId::from_uuid(row.endpoint_id),
                    consumer,
                    due_at: row.due_at,
                })
            })
            .collect()
    }

    /// Endpoints that take no deliveries and have some waiting, at most `limit`.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn stopped_with_backlog(&self, limit: u32) -> Result<Vec<EndpointId>, Error> {
        sqlx::query_scalar!(
            r#"SELECT b.endpoint_id
                 FROM hooklane.backlogs b
                 JOIN hooklane.endpoints e ON e.id = b.endpoint_id
                WHERE e.state IN ('paused', 'disabled', 'deleted')
                LIMIT $1"#,
            i64::from(limit)
        )
        .fetch_all(self.pool())
        .await
        .map(|ids| ids.into_iter().map(EndpointId::from_uuid).collect())
        .map_err(Error::doing("looking for backlogs of stopped endpoints"))
    }

    /// Sets these endpoints' backlogs to the truth, and removes those that are none.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn refresh_backlogs(&self, endpoints: &[EndpointId]) -> Result<(), Error> {
        let mut ids: Vec<Uuid> = endpoints.iter().map(|id| id.uuid()).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut tx = self.begin_probing().await?;
        let held = lock(&mut tx, &ids).await?;
        refresh(&mut tx, held).await?;
        tx.commit()
            .await
            .map_err(Error::doing("committing backlogs"))
    }
}

/// Backlogs that a transaction has locked.
#[derive(Debug)]
pub(crate) struct Held(Vec<Uuid>);

/// Locks those backlogs that there are, in the order that everybody takes. Their transaction looks
/// for the truth in a later statement.
pub(crate) async fn lock(tx: &mut PgConnection, endpoints: &[Uuid]) -> Result<Held, Error> {
    sqlx::query_scalar!(
        "SELECT endpoint_id FROM hooklane.backlogs WHERE endpoint_id = ANY($1)
          ORDER BY endpoint_id FOR UPDATE",
        endpoints
    )
    .fetch_all(tx)
    .await
    .map(Held)
    .map_err(Error::doing("locking backlogs"))
}

/// Sets locked backlogs to the truth. One that appeared since they were locked is left alone: to
/// change it would be to lock it out of the order, behind somebody who waits for these. It may then
/// be too early, which the next look sets right.
pub(crate) async fn refresh(tx: &mut PgConnection, held: Held) -> Result<(), Error> {
    sqlx::query!(
        "WITH truth AS MATERIALIZED (
             SELECT b.endpoint_id AS id,
                    (SELECT min(d.next_attempt_at) FROM hooklane.deliveries d
                      WHERE d.endpoint_id = b.endpoint_id AND d.status = 'stalled'
                        AND d.accepted_at >= b.accepted_from) AS due_at
               FROM hooklane.backlogs b
              WHERE b.endpoint_id = ANY($1)
         ), gone AS (
             DELETE FROM hooklane.backlogs b USING truth t
              WHERE b.endpoint_id = t.id AND t.due_at IS NULL)
         UPDATE hooklane.backlogs b SET due_at = t.due_at FROM truth t
          WHERE b.endpoint_id = t.id AND b.due_at <> t.due_at",
        &held.0
    )
    .execute(tx)
    .await
    .map(|_done| ())
    .map_err(Error::doing("refreshing backlogs"))
}
