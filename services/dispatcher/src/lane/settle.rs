//! Records of deliveries that leave without an attempt.

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::record::{ParkReason, Parked, Record, SkipReason, Skipped};

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
