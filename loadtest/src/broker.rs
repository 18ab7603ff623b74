//! What the broker still holds right after a crash: every delivery, and every event not yet fanned
//! out, whose message was not settled.
//!
//! A message that is settled can't come again, so whatever a crash makes hooklane repeat is among
//! these.

use std::collections::HashSet;
use std::str::FromStr;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use hooklane_nats::stored::{self, Stored};
use hooklane_nats::{Client, Error, inspect};
use hooklane_proto::header;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::subject;
use hooklane_store::Store;
use hooklane_store::audit;

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
