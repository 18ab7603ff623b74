//! Stopping a partition in order, at shutdown or when it goes to another dispatcher.
//!
//! # The order, and why
//!
//! 1. *Stop pulling.* What was on its way is given back, for the next owner to pull at once.
//! 2. *Give back what has not started.* Lanes nak their queues and start nothing more; the
//!    fan-out gives back what still comes out of its mailbox. Events whose copies are being
//!    published are seen to their end.
//! 3. *Let attempts end*, for [`drain_attempts`](crate::Config::drain_attempts). What is still
//!    under way then is cut, and recorded as `interrupted`, which counts for nothing: the receiver
//!    may have got it, and gets it again with the same id.
//! 4. *Flush records*, for [`drain_records`](crate::Config::drain_records). Only now are the
//!    attempts' messages acknowledged. Records that can't be published by then are lost, their
//!    messages come again, and those deliveries may be attempted twice. (Where the lease was lost,
//!    as when the broker is away for long, the process goes on: then they are kept until the broker
//!    takes them.)
//! 5. *Release the lease* (the ownership does), when nobody here acts any more.
//!
//! Every step has its own bound, and they add up to less than 20 s by default. Children are
//! stopped before their supervisor, since a stopping supervisor kills them.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::config::Config;
use crate::fanout::Msg;
use crate::partition::Partition;

/// How long attempts that were cut may take to make their records.
const CUT: Duration = Duration::from_millis(500);
/// How long the broker's client may take to end a pull.
const PULLS: Duration = Duration::from_secs(2);

/// When records have to be safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Before the partition has stopped; they are given up after a while.
    Now,
    /// Whenever the broker takes them.
    Later,
}

impl Partition {
    /// Waits until the fan-out has ended by itself, which it does only by failing.
    pub(crate) async fn failed(&mut self) {
        // An `Err` says the same: its task has ended.
        let _ = (&mut self.fanout_task).await;
    }

    /// Stops everything in order. Gives the batcher where its records are to be flushed later.
    pub(crate) async fn stop(
        &mut self,
        config: &Config,
        flush: Flush,
    ) -> Option<AbortOnDropHandle<()>> {
        self.stop_pulling.cancel();
        let (done, drained) = oneshot::channel();
        // A fan-out that is gone has nothing to drain, and drops the sender.
        let _ = self.fanout.cast(Msg::Drain(done));
        self.helpers.abort_all();
        let pulls = async { while self.pulls.join_next().await.is_some() {} };
        let attempts = async {
            let mut drained = drained;
            if timeout(config.drain_attempts, &mut drained).await.is_err() {
                info!(
                    partition = self.number,
                    "cutting attempts that are still under way"
                );
                self.cut.cancel();
                if timeout(CUT, drained).await.is_err() {
                    warn!(partition = self.number, "lanes did not end in time");
                }
            }
        };
        let (pulls, ()) = tokio::join!(timeout(PULLS, pulls), attempts);
        if pulls.is_err() {
            self.pulls.abort_all();
        }
        self.fanout.stop(None);
        if !self.fanout_task.is_finished() {
            let _ = (&mut self.fanout_task).await;
        }
        let mut batcher = self.batcher.take()?;
        if flush == Flush::Later {
            return Some(batcher);
        }
        if timeout(config.drain_records, &mut batcher).await.is_err() {
            warn!(
                partition = self.number,
                "records could not be published in time, their deliveries come again"
            );
        }
        None
    }
}

impl Drop for Partition {
    /// Ends whatever still acts, where nobody stopped it in order: actors don't end with their
    /// handles.
    fn drop(&mut self) {
        self.stop_pulling.cancel();
        self.fanout.kill();
        self.cut.cancel();
    }
}
