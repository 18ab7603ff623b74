//! The `[dispatcher]` section: how much it holds, how long, and how it connects.
//!
//! Owns the shape, the defaults and the checks. What several services share (the broker, the
//! master keys, the retry schedule, the address policy) is given to the service beside it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hooklane_core::config::Faults;
use serde::{Deserialize, Serialize};

/// How the dispatcher works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long a delivery may be held before it is attempted or parked.
    #[serde(with = "humantime_serde")]
    pub horizon: Duration,
    /// How long after it was pulled a copy of an event is still good: one that the broker stores
    /// later is dropped by its reader.
    #[serde(with = "humantime_serde")]
    pub not_after: Duration,
    /// Attempts in flight in the process, over all endpoints.
    pub max_in_flight: u32,
    /// Bytes of deliveries held in the process, queued or in flight; counts what each occupies
    /// beside its payload.
    pub max_held_bytes: usize,
    /// Deliveries of one partition that are held or being recorded. Keep it below the pending
    /// limit of the `lanes-<p>` JetStream consumers.
    pub max_held_per_partition: u32,
    /// Deliveries that one lane may hold.
    pub max_held_per_lane: u32,
    /// A lane with nothing to do, as good as new, is evicted after this.
    #[serde(with = "humantime_serde")]
    pub evict_after: Duration,
    /// A lane with nothing to do is evicted after this, whatever it has learned.
    #[serde(with = "humantime_serde")]
    pub forget_after: Duration,
    /// How often the broker is told that a message is still in hand. Keep it below a third of the
    /// JetStream consumers' ack wait.
    #[serde(with = "humantime_serde")]
    pub progress_every: Duration,
    /// At shutdown, how long attempts in flight may go on before they are cut.
    #[serde(with = "humantime_serde")]
    pub drain_attempts: Duration,
    /// At shutdown, how long records may take to reach the broker afterwards.
    #[serde(with = "humantime_serde")]
    pub drain_records: Duration,
    /// Share of the `RECORDS` stream's size, in percent, from which on nothing new is started: the
    /// ledger is behind.
    pub brake_percent: u8,
    /// Opening connections and reading answers.
    pub http: Http,
    /// Resolving host names.
    pub dns: Dns,
    /// Restarting lanes that failed.
    pub restart: Restart,
    /// Owning partitions.
    pub lease: Lease,
    /// Publishing records.
    pub records: Records,
}

/// Opening connections and reading answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Time for resolving, connecting and the TLS handshake, within the endpoint's timeout.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// An idle connection is closed after this: below what common servers use (5 s), so that a
    /// request rarely meets a connection that is just being closed.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// Idle connections kept to one host.
    pub max_idle_per_host: usize,
    /// Bytes of an answer's body that are read and logged.
    pub max_body: usize,
    /// Bytes of an answer's headers that are logged.
    pub max_headers: usize,
    /// Root certificates in PEM that are trusted beside the system's.
    pub extra_roots: Option<PathBuf>,
}

/// Resolving host names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dns {
    /// Name servers; empty uses the system's.
    pub servers: Vec<SocketAddr>,
    /// Time for one look-up. Keep it below `http.connect_timeout`.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Look-ups remembered.
    pub cache_size: u64,
    /// An answer is remembered at least this long, whatever its own time to live.
    #[serde(with = "humantime_serde")]
    pub min_ttl: Duration,
    /// An answer is remembered at most this long.
    #[serde(with = "humantime_serde")]
    pub max_ttl: Duration,
    /// Addresses of one name that are tried.
    pub max_addresses: usize,
}

/// Restarting lanes that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// Restarts of one lane within `within`; one failure more keeps it down for `down`.
    pub max: u32,
    /// The time over which restarts are counted.
    #[serde(with = "humantime_serde")]
    pub within: Duration,
    /// How long a lane stays down; its deliveries are parked meanwhile.
    #[serde(with = "humantime_serde")]
    pub down: Duration,
}

/// Owning partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lease {
    /// How long the bucket keeps a lease that is not renewed; the bucket's own setting.
    #[serde(with = "humantime_serde")]
    pub max_age: Duration,
    /// How often a lease is renewed. The owner stops by itself at two thirds of `max_age`.
    #[serde(with = "humantime_serde")]
    pub renew_every: Duration,
    /// How often free partitions are looked for and the sharing out is checked.
    #[serde(with = "humantime_serde")]
    pub balance_every: Duration,
}

/// Publishing records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Records {
    /// Batches of one partition that are being published at a time.
    pub in_flight: usize,
    /// While a batch is on its way, the next one is filled for this long.
    #[serde(with = "humantime_serde")]
    pub linger: Duration,
    /// Settled drives of one partition that are remembered, to acknowledge them again when the
    /// broker delivers them again.
    pub remember: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            horizon: Duration::from_secs(10),
            not_after: Duration::from_secs(20),
            max_in_flight: 512,
            max_held_bytes: 64 << 20,
            max_held_per_partition: 16_384,
            max_held_per_lane: 16_384,
            evict_after: Duration::from_secs(30),
            forget_after: Duration::from_secs(600),
            progress_every: Duration::from_secs(3),
            drain_attempts: Duration::from_secs(15),
            drain_records: Duration::from_secs(4),
            brake_percent: 80,
            http: Http::default(),
            dns: Dns::default(),
            restart: Restart::default(),
            lease: Lease::default(),
            records: Records::default(),
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(4),
            max_idle_per_host: 256,
            max_body: 4 << 10,
            max_headers: 8 << 10,
            extra_roots: None,
        }
    }
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            timeout: Duration::from_secs(3),
            cache_size: 8_192,
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(300),
            max_addresses: 8,
        }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            max: 3,
            within: Duration::from_secs(60),
            down: Duration::from_secs(60),
        }
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(10),
            renew_every: Duration::from_secs(3),
            balance_every: Duration::from_secs(1),
        }
    }
}

impl Default for Records {
    fn default() -> Self {
        Self {
            in_flight: 8,
            linger: Duration::from_millis(5),
            remember: 8_192,
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        faults.duration("horizon", self.horizon, s(1)..=s(60));
        faults.duration("not_after", self.not_after, s(1)..=s(600));
        faults.range("max_in_flight", self.max_in_flight, 1..=100_000);
        faults.range("max_held_bytes", self.max_held_bytes, 1 << 20..=64 << 30);
        faults.range(
            "max_held_per_partition",
            self.max_held_per_partition,
            16..=1_000_000,
        );
        faults.range("max_held_per_lane", self.max_held_per_lane, 1..=1_000_000);
        faults.duration("evict_after", self.evict_after, ms(100)..=s(86_400));
        faults.duration("forget_after", self.forget_after, s(1)..=s(86_400));
        faults.duration("progress_every", self.progress_every, ms(100)..=s(10));
        faults.duration("drain_attempts", self.drain_attempts, s(0)..=s(600));
        faults.duration("drain_records", self.drain_records, s(1)..=s(600));
        faults.range("brake_percent", self.brake_percent, 1..=100);
        faults.within("http", |faults| self.http.validate(faults));
        faults.within("dns", |faults| self.dns.validate(faults));
        faults.within("restart", |faults| {
            faults.range("max", self.restart.max, 0..=1_000);
            faults.duration("within", self.restart.within, s(1)..=s(86_400));
            faults.duration("down", self.restart.down, s(1)..=s(86_400));
        });
        faults.within("lease", |faults| self.lease.validate(faults));
        faults.within("records", |faults| {
            faults.range("in_flight", self.records.in_flight, 1..=256);
            faults.duration("linger", self.records.linger, s(0)..=s(1));
            faults.range("remember", self.records.remember, 0..=1_000_000);
        });
        if self.dns.timeout >= self.http.connect_timeout {
            faults.add(
                "dns.timeout",
                format!("is {:?}", self.dns.timeout),
                "set it below http.connect_timeout, or a dead resolver looks like a dead endpoint",
            );
        }
    }
}

impl Http {
    fn validate(&self, faults: &mut Faults) {
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        faults.duration("connect_timeout", self.connect_timeout, ms(100)..=s(60));
        faults.duration("idle_timeout", self.idle_timeout, ms(0)..=s(60));
        faults.range("max_idle_per_host", self.max_idle_per_host, 0..=10_000);
        faults.range("max_body", self.max_body, 0..=64 << 10);
        faults.range("max_headers", self.max_headers, 0..=64 << 10);
    }
}

impl Dns {
    fn validate(&self, faults: &mut Faults) {
        let s = Duration::from_secs;
        faults.duration("timeout", self.timeout, Duration::from_millis(50)..=s(60));
        faults.duration("min_ttl", self.min_ttl, s(0)..=s(3_600));
        faults.duration("max_ttl", self.max_ttl, self.min_ttl..=s(86_400));
        faults.range("max_addresses", self.max_addresses, 1..=256);
    }
}

impl Lease {
    fn validate(&self, faults: &mut Faults) {
        let s = Duration::from_secs;
        faults.duration("max_age", self.max_age, s(1)..=s(600));
        faults.duration(
            "renew_every",
            self.renew_every,
            Duration::from_millis(50)..=self.max_age / 3,
        );
        faults.duration(
            "balance_every",
            self.balance_every,
            Duration::from_millis(50)..=s(60),
        );
    }

    /// How long after its last renewal an owner may still act.
    pub(crate) fn good_for(&self) -> Duration {
        self.max_age * 2 / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_sound_and_survives_a_round_trip() {
        let config = Config::default();
        let mut faults = Faults::new();
        config.validate(&mut faults);
        assert!(faults.is_empty(), "{faults}");
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        assert_eq!(serde_json::from_str::<Config>("{}").unwrap(), config);
        assert!(serde_json::from_str::<Config>(r#"{"horizont":"1s"}"#).is_err());
    }

    #[test]
    fn every_fault_is_reported_with_its_key() {
        let config = Config {
            horizon: Duration::ZERO,
            max_in_flight: 0,
            dns: Dns {
                timeout: Duration::from_secs(9),
                ..Dns::default()
            },
            lease: Lease {
                renew_every: Duration::from_secs(5),
                ..Lease::default()
            },
            ..Config::default()
        };
        let mut faults = Faults::new();
        config.validate(&mut faults);
        let keys: Vec<_> = faults.found().iter().map(|f| f.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "horizon",
                "max_in_flight",
                "lease.renew_every",
                "dns.timeout"
            ]
        );
    }
}
