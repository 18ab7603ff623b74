//! A batch reduced to one change a delivery and one row an attempt.
//!
//! Pure: no I/O. Owns how a record reads as a state, and what Postgres can't hold.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::rules::merge::{self, DeliveryStatus, Settled, State};
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{AttemptId, EndpointId};
use hooklane_proto::record::{
    Attempt, FailureReason, ParkReason, Parked, Record, SkipReason, Skipped, Verdict,
};

#[cfg(test)]
mod tests;

/// What a batch says, ready to be written.
#[derive(Debug, Default)]
pub(super) struct Reduced {
    /// One a delivery, sorted by key.
    pub(super) changes: Vec<(DeliveryKey, Change)>,
    /// Sorted by their primary key, each once.
    pub(super) attempts: Vec<Row>,
    /// Attempts answered with 410.
    pub(super) gone: Vec<(AttemptId, EndpointId)>,
    /// Attempts whose answer asks for a hold.
    pub(super) holds: Vec<(AttemptId, EndpointId, DateTime<Utc>)>,
}

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

/// A row of `attempts`.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) started_at: DateTime<Utc>,
    pub(super) id: AttemptId,
    pub(super) key: DeliveryKey,
    pub(super) series: i32,
    pub(super) drive: i32,
    pub(super) number: i32,
    pub(super) duration_us: i64,
    pub(super) status: Option<i16>,
    pub(super) headers: Option<String>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) error: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) verdict: &'static str,
    pub(super) traceparent: Option<String>,
}

impl Reduced {
    pub(super) fn of(records: &[Record]) -> Self {
        let mut reduced = Self::default();
        let mut changes: HashMap<DeliveryKey, Change> = HashMap::with_capacity(records.len());
        for record in records {
            if let Record::Attempt(attempt) = record {
                reduced.take_attempt(attempt);
            }
            add(&mut changes, record.drive().key, Change::of(record));
        }
        reduced.finish(changes)
    }

    /// Every delivery named here fails as poison; nothing else of the records is used.
    pub(super) fn poison(records: &[Record]) -> Self {
        let mut changes = HashMap::with_capacity(records.len());
        for record in records {
            let drive = record.drive();
            let state = State {
                series: drive.series,
                status: DeliveryStatus::Failed,
                drive: drive.drive,
                settled: Settled::Parked,
                next_attempt_at: None,
                attempt_count: 0,
                last_status: None,
                failure_reason: Some(FailureReason::Poison.as_str().to_owned()),
            };
            add(&mut changes, drive.key, Change::state(state));
        }
        Self::default().finish(changes)
    }

    fn finish(mut self, changes: HashMap<DeliveryKey, Change>) -> Self {
        self.changes = changes.into_iter().collect();
        self.changes.sort_unstable_by_key(|(key, _)| *key);
        self.attempts
            .sort_unstable_by_key(|row| (row.started_at, row.id));
        self.attempts.dedup_by_key(|row| (row.started_at, row.id));
        self
    }

    fn take_attempt(&mut self, attempt: &Attempt) {
        let Attempt {
            drive,
            id,
            number,
            counted: _,
            started_at,
            duration_us,
            status,
            headers,
            body,
            error,
            detail,
            verdict,
            hold_until,
            trace,
        } = attempt;
        if let Verdict::Failed {
            reason: FailureReason::Gone,
        } = verdict
        {
            self.gone.push((*id, drive.key.endpoint));
        }
        if let Some(until) = hold_until {
            self.holds.push((*id, drive.key.endpoint, *until));
        }
        self.attempts.push(Row {
            started_at: *started_at,
            id: *id,
            key: drive.key,
            series: drive.series,
            drive: drive.drive,
            number: *number,
            duration_us: *duration_us,
            status: status.map(smallint),
            headers: headers_json(headers),
            body: (!body.is_empty()).then(|| body.clone()),
            error: error.as_deref().map(text),
            detail: detail.as_deref().map(text),
            verdict: match verdict {
                Verdict::Sent => "sent",
                Verdict::Failed { .. } => "failed",
                Verdict::Retry { .. } => "retry",
            },
            traceparent: trace.as_ref().map(|trace| text(&trace.traceparent)),
        });
    }
}

fn add(changes: &mut HashMap<DeliveryKey, Change>, key: DeliveryKey, change: Change) {
    match changes.entry(key) {
        std::collections::hash_map::Entry::Vacant(entry) => {
            entry.insert(change);
        }
        std::collections::hash_map::Entry::Occupied(mut entry) => {
            let merged = entry.get().clone().merge(change);
            entry.insert(merged);
        }
    }
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

/// Postgres' `text` and `json` can't hold a NUL.
fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A status code in a `smallint`; what does not fit is no HTTP status, and shows as the largest.
fn smallint(status: u16) -> i16 {
    i16::try_from(status).unwrap_or(i16::MAX)
}

/// Pairs, since a header may come several times and in an order.
fn headers_json(headers: &[(String, String)]) -> Option<String> {
    if headers.is_empty() {
        return None;
    }
    let pairs: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    // Strings always have a JSON form.
    serde_json::to_string(&pairs).ok()
}
