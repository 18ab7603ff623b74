//! The broker's word that a message of a durable is exhausted, as the stream `ADVISORIES` keeps it.
//!
//! Advisories are sent without acknowledgement: one may be lost, and after a crash one may come
//! twice.

use chrono::{DateTime, Utc};
use serde::Deserialize;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It was delivered as often as its durable delivers one, and is still in its stream, where
    /// nobody gets it any more.
    MaxDeliveries,
    /// Whoever had it ended it, or it was deleted while somebody had it.
    Terminated,
}

/// One advisory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advisory {
    /// What became of the message.
    pub kind: Kind,
    /// Its stream.
    pub stream: String,
    /// The durable that gave it out.
    pub consumer: String,
    /// Its sequence there.
    pub sequence: u64,
    /// When the broker said so: a message stored later under the same sequence is another one.
    pub at: DateTime<Utc>,
}

impl Advisory {
    /// Reads an advisory; `None` where it is none of these kinds.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let wire: Wire = serde_json::from_slice(payload).ok()?;
        let kind = match wire.kind.as_str() {
            "io.nats.jetstream.advisory.v1.max_deliver" => Kind::MaxDeliveries,
            "io.nats.jetstream.advisory.v1.terminated" => Kind::Terminated,
            _ => return None,
        };
        Some(Self {
            kind,
            stream: wire.stream,
            consumer: wire.consumer,
            sequence: wire.stream_seq,
            at: wire.timestamp,
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "type")]
    kind: String,
    timestamp: DateTime<Utc>,
    stream: String,
    consumer: String,
    stream_seq: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read_and_others_are_none() {
        let text = |kind: &str| {
            format!(
                r#"{{"type":"io.nats.jetstream.advisory.v1.{kind}","id":"x","timestamp":"2026-11-30T12:00:00.123456789Z","stream":"DELIVERIES","consumer":"lanes-1","stream_seq":7,"deliveries":20,"reason":"y"}}"#
            )
        };
        let read = |kind: &str| Advisory::read(text(kind).as_bytes());
        let advisory = read("max_deliver").unwrap();
        assert_eq!(advisory.kind, Kind::MaxDeliveries);
        assert_eq!(
            (advisory.stream.as_str(), advisory.sequence),
            ("DELIVERIES", 7)
        );
        assert_eq!(advisory.consumer, "lanes-1");
        assert_eq!(advisory.at.timestamp_subsec_millis(), 123);
        assert_eq!(read("terminated").unwrap().kind, Kind::Terminated);
        assert_eq!(read("nak"), None);
        assert_eq!(Advisory::read(b"{}"), None);
    }
}
