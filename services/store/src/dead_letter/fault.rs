//! Drives that the broker gave up: as often as it delivers a message, nobody settled it.
//!
//! That is a fault of ours and none of the endpoint's. The row waits a while and is driven again,
//! because a crash takes along what happened to be beside its cause; what has too many faults is the
//! cause, and fails as poison.

use std::time::Duration;

use hooklane_proto::record::Drive;

use super::{Columns, Series};
use crate::record::MAX_FAULTS;
use crate::{Error, Store};

/// Drives whose messages are exhausted.
#[derive(Debug, Clone, Copy)]
pub struct Exhausted<'a> {
    /// The drives; one that the ledger has as settled is left alone.
    pub drives: &'a [Drive],
    /// How long their deliveries wait before they are due again.
    pub pause: Duration,
}

/// What became of exhausted drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faulted {
    /// Deliveries that wait for another drive.
    pub stalled: u64,
    /// Deliveries that failed as poison.
    pub poisoned: u64,
}

impl Store {
    /// Puts deliveries of exhausted messages back with a fault more, or fails them as poison. To do
    /// it again for the same drives changes nothing.
    ///
    /// Locks deliveries by key, then backlogs by endpoint.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn fault_exhausted(&self, exhausted: Exhausted<'_>) -> Result<Faulted, Error> {
        let mut drives = exhausted.drives.to_vec();
        drives.sort_unstable_by_key(|drive| (drive.key, drive.series));
        let numbers: Vec<i32> = drives.iter().map(|drive| drive.drive).collect();
        let columns = Columns::of(drives.iter().map(|drive| Series {
            key: drive.key,
            series: drive.series,
        }));
        let mut tx = self.begin_probing().await?;
        let row = sqlx::query!(
            r#"WITH r AS MATERIALIZED (
                   SELECT * FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[], $4::int[], $5::int[])
                       AS u (accepted_at, message_id, endpoint_id, series, drive)
               ), held AS MATERIALIZED (
                   SELECT d.accepted_at, d.message_id, d.endpoint_id, d.faults + 1 >= $7 AS poison
                     FROM r JOIN hooklane.deliveries d
                       ON d.accepted_at = r.accepted_at AND d.message_id = r.message_id
                      AND d.endpoint_id = r.endpoint_id
                    WHERE d.status = 'received' AND d.series = r.series AND d.drive = r.drive
                      FOR UPDATE OF d
               ), changed AS (
                   UPDATE hooklane.deliveries d
                      SET status = CASE WHEN h.poison THEN 'failed' ELSE 'stalled' END::hooklane.delivery_status,
                          failure_reason = CASE WHEN h.poison THEN 'poison' END,
                          settled_at = CASE WHEN h.poison THEN clock_timestamp() END,
                          settled = 1, faults = d.faults + 1,
                          next_attempt_at = clock_timestamp() + make_interval(secs => $6)
                     FROM held h
                    WHERE d.accepted_at = h.accepted_at AND d.message_id = h.message_id
                      AND d.endpoint_id = h.endpoint_id
                   RETURNING d.accepted_at, d.endpoint_id, d.consumer_id, d.partition, d.next_attempt_at, h.poison
               ), backlog AS (
                   INSERT INTO hooklane.backlogs AS b
                          (endpoint_id, consumer_id, partition, due_at, accepted_from)
                   SELECT endpoint_id, min(consumer_id), min(partition), min(next_attempt_at), min(accepted_at)
                     FROM changed WHERE NOT poison GROUP BY endpoint_id ORDER BY endpoint_id
                   ON CONFLICT (endpoint_id) DO UPDATE SET due_at = least(b.due_at, excluded.due_at),
                       accepted_from = least(b.accepted_from, excluded.accepted_from)
                    WHERE b.due_at > excluded.due_at OR b.accepted_from > excluded.accepted_from)
               SELECT count(*) FILTER (WHERE NOT poison) AS "stalled!", count(*) FILTER (WHERE poison) AS "poisoned!"
                 FROM changed"#,
            &columns.accepted_at,
            &columns.message,
            &columns.endpoint,
            &columns.series,
            &numbers,
            exhausted.pause.as_secs_f64(),
            MAX_FAULTS,
        )
        .fetch_one(&mut *tx)
        .await
        .map_err(Error::doing("putting exhausted deliveries back"))?;
        tx.commit()
            .await
            .map_err(Error::doing("committing exhausted deliveries"))?;
        Ok(Faulted {
            stalled: row.stalled.unsigned_abs(),
            poisoned: row.poisoned.unsigned_abs(),
        })
    }
}
