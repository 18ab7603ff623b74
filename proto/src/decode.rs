//! Records as people read them: JSON with times as text and bodies as text, or hex where they are not UTF-8.

use serde_json::{Map, Value, json};

use crate::micros;
use crate::record::{Attempt, Batch, DecodeError, Drive, Record, Verdict};

/// A batch as JSON values, one a record.
///
/// # Errors
/// [`DecodeError`] where the bytes are not a batch.
pub fn records(bytes: &[u8]) -> Result<Vec<Value>, DecodeError> {
    Ok(Batch::decode(bytes)?.records.iter().map(record).collect())
}

fn record(record: &Record) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| out.insert(name.to_owned(), value);
    let Drive { key, series, drive } = *record.drive();
    let kind = match record {
        Record::Attempt(_) => "attempt",
        Record::Parked(_) => "parked",
        Record::Skipped(_) => "skipped",
    };
    put("kind", json!(kind));
    put("message", json!(key.message.to_string()));
    put("endpoint", json!(key.endpoint.to_string()));
    put("accepted_at", json!(micros::text(key.accepted_at)));
    put("series", json!(series));
    put("drive", json!(drive));
    match record {
        Record::Attempt(attempt) => attempt_fields(attempt, &mut put),
        Record::Parked(parked) => {
            put("reason", json!(parked.reason));
            put(
                "next_attempt_at",
                json!(micros::text(parked.next_attempt_at)),
            );
        }
        Record::Skipped(skipped) => {
            put("reason", json!(skipped.reason));
        }
    }
    Value::Object(out)
}

fn attempt_fields(attempt: &Attempt, put: &mut impl FnMut(&str, Value) -> Option<Value>) {
    let Attempt {
        drive: _,
        id,
        number,
        counted,
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
    put("id", json!(id.to_string()));
    put("number", json!(number));
    put("counted", json!(counted));
    put("started_at", json!(micros::text(*started_at)));
    put("duration_ms", json!(*duration_us as f64 / 1000.0));
    put("status", json!(status));
    put("headers", json!(headers));
    match std::str::from_utf8(body) {
        Ok(text) => put("body", json!(text)),
        Err(_) => put("body_hex", json!(hex(body))),
    };
    if let Some(error) = error {
        put("error", json!(error));
    }
    if let Some(detail) = detail {
        put("detail", json!(detail));
    }
    match verdict {
        Verdict::Sent => put("verdict", json!("sent")),
        Verdict::Failed { reason } => {
            put("verdict", json!("failed"));
            put("reason", json!(reason))
        }
        Verdict::Retry { next_attempt_at } => {
            put("verdict", json!("retry"));
            put("next_attempt_at", json!(micros::text(*next_attempt_at)))
        }
    };
    if let Some(at) = hold_until {
        put("hold_until", json!(micros::text(*at)));
    }
    if let Some(trace) = trace {
        put("traceparent", json!(trace.traceparent));
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
