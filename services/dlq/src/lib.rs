//! The dead-letter mover: what failed for good goes into the stream `DLQ`, and what the broker gave
//! up goes back into the ledger.
//!
//! Three tasks:
//! - `letters`: the ledger's failed deliveries that are not in `DLQ` yet are put there. The
//!   broker's word that a message was terminated only says when to look;
//! - `advisories`: the broker's word that a message was delivered too often. It is taken off its
//!   stream, where it would stop the sweep of its partition, and its delivery is a fault richer;
//! - `lookout`: the same for messages of which no word came.
//!
//! Does not own what fails a delivery (lanes, recorder and scheduler do) nor the statements
//! (`hooklane-store`). Several movers may run at once: each step may be done twice.

mod advisories;
mod config;
mod exhausted;
mod fault;
mod letters;
mod lookout;
mod pace;
mod stats;

use std::sync::Arc;

use hooklane_core::error::ErrorCode;
use hooklane_nats::{Client, Publisher};
use hooklane_store::Store;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use config::Config;
pub use stats::{Handle, Stats};

/// What stops a mover. Faults of NATS and PostgreSQL don't: it waits for them to pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks panicked.
    #[error("a task of the dead-letter mover ended early: {0}")]
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

/// What the tasks share.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) publisher: Publisher,
    pub(crate) handle: Handle,
    /// Somebody failed a delivery.
    pub(crate) look: Arc<Notify>,
}

/// Moves dead letters until it is told to stop.
#[derive(Debug)]
pub struct Service(Parts);

impl Service {
    /// Prepares a mover; nothing happens before [`Service::run`].
    #[must_use]
    pub fn new(config: Config, store: Store, client: Client) -> Self {
        let window_bytes = usize::try_from(config.letter_bytes).unwrap_or(usize::MAX);
        let publisher = Publisher::new(&client, config.letters_at_once as usize, window_bytes);
        Self(Parts {
            config,
            store,
            client,
            publisher,
            handle: Handle::default(),
            look: Arc::new(Notify::new()),
        })
    }

    /// A handle that tells what it has done.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.handle.clone()
    }

    /// Runs until `shutdown`. Then the dead letters in hand are finished, within a few seconds, and
    /// what was pulled is given back.
    ///
    /// # Errors
    /// [`Error::Task`] where one of its tasks panicked.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self(parts) = self;
        info!("dead-letter mover starts");
        let term = shutdown.child_token();
        let mut tasks = JoinSet::new();
        tasks.spawn(letters::run(parts.clone(), term.clone()));
        tasks.spawn(advisories::run(parts.clone(), term.clone()));
        tasks.spawn(lookout::run(parts, term.clone()));
        let mut outcome = Ok(());
        while let Some(ended) = tasks.join_next().await {
            // They end at shutdown or by a panic, and one that ends takes the others along.
            term.cancel();
            outcome = outcome.and(ended.map_err(Error::Task));
        }
        outcome?;
        info!("dead-letter mover stopped");
        Ok(())
    }
}
