//! What the broker still holds right after a kill: every delivery, and every event not yet fanned
//! out, whose message was not settled.
//!
//! A message that is settled can't come again, so whatever a kill makes hooklane repeat is among
//! these.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::try_join_all;
use hooklane_nats::Client;
use hooklane_proto::header;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::subject;
use serde::Deserialize;
use serde_json::json;

/// A delivery: a message for an endpoint.
pub(crate) type Pair = (MessageId, EndpointId);

const TIMEOUT: Duration = Duration::from_secs(10);

/// What was not settled.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    pub(crate) deliveries: HashSet<Pair>,
    pub(crate) events: HashSet<MessageId>,
}

#[derive(Deserialize)]
struct Answer {
    message: Option<Stored>,
}

#[derive(Deserialize)]
struct Stored {
    seq: u64,
    hdrs: String,
}

#[derive(Deserialize)]
struct ConsumerInfo {
    ack_floor: Option<Floor>,
}

#[derive(Deserialize)]
struct Floor {
    stream_seq: u64,
}

/// Everything not settled; empty where the streams are not there.
pub(crate) async fn unsettled(client: &Client) -> Result<Unsettled> {
    let partitions = (0..client.partitions()).map(|partition| of_partition(client, partition));
    let mut all = Unsettled::default();
    for found in try_join_all(partitions).await? {
        all.deliveries.extend(found.deliveries);
        all.events.extend(found.events);
    }
    Ok(all)
}

async fn of_partition(client: &Client, partition: u16) -> Result<Unsettled> {
    let mut found = Unsettled::default();
    let filter = subject::deliveries_of(partition);
    for headers in stored(client, subject::DELIVERIES, 1, &filter).await? {
        let pair = (
            value(&headers, header::MESSAGE)?.parse()?,
            value(&headers, header::ENDPOINT)?.parse()?,
        );
        found.deliveries.insert(pair);
    }
    let durable = format!(
        "CONSUMER.INFO.{}.{}",
        subject::EVENTS,
        subject::fanout_durable(partition)
    );
    let info: ConsumerInfo = ask(client, &durable, Bytes::new()).await?;
    // Above the floor some are settled; the broker does not say which.
    let first = info.ack_floor.map_or(1, |floor| floor.stream_seq + 1);
    let filter = subject::events_of(partition);
    for headers in stored(client, subject::EVENTS, first, &filter).await? {
        found
            .events
            .insert(value(&headers, header::MESSAGE)?.parse()?);
    }
    Ok(found)
}

/// The headers of what a stream holds from a sequence on.
async fn stored(client: &Client, stream: &str, first: u64, filter: &str) -> Result<Vec<String>> {
    let request = format!("STREAM.MSG.GET.{stream}");
    let mut all = Vec::new();
    let mut sequence = first;
    loop {
        let wanted = json!({ "seq": sequence, "next_by_subj": filter });
        let answer: Answer = ask(client, &request, Bytes::from(wanted.to_string())).await?;
        let Some(message) = answer.message else {
            return Ok(all);
        };
        sequence = message.seq + 1;
        let headers = STANDARD.decode(message.hdrs).context("decoding headers")?;
        all.push(String::from_utf8(headers).context("reading headers")?);
    }
}

async fn ask<T: serde::de::DeserializeOwned>(
    client: &Client,
    what: &str,
    payload: Bytes,
) -> Result<T> {
    let answer = client
        .request(format!("$JS.API.{what}"), payload, TIMEOUT)
        .await
        .with_context(|| format!("asking for {what}"))?;
    serde_json::from_slice(&answer).with_context(|| format!("reading the answer to {what}"))
}

fn value<'a>(headers: &'a str, name: &str) -> Result<&'a str> {
    headers
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.trim())
        .with_context(|| format!("a message without {name}"))
}
