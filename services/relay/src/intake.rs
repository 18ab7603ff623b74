//! The `INTAKE` task: what producers publish to NATS is accepted, published and acknowledged.
//!
//! A message is acknowledged once the ledger has it, be it accepted or set aside, so nothing that
//! can't be accepted comes again and again or holds up what is behind it. Its key, where the
//! producer gave none, is when and where the stream stored it: both stay the same over
//! redeliveries, and a stream that was made anew does not repeat them.
//!
//! A message that can't even be read ends the connection when it is delivered. The puller finds it
//! and hands it over ([`crate::unreadable`]) before it pulls again.

use std::time::Duration;

use bytes::Bytes;
use hooklane_nats::events::Lane;
use hooklane_nats::{AckToken, Incoming, PullConfig, Puller};
use hooklane_proto::header;
use hooklane_proto::subject::{self, parse_intake};
use hooklane_proto::trace::TraceContext;
use hooklane_store::accept::{Accepted, Origin};
use hooklane_store::intake::{Offer, Payload};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::pace::Faults;
use crate::{Error, Parts, receipt, spans, unreadable};

/// How often the broker hears that messages are still in hand: well within the ack wait.
const PROGRESS: Duration = Duration::from_secs(3);
/// How long [`once`] waits for a message before it calls the stream empty.
const EMPTY: Duration = Duration::from_secs(1);
/// The content type of messages that name none.
pub(crate) const JSON: &str = "application/json";

/// Messages in hand.
#[derive(Default)]
struct Batch {
    offers: Vec<Offer>,
    tokens: Vec<AckToken>,
    receipts: Vec<Option<String>>,
    bytes: usize,
}

/// Reads `INTAKE` until `shutdown`.
pub(crate) async fn run(parts: Parts, shutdown: CancellationToken) {
    let lane = parts.lane();
    let mut faults = Faults::new("intake");
    let mut puller = puller(&parts);
    while let Some(first) = shutdown.run_until_cancelled(puller.next()).await {
        let mut batch = gather(&parts, &mut puller, first).await;
        while !batch.tokens.is_empty() {
            let taken = hold(&batch.tokens, take_in(&parts, &batch.offers)).await;
            match taken {
                Ok(accepted) => {
                    faults.over();
                    batch = settle(&parts, &lane, batch, accepted).await;
                }
                // Dropped tokens give their messages back, for another relay or the next start.
                Err(_) if shutdown.is_cancelled() => break,
                Err(error) => hold(&batch.tokens, faults.pause(&error, &shutdown)).await,
            }
        }
    }
    puller.stop().await;
    lane.finish().await;
}

/// Takes in what is there now.
pub(crate) async fn once(parts: &Parts) -> Result<(), Error> {
    let lane = parts.lane();
    let mut puller = puller(parts);
    let outcome = async {
        while let Ok(first) = tokio::time::timeout(EMPTY, puller.next()).await {
            let mut batch = gather(parts, &mut puller, first).await;
            while !batch.tokens.is_empty() {
                let accepted = hold(&batch.tokens, take_in(parts, &batch.offers)).await?;
                batch = settle(parts, &lane, batch, accepted).await;
            }
        }
        Ok::<_, hooklane_store::Error>(())
    }
    .await;
    puller.stop().await;
    lane.finish().await;
    parts.client.flush().await?;
    Ok(outcome?)
}

fn puller(parts: &Parts) -> Puller {
    let config = PullConfig {
        batch: parts.config.intake.batch,
        max_bytes: parts.config.intake.batch_bytes,
        ..PullConfig::default()
    };
    Puller::new(
        &parts.intake_client,
        subject::INTAKE,
        subject::INTAKE_DURABLE,
        config,
    )
    .keeping(unreadable::keep(parts))
}

/// When and where the stream stored a message, its time in nanoseconds.
pub(crate) fn place(nanos: i64, sequence: u64) -> String {
    format!("{nanos}:{sequence}")
}

/// A batch that begins with `first`, with whatever else comes soon.
async fn gather(parts: &Parts, puller: &mut Puller, first: Incoming) -> Batch {
    let config = &parts.config.intake;
    let until = Instant::now() + config.linger;
    let mut batch = Batch::default();
    batch.push(first);
    while batch.tokens.len() < config.batch && batch.bytes < config.batch_bytes {
        match tokio::time::timeout_at(until, puller.next()).await {
            Ok(next) => batch.push(next),
            Err(_elapsed) => break,
        }
    }
    batch
}

async fn take_in(parts: &Parts, offers: &[Offer]) -> Result<Accepted, hooklane_store::Error> {
    let mut offers = offers.to_vec();
    let spans = spans::open(&mut offers);
    let accepted = parts
        .store
        .take_in(&parts.settings, parts.config.patience, &offers)
        .await;
    drop(spans);
    accepted
}

/// Waits for `work`, telling the broker meanwhile that the messages are in hand.
async fn hold<T>(tokens: &[AckToken], work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut tick = tokio::time::interval_at(Instant::now() + PROGRESS, PROGRESS);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = tick.tick() => {
                for token in tokens {
                    token.progress().await;
                }
            }
        }
    }
}

/// Publishes, answers and acknowledges what was taken; returns the rest.
async fn settle(parts: &Parts, lane: &Lane, batch: Batch, accepted: Accepted) -> Batch {
    let outcomes = accepted.outcomes.clone();
    parts.publish(lane, accepted).await;
    let Batch {
        mut offers,
        mut tokens,
        mut receipts,
        bytes,
    } = batch;
    let rest = Batch {
        offers: offers.split_off(outcomes.len()),
        tokens: tokens.split_off(outcomes.len()),
        receipts: receipts.split_off(outcomes.len()),
        bytes,
    };
    for ((offer, outcome), to) in offers.iter().zip(&outcomes).zip(receipts) {
        let Some(to) = to else { continue };
        if !receipt::may_go_to(&to) {
            debug!(
                source_id = offer.source_id,
                "a receipt is asked for where none may go"
            );
            continue;
        }
        let key = offer.key.as_deref().or(offer.fallback_key.as_deref());
        let body = Bytes::from(receipt::of(outcome, key.unwrap_or_default()));
        if let Err(error) = parts.client.publish_core(to, body).await {
            debug!(%error, "a receipt could not be sent");
        }
    }
    for token in tokens {
        token.ack().await;
    }
    rest
}

impl Batch {
    fn push(&mut self, message: Incoming) {
        self.bytes += message.size();
        self.receipts
            .push(message.header(header::RECEIPT_TO).map(str::to_owned));
        self.offers.push(offer(&message));
        self.tokens.push(message.token);
    }
}

fn offer(message: &Incoming) -> Offer {
    let (consumer, event_type) = parse_intake(&message.subject).unzip();
    let nanos = message.published.timestamp_nanos_opt().unwrap_or_default();
    let place = place(nanos, message.stream_sequence);
    let trace = message
        .header(header::TRACEPARENT)
        .and_then(|parent| TraceContext::parse(parent, message.header(header::TRACESTATE)));
    Offer {
        origin: Origin::Intake,
        fallback_key: Some(format!("intake:{place}")),
        source_id: place,
        consumer: consumer.map(str::to_owned),
        event_type: event_type.map(str::to_owned),
        content_type: message
            .header(header::CONTENT_TYPE)
            .unwrap_or(JSON)
            .to_owned(),
        payload: Payload::Bytes(message.payload.clone()),
        key: message.header(header::IDEMPOTENCY_KEY).map(str::to_owned),
        trace,
    }
}
