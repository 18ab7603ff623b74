//! What becomes of the open deliveries of an endpoint that takes none any more.
//!
//! Paused or disabled: what waits in the ledger (`stalled`) becomes `skipped`; what is in the
//! broker (`received`) is left to its lane, which skips it. Deleted: both become `cancelled`, and
//! what a lane still records obeys the merge rule, where `cancelled` gives way to `sent` alone.
//!
//! The work is cut into short transactions, so that a backlog of millions locks nobody out; it may
//! be stopped and begun again at any time. A row that somebody else holds is passed over and found
//! again by the next round. An attempt under way while this runs may still put a row back as
//! `stalled`: whoever finds due rows of such an endpoint calls this again.

use chrono::{DateTime, Utc};
use hooklane_proto::id::EndpointId;

use crate::{Error as Fault, Store};

/// One pass over an endpoint's open deliveries.
#[derive(Debug)]
pub struct Settle {
    endpoint: EndpointId,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// In the broker, behind this place of the index.
    Received(Option<(i16, DateTime<Utc>)>),
    /// In the ledger.
    Stalled,
    Done,
}

impl Settle {
    /// A pass that has not begun.
    #[must_use]
    pub fn new(endpoint: EndpointId) -> Self {
        Self {
            endpoint,
            phase: Phase::Received(None),
        }
    }

    /// Settles `limit` more at the most and answers how many; `None` once nothing is left, or once
    /// the endpoint takes deliveries again.
    ///
    /// # Errors
    /// A fault of the database; the pass can go on after it.
    pub async fn step(&mut self, store: &Store, limit: u32) -> Result<Option<u64>, Fault> {
        match self.phase {
            Phase::Received(after) => self.received(store, limit, after).await.map(Some),
            Phase::Stalled => {
                let settled = settle_stalled(store, self.endpoint, limit).await?;
                if settled == 0 {
                    self.phase = Phase::Done;
                    return Ok(None);
                }
                Ok(Some(settled))
            }
            Phase::Done => Ok(None),
        }
    }

    async fn received(
        &mut self,
        store: &Store,
        limit: u32,
        after: Option<(i16, DateTime<Utc>)>,
    ) -> Result<u64, Fault> {
        let (partition, not_after) = after.unwrap_or((-1, DateTime::UNIX_EPOCH));
        // By place in the index of received rows, whoever's they are: one endpoint's have none of
        // their own, and this way the whole pass reads the index once.
        let row = sqlx::query!(
            r#"WITH seen AS (
                   SELECT d.accepted_at, d.message_id, d.endpoint_id, d.partition, d.not_after
                     FROM hooklane.deliveries d
                    WHERE d.status = 'received' AND d.endpoint_id = $1
                      AND (d.partition, d.not_after) >= ($2, $3)
                      AND EXISTS (SELECT 1 FROM hooklane.endpoints WHERE id = $1 AND state = 'deleted')
                    ORDER BY d.partition, d.not_after LIMIT $4 FOR UPDATE SKIP LOCKED
               ), changed AS (
                   UPDATE hooklane.deliveries d
                      SET status = 'cancelled', failure_reason = 'deleted', settled_at = clock_timestamp()
                     FROM seen s
                    WHERE d.accepted_at = s.accepted_at AND d.message_id = s.message_id
                      AND d.endpoint_id = s.endpoint_id
                RETURNING d.partition, d.not_after)
               SELECT count(*) AS "changed!",
                      (SELECT partition FROM changed ORDER BY partition DESC, not_after DESC LIMIT 1),
                      (SELECT not_after FROM changed ORDER BY partition DESC, not_after DESC LIMIT 1)
                 FROM changed"#,
            self.endpoint.uuid(),
            partition,
            not_after,
            i64::from(limit),
        )
        .fetch_one(store.pool())
        .await
        .map_err(Fault::doing("cancelling deliveries of a deleted endpoint"))?;
        let changed = u64::try_from(row.changed).unwrap_or(0);
        self.phase = match row.partition.zip(row.not_after) {
            Some(place) if changed >= u64::from(limit) => Phase::Received(Some(place)),
            _ => Phase::Stalled,
        };
        Ok(changed)
    }
}

/// Settles `limit` stalled rows at the most of an endpoint that takes no deliveries; answers how
/// many. Does nothing for one that takes them.
///
/// # Errors
/// A fault of the database.
pub async fn settle_stalled(store: &Store, endpoint: EndpointId, limit: u32) -> Result<u64, Fault> {
    let settled = sqlx::query!(
        r#"WITH e AS (
               SELECT state FROM hooklane.endpoints
                WHERE id = $1 AND state IN ('paused', 'disabled', 'deleted')
           ), due AS (
               SELECT d.accepted_at, d.message_id FROM hooklane.deliveries d
                WHERE d.endpoint_id = $1 AND d.status = 'stalled' AND EXISTS (SELECT 1 FROM e)
                ORDER BY d.next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED)
           UPDATE hooklane.deliveries d
              SET status = CASE e.state WHEN 'deleted' THEN 'cancelled' ELSE 'skipped' END::hooklane.delivery_status,
                  failure_reason = e.state::text, settled_at = clock_timestamp()
             FROM due, e
            WHERE d.accepted_at = due.accepted_at AND d.message_id = due.message_id AND d.endpoint_id = $1"#,
        endpoint.uuid(),
        i64::from(limit),
    )
    .execute(store.pool())
    .await
    .map_err(Fault::doing("settling deliveries of a stopped endpoint"))?;
    Ok(settled.rows_affected())
}
