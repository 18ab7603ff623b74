//! The scheduler: puts work back. Due retries go to the lanes that have room, what the broker lost
//! is found and becomes due, what is overdue or belongs to a stopped endpoint is ended, and what
//! somebody wants delivered again becomes due, task by task.
//!
//! Owns when and how much is put back. Does not own the statements (`hooklane-store`), what a lane
//! has room for (its owner answers `room.<p>`), nor the retry schedule (the lane decides when an
//! attempt is due). One scheduler leads at a time; two at once for a moment do no harm, since a
//! claim takes only what nobody else holds and the sweep only what is proved lost.

mod clocks;
mod config;
mod endings;
mod lead;
mod pace;
mod stats;
mod sweep;
mod tasks;
mod topup;

use hooklane_core::error::ErrorCode;
use hooklane_nats::Client;
use hooklane_store::Store;
use hooklane_store::dead_letter::Terms;
use tokio_util::sync::CancellationToken;

pub use config::Config;
pub use stats::{Handle, Stats};

/// What stops a scheduler. Faults of NATS and PostgreSQL don't: it waits for them to pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks panicked.
    #[error("a task of the scheduler ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// The broker client has no partitions.
    #[error("[nats] partitions is 0: give 1 to 256")]
    NoPartitions,
}

impl Error {
    /// What kind of fault it is.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Task(_) => ErrorCode::Internal,
            Self::NoPartitions => ErrorCode::Config,
        }
    }
}

/// Puts work back, until it is told to stop.
#[derive(Debug)]
pub struct Service {
    config: Config,
    terms: Terms,
    store: Store,
    client: Client,
    handle: Handle,
}

impl Service {
    /// Prepares a scheduler; nothing happens before [`Service::run`]. The terms are those of the
    /// series that tasks open.
    #[must_use]
    pub fn new(config: Config, terms: Terms, store: Store, client: Client) -> Self {
        Self {
            config,
            terms,
            store,
            client,
            handle: Handle::default(),
        }
    }

    /// A handle that tells what it has done.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the lead, works while it has it, and waits again, until `shutdown`. What is claimed
    /// then and not published is found by the sweep.
    ///
    /// # Errors
    /// [`Error::Task`] where one of its tasks panicked, [`Error::NoPartitions`] where the client is
    /// misconfigured.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        lead::run(self, shutdown).await
    }
}
