//! How often a lane may start an attempt.
//!
//! Owns one endpoint's tokens. Does not own concurrency, holds or waiting: it says how long the
//! next token takes, and the lane sets the timer.
//!
//! All arithmetic is in whole numbers. A token is a billion units and a rate of `r` per second
//! adds `r` units each nanosecond, so that nothing is lost to rounding however often it is asked,
//! and in any window of length t at most `burst + rate * t` tokens are given.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Units that make one token: at rate 1, one a nanosecond.
const TOKEN: u64 = 1_000_000_000;

/// The highest rate, in attempts a second.
pub const MAX_RATE: u16 = 1000;
/// The largest burst, in attempts.
pub const MAX_BURST: u32 = 10_000;

/// What an endpoint is willing to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// A steady rate with a bucket.
    PerSecond {
        /// Attempts a second, 1 to 1,000.
        rate: NonZeroU16,
        /// Attempts that may follow each other at once after a pause, 1 to 10,000.
        burst: NonZeroU32,
    },
    /// No limit.
    Unlimited,
}

/// A rate that can't be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRate {
    /// Outside 1 to 1,000.
    #[error("a rate of {0} a second is outside 1 to 1000; give one inside, or none for no limit")]
    Rate(u32),
    /// Outside 1 to 10,000.
    #[error("a burst of {0} is outside 1 to 10000; give one inside, or none to have the rate")]
    Burst(u32),
}

impl Rate {
    /// A steady rate; `burst` is the rate where none is given.
    ///
    /// # Errors
    /// [`InvalidRate`] outside the limits.
    pub fn per_second(rate: u32, burst: Option<u32>) -> Result<Self, InvalidRate> {
        let checked = u16::try_from(rate)
            .ok()
            .filter(|&r| r <= MAX_RATE)
            .and_then(NonZeroU16::new)
            .ok_or(InvalidRate::Rate(rate))?;
        let burst = burst.unwrap_or(rate);
        let burst = NonZeroU32::new(burst)
            .filter(|b| b.get() <= MAX_BURST)
            .ok_or(InvalidRate::Burst(burst))?;
        Ok(Self::PerSecond {
            rate: checked,
            burst,
        })
    }
}

/// No token yet: one is there after this long, if nobody else takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(pub Duration);

/// One endpoint's tokens.
///
/// `now` is a reading of any clock that only runs forward, as the time since some origin of the
/// caller's. A reading before an earlier one is taken as that earlier one: it mints nothing.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: Rate,
    /// At most `burst * TOKEN`; without meaning while unlimited.
    units: u64,
    /// The latest reading seen: `units` is true at this time.
    at: Duration,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: Rate, now: Duration) -> Self {
        Self {
            rate,
            units: capacity(rate),
            at: now,
        }
    }

    /// The rate in force.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes one token.
    ///
    /// # Errors
    /// [`Wait`] where there is none; nothing is taken then.
    pub fn try_take(&mut self, now: Duration) -> Result<(), Wait> {
        self.refill(now);
        let Rate::PerSecond { rate, .. } = self.rate else {
            return Ok(());
        };
        if let Some(left) = self.units.checked_sub(TOKEN) {
            self.units = left;
            return Ok(());
        }
        let nanos = (TOKEN - self.units).div_ceil(u64::from(rate.get()));
        // Where the clock ran back, it first has to come up to the latest reading again.
        let behind = self.at.saturating_sub(now);
        Err(Wait(Duration::from_nanos(nanos).saturating_add(behind)))
    }

    /// Whole tokens at this time; `u32::MAX` without a limit.
    #[must_use]
    pub fn available(&self, now: Duration) -> u32 {
        match self.rate {
            Rate::Unlimited => u32::MAX,
            Rate::PerSecond { .. } => u32::try_from(self.units_at(now) / TOKEN).unwrap_or(u32::MAX),
        }
    }

    /// Whether waiting longer would add nothing: an idle lane with a full bucket can be
    /// forgotten and made anew without giving a token too many.
    #[must_use]
    pub fn is_full(&self, now: Duration) -> bool {
        match self.rate {
            Rate::Unlimited => true,
            Rate::PerSecond { .. } => self.units_at(now) == capacity(self.rate),
        }
    }

    /// Changes the rate. Tokens at hand are kept up to the new burst, and none are added: so a
    /// lane can't be made to burst by changing its settings. Coming from no limit, it is full.
    pub fn reconfigure(&mut self, rate: Rate, now: Duration) {
        self.refill(now);
        self.units = match self.rate {
            Rate::Unlimited => capacity(rate),
            Rate::PerSecond { .. } => self.units.min(capacity(rate)),
        };
        self.rate = rate;
    }

    fn refill(&mut self, now: Duration) {
        self.units = self.units_at(now);
        self.at = self.at.max(now);
    }

    fn units_at(&self, now: Duration) -> u64 {
        let Rate::PerSecond { rate, .. } = self.rate else {
            return self.units;
        };
        let elapsed = now.saturating_sub(self.at).as_nanos();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let added = elapsed.saturating_mul(u64::from(rate.get()));
        self.units.saturating_add(added).min(capacity(self.rate))
    }
}

/// Units of a full bucket. `u32::MAX` tokens fit in a `u64`.
fn capacity(rate: Rate) -> u64 {
    match rate {
        Rate::PerSecond { burst, .. } => u64::from(burst.get()) * TOKEN,
        Rate::Unlimited => 0,
    }
}
