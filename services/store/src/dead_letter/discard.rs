//! Discarding: somebody looked at a dead letter and wants no more of it.

use hooklane_proto::delivery::DeliveryKey;

use super::{Columns, Filed, Series, audited};
use crate::audit_log::{self, Action};
use crate::{Error, Store};

impl Store {
    /// Discards dead letters; answers those that were, with where they stand in `DLQ`. The
    /// deliveries stay failed; one that is in another series by now is left alone.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn discard(&self, series: &[Series]) -> Result<Vec<(Series, Option<Filed>)>, Error> {
        let columns = Columns::of(series.iter().copied());
        let mut tx = self.begin_probing().await?;
        let rows = sqlx::query!(
            "WITH held AS MATERIALIZED (
                 SELECT d.accepted_at, d.message_id, d.endpoint_id
                   FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[], $4::int[])
                        AS r (accepted_at, message_id, endpoint_id, series)
                   JOIN hooklane.deliveries d ON d.accepted_at = r.accepted_at
                    AND d.message_id = r.message_id AND d.endpoint_id = r.endpoint_id
                  WHERE d.status = 'failed' AND d.series = r.series AND d.discarded_at IS NULL
                    FOR UPDATE OF d)
             UPDATE hooklane.deliveries d SET discarded_at = clock_timestamp()
               FROM held h
              WHERE d.accepted_at = h.accepted_at AND d.message_id = h.message_id
                AND d.endpoint_id = h.endpoint_id
          RETURNING d.accepted_at, d.message_id, d.endpoint_id, d.series, d.dead_letter, d.dead_lettered_at",
            &columns.accepted_at,
            &columns.message,
            &columns.endpoint,
            &columns.series,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing("discarding dead letters"))?;
        let discarded = rows.into_iter().map(|row| {
            let series = Series {
                key: DeliveryKey::from_uuids(row.accepted_at, row.message_id, row.endpoint_id),
                series: row.series,
            };
            (series, Filed::read(row.dead_letter, row.dead_lettered_at))
        });
        let discarded: Vec<(Series, Option<Filed>)> = discarded.collect();
        let series: Vec<Series> = discarded.iter().map(|(series, _)| *series).collect();
        if !series.is_empty() {
            let change = audited(Action::DeadLetterDiscard, &series);
            audit_log::note(&mut tx, self, change).await?;
        }
        tx.commit()
            .await
            .map_err(Error::doing("committing discarded dead letters"))?;
        Ok(discarded)
    }
}
