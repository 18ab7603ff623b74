//! What records say about one delivery, put together.
//!
//! Pure. Owns how a record reads as a state of the merge rule, and what goes along with it that the
//! rule does not know.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::rules::merge::{self, DeliveryStatus, Settled, State};
use hooklane_proto::record::{
    Attempt, Drive, FailureReason, ParkReason, Parked, Record, SkipReason, Skipped, Verdict,
};

use super::reduce::text;

#[cfg(test)]
mod tests;

/// What all records of a delivery say together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// By the merge rule.
    pub(super) state: State,
    /// Attempts counted in the series.
    pub(super) counted: i32,
    /// The error class of the attempt that `state.last_status` is of.
    pub(super) last_error: Option<String>,
    /// Whether the winning record is a fault of our own.
    pub(super) fault: bool,
    /// When the series ended, where it did and the record says it.
    pub(super) settled_at: Option<DateTime<Utc>>,
}

impl Change {
    /// What one record says.
    pub(super) fn of(record: &Record) -> Self {
        match record {
            Record::Attempt(attempt) => Self::of_attempt(attempt),
            Record::Parked(parked) => Self::of_parked(parked),
            Record::Skipped(skipped) => Self::of_skipped(skipped),
        }
    }

    fn of_attempt(attempt: &Attempt) -> Self {
        let (status, next_attempt_at, reason) = match &attempt.verdict {
            Verdict::Sent => (DeliveryStatus::Sent, None, None),
            Verdict::Failed { reason } => (DeliveryStatus::Failed, None, Some(reason.as_str())),
            Verdict::Retry { next_attempt_at } => {
                (DeliveryStatus::Stalled, Some(*next_attempt_at), None)
            }
        };
        let ended = attempt
            .started_at
            .checked_add_signed(TimeDelta::microseconds(attempt.duration_us));
        Self {
            state: State {
                series: attempt.drive.series,
                status,
                drive: attempt.drive.drive,
                settled: Settled::Attempted,
                next_attempt_at,
                attempt_count: attempt.number,
                last_status: attempt.status,
                failure_reason: reason.map(str::to_owned),
            },
            counted: attempt.counted,
            last_error: attempt.error.as_deref().map(text),
            fault: false,
            settled_at: ended.filter(|_| status.is_terminal()),
        }
    }

    fn of_parked(parked: &Parked) -> Self {
        let fault = match parked.reason {
            ParkReason::Fault => true,
            ParkReason::NoRoom
            | ParkReason::Backlog
            | ParkReason::Horizon
            | ParkReason::Held
            | ParkReason::UnknownVersion
            | ParkReason::Draining => false,
        };
        Self {
            fault,
            ..Self::state(State {
                series: parked.drive.series,
                status: DeliveryStatus::Stalled,
                drive: parked.drive.drive,
                settled: Settled::Parked,
                next_attempt_at: Some(parked.next_attempt_at),
                attempt_count: 0,
                last_status: None,
                failure_reason: None,
            })
        }
    }

    fn of_skipped(skipped: &Skipped) -> Self {
        let (status, reason) = match skipped.reason {
            SkipReason::Paused => (DeliveryStatus::Skipped, "paused"),
            SkipReason::Disabled => (DeliveryStatus::Skipped, "disabled"),
            SkipReason::Deleted => (DeliveryStatus::Cancelled, "deleted"),
        };
        Self::state(State {
            series: skipped.drive.series,
            status,
            drive: skipped.drive.drive,
            settled: Settled::Parked,
            next_attempt_at: None,
            attempt_count: 0,
            last_status: None,
            failure_reason: Some(reason.to_owned()),
        })
    }

    /// That the drive could not be recorded.
    pub(super) fn poison(drive: &Drive) -> Self {
        Self::state(State {
            series: drive.series,
            status: DeliveryStatus::Failed,
            drive: drive.drive,
            settled: Settled::Parked,
            next_attempt_at: None,
            attempt_count: 0,
            last_status: None,
            failure_reason: Some(FailureReason::Poison.as_str().to_owned()),
        })
    }

    fn state(state: State) -> Self {
        Self {
            state,
            counted: 0,
            last_error: None,
            fault: false,
            settled_at: None,
        }
    }

    /// Both together, by the merge rule; what the rule does not know follows what it decides.
    pub(super) fn merge(self, other: Self) -> Self {
        let same_series = self.state.series == other.state.series;
        let merged = merge::merge(self.state.clone(), other.state.clone());
        let (mine, yours) = (
            same_end(&merged, &self.state),
            same_end(&merged, &other.state),
        );
        let (winner, loser) = if mine { (self, other) } else { (other, self) };
        let last_error = match (same_series, winner.answer().cmp(&loser.answer())) {
            (true, std::cmp::Ordering::Less) => loser.last_error.clone(),
            _ => winner.last_error.clone(),
        };
        Self {
            state: merged,
            counted: if same_series {
                winner.counted.max(loser.counted)
            } else {
                winner.counted
            },
            last_error,
            fault: winner.fault || (mine && yours && loser.fault),
            settled_at: if mine && yours {
                winner.settled_at.max(loser.settled_at)
            } else {
                winner.settled_at
            },
        }
    }

    /// The order of answers in the merge rule, and of their error classes between equals.
    fn answer(&self) -> (i32, bool, Option<u16>, Option<&str>) {
        let status = self.state.last_status;
        let success = status.is_some_and(|status| (200..300).contains(&status));
        (
            self.state.attempt_count,
            success,
            status,
            self.last_error.as_deref(),
        )
    }
}

/// Whether a merged state came from this one, but for the answer.
fn same_end(merged: &State, state: &State) -> bool {
    (merged.series, merged.status, merged.drive, merged.settled)
        == (state.series, state.status, state.drive, state.settled)
        && merged.next_attempt_at == state.next_attempt_at
        && merged.failure_reason == state.failure_reason
}
