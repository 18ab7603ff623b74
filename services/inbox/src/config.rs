//! The `[inbox]` section.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hooklane_core::config::Faults;
use hooklane_store::inbox::StepLimits;
use serde::{Deserialize, Serialize};

use crate::source::Block;
use crate::sources::Sources;

/// How partners' webhooks are received and handed on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether `hooklane up` runs it; `hooklane inbox` does in any case.
    pub enabled: bool,
    /// Where it listens. It speaks plain HTTP: what the world can reach is a proxy with TLS in front.
    pub listen: SocketAddr,
    /// Connections open at a time, 1 to 100,000; more wait.
    pub max_connections: u32,
    /// How long a request's head may take, and a connection may be idle, 1 s to 5 minutes.
    #[serde(with = "humantime_serde")]
    pub head_within: Duration,
    /// How long a request's body may take, 100 ms to 20 s; less than `deadline`.
    #[serde(with = "humantime_serde")]
    pub body_within: Duration,
    /// After what time a request is answered whatever happens, 500 ms to 30 s.
    #[serde(with = "humantime_serde")]
    pub deadline: Duration,
    /// Bytes of bodies that may be coming in at a time, 16 MiB to 2 GiB; more are refused.
    pub body_bytes: u32,
    /// Requests with a good signature that each source takes a second, 1 to 100,000; none is no limit.
    pub rate_limit: Option<u32>,
    /// Requests with a bad signature that are kept of each source, the last ones, 0 to 100,000.
    pub rejects_kept: u32,
    /// How requests that come at the same time share a transaction.
    pub commit: Commit,
    /// How events are decided about.
    pub worker: Worker,
    /// How events are handed on.
    pub hand_off: HandOff,
    /// The partners, by name.
    pub sources: BTreeMap<String, Block>,
}

/// How requests that come at the same time share a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Commit {
    /// Transactions at a time, 1 to 64. Each takes a connection of the pool.
    pub at_once: usize,
    /// Events after which a transaction takes no further one along, 1 to 1,000.
    pub batch: usize,
    /// Events that may wait or be on their way into the ledger, 16 to 100,000; more are refused.
    pub queue: u32,
    /// Their bytes, 16 MiB to 2 GiB.
    pub queue_bytes: u32,
    /// How long one transaction may take, 100 ms to 20 s; less than `deadline`.
    #[serde(with = "humantime_serde")]
    pub within: Duration,
}

/// How events are decided about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// Transactions at a time, 1 to 64. Each takes a connection of the pool.
    pub at_once: usize,
    /// Events that one transaction decides about at the most, 1 to 1,000.
    pub batch: u32,
    /// Bytes of their bodies, 64 KiB to 64 MiB.
    pub batch_bytes: u32,
    /// The longest pause between two looks for what another process received, or what is due, 10 ms to
    /// 1 hour. What this process received is looked for at once.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
}

/// How events are handed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandOff {
    /// Events read and published together at the most, 1 to 10,000.
    pub publish_batch: u32,
    /// Bytes of their bodies, 64 KiB to 256 MiB.
    pub publish_batch_bytes: u32,
    /// How long they may take to be published before the ledger is asked anew, 1 s to 1 minute: less
    /// than the duplicate window of `INBOX`.
    #[serde(with = "humantime_serde")]
    pub publish_within: Duration,
    /// Requests to the adopter's handlers that are under way at a time, of each source, 1 to 1,000.
    pub requests_at_once: u32,
    /// The longest pause between two looks for what another process decided, or what is due, 10 ms to 1
    /// hour.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
    /// How often the lead of publishing is checked, or tried for, 10 ms to 10 s.
    #[serde(with = "humantime_serde")]
    pub lead_every: Duration,
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: false,
            listen: (Ipv4Addr::LOCALHOST, 8420).into(),
            max_connections: 1_024,
            head_within: seconds(15),
            body_within: millis(1_500),
            deadline: millis(2_500),
            body_bytes: 64 << 20,
            rate_limit: None,
            commit: Commit::default(),
            rejects_kept: 1_000,
            worker: Worker::default(),
            hand_off: HandOff::default(),
            sources: BTreeMap::new(),
        }
    }
}

impl Default for Commit {
    fn default() -> Self {
        Self {
            at_once: 2,
            batch: 256,
            queue: 4_096,
            queue_bytes: 64 << 20,
            within: seconds(2),
        }
    }
}

impl Default for Worker {
    fn default() -> Self {
        let StepLimits { events, bytes } = StepLimits::default();
        Self {
            at_once: 2,
            batch: events,
            batch_bytes: bytes,
            poll: millis(500),
        }
    }
}

impl Default for HandOff {
    fn default() -> Self {
        Self {
            publish_batch: 500,
            publish_batch_bytes: 8 << 20,
            publish_within: seconds(20),
            requests_at_once: 16,
            poll: millis(500),
            lead_every: seconds(2),
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`. Reads the files that sources name.
    pub fn validate(&self, faults: &mut Faults) {
        faults.range("max_connections", self.max_connections, 1..=100_000);
        faults.duration("head_within", self.head_within, seconds(1)..=seconds(300));
        faults.duration("deadline", self.deadline, millis(500)..=seconds(30));
        faults.duration("body_within", self.body_within, millis(100)..=seconds(20));
        faults.range("body_bytes", self.body_bytes, 16 << 20..=2 << 30);
        if let Some(rate) = self.rate_limit {
            faults.range("rate_limit", rate, 1..=100_000);
        }
        faults.within("commit", |f| self.commit.validate(f));
        faults.range("rejects_kept", self.rejects_kept, 0..=100_000);
        for (key, within) in [
            ("body_within", self.body_within),
            ("commit.within", self.commit.within),
        ] {
            if within >= self.deadline {
                faults.add(
                    key,
                    "is not less than inbox.deadline, within which every request is answered",
                    "make it shorter, or inbox.deadline longer",
                );
            }
        }
        faults.within("worker", |f| self.worker.validate(f));
        faults.within("hand_off", |f| self.hand_off.validate(f));
        faults.within("sources", |f| drop(Sources::compile(&self.sources, f)));
    }
}

impl Commit {
    fn validate(&self, faults: &mut Faults) {
        faults.range("at_once", self.at_once, 1..=64);
        faults.range("batch", self.batch, 1..=1_000);
        faults.range("queue", self.queue, 16..=100_000);
        faults.range("queue_bytes", self.queue_bytes, 16 << 20..=2 << 30);
        faults.duration("within", self.within, millis(100)..=seconds(20));
    }
}

impl Worker {
    fn validate(&self, faults: &mut Faults) {
        faults.range("at_once", self.at_once, 1..=64);
        faults.range("batch", self.batch, 1..=1_000);
        faults.range("batch_bytes", self.batch_bytes, 64 << 10..=64 << 20);
        faults.duration("poll", self.poll, millis(10)..=seconds(3_600));
    }

    pub(crate) fn limits(&self) -> StepLimits {
        StepLimits {
            events: self.batch,
            bytes: self.batch_bytes,
        }
    }
}

impl HandOff {
    fn validate(&self, faults: &mut Faults) {
        faults.range("publish_batch", self.publish_batch, 1..=10_000);
        let bytes = self.publish_batch_bytes;
        faults.range("publish_batch_bytes", bytes, 64 << 10..=256 << 20);
        let within = self.publish_within;
        faults.duration("publish_within", within, seconds(1)..=seconds(60));
        faults.range("requests_at_once", self.requests_at_once, 1..=1_000);
        faults.duration("poll", self.poll, millis(10)..=seconds(3_600));
        faults.duration("lead_every", self.lead_every, millis(10)..=seconds(10));
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
            body_within: seconds(3),
            rate_limit: Some(0),
            commit: Commit {
                at_once: 0,
                ..Commit::default()
            },
            worker: Worker {
                poll: Duration::ZERO,
                ..Worker::default()
            },
            hand_off: HandOff {
                requests_at_once: 0,
                ..HandOff::default()
            },
            ..Config::default()
        };
        config.validate(&mut faults);
        let keys: Vec<_> = faults.found().iter().map(|f| f.key.as_str()).collect();
        let expected = [
            "max_connections",
            "rate_limit",
            "commit.at_once",
            "body_within",
            "worker.poll",
            "hand_off.requests_at_once",
        ];
        assert_eq!(keys, expected);
    }
}
