//! Failures of the last day, by the hour: bounded, and never wrong by more than an hour.

use chrono::{DateTime, Utc};

/// Hours kept: the current one and the 23 before it.
pub const HOURS: usize = 24;

const SECONDS: i64 = 3_600;

/// How many failures there were in each of the last [`HOURS`] hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hours {
    /// The last hour that has failures, in hours since 1970.
    last: i64,
    /// Its failures, then those of the hour before it, and so on.
    counts: [u32; HOURS],
}

impl Hours {
    /// From what [`Hours::last`] and [`Hours::counts`] gave. Counts that lack are zero.
    #[must_use]
    pub fn from_parts(last: Option<DateTime<Utc>>, counts: &[i32]) -> Self {
        let mut hours = Self::default();
        if let Some(last) = last {
            hours.last = hour(last);
            for (mine, count) in hours.counts.iter_mut().zip(counts) {
                *mine = u32::try_from(*count).unwrap_or(0);
            }
        }
        hours
    }

    /// The beginning of the last hour that has failures; `None` where none has.
    #[must_use]
    pub fn last(&self) -> Option<DateTime<Utc>> {
        let any = self.counts.iter().any(|count| *count > 0);
        any.then(|| DateTime::from_timestamp(self.last * SECONDS, 0))
            .flatten()
    }

    /// The counts, of the last hour first.
    pub fn counts(&self) -> impl Iterator<Item = i32> {
        self.counts
            .iter()
            .map(|count| i32::try_from(*count).unwrap_or(i32::MAX))
    }

    /// Counts a failure. One that is too old for the window is none of its business.
    pub fn add(&mut self, at: DateTime<Utc>) {
        let hour = hour(at);
        if self.last().is_none() {
            self.last = hour;
        }
        if hour > self.last {
            let ahead = usize::try_from(hour - self.last).unwrap_or(HOURS);
            let ahead = ahead.min(HOURS);
            self.counts.rotate_right(ahead);
            self.counts[..ahead].fill(0);
            self.last = hour;
        }
        let back = usize::try_from(self.last - hour).unwrap_or(HOURS);
        if let Some(count) = self.counts.get_mut(back) {
            *count = count.saturating_add(1);
        }
    }

    /// The failures of the hour of `now` and the 23 before it.
    #[must_use]
    pub fn total(&self, now: DateTime<Utc>) -> u64 {
        let now = hour(now);
        (0..)
            .zip(self.counts)
            .filter(|(back, _)| (0..HOURS as i64).contains(&(now - (self.last - back))))
            .map(|(_, count)| u64::from(count))
            .sum()
    }
}

fn hour(at: DateTime<Utc>) -> i64 {
    at.timestamp().div_euclid(SECONDS)
}
