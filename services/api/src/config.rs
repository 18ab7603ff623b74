//! The `[api]` section.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hooklane_core::config::Faults;
use serde::{Deserialize, Serialize};

use crate::intake;

/// How the API is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether `hooklane up` serves it; `hooklane api` does in any case.
    pub enabled: bool,
    /// Where it listens. It speaks plain HTTP: beyond a private network, put a proxy with TLS in
    /// front.
    pub listen: SocketAddr,
    /// Connections open at a time, 1 to 100,000; more wait.
    pub max_connections: u32,
    /// How long a request's head may take, and a connection may be idle, 1 s to 5 minutes.
    #[serde(with = "humantime_serde")]
    pub head_within: Duration,
    /// How long a request's body may take, and an answer may wait for its client to read on, 1 s to 5
    /// minutes.
    #[serde(with = "humantime_serde")]
    pub body_within: Duration,
    /// Bytes of bodies that may be coming in at a time, 8 MiB to 2 GiB; more are refused.
    pub body_bytes: u32,
    /// Requests a second of a key that has no limit of its own, 1 to 10,000; none is no limit.
    pub rate_limit: Option<u32>,
    /// How long a key counts as valid once it was looked up, 0 s to 1 minute: what a revocation may
    /// take.
    #[serde(with = "humantime_serde")]
    pub keys_for: Duration,
    /// How messages that come in are committed.
    pub intake: intake::Config,
    /// How long the old secret of an endpoint signs along after a rotation that names no time.
    #[serde(skip)]
    pub rotation_grace: Duration,
    /// How long a delivery may be attempted, from the retry schedule.
    #[serde(skip)]
    pub deliver_within: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            enabled: true,
            listen: (Ipv4Addr::LOCALHOST, 8400).into(),
            max_connections: 1_024,
            head_within: seconds(15),
            body_within: seconds(15),
            body_bytes: 256 << 20,
            rate_limit: None,
            keys_for: seconds(5),
            intake: intake::Config::default(),
            rotation_grace: seconds(24 * 60 * 60),
            deliver_within: seconds(48 * 60 * 60),
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let seconds = Duration::from_secs;
        faults.range("max_connections", self.max_connections, 1..=100_000);
        faults.duration("head_within", self.head_within, seconds(1)..=seconds(300));
        faults.duration("body_within", self.body_within, seconds(1)..=seconds(300));
        faults.range("body_bytes", self.body_bytes, 8 << 20..=2 << 30);
        faults.duration("keys_for", self.keys_for, Duration::ZERO..=seconds(60));
        faults.within("intake", |faults| self.intake.validate(faults));
        if let Some(rate) = self.rate_limit {
            faults.range("rate_limit", rate, 1..=10_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_have_no_faults_and_nonsense_has_many() {
        let mut faults = Faults::new();
        Config::default().validate(&mut faults);
        assert!(faults.is_empty(), "{faults}");
        let config = Config {
            max_connections: 0,
            head_within: Duration::ZERO,
            body_within: Duration::ZERO,
            body_bytes: 1 << 20,
            rate_limit: Some(0),
            ..Config::default()
        };
        config.validate(&mut faults);
        assert_eq!(faults.found().len(), 5, "{faults}");
    }
}
