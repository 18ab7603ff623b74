//! The pool and the migrations.

use std::io::ErrorKind;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use chrono::{DateTime, Utc};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Postgres, Transaction};
use tracing::info;

use crate::audit_log::By;
use crate::day::KnownDays;
use crate::{Config, Error};

/// Every migration, in order. They are applied by [`Store::migrate`], and by tests to databases of
/// their own.
static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Two-part key of the advisory lock that lets one process migrate at a time.
const MIGRATE_LOCK: (i32, i32) = (7_261_001, 0);

/// How long an attempt may take that is only to find out why those before failed.
const ONE_MORE: Duration = Duration::from_secs(2);

/// What the database does with a write. It refuses them while it is a standby, as after a fail-over
/// that the connection did not follow, and where somebody has made it read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// It takes them.
    Taken,
    /// It is read-only.
    Refused,
}

/// A handle on the ledger; clones share one pool.
#[derive(Clone)]
pub struct Store {
    pool: PgPool,
    options: PgConnectOptions,
    pub(crate) days: KnownDays,
    by: Option<Arc<By>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("host", &self.options.get_host())
            .field("database", &self.options.get_database())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the pool and checks that the database answers, trying again for the acquire timeout where
    /// nothing listens or the connection is cut.
    ///
    /// # Errors
    /// [`Error::NoUrl`], [`Error::Url`], or [`Error::Connect`] where the database does not answer
    /// within the acquire timeout.
    pub async fn connect(config: &Config) -> Result<Self, Error> {
        let options = options(config)?;
        let open = || {
            PgPoolOptions::new()
                .max_connections(config.max_connections.clamp(2, 500))
                .acquire_timeout(config.acquire_timeout)
                .idle_timeout(Duration::from_secs(300))
                .connect_with(options.clone())
        };
        let pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(1))
            .with_jitter()
            .without_max_times()
            .with_total_delay(Some(config.acquire_timeout));
        let pool = match open.retry(pauses).when(cut_off).await {
            Ok(pool) => pool,
            // The pool tries until its time is over, and does not tell why it failed.
            Err(sqlx::Error::PoolTimedOut) => {
                return Err(Error::Connect(last_fault(&options).await));
            }
            Err(error) => return Err(Error::Connect(error)),
        };
        Ok(Self {
            pool,
            options,
            days: KnownDays::default(),
            by: None,
        })
    }

    /// Brings the schema up to date. Several processes may call it at once: one migrates, the
    /// others wait and find it done.
    ///
    /// # Errors
    /// [`Error::Migrate`] where a migration fails or an applied one was changed since.
    pub async fn migrate(&self) -> Result<(), Error> {
        // A session of its own: waiting for the lock and building indexes may take longer than
        // the pool's statement timeout, and closing the session gives the lock back whatever
        // happens.
        let mut session = self
            .session(&[("statement_timeout", "0"), ("lock_timeout", "0")])
            .await?;
        sqlx::query("SELECT pg_advisory_lock($1, $2)")
            .bind(MIGRATE_LOCK.0)
            .bind(MIGRATE_LOCK.1)
            .execute(&mut session)
            .await
            .map_err(Error::doing("taking the migration lock"))?;
        let mut migrator = Migrator {
            migrations: MIGRATIONS.migrations.clone(),
            ..Migrator::DEFAULT
        };
        // Our own lock is taken already, and our schema holds everything of ours.
        migrator.set_locking(false);
        migrator.create_schema("hooklane");
        migrator.dangerous_set_table_name("hooklane._migrations");
        let migrated = migrator.run(&mut session).await;
        let closed = session.close().await;
        migrated?;
        if let Err(error) = closed {
            info!(%error, "the migration session did not close cleanly");
        }
        Ok(())
    }

    /// Asks the database for an answer, and whether it takes writes.
    ///
    /// # Errors
    /// Where it gives none.
    pub async fn ping(&self) -> Result<Writes, Error> {
        let read_only: bool =
            sqlx::query_scalar("SELECT current_setting('transaction_read_only')::boolean")
                .fetch_one(&self.pool)
                .await
                .map_err(Error::doing("asking the database for an answer"))?;
        Ok(if read_only {
            Writes::Refused
        } else {
            Writes::Taken
        })
    }

    /// Whether the database answers within `patience`, by a connection of its own: whatever the pool's are
    /// busy with. A refusal is an answer too, such as that there are too many connections; that it is
    /// starting or stopping is none.
    pub async fn answers(&self, patience: Duration) -> bool {
        let asking = async {
            match self.options.connect().await {
                Ok(session) => {
                    // It has answered: how it takes its leave is nothing to anybody.
                    let _ = session.close().await;
                    true
                }
                Err(sqlx::Error::Database(refusal)) => {
                    !refusal.code().is_some_and(|code| code.starts_with("57P"))
                }
                Err(_) => false,
            }
        };
        tokio::time::timeout(patience, asking)
            .await
            .unwrap_or(false)
    }

    /// A session outside the pool, with settings of its own over the configured ones.
    pub(crate) async fn session(&self, settings: &[(&str, &str)]) -> Result<PgConnection, Error> {
        self.options
            .clone()
            .options(settings.iter().copied())
            .connect()
            .await
            .map_err(Error::Connect)
    }

    /// Opens a transaction whose joins with a list of keys probe an index in the list's order: the
    /// sort order is the lock order, and a fresh day partition has no statistics that would keep the
    /// planner from reading it whole. Its plans are made once a connection: with 40 day partitions
    /// planning takes as long as the statement.
    pub(crate) async fn begin_probing(&self) -> Result<Transaction<'static, Postgres>, Error> {
        self.pool
            .begin_with(
                "BEGIN; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; \
                 SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
                 SET LOCAL enable_material = off; SET LOCAL jit = off; \
                 SET LOCAL plan_cache_mode = force_generic_plan",
            )
            .await
            .map_err(Error::doing("opening a transaction"))
    }

    /// The database's clock.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn time(&self) -> Result<DateTime<Utc>, Error> {
        sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#)
            .fetch_one(&self.pool)
            .await
            .map_err(Error::doing("asking the database for the time"))
    }

    /// The same ledger in somebody's name: what is managed through it goes into the audit log.
    #[must_use]
    pub fn acting(&self, by: By) -> Self {
        Self {
            by: Some(Arc::new(by)),
            ..self.clone()
        }
    }

    /// In whose name this acts; `None` where nobody's: Hooklane's own doing is not audited.
    #[must_use]
    pub fn by(&self) -> Option<&By> {
        self.by.as_deref()
    }

    /// The pool, for the aggregates' modules.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Closes the pool once every connection is given back.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Whether a connection was cut while it was being made, as by a server that is restarting. The pool
/// tries again by itself only where nothing listens.
fn cut_off(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        ),
        // What an end in the place of an answer is taken for.
        sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}

/// Why the database can't be reached, by one more attempt.
async fn last_fault(options: &PgConnectOptions) -> sqlx::Error {
    match tokio::time::timeout(ONE_MORE, options.connect()).await {
        Ok(Err(error)) => error,
        // It hangs, or was slow: that is what the pool says.
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut,
    }
}

fn options(config: &Config) -> Result<PgConnectOptions, Error> {
    let url = config.url_text();
    if url.is_empty() {
        return Err(Error::NoUrl);
    }
    let millis = |time: Duration| time.as_millis().to_string();
    Ok(PgConnectOptions::from_str(url)
        .map_err(|_| Error::Url)?
        .application_name("hooklane")
        .options([
            ("statement_timeout", millis(config.statement_timeout)),
            (
                "idle_in_transaction_session_timeout",
                millis(config.idle_in_transaction_timeout),
            ),
            ("timezone", "UTC".to_owned()),
        ]))
}
