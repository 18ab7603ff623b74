//! What is too old goes: day partitions whole, the rest in batches.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use sqlx::AssertSqlSafe;

use crate::{Error, Store};

/// Tables whose days go together, in the order in which they are locked.
#[derive(Debug, Clone, Copy)]
enum Tables {
    /// Messages and what became of them.
    Messages,
    /// The bodies of the inbox's events.
    Inbox,
}

impl Tables {
    const fn parents(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &["deliveries", "messages", "attempts"],
            Self::Inbox => &["inbox_bodies"],
        }
    }
}

/// What became of a day that was to be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drop {
    /// Its partitions are gone.
    Dropped,
    /// It has deliveries that are neither sent, failed, skipped nor cancelled, or events of the inbox
    /// that are to be decided, handed off or looked at by a person: those stay.
    Open,
    /// The locks were not to be had in time: try again later.
    Busy,
}

impl Store {
    /// Days with a partition of any of the tables, oldest first.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn days(&self) -> Result<Vec<NaiveDate>, Error> {
        let names = sqlx::query_scalar!(
            r#"SELECT DISTINCT right(c.relname, 8) AS "day!"
                 FROM pg_inherits i
                 JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent IN ('hooklane.messages'::regclass, 'hooklane.deliveries'::regclass,
                                      'hooklane.attempts'::regclass,
                                      'hooklane.inbox_bodies'::regclass)
                  AND c.relname ~ '_[0-9]{8}$'
                ORDER BY 1"#
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing("listing day partitions"))?;
        Ok(names
            .iter()
            .filter_map(|name| NaiveDate::parse_from_str(name, "%Y%m%d").ok())
            .collect())
    }

    /// Drops the partitions of one day: those of messages unless it has open deliveries, and those of
    /// the inbox unless it has open events. Waits at most `lock_timeout` for each lock, because
    /// everybody else waits behind it meanwhile.
    ///
    /// # Errors
    /// Where the database fails otherwise.
    pub async fn drop_day(&self, day: NaiveDate, lock_timeout: Duration) -> Result<Drop, Error> {
        let messages = self
            .drop_tables(Tables::Messages, day, lock_timeout)
            .await?;
        let inbox = self.drop_tables(Tables::Inbox, day, lock_timeout).await?;
        Ok(match (messages, inbox) {
            (Drop::Open, _) | (_, Drop::Open) => Drop::Open,
            (Drop::Busy, _) | (_, Drop::Busy) => Drop::Busy,
            (Drop::Dropped, Drop::Dropped) => Drop::Dropped,
        })
    }

    async fn drop_tables(
        &self,
        tables: Tables,
        day: NaiveDate,
        lock_timeout: Duration,
    ) -> Result<Drop, Error> {
        if has_open(self.pool(), tables, day).await? {
            return Ok(Drop::Open);
        }
        let dropped = self.drop_locked(tables, day, lock_timeout).await;
        match dropped {
            Ok(outcome) => {
                self.days.clear();
                Ok(outcome)
            }
            Err(error) if error.is_timeout() => Ok(Drop::Busy),
            Err(error) => Err(error),
        }
    }

    async fn drop_locked(
        &self,
        tables: Tables,
        day: NaiveDate,
        lock_timeout: Duration,
    ) -> Result<Drop, Error> {
        let doing = "dropping a day partition";
        let mut tx = self.pool().begin().await.map_err(Error::doing(doing))?;
        let millis = lock_timeout.as_millis().max(1);
        let mut script = format!("SET LOCAL lock_timeout = {millis};");
        // A drop takes the parent's lock too. In one order, so that two droppers can't block each
        // other; the parents of the hot paths first, so that nothing is half locked for long.
        for parent in tables.parents() {
            script.push_str(&format!(
                "LOCK TABLE hooklane.{parent} IN ACCESS EXCLUSIVE MODE;"
            ));
        }
        sqlx::raw_sql(AssertSqlSafe(script))
            .execute(&mut *tx)
            .await
            .map_err(Error::doing(doing))?;
        // Nobody can replay one from here on.
        let open = has_open(&mut *tx, tables, day).await?;
        if open {
            return Ok(Drop::Open);
        }
        let child = |parent: &&str| format!("hooklane.{parent}_{}", day.format("%Y%m%d"));
        let children: Vec<String> = tables.parents().iter().map(child).collect();
        let children = children.join(", ");
        sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE IF EXISTS {children}")))
            .execute(&mut *tx)
            .await
            .map_err(Error::doing(doing))?;
        tx.commit().await.map_err(Error::doing(doing))?;
        Ok(Drop::Dropped)
    }

    /// Forgets idempotency keys of messages accepted before `before`, at most `limit` of them;
    /// answers how many, fewer than `limit` once there are no more.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn forget_keys(&self, before: DateTime<Utc>, limit: i64) -> Result<u64, Error> {
        sqlx::query!(
            "DELETE FROM hooklane.idempotency_keys k
              USING (SELECT consumer_id, key FROM hooklane.idempotency_keys
                      WHERE accepted_at < $1 ORDER BY accepted_at LIMIT $2 FOR UPDATE SKIP LOCKED) old
              WHERE k.consumer_id = old.consumer_id AND k.key = old.key",
            before,
            limit
        )
        .execute(self.pool())
        .await
        .map(|done| done.rows_affected())
        .map_err(Error::doing("forgetting idempotency keys"))
    }

    /// Deletes signing secrets that expired a day ago; answers how many. The route publisher removes
    /// them at once, together with the routes that name them; what is left here is what no relay
    /// was there to remove.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn forget_expired_secrets(&self) -> Result<u64, Error> {
        sqlx::query!(
            "DELETE FROM hooklane.endpoint_secrets
              WHERE expires_at < clock_timestamp() - interval '1 day'"
        )
        .execute(self.pool())
        .await
        .map(|done| done.rows_affected())
        .map_err(Error::doing("deleting expired signing secrets"))
    }
}

fn bounds(day: NaiveDate) -> (DateTime<Utc>, DateTime<Utc>) {
    let from = day.and_time(NaiveTime::MIN).and_utc();
    (from, from + TimeDelta::days(1))
}

/// Whether something of a day is open. Reads partial indexes: next to nothing where nothing is; and of
/// the inbox those events that retention has left.
async fn has_open(
    on: impl sqlx::PgExecutor<'_>,
    tables: Tables,
    day: NaiveDate,
) -> Result<bool, Error> {
    let (from, to) = bounds(day);
    match tables {
        Tables::Messages => {
            sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM hooklane.deliveries
                                   WHERE accepted_at >= $1 AND accepted_at < $2 AND status = 'received')
                       OR EXISTS (SELECT FROM hooklane.deliveries
                                   WHERE accepted_at >= $1 AND accepted_at < $2 AND status = 'stalled')
                       AS "open!""#,
                from,
                to
            )
            .fetch_one(on)
            .await
        }
        Tables::Inbox => {
            sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM hooklane.webhook_inbox
                                   WHERE received_at >= $1 AND received_at < $2
                                     AND status IN ('PENDING', 'DEFERRED', 'QUARANTINED'))
                       OR EXISTS (SELECT FROM hooklane.inbox_handoffs
                                   WHERE received_at >= $1 AND received_at < $2)
                       AS "open!""#,
                from,
                to
            )
            .fetch_one(on)
            .await
        }
    }
    .map_err(Error::doing("looking for what is open of a day"))
}
