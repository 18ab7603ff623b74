//! The `[nats]` section: where the servers are and how large the streams may grow.
//!
//! Owns the shape, the defaults and the checks; reading files and the environment is the binary's.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How to reach NATS, and what to make there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Servers, comma-separated: `nats://host:4222`, or `tls://` where TLS is required. A user and
    /// password (or a token as user) may be in the first; they show nowhere. Also `NATS_URL`.
    pub url: Servers,
    /// A `.creds` file, as `nsc` writes it.
    pub credentials_file: Option<PathBuf>,
    /// Root certificates in PEM, instead of the system's.
    pub root_certificates: Option<PathBuf>,
    /// How long to try at start before giving up, such as `10s`. Later it reconnects for ever.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// Copies of each stream, 1 to 5: 1 on a single server, 3 in a cluster.
    pub replicas: u8,
    /// Partitions, 1 to 256. Changing it means: stop, delete the streams `EVENTS` and
    /// `DELIVERIES`, start; the ledger drives everything again.
    pub partitions: u16,
    /// Size limit of every stream, in percent of its definition (2,400 MiB together at 100).
    pub stream_size_percent: u32,
    /// The ledger whose streams they are. Not a key of this section: the caller asks its ledger.
    /// With none, streams are taken whosever they are.
    #[serde(skip)]
    pub ledger: Option<Uuid>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: Servers::default(),
            credentials_file: None,
            root_certificates: None,
            connect_timeout: Duration::from_secs(10),
            replicas: 1,
            partitions: 16,
            stream_size_percent: 100,
            ledger: None,
        }
    }
}

/// A value that can't be used, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key within `[nats]`.
    pub key: &'static str,
    /// What is wrong with its value.
    pub problem: String,
    /// What would be right.
    pub fix: &'static str,
}

impl Config {
    /// Every value that can't be used; empty where all can.
    #[must_use]
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |key, problem: String, fix| problems.push(Problem { key, problem, fix });
        if let Err(reason) = self.url.addresses() {
            refuse(
                "url",
                reason,
                "give nats://host:4222, or several with commas between them",
            );
        }
        if !(1..=5).contains(&self.replicas) {
            refuse(
                "replicas",
                format!("{} copies", self.replicas),
                "give 1 on a single server, 3 in a cluster",
            );
        }
        if !(1..=256).contains(&self.partitions) {
            refuse(
                "partitions",
                format!("{} partitions", self.partitions),
                "give 1 to 256",
            );
        }
        if !(1..=100_000).contains(&self.stream_size_percent) {
            refuse(
                "stream_size_percent",
                format!("{} percent", self.stream_size_percent),
                "give 1 to 100000; 100 is the definitions' own size",
            );
        }
        if self.connect_timeout.is_zero() {
            refuse(
                "connect_timeout",
                "no time at all".to_owned(),
                "give a duration such as 10s",
            );
        }
        problems
    }
}

/// A list of server URLs. Formats, serializes and logs without its credentials.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Servers(String);

/// What the first URL's user part says.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    None,
    Token(String),
    User(String, String),
}

impl Servers {
    /// Takes the text; [`Config::check`] says whether it can be used.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole text with its credentials: for handing it to another program, never for logs.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The addresses without user parts, and the credentials of the first that has some.
    pub(crate) fn addresses(&self) -> Result<(Vec<async_nats::ServerAddr>, Credentials), String> {
        let mut addresses = Vec::new();
        let mut credentials = Credentials::None;
        for text in self.parts() {
            let refused = |why: &dyn fmt::Display| format!("`{}`: {why}", shown(text));
            let parsed: async_nats::ServerAddr = text
                .parse()
                .map_err(|error: std::io::Error| refused(&error))?;
            let mut url = parsed.into_inner();
            if !url.username().is_empty() && credentials == Credentials::None {
                let decode = |part: &str| percent_decoded(part);
                let user = decode(url.username());
                credentials = match url.password() {
                    Some(password) => Credentials::User(user, decode(password)),
                    None => Credentials::Token(user),
                };
            }
            let stripped = url.set_username("").and_then(|()| url.set_password(None));
            if stripped.is_err() || url.host_str().is_none_or(str::is_empty) {
                return Err(refused(&"there is no host in it"));
            }
            addresses.push(async_nats::ServerAddr::from_url(url).map_err(|error| refused(&error))?);
        }
        if addresses.is_empty() {
            return Err("there is no server in it".to_owned());
        }
        Ok((addresses, credentials))
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.0
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
    }
}

/// One URL without its user part, whatever else is wrong with it.
fn shown(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or(("", url), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if scheme.is_empty() {
        rest.to_owned()
    } else {
        format!("{scheme}://{rest}")
    }
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match hex {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Default for Servers {
    fn default() -> Self {
        Self::new("nats://127.0.0.1:4222")
    }
}

impl From<String> for Servers {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Servers {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in self.parts().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            f.write_str(&shown(part))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for Servers {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_show_nowhere() {
        let config = Config {
            url: "nats://ann:c4n%40ry@one:4222, tls://canary@two,c4n:ry@three".into(),
            ..Config::default()
        };
        let seen = format!(
            "{config:?} {} {:?}",
            config.url,
            serde_json::to_string(&config)
        );
        assert!(
            !seen.contains("c4n") && !seen.contains("canary") && !seen.contains("ann"),
            "{seen}"
        );
        assert!(seen.contains("nats://one:4222,tls://two,three"), "{seen}");
        let (addresses, credentials) = config.url.addresses().unwrap();
        assert!(!format!("{addresses:?}").contains("c4n"));
        assert!(credentials == Credentials::User("ann".into(), "c4n@ry".into()));
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let config = Config {
            url: "http://user:canary@x".into(),
            replicas: 0,
            partitions: 0,
            stream_size_percent: 0,
            connect_timeout: Duration::ZERO,
            ..Config::default()
        };
        let problems = config.check();
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(!format!("{problems:?}").contains("canary"));
        assert!(Config::default().check().is_empty());
    }

    #[test]
    fn a_config_without_keys_is_the_default() {
        assert_eq!(
            serde_json::from_str::<Config>("{}").unwrap(),
            Config::default()
        );
        assert!(serde_json::from_str::<Config>(r#"{"urll":""}"#).is_err());
    }
}
