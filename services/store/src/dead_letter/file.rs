//! Putting dead letters into `DLQ`: which are not there, and noting that they are.
//!
//! Several movers may read the same ones. That is harmless: the broker drops the second copy by its
//! id, and only the first note counts.

use chrono::{DateTime, Utc};
use hooklane_proto::dead_letter::DeadLetter;
use hooklane_proto::delivery::DeliveryKey;

use super::row::Row;
use super::{Columns, Series};
use crate::operational::{self, Event, Failed};
use crate::{Error, Store};

/// Which dead letters are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that were never put into `DLQ`.
    New,
    /// Those that were put there before this time, at which the stream was made anew.
    FiledBefore(DateTime<Utc>),
}

/// Dead letters that are to be put into `DLQ`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unfiled {
    /// To publish.
    pub letters: Vec<DeadLetter>,
    /// These can't be: the ledger has them under a consumer id or event type that no subject takes.
    pub unfit: Vec<Series>,
    /// The ledger's clock when it was asked, before anything was published; `None` where there was
    /// nothing.
    pub at: Option<DateTime<Utc>>,
}

/// What a note changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marked {
    /// Dead letters that were noted for the first time.
    pub first: u64,
    /// Those that were noted before, in a stream that is gone.
    pub again: u64,
}

impl Store {
    /// Dead letters to put into `DLQ`, at most `limit` and `max_bytes` of payload, but one at the
    /// least where there is one. Reads an index that has nothing else in it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn unfiled_dead_letters(
        &self,
        which: Which,
        limit: u32,
        max_bytes: u64,
    ) -> Result<Unfiled, Error> {
        let doing = "reading dead letters";
        let before = match which {
            Which::New => None,
            Which::FiledBefore(before) => Some(before),
        };
        let mut tx = self.begin_probing().await?;
        let rows = sqlx::query_file_as!(
            Row,
            "src/dead_letter/unfiled.sql",
            before,
            i64::from(limit),
            i64::try_from(max_bytes).unwrap_or(i64::MAX),
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        tx.rollback().await.map_err(Error::doing(doing))?;
        let mut unfiled = Unfiled {
            at: rows.first().map(|row| row.now),
            ..Unfiled::default()
        };
        for row in rows {
            let series = row.series();
            match row.letter() {
                Ok(letter) => unfiled.letters.push(letter),
                Err(fault) => {
                    let message = series.key.message;
                    tracing::error!(%message, %fault, "a dead letter in the ledger can't be put into DLQ");
                    unfiled.unfit.push(series);
                }
            }
        }
        Ok(unfiled)
    }

    /// Notes that dead letters are in `DLQ` since `at`, each with its sequence there, or without one
    /// where the stream can't take it, and tells operators of those that are new. One that was
    /// replayed meanwhile is left alone.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn mark_dead_lettered(
        &self,
        filed: &[(Series, Option<u64>)],
        at: DateTime<Utc>,
    ) -> Result<Marked, Error> {
        let mut sorted = filed.to_vec();
        sorted.sort_unstable();
        let columns = Columns::of(sorted.iter().map(|(series, _)| *series));
        let sequences: Vec<Option<i64>> = sorted
            .iter()
            .map(|(_, sequence)| sequence.and_then(|sequence| i64::try_from(sequence).ok()))
            .collect();
        let mut tx = self.begin_probing().await?;
        let rows = sqlx::query!(
            r#"WITH r AS MATERIALIZED (
                   SELECT * FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[], $4::int[], $5::bigint[])
                       AS u (accepted_at, message_id, endpoint_id, series, sequence)
               ), held AS MATERIALIZED (
                   SELECT d.accepted_at, d.message_id, d.endpoint_id, r.sequence,
                          d.dead_lettered_at IS NULL AS first
                     FROM r JOIN hooklane.deliveries d
                       ON d.accepted_at = r.accepted_at AND d.message_id = r.message_id
                      AND d.endpoint_id = r.endpoint_id
                    WHERE d.status = 'failed' AND d.series = r.series
                      AND (d.dead_lettered_at IS NULL OR d.dead_lettered_at < $6)
                      FOR UPDATE OF d)
               UPDATE hooklane.deliveries d SET dead_lettered_at = $6, dead_letter = h.sequence
                 FROM held h
                WHERE d.accepted_at = h.accepted_at AND d.message_id = h.message_id
                  AND d.endpoint_id = h.endpoint_id
            RETURNING d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id, d.series,
                      d.attempt_count, d.failure_reason, d.last_status, d.last_error, h.first AS "first!""#,
            &columns.accepted_at,
            &columns.message,
            &columns.endpoint,
            &columns.series,
            &sequences as &[Option<i64>],
            at,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing("noting dead letters"))?;
        let mut marked = Marked::default();
        let mut events = Vec::new();
        for row in rows {
            if !row.first {
                marked.again += 1;
                continue;
            }
            marked.first += 1;
            events.push(Event::dead_lettered(&Failed {
                key: DeliveryKey::from_uuids(row.accepted_at, row.message_id, row.endpoint_id),
                consumer: row.consumer_id,
                series: row.series,
                attempts: row.attempt_count,
                reason: row.failure_reason.unwrap_or_default(),
                last_status: row.last_status,
                last_error: row.last_error,
                at,
            }));
        }
        operational::write(&mut tx, &events).await?;
        tx.commit()
            .await
            .map_err(Error::doing("committing dead letters"))?;
        Ok(marked)
    }
}
