//! Keeping what was refused for its signature: off the requests' path, and never faster than the ledger
//! has time for. Who floods the inbox with bad signatures fills a small queue, and the rest is counted.

use std::time::Duration;

use bytes::Bytes;
use hooklane_core::pace::pause;
use hooklane_store::Store;
use hooklane_store::inbox::Reject;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::Clock;
use crate::stats::{Count, Handle};

/// Rejects that may wait.
const QUEUE: usize = 256;
/// Rejects written by one statement.
const BATCH: usize = 64;
/// Bytes of a body that are kept.
const BODY: usize = 16 << 10;
/// The pause between two statements: strangers write no more than a batch a second.
const BREATHER: Duration = Duration::from_secs(1);

/// Takes rejects without ever waiting.
#[derive(Debug, Clone)]
pub(crate) struct Rejects(mpsc::Sender<Reject>);

/// Writes down what was taken.
#[derive(Debug)]
pub(crate) struct Keeper {
    taken: mpsc::Receiver<Reject>,
    store: Store,
    clock: Clock,
    handle: Handle,
    cap: u32,
}

impl Rejects {
    /// Of each source the last `cap` are kept; none are, where that is 0.
    pub(crate) fn new(cap: u32, store: &Store, clock: &Clock, handle: &Handle) -> (Self, Keeper) {
        let (sender, taken) = mpsc::channel(QUEUE);
        let keeper = Keeper {
            taken,
            store: store.clone(),
            clock: clock.clone(),
            handle: handle.clone(),
            cap,
        };
        (Self(sender), keeper)
    }

    /// Takes a reject to be kept; `false` where there is no room for it.
    pub(super) fn keep(&self, reject: Reject) -> bool {
        self.0.try_send(reject).is_ok()
    }
}

/// What is kept of a body, in memory of its own: the rest is not to wait along.
pub(super) fn beginning(body: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&body[..body.len().min(BODY)])
}

impl Keeper {
    /// Writes until `term`.
    pub(crate) async fn run(mut self, term: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let count = tokio::select! {
                biased;
                () = term.cancelled() => return,
                count = self.taken.recv_many(&mut batch, BATCH) => count,
            };
            if count == 0 {
                return;
            }
            if self.cap > 0 {
                self.write(&batch).await;
            }
            batch.clear();
            if !pause(BREATHER, &term).await {
                return;
            }
        }
    }

    async fn write(&self, batch: &[Reject]) {
        let written = self.store.inbox_reject(self.clock.now(), batch, self.cap);
        if let Err(error) = written.await {
            self.handle.add(Count::RejectsLost, batch.len() as u64);
            warn!(%error, rejects = batch.len(), "rejected requests could not be kept");
        }
    }
}
