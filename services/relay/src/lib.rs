//! The relay: what producers leave in outboxes or on `INTAKE` becomes accepted and published.
//!
//! Owns when sources are polled, how `INTAKE` is pulled, the publication to `EVENTS` after the
//! commit, the further tries of events set aside, and the way of endpoint settings into the
//! `ROUTES` bucket. Does not own acceptance, nor how an outbox is read: both are the store's.
//!
//! Several relays may run at once. An outbox table has one reader at a time, by a lock in its
//! database; the others stand by. `INTAKE` is shared; everything that comes from it goes by a key.
//!
//! A fault of PostgreSQL or NATS is never a row's fault: it makes the task that met it wait, with
//! growing, jittered pauses, and try again. A published event is a promise kept early and nothing
//! more: what can't be published in time is left to the sweep, which finds it in the ledger.

mod again;
mod config;
mod counts;
mod intake;
mod outbox;
mod pace;
mod receipt;
mod routes;
mod spans;
mod unreadable;

use std::num::NonZeroU16;
use std::time::Duration;

use hooklane_nats::events::Lane;
use hooklane_nats::{Client, Publisher};
use hooklane_store::Store;
use hooklane_store::accept::{Accepted, Settings};
use hooklane_store::operational;
use hooklane_store::outbox::Source;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use config::{Config, Intake};
pub use counts::{Counted, Handle};

/// How long the tasks may take to finish what they are at, once told to stop.
const GRACE: Duration = Duration::from_secs(12);

/// What stops a relay. Faults of NATS and PostgreSQL don't: it waits for them to pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks panicked.
    #[error("a task of the relay ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// The ledger or an outbox's database failed in [`Service::run_once`].
    #[error(transparent)]
    Store(#[from] hooklane_store::Error),
    /// NATS failed in [`Service::run_once`].
    #[error(transparent)]
    Nats(#[from] hooklane_nats::Error),
}

impl Error {
    /// Whether trying again later may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Task(_) => false,
            Self::Store(error) => error.is_transient(),
            Self::Nats(error) => error.is_transient(),
        }
    }
}

/// What one round did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Once {
    /// What was done.
    pub counted: Counted,
    /// The outboxes that were read, by name, Hooklane's own among them.
    pub read: Vec<String>,
    /// The outboxes that another relay reads, and that were left to it.
    pub led_elsewhere: Vec<String>,
}

/// Takes events in and publishes them, until it is told to stop.
#[derive(Debug)]
pub struct Service {
    parts: Parts,
}

/// What every task works with.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) intake_client: Client,
    pub(crate) publisher: Publisher,
    pub(crate) handle: Handle,
}

impl Parts {
    /// A way to publish, for one task.
    pub(crate) fn lane(&self) -> Lane {
        Lane::start(&self.client, &self.publisher, self.handle.events())
    }

    /// Counts what an acceptance took, and has its events published.
    pub(crate) async fn publish(&self, lane: &Lane, accepted: Accepted) {
        self.handle.outcomes(&accepted.outcomes);
        if let Some(until) = accepted.publish_until {
            lane.publish(accepted.events, until).await;
        }
    }

    /// The configured outboxes, and that of Hooklane's own events.
    fn sources(&self) -> impl Iterator<Item = Source> {
        let configured = self.config.sources.iter().cloned();
        configured.chain([operational::source()])
    }
}

impl Service {
    /// Prepares a relay; nothing happens before [`Service::run`].
    #[must_use]
    pub fn new(config: Config, store: Store, client: Client) -> Self {
        let partitions = NonZeroU16::new(client.partitions()).unwrap_or(NonZeroU16::MIN);
        let settings = config.settings(partitions);
        let publisher = Publisher::new(&client, config.publish_window, config.publish_window_bytes);
        Self {
            parts: Parts {
                config,
                settings,
                store,
                intake_client: client.clone(),
                client,
                publisher,
                handle: Handle::default(),
            },
        }
    }

    /// Reads `INTAKE` on a connection of its own. A message there that can't be read ends the
    /// connection once, and what else runs in this process shall not notice.
    #[must_use]
    pub fn with_intake_client(mut self, client: Client) -> Self {
        self.parts.intake_client = client;
        self
    }

    /// A handle that tells what it has done.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.parts.handle.clone()
    }

    /// Runs until `shutdown`. Then the batch in hand is finished and published, if that takes no
    /// longer than some seconds; whatever is cut off is done again by the next relay.
    ///
    /// # Errors
    /// [`Error::Task`] where one of its tasks panicked.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let parts = self.parts;
        info!(sources = parts.config.sources.len(), "relay starts");
        let mut tasks = JoinSet::new();
        for source in parts.sources() {
            tasks.spawn(outbox::run(parts.clone(), source, shutdown.clone()));
        }
        if parts.config.intake.enabled {
            tasks.spawn(intake::run(parts.clone(), shutdown.clone()));
        }
        tasks.spawn(again::run(parts.clone(), shutdown.clone()));
        tasks.spawn(routes::run(parts, shutdown.clone()));
        let mut outcome = Ok(());
        let mut cut = None;
        loop {
            let ended = tokio::select! {
                ended = tasks.join_next() => ended,
                () = overdue(cut), if cut.is_some() => {
                    info!("relay cuts off what it is at");
                    tasks.abort_all();
                    cut = None;
                    continue;
                }
                () = shutdown.cancelled(), if cut.is_none() => {
                    cut = Some(tokio::time::Instant::now() + GRACE);
                    continue;
                }
            };
            match ended {
                None => break,
                Some(Err(error)) if error.is_cancelled() => {}
                Some(ended) => {
                    // They end at shutdown or by a panic, and one that ends takes the others along.
                    shutdown.cancel();
                    outcome = outcome.and(ended.map_err(Error::Task));
                }
            }
        }
        outcome?;
        info!("relay stopped");
        Ok(())
    }

    /// Takes in and publishes what is there now, and returns what was done: for schedulers such as
    /// cron. An outbox that another relay reads is left to it.
    ///
    /// # Errors
    /// At the first fault of PostgreSQL or NATS. What was accepted before stays accepted.
    pub async fn run_once(self) -> Result<Once, Error> {
        let parts = self.parts;
        let mut done = Once::default();
        routes::once(&parts).await?;
        for source in parts.sources() {
            let names = match outbox::once(&parts, &source).await? {
                true => &mut done.read,
                false => &mut done.led_elsewhere,
            };
            names.push(source.name);
        }
        if parts.config.intake.enabled {
            intake::once(&parts).await?;
        }
        again::once(&parts).await?;
        done.counted = parts.handle.counted();
        Ok(done)
    }
}

async fn overdue(cut: Option<tokio::time::Instant>) {
    match cut {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
