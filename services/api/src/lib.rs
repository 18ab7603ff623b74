//! The REST API: what the ledger knows and the lanes do, over HTTP.
//!
//! Owns HTTP: routes, bodies and their limits, keys and their scopes, the OpenAPI document, and
//! the group commit of messages that come in ([`intake`]). Does not own a rule or a statement:
//! those are `hooklane-store`'s and `hooklane-core`'s, and the command line goes through the same.
//!
//! A request passes, from outside in: its id (`request_id`), panics as answers, the bound of its time
//! while the ledger can't be reached (`patience`), the key and its scope (`auth`), then its handler
//! (`routes`). Whatever refuses it answers with a problem.

mod auth;
mod config;
mod extract;
pub mod intake;
mod json;
mod openapi;
mod page;
mod patience;
mod problem;
mod request_id;
mod routes;
mod scope;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hooklane_core::error::ErrorCode;
use hooklane_core::rules::address::Policy;
use hooklane_core::secrets::MasterKeys;
use hooklane_nats::Client;
use hooklane_store::Store;
use hooklane_store::api_key;
use hooklane_store::dead_letter::Terms;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use config::Config;

/// How often the ledger hears which keys were used.
const NOTE_USE: Duration = Duration::from_secs(60);

/// What stops the API. A fault of PostgreSQL or NATS doesn't: requests are refused until it passes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address can't be listened at.
    #[error("the API can't be served at {address} ({source}); set api.listen to a free address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A task that commits messages panicked.
    #[error("a task of the API ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Error {
    /// What kind of fault it is.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Listen { .. } => ErrorCode::Config,
            Self::Task(_) => ErrorCode::Internal,
        }
    }
}

/// What the API works with.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The ledger.
    pub store: Store,
    /// The broker.
    pub client: Client,
    /// Seals and opens endpoint secrets.
    pub keys: Arc<MasterKeys>,
    /// Where endpoints may be.
    pub addresses: Policy,
    /// What holds for a series that a replay opens.
    pub terms: Terms,
}

/// What handlers share.
#[derive(Debug, Clone)]
pub(crate) struct Api(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    parts: Parts,
    known: auth::Known,
    committer: intake::Committer,
    types: intake::Types,
    bodies: Semaphore,
    reach: patience::Reach,
}

impl Api {
    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.parts.store
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.parts.client
    }

    pub(crate) fn keys(&self) -> &MasterKeys {
        &self.0.parts.keys
    }

    pub(crate) fn addresses(&self) -> &Policy {
        &self.0.parts.addresses
    }

    pub(crate) fn terms(&self) -> Terms {
        self.0.parts.terms
    }

    pub(crate) fn known_keys(&self) -> &auth::Known {
        &self.0.known
    }

    pub(crate) fn committer(&self) -> &intake::Committer {
        &self.0.committer
    }

    /// What bodies that come in share: a permit for each piece of memory.
    pub(crate) fn bodies(&self) -> &Semaphore {
        &self.0.bodies
    }

    /// Whether the ledger can be reached.
    pub(crate) fn reach(&self) -> &patience::Reach {
        &self.0.reach
    }

    pub(crate) fn types(&self) -> &intake::Types {
        &self.0.types
    }
}

/// Serves the API until it is told to stop.
#[derive(Debug)]
pub struct Service {
    api: Api,
    listener: TcpListener,
    writers: intake::Writers,
}

impl Service {
    /// Takes the address; nothing is answered before [`Service::run`].
    ///
    /// # Errors
    /// [`Error::Listen`] where the address is taken or not ours to have.
    pub async fn bind(config: Config, parts: Parts) -> Result<Self, Error> {
        let address = config.listen;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| Error::Listen { address, source })?;
        let (committer, writers) = intake::Committer::new(
            &config.intake,
            config.deliver_within,
            &parts.store,
            &parts.client,
        );
        let types = intake::Types::new(&parts.store);
        let bodies = Semaphore::new(config.body_bytes as usize / extract::PIECE);
        let shared = Shared {
            config,
            parts,
            known: auth::Known::default(),
            committer,
            types,
            bodies,
            reach: patience::Reach::default(),
        };
        Ok(Self {
            api: Api(Arc::new(shared)),
            listener,
            writers,
        })
    }

    /// The address that is listened at.
    ///
    /// # Errors
    /// As the system says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs until `shutdown`. Then requests that are open are answered, within a few seconds.
    ///
    /// # Errors
    /// [`Error::Task`] where a task panicked.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self {
            api,
            listener,
            writers,
        } = self;
        info!(address = %api.config().listen, "API starts");
        let router = routes::router(api.clone());
        // Writers end after the last request, and requests where the writers can't go on.
        let (stop, unused) = (shutdown.child_token(), CancellationToken::new());
        let noting = tokio::spawn(note_use(api.clone(), stop.clone()));
        let write = async {
            let ended = writers.run(unused.clone()).await;
            stop.cancel();
            ended
        };
        let serve = async {
            server::serve(listener, router, api.config(), stop.clone()).await;
            unused.cancel();
        };
        let (ended, ()) = tokio::join!(write, serve);
        if let Err(error) = noting.await {
            warn!(%error, "noting the use of keys ended early");
        }
        ended?;
        info!("API stopped");
        Ok(())
    }
}

/// The document of all routes, as JSON.
#[must_use]
pub fn openapi() -> String {
    routes::document().to_pretty_json().unwrap_or_default()
}

/// Writes down now and then which keys were used.
async fn note_use(api: Api, shutdown: CancellationToken) {
    loop {
        let tick = tokio::time::sleep(NOTE_USE);
        let going_on = shutdown.run_until_cancelled(tick).await.is_some();
        let used = api.known_keys().take_used();
        if let Err(error) = api_key::touch(api.store(), &used).await {
            warn!(%error, "the use of keys could not be noted");
        }
        if !going_on {
            return;
        }
    }
}
