//! What the broker lost becomes `stalled`, due now.
//!
//! Owns the statements. What proves a loss is the scheduler's state machine; here are its limits in
//! time, so that nothing younger is touched.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{Error, Store};

/// Which deliveries are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Of this partition,
    pub partition: u16,
    /// in the broker with a not-after before this,
    pub not_after: DateTime<Utc>,
    /// and driven before this.
    pub driven_before: DateTime<Utc>,
}

/// Where a page of [`Store::placed`] begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place((i16, DateTime<Utc>));

/// Deliveries of a consumer that stand under a partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// Whose they are.
    pub consumer: String,
    /// Where they stand.
    pub partition: u16,
}

impl Store {
    /// Partitions, of the first `partitions`, with deliveries in the broker whose not-after is longer
    /// ago than `grace`: they may be lost, or only slow.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn suspect(&self, partitions: u16, grace: TimeDelta) -> Result<Vec<u16>, Error> {
        let seconds = grace.as_seconds_f64();
        let found = sqlx::query_scalar!(
            r#"SELECT p AS "p!" FROM generate_series(0, $1::int - 1) p
                WHERE EXISTS (SELECT FROM hooklane.deliveries d
                               WHERE d.status = 'received' AND d.partition = p::smallint
                                 AND d.not_after < clock_timestamp() - make_interval(secs => $2))"#,
            i32::from(partitions),
            seconds
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing("looking for deliveries that may be lost"))?;
        Ok(found
            .into_iter()
            .filter_map(|partition| u16::try_from(partition).ok())
            .collect())
    }

    /// Stalls lost deliveries, at most `limit`; answers how many, fewer than `limit` once there are
    /// no more. Their drive stays: should its record come after all, it wins.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn stall_lost(&self, lost: Lost, limit: u32) -> Result<u64, Error> {
        let mut tx = self.begin_probing().await?;
        let stalled = sqlx::query_scalar!(
            r#"WITH lost AS MATERIALIZED (
                   SELECT accepted_at, message_id, endpoint_id FROM hooklane.deliveries
                    WHERE status = 'received' AND partition = $1 AND not_after < $2 AND driven_at < $3
                    ORDER BY not_after LIMIT $4 FOR UPDATE SKIP LOCKED
               ), stalled AS (
                   UPDATE hooklane.deliveries d
                      SET status = 'stalled', next_attempt_at = least(d.next_attempt_at, clock_timestamp())
                     FROM lost l
                    WHERE d.accepted_at = l.accepted_at AND d.message_id = l.message_id
                      AND d.endpoint_id = l.endpoint_id
                   RETURNING d.accepted_at, d.endpoint_id, d.consumer_id, d.partition, d.next_attempt_at
               ), backlog AS (
                   INSERT INTO hooklane.backlogs AS b
                          (endpoint_id, consumer_id, partition, due_at, accepted_from)
                   SELECT endpoint_id, min(consumer_id), min(partition), min(next_attempt_at), min(accepted_at)
                     FROM stalled GROUP BY endpoint_id ORDER BY endpoint_id
                   ON CONFLICT (endpoint_id) DO UPDATE SET due_at = least(b.due_at, excluded.due_at),
                       accepted_from = least(b.accepted_from, excluded.accepted_from)
                    WHERE b.due_at > excluded.due_at OR b.accepted_from > excluded.accepted_from)
               SELECT count(*) AS "stalled!" FROM stalled"#,
            i16::try_from(lost.partition).unwrap_or(i16::MAX),
            lost.not_after,
            lost.driven_before,
            i64::from(limit)
        )
        .fetch_one(&mut *tx)
        .await
        .map_err(Error::doing("stalling lost deliveries"))?;
        tx.commit()
            .await
            .map_err(Error::doing("committing stalled deliveries"))?;
        Ok(stalled.unsigned_abs())
    }

    /// The partitions that deliveries in the broker stand under, by consumer: one page of at most
    /// `limit` deliveries from `from` on. Also where the next page begins, `None` after the last.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn placed(
        &self,
        from: Option<Place>,
        limit: u32,
    ) -> Result<(Vec<Placed>, Option<Place>), Error> {
        let doing = "reading the partitions of deliveries";
        let (partition, not_after) = from.map_or((0, DateTime::UNIX_EPOCH), |place| place.0);
        let mut tx = self.begin_probing().await?;
        let rows = sqlx::query!(
            r#"SELECT consumer_id, partition, not_after FROM hooklane.deliveries
                WHERE status = 'received' AND (partition, not_after) >= ($1, $2)
                ORDER BY partition, not_after LIMIT $3"#,
            partition,
            not_after,
            i64::from(limit)
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        tx.rollback().await.map_err(Error::doing(doing))?;
        let last = rows.last().map(|row| (row.partition, row.not_after));
        let full = rows.len() >= limit as usize;
        // A page may end among deliveries of one moment, so the next begins with that moment; where
        // a page is one moment, the next begins right after it.
        let next = last.filter(|_| full).map(|(at_partition, at)| {
            if (at_partition, at) == (partition, not_after) {
                Place((at_partition, at + TimeDelta::microseconds(1)))
            } else {
                Place((at_partition, at))
            }
        });
        let placed: BTreeSet<Placed> = rows
            .into_iter()
            .map(|row| Placed {
                consumer: row.consumer_id,
                partition: row.partition.unsigned_abs(),
            })
            .collect();
        Ok((placed.into_iter().collect(), next))
    }

    /// Moves misplaced deliveries to where they belong, at most `limit`; answers how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn move_to(
        &self,
        misplaced: &Placed,
        partition: u16,
        limit: u32,
    ) -> Result<u64, Error> {
        let mut tx = self.begin_probing().await?;
        let moved = sqlx::query!(
            r#"WITH here AS MATERIALIZED (
                   SELECT accepted_at, message_id, endpoint_id FROM hooklane.deliveries
                    WHERE status = 'received' AND partition = $1 AND consumer_id = $2
                    LIMIT $4 FOR UPDATE SKIP LOCKED)
               UPDATE hooklane.deliveries d SET partition = $3 FROM here h
                WHERE d.accepted_at = h.accepted_at AND d.message_id = h.message_id
                  AND d.endpoint_id = h.endpoint_id"#,
            i16::try_from(misplaced.partition).unwrap_or(i16::MAX),
            misplaced.consumer,
            i16::try_from(partition).unwrap_or(i16::MAX),
            i64::from(limit)
        )
        .execute(&mut *tx)
        .await
        .map_err(Error::doing("moving deliveries to another partition"))?;
        tx.commit()
            .await
            .map_err(Error::doing("committing moved deliveries"))?;
        Ok(moved.rows_affected())
    }
}
