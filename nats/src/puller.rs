//! Pulling from a durable JetStream consumer, without end.
//!
//! Owns one pull request at a time: at most `batch` messages and `max_bytes` bytes are on their way
//! to the caller, and the next request goes out when the last one's messages were taken. The
//! server's heartbeats tell a quiet stream from a dead one.
//!
//! What ends a pull early, and what follows:
//! - the server's time limit, a size limit, a shutdown, a change of leader: pull again;
//! - a connection that a message may have cut, since async-nats can't read it: take such messages
//!   off ([`Puller::keeping`]), then pull again;
//! - a new connection otherwise: what the server knew of the old one is gone, pull again at once;
//! - missed heartbeats, nobody serving the durable, the durable deleted: make sure that stream and
//!   durable exist (making them anew if not) and pull again, with growing pauses while that fails.
//!
//! Everything that lasts lives in `self` or in a task of its own, so [`Puller::next`] loses nothing
//! when it is cancelled, and even a caller that cancels it again and again gets on.

pub(crate) mod feed;
pub(crate) mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::client::Client;
use crate::error::Error;
use crate::incoming::Incoming;
use crate::topology;
use feed::{Feed, Turn};
use unreadable::{Keep, Look, Unreadable};

/// How a [`Puller`] pulls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullConfig {
    /// Messages on their way at the most, 1 or more.
    pub batch: usize,
    /// Bytes on their way at the most. A single larger message comes alone.
    pub max_bytes: usize,
    /// How long one request waits at the server, at least two heartbeats.
    pub expires: Duration,
    /// How often the server says that it is there; after two in vain the durable is looked after.
    pub heartbeat: Duration,
}

impl Default for PullConfig {
    fn default() -> Self {
        Self {
            batch: 256,
            max_bytes: 8 << 20,
            expires: Duration::from_secs(30),
            heartbeat: Duration::from_secs(2),
        }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// An endless source of one durable's messages.
pub struct Puller {
    client: Client,
    stream: String,
    durable: String,
    feed: Feed,
    keep: Option<Keep>,
    repair: Option<tokio::task::JoinHandle<Result<(), Error>>>,
    pauses: Pauses,
    not_before: Option<Instant>,
}

impl std::fmt::Debug for Puller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puller")
            .field("stream", &self.stream)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}

impl Puller {
    /// Prepares to pull; nothing is asked of the server before the first [`Puller::next`].
    #[must_use]
    pub fn new(client: &Client, stream: &str, durable: &str, config: PullConfig) -> Self {
        Self {
            client: client.clone(),
            stream: stream.to_owned(),
            durable: durable.to_owned(),
            feed: Feed::new(client, stream, durable, config),
            keep: None,
            repair: None,
            pauses: Pauses::new(),
            not_before: None,
        }
    }

    /// Hands over messages that can't be read before they are deleted; without, they are only
    /// logged. `keep` answers `false` where it can't take them now: it is asked again, and nothing
    /// is pulled until it can. The same message may come more than once, and from several pullers.
    #[must_use]
    pub fn keeping<F>(mut self, keep: impl Fn(Vec<Unreadable>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        self.keep = Some(Arc::new(move |unreadable| Box::pin(keep(unreadable))));
        self
    }

    /// The next message, however long that takes and whatever happens to the server meanwhile.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Incoming {
        loop {
            self.recover().await;
            match self.feed.turn().await {
                Turn::Message(message) => {
                    self.pauses.reset();
                    if let Some(incoming) = Incoming::read(message, &self.client) {
                        return incoming;
                    }
                }
                Turn::Alive => self.pauses.reset(),
                Turn::Again => {}
                Turn::Cut => {
                    let look = Look {
                        client: self.client.clone(),
                        stream: self.stream.clone(),
                        durable: self.durable.clone(),
                        keep: self.keep.clone(),
                    };
                    self.repair = Some(tokio::spawn(async move {
                        look.run().await;
                        Ok(())
                    }));
                }
                Turn::Refused(reason) => {
                    warn!(stream = %self.stream, durable = %self.durable, reason, "pull refused, pulling again");
                    self.wait_a_little();
                }
                Turn::Gone(reason) => {
                    info!(stream = %self.stream, durable = %self.durable, reason, "looking after stream and durable");
                    let (client, stream) = (self.client.clone(), self.stream.clone());
                    self.repair = Some(tokio::spawn(async move {
                        topology::ensure_stream(&client, &stream).await
                    }));
                }
            }
        }
    }

    /// Stops pulling. What was on its way is given back, to be delivered again at once.
    pub async fn stop(mut self) {
        for message in self.feed.drain().await {
            if let Some(incoming) = Incoming::read(message, &self.client) {
                incoming.token.nak(None).await;
            }
        }
    }

    /// Finishes a repair and sits out the pause after a failure.
    async fn recover(&mut self) {
        if let Some(repair) = &mut self.repair {
            let outcome = repair.await;
            self.repair = None;
            match outcome {
                // Even a repaired durable waits a little: one that can't last must not be made in
                // a tight loop.
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    warn!(stream = %self.stream, durable = %self.durable, %error, "stream or durable is not there yet");
                }
                Err(error) => warn!(stream = %self.stream, %error, "repair ended early"),
            }
            self.wait_a_little();
        }
        if let Some(at) = self.not_before {
            tokio::time::sleep_until(at).await;
            self.not_before = None;
        }
    }

    fn wait_a_little(&mut self) {
        self.not_before = Some(self.pauses.next());
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        if let Some(repair) = &self.repair {
            repair.abort();
        }
    }
}

/// Growing, jittered pauses between tries, small again once one succeeded.
pub(crate) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(crate) fn new() -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times();
        Self(builder.build())
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }

    /// When to try next.
    pub(crate) fn next(&mut self) -> Instant {
        Instant::now() + self.0.next().unwrap_or(LONGEST_PAUSE)
    }
}
