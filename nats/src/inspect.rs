//! What the sweep and the dead-letter mover ask the broker, answered by the stream's leader and
//! never by a replica that may lag: a stream's state and time, whether a durable has anything left,
//! where a partition's oldest message is, and what is exhausted.
//!
//! An error proves nothing: the caller waits.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api;
use crate::client::Client;
use crate::error::{Error, MESSAGE_NOT_FOUND};

/// A stream at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamState {
    /// When it was made: another time means another stream, whose sequences start anew.
    pub created: DateTime<Utc>,
    /// The first message's sequence; 0 where there never was one.
    pub first_sequence: u64,
    /// The last sequence given, whether its message is still there or not; 0 for none.
    pub last_sequence: u64,
    /// Messages in it.
    pub messages: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Bytes that it may hold; `None` for no limit.
    pub max_bytes: Option<u64>,
    /// The leader's clock at this moment.
    pub server_time: DateTime<Utc>,
}

impl StreamState {
    /// How full it is, from 0 to 1 (a little over is possible).
    #[must_use]
    pub fn fill(&self) -> f64 {
        match self.max_bytes {
            Some(limit) if limit > 0 => self.bytes as f64 / limit as f64,
            _ => 0.0,
        }
    }
}

/// The state of a stream.
///
/// # Errors
/// Where the leader can't be asked; [`Error::is_not_found`] where there is no such stream.
pub async fn stream_state(client: &Client, stream: &str) -> Result<StreamState, Error> {
    let request = format!("STREAM.INFO.{stream}");
    let info: StreamInfo = api::call(client, &request, &Value::Null).await?;
    let StreamInfo {
        config,
        created,
        state,
        ts,
    } = info;
    Ok(StreamState {
        created,
        first_sequence: state.first_seq,
        last_sequence: state.last_seq,
        messages: state.messages,
        bytes: state.bytes,
        max_bytes: u64::try_from(config.max_bytes)
            .ok()
            .filter(|&bytes| bytes > 0),
        server_time: ts,
    })
}

/// Whether a durable may still have work at or below a sequence of its stream: messages that it
/// was not given yet, or was given and has not settled. Holds only as long as the stream is the
/// one that the sequence is from.
///
/// # Errors
/// Where the leader can't be asked; [`Error::is_not_found`] where there is no such durable.
pub async fn unsettled(
    client: &Client,
    stream: &str,
    durable: &str,
    at_or_below: u64,
) -> Result<bool, Error> {
    let info = consumer_info(client, stream, durable).await?;
    Ok(info.unsettled(at_or_below))
}

/// The sequence at or below which a durable has settled everything; 0 for none.
///
/// # Errors
/// Where the leader can't be asked; [`Error::is_not_found`] where there is no such durable.
pub async fn ack_floor(client: &Client, stream: &str, durable: &str) -> Result<u64, Error> {
    let info = consumer_info(client, stream, durable).await?;
    Ok(info.ack_floor.stream_seq)
}

/// The sequence of the oldest message whose subject matches, `None` where there is none.
///
/// # Errors
/// Where the leader can't be asked; [`Error::is_not_found`] where there is no such stream.
pub async fn first_sequence_of(
    client: &Client,
    stream: &str,
    subject_filter: &str,
) -> Result<Option<u64>, Error> {
    next_sequence_of(client, stream, subject_filter, 1).await
}

/// The sequences of exhausted messages, lowest first, at most `limit`: those that match and are
/// still in a work-queue stream, although its durable is done with them. One that was just
/// acknowledged looks the same for a moment, so only what is seen twice is exhausted.
///
/// # Errors
/// Where the leader can't be asked; [`Error::is_not_found`] where there is no such durable.
pub async fn exhausted(
    client: &Client,
    stream: &str,
    durable: &str,
    subject_filter: &str,
    limit: usize,
) -> Result<Vec<u64>, Error> {
    let info = consumer_info(client, stream, durable).await?;
    let mut found = Vec::new();
    let mut from = 1;
    while found.len() < limit {
        let next = next_sequence_of(client, stream, subject_filter, from).await?;
        let Some(sequence) = next.filter(|&sequence| info.is_done_with(sequence)) else {
            break;
        };
        found.push(sequence);
        from = sequence + 1;
    }
    Ok(found)
}

async fn next_sequence_of(
    client: &Client,
    stream: &str,
    subject_filter: &str,
    from: u64,
) -> Result<Option<u64>, Error> {
    let request = format!("STREAM.MSG.GET.{stream}");
    let body = json!({"seq": from, "next_by_subj": subject_filter});
    match api::call::<Stored>(client, &request, &body).await {
        Ok(stored) => Ok(Some(stored.message.seq)),
        Err(Error::Api { code, .. }) if code == MESSAGE_NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
struct StreamInfo {
    config: StreamConfig,
    created: DateTime<Utc>,
    state: State,
    ts: DateTime<Utc>,
}

#[derive(Deserialize)]
struct StreamConfig {
    #[serde(default)]
    max_bytes: i64,
}

#[derive(Deserialize)]
struct State {
    messages: u64,
    bytes: u64,
    first_seq: u64,
    last_seq: u64,
}

/// The state of a durable.
pub(crate) async fn consumer_info(
    client: &Client,
    stream: &str,
    durable: &str,
) -> Result<ConsumerInfo, Error> {
    let request = format!("CONSUMER.INFO.{stream}.{durable}");
    api::call(client, &request, &Value::Null).await
}

/// A durable at one moment.
#[derive(Deserialize)]
pub(crate) struct ConsumerInfo {
    pub(crate) config: ConsumerConfig,
    pub(crate) delivered: Position,
    pub(crate) ack_floor: Position,
    num_ack_pending: u64,
    pub(crate) num_pending: u64,
}

#[derive(Default, Deserialize)]
pub(crate) struct ConsumerConfig {
    /// Empty for the whole stream.
    #[serde(default)]
    pub(crate) filter_subject: String,
}

impl ConsumerInfo {
    fn unsettled(&self, at_or_below: u64) -> bool {
        let all_given = self.num_pending == 0 || self.delivered.stream_seq >= at_or_below;
        let settled = self.num_ack_pending == 0 && all_given;
        !settled && self.ack_floor.stream_seq < at_or_below
    }

    /// Whether it gave a message out and does not wait for it. The floor moves with the next
    /// acknowledgement only, so a durable without anything pending counts too.
    fn is_done_with(&self, sequence: u64) -> bool {
        sequence <= self.ack_floor.stream_seq
            || (self.num_ack_pending == 0 && sequence <= self.delivered.stream_seq)
    }
}

#[derive(Deserialize)]
pub(crate) struct Position {
    #[serde(default)]
    pub(crate) stream_seq: u64,
}

#[derive(Deserialize)]
struct Stored {
    message: StoredAt,
}

#[derive(Deserialize)]
struct StoredAt {
    seq: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_is_settled_only_when_nothing_is_pending_below() {
        // (delivered, floor, ack pending, pending) at or below 10
        let cases = [
            ((12, 12, 0, 5), false),
            ((12, 12, 3, 5), false),
            ((12, 9, 3, 0), true),
            ((9, 9, 0, 0), false),
            ((9, 9, 0, 1), true),
            ((9, 9, 1, 0), true),
            ((10, 4, 0, 7), false),
            ((0, 0, 0, 0), false),
        ];
        for ((delivered, floor, num_ack_pending, num_pending), expected) in cases {
            let info = ConsumerInfo {
                config: ConsumerConfig::default(),
                delivered: Position {
                    stream_seq: delivered,
                },
                ack_floor: Position { stream_seq: floor },
                num_ack_pending,
                num_pending,
            };
            assert_eq!(
                info.unsettled(10),
                expected,
                "{delivered} {floor} {num_ack_pending} {num_pending}"
            );
        }
    }
}
