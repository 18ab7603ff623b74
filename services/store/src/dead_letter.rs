//! Deliveries that failed for good: which of them still belong into the stream `DLQ`, what a person
//! sees of them, and how they leave, by a replay or because somebody discards them.
//!
//! The ledger is the truth about dead letters. `DLQ` is filled from here and shows the same to
//! whoever looks at the broker; a row that is `failed` and not marked as dead-lettered is work that
//! is left, whoever failed it and whatever the broker said about it.
//!
//! Owns the statements. Does not own publishing ([`hooklane_proto::dead_letter`] says what goes on
//! the wire) nor finding messages that are exhausted: that is the dead-letter mover's.

mod discard;
mod fault;
mod file;
mod list;
mod replay;
mod row;

use chrono::{DateTime, Utc};
use hooklane_proto::delivery::DeliveryKey;
use serde_json::json;
use uuid::Uuid;

use crate::audit_log::{Action, Change};

pub use fault::{Exhausted, Faulted};
pub use file::{Marked, Unfiled, Which};
pub use list::{Filter, Listed, Order, Place};
pub use replay::{Outcome, Refusal, Terms};
pub(crate) use replay::{refusal, replay, stopped};

/// One series of a delivery that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series {
    /// Which delivery.
    pub key: DeliveryKey,
    /// The series, from 1. Once the delivery is in another one, this is nothing to act on.
    pub series: i32,
}

/// Where a dead letter stands in `DLQ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filed {
    /// Its sequence there.
    pub sequence: u64,
    /// When: a stream made later has something else under this sequence.
    pub at: DateTime<Utc>,
}

impl Filed {
    fn read(sequence: Option<i64>, at: Option<DateTime<Utc>>) -> Option<Self> {
        Some(Self {
            sequence: u64::try_from(sequence?).ok()?,
            at: at?,
        })
    }
}

/// What the audit log says of these: the message or the endpoint where all have one, and how many.
fn audited(action: Action, series: &[Series]) -> Change<'static> {
    let first = series.first().map(|one| one.key);
    let all = |is: fn(DeliveryKey, DeliveryKey) -> bool| {
        first.filter(|first| series.iter().all(|one| is(one.key, *first)))
    };
    let message = all(|one, other| one.message == other.message);
    let endpoint = all(|one, other| one.endpoint == other.endpoint);
    let subject = match (message, endpoint) {
        (Some(key), _) => key.message.to_string(),
        (None, Some(key)) => key.endpoint.to_string(),
        (None, None) => "many".to_owned(),
    };
    let detail = json!({ "deliveries": series.len() });
    Change::of(action, None, subject).with(detail)
}

/// Series column by column, for `unnest`.
#[derive(Debug, Default)]
struct Columns {
    accepted_at: Vec<DateTime<Utc>>,
    message: Vec<Uuid>,
    endpoint: Vec<Uuid>,
    series: Vec<i32>,
}

impl Columns {
    /// Sorted by key, which is the order of locks.
    fn of(series: impl IntoIterator<Item = Series>) -> Self {
        let mut sorted: Vec<Series> = series.into_iter().collect();
        sorted.sort_unstable();
        let mut columns = Self::default();
        for Series { key, series } in sorted {
            columns.accepted_at.push(key.accepted_at);
            columns.message.push(key.message.uuid());
            columns.endpoint.push(key.endpoint.uuid());
            columns.series.push(series);
        }
        columns
    }
}
