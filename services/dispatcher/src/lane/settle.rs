//! How deliveries leave: records without an attempt, reasons of terminated messages; and the span
//! of their time here.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::{clock, trace};
use hooklane_proto::record::{ParkReason, Parked, Record, SkipReason, Skipped, Verdict};

use tracing::info_span;

use super::hand::Held;
use crate::attempt::drive;
use crate::records::{Entry, Owner};

/// Back into the ledger, due when it was or later.
pub(crate) fn park(held: Held, reason: ParkReason, not_before: Option<DateTime<Utc>>) -> Entry {
    let due_at = held.delivery.due_at;
    Entry {
        record: Record::Parked(Parked {
            drive: drive(&held.delivery),
            reason,
            next_attempt_at: not_before.map_or(due_at, |at| at.max(due_at)),
        }),
        owner: Owner::Ack(held.grip),
    }
}

/// The endpoint takes no deliveries.
pub(super) fn skip(held: Held, reason: SkipReason) -> Entry {
    Entry {
        record: Record::Skipped(Skipped {
            drive: drive(&held.delivery),
            reason,
        }),
        owner: Owner::Ack(held.grip),
    }
}

/// When something that met a fault of ours is tried again: later than soon, so that a fault does
/// not spin, and spread, so that what failed together does not come together again.
pub(crate) fn after_fault() -> DateTime<Utc> {
    let secs = 10.0 + 50.0 * rand::random::<f64>();
    // Within a minute, so the cast is exact enough.
    clock::now() + TimeDelta::milliseconds((secs * 1000.0) as i64)
}

/// A first drive continues the event's trace; a later one is a trace of its own, linked to it.
pub(super) fn span(held: &Held) -> tracing::Span {
    let delivery = &held.delivery;
    let span = info_span!(
        parent: None,
        "lane",
        message = %delivery.key.message,
        endpoint = %delivery.key.endpoint,
        drive = delivery.drive
    );
    if let Some(context) = &delivery.trace {
        if delivery.drive == 1 {
            trace::set_parent(&span, context);
        } else {
            trace::link(&span, context);
        }
    }
    span
}

/// Why the message is terminated, where the attempt was the series' last.
pub(super) fn terminal(record: &Record, held: &Held) -> Option<String> {
    let Record::Attempt(attempt) = record else {
        return None;
    };
    let Verdict::Failed { reason } = attempt.verdict else {
        return None;
    };
    let key = held.delivery.key;
    Some(format!(
        "{}: {} for {}, series {}",
        reason.as_str(),
        key.message,
        key.endpoint,
        held.delivery.series
    ))
}
