//! The process's HTTP client, and whether a request went out on a new connection.
//!
//! A kept connection may be closed by the receiver at the very moment it is used again. Such a
//! request is sent once more, and then on a connection of its own: hence two clients that differ
//! only in whether they keep connections.

use std::cell::Cell;
use std::path::PathBuf;

use hooklane_core::rules::address::Policy;
use tower::util::MapResultLayer;

use super::resolver::Guarded;
use crate::config::Config;

tokio::task_local! {
    /// Whether the request of this task has opened a connection.
    static CONNECTED: Cell<bool>;
}

/// The process's HTTP client.
#[derive(Debug)]
pub(crate) struct Client {
    kept: reqwest::Client,
    fresh: reqwest::Client,
}

/// What became of a request.
pub(super) struct Sent {
    pub(super) result: reqwest::Result<reqwest::Response>,
    /// It used a connection that was open before.
    pub(super) reused: bool,
}

impl Client {
    /// Sends a request on a kept connection where there is one.
    pub(super) async fn send(&self, request: reqwest::Request) -> Sent {
        let sending = async {
            let result = self.kept.execute(request).await;
            let reused = !CONNECTED.with(Cell::get);
            Sent { result, reused }
        };
        CONNECTED.scope(Cell::new(false), sending).await
    }

    /// Sends a request on a connection of its own.
    pub(super) async fn send_fresh(
        &self,
        request: reqwest::Request,
    ) -> reqwest::Result<reqwest::Response> {
        self.fresh.execute(request).await
    }
}

/// Runs where the connector does: in the task of the request, or in one of its own when a kept
/// connection came free first.
fn note<T, E>(connected: Result<T, E>) -> Result<T, E> {
    if connected.is_ok() {
        // An `Err` says that no request of a task has opened it.
        let _ = CONNECTED.try_with(|flag| flag.set(true));
    }
    connected
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The file can't be read.
    #[error("the root certificates in {path} can't be read: {source}")]
    Roots {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file holds no certificates, or TLS can't be set up.
    #[error("the HTTP client can't be set up: {0}")]
    Client(#[from] reqwest::Error),
    /// The name servers can't be used.
    #[error("the resolver can't be set up: {0}")]
    Resolver(#[from] super::resolver::SetUpError),
}

/// Builds the client: no redirects, no proxy, nothing decoded, HTTP/1.1 and HTTP/2 over ALPN, and
/// a guard between it and every address.
pub(crate) fn build(config: &Config, addresses: &Policy) -> Result<Client, BuildError> {
    hooklane_core::tls::install_provider();
    let resolver = Guarded::new(&config.dns, addresses.clone())?;
    let roots = match &config.http.extra_roots {
        None => Vec::new(),
        Some(path) => {
            let pem = std::fs::read(path).map_err(|source| BuildError::Roots {
                path: path.clone(),
                source,
            })?;
            reqwest::Certificate::from_pem_bundle(&pem)?
        }
    };
    let common = || {
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(config.http.connect_timeout)
            .tcp_nodelay(true)
            .dns_resolver(resolver.clone());
        match roots.is_empty() {
            true => builder,
            false => builder.tls_certs_merge(roots.clone()),
        }
    };
    let kept = common()
        .pool_idle_timeout(config.http.idle_timeout)
        .pool_max_idle_per_host(config.http.max_idle_per_host)
        .connector_layer(MapResultLayer::new(note));
    let fresh = common().pool_max_idle_per_host(0);
    Ok(Client {
        kept: kept.build()?,
        fresh: fresh.build()?,
    })
}
