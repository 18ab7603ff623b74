//! What happened at the lanes, batched on `RECORDS` as MessagePack.
//!
//! Field names are on the wire, so that a newer writer's extra field is no fault to an older
//! reader and `hooklane decode` shows what operators expect.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::delivery::DeliveryKey;
use crate::id::AttemptId;
use crate::trace::TraceContext;

/// Most bytes of one encoded batch: the broker's default payload limit (1 MiB) less headers.
pub const MAX_BATCH_BYTES: usize = 960 * 1024;
/// Most records of one batch.
pub const MAX_BATCH_RECORDS: usize = 256;

/// Several records in one message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// In the order in which they were made; any order merges to the same.
    pub records: Vec<Record>,
}

/// One thing that happened to one drive of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every record is an attempt"
)]
pub enum Record {
    /// A POST was made, or tried.
    Attempt(Attempt),
    /// The drive ended without an attempt; the ledger keeps the delivery until it is due.
    Parked(Parked),
    /// The endpoint took no deliveries.
    Skipped(Skipped),
}

/// Which drive of which delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Drive {
    /// Which delivery.
    #[serde(flatten)]
    pub key: DeliveryKey,
    /// The series of attempts, from 1.
    pub series: i32,
    /// The trip, from 1.
    pub drive: i32,
}

/// One POST and what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which drive.
    #[serde(flatten)]
    pub drive: Drive,
    /// The attempt's own id: a record that arrives twice is one row.
    pub id: AttemptId,
    /// Its number in all series, from 1.
    pub number: i32,
    /// Attempts counted in this series, this one included where it counts.
    pub counted: i32,
    /// When the lane started it.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub started_at: DateTime<Utc>,
    /// From the start to the last byte read, in microseconds.
    pub duration_us: i64,
    /// The answer's status code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The answer's headers, at most 8 KiB, values made readable where they were not UTF-8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The answer's first bytes, at most 4 KiB.
    #[serde(default, with = "bytes_field", skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<u8>,
    /// What went wrong, from the closed set of error classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went wrong in words, at most 500 characters, without secrets or query strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What follows.
    pub verdict: Verdict,
    /// The endpoint asked for a pause of all its deliveries until then.
    #[serde(
        default,
        with = "chrono::serde::ts_microseconds_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub hold_until: Option<DateTime<Utc>>,
    /// The attempt's own trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// What an attempt means for its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The endpoint took it.
    Sent,
    /// No further attempt in this series.
    Failed {
        /// Why.
        reason: FailureReason,
    },
    /// Another attempt later.
    Retry {
        /// Not before this.
        #[serde(with = "chrono::serde::ts_microseconds")]
        next_attempt_at: DateTime<Utc>,
    },
}

/// Why a delivery failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// The last counted attempt failed.
    Exhausted,
    /// The next attempt would be later than the deadline.
    Deadline,
    /// The endpoint answered 410.
    Gone,
    /// Hooklane itself can't handle it: five faults, or a record that can't be written.
    Poison,
}

impl FailureReason {
    /// The name in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Deadline => "deadline",
            Self::Gone => "gone",
            Self::Poison => "poison",
        }
    }
}

/// A drive without an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// Which drive.
    #[serde(flatten)]
    pub drive: Drive,
    /// Why.
    pub reason: ParkReason,
    /// When it is due; unchanged where the lane had no room, so that the oldest come first.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub next_attempt_at: DateTime<Utc>,
}

/// Why a lane put a delivery back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// More is waiting than the lane can start within the horizon.
    NoRoom,
    /// Older deliveries of this endpoint wait in the ledger and go first.
    Backlog,
    /// Held by the lane for the whole horizon.
    Horizon,
    /// The endpoint asked for a pause.
    Held,
    /// The lane does not know the endpoint's settings (yet).
    UnknownVersion,
    /// The process is stopping.
    Draining,
    /// The lane failed; one fault of our own.
    Fault,
}

impl ParkReason {
    /// Whether it counts as a fault of our own.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        matches!(self, Self::Fault)
    }
}

/// A drive to an endpoint that takes no deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which drive.
    #[serde(flatten)]
    pub drive: Drive,
    /// Why.
    pub reason: SkipReason,
}

/// The state in which an endpoint took no deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Paused: the delivery is `skipped`.
    Paused,
    /// Disabled: the delivery is `skipped`.
    Disabled,
    /// Deleted: the delivery is `cancelled`.
    Deleted,
}

impl Record {
    /// Which drive it speaks of.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        match self {
            Self::Attempt(attempt) => &attempt.drive,
            Self::Parked(parked) => &parked.drive,
            Self::Skipped(skipped) => &skipped.drive,
        }
    }
}

/// Bytes that are not a batch of records.
#[derive(Debug, thiserror::Error)]
#[error("not a batch of records: {0}")]
pub struct DecodeError(#[from] rmp_serde::decode::Error);

impl Batch {
    /// The wire form.
    ///
    /// # Panics
    /// Never: every field has a MessagePack form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("records have a MessagePack form")
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// [`DecodeError`] where the bytes are not a batch.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(rmp_serde::from_slice(bytes)?)
    }
}

impl Record {
    /// An upper bound of what this record adds to a batch, in bytes.
    #[must_use]
    pub fn size_hint(&self) -> usize {
        const FIXED: usize = 640;
        match self {
            Self::Attempt(attempt) => {
                let headers: usize = attempt
                    .headers
                    .iter()
                    .map(|(name, value)| name.len() + value.len() + 12)
                    .sum();
                let detail = attempt.detail.as_ref().map_or(0, String::len);
                let trace = attempt
                    .trace
                    .as_ref()
                    .map_or(0, |t| t.traceparent.len() + t.tracestate.len());
                FIXED + headers + attempt.body.len() + detail + trace
            }
            Self::Parked(_) | Self::Skipped(_) => FIXED,
        }
    }
}

/// `Vec<u8>` as MessagePack's `bin` and not as an array of numbers.
mod bytes_field {
    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }
            fn visit_byte_buf<E: de::Error>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
                // A tagged enum is buffered before it is read, and the buffer may give a sequence.
                let mut bytes = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(8192));
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(bytes)
            }
        }
        d.deserialize_byte_buf(Visitor)
    }
}
