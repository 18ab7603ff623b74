//! The reader of a source: its leader, one batch after the other.
//!
//! Owns the order of things within a round: horizon first, then rows, then accept and settle.
//! State is in memory alone and is made anew by whoever leads next, who starts at the start.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::Instant;

use super::horizon::{Horizon, Seen};
use super::rows::{self, Row};
use super::session;
use super::source::Source;
use super::table::{Scan, Table};
use super::turns::{Bound, Key, Limits, Offered, Overflow, Turns};
use crate::accept::{self, Accepted, Alongside, Outcome, Settings, Via};
use crate::intake::{self, Offer, SetAside};
use crate::{Error, Store};

/// How often everything pending is read from the start.
const SWEEP: Duration = Duration::from_secs(60);
/// How often a table without a horizon is looked through from the start while it is behind.
const LOOK: Duration = Duration::from_secs(1);
/// How often the leader's lock is looked after.
const CHECK: Duration = Duration::from_secs(5);
/// Keys read at once.
const PAGE: usize = 5_000;
/// Keys noted while behind.
const LIMITS: Limits = Limits {
    consumer: 2_000,
    total: 50_000,
};
/// Settled rows removed at once.
const PURGE: i64 = 2_000;
/// How often settled rows are looked for.
const PURGE_EVERY: Duration = Duration::from_secs(60);

/// Reads a source. There is one per table at a time; dropping it ends its session and lets the
/// next one lead.
pub struct Reader {
    store: Store,
    source: Source,
    name: Arc<str>,
    table: Table,
    session: PgConnection,
    horizon: Horizon,
    turns: Turns,
    /// Above which rows are new; everything pending at or below is in `turns` or its overflow.
    low: Bound,
    /// Whether the last read found more than a batch.
    behind: bool,
    looked: Option<Instant>,
    swept: Instant,
    checked: Instant,
    purged: Option<Instant>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("source", &self.source.name)
            .field("scan", &self.table.scan)
            .finish_non_exhaustive()
    }
}

/// Pending rows, read for acceptance.
#[derive(Debug, Default)]
#[must_use = "what is not accepted has to be read again"]
pub struct Batch {
    /// What is offered to accept, in turn. The trace of each may be replaced by that of a span.
    pub offers: Vec<Offer>,
    ids: Vec<String>,
    keys: Vec<Key>,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "the events are to be published"]
pub struct Taken {
    /// What was accepted, to publish.
    pub accepted: Accepted,
    /// Rows settled: accepted, repeated or set aside.
    pub settled: usize,
}

impl Reader {
    /// Becomes the source's reader; `None` where another session leads it.
    ///
    /// # Errors
    /// [`Error::Outbox`] where the table does not fit the source's configuration; otherwise where a
    /// database can't be reached or fails.
    pub async fn lead(store: &Store, source: &Source) -> Result<Option<Self>, Error> {
        let mut session = session::open(store, source).await?;
        let mut table = Table::inspect(&mut session, source).await?;
        if !session::lead(&mut session, &table).await? {
            return Ok(None);
        }
        session::check_visibility(store, source, &mut table).await?;
        let now = Instant::now();
        Ok(Some(Self {
            store: store.clone(),
            source: source.clone(),
            name: Arc::from(source.name.as_str()),
            table,
            session,
            horizon: Horizon::default(),
            turns: Turns::new(LIMITS),
            low: None,
            behind: false,
            looked: None,
            swept: now,
            checked: now,
            purged: None,
        }))
    }

    /// How the table is read.
    #[must_use]
    pub fn scan(&self) -> Scan {
        self.table.scan
    }

    /// Why the table is read from the start each time, where it is.
    #[must_use]
    pub fn why_plain(&self) -> Option<&str> {
        self.table.why_plain.as_deref()
    }

    /// Ends the session in order, so that the next leader need not wait for the server to notice.
    pub async fn close(self) {
        if let Err(error) = self.session.close().await {
            tracing::debug!(source = self.source.name, %error, "a leader's session did not close cleanly");
        }
    }

    /// Reads the next batch; an empty one means that nothing is pending that may be read yet.
    ///
    /// # Errors
    /// Where the source's database can't be reached or fails, or the lock is gone. The reader is of
    /// no use then; lead anew.
    pub async fn read(&mut self) -> Result<Batch, Error> {
        self.check().await?;
        let safe = self.observe().await?;
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            self.low = None;
            self.turns.overflow = None;
            self.looked = None;
        }
        let rows = if self.turns.is_idle() && !self.behind {
            self.read_page(safe).await?
        } else {
            self.read_turns(safe).await?
        };
        let mut batch = Batch::default();
        for row in rows {
            batch.keys.push(row.key(&self.table));
            let (id, offer) = row.offer(&self.source, &self.name);
            batch.ids.push(id);
            batch.offers.push(offer);
        }
        Ok(batch)
    }

    /// Accepts as much from the front of a batch as one transaction should take, sets aside what
    /// can't be accepted, and settles the rows; what is left is read again soon.
    ///
    /// # Errors
    /// Where a database can't be reached or fails. The reader is of no use then; lead anew. Rows
    /// that were accepted and not settled are repeated, which is harmless.
    pub async fn accept(
        &mut self,
        settings: &Settings,
        patience: Duration,
        batch: Batch,
    ) -> Result<Taken, Error> {
        let items = intake::items(&batch.offers);
        let aside = SetAside {
            offers: &batch.offers,
            patience,
        };
        let accepted = if self.source.database_url.is_none() {
            let handed = Handed {
                aside,
                table: &self.table,
                ids: &batch.ids,
            };
            let via = Via::Session(&mut self.session);
            accept::accept(&self.store, via, settings, &items, &handed).await?
        } else {
            let accepted = accept::accept(&self.store, Via::Pool, settings, &items, &aside).await?;
            let ids = &batch.ids[..accepted.outcomes.len()];
            rows::settle(&mut self.session, &self.table, ids).await?;
            accepted
        };
        let settled = accepted.outcomes.len();
        for key in &batch.keys[..settled] {
            self.turns.settle(key);
        }
        let rest = batch.keys.iter().zip(&batch.offers).skip(settled);
        for (key, offer) in rest.rev() {
            let consumer = offer.consumer.as_deref().unwrap_or_default();
            self.turns.give_back(consumer, key.clone());
        }
        Ok(Taken { accepted, settled })
    }

    /// Removes rows that were settled long ago, some at a time; says whether there are more.
    ///
    /// # Errors
    /// Where the source's database can't be reached or fails.
    pub async fn purge(&mut self) -> Result<bool, Error> {
        if self.table.purge.is_empty() || self.purged.is_some_and(|at| at.elapsed() < PURGE_EVERY) {
            return Ok(false);
        }
        let done = sqlx::query(AssertSqlSafe(self.table.purge.as_str()))
            .bind(self.source.keep_processed.as_secs_f64())
            .bind(PURGE)
            .execute(&mut self.session)
            .await
            .map_err(Error::doing("purging processed outbox rows"))?
            .rows_affected();
        let more = done >= PURGE.unsigned_abs();
        self.purged = (!more).then(Instant::now);
        Ok(more)
    }

    /// The lock can go without the session: a pooler may reset it.
    async fn check(&mut self) -> Result<(), Error> {
        if self.table.scan == Scan::Plain || self.checked.elapsed() < CHECK {
            return Ok(());
        }
        self.checked = Instant::now();
        if session::leads(&mut self.session, &self.table).await? {
            return Ok(());
        }
        Err(Error::Outbox {
            outbox: self.source.name.clone(),
            problem: "the leader's lock is gone: a pooler between Hooklane and the database must \
                      pool sessions, not transactions"
                .to_owned(),
        })
    }

    /// Up to which key everything pending can be seen; `None` where that can't be told.
    async fn observe(&mut self) -> Result<Bound, Error> {
        if self.table.scan == Scan::Plain {
            return Ok(None);
        }
        // In this order: whoever draws a position after the value was read is not of it.
        let last: i64 = sqlx::query_scalar(AssertSqlSafe(self.table.last_drawn.as_str()))
            .fetch_one(&mut self.session)
            .await
            .map_err(Error::doing("reading an outbox's last position"))?;
        let writers: Vec<String> = sqlx::query_scalar(
            "SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks
             WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
               AND database = (SELECT oid FROM pg_catalog.pg_database
                               WHERE datname = current_database())
               AND relation = $1::bigint::oid AND pid IS DISTINCT FROM pg_backend_pid()",
        )
        .bind(self.table.oid)
        .fetch_all(&mut self.session)
        .await
        .map_err(Error::doing("reading an outbox's writers"))?;
        match self.horizon.observe(last, writers.into_iter().collect()) {
            Seen::UpTo(safe) => Ok(Some(Key::Number(safe))),
            Seen::Restarted => {
                self.low = None;
                Ok(None)
            }
        }
    }

    /// What is new, as it stands.
    async fn read_page(&mut self, safe: Bound) -> Result<Vec<Row>, Error> {
        let (limit, budget) = (self.source.batch, self.source.batch_bytes);
        let mut rows = rows::page(&mut self.session, &self.table, &self.low, limit, budget).await?;
        if rows.len() < limit {
            // All of it is here, so everything else that is new will be above the horizon.
            self.low = safe;
        } else {
            self.behind = true;
            self.looked = None;
        }
        for row in rows.extract_if(.., |row| !row.included) {
            self.turns.offer(row.consumer(), &row.key(&self.table));
        }
        Ok(rows)
    }

    /// A batch in turns.
    async fn read_turns(&mut self, safe: Bound) -> Result<Vec<Row>, Error> {
        let due = self.table.scan == Scan::Horizon
            || self.looked.is_none_or(|at| at.elapsed() >= LOOK)
            || self.turns.is_empty();
        if due {
            self.looked = Some(Instant::now());
            self.note_new().await?;
            self.low = safe;
        }
        if self.turns.wants_refill() {
            self.note_overflow().await?;
        }
        let keys = self.turns.take(self.source.batch);
        self.behind = !keys.is_empty();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let budget = self.source.batch_bytes;
        let mut found = rows::by_keys(&mut self.session, &self.table, &keys, budget).await?;
        let mut gone: HashSet<Key> = keys.into_iter().collect();
        for row in &found {
            gone.remove(&row.key(&self.table));
        }
        // Settled by somebody else meanwhile, or deleted.
        for key in &gone {
            self.turns.settle(key);
        }
        let rest: Vec<Row> = found.extract_if(.., |row| !row.included).collect();
        for row in rest.iter().rev() {
            self.turns.give_back(row.consumer(), row.key(&self.table));
        }
        Ok(found)
    }

    /// Notes the keys of what is new, of all consumers that don't overflow already.
    async fn note_new(&mut self) -> Result<(), Error> {
        let mut above = self.low.clone();
        loop {
            let except: Vec<Arc<str>> = match &self.turns.overflow {
                None => Vec::new(),
                Some(Overflow {
                    consumers: Some(consumers),
                    ..
                }) => consumers.iter().cloned().collect(),
                // Reading the overflow covers everybody.
                Some(Overflow {
                    consumers: None, ..
                }) => return Ok(()),
            };
            let page =
                rows::keys(&mut self.session, &self.table, &above, None, &except, PAGE).await?;
            let last_page = page.len() < PAGE;
            for (key, consumer) in page {
                if self.turns.is_full() {
                    Overflow::note(&mut self.turns.overflow, above, None);
                    return Ok(());
                }
                if self.turns.offer(&consumer, &key) == Offered::Full {
                    Overflow::note(&mut self.turns.overflow, above.clone(), Some(&consumer));
                }
                above = Some(key);
            }
            if last_page {
                return Ok(());
            }
        }
    }

    /// Notes keys of what overflowed, until its consumers are full again or nothing is left.
    async fn note_overflow(&mut self) -> Result<(), Error> {
        let Some(Overflow {
            above,
            consumers: only,
        }) = self.turns.overflow.take()
        else {
            return Ok(());
        };
        let mut above = above;
        let mut left: Option<Overflow> = None;
        loop {
            let full: Vec<Arc<str>> = match &left {
                Some(Overflow {
                    consumers: Some(consumers),
                    ..
                }) => consumers.iter().cloned().collect(),
                _ => Vec::new(),
            };
            let wanted: Option<Vec<Arc<str>>> = only.as_ref().map(|only| {
                let wanted = only.iter().filter(|c| !full.contains(c));
                wanted.cloned().collect()
            });
            if wanted.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
            let page = rows::keys(
                &mut self.session,
                &self.table,
                &above,
                wanted.as_deref(),
                &full,
                PAGE,
            )
            .await?;
            let last_page = page.len() < PAGE;
            for (key, consumer) in page {
                if self.turns.is_full() {
                    Overflow::note(&mut left, above, None);
                    self.turns.overflow = left;
                    return Ok(());
                }
                if self.turns.offer(&consumer, &key) == Offered::Full {
                    Overflow::note(&mut left, above.clone(), Some(&consumer));
                }
                above = Some(key);
            }
            if last_page {
                break;
            }
        }
        self.turns.overflow = left;
        Ok(())
    }
}

/// Sets aside what is rejected and settles the rows, all in the ledger's own database.
struct Handed<'a> {
    aside: SetAside<'a>,
    table: &'a Table,
    ids: &'a [String],
}

impl Alongside for Handed<'_> {
    async fn write(&self, conn: &mut PgConnection, outcomes: &[Outcome]) -> Result<(), Error> {
        self.aside.write(&mut *conn, outcomes).await?;
        rows::settle(conn, self.table, &self.ids[..outcomes.len()]).await
    }
}
