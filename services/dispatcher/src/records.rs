//! What happened at the lanes of one partition, on its way to the ledger.
//!
//! Owns batching, publishing until the broker has it, and settling the messages afterwards. Does
//! not own what a record says.
//!
//! A batch is made once and never changed, so that every repetition carries the same id and the
//! broker keeps it once. A record whose batch can't be published is held and tried again, never
//! made anew by another attempt: its message is told to be in hand all the while, and its permit
//! stays taken, so that a broker that takes no records soon stops the pulling of new work.
//!
//! An idle batcher sends the first record at once. While a batch is on its way the next one is
//! filled for a moment, so that batches grow with the load.

mod batch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hooklane_nats::Publisher;
use hooklane_proto::record::{MAX_BATCH_RECORDS, Record};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use crate::config;
use crate::grip::Grip;
use batch::Batch;

/// Records of a fan-out that may wait for the batcher; more make the fan-out wait.
const PARKS: usize = 1_024;

/// A record and what is settled when it is safe.
pub(crate) struct Entry {
    pub(crate) record: Record,
    pub(crate) owner: Owner,
}

/// What a record settles.
pub(crate) enum Owner {
    /// A delivery's message: acknowledged.
    Ack(Grip),
    /// A delivery's message: terminated, for a reason that names it.
    Term(Grip, String),
    /// A part of an event, which is acknowledged when all its parts are safe.
    Part(Arc<Parts>),
}

/// The records that an event waits for.
#[derive(Debug)]
pub(crate) struct Parts {
    left: AtomicUsize,
    done: Notify,
}

impl Parts {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(count),
            done: Notify::new(),
        })
    }

    /// One is safe.
    fn one_done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    /// Waits until all are safe. For one waiter.
    pub(crate) async fn all_done(&self) {
        while self.left.load(Ordering::Acquire) > 0 {
            self.done.notified().await;
        }
    }
}

/// Where lanes and fan-out put records.
#[derive(Clone)]
pub(crate) struct Recorder {
    settled: mpsc::Sender<Entry>,
    parks: mpsc::Sender<Entry>,
}

/// What a batcher needs.
pub(crate) struct Batcher {
    partition: u16,
    publisher: Publisher,
    config: config::Records,
    progress_every: Duration,
    settled: mpsc::Receiver<Entry>,
    parks: mpsc::Receiver<Entry>,
}

/// A recorder and its batcher, which ends when all recorders are dropped and everything is safe.
pub(crate) fn channel(
    partition: u16,
    publisher: Publisher,
    config: &config::Config,
) -> (Recorder, Batcher) {
    // Every entry of a delivery holds one of so many permits, so this never fills.
    let (settled_tx, settled) = mpsc::channel(config.max_held_per_partition as usize);
    let (parks_tx, parks) = mpsc::channel(PARKS);
    let recorder = Recorder {
        settled: settled_tx,
        parks: parks_tx,
    };
    let batcher = Batcher {
        partition,
        publisher,
        config: config.records.clone(),
        progress_every: config.progress_every,
        settled,
        parks,
    };
    (recorder, batcher)
}

impl Recorder {
    /// Takes a delivery's record. Never blocks.
    pub(crate) fn settle(&self, entry: Entry) {
        if self.settled.try_send(entry).is_err() {
            // Only after the batcher was stopped at the end of a drain. Its message comes again.
            warn!("a record was made after the last one was published");
        }
    }

    /// Takes a fan-out's record, waiting for room.
    pub(crate) async fn park(&self, entry: Entry) {
        if self.parks.send(entry).await.is_err() {
            warn!("a record was made after the last one was published");
        }
    }
}

impl Batcher {
    /// Publishes until all recorders are dropped. Cut short, it gives back what is not safe.
    pub(crate) async fn run(mut self) {
        let mut flights = JoinSet::new();
        let mut taken = Vec::with_capacity(MAX_BATCH_RECORDS);
        while self.take(&mut taken, &mut flights).await {
            for batch in Batch::fill(&mut taken, self.partition) {
                while flights.len() >= self.config.in_flight {
                    flights.join_next().await;
                }
                let publisher = self.publisher.clone();
                flights.spawn(batch.deliver(publisher, self.progress_every));
            }
        }
        while flights.join_next().await.is_some() {}
    }

    /// Fills `taken`; `false` when nothing more will come.
    async fn take(&mut self, taken: &mut Vec<Entry>, flights: &mut JoinSet<()>) -> bool {
        let mut until: Option<Instant> = None;
        let mut parked = Vec::new();
        loop {
            if is_over(&self.settled) && is_over(&self.parks) {
                return !taken.is_empty();
            }
            let room = MAX_BATCH_RECORDS - taken.len();
            let linger = async {
                match until {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = self.settled.recv_many(taken, room), if !is_over(&self.settled) => {}
                _ = self.parks.recv_many(&mut parked, room), if !is_over(&self.parks) => {
                    taken.append(&mut parked);
                }
                Some(_) = flights.join_next(), if !flights.is_empty() => {}
                () = linger => return true,
            }
            // With nothing on its way there is nothing to wait for.
            let full = taken.len() >= MAX_BATCH_RECORDS;
            if full || (flights.is_empty() && !taken.is_empty()) {
                return true;
            }
            if until.is_none() && !taken.is_empty() {
                until = Some(Instant::now() + self.config.linger);
            }
        }
    }
}

fn is_over(entries: &mpsc::Receiver<Entry>) -> bool {
    entries.is_closed() && entries.is_empty()
}
