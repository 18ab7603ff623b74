//! The queue between requests and writers: bounded by events and by bytes, first come, first served.
//!
//! Knows nothing of what waits in it but its size. Who waits no longer (a request past its deadline)
//! is passed over when its turn comes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

/// Bytes after which a batch takes no further entry.
const BATCH_BYTES: usize = 8 << 20;

/// What waits, and who waits for it.
#[derive(Debug)]
pub(super) struct Entry<T, A> {
    pub(super) item: T,
    pub(super) reply: Reply<A>,
    bytes: usize,
}

/// Where the answer goes. Dropped without one, whoever waits is told that there will be none.
#[derive(Debug)]
pub(super) struct Reply<A> {
    to: oneshot::Sender<A>,
    _room: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl<A> Reply<A> {
    /// Answers; whoever is gone is told nothing.
    pub(super) fn send(self, answer: A) {
        let _ = self.to.send(answer);
    }
}

/// Why something was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shut {
    /// As much waits, or is being written, as may.
    Full,
    /// Nobody takes anything any more.
    Closed,
}

#[derive(Debug)]
struct Line<T, A> {
    entries: VecDeque<Entry<T, A>>,
    closed: bool,
}

/// Both ends of the queue.
#[derive(Debug)]
pub(super) struct Queue<T, A> {
    line: Mutex<Line<T, A>>,
    arrived: Notify,
    items: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    batch: usize,
}

impl<T, A> Queue<T, A> {
    /// At most so many items and bytes, of which at most `batch` are taken together.
    pub(super) fn new(items: usize, bytes: usize, batch: usize) -> Self {
        Self {
            line: Mutex::new(Line {
                entries: VecDeque::new(),
                closed: false,
            }),
            arrived: Notify::new(),
            items: Arc::new(Semaphore::new(items)),
            bytes: Arc::new(Semaphore::new(bytes)),
            batch,
        }
    }

    // A poisoned line is as good as before: nobody leaves it half changed.
    fn line(&self) -> MutexGuard<'_, Line<T, A>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item in, if there is room for it at once. The answer comes through what is returned,
    /// or an error where whoever had it ended before.
    pub(super) fn submit(&self, item: T, bytes: usize) -> Result<oneshot::Receiver<A>, Shut> {
        let take = |of: &Arc<Semaphore>, amount: usize| {
            let amount = u32::try_from(amount).map_err(|_| Shut::Full)?;
            let taken = Arc::clone(of).try_acquire_many_owned(amount);
            taken.map_err(|_| Shut::Full)
        };
        let room = (take(&self.items, 1)?, take(&self.bytes, bytes)?);
        let (to, answer) = oneshot::channel();
        let entry = Entry {
            item,
            reply: Reply { to, _room: room },
            bytes,
        };
        {
            let mut line = self.line();
            if line.closed {
                return Err(Shut::Closed);
            }
            line.entries.push_back(entry);
        }
        self.arrived.notify_one();
        Ok(answer)
    }

    /// The next batch: at least one entry, without waiting for a second. `None` once `shutdown` is
    /// there and nothing waits any more; nothing is let in from then on.
    pub(super) async fn take(&self, shutdown: &CancellationToken) -> Option<Vec<Entry<T, A>>> {
        loop {
            let (batch, more, closed) = self.next();
            if more {
                // Whoever was told of it may have come too early.
                self.arrived.notify_one();
            }
            if !batch.is_empty() {
                return Some(batch);
            }
            if closed {
                // Another writer waits for the same news.
                self.arrived.notify_one();
                return None;
            }
            tokio::select! {
                biased;
                () = self.arrived.notified() => {}
                () = shutdown.cancelled() => self.line().closed = true,
            }
        }
    }

    /// What is at the front, whether there is more, and whether nothing more will come.
    fn next(&self) -> (Vec<Entry<T, A>>, bool, bool) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut line = self.line();
        while batch.len() < self.batch && bytes < BATCH_BYTES {
            let Some(entry) = line.entries.pop_front() else {
                break;
            };
            if entry.reply.to.is_closed() {
                continue;
            }
            bytes += entry.bytes;
            batch.push(entry);
        }
        (batch, !line.entries.is_empty(), line.closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue<u32, u32> {
        Queue::new(4, 100, 3)
    }

    fn items(batch: &[Entry<u32, u32>]) -> Vec<u32> {
        batch.iter().map(|entry| entry.item).collect()
    }

    #[tokio::test]
    async fn a_batch_is_what_waits_up_to_its_size() {
        let (queue, never) = (queue(), CancellationToken::new());
        let _waiting: Vec<_> = (1..=4).map(|n| queue.submit(n, 1).unwrap()).collect();
        assert_eq!(items(&queue.take(&never).await.unwrap()), [1, 2, 3]);
        assert_eq!(items(&queue.take(&never).await.unwrap()), [4]);
    }

    #[tokio::test]
    async fn what_is_full_refuses_until_an_entry_is_answered() {
        let (queue, never) = (queue(), CancellationToken::new());
        let waiting: Vec<_> = (1..=4).map(|n| queue.submit(n, 1).unwrap()).collect();
        assert_eq!(queue.submit(5, 1).unwrap_err(), Shut::Full);
        let batch = queue.take(&never).await.unwrap();
        assert_eq!(
            queue.submit(5, 1).unwrap_err(),
            Shut::Full,
            "it is on its way"
        );
        for entry in batch {
            entry.reply.send(entry.item * 10);
        }
        let mut answers = waiting.into_iter();
        assert_eq!(answers.next().unwrap().await, Ok(10));
        let large = queue.submit(6, 99).unwrap();
        assert_eq!(
            queue.submit(7, 99).unwrap_err(),
            Shut::Full,
            "too many bytes"
        );
        drop(large);
    }

    #[tokio::test]
    async fn who_has_left_is_passed_over() {
        let (queue, never) = (queue(), CancellationToken::new());
        drop(queue.submit(1, 1).unwrap());
        let _waits = queue.submit(2, 1).unwrap();
        assert_eq!(items(&queue.take(&never).await.unwrap()), [2]);
    }

    #[tokio::test]
    async fn at_the_end_what_waits_is_taken_and_nothing_more_let_in() {
        let (queue, shutdown) = (queue(), CancellationToken::new());
        let _waits = queue.submit(1, 1).unwrap();
        shutdown.cancel();
        assert!(queue.take(&shutdown).await.is_some());
        assert!(queue.take(&shutdown).await.is_none());
        assert_eq!(queue.submit(2, 1).unwrap_err(), Shut::Closed);
        assert!(queue.take(&shutdown).await.is_none(), "another writer");
    }
}
