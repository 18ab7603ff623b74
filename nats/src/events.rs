//! From the commit to `EVENTS`.
//!
//! Owns one worker per task that accepts: the worker publishes a batch, pipelined, while the next
//! one is being accepted; one more may wait. Nothing here is a promise: an event that is not
//! confirmed until its time is over is left to the sweep, so publishing may hold acceptance back
//! for a moment and never for long. Once it has failed, batches are let through only as far as the
//! worker is free, until one of them succeeds.
//!
//! A worker that gave up keeps one of the events and sends it again, once a second, until the broker
//! confirms it: so that publishing works again is noticed also where nothing new comes in. The event's
//! time is over by then, and whoever reads `EVENTS` for fan-out drops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hooklane_proto::event::Event;
use hooklane_proto::subject;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::client::Client;
use crate::publisher::{Outgoing, PublishError, Publisher};
use crate::topology;

/// How long acceptance waits for the worker before it goes on without publishing.
const WAIT: Duration = Duration::from_secs(2);
/// How often a worker that gave up tries whether publishing works again.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// What became of the events of all lanes that share it; clones tell of the same ones.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    published: AtomicU64,
    left: AtomicU64,
    down: AtomicBool,
}

impl Counts {
    /// Wire messages that `EVENTS` confirmed.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.0.published.load(Ordering::Relaxed)
    }

    /// Wire messages that it did not confirm in time, left to the sweep.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.left.load(Ordering::Relaxed)
    }

    /// Whether events can't be published at present, and are left to the sweep.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.0.down.load(Ordering::Relaxed)
    }

    fn add(&self, published: u64, left: u64) {
        self.0.published.fetch_add(published, Ordering::Relaxed);
        self.0.left.fetch_add(left, Ordering::Relaxed);
    }

    fn note_down(&self, reason: &str) {
        if !self.0.down.swap(true, Ordering::Relaxed) {
            warn!(
                reason,
                "events can't be published, the sweep will drive them"
            );
        }
    }

    fn note_up(&self) {
        if self.0.down.swap(false, Ordering::Relaxed) {
            info!("events are published again");
        }
    }
}

/// One task's way to publish.
#[derive(Debug)]
pub struct Lane {
    batches: mpsc::Sender<Batch>,
    worker: JoinHandle<()>,
    client: Client,
    counts: Counts,
}

#[derive(Debug)]
struct Batch {
    events: Vec<Event>,
    until: Instant,
}

impl Lane {
    /// Starts a worker, which counts in `counts` and shares the window of `publisher`.
    #[must_use]
    pub fn start(client: &Client, publisher: &Publisher, counts: &Counts) -> Self {
        // One batch waits while another is being published and a third accepted.
        let (batches, queue) = mpsc::channel(1);
        let worker = Worker {
            client: client.clone(),
            publisher: publisher.clone(),
            counts: counts.clone(),
            kept: None,
        };
        Self {
            batches,
            worker: tokio::spawn(worker.run(queue)),
            client: client.clone(),
            counts: counts.clone(),
        }
    }

    /// Has accepted events published, until `until` at the latest. Returns once the worker has them,
    /// or they are left to the sweep: after 2 s at the latest.
    pub async fn publish(&self, events: Vec<Event>, until: Instant) {
        if events.is_empty() {
            return;
        }
        let count = events.len() as u64;
        let batch = Batch { events, until };
        let down = self.counts.is_down() || !self.client.is_connected();
        let taken = if down {
            self.batches.try_send(batch).is_ok()
        } else {
            let sent = self.batches.send_timeout(batch, WAIT).await;
            if sent.is_err() {
                self.counts.note_down("the broker is slow to confirm");
            }
            sent.is_ok()
        };
        if !taken {
            self.counts.add(0, count);
        }
    }

    /// Ends the worker once everything it was given is published or its time is over.
    pub async fn finish(self) {
        drop(self.batches);
        if let Err(error) = self.worker.await {
            error!(%error, "publishing ended early");
        }
    }
}

struct Worker {
    client: Client,
    publisher: Publisher,
    counts: Counts,
    /// An event of the last batch that was given up.
    kept: Option<Outgoing>,
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::Receiver<Batch>) {
        loop {
            // Another lane may have found it out first.
            if !self.counts.is_down() {
                self.kept = None;
            }
            let next = match &self.kept {
                None => Ok(queue.recv().await),
                Some(_) => tokio::time::timeout(TRY_EVERY, queue.recv()).await,
            };
            match next {
                Ok(Some(batch)) => self.publish(batch).await,
                Ok(None) => return,
                Err(_elapsed) => self.try_again().await,
            }
        }
    }

    async fn publish(&mut self, Batch { events, until }: Batch) {
        let messages: Vec<Outgoing> = events
            .into_iter()
            .map(|event| Outgoing {
                subject: event.subject(),
                headers: event.headers(),
                payload: event.payload,
            })
            .collect();
        let count = messages.len() as u64;
        // The last one: where a batch is given up in its middle, it is among those that were.
        let last = messages.last().cloned();
        let results = self.publisher.publish_all(messages, until).await;
        let mut confirmed = 0;
        let mut gave_up = None;
        for result in results {
            match result {
                Ok(_) => confirmed += 1,
                Err(error @ PublishError::GaveUp(_)) => gave_up = Some(error),
                // The ledger has it, and its deliveries are driven one by one.
                Err(error @ PublishError::Permanent(_)) => {
                    error!(%error, "an event can't be published, the sweep will drive it");
                }
            }
        }
        self.counts.add(confirmed, count - confirmed);
        if let Some(error) = gave_up {
            self.kept = last;
            self.counts.note_down(&error.to_string());
            self.look_after_the_stream().await;
        } else {
            self.counts.note_up();
        }
    }

    /// Sends the event that was kept once more.
    async fn try_again(&mut self) {
        if !self.client.is_connected() {
            return;
        }
        let Some(kept) = &self.kept else { return };
        let until = Instant::now() + TRY_EVERY;
        match self.publisher.publish(kept.clone(), until).await {
            Ok(_) => self.counts.note_up(),
            Err(PublishError::GaveUp(_)) => self.look_after_the_stream().await,
            // It was sent once, so that the broker answers is what this tells.
            Err(PublishError::Permanent(_)) => self.counts.note_up(),
        }
    }

    /// Nobody else may be there to make the stream anew.
    async fn look_after_the_stream(&self) {
        if !self.client.is_connected() {
            return;
        }
        if let Err(error) = topology::ensure_stream(&self.client, subject::EVENTS).await {
            debug!(%error, "the stream of events is not there");
        }
    }
}
