//! The definitions: files, with configuration put in.

use std::fmt;

use hooklane_proto::subject;
use serde_json::Value;

use super::ledger;
use crate::client::Client;

/// The partition count in the files, replaced by the configured one.
const FILE_PARTITIONS: &str = "{{partition(16,";

const STREAMS: [&str; 9] = [
    include_str!("../../streams/INTAKE.json"),
    include_str!("../../streams/EVENTS.json"),
    include_str!("../../streams/DELIVERIES.json"),
    include_str!("../../streams/RECORDS.json"),
    include_str!("../../streams/ADVISORIES.json"),
    include_str!("../../streams/DLQ.json"),
    include_str!("../../streams/INBOX.json"),
    include_str!("../../streams/ROUTES.json"),
    include_str!("../../streams/LEASES.json"),
];
const RELAY: &str = include_str!("../../consumers/relay.json");
const FANOUT: &str = include_str!("../../consumers/fanout.json");
const LANES: &str = include_str!("../../consumers/lanes.json");
const RECORDER: &str = include_str!("../../consumers/recorder.json");
const MOVER: &str = include_str!("../../consumers/dlq.json");
const INBOX: &str = include_str!("../../consumers/inbox.json");

/// What one stream or one durable JetStream consumer should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Definition {
    /// The stream it is, or is on.
    pub(super) stream: String,
    /// The durable's name; `None` for the stream itself.
    pub(super) durable: Option<String>,
    pub(super) config: Value,
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.durable {
            None => write!(f, "stream {}", self.stream),
            Some(durable) => write!(f, "consumer {}/{durable}", self.stream),
        }
    }
}

impl Definition {
    /// The fields that JetStream can't change. A stream's transform it can, but the messages that
    /// are stored would keep the partitions they have.
    pub(super) fn fixed(&self) -> &'static [&'static str] {
        match self.durable {
            None => &[
                "name",
                "retention",
                "storage",
                "deny_delete",
                "deny_purge",
                "subject_transform.src",
                "subject_transform.dest",
            ],
            Some(_) => &[
                "name",
                "durable_name",
                "deliver_policy",
                "ack_policy",
                "replay_policy",
            ],
        }
    }
}

/// Everything, each stream followed by its durables.
pub(super) fn definitions(client: &Client) -> Vec<Definition> {
    let inner = &client.inner;
    let mut all = all(inner.partitions, inner.replicas, inner.stream_size_percent);
    if let Some(ledger) = inner.ledger {
        for definition in all.iter_mut().filter(|one| one.durable.is_none()) {
            ledger::put(&mut definition.config, ledger);
        }
    }
    all
}

fn all(partitions: u16, replicas: u8, percent: u32) -> Vec<Definition> {
    let mut all = Vec::new();
    for text in STREAMS {
        let config = stream(text, partitions, replicas, percent);
        let name = config["name"].as_str().unwrap_or_default().to_owned();
        all.push(Definition {
            stream: name.clone(),
            durable: None,
            config,
        });
        match name.as_str() {
            subject::INTAKE => all.push(one(&name, RELAY, subject::INTAKE_DURABLE)),
            subject::RECORDS => all.push(one(&name, RECORDER, subject::RECORDS_DURABLE)),
            subject::ADVISORIES => {
                all.push(one(&name, MOVER, subject::ADVISORIES_DURABLE));
                all.push(one(&name, INBOX, subject::INBOX_ADVISORIES_DURABLE));
            }
            subject::EVENTS => all.extend((0..partitions).map(|p| {
                let durable = subject::fanout_durable(p);
                of_partition(&name, FANOUT, &durable, subject::events_of(p))
            })),
            subject::DELIVERIES => all.extend((0..partitions).map(|p| {
                let durable = subject::lanes_durable(p);
                of_partition(&name, LANES, &durable, subject::deliveries_of(p))
            })),
            _ => {}
        }
    }
    all
}

fn stream(text: &str, partitions: u16, replicas: u8, percent: u32) -> Value {
    let mut config = parsed(text);
    config["num_replicas"] = replicas.into();
    if let Some(bytes) = config["max_bytes"].as_u64() {
        config["max_bytes"] = (bytes * u64::from(percent) / 100).max(1 << 20).into();
    }
    if let Some(dest) = config["subject_transform"]["dest"].as_str() {
        let dest = dest.replace(FILE_PARTITIONS, &format!("{{{{partition({partitions},"));
        config["subject_transform"]["dest"] = dest.into();
    } else if let Some(fields) = config.as_object_mut() {
        // Looking for it put a null there.
        fields.remove("subject_transform");
    }
    config
}

fn one(stream: &str, text: &str, durable: &str) -> Definition {
    let mut config = parsed(text);
    config["name"] = durable.into();
    config["durable_name"] = durable.into();
    Definition {
        stream: stream.to_owned(),
        durable: Some(durable.to_owned()),
        config,
    }
}

fn of_partition(stream: &str, text: &str, durable: &str, filter: String) -> Definition {
    let mut definition = one(stream, text, durable);
    definition.config["filter_subject"] = filter.into();
    definition
}

/// The files are part of the program and a test reads each: a broken one can't get here.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_valid_and_configuration_is_put_in() {
        for text in STREAMS
            .into_iter()
            .chain([RELAY, FANOUT, LANES, RECORDER, MOVER, INBOX])
        {
            serde_json::from_str::<Value>(text).unwrap();
        }
        let all = all(3, 5, 50);
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 9 + 4 + 2 * 3, "{names:?}");
        let deliveries = &all
            .iter()
            .find(|d| d.to_string() == "stream DELIVERIES")
            .unwrap()
            .config;
        assert_eq!(
            deliveries["subject_transform"]["dest"],
            "deliveries.{{partition(3,1)}}.{{wildcard(1)}}.{{wildcard(2)}}"
        );
        assert_eq!(deliveries["num_replicas"], 5);
        assert_eq!(deliveries["max_bytes"], 512 << 20);
        let lane = all
            .iter()
            .find(|d| d.to_string() == "consumer DELIVERIES/lanes-2")
            .unwrap();
        assert_eq!(lane.config["filter_subject"], "deliveries.2.>");
        assert_eq!(lane.config["durable_name"], "lanes-2");
    }

    #[test]
    fn every_stream_has_a_size_limit_and_their_sum_is_modest() {
        let sum: u64 = all(16, 1, 100)
            .iter()
            .filter(|d| d.durable.is_none())
            .map(|d| d.config["max_bytes"].as_u64().unwrap())
            .sum();
        assert!(sum < 3_200 << 20, "{sum}");
    }
}
