//! A task that commits what waits, answers it and has it published.

use std::sync::Arc;
use std::time::Duration;

use hooklane_nats::events::Lane;
use hooklane_store::accept::{Accepted, NewMessage, Outcome, Settings};
use hooklane_store::{Error, Store};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Refused;
use super::queue::{Entry, Queue};

/// What a request takes only where something is wrong with the ledger, or very much comes in.
const UNUSUAL: Duration = Duration::from_secs(1);

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

    /// One transaction. What it does not come to, since it would become too large, goes back into the
    /// queue. One that takes unusually long ends once nobody waits for it.
    async fn commit(&self, entries: Vec<Entry>, lane: &Lane) {
        let mut batch = Batch::of(entries);
        let accepted = tokio::select! {
            biased;
            accepted = self.accept(&batch.messages) => accepted,
            // They were told that nobody knows, and may send it again without a key: what has not been
            // committed for so long is better not committed later on.
            () = deserted(&mut batch.entries) => return,
        };
        match accepted {
            Ok(accepted) => {
                let (begun, untouched) = batch.decided(accepted.outcomes);
                self.queue.put_back(untouched);
                if let Some(until) = accepted.publish_until {
                    lane.publish(accepted.events, until).await;
                }
                // Only now: the rest may go through another lane, and a request's order is kept.
                self.queue.put_back(begun);
            }
            Err(error) => {
                let (requests, messages) = (batch.entries.len(), batch.messages.len());
                warn!(%error, requests, messages, "messages could not be committed");
                batch.failed(&Refused::Failed(Arc::new(error)));
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

/// Ends once nobody waits for any of these requests any more, and not in the time that a commit takes
/// anyway: whoever leaves so early is accepted all the same.
async fn deserted(entries: &mut [(Entry, usize)]) {
    for (entry, _) in entries {
        entry.left(UNUSUAL).await;
    }
}

/// Requests that share a transaction.
struct Batch {
    /// Without their messages; how many each has is beside it.
    entries: Vec<(Entry, usize)>,
    /// All of their messages, in their order.
    messages: Vec<NewMessage>,
}

impl Batch {
    fn of(entries: Vec<Entry>) -> Self {
        let mut messages = Vec::with_capacity(entries.iter().map(|e| e.messages.len()).sum());
        let entries = entries.into_iter().map(|mut entry| {
            let count = entry.messages.len();
            messages.append(&mut entry.messages);
            (entry, count)
        });
        let entries = entries.collect();
        Self { entries, messages }
    }

    /// Hands out what is committed and answers the requests that are complete. Returns the one that is
    /// begun, and those that nothing is decided of.
    fn decided(self, outcomes: Vec<Outcome>) -> (Option<Entry>, Vec<Entry>) {
        let (mut begun, mut untouched) = (None, Vec::new());
        let mut messages = self.messages.into_iter().skip(outcomes.len());
        let mut outcomes = outcomes.into_iter();
        for (mut entry, count) in self.entries {
            let decided = outcomes.len().min(count);
            entry.outcomes.extend(outcomes.by_ref().take(count));
            entry.messages = messages.by_ref().take(count - decided).collect();
            if decided == count {
                entry.answer(None);
            } else if decided > 0 {
                begun = Some(entry);
            } else {
                untouched.push(entry);
            }
        }
        (begun, untouched)
    }

    /// Tells all that what was not committed before was not committed.
    fn failed(self, fault: &Refused) {
        for (entry, _) in self.entries {
            entry.answer(Some(fault.clone()));
        }
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
        let submit = |count| tokio::spawn(submitter.submit(messages(count)).unwrap().answer());
        let (first, second, third) = (submit(2), submit(3), submit(1));
        let never = CancellationToken::new();
        let batch = Batch::of(queue.take(&never).await.unwrap());
        assert_eq!(batch.messages.len(), 6);
        let (begun, untouched) = batch.decided(outcomes(0..4));
        let first = first.await.unwrap().unwrap();
        assert_eq!(first.outcomes, outcomes(0..2));
        assert!(first.fault.is_none());
        assert_eq!(begun.as_ref().unwrap().messages.len(), 1);
        assert_eq!(untouched[0].messages.len(), 1);
        queue.put_back(untouched);
        Batch::of(queue.take(&never).await.unwrap()).failed(&Refused::CutOff);
        assert!(matches!(third.await.unwrap(), Err(Refused::CutOff)));
        queue.put_back(begun);
        Batch::of(queue.take(&never).await.unwrap()).failed(&Refused::CutOff);
        let second = second.await.unwrap().unwrap();
        assert_eq!(second.outcomes, outcomes(2..4));
        assert!(matches!(second.fault, Some(Refused::CutOff)));
    }
}
