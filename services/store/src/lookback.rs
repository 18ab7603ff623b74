//! Looking back in time for what no index finds: stretch by stretch, each twice as long as the one
//! before as long as they are quick, until there is enough, nothing older, or no patience left.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// How far back the first look goes.
const FIRST: TimeDelta = TimeDelta::minutes(15);
/// A look that takes less makes the next one twice as long; four times as much, half as long.
const QUICK: Duration = Duration::from_millis(200);

/// How far back to look next.
pub(crate) struct Lookback {
    floor: DateTime<Utc>,
    stretch: TimeDelta,
    patience: Duration,
    begun: Instant,
    asked: Instant,
}

impl Lookback {
    /// Looks no further back than `floor`, and for `patience`; at least once in any case.
    pub(crate) fn new(floor: DateTime<Utc>, patience: Duration) -> Self {
        let now = Instant::now();
        Self {
            floor,
            stretch: FIRST,
            patience,
            begun: now,
            asked: now,
        }
    }

    /// Where the look begins that ends at `top`.
    pub(crate) fn from(&mut self, top: DateTime<Utc>) -> DateTime<Utc> {
        self.asked = Instant::now();
        top.checked_sub_signed(self.stretch)
            .map_or(self.floor, |from| from.max(self.floor))
    }

    /// Whether there is nothing before a look that begins at `from`.
    pub(crate) fn is_last(&self, from: DateTime<Utc>) -> bool {
        from <= self.floor
    }

    /// After a look that did not find enough: whether to look again.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.begun.elapsed() >= self.patience {
            return false;
        }
        self.stretch = match self.asked.elapsed() {
            quick if quick < QUICK => self.stretch * 2,
            slow if slow > QUICK * 4 => (self.stretch / 2).max(TimeDelta::seconds(1)),
            _ => self.stretch,
        };
        true
    }
}
