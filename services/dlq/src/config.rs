//! The `[dlq]` section.

use std::time::Duration;

use hooklane_core::config::Faults;
use serde::{Deserialize, Serialize};

/// How dead letters are moved, and how exhausted messages are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How often the ledger is asked for failed deliveries of which the broker said nothing, 10 ms to
    /// 1 minute.
    #[serde(with = "humantime_serde")]
    pub look_every: Duration,
    /// Dead letters read and published together at the most, 1 to 20,000.
    pub letters_at_once: u32,
    /// Bytes of payload read and published together at the most, 64 KiB to 256 MiB.
    pub letter_bytes: u64,
    /// How long dead letters may take to be published before the ledger is asked anew, 1 s to 1
    /// minute: less than the duplicate window of `DLQ`.
    #[serde(with = "humantime_serde")]
    pub publish_within: Duration,
    /// How often the broker is searched for exhausted messages of which it said nothing, 10 ms to 10
    /// minutes. What is seen twice is exhausted.
    #[serde(with = "humantime_serde")]
    pub search_every: Duration,
    /// Exhausted messages taken off together at the most, 1 to 1,024.
    pub exhausted_at_once: u32,
    /// How long the delivery of an exhausted message waits for its next drive, 1 s to 1 hour.
    #[serde(with = "humantime_serde")]
    pub fault_pause: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            look_every: seconds(2),
            letters_at_once: 500,
            letter_bytes: 8 << 20,
            publish_within: seconds(20),
            search_every: seconds(30),
            exhausted_at_once: 256,
            fault_pause: seconds(60),
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let millis = Duration::from_millis;
        let seconds = Duration::from_secs;
        faults.duration("look_every", self.look_every, millis(10)..=seconds(60));
        faults.range("letters_at_once", self.letters_at_once, 1..=20_000);
        faults.range("letter_bytes", self.letter_bytes, 64 << 10..=256 << 20);
        faults.duration(
            "publish_within",
            self.publish_within,
            seconds(1)..=seconds(60),
        );
        faults.duration("search_every", self.search_every, millis(10)..=seconds(600));
        faults.range("exhausted_at_once", self.exhausted_at_once, 1..=1_024);
        faults.duration("fault_pause", self.fault_pause, seconds(1)..=seconds(3_600));
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
            look_every: Duration::ZERO,
            letters_at_once: 0,
            letter_bytes: 1,
            exhausted_at_once: 2_000,
            ..Config::default()
        };
        config.validate(&mut faults);
        assert_eq!(faults.found().len(), 4, "{faults}");
    }
}
