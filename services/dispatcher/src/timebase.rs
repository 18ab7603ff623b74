//! The lanes' clock: time since the process's start, which pure code calculates with, and its
//! relation to the wall clock of deadlines and holds.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use tokio::time::Instant;

/// The origin of the lanes' time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timebase(Instant);

/// One reading of both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Since the origin.
    pub(crate) at: Duration,
    wall: DateTime<Utc>,
}

impl Timebase {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the origin.
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// Both clocks at this moment.
    pub(crate) fn both(self) -> Now {
        Now {
            at: self.now(),
            wall: clock::now(),
        }
    }

    /// The runtime's instant at a time since the origin.
    pub(crate) fn instant(self, at: Duration) -> Instant {
        self.0 + at
    }
}

impl Now {
    /// The time since the origin at a moment of the wall clock; now, for a moment in the past.
    pub(crate) fn at_wall(self, wall: DateTime<Utc>) -> Duration {
        let ahead = (wall - self.wall).to_std().unwrap_or_default();
        self.at.saturating_add(ahead)
    }

    /// The wall clock at a time since the origin.
    pub(crate) fn to_wall(self, at: Duration) -> DateTime<Utc> {
        let signed = |duration| TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
        let moved = match at.checked_sub(self.at) {
            Some(ahead) => self.wall.checked_add_signed(signed(ahead)),
            None => self.wall.checked_sub_signed(signed(self.at - at)),
        };
        moved.unwrap_or(self.wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_two_clocks_convert_both_ways() {
        let now = Timebase::start().both();
        let later = now.wall + TimeDelta::seconds(90);
        assert_eq!(now.at_wall(later), now.at + Duration::from_secs(90));
        assert_eq!(now.to_wall(now.at_wall(later)), later);
        assert_eq!(now.at_wall(now.wall - TimeDelta::seconds(5)), now.at);
    }
}
