//! One pull request after the other on one inbox: the protocol of `CONSUMER.MSG.NEXT`.
//!
//! Owns the inbox and what of the current request is still to come. Knows nothing of streams that
//! have to be made anew; it says [`Turn::Gone`] and is asked again when that is repaired.

use std::time::Duration;

use async_nats::{Message, Subject, Subscriber};
use futures::StreamExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::PullConfig;
use super::unreadable::Cuts;
use crate::client::Client;
use crate::incoming::status;

/// On top of two heartbeats: the server's timers and the way here.
const GRACE: Duration = Duration::from_millis(500);
/// How long the server may take to end a subscription.
const DRAIN: Duration = Duration::from_secs(2);

/// What came of one turn.
pub(crate) enum Turn {
    /// A message of the stream.
    Message(Message),
    /// The server is there and has nothing.
    Alive,
    /// Nothing was learnt.
    Again,
    /// The connection was lost while messages were on their way, perhaps by one of them.
    Cut,
    /// The server does not take this request, for a reason that may pass.
    Refused(String),
    /// Stream or durable may be gone.
    Gone(&'static str),
}

/// The state of one endless pull.
pub(crate) struct Feed {
    client: Client,
    next: String,
    config: PullConfig,
    inbox: Option<Inbox>,
    cuts: Cuts,
    generation: watch::Receiver<u64>,
}

struct Inbox {
    answers: Subscriber,
    prefix: String,
    /// Grows with each request: what is said about an earlier one is not about this one.
    pull: u64,
    /// Messages of the current request that are still to come.
    open: usize,
    /// What came of the current request.
    came: usize,
    /// The next request takes one message of any size.
    alone: bool,
    /// Without a sign of life until then the server is taken for dead.
    dead_at: Instant,
    /// The connection that the current request went out on.
    connects: u64,
}

impl Feed {
    pub(crate) fn new(client: &Client, stream: &str, durable: &str, config: PullConfig) -> Self {
        let heartbeat = config.heartbeat.max(Duration::from_millis(200));
        Self {
            client: client.clone(),
            next: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
            config: PullConfig {
                batch: config.batch.max(1),
                max_bytes: config.max_bytes.max(1),
                // The server refuses a heartbeat longer than half the request.
                expires: config.expires.max(heartbeat * 2 + heartbeat / 2),
                heartbeat,
            },
            inbox: None,
            cuts: Cuts::new(client),
            generation: client.generation(),
        }
    }

    /// One step. Cancel-safe: what arrived is either returned or still in the inbox.
    pub(crate) async fn turn(&mut self) -> Turn {
        let connected_by = Instant::now() + Duration::from_secs(1);
        if !self.client.is_connected() && !self.client.connected(connected_by).await {
            return Turn::Again;
        }
        let Some(inbox) = &mut self.inbox else {
            self.inbox = Inbox::open(&self.client).await;
            return match self.inbox {
                Some(_) => Turn::Again,
                None => Turn::Refused("the connection is closed".to_owned()),
            };
        };
        let connects = self.client.connects();
        if inbox.connects != connects {
            inbox.connects = connects;
            let open = std::mem::take(&mut inbox.open);
            if open > 0 && self.cuts.note(&self.client) {
                return Turn::Cut;
            }
        }
        if inbox.open == 0
            && let Err(refused) = inbox.pull(&self.client, &self.next, &self.config).await
        {
            return refused;
        }
        tokio::select! {
            // Messages first: after a caller's long absence the signs of life are in the inbox.
            biased;
            answer = inbox.answers.next() => {
                let Some(message) = answer else {
                    self.inbox = None;
                    return Turn::Again;
                };
                inbox.dead_at = Instant::now() + self.config.heartbeat * 2 + GRACE;
                inbox.take(message)
            }
            // Closed only when the client is gone, and then the inbox ends too.
            Ok(()) = self.generation.changed() => Turn::Again,
            () = tokio::time::sleep_until(inbox.dead_at) => {
                inbox.open = 0;
                Turn::Gone("no heartbeat")
            }
        }
    }

    /// Ends the pull; the messages that were on their way.
    pub(crate) async fn drain(&mut self) -> Vec<Message> {
        let mut rest = Vec::new();
        let Some(mut inbox) = self.inbox.take() else {
            return rest;
        };
        if inbox.answers.drain().await.is_err() {
            return rest;
        }
        let until = Instant::now() + DRAIN;
        while let Ok(Some(message)) = tokio::time::timeout_at(until, inbox.answers.next()).await {
            if status(&message).is_none() {
                rest.push(message);
            }
        }
        rest
    }
}

impl Inbox {
    async fn open(client: &Client) -> Option<Self> {
        let prefix = client.inner.nats.new_inbox();
        let answers = client.inner.nats.subscribe(format!("{prefix}.*")).await;
        Some(Self {
            answers: answers.ok()?,
            prefix,
            pull: 0,
            open: 0,
            came: 0,
            alone: false,
            dead_at: Instant::now(),
            connects: client.connects(),
        })
    }

    async fn pull(&mut self, client: &Client, next: &str, config: &PullConfig) -> Result<(), Turn> {
        let batch = if self.alone { 1 } else { config.batch };
        let mut request = serde_json::json!({
            "batch": batch,
            "expires": nanoseconds(config.expires),
            "idle_heartbeat": nanoseconds(config.heartbeat),
        });
        if !self.alone {
            request["max_bytes"] = config.max_bytes.into();
        }
        let reply = Subject::from(format!("{}.{}", self.prefix, self.pull + 1));
        let sent = client
            .inner
            .nats
            .publish_with_reply(next.to_owned(), reply, request.to_string().into())
            .await;
        sent.map_err(|error| Turn::Refused(error.to_string()))?;
        self.pull += 1;
        self.open = batch;
        self.came = 0;
        self.alone = false;
        self.dead_at = Instant::now() + config.heartbeat * 2 + GRACE;
        Ok(())
    }

    fn take(&mut self, message: Message) -> Turn {
        let Some(code) = status(&message) else {
            self.open = self.open.saturating_sub(1);
            self.came += 1;
            return Turn::Message(message);
        };
        let about = message.subject.strip_prefix(self.prefix.as_str());
        let about = about.and_then(|id| id.strip_prefix('.')?.parse().ok());
        if about != Some(self.pull) {
            return Turn::Again;
        }
        if code == 100 {
            return Turn::Alive;
        }
        // Everything else ends the request.
        self.open = 0;
        let words = message.description.as_deref().unwrap_or_default();
        match (code, words) {
            (408, "Request Timeout") | (404, _) | (409, "Batch Completed") => Turn::Alive,
            (409, "Message Size Exceeds MaxBytes") => {
                self.alone = self.came == 0;
                Turn::Alive
            }
            (409, "Consumer Deleted") => Turn::Gone("the durable was deleted"),
            (503, _) => Turn::Gone("nobody serves the durable"),
            _ => Turn::Refused(format!("{code} {words}")),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
