//! The recorder: what happened at the lanes goes into the ledger, and what is too old goes out.
//!
//! Owns reading `RECORDS`, batching, what becomes of a record that can't be written, the making of
//! day partitions ahead of time, and retention. Does not own the merge rule (`hooklane-core`) nor
//! the statements (`hooklane-store`). Several recorders may run at once: records merge in any order,
//! and housekeeping is harmless when it is done twice.

mod batch;
mod config;
mod housekeeping;
mod stats;
mod writer;

use hooklane_core::error::ErrorCode;
use hooklane_nats::Client;
use hooklane_store::Store;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use config::Config;
pub use stats::{Handle, Stats};

/// What stops a recorder. Faults of NATS and PostgreSQL don't: it waits for them to pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks panicked.
    #[error("a task of the recorder ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Error {
    /// What kind of fault it is.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Task(_) => ErrorCode::Internal,
        }
    }
}

/// Writes records and keeps house, until it is told to stop.
#[derive(Debug)]
pub struct Service {
    config: Config,
    store: Store,
    client: Client,
    handle: Handle,
}

impl Service {
    /// Prepares a recorder; nothing happens before [`Service::run`].
    #[must_use]
    pub fn new(config: Config, store: Store, client: Client) -> Self {
        Self {
            config,
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

    /// Runs until `shutdown`. Then the batch in hand is finished, or given back to the broker where
    /// the ledger can't take it, and what was pulled besides is given back.
    ///
    /// # Errors
    /// [`Error::Task`] where one of its tasks panicked.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self {
            config,
            store,
            client,
            handle,
        } = self;
        info!("recorder starts");
        let term = shutdown.child_token();
        let mut tasks = JoinSet::new();
        tasks.spawn(housekeeping::run(
            config.clone(),
            store.clone(),
            term.clone(),
        ));
        let writer = writer::Writer::new(&config, store, handle);
        tasks.spawn(writer.run(client, config, term.clone()));
        let mut outcome = Ok(());
        while let Some(ended) = tasks.join_next().await {
            // They end at shutdown or by a panic, and one that ends takes the other along.
            term.cancel();
            outcome = outcome.and(ended.map_err(Error::Task));
        }
        outcome?;
        info!("recorder stopped");
        Ok(())
    }
}
