//! The `[api.intake]` section.

use std::num::NonZeroU16;
use std::time::Duration;

use hooklane_core::config::Faults;
use hooklane_store::accept::Settings;
use serde::{Deserialize, Serialize};

/// How messages that come in over HTTP are committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether concurrent requests share a transaction.
    pub group_commit: bool,
    /// Transactions at a time, 1 to 64. Each takes a connection of the pool.
    pub commits_at_once: usize,
    /// Messages after which a transaction takes no further request along, 1 to 10,000.
    pub commit_batch: usize,
    /// Messages that may wait or be on their way into the ledger, 1,000 to 1,000,000; more are refused.
    pub queue_messages: u32,
    /// Bytes that may wait or be on their way into the ledger, 8 MiB to 2 GiB; more are refused.
    pub queue_bytes: u32,
    /// How long a message waits for its turn before it is refused, 100 ms to 1 min.
    #[serde(with = "humantime_serde")]
    pub wait_at_most: Duration,
    /// How long a request's messages may take in all, 1 s to 5 min; those of them that are not committed
    /// by then, in several transactions, are refused.
    #[serde(with = "humantime_serde")]
    pub commit_within: Duration,
    /// Deliveries that one transaction makes at the most, unless a single message has more, 1 to 100,000.
    pub max_deliveries: usize,
    /// How long one transaction may take, 1 s to 1 min; one that takes longer is tried again with fewer
    /// messages, and a batch that takes twice that is given up.
    #[serde(with = "humantime_serde")]
    pub accept_timeout: Duration,
    /// Deliveries to be published that the ledger may hold while the broker is down, 1 to 100,000,000;
    /// then messages are refused until it is up.
    pub unpublished_limit: u32,
    /// How long after acceptance an event may be published, 1 s to 10 min; what takes longer the
    /// sweep drives.
    #[serde(with = "humantime_serde")]
    pub publish_within: Duration,
    /// Events published and not yet confirmed, 1 to 30,000.
    pub publish_window: usize,
    /// Bytes published and not yet confirmed, 1 MiB to 1 GiB.
    pub publish_window_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            group_commit: true,
            commits_at_once: 2,
            commit_batch: 500,
            queue_messages: 10_000,
            queue_bytes: 64 << 20,
            wait_at_most: Duration::from_secs(10),
            commit_within: Duration::from_secs(20),
            max_deliveries: Settings::new(NonZeroU16::MIN).max_deliveries,
            accept_timeout: Duration::from_secs(5),
            unpublished_limit: 1_000_000,
            publish_within: Settings::new(NonZeroU16::MIN).publish_within,
            publish_window: 4_096,
            publish_window_bytes: 32 << 20,
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let seconds = Duration::from_secs;
        faults.range("commits_at_once", self.commits_at_once, 1..=64);
        faults.range("commit_batch", self.commit_batch, 1..=10_000);
        faults.range("queue_messages", self.queue_messages, 1_000..=1_000_000);
        faults.range("queue_bytes", self.queue_bytes, 8 << 20..=2 << 30);
        let tenth = Duration::from_millis(100);
        faults.duration("wait_at_most", self.wait_at_most, tenth..=seconds(60));
        let within = seconds(1)..=seconds(300);
        faults.duration("commit_within", self.commit_within, within);
        faults.range("max_deliveries", self.max_deliveries, 1..=100_000);
        faults.duration(
            "accept_timeout",
            self.accept_timeout,
            seconds(1)..=seconds(60),
        );
        faults.range("unpublished_limit", self.unpublished_limit, 1..=100_000_000);
        faults.duration(
            "publish_within",
            self.publish_within,
            seconds(1)..=seconds(600),
        );
        faults.range("publish_window", self.publish_window, 1..=30_000);
        let bytes = self.publish_window_bytes;
        faults.range("publish_window_bytes", bytes, 1 << 20..=1 << 30);
    }

    /// What acceptance works with.
    pub(super) fn settings(&self, partitions: NonZeroU16, deliver_within: Duration) -> Settings {
        Settings {
            publish_within: self.publish_within,
            deadline: deliver_within,
            timeout: self.accept_timeout,
            max_deliveries: self.max_deliveries,
            ..Settings::new(partitions)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_faults_are_named_by_their_keys() {
        let mut faults = Faults::new();
        Config::default().validate(&mut faults);
        assert!(faults.is_empty(), "{faults}");
        let bad = Config {
            commits_at_once: 0,
            queue_bytes: 1,
            wait_at_most: Duration::ZERO,
            commit_within: Duration::ZERO,
            max_deliveries: 0,
            ..Config::default()
        };
        bad.validate(&mut faults);
        let keys: Vec<_> = faults
            .found()
            .iter()
            .map(|fault| fault.key.as_str())
            .collect();
        let expected = [
            "commits_at_once",
            "queue_bytes",
            "wait_at_most",
            "commit_within",
            "max_deliveries",
        ];
        assert_eq!(keys, expected);
    }
}
