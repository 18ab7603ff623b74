//! The `[relay]` section.

use std::num::NonZeroU16;
use std::time::Duration;

use hooklane_core::config::Faults;
use hooklane_store::accept::Settings;
use hooklane_store::intake::PATIENCE;
use hooklane_store::outbox::Source;
use serde::{Deserialize, Serialize};

/// What the relay reads, and the numbers of acceptance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The outbox tables; by default Hooklane's own in the ledger's database.
    pub sources: Vec<Source>,
    /// Events published to NATS.
    pub intake: Intake,
    /// How long after acceptance an event may be published, 1 s to 10 min; what takes longer the
    /// sweep drives.
    #[serde(with = "humantime_serde")]
    pub publish_within: Duration,
    /// How long after acceptance an attempt may be made, 1 min to 30 days. Not a key of this
    /// section: it is the retry schedule's deadline.
    #[serde(skip)]
    pub deliver_within: Duration,
    /// How long an event with an unknown consumer or event type is tried again, up to 1 day.
    #[serde(with = "humantime_serde")]
    pub patience: Duration,
    /// Deliveries that one transaction makes at the most, 1 to 100,000; one message always fits.
    pub max_deliveries: usize,
    /// How long one transaction may take, 1 s to 5 min.
    #[serde(with = "humantime_serde")]
    pub accept_timeout: Duration,
    /// Events published and not yet confirmed, 1 to 30,000.
    pub publish_window: usize,
    /// Bytes published and not yet confirmed, 1 MiB to 1 GiB.
    pub publish_window_bytes: usize,
    /// How often changed endpoint settings are looked for, 10 ms to 10 s.
    #[serde(with = "humantime_serde")]
    pub routes_every: Duration,
    /// Attempts a second for endpoints without a rate of their own or of their consumer: 1 to
    /// 1,000, or 0 for no limit.
    pub default_rate: u32,
}

/// Events that producers publish to NATS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Intake {
    /// Whether this relay reads `INTAKE`.
    pub enabled: bool,
    /// Most messages in a batch, 1 to 1,000.
    pub batch: usize,
    /// Bytes after which a batch ends, 1 MiB to 64 MiB.
    pub batch_bytes: usize,
    /// How long a batch waits for more, up to 1 s.
    #[serde(with = "humantime_serde")]
    pub linger: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let settings = Settings::new(NonZeroU16::MIN);
        Self {
            sources: vec![Source::default()],
            intake: Intake::default(),
            publish_within: settings.publish_within,
            deliver_within: settings.deadline,
            patience: PATIENCE,
            max_deliveries: settings.max_deliveries,
            accept_timeout: settings.timeout,
            publish_window: 4_096,
            publish_window_bytes: 32 << 20,
            routes_every: Duration::from_millis(100),
            default_rate: 50,
        }
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            enabled: true,
            batch: 500,
            batch_bytes: 8 << 20,
            linger: Duration::from_millis(2),
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        for (at, source) in self.sources.iter().enumerate() {
            faults.within(format!("sources.{at}"), |faults| {
                source.validate(faults);
                let before = &self.sources[..at];
                if before.iter().any(|other| other.name == source.name) {
                    faults.add(
                        "name",
                        format!("`{}` stands twice", source.name),
                        "give each source a name of its own",
                    );
                }
            });
        }
        faults.within("intake", |faults| {
            faults.range("batch", self.intake.batch, 1..=1_000);
            faults.range("batch_bytes", self.intake.batch_bytes, 1 << 20..=64 << 20);
            let second = Duration::from_secs(1);
            faults.duration("linger", self.intake.linger, Duration::ZERO..=second);
        });
        let seconds = Duration::from_secs;
        let day = seconds(24 * 60 * 60);
        faults.duration(
            "publish_within",
            self.publish_within,
            seconds(1)..=seconds(600),
        );
        faults.duration(
            "deliver_within",
            self.deliver_within,
            seconds(60)..=day * 30,
        );
        faults.duration("patience", self.patience, Duration::ZERO..=day);
        faults.range("max_deliveries", self.max_deliveries, 1..=100_000);
        faults.duration(
            "accept_timeout",
            self.accept_timeout,
            seconds(1)..=seconds(300),
        );
        faults.range("publish_window", self.publish_window, 1..=30_000);
        faults.range(
            "publish_window_bytes",
            self.publish_window_bytes,
            1 << 20..=1 << 30,
        );
        let ten = Duration::from_millis(10);
        faults.duration("routes_every", self.routes_every, ten..=seconds(10));
        faults.range("default_rate", self.default_rate, 0..=1_000);
    }

    /// What acceptance works with.
    #[must_use]
    pub fn settings(&self, partitions: NonZeroU16) -> Settings {
        Settings {
            partitions,
            publish_within: self.publish_within,
            deadline: self.deliver_within,
            max_deliveries: self.max_deliveries,
            timeout: self.accept_timeout,
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
            sources: vec![Source::default(), Source::default()],
            default_rate: 2_000,
            ..Config::default()
        };
        bad.validate(&mut faults);
        let keys: Vec<_> = faults
            .found()
            .iter()
            .map(|fault| fault.key.as_str())
            .collect();
        assert_eq!(keys, ["sources.1.name", "default_rate"]);
    }
}
