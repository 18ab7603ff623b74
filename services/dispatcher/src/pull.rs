//! Pulling a partition's events and deliveries from the broker, as many as may be held.
//!
//! Owns reading messages, dead-lettering what can't be read, dropping copies that came too late, and
//! acknowledging again what was settled before. Permits are taken before a message is: so nothing waits unheld in this process
//! but what one pull request brings, which is bounded in number and bytes.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use hooklane_core::clock;
use hooklane_nats::{AckToken, Incoming, Outgoing, PullConfig, Puller};
use hooklane_proto::dead_letter::{UNREADABLE, Unreadable};
use hooklane_proto::delivery::Delivery;
use hooklane_proto::event::Event;
use hooklane_proto::header::HeaderError;
use hooklane_proto::subject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Span, debug, warn};

use crate::attempt::drive;
use crate::fanout::copies::HeldEvent;
use crate::fanout::{self, Msg};
use crate::grip::{Grip, Tokens};
use crate::lane::hand::Held;
use crate::memory::Seen;
use crate::partition::{Context, EVENTS_HELD};

/// Messages given to the fan-out at a time.
const TOGETHER: usize = 128;
/// Bytes on their way in one pull request.
const PULL_BYTES: usize = 1 << 20;
/// What a held message occupies beside its payload: headers, tokens, places in queues.
const OVERHEAD: usize = 1 << 10;
/// How long the broker may take to store what can't be read. The pull stands still meanwhile.
const DEAD_LETTER: Duration = Duration::from_secs(2);
/// After this what could not be stored comes again.
const AGAIN: Duration = Duration::from_secs(2);

/// Two sources with a common way of pulling.
pub(crate) struct Source {
    pub(crate) context: Arc<Context>,
    pub(crate) fanout: fanout::Ref,
    pub(crate) brake: watch::Receiver<bool>,
    pub(crate) stop: CancellationToken,
}

/// Pulls deliveries until stopped.
pub(crate) async fn deliveries(source: Source, memory: Arc<Tokens>) {
    let durable = subject::lanes_durable(source.context.partition);
    let permits = Arc::clone(&source.context.permits);
    source
        .pull(
            subject::DELIVERIES,
            &durable,
            permits,
            |context, message, permit| read_delivery(context, &memory, message, permit),
            Msg::Deliveries,
        )
        .await;
}

/// Pulls events until stopped.
pub(crate) async fn events(source: Source) {
    let durable = subject::fanout_durable(source.context.partition);
    let permits = Arc::new(Semaphore::new(EVENTS_HELD));
    source
        .pull(subject::EVENTS, &durable, permits, read_event, Msg::Events)
        .await;
}

/// What became of a message that was read.
enum Read<T> {
    Held(T),
    /// Nothing is to be done with it.
    Ack(AckToken),
    /// It can't be read.
    Unreadable(AckToken, Box<Unreadable>),
    /// A copy of one in hand; it was set aside.
    Aside,
}

impl Source {
    async fn pull<T>(
        mut self,
        stream: &str,
        durable: &str,
        permits: Arc<Semaphore>,
        read: impl Fn(&Context, Incoming, OwnedSemaphorePermit) -> Read<T>,
        message: impl Fn(Vec<T>) -> Msg,
    ) {
        let config = PullConfig {
            batch: permits.available_permits().min(256),
            max_bytes: PULL_BYTES,
            ..PullConfig::default()
        };
        let mut puller = Puller::new(&self.context.nats, stream, durable, config);
        let stop = self.stop.clone();
        loop {
            let next = async {
                self.brake.wait_for(|braked| !braked).await.ok();
                self.context.budget.below_bytes().await;
                let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
                Some((puller.next().await, permit))
            };
            let first = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                first = next => first,
            };
            // The permits are never closed.
            let Some((first, permit)) = first else { break };
            let mut together = Vec::new();
            self.sort(read(&self.context, first, permit), &mut together)
                .await;
            while together.len() < TOGETHER
                && let Ok(permit) = Arc::clone(&permits).try_acquire_owned()
                && let Some(more) = puller.next().now_or_never()
            {
                self.sort(read(&self.context, more, permit), &mut together)
                    .await;
            }
            if !together.is_empty() && self.fanout.cast(message(together)).is_err() {
                debug!(durable, "the fan-out is gone");
                break;
            }
        }
        puller.stop().await;
    }

    async fn sort<T>(&self, read: Read<T>, together: &mut Vec<T>) {
        match read {
            Read::Held(held) => together.push(held),
            Read::Aside => {}
            Read::Ack(token) => token.ack().await,
            Read::Unreadable(token, unreadable) => self.dead_letter(token, *unreadable).await,
        }
    }

    /// What can't be read goes into `DLQ` with what is there, and only then goes from its stream:
    /// whole, which nobody could make it again from the ledger.
    async fn dead_letter(&self, token: AckToken, unreadable: Unreadable) {
        let letter = Outgoing {
            subject: unreadable.subject(),
            headers: unreadable.headers(),
            payload: unreadable.payload,
        };
        let subject = letter.subject.clone();
        let give_up = Instant::now() + DEAD_LETTER;
        let filed = self.context.copies.publish(letter, give_up).await;
        if let Err(error) = &filed
            && error.is_transient()
        {
            warn!(partition = self.context.partition, %error, "a message can't be read, and not be dead-lettered yet");
            token.nak(Some(AGAIN)).await;
            return;
        }
        warn!(
            partition = self.context.partition,
            subject,
            kept = filed.is_ok(),
            "a message can't be read, it is in DLQ"
        );
        if let Err(error) = token.term(UNREADABLE).await {
            debug!(%error, "the message will come again");
        }
    }
}

fn read_delivery(
    context: &Context,
    memory: &Arc<Tokens>,
    message: Incoming,
    permit: OwnedSemaphorePermit,
) -> Read<Held> {
    let payload = message.payload.clone();
    let read = Delivery::read(&message.subject, |name| message.header(name), payload);
    let delivery = match read {
        Ok(delivery) => delivery,
        Err(error) => return unreadable(subject::DELIVERIES, message, &error),
    };
    let Incoming {
        published, token, ..
    } = message;
    if published > delivery.not_after {
        return Read::Ack(token);
    }
    let drive = drive(&delivery);
    let token = match memory.enter(drive, token) {
        Seen::New(token) => token,
        Seen::InHand => return Read::Aside,
        Seen::Settled(token) => return Read::Ack(token),
    };
    let bytes = context.budget.hold(delivery.payload.len() + OVERHEAD);
    let pulled = context.time.now();
    Read::Held(Held {
        grip: Grip::new(token, drive, Arc::clone(memory), bytes, permit),
        delivery: Arc::new(delivery),
        pulled,
        told: pulled,
        span: Span::none(),
        flight: None,
    })
}

fn read_event(
    context: &Context,
    message: Incoming,
    permit: OwnedSemaphorePermit,
) -> Read<HeldEvent> {
    let payload = message.payload.clone();
    let read = Event::read(&message.subject, |name| message.header(name), payload);
    let event = match read {
        Ok(event) => event,
        Err(error) => return unreadable(subject::EVENTS, message, &error),
    };
    let Incoming {
        published,
        token,
        delivered,
        ..
    } = message;
    if published > event.not_after || event.targets.is_empty() {
        return Read::Ack(token);
    }
    let bytes = context.budget.hold(event.payload.len() + OVERHEAD);
    Read::Held(HeldEvent {
        event,
        token,
        pulled_at: clock::now(),
        again: delivered > 1,
        bytes,
        permit,
    })
}

fn unreadable<T>(stream: &'static str, message: Incoming, problem: &HeaderError) -> Read<T> {
    let unreadable = Unreadable::new(
        stream,
        message.stream_sequence,
        message.published,
        &message.subject,
        |name| message.header(name),
        message.payload.clone(),
        problem,
    );
    Read::Unreadable(message.token, Box::new(unreadable))
}
