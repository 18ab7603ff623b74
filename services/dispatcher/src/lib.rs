//! The dispatcher: fan-out actors and their lanes, which sign and POST.
//!
//! Owns everything between `EVENTS` and `RECORDS`: partitions by lease, the copy for each
//! endpoint, one supervised lane an endpoint, attempts, the records of what happened. Does not own
//! the ledger (it never speaks to PostgreSQL), when a stalled delivery is driven again (the
//! scheduler's), or an endpoint's health (the recorder's).

mod attempt;
mod budget;
pub mod config;
mod drain;
mod fanout;
mod grip;
mod lane;
mod memory;
mod ownership;
mod partition;
mod pull;
mod records;
mod room;
mod routes;
mod timebase;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hooklane_core::error::ErrorCode;
use hooklane_core::rules::address::Policy;
use hooklane_core::rules::schedule::Schedule;
use hooklane_core::secrets::MasterKeys;
use hooklane_nats::{Client, Publisher, Routes, inspect};
use hooklane_proto::subject;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{debug, info, warn};
use uuid::Uuid;

pub use attempt::BuildError;
pub use config::Config;

use attempt::{Engine, Opener};
use budget::Budget;
use partition::Process;
use routes::Table;
use timebase::Timebase;

/// Unacknowledged copies in the process, and their bytes.
const COPIES: (usize, usize) = (4_096, 16 << 20);
/// Unacknowledged record batches in the process, and their bytes.
const RECORDS: (usize, usize) = (256, 32 << 20);
/// How often the brake looks at `RECORDS`.
const BRAKE: Duration = Duration::from_secs(2);

/// Why the dispatcher can't run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no HTTP client.
    #[error(transparent)]
    Client(#[from] BuildError),
}

impl Error {
    /// What kind of fault it is.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Client(_) => ErrorCode::Config,
        }
    }
}

/// What the dispatcher shares with other services.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The connection to NATS, with streams and buckets in place.
    pub nats: Client,
    /// Opens endpoints' secrets.
    pub keys: Arc<MasterKeys>,
    /// Where attempts may go.
    pub addresses: Policy,
    /// When a failed delivery is attempted again.
    pub schedule: Schedule,
}

/// The dispatcher.
pub struct Service {
    process: Arc<Process>,
}

/// Looks at a running dispatcher. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    process: Arc<Process>,
}

impl Service {
    /// Prepares everything; nothing is asked of the broker yet. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// Where the HTTP client can't be built.
    pub fn new(config: Config, parts: Parts) -> Result<Self, Error> {
        let Parts {
            nats,
            keys,
            addresses,
            schedule,
        } = parts;
        let client = attempt::build_client(&config, &addresses)?;
        let engine = Engine::new(client, schedule, &config.http);
        let name = format!("{}-{}", std::process::id(), Uuid::now_v7().simple());
        let process = Process {
            name,
            engine: Arc::new(engine),
            opener: Opener::new(keys, addresses),
            budget: Budget::new(config.max_in_flight, config.max_held_bytes),
            table: Table::new(),
            copies: Publisher::new(&nats, COPIES.0, COPIES.1),
            records: Publisher::new(&nats, RECORDS.0, RECORDS.1),
            brake: watch::Sender::new(false),
            time: Timebase::start(),
            owned: Mutex::default(),
            memories: Mutex::default(),
            late: TaskTracker::new(),
            give_up: CancellationToken::new(),
            config: Arc::new(config),
            nats,
        };
        Ok(Self {
            process: Arc::new(process),
        })
    }

    /// A view of this dispatcher.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            process: Arc::clone(&self.process),
        }
    }

    /// Owns partitions and delivers until `shutdown`, then drains (see [`Config`] for how long).
    ///
    /// # Errors
    /// None now; what fails while it runs is repaired or logged.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let process = self.process;
        info!(name = %process.name, "dispatcher started");
        let table = process.table.clone();
        let routes = Routes::new(&process.nats);
        let _following = AbortOnDropHandle::new(tokio::spawn(table.clone().follow(routes)));
        let _braking = AbortOnDropHandle::new(tokio::spawn(brake(Arc::clone(&process))));
        // With no settings known every delivery would wait for them.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            () = table.current() => {}
        }
        ownership::run(Arc::clone(&process), shutdown).await;
        info!(name = %process.name, "dispatcher stopped");
        Ok(())
    }
}

/// Stops new work while the ledger is so far behind that `RECORDS` fills up.
async fn brake(process: Arc<Process>) {
    let limit = f64::from(process.config.brake_percent) / 100.0;
    let mut ticks = tokio::time::interval(BRAKE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let fill = match inspect::stream_state(&process.nats, subject::RECORDS).await {
            Ok(state) => state.fill(),
            Err(error) => {
                debug!(%error, "the fill of RECORDS is not known now");
                continue;
            }
        };
        let braked = fill >= limit;
        if process.brake.send_replace(braked) != braked {
            match braked {
                true => warn!(fill, "RECORDS is filling up, nothing new is started"),
                false => info!(fill, "RECORDS has room again"),
            }
        }
        process.budget.brake(braked);
    }
}

impl Handle {
    /// The partitions that this dispatcher owns.
    #[must_use]
    pub fn owned(&self) -> Vec<u16> {
        let owned = self
            .process
            .owned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        owned.iter().copied().collect()
    }

    /// Attempts in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.process.budget.in_flight()
    }

    /// Bytes of deliveries held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.process.budget.bytes()
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("name", &self.process.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("owned", &self.owned())
            .finish_non_exhaustive()
    }
}
