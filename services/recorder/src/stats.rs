//! What the recorder has done since it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hooklane_store::record::Applied;

#[derive(Debug, Default)]
struct Counters {
    batches: AtomicU64,
    records: AtomicU64,
    attempts: AtomicU64,
    missing: AtomicU64,
    poisoned: AtomicU64,
    failing: AtomicU64,
    recovered: AtomicU64,
    disabled: AtomicU64,
    undecodable: AtomicU64,
    stripped: AtomicU64,
    unwritable: AtomicU64,
    retries: AtomicU64,
}

/// Tells what a running recorder has done; clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct Handle(Arc<Counters>);

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions committed.
    pub batches: u64,
    /// Records written.
    pub records: u64,
    /// Attempts written that were not there before.
    pub attempts: u64,
    /// Deliveries named by records that are not in the ledger any more.
    pub missing: u64,
    /// Deliveries that failed as poison.
    pub poisoned: u64,
    /// Endpoints that began to fail.
    pub failing: u64,
    /// Endpoints that recovered from failing.
    pub recovered: u64,
    /// Endpoints disabled, by a 410 or for failing too long.
    pub disabled: u64,
    /// Messages that were no batch of records, and were ended.
    pub undecodable: u64,
    /// Records written without headers, body and detail, because with them they could not be.
    pub stripped: u64,
    /// Records that could not be written at all.
    pub unwritable: u64,
    /// Tries that failed for a reason that passes.
    pub retries: u64,
}

impl Handle {
    /// The counts by now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Counters {
            batches,
            records,
            attempts,
            missing,
            poisoned,
            failing,
            recovered,
            disabled,
            undecodable,
            stripped,
            unwritable,
            retries,
        } = &*self.0;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            batches: get(batches),
            records: get(records),
            attempts: get(attempts),
            missing: get(missing),
            poisoned: get(poisoned),
            failing: get(failing),
            recovered: get(recovered),
            disabled: get(disabled),
            undecodable: get(undecodable),
            stripped: get(stripped),
            unwritable: get(unwritable),
            retries: get(retries),
        }
    }

    pub(crate) fn applied(&self, records: usize, applied: &Applied) {
        self.0.batches.fetch_add(1, Ordering::Relaxed);
        self.0.records.fetch_add(records as u64, Ordering::Relaxed);
        self.0
            .attempts
            .fetch_add(applied.attempts, Ordering::Relaxed);
        self.0.missing.fetch_add(applied.missing, Ordering::Relaxed);
        self.0
            .poisoned
            .fetch_add(applied.poisoned, Ordering::Relaxed);
        self.0.failing.fetch_add(applied.failing, Ordering::Relaxed);
        self.0
            .recovered
            .fetch_add(applied.recovered, Ordering::Relaxed);
        self.0
            .disabled
            .fetch_add(applied.disabled, Ordering::Relaxed);
    }

    pub(crate) fn poisoned(&self, deliveries: u64) {
        self.0.poisoned.fetch_add(deliveries, Ordering::Relaxed);
    }

    pub(crate) fn undecodable(&self) {
        self.0.undecodable.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stripped(&self) {
        self.0.stripped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unwritable(&self) {
        self.0.unwritable.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }
}
