//! When a failed delivery is attempted again.
//!
//! Owns the delays between attempts, their jitter, the cap on `Retry-After` and the deadline.
//! Does not own what counts as a failure (see [`super::outcome`]) or who keeps the time: `now`,
//! the deadline and the random sample are arguments.
//!
//! Two rules hold whatever the numbers are. Jitter and `Retry-After` can only delay, so that
//! nothing a receiver says brings an attempt closer than the schedule has it. And no attempt is
//! ever planned after the deadline.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use humantime_serde::Serde;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Longest list of delays: the count of attempts stays a small number.
const MAX_DELAYS: usize = 50;
/// Longest deadline: a series must end well before retention drops its day.
const MAX_DEADLINE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The delays between attempts and what bounds them.
///
/// In a config file:
///
/// ```toml
/// delays = ["5s", "5m", "30m", "2h", "5h", "10h", "10h"]
/// deadline = "48h"
/// jitter = 0.2
/// retry_after_cap = "1h"
/// own_fault_delay = "5s"
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// The wait after the first, second, … counted attempt. One attempt more is made than there
    /// are delays.
    #[serde(with = "delays")]
    pub delays: Vec<Duration>,
    /// How long after acceptance (or after a replay) the last attempt may start.
    #[serde(with = "humantime_serde")]
    pub deadline: Duration,
    /// The share of a delay, 0 to 1, that chance may add to it.
    pub jitter: f64,
    /// The longest wait that a receiver's `Retry-After` is granted.
    #[serde(with = "humantime_serde")]
    pub retry_after_cap: Duration,
    /// The wait after a fault of our own, which uses up none of the delays.
    #[serde(with = "humantime_serde")]
    pub own_fault_delay: Duration,
}

impl Default for Schedule {
    /// 8 attempts over 27.5 hours, at most 20 % later by chance, none after 48 hours.
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        let secs = [
            5,
            5 * MINUTE,
            30 * MINUTE,
            2 * HOUR,
            5 * HOUR,
            10 * HOUR,
            10 * HOUR,
        ];
        Self {
            delays: secs.into_iter().map(Duration::from_secs).collect(),
            deadline: Duration::from_secs(48 * HOUR),
            jitter: 0.2,
            retry_after_cap: Duration::from_secs(HOUR),
            own_fault_delay: Duration::from_secs(5),
        }
    }
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, not before this.
    At(DateTime<Utc>),
    /// None: the delivery has failed.
    Exhausted(Exhausted),
}

/// Why there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// All counted attempts are made.
    Attempts,
    /// The next one would start after the deadline.
    Deadline,
}

/// A setting that makes no schedule. The message says the fix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// `delays` is too long.
    #[error("delays: has {0} entries; give at most 50")]
    TooManyDelays(usize),
    /// A delay is zero or longer than the deadline.
    #[error(
        "delays.{index}: is {}; give more than 0s and at most the deadline",
        humantime_serde::re::humantime::format_duration(*delay)
    )]
    Delay {
        /// Which entry, from 0 as keys of a file count.
        index: usize,
        /// Its value.
        delay: Duration,
    },
    /// `deadline` is zero or beyond 30 days.
    #[error(
        "deadline: is {}; give more than 0s and at most 30days",
        humantime_serde::re::humantime::format_duration(*.0)
    )]
    Deadline(Duration),
    /// `jitter` is not a share.
    #[error("jitter: is {0}; give a number from 0 to 1, such as 0.2 for up to 20 %")]
    Jitter(f64),
    /// `retry_after_cap` is longer than the deadline.
    #[error(
        "retry_after_cap: is {}; give at most the deadline",
        humantime_serde::re::humantime::format_duration(*.0)
    )]
    RetryAfterCap(Duration),
    /// `own_fault_delay` is zero or longer than an hour.
    #[error(
        "own_fault_delay: is {}; give more than 0s and at most 1h",
        humantime_serde::re::humantime::format_duration(*.0)
    )]
    OwnFaultDelay(Duration),
}

impl Schedule {
    /// Every fault of the settings, so that they can be reported at once; empty when sound.
    #[must_use]
    pub fn validate(&self) -> Vec<Invalid> {
        let mut faults = Vec::new();
        if self.delays.len() > MAX_DELAYS {
            faults.push(Invalid::TooManyDelays(self.delays.len()));
        }
        if self.deadline.is_zero() || self.deadline > MAX_DEADLINE {
            faults.push(Invalid::Deadline(self.deadline));
        }
        for (index, &delay) in self.delays.iter().enumerate() {
            if delay.is_zero() || delay > self.deadline {
                faults.push(Invalid::Delay { index, delay });
            }
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            faults.push(Invalid::Jitter(self.jitter));
        }
        if self.retry_after_cap > self.deadline {
            faults.push(Invalid::RetryAfterCap(self.retry_after_cap));
        }
        if self.own_fault_delay.is_zero() || self.own_fault_delay > Duration::from_secs(3600) {
            faults.push(Invalid::OwnFaultDelay(self.own_fault_delay));
        }
        faults
    }

    /// How many counted attempts a series has.
    #[must_use]
    pub fn attempts(&self) -> u8 {
        u8::try_from(self.delays.len().saturating_add(1)).unwrap_or(u8::MAX)
    }

    /// The latest moment at which an attempt of a series may start.
    ///
    /// `from` is when the message was accepted, or when the series was opened by a replay.
    #[must_use]
    pub fn deadline_from(&self, from: DateTime<Utc>) -> DateTime<Utc> {
        later(from, self.deadline).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// What follows a counted attempt that failed at `now`.
    ///
    /// `counted` is how many counted attempts the series has made, the failed one included.
    /// `retry_after` is what the receiver asked for, uncapped, where its answer carries weight.
    /// `jitter_sample` is a uniform sample of 0 to 1; anything outside is taken as the nearer
    /// end.
    #[must_use]
    pub fn next(
        &self,
        counted: u8,
        now: DateTime<Utc>,
        deadline: DateTime<Utc>,
        retry_after: Option<Duration>,
        jitter_sample: f64,
    ) -> Next {
        if counted >= self.attempts() {
            return Next::Exhausted(Exhausted::Attempts);
        }
        let index = usize::from(counted.saturating_sub(1));
        let Some(&delay) = self.delays.get(index) else {
            return Next::Exhausted(Exhausted::Attempts);
        };
        let asked = retry_after
            .unwrap_or(Duration::ZERO)
            .min(self.retry_after_cap);
        let wait = self.jittered(delay, jitter_sample).max(asked);
        within(now, wait, deadline)
    }

    /// What follows a fault of our own at `now`: the same attempt again, soon.
    #[must_use]
    pub fn next_after_own_fault(
        &self,
        now: DateTime<Utc>,
        deadline: DateTime<Utc>,
        jitter_sample: f64,
    ) -> Next {
        let wait = self.jittered(self.own_fault_delay, jitter_sample);
        within(now, wait, deadline)
    }

    fn jittered(&self, delay: Duration, sample: f64) -> Duration {
        let share = self.jitter.max(0.0) * sample.clamp(0.0, 1.0);
        // What is no number, or no duration, adds nothing.
        let extra = Duration::try_from_secs_f64(delay.as_secs_f64() * share);
        delay.saturating_add(extra.unwrap_or(Duration::ZERO))
    }
}

fn within(now: DateTime<Utc>, wait: Duration, deadline: DateTime<Utc>) -> Next {
    match later(now, wait) {
        Some(at) if at <= deadline => Next::At(at),
        _ => Next::Exhausted(Exhausted::Deadline),
    }
}

fn later(from: DateTime<Utc>, by: Duration) -> Option<DateTime<Utc>> {
    from.checked_add_signed(TimeDelta::from_std(by).ok()?)
}

/// A list of durations as people write them, which `humantime_serde` has only for one.
mod delays {
    use super::{Deserialize, Duration, Serde};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        delays: &[Duration],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(delays.iter().map(Serde::from))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Duration>, D::Error> {
        let delays = Vec::<Serde<Duration>>::deserialize(deserializer)?;
        Ok(delays.into_iter().map(Serde::into_inner).collect())
    }
}
