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
//! 4. *Flush records.* Only now are the attempts' messages acknowledged, and events of which a part
//!    was parked.
//! 5. *Release the lease* (the ownership does), when nobody here acts any more.
//!
//! # How long that takes
//!
//! A partition that is handed over waits for its records, and for the events that wait for theirs,
//! as long as its lease lasts: whoever comes next knows nothing of what was attempted here, and
//! would attempt it again. Nothing else waits for long: copies are tried until their not-after, and
//! what the lanes had not started is with the broker.
//!
//! When the process stops there is a deadline, [`drain_records`](crate::Config::drain_records) after
//! the attempts. Records that can't be published by then are lost, their messages come again, and
//! those deliveries may be attempted twice. The steps add up to less than 20 s by default.
//!
//! Where the lease is lost, as when the broker is away for long, the process goes on and so does its
//! batcher: records are kept until the broker takes them.
//!
//! Children are stopped before their supervisor, since a stopping supervisor kills them.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::config::Config;
use crate::fanout::Msg;
use crate::partition::Partition;

/// How long attempts that were cut may take to make their records.
const CUT: Duration = Duration::from_millis(500);
/// How long the broker's client may take to end a pull.
const PULLS: Duration = Duration::from_secs(2);

/// What may cut a drain short. It may happen while the partition stops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Haste {
    /// The process stops: records are given up after a while.
    pub(crate) shutdown: CancellationToken,
    /// The lease is lost: records are published whenever the broker takes them.
    pub(crate) lost: CancellationToken,
}

impl Haste {
    /// Comes `after` the process was told to stop.
    async fn overdue(&self, after: Duration) {
        self.shutdown.cancelled().await;
        sleep(after).await;
    }

    /// Comes when attempts that were cut have had their time, and nobody is to be waited for.
    async fn left_alone(&self) {
        self.lost.cancelled().await;
        sleep(CUT).await;
    }
}

impl Partition {
    /// Waits until the fan-out has ended by itself, which it does only by failing.
    pub(crate) async fn failed(&mut self) {
        // An `Err` says the same: its task has ended.
        let _ = (&mut self.fanout_task).await;
    }

    /// Stops everything in order. Gives the batcher where the lease was lost before it had ended.
    pub(crate) async fn stop(
        &mut self,
        config: &Config,
        haste: &Haste,
    ) -> Option<AbortOnDropHandle<()>> {
        self.stop_pulling.cancel();
        let (done, mut drained) = oneshot::channel();
        // A fan-out that is gone has nothing to drain, and drops the sender.
        let _ = self.fanout.cast(Msg::Drain(done));
        self.helpers.abort_all();
        let pulls = async { while self.pulls.join_next().await.is_some() {} };
        let attempts = async {
            let ended = timeout(config.drain_attempts, &mut drained).await.is_ok();
            if !ended {
                info!(
                    partition = self.number,
                    "cutting attempts that are still under way"
                );
                self.cut.cancel();
            }
            ended
        };
        let (pulls, ended) = tokio::join!(timeout(PULLS, pulls), attempts);
        if pulls.is_err() {
            self.pulls.abort_all();
        }
        // One deadline for what is left, since records are published all the while.
        let overdue = haste.overdue(config.drain_records);
        tokio::pin!(overdue);
        if !ended {
            let waited = tokio::select! {
                biased;
                _ = &mut drained => true,
                () = haste.left_alone() => false,
                () = &mut overdue => false,
            };
            if !waited {
                warn!(
                    partition = self.number,
                    "lanes and events did not end in time"
                );
            }
        }
        self.fanout.stop(None);
        if !self.fanout_task.is_finished() {
            let _ = (&mut self.fanout_task).await;
        }
        let mut batcher = self.batcher.take()?;
        tokio::select! {
            biased;
            _ = &mut batcher => {}
            () = haste.lost.cancelled() => return Some(batcher),
            () = overdue => warn!(
                partition = self.number,
                "records could not be published in time, their deliveries come again"
            ),
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
