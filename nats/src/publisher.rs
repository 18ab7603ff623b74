//! Publishing into streams: pipelined, bounded, acknowledged, and repeated with the same id.
//!
//! A round sends what is open, in order, and collects the acknowledgements; what failed for a
//! reason that can pass is sent again after a pause, under the same `Nats-Msg-Id`, so that the
//! broker drops what it already has. A reason that can't pass ends that message at once. The
//! window (messages and bytes) is shared by all clones: who would exceed it waits.
//!
//! Order: the first round stores a batch in order. A message that had to be repeated may be stored
//! after later ones.

use std::sync::Arc;
use std::time::Duration;

use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use hooklane_proto::header::Headers;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::debug;

use crate::api;
use crate::client::Client;
use crate::error::Error;
use crate::replies::{Pending, Permits};

/// How long one acknowledgement may take before the message is sent again.
const ATTEMPT: Duration = Duration::from_secs(2);
/// `NATS/1.0` and the line breaks around a message's headers.
const HEADER_FRAME: usize = 12;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A message to publish. Give it a `Nats-Msg-Id`, or a repetition may store it twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The subject, without a partition.
    pub subject: String,
    /// Its headers.
    pub headers: Headers,
    /// The exact bytes.
    pub payload: Bytes,
}

impl Outgoing {
    /// Bytes that it occupies: subject, headers and payload.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len() + 4)
            .sum();
        self.subject.len() + HEADER_FRAME + headers + self.payload.len()
    }
}

/// The broker has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub struct PubAck {
    /// Its place in the stream.
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// The broker had it already: an earlier attempt got through.
    #[serde(default)]
    pub duplicate: bool,
}

/// A message that the broker did not confirm.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// It can never be stored: too large, a bad subject, a header with a line break, or refused.
    #[error("can't be published: {0}")]
    Permanent(Error),
    /// It was not confirmed in time. The broker may have it all the same.
    #[error("not confirmed in time, last because: {0}")]
    GaveUp(Error),
}

impl PublishError {
    /// Whether a later try may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::GaveUp(_))
    }
}

/// Publishes into streams. Clones share one window.
#[derive(Clone)]
pub struct Publisher {
    client: Client,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    window_bytes: u32,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("messages_free", &self.messages.available_permits())
            .field("bytes_free", &self.bytes.available_permits())
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// At most `window` messages and `window_bytes` bytes are unacknowledged at a time; a message
    /// larger than the window goes alone. Both are at least 1; more than 30,000 messages are
    /// 30,000, and more than 4 GiB are 4 GiB.
    #[must_use]
    pub fn new(client: &Client, window: usize, window_bytes: usize) -> Self {
        let window_bytes = u32::try_from(window_bytes).unwrap_or(u32::MAX).max(1);
        Self {
            client: client.clone(),
            messages: Arc::new(Semaphore::new(window.clamp(1, 30_000))),
            bytes: Arc::new(Semaphore::new(window_bytes as usize)),
            window_bytes,
        }
    }

    /// Publishes one message and waits for the broker's acknowledgement.
    ///
    /// # Errors
    /// [`PublishError::Permanent`] at once, [`PublishError::GaveUp`] at `give_up`.
    pub async fn publish(
        &self,
        message: Outgoing,
        give_up: Instant,
    ) -> Result<PubAck, PublishError> {
        let mut pauses = pauses();
        loop {
            let last = match self.attempt(&message, give_up).await {
                Outcome::Done(result) => return result,
                Outcome::Again(error) => error,
            };
            if !pause(pauses.next(), give_up).await {
                return Err(PublishError::GaveUp(last));
            }
        }
    }

    /// Publishes a batch with all of it in flight at once, as far as the window allows. Results
    /// stand in the messages' order.
    ///
    /// # Errors
    /// Per message, as [`Publisher::publish`].
    pub async fn publish_all(
        &self,
        messages: Vec<Outgoing>,
        give_up: Instant,
    ) -> Vec<Result<PubAck, PublishError>> {
        let mut results: Vec<Result<PubAck, PublishError>> = Vec::new();
        results.resize_with(messages.len(), || {
            Err(PublishError::GaveUp(Error::Disconnected))
        });
        let mut open: Vec<usize> = (0..messages.len()).collect();
        let mut pauses = pauses();
        while !open.is_empty() {
            let mut again = Vec::new();
            for (at, outcome) in self.round(&messages, &open, give_up).await {
                results[at] = match outcome {
                    Outcome::Done(result) => result,
                    Outcome::Again(error) => {
                        again.push(at);
                        Err(PublishError::GaveUp(error))
                    }
                };
            }
            open = again;
            if let Some(Err(reason)) = open.first().map(|&at| &results[at]) {
                debug!(open = open.len(), %reason, "publishing again");
                if !pause(pauses.next(), give_up).await {
                    break;
                }
            }
        }
        results
    }

    /// Sends the open messages in order, then collects what came back.
    async fn round(
        &self,
        messages: &[Outgoing],
        open: &[usize],
        give_up: Instant,
    ) -> Vec<(usize, Outcome)> {
        let mut sent = Vec::with_capacity(open.len());
        let mut stuck = false;
        for &at in open {
            // Once the window stands still the rest waits for the next round, or what was lost
            // already would not be repeated before everything else is sent.
            let sending = if stuck {
                Err(Outcome::Again(Error::TimedOut {
                    subject: messages[at].subject.clone(),
                    after: ATTEMPT,
                }))
            } else {
                self.send(&messages[at], give_up).await
            };
            stuck |= matches!(sending, Err(Outcome::Again(_)));
            sent.push((at, sending));
        }
        let mut outcomes = Vec::with_capacity(sent.len());
        for (at, sending) in sent {
            let outcome = match sending {
                Ok((pending, until)) => collect(pending, until, &messages[at].subject).await,
                Err(outcome) => outcome,
            };
            outcomes.push((at, outcome));
        }
        outcomes
    }

    async fn attempt(&self, message: &Outgoing, give_up: Instant) -> Outcome {
        match self.send(message, give_up).await {
            Ok((pending, until)) => collect(pending, until, &message.subject).await,
            Err(outcome) => outcome,
        }
    }

    /// Waits for the connection and for room, and sends.
    async fn send(
        &self,
        message: &Outgoing,
        give_up: Instant,
    ) -> Result<(Pending, Instant), Outcome> {
        let headers = fit(&self.client, message)
            .map_err(|error| Outcome::Done(Err(PublishError::Permanent(error))))?;
        if !self.client.is_connected() && !self.client.connected(give_up).await {
            return Err(Outcome::Again(Error::Disconnected));
        }
        let until = give_up.min(Instant::now() + ATTEMPT);
        let sending = async {
            let permits = self.room(message.size()).await;
            self.client
                .send(&message.subject, headers, message.payload.clone(), permits)
                .await
        };
        match tokio::time::timeout_at(until, sending).await {
            // The acknowledgement's time starts when it is sent, not when it got in line.
            Ok(Ok(pending)) => Ok((pending, give_up.min(Instant::now() + ATTEMPT))),
            Ok(Err(error)) if error.is_transient() => Err(Outcome::Again(error)),
            Ok(Err(error)) => Err(Outcome::Done(Err(PublishError::Permanent(error)))),
            Err(_elapsed) => Err(Outcome::Again(Error::TimedOut {
                subject: message.subject.clone(),
                after: ATTEMPT,
            })),
        }
    }

    async fn room(&self, size: usize) -> Permits {
        let size = u32::try_from(size)
            .unwrap_or(u32::MAX)
            .clamp(1, self.window_bytes);
        let messages = Arc::clone(&self.messages).acquire_owned().await;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(size).await;
        // Never closed, so both are there.
        messages.ok().zip(bytes.ok())
    }
}

enum Outcome {
    Done(Result<PubAck, PublishError>),
    Again(Error),
}

async fn collect(pending: Pending, until: Instant, subject: &str) -> Outcome {
    let answer = match pending.answer(until).await {
        Ok(answer) => answer,
        Err(none) => return Outcome::Again(none.on(subject, ATTEMPT)),
    };
    match api::read::<PubAck>(subject, &answer.payload) {
        Ok(ack) => Outcome::Done(Ok(ack)),
        // A full stream, a lost leader, no storage: all of them are 5xx and pass. A conflict means
        // that an earlier try with this id is still being stored.
        Err(error @ Error::Api { status: 409, .. }) => Outcome::Again(error),
        Err(error) if error.is_transient() => Outcome::Again(error),
        Err(error) => Outcome::Done(Err(PublishError::Permanent(error))),
    }
}

/// The headers of a message that the server takes, as async-nats has them: one that is too large
/// would cost the connection.
pub(crate) fn fit(client: &Client, message: &Outgoing) -> Result<Option<HeaderMap>, Error> {
    let size = message.size() - message.subject.len();
    let limit = client.max_payload();
    if size > limit {
        return Err(Error::TooLarge { size, limit });
    }
    if !is_subject(&message.subject) {
        let shown = message.subject.chars().take(200).collect();
        return Err(Error::InvalidSubject(shown));
    }
    headers(&message.headers)
}

fn headers(headers: &Headers) -> Result<Option<HeaderMap>, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        let value: HeaderValue = value
            .parse()
            .map_err(|_line_break| Error::InvalidHeader { name })?;
        map.append(HeaderName::from_static(name), value);
    }
    Ok((!map.is_empty()).then_some(map))
}

/// A literal subject: tokens without white space, wildcards or emptiness.
fn is_subject(subject: &str) -> bool {
    subject.split('.').all(|token| {
        !token.is_empty()
            && token != "*"
            && token != ">"
            && !token
                .bytes()
                .any(|b| b.is_ascii_whitespace() || b.is_ascii_control())
    })
}

fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Waits before the next round; `false` where that is not before `give_up`.
async fn pause(pause: Option<Duration>, give_up: Instant) -> bool {
    let next = Instant::now() + pause.unwrap_or(LONGEST_PAUSE);
    if next >= give_up {
        return false;
    }
    tokio::time::sleep_until(next).await;
    true
}
