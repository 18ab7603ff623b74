//! How to reach the ledger's database, and for how long to wait for it.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

/// The ledger's database.
///
/// The URL carries a password, so it is a secret: neither `Debug` nor an error shows it.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`; `DATABASE_URL` sets it too. There
    /// is no default.
    pub url: Option<SecretString>,
    /// Most connections one process opens, 2 to 500. A leader of something holds one for itself
    /// besides.
    pub max_connections: u32,
    /// How long to wait for a connection, a new one or one of the pool.
    #[serde(with = "humantime_serde")]
    pub acquire_timeout: Duration,
    /// How long one statement may run before the server cuts it off.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
    /// How long a transaction may sit idle before the server ends it: a suspended process must
    /// not hold row locks for ever.
    #[serde(with = "humantime_serde")]
    pub idle_in_transaction_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: None,
            max_connections: 16,
            acquire_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            idle_in_transaction_timeout: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// The defaults with this URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Some(SecretString::from(url.into())),
            ..Self::default()
        }
    }

    /// The URL's text, empty where none is set.
    pub(crate) fn url_text(&self) -> &str {
        self.url.as_ref().map_or("", |url| url.expose_secret())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_never_shows_the_url() {
        let config = Config::new("postgres://user:canary@host/db");
        assert!(!format!("{config:?}").contains("canary"));
    }
}
