//! When intake stops because the broker is down.
//!
//! While nothing can be published, everything accepted stays `received` in the ledger until the
//! broker is back and the sweep drives it: a backlog that grows with every message and is bounded by
//! the disk alone. So while the writers' lanes say that publishing is down, and then alone, the ledger
//! is asked once a second how many such deliveries it holds, counting no further than the limit: a walk
//! over so many entries of one partial index. At the limit intake is refused until publishing works
//! again, which the lanes find out by themselves.
//!
//! Asking the ledger, and not counting here, holds for all processes together and over restarts. It
//! costs nothing while the broker is up, and one part in twenty of the time where counting takes long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hooklane_nats::events::Counts;
use hooklane_store::Store;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How often the ledger is asked.
const EVERY: Duration = Duration::from_secs(1);
/// The share of the time that asking may take: one in so many.
const SHARE: u32 = 20;

/// Whether messages are let in.
#[derive(Debug)]
pub(super) struct Gate {
    counts: Counts,
    full: AtomicBool,
}

impl Gate {
    pub(super) fn new(counts: Counts) -> Self {
        Self {
            counts,
            full: AtomicBool::new(false),
        }
    }

    /// Whether none are. Opens in the moment in which publishing works again.
    pub(super) fn is_shut(&self) -> bool {
        self.full.load(Ordering::Relaxed) && self.counts.is_down()
    }

    fn set_full(&self, full: bool) {
        if self.full.swap(full, Ordering::Relaxed) == full {
            return;
        }
        if full {
            warn!("the broker is down and the ledger's backlog at its limit: messages are refused");
        } else {
            info!("messages are taken again");
        }
    }
}

/// Keeps the gate true until `shutdown`.
pub(super) async fn watch(
    store: Store,
    limit: u32,
    gate: std::sync::Arc<Gate>,
    shutdown: CancellationToken,
) {
    let mut pause = EVERY;
    while shutdown
        .run_until_cancelled(tokio::time::sleep(pause))
        .await
        .is_some()
    {
        pause = EVERY;
        if !gate.counts.is_down() {
            gate.set_full(false);
            continue;
        }
        let started = Instant::now();
        match store.received_up_to(limit).await {
            Ok(received) => gate.set_full(received >= limit),
            // Then nothing is accepted either.
            Err(error) => debug!(%error, "the ledger's backlog could not be counted"),
        }
        pause = pause.max(started.elapsed() * SHARE);
    }
}
