//! What can go wrong with a local server, always with the way out.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A fault while finding, installing or running a local server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is not on this machine, or too old, and was not or could not be installed.
    #[error("{what} was not found{found}; fix: {fix}")]
    Missing {
        /// The program and the version needed.
        what: String,
        /// What was found instead, or nothing.
        found: String,
        /// What the reader can do about it.
        fix: String,
    },
    /// An installer ran and failed.
    #[error("installing {what} failed: {detail}; fix: {fix}")]
    Install {
        /// The program.
        what: String,
        /// The end of the installer's output.
        detail: String,
        /// What the reader can do about it.
        fix: String,
    },
    /// A server ended before it was ready.
    #[error("{what} ended while starting ({status}); its log ends:\n{log}")]
    Exited {
        /// The server.
        what: &'static str,
        /// Its exit status.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// A server did not become ready in time.
    #[error("{what} was not ready within {budget:?}; its log ends:\n{log}")]
    NotReady {
        /// The server.
        what: &'static str,
        /// How long it was given.
        budget: Duration,
        /// The last lines of its log.
        log: String,
    },
    /// Another process runs a server from the same directory.
    #[error("{} is in use by another process; fix: stop that process, or use another directory", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A data directory made by another major version of PostgreSQL.
    #[error(
        "{} holds data of PostgreSQL {found}, but PostgreSQL {running} is installed; \
         fix: remove that directory (its data is lost) or install PostgreSQL {found}",
        dir.display()
    )]
    DataVersion {
        /// The directory.
        dir: PathBuf,
        /// The version in it.
        found: String,
        /// The version installed.
        running: u32,
    },
    /// PostgreSQL refuses to run as root and there is no account to run it as.
    #[error(
        "PostgreSQL cannot run as root and none of the accounts postgres, hooklane and nobody \
         exists; fix: adduser --system --group postgres"
    )]
    NoAccount,
    /// PostgreSQL's account cannot reach its directory.
    #[error(
        "account {account} cannot enter {}; fix: chmod o+x its parent directories, \
         or use a directory that others may enter", dir.display()
    )]
    Unreachable {
        /// The directory.
        dir: PathBuf,
        /// The account.
        account: String,
    },
    /// An SQL command by `psql` failed.
    #[error("psql failed: {0}")]
    Sql(String),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The cause.
        source: io::Error,
    },
}

/// Adds what was being done to an [`io::Error`].
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            doing: what(),
            source,
        })
    }
}
