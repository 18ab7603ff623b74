//! What the mover has done since it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Counters {
    dead_lettered: AtomicU64,
    put_again: AtomicU64,
    stripped: AtomicU64,
    unfit: AtomicU64,
    advisories: AtomicU64,
    taken_off: AtomicU64,
    stalled: AtomicU64,
    poisoned: AtomicU64,
    unreadable: AtomicU64,
    stuck_events: AtomicU64,
}

/// Tells what a running mover has done; clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct Handle(Arc<Counters>);

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Deliveries put into `DLQ` for the first time.
    pub dead_lettered: u64,
    /// Deliveries put there again, because the stream was made anew.
    pub put_again: u64,
    /// Dead letters whose payload was too large to go along.
    pub stripped: u64,
    /// Failed deliveries that can't be put there; they stay in the ledger.
    pub unfit: u64,
    /// Advisories read.
    pub advisories: u64,
    /// Exhausted messages taken off their stream.
    pub taken_off: u64,
    /// Their deliveries put back into the ledger with a fault more.
    pub stalled: u64,
    /// Their deliveries failed as poison.
    pub poisoned: u64,
    /// Exhausted messages that could not be read, dead-lettered with what was there.
    pub unreadable: u64,
    /// Events that were exhausted before they were fanned out; the scheduler drives their deliveries.
    pub stuck_events: u64,
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    DeadLettered,
    PutAgain,
    Stripped,
    Unfit,
    Advisories,
    TakenOff,
    Stalled,
    Poisoned,
    Unreadable,
    StuckEvents,
}

impl Handle {
    /// The counts by now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Counters {
            dead_lettered,
            put_again,
            stripped,
            unfit,
            advisories,
            taken_off,
            stalled,
            poisoned,
            unreadable,
            stuck_events,
        } = &*self.0;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            dead_lettered: get(dead_lettered),
            put_again: get(put_again),
            stripped: get(stripped),
            unfit: get(unfit),
            advisories: get(advisories),
            taken_off: get(taken_off),
            stalled: get(stalled),
            poisoned: get(poisoned),
            unreadable: get(unreadable),
            stuck_events: get(stuck_events),
        }
    }

    pub(crate) fn add(&self, what: Count, by: u64) {
        let counters = &*self.0;
        let counter = match what {
            Count::DeadLettered => &counters.dead_lettered,
            Count::PutAgain => &counters.put_again,
            Count::Stripped => &counters.stripped,
            Count::Unfit => &counters.unfit,
            Count::Advisories => &counters.advisories,
            Count::TakenOff => &counters.taken_off,
            Count::Stalled => &counters.stalled,
            Count::Poisoned => &counters.poisoned,
            Count::Unreadable => &counters.unreadable,
            Count::StuckEvents => &counters.stuck_events,
        };
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
