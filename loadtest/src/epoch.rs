//! One clock for a whole run: microseconds since it began.
//!
//! Generator and receiver share a process, so a latency is the difference of two readings of one
//! monotonic clock.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::clock;
use tokio::time::Instant;

/// When a run began, on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Epoch {
    instant: Instant,
    wall: DateTime<Utc>,
}

impl Epoch {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            instant: Instant::now(),
            wall: clock::now(),
        }
    }

    /// Microseconds since the beginning.
    #[must_use]
    pub fn micros(self) -> u64 {
        u64::try_from(self.instant.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The instant that many microseconds after the beginning.
    #[must_use]
    pub fn instant(self, micros: u64) -> Instant {
        self.instant + Duration::from_micros(micros)
    }

    /// Microseconds since the beginning at that time of the wall clock; 0 before it.
    #[must_use]
    pub fn micros_at(self, time: DateTime<Utc>) -> u64 {
        let micros = (time - self.wall).num_microseconds();
        micros.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
    }

    /// The wall clock's time at the beginning.
    #[must_use]
    pub fn wall(self) -> DateTime<Utc> {
        self.wall
    }
}
