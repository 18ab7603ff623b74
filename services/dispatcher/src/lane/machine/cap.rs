//! How many attempts a lane may have in flight: halved by timeouts, grown back by successes.

use std::time::Duration;

/// The cap, between 1 and the endpoint's concurrency.
#[derive(Debug)]
pub(super) struct Cap {
    limit: u32,
    /// Fractional, so that a round of successes adds one in all.
    allowed: f64,
    halved_at: Option<Duration>,
}

impl Cap {
    pub(super) fn new(limit: u32) -> Self {
        let limit = limit.max(1);
        Self {
            limit,
            allowed: f64::from(limit),
            halved_at: None,
        }
    }

    /// Attempts allowed in flight, at least 1.
    pub(super) fn now(&self) -> u32 {
        // Within 1 and a `u32`, so the cast only drops the fraction.
        (self.allowed as u32).clamp(1, self.limit)
    }

    pub(super) fn is_full(&self) -> bool {
        self.now() == self.limit
    }

    /// An attempt that was started then has timed out.
    pub(super) fn halve(&mut self, started: Duration, now: Duration) {
        if self.halved_at.is_some_and(|at| started < at) {
            return;
        }
        self.allowed = (self.allowed / 2.0).max(1.0);
        self.halved_at = Some(now);
    }

    /// An attempt has succeeded.
    pub(super) fn grow(&mut self) {
        self.allowed = (self.allowed + 1.0 / self.allowed).min(f64::from(self.limit));
    }

    /// The endpoint's concurrency was changed. A cap that was full stays full.
    pub(super) fn set_limit(&mut self, limit: u32) {
        let full = self.is_full();
        self.limit = limit.max(1);
        self.allowed = if full {
            f64::from(self.limit)
        } else {
            self.allowed.min(f64::from(self.limit))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn attempts_that_hang_together_halve_once() {
        let mut cap = Cap::new(16);
        for _ in 0..16 {
            cap.halve(s(0), s(15));
        }
        assert_eq!(cap.now(), 8);
        cap.halve(s(15), s(30));
        assert_eq!(cap.now(), 4);
    }

    #[test]
    fn it_never_falls_below_one_and_grows_back_by_one_a_round() {
        let mut cap = Cap::new(4);
        for n in 1..10 {
            cap.halve(s(n), s(n));
        }
        assert_eq!(cap.now(), 1);
        cap.grow();
        assert_eq!(cap.now(), 2);
        cap.grow();
        cap.grow();
        cap.grow();
        assert_eq!(cap.now(), 3);
        for _ in 0..100 {
            cap.grow();
        }
        assert!(cap.is_full());
    }

    #[test]
    fn a_full_cap_follows_its_limit() {
        let mut cap = Cap::new(4);
        cap.set_limit(256);
        assert_eq!(cap.now(), 256);
        cap.halve(s(1), s(1));
        cap.set_limit(200);
        assert_eq!(cap.now(), 128);
        cap.set_limit(2);
        assert_eq!(cap.now(), 2);
    }
}
