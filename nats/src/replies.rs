//! Answers to everything we ask, over one subscription.
//!
//! Owns the inbox of this connection and who waits for which answer. async-nats' own request
//! path keeps an entry for ever when no answer comes, and its publish acknowledgements hold a
//! permit each until a timeout; here a dropped [`Pending`] removes its entry, and a broken
//! connection ends every wait at once. At most one entry per caller, so the callers' bounds are
//! the bound of this map.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{Message, StatusCode};
use futures::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

/// Held while an answer is awaited, freed by it.
pub(crate) type Permits = Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>;

struct Waiter {
    answer: oneshot::Sender<Message>,
    _permits: Permits,
}

/// The inbox and its waiters.
pub(crate) struct Replies {
    prefix: String,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiter>>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// Nobody serves the subject.
    NoResponders,
    /// The time is over.
    TimedOut,
    /// The connection broke.
    Disconnected,
}

impl Replies {
    pub(crate) fn new(inbox: &str) -> Arc<Self> {
        Arc::new(Self {
            prefix: format!("{inbox}."),
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }

    /// What to subscribe to.
    pub(crate) fn subject(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// Hands answers to their waiters until the subscription ends.
    pub(crate) async fn run(self: Arc<Self>, mut answers: async_nats::Subscriber) {
        while let Some(message) = answers.next().await {
            let id = message.subject.as_str().strip_prefix(self.prefix.as_str());
            let waiter = id
                .and_then(|id| id.parse().ok())
                .and_then(|id: u64| self.lock().remove(&id));
            if let Some(waiter) = waiter {
                // A waiter that went away meanwhile needs no answer.
                let _ = waiter.answer.send(message);
            }
        }
    }

    /// Ends every wait: the connection broke, and answers to it went with it.
    pub(crate) fn disconnect(&self) {
        let lost = std::mem::take(&mut *self.lock());
        drop(lost);
    }

    /// Prepares to wait: the reply subject to send with, and the wait.
    pub(crate) fn expect(self: &Arc<Self>, permits: Permits) -> (String, Pending) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let waiter = Waiter {
            answer,
            _permits: permits,
        };
        self.lock().insert(id, waiter);
        let pending = Pending {
            id,
            receiver,
            replies: Arc::clone(self),
        };
        (format!("{}{id}", self.prefix), pending)
    }

    // A poisoned map is as good as before: no caller leaves it half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A wait for one answer; dropping it gives up.
pub(crate) struct Pending {
    id: u64,
    receiver: oneshot::Receiver<Message>,
    replies: Arc<Replies>,
}

impl Pending {
    /// The answer. Where it is already there this registers no timer.
    pub(crate) async fn answer(mut self, until: Instant) -> Result<Message, NoReply> {
        let message = tokio::time::timeout_at(until, &mut self.receiver)
            .await
            .map_err(|_elapsed| NoReply::TimedOut)?
            .map_err(|_closed| NoReply::Disconnected)?;
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return Err(NoReply::NoResponders);
        }
        Ok(message)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.replies.lock().remove(&self.id);
    }
}

impl NoReply {
    /// The error that says so.
    pub(crate) fn on(self, subject: &str, after: Duration) -> crate::Error {
        match self {
            Self::NoResponders => crate::Error::NoResponders {
                subject: subject.to_owned(),
            },
            Self::TimedOut => crate::Error::TimedOut {
                subject: subject.to_owned(),
                after,
            },
            Self::Disconnected => crate::Error::Disconnected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_that_is_given_up_leaves_nothing_behind() {
        let replies = Replies::new("_INBOX.x");
        let (subject, pending) = replies.expect(None);
        assert_eq!(subject, "_INBOX.x.0");
        assert_eq!(replies.len(), 1);
        let gone = pending.answer(Instant::now()).await;
        assert_eq!(gone.unwrap_err(), NoReply::TimedOut);
        assert_eq!(replies.len(), 0);
    }

    #[tokio::test]
    async fn a_broken_connection_ends_every_wait() {
        let replies = Replies::new("_INBOX.x");
        let (_, pending) = replies.expect(None);
        replies.disconnect();
        let gone = pending
            .answer(Instant::now() + Duration::from_secs(60))
            .await;
        assert_eq!(gone.unwrap_err(), NoReply::Disconnected);
    }
}
