//! Values that must not be seen: in logs, in `Debug`, in `dump-config`.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is shown instead of a secret.
pub const REDACTED: &str = "<redacted>";

/// A secret value of the configuration.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Takes a secret.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text.into())
    }

    /// The value, for its use alone.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(REDACTED)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self::new)
    }
}

/// A service's address, which may carry a password: shown without it.
#[derive(Clone)]
pub struct ConnectionUrl(SecretString);

impl ConnectionUrl {
    /// Takes an address, or several with commas between them.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// The address with its password, for connecting alone.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The address without its password or token.
    #[must_use]
    pub fn redacted(&self) -> String {
        let text = self.expose();
        let pieces: Vec<&str> = text.split(',').collect();
        if pieces.iter().all(|piece| piece.contains("://")) {
            let shown: Vec<String> = pieces.into_iter().map(redact).collect();
            shown.join(",")
        } else {
            redact(text)
        }
    }
}

/// Hides too much rather than too little: everything up to the last `@` belongs to the user.
fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.trim().split_once("://") else {
        return REDACTED.to_owned();
    };
    let rest = match rest.rsplit_once('@') {
        None => rest.to_owned(),
        Some((user, host)) => {
            let user = match user.split_once(':') {
                Some((name, _)) => format!("{name}:{REDACTED}"),
                // A lone word before the host is a user to PostgreSQL and a token to NATS.
                None if scheme.starts_with("postgres") => user.to_owned(),
                None => REDACTED.to_owned(),
            };
            format!("{user}@{host}")
        }
    };
    let shown = match rest.split_once('?') {
        // PostgreSQL's query holds options that help to tell connections apart; everybody else's
        // may hold a token under any name.
        Some((address, query))
            if !scheme.starts_with("postgres")
                || query.to_ascii_lowercase().contains("password") =>
        {
            format!("{address}?{REDACTED}")
        }
        _ => rest,
    };
    format!("{scheme}://{shown}")
}

impl fmt::Debug for ConnectionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl fmt::Display for ConnectionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl Serialize for ConnectionUrl {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.redacted())
    }
}

impl<'de> Deserialize<'de> for ConnectionUrl {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (given, shown) in [
            ("postgres://u@h:5432/db", "postgres://u@h:5432/db"),
            ("postgres://u:canary@h/db", "postgres://u:<redacted>@h/db"),
            ("postgres://u:can@ary@h/db", "postgres://u:<redacted>@h/db"),
            (
                "postgres://h/db?user=u&password=canary",
                "postgres://h/db?<redacted>",
            ),
            ("nats://canary@h:4222", "nats://<redacted>@h:4222"),
            (
                "nats://a:1,nats://u:canary@b:2",
                "nats://a:1,nats://u:<redacted>@b:2",
            ),
            (
                "https://user:canary@otel.example/v1?token=canary",
                "https://user:<redacted>@otel.example/v1?<redacted>",
            ),
            (
                "postgres://h/db?sslmode=require",
                "postgres://h/db?sslmode=require",
            ),
            ("canary", "<redacted>"),
        ] {
            let url = ConnectionUrl::new(given);
            assert_eq!(url.redacted(), shown);
            assert!(!format!("{url:?} {url}").contains("canary"));
        }
    }

    #[test]
    fn a_secret_shows_nothing() {
        let secret: Secret = serde_json::from_str("\"canary\"").unwrap();
        assert_eq!(secret.expose(), "canary");
        assert_eq!(format!("{secret:?}"), REDACTED);
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"<redacted>\"");
    }
}
