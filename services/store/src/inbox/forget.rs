//! What is too old goes, in batches, as long as nothing is to be done with it.

use chrono::{DateTime, Utc};

use crate::{Error, Store};

impl Store {
    /// Forgets events received before `before` that are closed, with their trail and conflicts, at most
    /// `limit` of them, and rejects of before then; answers how many events, fewer than `limit` once
    /// there are no more. Bodies go with their day.
    ///
    /// A partner that sends a forgotten event again is taken to send a new one.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_forget(&self, before: DateTime<Utc>, limit: u32) -> Result<u64, Error> {
        let doing = "forgetting old inbox events";
        sqlx::query!("DELETE FROM hooklane.inbox_rejects WHERE at < $1", before)
            .execute(self.pool())
            .await
            .map_err(Error::doing(doing))?;
        let forgotten = sqlx::query_scalar!(
            r#"WITH old AS MATERIALIZED (
                   SELECT w.id FROM hooklane.webhook_inbox w
                    WHERE w.received_at < $1
                      AND w.status IN ('PROCESSED', 'SUPERSEDED', 'DISCARDED')
                      AND NOT EXISTS (SELECT FROM hooklane.inbox_handoffs h WHERE h.event_id = w.id)
                    ORDER BY w.received_at, w.id LIMIT $2 FOR UPDATE SKIP LOCKED
               ), trail AS (
                   DELETE FROM hooklane.inbox_trail t USING old WHERE t.event_id = old.id
               ), conflicts AS (
                   DELETE FROM hooklane.inbox_conflicts c USING old WHERE c.event_id = old.id
               ), events AS (
                   DELETE FROM hooklane.webhook_inbox w USING old WHERE w.id = old.id
               )
               SELECT count(*) AS "count!" FROM old"#,
            before,
            i64::from(limit),
        )
        .fetch_one(self.pool())
        .await
        .map_err(Error::doing(doing))?;
        Ok(forgotten.unsigned_abs())
    }
}
