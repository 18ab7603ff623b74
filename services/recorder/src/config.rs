//! The `[recorder]` section.

use std::time::Duration;

use hooklane_core::config::Faults;
use hooklane_core::rules::health;
use serde::{Deserialize, Serialize};

/// How the recorder batches, and how long things are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Records that one transaction writes at the most, 1 to 20,000.
    pub batch_records: usize,
    /// Bytes of encoded records that one transaction writes at the most, 64 KiB to 64 MiB.
    pub batch_bytes: usize,
    /// How long a transaction waits for more records once it has some and no more are there, up to
    /// 1 s.
    #[serde(with = "humantime_serde")]
    pub linger: Duration,
    /// Longest pause between two tries while the ledger can't be written, 100 ms to 1 minute.
    #[serde(with = "humantime_serde")]
    pub longest_pause: Duration,
    /// How long the batch in hand may take to be written after a stop was asked for, up to 1 minute.
    #[serde(with = "humantime_serde")]
    pub stop_within: Duration,
    /// How often day partitions are made and old ones dropped, 1 s to 1 day.
    #[serde(with = "humantime_serde")]
    pub housekeeping_every: Duration,
    /// Days made ahead of today, 1 to 30.
    pub days_ahead: u32,
    /// Days kept besides today, 3 to 3,650. A day with open deliveries or inbox events is kept longer.
    pub retention_days: u32,
    /// How long a drop of a day may wait for its locks, behind which everybody waits, 10 ms to 30 s.
    #[serde(with = "humantime_serde")]
    pub drop_lock_timeout: Duration,
    /// How long idempotency keys are kept, 1 hour to 10 years.
    #[serde(with = "humantime_serde")]
    pub idempotency_keys_for: Duration,
    /// Days that entries of the audit log are kept, 1 to 36,500.
    pub audit_days: u32,
    /// When endpoints count as failing and are disabled. Not a key of this section: it is
    /// `endpoints.health`.
    #[serde(skip)]
    pub health: health::Settings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch_records: 2_000,
            batch_bytes: 8 << 20,
            linger: Duration::from_millis(3),
            longest_pause: Duration::from_secs(5),
            stop_within: Duration::from_secs(5),
            housekeeping_every: Duration::from_secs(3_600),
            days_ahead: 2,
            retention_days: 35,
            drop_lock_timeout: Duration::from_secs(1),
            idempotency_keys_for: Duration::from_secs(7 * 86_400),
            audit_days: 365,
            health: health::Settings::default(),
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let millis = Duration::from_millis;
        let seconds = Duration::from_secs;
        faults.range("batch_records", self.batch_records, 1..=20_000);
        faults.range("batch_bytes", self.batch_bytes, 64 << 10..=64 << 20);
        faults.duration("linger", self.linger, Duration::ZERO..=seconds(1));
        faults.duration(
            "longest_pause",
            self.longest_pause,
            millis(100)..=seconds(60),
        );
        faults.duration(
            "stop_within",
            self.stop_within,
            Duration::ZERO..=seconds(60),
        );
        faults.duration(
            "housekeeping_every",
            self.housekeeping_every,
            seconds(1)..=seconds(86_400),
        );
        faults.range("days_ahead", self.days_ahead, 1..=30);
        faults.range("retention_days", self.retention_days, 3..=3_650);
        faults.range("audit_days", self.audit_days, 1..=36_500);
        faults.duration(
            "drop_lock_timeout",
            self.drop_lock_timeout,
            millis(10)..=seconds(30),
        );
        faults.duration(
            "idempotency_keys_for",
            self.idempotency_keys_for,
            seconds(3_600)..=seconds(3_650 * 86_400),
        );
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
            batch_records: 0,
            batch_bytes: 1,
            linger: Duration::from_secs(2),
            retention_days: 0,
            ..Config::default()
        };
        config.validate(&mut faults);
        assert_eq!(faults.found().len(), 4, "{faults}");
    }
}
