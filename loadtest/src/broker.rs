//! What the broker still holds right after a crash: every delivery, and every event not yet fanned
//! out, whose message was not settled.
//!
//! A message that is settled can't come again, so whatever a crash makes hooklane repeat is among
//! these.

use std::collections::HashSet;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use hooklane_nats::stored::{self, Stored};
use hooklane_nats::{Client, Error, inspect};
use hooklane_proto::header;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::subject;
use hooklane_store::Store;
use hooklane_store::audit;
use serde_json::Value;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A delivery: a message for an endpoint.
pub type Pair = (MessageId, EndpointId);

/// What was not settled.
#[derive(Debug, Default)]
pub struct Unsettled {
    /// Messages of `DELIVERIES`.
    pub deliveries: HashSet<Pair>,
    /// Messages of `EVENTS` above the ack floor.
    pub events: HashSet<MessageId>,
}

/// Every delivery that is under way: its message is not settled, or its event's is not and the
/// ledger does not know it as ended. It may have been parked in the ledger already, from where it is
/// driven, while the event comes again.
///
/// # Errors
/// Where the broker or the ledger can't be read.
pub async fn under_way(client: &Client, store: &Store) -> Result<HashSet<Pair>> {
    let unsettled = unsettled(client).await?;
    let mut open = unsettled.deliveries;
    let not_ended = audit::not_ended(store).await?.into_iter();
    open.extend(not_ended.filter(|(message, _)| unsettled.events.contains(message)));
    Ok(open)
}

/// Everything not settled; empty where the streams are not there.
///
/// # Errors
/// Where the broker can't be read.
pub async fn unsettled(client: &Client) -> Result<Unsettled> {
    let partitions = (0..client.partitions()).map(|partition| of_partition(client, partition));
    let mut all = Unsettled::default();
    for found in try_join_all(partitions).await? {
        all.deliveries.extend(found.deliveries);
        all.events.extend(found.events);
    }
    Ok(all)
}

/// How many bytes a stream may hold; `None` where there is no such stream, or no limit.
///
/// # Errors
/// Where the broker can't be asked.
pub async fn limit(client: &Client, stream: &str) -> Result<Option<u64>> {
    let state = inspect::stream_state(client, stream).await;
    let limit = or_default(state.map(|state| state.max_bytes));
    limit.with_context(|| format!("asking for the size of {stream}"))
}

/// Sets how many bytes a stream may hold. One that refuses what is new when it is full keeps what it
/// has, however much that is.
///
/// # Errors
/// Where there is no such stream or the broker refuses.
pub async fn resize(client: &Client, stream: &str, bytes: u64) -> Result<()> {
    let mut info = call(client, &format!("STREAM.INFO.{stream}"), &Value::Null).await?;
    let mut config = info["config"].take();
    config["max_bytes"] = bytes.into();
    call(client, &format!("STREAM.UPDATE.{stream}"), &config).await?;
    Ok(())
}

async fn call(client: &Client, request: &str, body: &Value) -> Result<Value> {
    let subject = format!("$JS.API.{request}");
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let answer = client
        .request(subject, body.into(), ANSWER)
        .await
        .with_context(|| format!("asking the broker for {request}"))?;
    let answer: Value = serde_json::from_slice(&answer).context("reading the broker's answer")?;
    ensure!(answer.get("error").is_none(), "{request}: {answer}");
    Ok(answer)
}

async fn of_partition(client: &Client, partition: u16) -> Result<Unsettled> {
    let mut found = Unsettled::default();
    let filter = subject::deliveries_of(partition);
    for message in from(client, subject::DELIVERIES, 1, &filter).await? {
        let pair = (
            value(&message, header::MESSAGE)?,
            value(&message, header::ENDPOINT)?,
        );
        found.deliveries.insert(pair);
    }
    let durable = subject::fanout_durable(partition);
    let floor = inspect::ack_floor(client, subject::EVENTS, &durable).await;
    let floor = or_default(floor).context("asking for an ack floor")?;
    // Above the floor some are settled; the broker does not say which.
    let filter = subject::events_of(partition);
    for message in from(client, subject::EVENTS, floor + 1, &filter).await? {
        found.events.insert(value(&message, header::MESSAGE)?);
    }
    Ok(found)
}

/// What a stream holds from a sequence on.
async fn from(client: &Client, stream: &str, first: u64, filter: &str) -> Result<Vec<Stored>> {
    let mut all = Vec::new();
    let mut sequence = first;
    loop {
        let next = stored::next(client, stream, sequence, filter).await;
        let next = or_default(next).with_context(|| format!("reading {stream}"))?;
        let Some(message) = next else {
            return Ok(all);
        };
        sequence = message.sequence + 1;
        all.push(message);
    }
}

/// Nothing is kept where there is no such stream or durable.
fn or_default<T: Default>(found: Result<T, Error>) -> Result<T, Error> {
    match found {
        Err(error) if error.is_not_found() => Ok(T::default()),
        found => found,
    }
}

fn value<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    message: &Stored,
    name: &str,
) -> Result<T> {
    let text = message.header(name);
    let text = text.with_context(|| format!("a message without {name}"))?;
    text.parse().with_context(|| format!("reading {name}"))
}

#[cfg(test)]
mod tests {
    use hooklane_nats::{Config, Outgoing, PublishError, Publisher, topology};
    use hooklane_proto::header::Headers;
    use hooklane_testkit::nats::Server;
    use tokio::time::Instant;

    use super::*;

    async fn publish(client: &Client, within: Duration) -> Result<(), PublishError> {
        let record = Outgoing {
            subject: subject::records(0),
            headers: Headers::new(),
            payload: "a record".into(),
        };
        let publisher = Publisher::new(client, 1, 1 << 10);
        let published = publisher.publish(record, Instant::now() + within).await;
        published.map(drop)
    }

    #[tokio::test]
    async fn a_stream_of_no_size_refuses_what_is_new_and_keeps_what_it_has() {
        let server = Server::start().await.unwrap();
        let config = Config {
            url: server.url().to_owned().into(),
            ..Config::default()
        };
        let client = Client::connect(&config).await.unwrap();
        let records = subject::RECORDS;
        assert_eq!(limit(&client, records).await.unwrap(), None);
        topology::ensure(&client).await.unwrap();
        publish(&client, ANSWER).await.unwrap();

        let before = limit(&client, records).await.unwrap().unwrap();
        resize(&client, records, 1).await.unwrap();
        let refused = publish(&client, Duration::from_millis(300)).await;
        assert!(
            matches!(refused, Err(PublishError::GaveUp(_))),
            "{refused:?}"
        );
        let state = inspect::stream_state(&client, records).await.unwrap();
        assert_eq!((state.messages, state.max_bytes), (1, Some(1)));

        resize(&client, records, before).await.unwrap();
        publish(&client, ANSWER).await.unwrap();
        let state = inspect::stream_state(&client, records).await.unwrap();
        assert_eq!((state.messages, state.max_bytes), (2, Some(before)));
    }
}
