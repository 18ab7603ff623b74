//! A message as JSON has it.

use hooklane_store::message::{Attempt, Branch, Message, Tree};
use serde::Serialize;

use crate::commands::delivery;
use crate::output::time;

/// A message with its deliveries.
#[derive(Debug, Serialize)]
pub(super) struct View {
    id: String,
    consumer: String,
    event_type: String,
    accepted_at: String,
    source: String,
    idempotency_key: Option<String>,
    traceparent: Option<String>,
    content_type: String,
    payload_bytes: usize,
    /// The payload where it is text; `--payload` gives any as it is.
    payload: Option<String>,
    /// How many there are, however many are shown.
    delivery_count: u64,
    deliveries: Vec<BranchView>,
}

#[derive(Debug, Serialize)]
struct BranchView {
    #[serde(flatten)]
    delivery: delivery::View,
    url: Option<String>,
    tries: Vec<AttemptView>,
}

#[derive(Debug, Serialize)]
struct AttemptView {
    id: String,
    series: i32,
    drive: i32,
    number: i32,
    started_at: String,
    duration_ms: f64,
    status: Option<i16>,
    error: Option<String>,
    detail: Option<String>,
    verdict: String,
    traceparent: Option<String>,
    /// The answer's first bytes where they are text.
    body: Option<String>,
}

impl From<Tree> for View {
    fn from(tree: Tree) -> Self {
        let Tree {
            message,
            deliveries,
            branches,
        } = tree;
        let Message {
            id,
            accepted_at,
            consumer,
            event_type,
            content_type,
            payload,
            source,
            idempotency_key,
            traceparent,
        } = message;
        Self {
            id: id.to_string(),
            consumer: consumer.to_string(),
            event_type,
            accepted_at: time(accepted_at),
            source,
            idempotency_key,
            traceparent,
            content_type,
            payload_bytes: payload.len(),
            payload: String::from_utf8(payload).ok(),
            delivery_count: deliveries,
            deliveries: branches.into_iter().map(BranchView::from).collect(),
        }
    }
}

impl From<Branch> for BranchView {
    fn from(branch: Branch) -> Self {
        let Branch {
            delivery,
            url,
            attempts,
        } = branch;
        Self {
            delivery: delivery.into(),
            url,
            tries: attempts.into_iter().map(AttemptView::from).collect(),
        }
    }
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> Self {
        let Attempt {
            id,
            series,
            drive,
            number,
            started_at,
            duration_us,
            status,
            body,
            error,
            detail,
            verdict,
            traceparent,
        } = attempt;
        Self {
            id: id.to_string(),
            series,
            drive,
            number,
            started_at: time(started_at),
            duration_ms: duration_us as f64 / 1000.0,
            status,
            error,
            detail,
            verdict,
            traceparent,
            body: body.and_then(|body| String::from_utf8(body).ok()),
        }
    }
}
