//! How to reach the ledger's database, and for how long to wait for it.

use std::time::Duration;

use hooklane_core::config::{ConnectionUrl, Faults};
use serde::{Deserialize, Serialize};

/// The ledger's database.
///
/// The URL carries a password: neither `Debug` nor an error shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`; `DATABASE_URL` sets it too. There
    /// is no default.
    pub url: Option<ConnectionUrl>,
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
            url: Some(ConnectionUrl::new(url)),
            ..Self::default()
        }
    }

    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let known = |url: &ConnectionUrl| {
            let text = url.expose();
            text.starts_with("postgres://") || text.starts_with("postgresql://")
        };
        match &self.url {
            None => faults.add(
                "url",
                "is not set",
                "set it or DATABASE_URL to postgres://user:password@host:port/database",
            ),
            Some(url) if !known(url) => faults.add(
                "url",
                "is not a PostgreSQL address",
                "give postgres://user:password@host:port/database",
            ),
            Some(_) => {}
        }
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        faults.range("max_connections", self.max_connections, 2..=500);
        faults.duration("acquire_timeout", self.acquire_timeout, second..=hour);
        faults.duration("statement_timeout", self.statement_timeout, second..=hour);
        faults.duration(
            "idle_in_transaction_timeout",
            self.idle_in_transaction_timeout,
            second..=hour,
        );
    }

    /// The URL's text, empty where none is set.
    pub(crate) fn url_text(&self) -> &str {
        self.url.as_ref().map_or("", ConnectionUrl::expose)
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
