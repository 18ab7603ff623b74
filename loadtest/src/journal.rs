//! What the generator did with each event: when its commit began, and how that ended.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What became of an event's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was not written.
    Unwritten,
    /// Its transaction was committed: it must be delivered.
    Committed,
    /// Its transaction was rolled back: it must never be seen.
    RolledBack,
}

/// By ordinal; written by the generator, read by the receiver and the verifier.
#[derive(Debug)]
pub struct Journal {
    began: Vec<AtomicU64>,
    fates: Vec<AtomicU8>,
}

impl Journal {
    /// For that many events, all unwritten.
    #[must_use]
    pub fn new(events: u32) -> Self {
        Self {
            began: (0..events).map(|_| AtomicU64::new(0)).collect(),
            fates: (0..events).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// Notes when an event's commit began, in microseconds since the run did.
    pub fn begin(&self, ordinal: u32, micros: u64) {
        self.began[ordinal as usize].store(micros, Ordering::Release);
    }

    /// Notes how it ended.
    pub fn end(&self, ordinal: u32, fate: Fate) {
        let code = match fate {
            Fate::Unwritten => 0,
            Fate::Committed => 1,
            Fate::RolledBack => 2,
        };
        self.fates[ordinal as usize].store(code, Ordering::Release);
    }

    /// When an event's commit began.
    #[must_use]
    pub fn began(&self, ordinal: u32) -> u64 {
        self.began[ordinal as usize].load(Ordering::Acquire)
    }

    /// How it ended.
    #[must_use]
    pub fn fate(&self, ordinal: u32) -> Fate {
        match self.fates[ordinal as usize].load(Ordering::Acquire) {
            1 => Fate::Committed,
            2 => Fate::RolledBack,
            _ => Fate::Unwritten,
        }
    }

    /// How many events are committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.fates
            .iter()
            .filter(|fate| fate.load(Ordering::Acquire) == 1)
            .count() as u64
    }
}
