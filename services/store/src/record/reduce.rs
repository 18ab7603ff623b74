//! A batch reduced to one change a delivery and one row an attempt.
//!
//! Pure: no I/O. Owns what Postgres can't hold, not how records merge (`change`).

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use hooklane_core::rules::health::{Kind, Outcome};
use hooklane_core::rules::outcome::ErrorClass;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{AttemptId, EndpointId};
use hooklane_proto::record::{Attempt, FailureReason, Record, Verdict};

use super::change::Change;

#[cfg(test)]
mod tests;

/// What a batch says, ready to be written.
#[derive(Debug, Default)]
pub(super) struct Reduced {
    /// One a delivery, sorted by key.
    pub(super) changes: Vec<(DeliveryKey, Change)>,
    /// Sorted by their primary key, each once.
    pub(super) attempts: Vec<Row>,
    /// What attempts say about their endpoints; our own faults say nothing.
    pub(super) outcomes: Vec<(EndpointId, Outcome)>,
    /// Attempts whose answer asks for a hold.
    pub(super) holds: Vec<(AttemptId, EndpointId, DateTime<Utc>)>,
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
            add(&mut changes, drive.key, Change::poison(drive));
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
        if let Some(kind) = kind(attempt) {
            let (id, at) = (*id, *started_at);
            let outcome = Outcome { at, id, kind };
            self.outcomes.push((drive.key.endpoint, outcome));
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

/// What an attempt says about its endpoint.
fn kind(attempt: &Attempt) -> Option<Kind> {
    let class = attempt.error.as_deref().map(str::parse::<ErrorClass>);
    if let Some(Ok(class)) = class
        && class.is_own_fault()
    {
        return None;
    }
    match &attempt.verdict {
        Verdict::Sent => Some(Kind::Success),
        Verdict::Retry { .. } => Some(Kind::Failure),
        Verdict::Failed { reason } => match reason {
            FailureReason::Exhausted | FailureReason::Deadline => Some(Kind::Exhausted),
            FailureReason::Gone => Some(Kind::Gone),
            FailureReason::Poison => None,
        },
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

/// Postgres' `text` and `json` can't hold a NUL.
pub(super) fn text(text: &str) -> String {
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
