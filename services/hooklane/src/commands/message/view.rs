//! A message as JSON has it.

use hooklane_store::message::{Attempt, Branch, Message, Tree};
use serde::Serialize;

use crate::commands::delivery;
use crate::output::{exact, time};

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
    /// The exact payload where it is text.
    payload: Option<String>,
    /// The exact payload in base64 where it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
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
    /// The same in base64 where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
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
        let payload_bytes = payload.len();
        let (payload, payload_base64) = exact(payload);
        Self {
            id: id.to_string(),
            consumer: consumer.to_string(),
            event_type,
            accepted_at: time(accepted_at),
            source,
            idempotency_key,
            traceparent,
            content_type,
            payload_bytes,
            payload,
            payload_base64,
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
        let (body, body_base64) = body.map_or((None, None), exact);
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
            body,
            body_base64,
        }
    }
}
