//! Group commit: requests that come at the same time share a statement, and its flush to the disk.
//!
//! A request puts its event into a bounded queue and waits. A writer takes everything that waits, up to
//! a batch, without lingering, writes it in one statement and answers the requests after the commit:
//! a lone request waits for nobody, and the busier the inbox is the larger its batches are.
//!
//! Where the ledger fails, or takes longer than it may, every request of the batch is refused: nothing
//! is known of any. What was committed all the same the partner's repetition finds there.

use std::sync::Arc;
use std::time::Duration;

use hooklane_store::inbox::{Incoming, Receipt};
use hooklane_store::{Error, Store};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::queue::{Entry, Queue, Shut};
use super::refusal::Refusal;
use crate::clock::Clock;
use crate::config;

/// Bytes that an event takes beside its body.
const OVERHEAD: usize = 1_024;

type Answer = Result<Receipt, Failed>;

/// The ledger failed, or did not answer in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed;

/// The way into the ledger; clones lead to the same writers.
#[derive(Debug, Clone)]
pub(crate) struct Committer(Arc<Queue<Incoming, Answer>>);

impl Committer {
    /// A way in, and the writers at its end, which do nothing before [`Writers::start`]. They ring
    /// `arrived` after each commit.
    pub(crate) fn new(
        config: &config::Commit,
        store: &Store,
        clock: &Clock,
        arrived: &Arc<Notify>,
    ) -> (Self, Writers) {
        let queue = Arc::new(Queue::new(
            config.queue as usize,
            config.queue_bytes as usize,
            config.batch,
        ));
        let writers = Writers {
            writer: Writer {
                queue: Arc::clone(&queue),
                store: store.clone(),
                clock: clock.clone(),
                within: config.within,
                arrived: Arc::clone(arrived),
            },
            at_once: config.at_once,
        };
        (Self(queue), writers)
    }

    /// Has an event stored. Dropped, it is left out, or stored and nobody is told.
    pub(super) async fn commit(&self, incoming: Incoming) -> Result<Receipt, Refusal> {
        let headers: usize = incoming
            .headers
            .0
            .iter()
            .map(|(n, v)| n.len() + v.len())
            .sum();
        let bytes = OVERHEAD + headers + incoming.body.len();
        let waiting = self.0.submit(incoming, bytes).map_err(|shut| match shut {
            Shut::Full => Refusal::Full,
            Shut::Closed => Refusal::Stopping,
        })?;
        match waiting.await {
            Ok(Ok(receipt)) => Ok(receipt),
            Ok(Err(Failed)) | Err(_) => Err(Refusal::Ledger),
        }
    }
}

/// What is at the end of the queue.
#[derive(Debug)]
pub(crate) struct Writers {
    writer: Writer,
    at_once: usize,
}

impl Writers {
    /// Starts them. They write until `shutdown`, and then what waits: stop whoever submits first.
    pub(crate) fn start(self, tasks: &mut JoinSet<()>, shutdown: &CancellationToken) {
        for _ in 0..self.at_once {
            tasks.spawn(self.writer.clone().run(shutdown.clone()));
        }
    }
}

#[derive(Debug, Clone)]
struct Writer {
    queue: Arc<Queue<Incoming, Answer>>,
    store: Store,
    clock: Clock,
    within: Duration,
    arrived: Arc<Notify>,
}

impl Writer {
    async fn run(self, shutdown: CancellationToken) {
        while let Some(entries) = self.queue.take(&shutdown).await {
            self.commit(entries).await;
        }
    }

    async fn commit(&self, entries: Vec<Entry<Incoming, Answer>>) {
        let (items, replies): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .map(|entry| (entry.item, entry.reply))
            .unzip();
        let writing = self.store.inbox_receive(self.clock.now(), &items);
        let written = timeout(self.within, writing)
            .await
            .unwrap_or(Err(Error::TimedOut {
                doing: "storing received events",
                after: self.within,
            }));
        match written {
            Ok(receipts) => {
                self.arrived.notify_one();
                // One for each; whoever had none would be told that the ledger failed.
                for (receipt, reply) in receipts.into_iter().zip(replies) {
                    reply.send(Ok(receipt));
                }
            }
            Err(error) => {
                warn!(%error, requests = items.len(), "received events could not be stored");
                for reply in replies {
                    reply.send(Err(Failed));
                }
            }
        }
    }
}
