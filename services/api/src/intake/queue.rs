//! The queue between requests and writers: bounded by messages and by bytes, first come, first served.
//!
//! A request waits with a [`Ticket`]. As long as no writer has taken its entry, the ticket can take it
//! out again: because it waited for too long, or because nobody waits for it any more. So neither
//! depends on when a writer comes by.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hooklane_store::accept::{NewMessage, Outcome};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Answer, Config, Refused};

/// Bytes that a message takes beside its payload and its texts.
const OVERHEAD: usize = 512;

/// A request's messages, and who waits for them.
#[derive(Debug)]
pub(super) struct Entry {
    /// Those that are not decided yet.
    pub(super) messages: Vec<NewMessage>,
    /// Of those that are; none before a writer had its first turn with it.
    pub(super) outcomes: Vec<Outcome>,
    reply: oneshot::Sender<Result<Answer, Refused>>,
    /// Counts the messages until the entry is answered.
    room: Room,
    /// Where it stands in the queue.
    place: Arc<AtomicU64>,
    bytes: usize,
    since: Instant,
}

/// What an entry takes of the queue's bounds; given back when dropped.
#[derive(Debug)]
struct Room {
    _messages: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Entry {
    /// Tells who waits what became of the messages; `fault` is of those that are not decided.
    pub(super) fn answer(self, fault: Option<Refused>) {
        let Self {
            outcomes,
            reply,
            room,
            ..
        } = self;
        let answer = match fault {
            Some(fault) if outcomes.is_empty() => Err(fault),
            fault => Ok(Answer { outcomes, fault }),
        };
        // A client that is gone is told nothing; what is accepted is accepted all the same.
        let _ = reply.send(answer);
        drop(room);
    }

    /// Ends once nobody waits for the answer any more, and no sooner than so long after the entry came.
    pub(super) async fn left(&mut self, after: Duration) {
        tokio::time::sleep_until(self.since + after).await;
        self.reply.closed().await;
    }

    /// Whether some of it is committed, and the rest goes on.
    fn is_begun(&self) -> bool {
        !self.outcomes.is_empty()
    }
}

/// What waits, by place.
#[derive(Debug, Default)]
struct Line {
    entries: BTreeMap<u64, Entry>,
    /// The next place at the end.
    end: u64,
    /// Nothing more is let in.
    closed: bool,
}

impl Line {
    fn push(&mut self, entry: Entry) {
        entry.place.store(self.end, Ordering::Relaxed);
        self.entries.insert(self.end, entry);
        self.end += 1;
    }
}

/// What both ends share.
#[derive(Debug)]
struct Shared {
    line: Mutex<Line>,
    arrived: Notify,
    /// How long an entry may wait for its first turn.
    wait_at_most: Duration,
    /// How long an entry may take in all.
    commit_within: Duration,
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the entry has waited for too long.
    fn overdue(&self, entry: &Entry) -> Instant {
        let patience = if entry.is_begun() {
            self.commit_within
        } else {
            self.wait_at_most
        };
        entry.since + patience
    }
}

/// The end that requests are put in at.
#[derive(Debug, Clone)]
pub(super) struct Submitter {
    shared: Arc<Shared>,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// The end that writers take from. Dropped, nothing more is let in, and nobody waits any more.
#[derive(Debug)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    /// Messages after which a batch takes no further entry.
    batch: usize,
    /// Bytes after which a batch takes no further entry.
    batch_bytes: usize,
}

/// Bytes after which a transaction takes no further request along.
const BATCH_BYTES: usize = 8 << 20;

pub(super) fn new(config: &Config) -> (Submitter, Queue) {
    let shared = Arc::new(Shared {
        line: Mutex::default(),
        arrived: Notify::new(),
        wait_at_most: config.wait_at_most,
        commit_within: config.commit_within,
    });
    let submitter = Submitter {
        shared: Arc::clone(&shared),
        messages: Arc::new(Semaphore::new(config.queue_messages as usize)),
        bytes: Arc::new(Semaphore::new(config.queue_bytes as usize)),
    };
    let (batch, batch_bytes) = if config.group_commit {
        (config.commit_batch, BATCH_BYTES)
    } else {
        (1, 1)
    };
    let queue = Queue {
        shared,
        batch,
        batch_bytes,
    };
    (submitter, queue)
}

impl Submitter {
    /// Puts messages in, if there is room for them at once.
    pub(super) fn submit(&self, messages: Vec<NewMessage>) -> Result<Ticket, Refused> {
        let bytes: usize = messages.iter().map(size).sum();
        let take = |of: &Arc<Semaphore>, amount: usize| {
            let amount = u32::try_from(amount).map_err(|_| Refused::Full)?;
            let taken = Arc::clone(of).try_acquire_many_owned(amount);
            taken.map_err(|_| Refused::Full)
        };
        let room = Room {
            _messages: take(&self.messages, messages.len())?,
            _bytes: take(&self.bytes, bytes)?,
        };
        let (reply, answer) = oneshot::channel();
        let place = Arc::default();
        let since = Instant::now();
        let entry = Entry {
            messages,
            outcomes: Vec::new(),
            reply,
            room,
            place: Arc::clone(&place),
            bytes,
            since,
        };
        {
            let mut line = self.shared.line();
            if line.closed {
                return Err(Refused::Stopping);
            }
            line.push(entry);
        }
        self.shared.arrived.notify_one();
        Ok(Ticket {
            shared: Arc::clone(&self.shared),
            place,
            answer,
            since,
        })
    }
}

fn size(message: &NewMessage) -> usize {
    OVERHEAD + message.payload.len() + message.key.as_deref().map_or(0, str::len)
}

/// Waits for a request's answer. Dropped, it takes the request out, unless a writer has it.
#[derive(Debug)]
pub(super) struct Ticket {
    shared: Arc<Shared>,
    place: Arc<AtomicU64>,
    answer: oneshot::Receiver<Result<Answer, Refused>>,
    since: Instant,
}

impl Ticket {
    /// The answer: a writer's, or that it took too long.
    pub(super) async fn answer(mut self) -> Result<Answer, Refused> {
        let mut patience = [self.shared.wait_at_most, self.shared.commit_within];
        patience.sort_unstable();
        for patience in patience {
            let until = self.since + patience;
            if let Ok(answer) = tokio::time::timeout_at(until, &mut self.answer).await {
                return answer.unwrap_or(Err(Refused::CutOff));
            }
            let shared = &self.shared;
            if let Some(entry) = self.take_out(|entry| shared.overdue(entry) <= until) {
                entry.answer(Some(Refused::Full));
            }
        }
        // A writer has it, and answers for it soon.
        (&mut self.answer).await.unwrap_or(Err(Refused::CutOff))
    }

    fn take_out(&self, whether: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let mut line = self.shared.line();
        // Only this entry was ever there: places are not given twice.
        let place = self.place.load(Ordering::Relaxed);
        whether(line.entries.get(&place)?)
            .then(|| line.entries.remove(&place))
            .flatten()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        drop(self.take_out(|_| true));
    }
}

impl Queue {
    /// The next batch: at least one entry, without waiting for a second. `None` once `shutdown` is
    /// there and nothing waits any more; nothing is let in from then on.
    pub(super) async fn take(&self, shutdown: &CancellationToken) -> Option<Vec<Entry>> {
        loop {
            let (batch, more, closed) = self.next();
            if more {
                // Whoever was told of it may have come too early.
                self.shared.arrived.notify_one();
            }
            if !batch.is_empty() {
                return Some(batch);
            }
            if closed {
                return None;
            }
            tokio::select! {
                biased;
                () = self.shared.arrived.notified() => {}
                () = shutdown.cancelled() => self.shared.line().closed = true,
            }
        }
    }

    /// What is at the front, whether there is more, and whether nothing more will come. An entry that
    /// is begun goes alone: it has enough for a transaction, and nobody is to wait for that.
    fn next(&self) -> (Vec<Entry>, bool, bool) {
        let mut batch: Vec<Entry> = Vec::new();
        let (mut messages, mut bytes) = (0, 0);
        let mut line = self.shared.line();
        while messages < self.batch && bytes < self.batch_bytes {
            let Some(first) = line.entries.first_entry() else {
                break;
            };
            let begun = first.get().is_begun();
            if begun && !batch.is_empty() {
                break;
            }
            let entry = first.remove();
            messages += entry.messages.len();
            bytes += entry.bytes;
            batch.push(entry);
            if begun {
                break;
            }
        }
        (batch, !line.entries.is_empty(), line.closed)
    }

    /// Puts entries back that a writer did not come to, where they were, or what is left of one behind
    /// all that wait. Those that have waited for too long are answered.
    pub(super) fn put_back(&self, entries: impl IntoIterator<Item = Entry>) {
        let now = Instant::now();
        for entry in entries {
            if self.shared.overdue(&entry) <= now {
                entry.answer(Some(Refused::Full));
                continue;
            }
            if entry.reply.is_closed() {
                continue;
            }
            let mut line = self.shared.line();
            if entry.is_begun() {
                line.push(entry);
            } else {
                let place = entry.place.load(Ordering::Relaxed);
                line.entries.insert(place, entry);
            }
            drop(line);
            self.shared.arrived.notify_one();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut line = self.shared.line();
        line.closed = true;
        let entries = std::mem::take(&mut line.entries);
        drop(line);
        drop(entries);
    }
}

#[cfg(test)]
mod tests {
    use hooklane_proto::token::{ConsumerId, EventType};
    use hooklane_store::accept::{Reason, Rejection};

    use super::super::new_message;
    use super::*;

    fn message(bytes: usize) -> NewMessage {
        let consumer = ConsumerId::new("acme").unwrap();
        let event_type = EventType::new("invoice.paid").unwrap();
        new_message(consumer, event_type, vec![b'1'; bytes].into())
    }

    fn messages(count: usize) -> Vec<NewMessage> {
        (0..count).map(|_| message(1)).collect()
    }

    fn sizes(batch: &[Entry]) -> Vec<usize> {
        batch.iter().map(|entry| entry.messages.len()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_what_waits_and_no_entry_is_split() {
        let config = Config {
            commit_batch: 10,
            ..Config::default()
        };
        let (submitter, queue) = new(&config);
        let never = CancellationToken::new();
        let mut waiting = Vec::new();
        for count in [1, 8, 7, 3, 1_000, 1] {
            waiting.push(submitter.submit(messages(count)).unwrap());
        }
        for expected in [&[1, 8, 7][..], &[3, 1_000], &[1]] {
            let batch = queue.take(&never).await.unwrap();
            assert_eq!(sizes(&batch), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_full_refuses_until_an_entry_is_answered() {
        let config = Config {
            queue_messages: 1_000,
            queue_bytes: 8 << 20,
            ..Config::default()
        };
        let (submitter, queue) = new(&config);
        let never = CancellationToken::new();
        let waiting = submitter.submit(messages(1_000)).unwrap();
        let refused = submitter.submit(messages(1)).unwrap_err();
        assert!(matches!(refused, Refused::Full));
        let batch = queue.take(&never).await.unwrap();
        assert!(submitter.submit(messages(1)).is_err(), "it is on its way");
        drop((batch, waiting));
        let large = vec![message(256 << 10); 30];
        let held = submitter.submit(large.clone()).unwrap();
        assert!(submitter.submit(large).is_err(), "too many bytes");
        assert!(submitter.submit(messages(1)).is_ok());
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_gives_way_and_who_waited_for_too_long_is_told_without_a_writer() {
        let config = Config {
            queue_messages: 1_000,
            ..Config::default()
        };
        let (submitter, queue) = new(&config);
        drop(submitter.submit(messages(1_000)).unwrap());
        let late = submitter.submit(messages(1_000)).unwrap();
        let started = Instant::now();
        assert!(matches!(late.answer().await, Err(Refused::Full)));
        assert_eq!(started.elapsed(), config.wait_at_most);
        let _waits = submitter.submit(messages(3)).unwrap();
        let batch = queue.take(&CancellationToken::new()).await.unwrap();
        assert_eq!(sizes(&batch), [3]);
    }

    fn decide(entry: &mut Entry, count: usize) {
        let outcome = Outcome::Rejected(Rejection {
            reason: Reason::Refused,
            detail: String::new(),
        });
        entry.messages.drain(..count);
        entry.outcomes.extend(vec![outcome; count]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_goes_behind_what_waits_and_alone() {
        let (submitter, queue) = new(&Config::default());
        let never = CancellationToken::new();
        let mut waiting = Vec::new();
        let mut submit = |count| waiting.push(submitter.submit(messages(count)).unwrap());
        submit(20);
        submit(7);
        let mut batch = queue.take(&never).await.unwrap();
        submit(3);
        decide(&mut batch[0], 5);
        queue.put_back(batch);
        submit(2);
        for expected in [&[7, 3][..], &[15], &[2]] {
            let batch = queue.take(&never).await.unwrap();
            assert_eq!(sizes(&batch), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_committed_in_time_is_told_with_what_is() {
        let config = Config::default();
        let (submitter, queue) = new(&config);
        let never = CancellationToken::new();
        let started = Instant::now();
        for returned in [config.commit_within / 2, config.commit_within * 2] {
            let ticket = submitter.submit(messages(3)).unwrap();
            let answer = tokio::spawn(ticket.answer());
            let mut batch = queue.take(&never).await.unwrap();
            decide(&mut batch[0], 1);
            tokio::time::sleep(returned).await;
            queue.put_back(batch);
            let answer = answer.await.unwrap().unwrap();
            assert_eq!(answer.outcomes.len(), 1);
            assert!(matches!(answer.fault, Some(Refused::Full)));
        }
        assert_eq!(started.elapsed(), config.commit_within * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_what_waits_is_taken_and_nothing_more_let_in() {
        let (submitter, queue) = new(&Config::default());
        let shutdown = CancellationToken::new();
        let _waits = submitter.submit(messages(1)).unwrap();
        shutdown.cancel();
        assert!(queue.take(&shutdown).await.is_some());
        assert!(queue.take(&shutdown).await.is_none());
        let refused = submitter.submit(messages(1)).unwrap_err();
        assert!(matches!(refused, Refused::Stopping));
    }
}
