//! Messages on their way into the ledger, many requests to a commit.
//!
//! Owns the queue between requests and the ledger, the tasks that empty it (`Committer`,
//! `Writers`), the limits at which a request is refused instead of waiting, and what is known of
//! event types while messages come in (`types`, [`schema`]). Does not own acceptance: what is
//! written, and who repeats, is `hooklane_store::accept`'s.
//!
//! **Group commit.** A request puts its messages into the queue and waits for its outcomes. A writer
//! takes everything that waits, up to a batch, without lingering: it commits that as one transaction
//! and answers the requests; what came meanwhile is the next batch. So a lone request waits for
//! nobody, and the busier the API is, the more requests share one fsync. A request's messages stay
//! in order, so that of two with the same key the first one is the one accepted.
//!
//! **A long request gives way.** One that has more deliveries than a transaction should have takes
//! several, and what is left of it goes behind what came meanwhile. Its transactions are its own, so
//! that nobody waits for the deliveries of others. What is not committed in time (`commit_within`) is
//! refused, and the answer tells what is.
//!
//! **What is answered is committed.** Outcomes leave a writer after the commit alone. Where the
//! database fails, every request of the batch gets the fault. Whether a commit whose answer was lost
//! took place nobody can tell; a request with idempotency keys repeats safely.
//!
//! **Bounds.** Messages and bytes, waiting and being written, are counted by two semaphores, whose
//! permits travel with the request: full means refused at once. A request that waited too long for its
//! first turn is refused too, whatever the writers do meanwhile, and one whose client is gone is
//! dropped: nobody was told anything about it. While the broker is down intake goes on, until the
//! ledger holds so many deliveries that are to be published (`pressure`).

mod config;
mod pressure;
mod queue;
pub mod schema;
mod types;
mod writer;

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hooklane_core::error::ErrorCode;
use hooklane_nats::events::{Counts, Lane};
use hooklane_nats::{Client, Publisher};
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::Store;
use hooklane_store::accept::{NewMessage, Origin, Outcome};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::problem::Problem;
use pressure::Gate;
use queue::Submitter;
use writer::Writer;

pub use config::Config;
pub(crate) use types::{Known, Types};

/// How long the writers may take to finish what waits, once told to stop.
const GRACE: Duration = Duration::from_secs(12);
/// When to come again after the queue was full, or the ledger failed, in seconds.
const COME_AGAIN: u32 = 1;
/// When to come again after the broker was found to be down for too long, in seconds.
const COME_BACK_LATER: u32 = 5;

/// A message that came over HTTP, without a key or a trace.
pub(crate) fn new_message(
    consumer: ConsumerId,
    event_type: EventType,
    payload: Bytes,
) -> NewMessage {
    NewMessage {
        id: None,
        consumer,
        event_type,
        content_type: "application/json".to_owned(),
        payload,
        key: None,
        only: None,
        origin: Origin::Api,
        trace: None,
    }
}

/// What became of a request's messages.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Of the messages from the front that the ledger has decided about.
    pub(crate) outcomes: Vec<Outcome>,
    /// Why there is none of the others; `None` where there are no others.
    pub(crate) fault: Option<Refused>,
}

/// Why messages were not taken.
#[derive(Debug, Clone)]
pub(crate) enum Refused {
    /// As many as may wait do; or the request waited in vain.
    Full,
    /// The broker is down, and the ledger holds as much as it should meanwhile.
    Unpublished,
    /// This process is stopping.
    Stopping,
    /// The ledger failed. It may have the messages all the same, where the answer to a commit was
    /// lost.
    Failed(Arc<hooklane_store::Error>),
    /// The writer ended before it answered. The ledger may have the messages.
    CutOff,
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        const UNSURE: &str = "the ledger did not confirm that it has the message; send it again, \
                              with the same idempotency key";
        let (code, detail, seconds) = match refused {
            Refused::Full => (
                ErrorCode::Busy,
                "more messages come in than the ledger takes at present; send it again later",
                COME_AGAIN,
            ),
            Refused::Unpublished => (
                ErrorCode::Busy,
                "the broker is down, and as much waits for it as may; send it again later",
                COME_BACK_LATER,
            ),
            Refused::Stopping => (
                ErrorCode::Busy,
                "this server is stopping; send it again",
                COME_AGAIN,
            ),
            Refused::CutOff => (ErrorCode::PostgresUnavailable, UNSURE, COME_AGAIN),
            Refused::Failed(error) => match error.code() {
                code @ ErrorCode::SchemaOutdated => (code, UNSURE, COME_AGAIN),
                // A writer has logged it. Whatever it was, another time may be better.
                _ => (ErrorCode::PostgresUnavailable, UNSURE, COME_AGAIN),
            },
        };
        Self::new(code, detail).with_retry_after(seconds)
    }
}

/// The way into the ledger for requests; clones lead to the same writers.
#[derive(Debug, Clone)]
pub(crate) struct Committer {
    submitter: Submitter,
    gate: Arc<Gate>,
}

impl Committer {
    /// A way in and the writers at its end, which do nothing before [`Writers::run`]. Events are
    /// accepted for `deliver_within` at the most.
    pub(crate) fn new(
        config: &Config,
        deliver_within: Duration,
        store: &Store,
        client: &Client,
    ) -> (Self, Writers) {
        let (submitter, queue) = queue::new(config);
        let counts = Counts::default();
        let gate = Arc::new(Gate::new(counts.clone()));
        let committer = Self {
            submitter,
            gate: Arc::clone(&gate),
        };
        let partitions = NonZeroU16::new(client.partitions()).unwrap_or(NonZeroU16::MIN);
        let writers = Writers {
            writer: Writer {
                settings: config.settings(partitions, deliver_within),
                store: store.clone(),
                queue: Arc::new(queue),
            },
            at_once: config.commits_at_once,
            limit: config.unpublished_limit,
            publisher: Publisher::new(client, config.publish_window, config.publish_window_bytes),
            client: client.clone(),
            counts,
            gate,
        };
        (committer, writers)
    }

    /// Has messages accepted: all of them in order, and in one transaction where they fit into one.
    /// There is at least one outcome in the answer.
    ///
    /// Cancel-safe: a dropped call leaves its messages out, or they are accepted and nobody is told.
    ///
    /// # Errors
    /// Where none of them was taken, as far as anybody can tell.
    pub(crate) async fn commit(&self, messages: Vec<NewMessage>) -> Result<Answer, Refused> {
        if self.gate.is_shut() {
            return Err(Refused::Unpublished);
        }
        self.submitter.submit(messages)?.answer().await
    }
}

/// What is at the end of the queue.
#[derive(Debug)]
pub(crate) struct Writers {
    writer: Writer,
    at_once: usize,
    limit: u32,
    client: Client,
    publisher: Publisher,
    counts: Counts,
    gate: Arc<Gate>,
}

impl Writers {
    /// Writes until `shutdown`; then nothing more is let in, and what waits is committed, answered
    /// and published, if that takes no longer than some seconds. Stop whoever submits first.
    ///
    /// # Errors
    /// Where a writer panicked. The others have ended in order.
    pub(crate) async fn run(
        self,
        shutdown: CancellationToken,
    ) -> Result<(), tokio::task::JoinError> {
        let stop = shutdown.child_token();
        let watching = stop.child_token();
        let watch = tokio::spawn(pressure::watch(
            self.writer.store.clone(),
            self.limit,
            self.gate,
            watching.clone(),
        ));
        let mut tasks = JoinSet::new();
        for _ in 0..self.at_once {
            let lane = Lane::start(&self.client, &self.publisher, &self.counts);
            tasks.spawn(self.writer.clone().run(lane, stop.clone()));
        }
        drop(self.writer);
        let mut outcome = Ok(());
        let ending = async {
            while let Some(ended) = tasks.join_next().await {
                // They end when they are told to, or by a panic: then the others are to end too.
                stop.cancel();
                outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            }
        };
        let overdue = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = ending => {}
            () = overdue => warn!("messages that wait to be committed are cut off"),
        }
        watching.cancel();
        if let Err(error) = watch.await {
            error!(%error, "watching the ledger's backlog ended early");
        }
        outcome
    }
}
