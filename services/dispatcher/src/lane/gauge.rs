//! What a lane shows to the fan-out: how much it can take, without being asked.
//!
//! Written by the lane after every step, read by the fan-out for every copy. It may be a moment
//! old; what the fan-out has promised in the meantime is counted by itself (see
//! [`crate::fanout::door`]).

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use chrono::{DateTime, Utc};

/// A lane's capacity as last seen by itself.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    room: AtomicU32,
    /// Deliveries in the lane's mailbox, not yet part of `room`.
    coming: AtomicU32,
    /// Microseconds since 1970; 0 for no hold.
    held_until: AtomicI64,
}

impl Gauge {
    /// What the lane could take at its last step.
    pub(crate) fn show(&self, room: u32, held_until: Option<DateTime<Utc>>) {
        self.room.store(room, Ordering::Relaxed);
        let until = held_until.map_or(0, |until| until.timestamp_micros());
        self.held_until.store(until, Ordering::Relaxed);
    }

    /// Deliveries were put into the mailbox.
    pub(crate) fn sent(&self, count: u32) {
        self.coming.fetch_add(count, Ordering::Relaxed);
    }

    /// Deliveries were taken out of it.
    pub(crate) fn taken(&self, count: u32) {
        // Saturating: a restarted lane has a new gauge and may see an old mailbox's rest.
        let order = Ordering::Relaxed;
        let _ = self
            .coming
            .fetch_update(order, order, |coming| Some(coming.saturating_sub(count)));
    }

    /// Deliveries in its mailbox.
    pub(crate) fn coming(&self) -> u32 {
        self.coming.load(Ordering::Relaxed)
    }

    /// What it can take beyond what is in its mailbox.
    pub(crate) fn room(&self) -> u32 {
        self.room
            .load(Ordering::Relaxed)
            .saturating_sub(self.coming())
    }

    /// When its hold ends, while there is one.
    pub(crate) fn held_until(&self) -> Option<DateTime<Utc>> {
        match self.held_until.load(Ordering::Relaxed) {
            0 => None,
            micros => DateTime::from_timestamp_micros(micros),
        }
    }
}
