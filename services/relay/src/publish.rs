//! From the commit to `EVENTS`.
//!
//! Owns one worker per task that accepts: the worker publishes a batch, pipelined, while the next
//! one is being accepted; one more may wait. Nothing here is a promise: an event that is not
//! confirmed until its time is over is left to the sweep, so publishing may hold acceptance back
//! for a moment and never for long. Once it has failed, batches are let through only as far as the
//! worker is free, until one of them succeeds.

use std::time::Duration;

use hooklane_nats::{Client, Outgoing, PublishError, Publisher, topology};
use hooklane_proto::event::Event;
use hooklane_proto::subject;
use hooklane_store::accept::Accepted;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::counts::Handle;

/// How long acceptance waits for the worker before it goes on without publishing.
const WAIT: Duration = Duration::from_secs(2);

/// One task's way to publish.
#[derive(Debug)]
pub(crate) struct Lane {
    batches: mpsc::Sender<Batch>,
    worker: JoinHandle<()>,
    client: Client,
    handle: Handle,
}

#[derive(Debug)]
struct Batch {
    events: Vec<Event>,
    until: Instant,
}

impl Lane {
    pub(crate) fn start(client: &Client, publisher: &Publisher, handle: &Handle) -> Self {
        // One batch waits while another is being published and a third accepted.
        let (batches, queue) = mpsc::channel(1);
        let worker = Worker {
            client: client.clone(),
            publisher: publisher.clone(),
            handle: handle.clone(),
        };
        Self {
            batches,
            worker: tokio::spawn(worker.run(queue)),
            client: client.clone(),
            handle: handle.clone(),
        }
    }

    /// Has the events of an acceptance published. Returns once the worker has them, or they are
    /// left to the sweep.
    pub(crate) async fn publish(&self, accepted: Accepted) {
        self.handle.outcomes(&accepted.outcomes);
        let (events, Some(until)) = (accepted.events, accepted.publish_until) else {
            return;
        };
        let count = events.len() as u64;
        let batch = Batch { events, until };
        let down = self.handle.is_publishing_down() || !self.client.is_connected();
        let taken = if down {
            self.batches.try_send(batch).is_ok()
        } else {
            let sent = self.batches.send_timeout(batch, WAIT).await;
            if sent.is_err() {
                note_down(&self.handle, "the broker is slow to confirm");
            }
            sent.is_ok()
        };
        if !taken {
            self.handle.published(0, count);
        }
    }

    /// Ends the worker once everything it was given is published or its time is over.
    pub(crate) async fn finish(self) {
        drop(self.batches);
        if let Err(error) = self.worker.await {
            error!(%error, "publishing ended early");
        }
    }
}

fn note_down(handle: &Handle, reason: &str) {
    if !handle.set_publishing_down(true) {
        warn!(
            reason,
            "events can't be published, the sweep will drive them"
        );
    }
}

struct Worker {
    client: Client,
    publisher: Publisher,
    handle: Handle,
}

impl Worker {
    async fn run(self, mut queue: mpsc::Receiver<Batch>) {
        while let Some(batch) = queue.recv().await {
            self.publish(batch).await;
        }
    }

    async fn publish(&self, Batch { events, until }: Batch) {
        let messages: Vec<Outgoing> = events
            .into_iter()
            .map(|event| Outgoing {
                subject: event.subject(),
                headers: event.headers(),
                payload: event.payload,
            })
            .collect();
        let count = messages.len() as u64;
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
        self.handle.published(confirmed, count - confirmed);
        if let Some(error) = gave_up {
            note_down(&self.handle, &error.to_string());
            self.look_after_the_stream().await;
        } else if self.handle.set_publishing_down(false) {
            info!("events are published again");
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
