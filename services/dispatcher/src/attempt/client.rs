//! The process's one HTTP client.

use std::path::PathBuf;

use crate::config::Config;
use hooklane_core::rules::address::Policy;

use super::resolver::Guarded;

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
pub(crate) fn build(config: &Config, addresses: &Policy) -> Result<reqwest::Client, BuildError> {
    hooklane_core::tls::install_provider();
    let resolver = Guarded::new(&config.dns, addresses.clone())?;
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(config.http.connect_timeout)
        .pool_idle_timeout(config.http.idle_timeout)
        .pool_max_idle_per_host(config.http.max_idle_per_host)
        .tcp_nodelay(true)
        .dns_resolver(resolver);
    if let Some(path) = &config.http.extra_roots {
        let pem = std::fs::read(path).map_err(|source| BuildError::Roots {
            path: path.clone(),
            source,
        })?;
        builder = builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(&pem)?);
    }
    Ok(builder.build()?)
}
