//! The house's two clocks. Nothing else reads time, so that tests with a paused clock stay true.
//!
//! [`now`] is the wall clock, for what is written down and compared across processes. [`Boot`]
//! is the clock for leases: it never jumps and it goes on while the host is suspended, so that a
//! process that slept finds its lease expired. Timers of async code are `tokio::time`'s.

use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use nix::time::{ClockId, clock_gettime};

/// The wall clock, cut to microseconds: what PostgreSQL keeps and what goes over the wire, so
/// that a time is equal to itself after either.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the wall clock's one home")]
pub fn now() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6)
}

/// An instant of a clock that never goes back and that runs while the host is suspended.
///
/// Meaningful within one boot of one host only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(Duration);

impl Boot {
    /// The present instant.
    ///
    /// # Panics
    /// Where the host has no `CLOCK_BOOTTIME`; every supported one does.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME)
            .expect("Linux has had CLOCK_BOOTTIME since 2.6.39");
        Self(time.into())
    }

    /// Time since this instant; zero where it lies ahead.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// Time from an earlier instant to this one; zero where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant that much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// A fixed instant for tests of pure code, that long after boot.
    #[must_use]
    pub const fn for_test(since_boot: Duration) -> Self {
        Self(since_boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_has_no_more_than_microseconds() {
        assert_eq!(now().timestamp_subsec_nanos() % 1000, 0);
    }

    #[test]
    fn boot_clock_moves_forward_only() {
        let first = Boot::now();
        let second = Boot::now();
        assert!(second >= first);
        assert_eq!(
            first.since(first.after(Duration::from_secs(1))),
            Duration::ZERO
        );
    }
}
