//! How to reach the ledger's database, and for how long to wait for it.

use std::borrow::Cow;
use std::str::FromStr as _;
use std::time::Duration;

use hooklane_core::config::{ConnectionUrl, Faults};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;

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
        match self.url.as_ref().map(ConnectionUrl::expose) {
            None => faults.add(
                "url",
                "is not set",
                "set it or DATABASE_URL to postgres://user:password@host:port/database",
            ),
            Some(text) => {
                if let Some((problem, fix)) = address_fault(text) {
                    faults.add("url", problem, fix);
                }
            }
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

/// The forms that `sslmode` takes.
const SSL_MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// What is wrong with a database's address, and the fix; without quoting it, since it may hold a
/// password.
pub(crate) fn address_fault(text: &str) -> Option<(String, String)> {
    const FORM: &str = "postgres://user:password@host:port/database";
    let known = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    if !known {
        return Some((
            "is not a PostgreSQL address".to_owned(),
            format!("give {FORM}"),
        ));
    }
    let url = match url::Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            return Some((
                format!("can't be read ({error})"),
                format!("give {FORM}, with special characters of the password percent-encoded"),
            ));
        }
    };
    let ssl_mode = |(key, value): (Cow<'_, str>, Cow<'_, str>)| {
        matches!(&*key, "sslmode" | "ssl-mode") && !SSL_MODES.contains(&&*value.to_lowercase())
    };
    if url.query_pairs().any(ssl_mode) {
        return Some((
            "has an `sslmode` that there is not".to_owned(),
            format!("give one of {}", SSL_MODES.join(", ")),
        ));
    }
    PgConnectOptions::from_str(text).is_err().then(|| {
        (
            "has an option that can't be used".to_owned(),
            "correct what stands behind the `?`".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_never_shows_the_url() {
        let config = Config::new("postgres://user:canary@host/db");
        assert!(!format!("{config:?}").contains("canary"));
    }

    #[test]
    fn an_address_that_cant_be_used_is_a_fault_and_not_quoted() {
        for (address, told) in [
            ("mysql://u:canary@h/d", "not a PostgreSQL address"),
            ("postgres://u:canary@h:99999/d", "port"),
            ("postgres://u:can/ary@h/d", "can't be read"),
            ("postgres://u:canary@h/d?sslmode=canary", "verify-full"),
            ("postgres://u:canary@h/d?port=canary", "behind the `?`"),
        ] {
            let mut faults = Faults::new();
            Config::new(address).validate(&mut faults);
            let text = faults.to_string();
            assert_eq!(faults.found().len(), 1, "{address}: {text}");
            assert_eq!(faults.found()[0].key, "url");
            assert!(text.contains(told), "{address}: {text}");
            assert!(!text.contains("canary"), "{text}");
        }
        for address in [
            "postgres://h/d",
            "postgresql:///d?host=/run/postgresql",
            "postgres://u:p%2Fw@[::1]:5432/d?sslmode=Require&application_name=x",
        ] {
            let mut faults = Faults::new();
            Config::new(address).validate(&mut faults);
            assert!(faults.is_empty(), "{address}: {faults}");
        }
    }
}
