//! A task that commits what waits, answers it and has it published.

use std::collections::VecDeque;
use std::sync::Arc;

use hooklane_nats::events::Lane;
use hooklane_store::accept::{Accepted, NewMessage, Outcome, Settings};
use hooklane_store::{Error, Store};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::queue::{Entry, Queue};
use super::{Answer, Refused};

/// What every writer works with.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub(super) settings: Settings,
    pub(super) store: Store,
    pub(super) queue: Arc<Queue>,
}

impl Writer {
    /// Commits until `shutdown`, and then what waits.
    pub(super) async fn run(self, lane: Lane, shutdown: CancellationToken) {
        while let Some(entries) = self.queue.take(&shutdown).await {
            self.commit(entries, &lane).await;
        }
        lane.finish().await;
    }

    /// One batch: one transaction, or several where one would become too large.
    async fn commit(&self, entries: Vec<Entry>, lane: &Lane) {
        let (mut waiting, mut messages) = Waiting::of(entries);
        while !messages.is_empty() {
            match self.accept(&messages).await {
                Ok(accepted) => {
                    messages.drain(..accepted.outcomes.len());
                    waiting.decided(accepted.outcomes);
                    if let Some(until) = accepted.publish_until {
                        lane.publish(accepted.events, until).await;
                    }
                }
                Err(error) => {
                    let (requests, messages) = (waiting.entries.len(), messages.len());
                    warn!(%error, requests, messages, "messages could not be committed");
                    return waiting.failed(Refused::Failed(Arc::new(error)));
                }
            }
        }
    }

    /// One transaction, which is tried again with fewer messages where it takes too long; but clients
    /// wait, so not for ever.
    async fn accept(&self, messages: &[NewMessage]) -> Result<Accepted, Error> {
        let after = self.settings.timeout * 2;
        let accepting = self.store.accept(&self.settings, messages);
        match tokio::time::timeout(after, accepting).await {
            Ok(accepted) => accepted,
            Err(_elapsed) => Err(Error::TimedOut {
                doing: "accepting messages",
                after,
            }),
        }
    }
}

/// The requests of a batch that are not answered yet, in the order of their messages.
struct Waiting {
    entries: VecDeque<Half>,
}

/// A request, and what is decided of it.
struct Half {
    entry: Entry,
    /// How many messages it has.
    wanted: usize,
    outcomes: Vec<Outcome>,
}

impl Waiting {
    fn of(entries: Vec<Entry>) -> (Self, Vec<NewMessage>) {
        let mut messages = Vec::with_capacity(entries.iter().map(|e| e.messages.len()).sum());
        let entries = entries.into_iter().map(|mut entry| {
            let wanted = entry.messages.len();
            messages.append(&mut entry.messages);
            Half {
                entry,
                wanted,
                outcomes: Vec::new(),
            }
        });
        let entries = entries.collect();
        (Self { entries }, messages)
    }

    /// Hands out what is committed, and answers the requests that are complete.
    fn decided(&mut self, outcomes: Vec<Outcome>) {
        let mut outcomes = outcomes.into_iter();
        while let Some(half) = self.entries.front_mut() {
            let open = half.wanted - half.outcomes.len();
            half.outcomes.extend(outcomes.by_ref().take(open));
            if half.outcomes.len() < half.wanted {
                return;
            }
            if let Some(half) = self.entries.pop_front() {
                half.answer(None);
            }
        }
    }

    /// Tells all others that they were not committed.
    fn failed(self, fault: Refused) {
        for half in self.entries {
            half.answer(Some(fault.clone()));
        }
    }
}

impl Half {
    fn answer(self, fault: Option<Refused>) {
        let Entry { reply, room, .. } = self.entry;
        let answer = match fault {
            Some(fault) if self.outcomes.is_empty() => Err(fault),
            fault => Ok(Answer {
                outcomes: self.outcomes,
                fault,
            }),
        };
        // A client that is gone is told nothing; its messages are accepted all the same.
        let _ = reply.send(answer);
        drop(room);
    }
}

#[cfg(test)]
mod tests {
    use hooklane_proto::token::{ConsumerId, EventType};
    use hooklane_store::accept::{Reason, Rejection};

    use super::super::{Config, new_message, queue};
    use super::*;

    fn messages(count: usize) -> Vec<NewMessage> {
        let consumer = ConsumerId::new("acme").unwrap();
        let event_type = EventType::new("invoice.paid").unwrap();
        vec![new_message(consumer, event_type, "1".into()); count]
    }

    fn outcomes(numbers: std::ops::Range<usize>) -> Vec<Outcome> {
        let outcome = |n: usize| {
            Outcome::Rejected(Rejection {
                reason: Reason::Refused,
                detail: n.to_string(),
            })
        };
        numbers.map(outcome).collect()
    }

    #[tokio::test]
    async fn outcomes_go_to_whose_messages_they_are_also_where_the_rest_fails() {
        let (submitter, queue) = queue::new(&Config::default());
        let submit = |count| submitter.submit(messages(count)).unwrap();
        let (first, second, third) = (submit(2), submit(3), submit(1));
        let entries = queue.take(&CancellationToken::new()).await.unwrap();
        let (mut waiting, all) = Waiting::of(entries);
        assert_eq!(all.len(), 6);
        waiting.decided(outcomes(0..1));
        waiting.decided(outcomes(1..4));
        let first = first.await.unwrap().unwrap();
        assert_eq!(first.outcomes, outcomes(0..2));
        assert!(first.fault.is_none());
        waiting.failed(Refused::CutOff);
        let second = second.await.unwrap().unwrap();
        assert_eq!(second.outcomes, outcomes(2..4));
        assert!(matches!(second.fault, Some(Refused::CutOff)));
        assert!(matches!(third.await.unwrap(), Err(Refused::CutOff)));
    }
}
