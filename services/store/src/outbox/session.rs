//! The session of a source's leader: whoever holds its lock reads the table, and nobody else.
//!
//! Everything that a leader does to the table it does in this one session, so a leader that lost
//! its session has lost its hands too: it can't read on or mark rows beside the next one. The
//! server gives the lock back when the session ends; keep-alives and an idle limit see to it that
//! the session of a host that vanished, or of a process that was suspended, does end.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};

use super::source::Source;
use super::table::{Scan, Table};
use crate::{Error, Store};

/// First part of the advisory lock's key; the second is the table's object id.
const LEADER: i32 = 7_261_003;

/// Settings of a leader's session. A queue's statistics are always out of date, so its plans must
/// not depend on them.
const SETTINGS: [(&str, &str); 8] = [
    ("timezone", "UTC"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("plan_cache_mode", "force_custom_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("jit", "off"),
];

/// How long a leader may be silent between two polls before its session is ended.
const SILENCE: Duration = Duration::from_secs(30);

/// Opens a session in the source's database.
pub(super) async fn open(store: &Store, source: &Source) -> Result<PgConnection, Error> {
    let idle = (SILENCE + source.poll_max).as_millis().to_string();
    let settings = SETTINGS
        .into_iter()
        .chain([("idle_session_timeout", &*idle)]);
    let settings: Vec<(&str, &str)> = settings.collect();
    match &source.database_url {
        None => store.session(&settings).await,
        Some(_) => options(source)?
            .options(settings)
            .connect()
            .await
            .map_err(|fault| Error::OutboxConnect {
                outbox: source.name.clone(),
                source: fault,
            }),
    }
}

/// How to reach the source's own database.
pub(super) fn options(source: &Source) -> Result<PgConnectOptions, Error> {
    let url = source.database_url.as_ref().map_or("", |url| url.expose());
    Ok(PgConnectOptions::from_str(url)
        .map_err(|_| Error::Outbox {
            outbox: source.name.clone(),
            problem: "its `database_url` can't be read; give postgres://user:password@host:port/database and percent-encode special characters of the password".to_owned(),
        })?
        .application_name("hooklane")
        .options([
            ("statement_timeout", "30s"),
            ("idle_in_transaction_session_timeout", "30s"),
        ]))
}

/// Takes the leader's lock of a table; `false` where another session has it.
pub(super) async fn lead(conn: &mut PgConnection, table: &Table) -> Result<bool, Error> {
    sqlx::query_scalar("SELECT pg_try_advisory_lock($1, $2::bigint::oid::int)")
        .bind(LEADER)
        .bind(table.oid)
        .fetch_one(conn)
        .await
        .map_err(Error::doing("taking an outbox's lock"))
}

/// Whether this session still holds the lock, and the server process that it is.
pub(super) async fn leads(conn: &mut PgConnection, table: &Table) -> Result<bool, Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
                        WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
                          AND classid = $1::int::oid AND objid = $2::bigint::oid AND objsubid = 2)",
    )
    .bind(LEADER)
    .bind(table.oid)
    .fetch_one(conn)
    .await
    .map_err(Error::doing("checking an outbox's lock"))
}

/// Whether anybody leads the table, as far as this session can see.
pub(super) async fn is_led(conn: &mut PgConnection, table: &Table) -> Result<bool, Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
                        WHERE locktype = 'advisory' AND granted
                          AND database = (SELECT oid FROM pg_catalog.pg_database
                                          WHERE datname = current_database())
                          AND classid = $1::int::oid AND objid = $2::bigint::oid AND objsubid = 2)",
    )
    .bind(LEADER)
    .bind(table.oid)
    .fetch_one(conn)
    .await
    .map_err(Error::doing("looking for an outbox's leader"))
}

/// Makes sure that this server shows sessions each other's locks, on which the horizon rests: a
/// second session must see the leader's. Where it does not, the table is read from the start.
pub(super) async fn check_visibility(
    store: &Store,
    source: &Source,
    table: &mut Table,
) -> Result<(), Error> {
    if table.scan == Scan::Plain {
        return Ok(());
    }
    let mut second = open(store, source).await?;
    let visible = match is_led(&mut second, table).await {
        Ok(visible) => visible,
        Err(error) if error.is_transient() => return Err(error),
        Err(_hidden) => false,
    };
    if !visible {
        table.scan = Scan::Plain;
        table.why_plain = Some("the server hides other sessions' locks".to_owned());
    }
    Ok(())
}
