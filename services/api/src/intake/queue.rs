//! The queue between requests and writers: bounded by messages and by bytes, first come, first served.

use std::sync::Arc;
use std::time::Duration;

use hooklane_store::accept::NewMessage;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Answer, Config, Refused};

/// Bytes that a message takes beside its payload and its texts.
const OVERHEAD: usize = 512;

type Reply = oneshot::Sender<Result<Answer, Refused>>;

/// A request's messages, and who waits for them.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) messages: Vec<NewMessage>,
    pub(super) reply: Reply,
    /// Counts the messages until the entry is answered.
    pub(super) room: Room,
    bytes: usize,
    since: Instant,
}

/// What an entry takes of the queue's bounds; given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    _messages: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// The end that requests are put in at.
#[derive(Debug, Clone)]
pub(super) struct Submitter {
    entries: mpsc::UnboundedSender<Entry>,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// The end that writers take from.
#[derive(Debug)]
pub(super) struct Queue {
    /// Who holds it takes the next batch; the others wait their turn.
    entries: Mutex<mpsc::UnboundedReceiver<Entry>>,
    /// Messages after which a batch takes no further entry.
    batch: usize,
    /// Bytes after which a batch takes no further entry.
    batch_bytes: usize,
    wait_at_most: Duration,
}

/// Bytes after which a transaction takes no further request along.
const BATCH_BYTES: usize = 8 << 20;

pub(super) fn new(config: &Config) -> (Submitter, Queue) {
    // The semaphores bound it.
    let (sender, receiver) = mpsc::unbounded_channel();
    let submitter = Submitter {
        entries: sender,
        messages: Arc::new(Semaphore::new(config.queue_messages as usize)),
        bytes: Arc::new(Semaphore::new(config.queue_bytes as usize)),
    };
    let (batch, batch_bytes) = if config.group_commit {
        (config.commit_batch, BATCH_BYTES)
    } else {
        (1, 1)
    };
    let queue = Queue {
        entries: Mutex::new(receiver),
        batch,
        batch_bytes,
        wait_at_most: config.wait_at_most,
    };
    (submitter, queue)
}

impl Submitter {
    /// Puts messages in, if there is room for them at once. The receiver gets the answer, or nothing
    /// where the writer ended.
    pub(super) fn submit(
        &self,
        messages: Vec<NewMessage>,
    ) -> Result<oneshot::Receiver<Result<Answer, Refused>>, Refused> {
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
        let entry = Entry {
            messages,
            reply,
            room,
            bytes,
            since: Instant::now(),
        };
        self.entries.send(entry).map_err(|_| Refused::Stopping)?;
        Ok(answer)
    }
}

fn size(message: &NewMessage) -> usize {
    OVERHEAD + message.payload.len() + message.key.as_deref().map_or(0, str::len)
}

impl Queue {
    /// The next batch: at least one entry, without waiting for a second. `None` once `shutdown` is
    /// there and nothing waits any more; nothing is let in from then on.
    pub(super) async fn take(&self, shutdown: &CancellationToken) -> Option<Vec<Entry>> {
        let mut entries = self.entries.lock().await;
        let mut batch = Vec::new();
        let (mut messages, mut bytes) = (0, 0);
        while batch.is_empty() {
            let first = tokio::select! {
                biased;
                first = entries.recv() => first,
                () = shutdown.cancelled() => {
                    entries.close();
                    entries.recv().await
                }
            };
            let mut next = Some(first?);
            while let Some(entry) = next {
                if let Some(entry) = self.in_time(entry) {
                    messages += entry.messages.len();
                    bytes += entry.bytes;
                    batch.push(entry);
                }
                let full = messages >= self.batch || bytes >= self.batch_bytes;
                next = if full { None } else { entries.try_recv().ok() };
            }
        }
        Some(batch)
    }

    /// The entry, unless nobody waits for it any more or it waited for too long.
    fn in_time(&self, entry: Entry) -> Option<Entry> {
        if entry.reply.is_closed() {
            return None;
        }
        if entry.since.elapsed() > self.wait_at_most {
            // Who is gone by now need not be told.
            let _ = entry.reply.send(Err(Refused::Full));
            return None;
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use hooklane_proto::token::{ConsumerId, EventType};

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
    async fn who_left_is_dropped_and_who_waited_for_too_long_is_told() {
        let (submitter, queue) = new(&Config::default());
        let never = CancellationToken::new();
        let late = submitter.submit(messages(1)).unwrap();
        tokio::time::advance(Duration::from_secs(11)).await;
        drop(submitter.submit(messages(2)).unwrap());
        let _waits = submitter.submit(messages(3)).unwrap();
        let batch = queue.take(&never).await.unwrap();
        assert_eq!(sizes(&batch), [3]);
        assert!(matches!(late.await.unwrap(), Err(Refused::Full)));
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
