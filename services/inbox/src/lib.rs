//! The inbox: partners' webhooks, received once, verified, and handed on in a legal order.
//!
//! Owns the way of a partner's event from its request to the adopter:
//! - `server` and `receive`: HTTP, limits, the signature, and the commit that many requests share;
//! - [`source`], `verify` and `read`: what a partner's block of configuration means; pure;
//! - `worker`: decides in the ledger what becomes part of an entity's history, waits or is set aside;
//! - `handoff`: to the adopter, by the stream `INBOX` or by asking its handlers.
//!
//! Does not own the rule of transitions (`hooklane-core`) nor a statement (`hooklane-store`). Several
//! inboxes may run at once: they take different events, one of them publishes, and what is lost with a
//! process is still in the ledger.

mod bells;
mod clock;
mod config;
mod handoff;
mod pace;
mod read;
mod receive;
mod server;
pub mod source;
mod sources;
mod stats;
mod verify;
mod worker;

use std::net::SocketAddr;
use std::time::Duration;

use hooklane_core::config::Faults;
use hooklane_core::error::ErrorCode;
use hooklane_core::pace::pause;
use hooklane_nats::Client;
use hooklane_store::Store;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use bells::Bells;
pub use clock::Clock;
pub use config::{Commit, Config, HandOff, Worker};
use handoff::request::Requests;
use handoff::{exhausted, lead};
use pace::Pace;
use receive::{Committer, Receiver, Rejects};
pub use sources::Sources;
pub use stats::{Handle, Stats};

/// What a message takes in `INBOX` beside its body, at the most.
const HEADERS: usize = 8 << 10;

/// What stops an inbox. Faults of PostgreSQL and NATS don't: partners are told to send again, and the
/// rest waits for them to pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Sources can't be used.
    #[error("{0}")]
    Sources(Faults),
    /// The address can't be listened at.
    #[error(
        "the inbox can't be served at {address} ({source}); set inbox.listen to a free address"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The HTTP client of handlers and certificates can't be set up.
    #[error("the inbox's HTTP client can't be set up: {0}")]
    Client(reqwest::Error),
    /// One of its tasks panicked.
    #[error("a task of the inbox ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Error {
    /// What kind of fault it is.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Sources(_) | Self::Listen { .. } => ErrorCode::Config,
            Self::Client(_) | Self::Task(_) => ErrorCode::Internal,
        }
    }
}

/// What the tasks share.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) sources: Sources,
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) handle: Handle,
    pub(crate) bells: Bells,
}

/// Receives and hands on until it is told to stop.
#[derive(Debug)]
pub struct Service {
    parts: Parts,
    listener: TcpListener,
}

impl Service {
    /// Reads the sources and takes the address; nothing is answered before [`Service::run`].
    ///
    /// # Errors
    /// [`Error::Sources`] where one of them can't be used, [`Error::Listen`] where the address is taken
    /// or not ours to have.
    pub async fn bind(config: Config, store: Store, client: Client) -> Result<Self, Error> {
        let mut faults = Faults::new();
        let mut sources = Sources::default();
        faults.within("inbox.sources", |faults| {
            sources = Sources::compile(&config.sources, faults);
        });
        faults.into_result().map_err(Error::Sources)?;
        warn_of(&sources, &client);
        let address = config.listen;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| Error::Listen { address, source })?;
        let bells = Bells::of(&sources);
        let parts = Parts {
            config,
            sources,
            store,
            client,
            clock: Clock::default(),
            handle: Handle::default(),
            bells,
        };
        Ok(Self { parts, listener })
    }

    /// The same by another clock than the wall's.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.parts.clock = clock;
        self
    }

    /// The address that is listened at.
    ///
    /// # Errors
    /// As the system says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle that tells what it has done.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.parts.handle.clone()
    }

    /// Runs until `shutdown`. Then requests that are open are answered and those to handlers finished,
    /// within a few seconds.
    ///
    /// # Errors
    /// [`Error::Task`] where one of its tasks panicked, [`Error::Client`] where its HTTP client can't be
    /// set up.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { parts, listener } = self;
        info!(address = %parts.config.listen, sources = parts.sources.iter().count(), "inbox starts");
        let term = shutdown.child_token();
        let mut tasks = JoinSet::new();
        for requests in Requests::all(&parts)? {
            tasks.spawn(requests.run(term.clone()));
        }
        serve(&parts, listener, &mut tasks, &term)?;
        let aligned = CancellationToken::new();
        tasks.spawn(align(parts.clone(), aligned.clone(), term.clone()));
        tasks.spawn(lead::run(parts.clone(), term.clone()));
        tasks.spawn(exhausted::run(parts.clone(), term.clone()));
        for _ in 0..parts.config.worker.at_once {
            let (parts, aligned, term) = (parts.clone(), aligned.clone(), term.clone());
            tasks.spawn(async move {
                // What is decided from here on must not be published before what was decided earlier.
                tokio::select! {
                    biased;
                    () = term.cancelled() => return,
                    () = aligned.cancelled() => {}
                }
                worker::run(parts, term).await;
            });
        }
        let mut outcome = Ok(());
        while let Some(ended) = tasks.join_next().await {
            // They end at shutdown or by a panic, and one that ends takes the others along.
            term.cancel();
            outcome = outcome.and(ended.map_err(Error::Task));
        }
        outcome?;
        info!("inbox stopped");
        Ok(())
    }
}

/// Starts the server, and behind it the writers, which end after the last request.
fn serve(
    parts: &Parts,
    listener: TcpListener,
    tasks: &mut JoinSet<()>,
    term: &CancellationToken,
) -> Result<(), Error> {
    let Parts {
        config,
        sources,
        store,
        client: _,
        clock,
        handle,
        bells,
    } = parts.clone();
    let (committer, writers) = Committer::new(&config.commit, &store, &clock, &bells.arrived);
    let (rejects, keeper) = Rejects::new(config.rejects_kept, &store, &clock, &handle);
    let receiver = Receiver::new(config, sources, committer, rejects, clock, handle);
    let receiver = receiver.map_err(Error::Client)?;
    let unused = CancellationToken::new();
    writers.start(tasks, &unused);
    tasks.spawn(keeper.run(unused.clone()));
    let term = term.clone();
    tasks.spawn(async move {
        let _after_the_last_request = unused.drop_guard();
        server::serve(listener, receiver, term).await;
    });
    Ok(())
}

/// How often what waits is looked at for being handed on as its source names now.
const ALIGN_EVERY: Duration = Duration::from_secs(60);

/// Sends what waits to be handed on the way that its source names now, and says when that is `aligned`.
/// From then on again and again until `term`: a process of another configuration may still decide.
async fn align(parts: Parts, aligned: CancellationToken, term: CancellationToken) {
    let modes = parts.sources.modes();
    let mut pace = Pace::new();
    loop {
        let wait = match parts.store.inbox_align(parts.clock.now(), &modes).await {
            Ok(moved) => {
                pace.good();
                if moved > 0 {
                    info!(events = moved, "events go another way than before");
                    parts.bells.arrived.notify_one();
                    parts.bells.publish.notify_one();
                    parts.bells.ring_handlers();
                }
                aligned.cancel();
                ALIGN_EVERY
            }
            Err(fault) => pace.bad("looking for sources that hand on otherwise now", &fault),
        };
        if !pause(wait, &term).await {
            return;
        }
    }
}

/// Says what is wrong with sources, and does not keep them from working.
fn warn_of(sources: &Sources, client: &Client) {
    for (partner, source) in sources.iter() {
        for warning in source.warnings() {
            warn!(source = %partner, "{warning}");
        }
        let (largest, limit) = (source.max_body() + HEADERS, client.max_payload());
        if largest > limit && !matches!(source.hand_off().mode, source::Mode::Sql) {
            warn!(
                source = %partner,
                max_body = source.max_body(),
                limit,
                "bodies may be larger than nats-server takes, and could not be handed on: raise its \
                 max_payload, or lower max_body"
            );
        }
    }
}
