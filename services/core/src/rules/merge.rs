//! How what is known about a delivery is put together, in whatever order it arrives.
//!
//! Records travel through a broker that may repeat and reorder them, and the scheduler writes
//! rows of its own. So two states of one delivery merge by rank and not by arrival: the later
//! series, then `sent` > `cancelled` > `failed` > `skipped` > anything open, then the higher
//! drive, and within a drive an attempt over a park, then the later `next_attempt_at`. [`merge`]
//! is commutative, associative and idempotent: any order and any repetition ends in one state.
//!
//! Does not own the rows or the statement that does the same in SQL (the ledger's), which is
//! tested against this.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

#[cfg(test)]
mod tests;

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeliveryStatus {
    /// Somewhere in the broker.
    Received,
    /// Waiting in the ledger for its next attempt.
    Stalled,
    /// Its endpoint was paused or disabled; can be replayed.
    Skipped,
    /// Exhausted, past its deadline, refused for good, or poison; can be replayed.
    Failed,
    /// Taken back by an operator, or its endpoint was deleted.
    Cancelled,
    /// The receiver accepted it.
    Sent,
}

impl DeliveryStatus {
    /// All of them, by ascending rank.
    pub const ALL: [Self; 6] = [
        Self::Received,
        Self::Stalled,
        Self::Skipped,
        Self::Failed,
        Self::Cancelled,
        Self::Sent,
    ];

    /// Its name in the ledger and in every output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Stalled => "stalled",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Sent => "sent",
        }
    }

    /// Its weight in a merge: 0 while open, 1 to 4 for the ends.
    #[must_use]
    pub const fn rank(self) -> i16 {
        match self {
            Self::Received | Self::Stalled => 0,
            Self::Skipped => 1,
            Self::Failed => 2,
            Self::Cancelled => 3,
            Self::Sent => 4,
        }
    }

    /// Whether its series has ended: nothing more happens unless it is replayed.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        self.rank() > 0
    }
}

impl fmt::Display for DeliveryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a delivery status; give received, stalled, skipped, failed, cancelled or sent"
)]
pub struct UnknownStatus(String);

impl FromStr for DeliveryStatus {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| UnknownStatus(text.chars().take(64).collect()))
    }
}

/// How the drive ended that a state speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Settled {
    /// Not yet, as far as this state knows.
    None,
    /// Put back without an attempt.
    Parked,
    /// By an attempt.
    Attempted,
}

impl Settled {
    /// Its weight in a merge, and its form in the ledger: 0, 1 or 2.
    #[must_use]
    pub const fn rank(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Parked => 1,
            Self::Attempted => 2,
        }
    }

    /// The one with this rank.
    #[must_use]
    pub const fn from_rank(rank: i16) -> Option<Self> {
        match rank {
            0 => Some(Self::None),
            1 => Some(Self::Parked),
            2 => Some(Self::Attempted),
            _ => None,
        }
    }
}

/// What one record, or the row so far, says about a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The series of attempts, from 1; a replay opens the next.
    pub series: i32,
    /// Where the delivery stands.
    pub status: DeliveryStatus,
    /// The trip through the broker; it grows over all series.
    pub drive: i32,
    /// How that trip ended.
    pub settled: Settled,
    /// When the next attempt is due; none while in the broker and after the end.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Attempts made as far as this state knows; only grows within a series.
    pub attempt_count: i32,
    /// The HTTP status of the latest attempt; none where it got no answer.
    pub last_status: Option<u16>,
    /// Why it failed or was skipped.
    pub failure_reason: Option<String>,
}

impl State {
    /// The order of merging. What follows `next_attempt_at` only settles ties, so that the
    /// result is the same whichever of two equals came first.
    fn order(&self, other: &Self) -> Ordering {
        self.series
            .cmp(&other.series)
            .then(self.status.rank().cmp(&other.status.rank()))
            .then(self.drive.cmp(&other.drive))
            .then(self.settled.cmp(&other.settled))
            .then(self.next_attempt_at.cmp(&other.next_attempt_at))
            .then(self.status.cmp(&other.status))
            .then(self.failure_reason.cmp(&other.failure_reason))
    }

    /// The order of the count and its status, apart from the rest: a park of a later drive knows
    /// no status, and must not hide that of the attempt before it. The higher count wins, and
    /// between equals (a park, or an attempt doubled by a crash) a success, then any status.
    fn answer(&self) -> (i32, bool, Option<u16>) {
        let success = self.last_status.is_some_and(|s| (200..300).contains(&s));
        (self.attempt_count, success, self.last_status)
    }
}

/// The state of which both are partial knowledge.
#[must_use]
pub fn merge(a: State, b: State) -> State {
    let (mut winner, other) = match a.order(&b) {
        Ordering::Less => (b, a),
        Ordering::Equal | Ordering::Greater => (a, b),
    };
    if winner.series == other.series && winner.answer() < other.answer() {
        winner.attempt_count = other.attempt_count;
        winner.last_status = other.last_status;
    }
    winner
}
