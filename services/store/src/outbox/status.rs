//! How a source stands, for an operator.

use chrono::{DateTime, Utc};
use sqlx::AssertSqlSafe;

use super::session;
use super::source::Source;
use super::table::{Scan, Table};
use crate::{Error, Store};

/// How a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The source's name.
    pub name: String,
    /// Its table.
    pub table: String,
    /// How the table is read.
    pub scan: Scan,
    /// Why it is read from the start each time, where it is.
    pub why_plain: Option<String>,
    /// Whether a relay leads it now.
    pub led: bool,
    /// Rows that the ledger has not taken yet.
    pub pending: i64,
    /// When the oldest of them was written: the start of its transaction. `None` without pending
    /// rows or without such a column; a column without a time zone is taken for UTC.
    pub oldest: Option<DateTime<Utc>>,
    /// Rows taken and still there.
    pub settled: i64,
}

/// Looks at a source. Counts its rows, so it costs as much as the table is long.
///
/// # Errors
/// [`Error::Outbox`] where the table does not fit the source's configuration; otherwise where the
/// source's database can't be reached or fails.
pub async fn status(store: &Store, source: &Source) -> Result<Status, Error> {
    let mut conn = session::open(store, source).await?;
    let table = Table::inspect(&mut conn, source).await?;
    let led = session::is_led(&mut conn, &table).await?;
    let (pending, oldest, settled) = sqlx::query_as(AssertSqlSafe(table.count.as_str()))
        .fetch_one(&mut conn)
        .await
        .map_err(Error::doing("counting outbox rows"))?;
    Ok(Status {
        name: source.name.clone(),
        table: source.table.clone(),
        scan: table.scan,
        why_plain: table.why_plain,
        led,
        pending,
        oldest,
        settled,
    })
}
