//! The right to settle a message.
//!
//! An [`AckToken`] is consumed once. Dropped unused it naks, so that the message comes again at
//! once and not after the ack wait, and counts (`Client::abandoned_tokens`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use crate::client::Client;
use crate::error::Error;
use crate::puller::Pauses;
use crate::replies::Pending;

const ACK: Bytes = Bytes::from_static(b"+ACK");
const NAK: Bytes = Bytes::from_static(b"-NAK");
const PROGRESS: Bytes = Bytes::from_static(b"+WPI");
/// How long an unconfirmed answer may wait for room in the connection's queue. The broker delivers
/// again what it does not get, so a broken connection must not hold its sender.
const QUEUE: Duration = Duration::from_secs(1);
/// How long one confirmation may take before it is asked for again.
const CONFIRM: Duration = Duration::from_secs(2);
/// How long a confirmation is asked for again and again. A delivery that the server forgot in a
/// crash is never confirmed; it comes again instead, so there is no use in waiting long.
const PATIENCE: Duration = Duration::from_secs(6);

/// A settlement that the broker did not confirm: the message may come again.
#[derive(Debug, thiserror::Error)]
#[error("the broker did not confirm the {what}: {source}")]
pub struct AckError {
    what: &'static str,
    source: Error,
}

/// The right to settle one message, once.
#[must_use = "dropping a token naks its message"]
pub struct AckToken(Option<(Subject, Client)>);

impl AckToken {
    pub(crate) fn new(reply: Subject, client: Client) -> Self {
        Self(Some((reply, client)))
    }

    /// Acknowledges, without waiting for the broker: after a crash the message may come again.
    pub async fn ack(mut self) {
        self.settle(ACK).await;
    }

    /// Acknowledges and waits until the broker has it.
    ///
    /// # Errors
    /// [`AckError`] where no confirmation came after a few tries: the message may come again.
    pub async fn ack_confirmed(mut self) -> Result<(), AckError> {
        self.confirm(ACK, "ack").await
    }

    /// Gives the message back, for another delivery at once or after `delay`. A delay counts
    /// against the durable's pending limit all the while.
    pub async fn nak(mut self, delay: Option<Duration>) {
        let word = match delay {
            None => NAK,
            Some(delay) => format!(r#"-NAK {{"delay":{}}}"#, delay.as_nanos()).into(),
        };
        self.settle(word).await;
    }

    /// Ends the message for good, saying why; on a work queue that deletes it. The reason stands in
    /// the broker's advisory; line breaks in it become spaces.
    ///
    /// # Errors
    /// [`AckError`] where no confirmation came after a few tries: the message may come again.
    pub async fn term(mut self, reason: &str) -> Result<(), AckError> {
        let reason: String = reason
            .chars()
            .take(500)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        self.confirm(format!("+TERM {reason}").into(), "term").await
    }

    /// Asks for another full ack wait.
    pub async fn progress(&self) {
        if let Some((reply, client)) = &self.0 {
            publish(client, reply.clone(), PROGRESS).await;
        }
    }

    async fn settle(&mut self, word: Bytes) {
        if let Some((reply, client)) = self.0.take() {
            publish(&client, reply, word).await;
        }
    }

    async fn confirm(&mut self, word: Bytes, what: &'static str) -> Result<(), AckError> {
        let Some((reply, client)) = self.0.take() else {
            return Ok(());
        };
        let end = Instant::now() + PATIENCE;
        let mut pauses = Pauses::new();
        loop {
            let source = match ask(&client, &reply, &word, end).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let next = pauses.next();
            if next >= end {
                return Err(AckError { what, source });
            }
            tokio::time::sleep_until(next).await;
        }
    }
}

async fn ask(client: &Client, reply: &str, word: &Bytes, end: Instant) -> Result<(), Error> {
    if !client.connected(end).await {
        return Err(Error::Disconnected);
    }
    let asked = client.ask(reply.to_owned(), None, word.clone(), CONFIRM);
    asked.await.map(drop)
}

/// Acknowledges many messages and waits until the broker has them all, with everything in flight
/// at once. Results stand in the tokens' order.
///
/// # Errors
/// Per token, as [`AckToken::ack_confirmed`].
pub async fn ack_all_confirmed(tokens: Vec<AckToken>) -> Vec<Result<(), AckError>> {
    let mut results: Vec<Result<(), AckError>> = Vec::with_capacity(tokens.len());
    let mut open: Vec<(usize, Subject, Client)> = Vec::with_capacity(tokens.len());
    for (at, mut token) in tokens.into_iter().enumerate() {
        results.push(Ok(()));
        open.extend(token.0.take().map(|(reply, client)| (at, reply, client)));
    }
    let end = Instant::now() + PATIENCE;
    let mut pauses = Pauses::new();
    while !open.is_empty() {
        let until = Instant::now() + CONFIRM;
        let mut sent = Vec::with_capacity(open.len());
        for (_, reply, client) in &open {
            sent.push(send(client, reply, until).await);
        }
        let mut again = Vec::new();
        for (item, pending) in open.into_iter().zip(sent) {
            let source = match pending {
                None => Error::Disconnected,
                Some(pending) => match pending.answer(until).await {
                    Ok(_) => {
                        results[item.0] = Ok(());
                        continue;
                    }
                    Err(none) => none.on(&item.1, CONFIRM),
                },
            };
            results[item.0] = Err(AckError {
                what: "ack",
                source,
            });
            again.push(item);
        }
        open = again;
        let next = pauses.next();
        if open.is_empty() || next >= end {
            break;
        }
        tokio::time::sleep_until(next).await;
    }
    results
}

async fn send(client: &Client, reply: &str, until: Instant) -> Option<Pending> {
    if !client.is_connected() && !client.connected(until).await {
        return None;
    }
    let sending = client.send(reply, None, ACK, None);
    tokio::time::timeout_at(until, sending).await.ok()?.ok()
}

async fn publish(client: &Client, reply: Subject, word: Bytes) {
    let sent = client.inner.nats.publish(reply, word);
    if tokio::time::timeout(QUEUE, sent).await.is_err() {
        debug!("no connection to settle a message, it will come again");
    }
}

impl Drop for AckToken {
    fn drop(&mut self) {
        let Some((reply, client)) = self.0.take() else {
            return;
        };
        client.inner.abandoned.fetch_add(1, Ordering::Relaxed);
        // Not `tokio::spawn`: a token may be dropped outside the runtime, or after it ended; then
        // the task is dropped too and the ack wait brings the message back.
        let runtime = client.inner.runtime.clone();
        runtime.spawn(async move { publish(&client, reply, NAK).await });
    }
}

impl std::fmt::Debug for AckToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "AckToken"
        } else {
            "AckToken(settled)"
        })
    }
}
