//! The whole configuration: the sections of the services and of what they share.
//!
//! Owns the composition, the sections that belong to no service, and which sections a command
//! needs. Each section's keys, defaults and checks are its own crate's.

mod secrets;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hooklane_core::config::Faults;
use hooklane_core::rules::address::Policy;
use hooklane_core::rules::health;
use hooklane_core::rules::schedule::Schedule;
use hooklane_core::telemetry;
use hooklane_store::dead_letter::Terms;
use hooklane_store::endpoint::MAX_GRACE;
use serde::{Deserialize, Serialize};

pub(crate) use secrets::Secrets;

/// Variables that everybody knows, and the keys that they set.
pub(crate) const WELL_KNOWN: &[(&str, &str)] = &[
    ("DATABASE_URL", "database.url"),
    ("NATS_URL", "nats.url"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
    ("OTEL_SERVICE_NAME", "telemetry.service_name"),
];

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Everything that can be set.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The ledger's database.
    pub(crate) database: hooklane_store::Config,
    /// The broker.
    pub(crate) nats: hooklane_nats::Config,
    /// The keys that endpoint secrets are sealed with.
    pub(crate) secrets: Secrets,
    /// Where deliveries may go.
    pub(crate) addresses: Policy,
    /// When a failed delivery is attempted again.
    pub(crate) retry: Schedule,
    /// Endpoints' defaults.
    pub(crate) endpoints: Endpoints,
    /// The process's health, over HTTP.
    pub(crate) health: Health,
    /// Logs and traces.
    pub(crate) telemetry: telemetry::Config,
    /// Takes events in.
    pub(crate) relay: hooklane_relay::Config,
    /// Delivers.
    pub(crate) dispatcher: hooklane_dispatcher::Config,
    /// Writes down what happened.
    pub(crate) recorder: hooklane_recorder::Config,
    /// Puts back what is due or lost.
    pub(crate) scheduler: hooklane_scheduler::Config,
    /// Moves dead letters.
    pub(crate) dlq: hooklane_dlq::Config,
    /// The REST API.
    pub(crate) api: hooklane_api::Config,
    /// Receives partners' webhooks.
    pub(crate) inbox: hooklane_inbox::Config,
}

/// Endpoints' defaults.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Endpoints {
    /// How long the old secret signs along after a rotation.
    #[serde(with = "humantime_serde")]
    pub(crate) rotation_grace: Duration,
    /// When they count as failing, and when they are given up.
    pub(crate) health: health::Settings,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            rotation_grace: DAY,
            health: health::Settings::default(),
        }
    }
}

/// The process's health, over HTTP: `/livez` and `/readyz`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Health {
    /// Whether it is served at all.
    pub(crate) enabled: bool,
    /// Where. It has no access control: keep it on a loopback or private address.
    pub(crate) listen: SocketAddr,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: (Ipv4Addr::LOCALHOST, 8410).into(),
        }
    }
}

/// A section that a command may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Database,
    Nats,
    Secrets,
    Addresses,
    Retry,
    Endpoints,
    Telemetry,
    Relay,
    Dispatcher,
    Recorder,
    Scheduler,
    Dlq,
    Api,
    Inbox,
}

impl Section {
    /// Every section that can be wrong.
    pub(crate) const ALL: [Self; 14] = [
        Self::Database,
        Self::Nats,
        Self::Secrets,
        Self::Addresses,
        Self::Retry,
        Self::Endpoints,
        Self::Telemetry,
        Self::Relay,
        Self::Dispatcher,
        Self::Recorder,
        Self::Scheduler,
        Self::Dlq,
        Self::Api,
        Self::Inbox,
    ];
}

impl Config {
    /// What holds for a series that a replay opens.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            deadline: self.retry.deadline,
            retention_days: self.recorder.retention_days,
        }
    }

    /// A series that lasts longer than its day is kept holds the day, and what fails at the deadline
    /// is gone before anybody has looked at it.
    fn outlives_a_series(&self, faults: &mut Faults) {
        if faults.concerns("retry.deadline") {
            return;
        }
        let deadline = self.retry.deadline;
        let least = deadline.as_secs().div_ceil(DAY.as_secs()) + 1;
        let days = self.recorder.retention_days;
        if u64::from(days) < least {
            faults.add(
                "recorder.retention_days",
                format!(
                    "is {days}, and retry.deadline is {}: a delivery has to be kept for a day longer \
                     than its attempts may last",
                    humantime::format_duration(deadline)
                ),
                format!("set it to {least} or more, or make retry.deadline shorter"),
            );
        }
    }

    /// Adds what is wrong with `sections`.
    pub(crate) fn validate(&self, sections: &[Section], faults: &mut Faults) {
        for section in sections {
            match section {
                Section::Database => faults.within("database", |f| self.database.validate(f)),
                Section::Nats => faults.within("nats", |f| {
                    for problem in self.nats.check() {
                        f.add(
                            problem.key,
                            format!("is wrong: {}", problem.problem),
                            problem.fix,
                        );
                    }
                }),
                // A key that can't be read is not missing.
                Section::Secrets if faults.concerns("secrets") => {}
                Section::Secrets => faults.within("secrets", |f| self.secrets.validate(f)),
                Section::Addresses => faults.within("addresses", |f| {
                    for name in self.addresses.invalid_names() {
                        f.add(
                            "allow_names",
                            format!("has the entry `{name}`, which can match no host"),
                            "give a host name, or `.internal` for all names below it",
                        );
                    }
                }),
                Section::Retry => faults.within("retry", |f| {
                    // What is left of a list of which something can't be read has other numbers.
                    let partly = f.concerns("retry.delays");
                    for invalid in self.retry.validate() {
                        // Its text has the form `key: problem; fix`.
                        let text = invalid.to_string();
                        let (key, rest) = text.split_once(": ").unwrap_or(("", &text));
                        let (problem, fix) = rest.split_once("; ").unwrap_or((rest, "correct it"));
                        if !(partly && key.starts_with("delays.")) {
                            f.add(key, problem, fix);
                        }
                    }
                }),
                Section::Endpoints => faults.within("endpoints", |f| {
                    let grace = self.endpoints.rotation_grace;
                    f.duration("rotation_grace", grace, Duration::ZERO..=MAX_GRACE);
                    f.within("health", |f| self.endpoints.health.validate(f));
                }),
                Section::Telemetry => faults.within("telemetry", |f| self.telemetry.validate(f)),
                Section::Relay => faults.within("relay", |f| self.relay.validate(f)),
                Section::Dispatcher => faults.within("dispatcher", |f| self.dispatcher.validate(f)),
                Section::Recorder => {
                    faults.within("recorder", |f| self.recorder.validate(f));
                    self.outlives_a_series(faults);
                }
                Section::Scheduler => faults.within("scheduler", |f| self.scheduler.validate(f)),
                Section::Dlq => faults.within("dlq", |f| self.dlq.validate(f)),
                Section::Api => faults.within("api", |f| self.api.validate(f)),
                Section::Inbox => faults.within("inbox", |f| self.inbox.validate(f)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hooklane_core::config::{ConnectionUrl, Secret};

    use super::*;

    #[test]
    fn formatting_shows_no_secret() {
        let mut config = Config {
            secrets: Secrets {
                master_keys: vec![secrets::MasterKey {
                    id: "one".to_owned(),
                    key: Secret::new("canary".to_owned()),
                }],
                ..Secrets::default()
            },
            ..Config::default()
        };
        config.database.url = Some(ConnectionUrl::new("postgres://u:canary@h/d"));
        config.relay.sources[0].database_url = Some(ConnectionUrl::new("postgres://u:canary@h/d"));
        config.nats.url = "nats://u:canary@h".into();
        let shop = hooklane_inbox::source::Block {
            secrets: vec![Secret::new("canary".to_owned())],
            verify_token: Some(Secret::new("canary".to_owned())),
            ..Default::default()
        };
        config.inbox.sources.insert("shop".to_owned(), shop);
        config.telemetry.otlp_endpoint = Some(ConnectionUrl::new("http://u:canary@h"));
        let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn what_is_kept_outlives_a_series_by_a_day() {
        let fault = |days: u32, hours: u64| {
            let mut config = Config::default();
            config.recorder.retention_days = days;
            config.retry.deadline = Duration::from_secs(hours * 3600);
            let mut faults = Faults::new();
            config.validate(&[Section::Recorder], &mut faults);
            faults.found().first().map(|fault| fault.to_string())
        };
        assert_eq!(fault(3, 48), None);
        assert_eq!(fault(6, 120), None);
        let told = fault(3, 120).unwrap();
        assert!(told.starts_with("recorder.retention_days is 3"), "{told}");
        assert!(
            told.contains("5days") && told.contains("set it to 6"),
            "{told}"
        );
        assert!(fault(3, 49).is_some());
    }

    #[test]
    fn the_default_lacks_only_what_has_no_default() {
        let mut faults = Faults::new();
        Config::default().validate(&Section::ALL, &mut faults);
        let keys: Vec<_> = faults.found().iter().map(|f| f.key.as_str()).collect();
        assert_eq!(keys, ["database.url", "secrets.master_keys"]);
    }
}
