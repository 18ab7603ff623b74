//! How fast a lane works, measured: what it can be expected to start within the horizon.
//!
//! Two measures, because each is blind where the other sees. The mean duration of attempts says
//! what the slots allow, also for a lane that has had little to do; a single attempt that hangs
//! among fast ones spoils it. The recent rate of endings says what the lane does in fact, but
//! only while it has work, and attempts that end together look like a rate that the slots can't
//! keep up: it counts for no more than the slots allow at the mean duration of what has ended. The
//! estimate is the greater of the two, and never less than the free slots.

use std::time::Duration;

/// The weight of the newest duration in the mean.
const WEIGHT: f64 = 0.125;
/// What an attempt is taken to last before any was measured.
const UNKNOWN: f64 = 1.0;
/// The time over which the rate of endings forgets, in seconds.
const MEMORY: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Pace {
    /// Mean duration of attempts, in seconds.
    mean: Option<f64>,
    /// Answered attempts, decaying by 1/e every [`MEMORY`].
    recent: f64,
    at: Duration,
}

impl Pace {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            mean: None,
            recent: 0.0,
            at: now,
        }
    }

    /// An attempt ended after that long; a timeout is no sign of pace.
    pub(super) fn ended(&mut self, now: Duration, lasted: Duration, timeout: bool) {
        let lasted = lasted.as_secs_f64();
        let mean = self.mean.unwrap_or(lasted);
        self.mean = Some(mean + (lasted - mean) * WEIGHT);
        self.recent = self.recent_at(now) + f64::from(u8::from(!timeout));
        self.at = self.at.max(now);
    }

    /// Attempts that `cap` slots, of which some are taken for as long as `ages` say, can start
    /// within `horizon`.
    pub(super) fn starts_within(
        &self,
        horizon: Duration,
        now: Duration,
        cap: u32,
        in_flight: usize,
        ages: impl Iterator<Item = Duration>,
    ) -> u32 {
        let horizon = horizon.as_secs_f64();
        let taken = u32::try_from(in_flight).unwrap_or(u32::MAX);
        let free = cap.saturating_sub(taken);
        let age: f64 = ages.map(|age| age.as_secs_f64()).sum();
        let age = age / f64::from(taken.max(1));
        // What is still in flight will last at least as long as it has.
        let lasts = self.mean.unwrap_or(UNKNOWN).max(age).max(1e-6);
        let by_slots = if lasts < horizon {
            f64::from(cap) * horizon / lasts
        } else {
            0.0
        };
        let ended = self.mean.unwrap_or(UNKNOWN).max(1e-6);
        let by_rate = self.recent_at(now) / MEMORY * horizon;
        let by_rate = by_rate.min(f64::from(cap) * horizon / ended);
        // Casts of floats saturate.
        (by_slots.max(by_rate) as u32).max(free)
    }

    fn recent_at(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.recent * (-passed / MEMORY).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HORIZON: Duration = Duration::from_secs(10);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn an_unknown_endpoint_gets_a_second_for_each_attempt() {
        let pace = Pace::new(ms(0));
        assert_eq!(
            pace.starts_within(HORIZON, ms(0), 16, 0, [].into_iter()),
            160
        );
    }

    #[test]
    fn hanging_attempts_leave_only_the_free_slots() {
        let mut pace = Pace::new(ms(0));
        let ages = vec![ms(12_000); 10];
        let room = pace.starts_within(HORIZON, ms(12_000), 16, 10, ages.into_iter());
        assert_eq!(room, 6);
        pace.ended(ms(15_000), ms(15_000), true);
        assert_eq!(
            pace.starts_within(HORIZON, ms(15_000), 1, 1, [ms(0)].into_iter()),
            0
        );
        assert_eq!(
            pace.starts_within(HORIZON, ms(15_000), 1, 0, [].into_iter()),
            1
        );
    }

    #[test]
    fn one_straggler_does_not_stop_a_fast_lane() {
        let mut pace = Pace::new(ms(0));
        for n in 0..4000 {
            pace.ended(ms(n), ms(2), false);
        }
        let ages = vec![ms(9_000), ms(1)];
        let room = pace.starts_within(HORIZON, ms(4_000), 2, 2, ages.into_iter());
        assert!(room > 5_000, "{room}");
    }

    #[test]
    fn slow_attempts_that_end_together_promise_no_more_than_their_slots() {
        let mut pace = Pace::new(ms(0));
        for _ in 0..256 {
            pace.ended(ms(10_000), ms(10_000), false);
        }
        let ages = vec![ms(0); 256];
        let room = pace.starts_within(HORIZON, ms(10_000), 256, 256, ages.into_iter());
        assert_eq!(room, 256);
    }

    #[test]
    fn the_rate_of_endings_is_forgotten_within_seconds() {
        let mut pace = Pace::new(ms(0));
        for n in 0..2000 {
            pace.ended(ms(n), ms(5), false);
        }
        let ages = vec![ms(20_000); 16];
        let room = pace.starts_within(HORIZON, ms(22_000), 16, 16, ages.into_iter());
        assert_eq!(room, 0);
    }
}
