//! What can go wrong with the ledger, and whether trying again can help.

use std::borrow::Cow;

/// A fault of the ledger. The text says what was being done and, where there is one, the fix; it
/// never carries the database URL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No URL is configured.
    #[error(
        "no database is configured: set `database.url` or DATABASE_URL to postgres://user:password@host:port/database"
    )]
    NoUrl,
    /// The URL can't be parsed. The parser's words are left out: they may quote a password.
    #[error(
        "the database URL can't be read: expected postgres://user:password@host:port/database; percent-encode special characters of the password"
    )]
    Url,
    /// The database could not be reached at start-up.
    #[error(
        "can't connect to the database: {0}; check that it runs, that `database.url` names it, and that the role may log in"
    )]
    Connect(#[source] sqlx::Error),
    /// The database of an outbox source could not be reached.
    #[error(
        "can't connect to the database of the outbox source `{outbox}`: {source}; check that it runs, that `database_url` of this source names it, and that the role may log in"
    )]
    OutboxConnect {
        /// The source's name.
        outbox: String,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The migrations failed.
    #[error(
        "can't migrate the database: {0}; the role needs CREATE on the database, and the schema `hooklane` must be ours"
    )]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A statement failed.
    #[error("{doing}: {source}")]
    Statement {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// A transaction took longer than it may.
    #[error("{doing} took longer than {after:?}")]
    TimedOut {
        /// What was being done.
        doing: &'static str,
        /// How long it was given.
        after: std::time::Duration,
    },
    /// An outbox table is not as its source is configured.
    #[error("outbox `{outbox}`: {problem}")]
    Outbox {
        /// The source's name.
        outbox: String,
        /// What does not fit, and what helps.
        problem: String,
    },
    /// The ledger holds something that this release can't read.
    #[error("{doing}: {problem}")]
    Unreadable {
        /// What was being done.
        doing: &'static str,
        /// What could not be read.
        problem: String,
    },
}

impl Error {
    /// For `map_err`: a statement's failure with what it was for.
    pub(crate) fn doing(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Statement { doing, source }
    }

    /// For `map_err`: what is wrong with something that the ledger holds.
    pub(crate) fn unreadable<E: std::fmt::Display>(doing: &'static str) -> impl Fn(E) -> Self {
        move |problem| Self::Unreadable {
            doing,
            problem: problem.to_string(),
        }
    }

    fn sql(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Connect(source)
            | Self::OutboxConnect { source, .. }
            | Self::Statement { source, .. } => Some(source),
            Self::Migrate(sqlx::migrate::MigrateError::Execute(source)) => Some(source),
            Self::NoUrl
            | Self::Url
            | Self::Migrate(_)
            | Self::TimedOut { .. }
            | Self::Outbox { .. }
            | Self::Unreadable { .. } => None,
        }
    }

    /// The SQLSTATE, where the server gave one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<Cow<'_, str>> {
        match self.sql()? {
            sqlx::Error::Database(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anybody doing anything: a broken
    /// connection, a timeout, a deadlock, a server that restarts or is out of resources.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        let Some(error) = self.sql() else {
            return matches!(self, Self::TimedOut { .. });
        };
        match error {
            sqlx::Error::Database(error) => error.code().as_deref().is_some_and(transient_state),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            _ => false,
        }
    }

    /// Whether the values given are to blame, so that other values would pass: out of range, a
    /// violated constraint, text that Postgres can't hold. Everything else (a lost connection, a
    /// missing table, a missing privilege) would hit any values alike.
    #[must_use]
    pub fn is_data_fault(&self) -> bool {
        match self.sql() {
            Some(sqlx::Error::Encode(_)) => true,
            Some(sqlx::Error::Database(error)) => {
                error.code().as_deref().is_some_and(data_fault_state)
            }
            _ => false,
        }
    }

    /// Whether the server cut the statement off, or a lock was not to be had in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
            || matches!(self.sqlstate().as_deref(), Some("57014" | "55P03"))
    }
}

/// Connection faults, rollbacks of the server's choosing, resources, interventions, system faults,
/// and what a fail-over answers until it is over.
fn transient_state(code: &str) -> bool {
    const CLASSES: [&str; 6] = ["08", "40", "53", "57", "58", "55"];
    CLASSES.iter().any(|class| code.starts_with(class)) || code == "25006"
}

/// Data exceptions, integrity constraints, program limits, and a damaged page, which harms those on
/// it alone.
fn data_fault_state(code: &str) -> bool {
    ["22", "23", "54", "XX"]
        .iter()
        .any(|class| code.starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sorted_by_who_can_help() {
        for code in [
            "40P01", "40001", "57014", "57P01", "53300", "53100", "08006", "55P03", "25006",
        ] {
            assert!(transient_state(code) && !data_fault_state(code), "{code}");
        }
        for code in ["22P05", "22003", "22021", "23514", "54000", "XX001"] {
            assert!(!transient_state(code) && data_fault_state(code), "{code}");
        }
        for code in ["42P01", "42501", "28P01", "3D000"] {
            assert!(!transient_state(code) && !data_fault_state(code), "{code}");
        }
    }
}
