//! What can be said against a message without the ledger.

use std::sync::Arc;

use bytes::Bytes;
use hooklane_core::error::ErrorCode;
use hooklane_core::trace;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_proto::trace::TraceContext;
use hooklane_store::accept::{MAX_PAYLOAD, NewMessage};
use serde_json::value::RawValue;
use tracing::{Span, error, info_span};

use super::body::Sent;
use crate::intake::{self, Known, schema};
use crate::problem::{Pointer, Problem};

/// Payloads from this size on are held against their schema where nobody else has to wait, in bytes.
const LARGE: usize = 16 * 1024;

pub(super) fn warnings(known: Option<&Known>) -> Vec<String> {
    let deprecated = known.is_some_and(|known| known.deprecated);
    let warning = deprecated.then(|| "the event type is deprecated".to_owned());
    warning.into_iter().collect()
}

/// A message that nothing speaks against but, perhaps, the ledger, and its span, which lasts until
/// the ledger has it.
pub(super) async fn ready(
    consumer: &ConsumerId,
    sent: Sent,
    known: Option<&Known>,
    trace: Option<&TraceContext>,
) -> Result<(NewMessage, Span), Problem> {
    let Sent {
        event_type,
        payload,
        idempotency_key,
    } = sent;
    let payload = check(&event_type, payload, known).await?;
    let span = info_span!("accept", source = "api", %consumer, %event_type);
    if let Some(parent) = trace {
        trace::set_parent(&span, parent);
    }
    let message = NewMessage {
        key: idempotency_key,
        trace: trace::carry(&span, trace),
        ..intake::new_message(consumer.clone(), event_type, payload)
    };
    Ok((message, span))
}

/// The payload's bytes, if they may be sent.
async fn check(
    event_type: &EventType,
    payload: Box<RawValue>,
    known: Option<&Known>,
) -> Result<Bytes, Problem> {
    let about = |code, detail: String, text: String| {
        Problem::new(code, detail).with_errors(vec![Pointer {
            pointer: "/payload".to_owned(),
            detail: text,
        }])
    };
    let size = payload.get().len();
    if size > MAX_PAYLOAD {
        return Err(about(
            ErrorCode::PayloadTooLarge,
            format!("the payload is too large; send at most {MAX_PAYLOAD} bytes"),
            format!("it has {size} bytes"),
        ));
    }
    if schema::depth(payload.get()) > schema::MAX_DEPTH {
        return Err(about(
            ErrorCode::LimitExceeded,
            format!(
                "the payload is nested deeper than {} levels",
                schema::MAX_DEPTH
            ),
            "arrays and objects are nested too deep".to_owned(),
        ));
    }
    let payload = Bytes::from(Box::<str>::from(payload).into_boxed_bytes().into_vec());
    let Some(known) = known else {
        let detail = format!("no event type has the name `{event_type}`; add it");
        let pointer = Pointer {
            pointer: "/event_type".to_owned(),
            detail: "there is no such event type".to_owned(),
        };
        return Err(Problem::new(ErrorCode::UnknownEventType, detail).with_errors(vec![pointer]));
    };
    let violations = match &known.schema {
        None => return Ok(payload),
        Some(Ok(schema)) if size < LARGE => schema.violations(&payload),
        Some(Ok(schema)) => {
            let (schema, payload) = (Arc::clone(schema), payload.clone());
            let checking = tokio::task::spawn_blocking(move || schema.violations(&payload));
            checking.await.map_err(|error| {
                error!(%error, "a payload could not be held against its schema");
                Problem::new(ErrorCode::Internal, "the payload could not be checked")
            })?
        }
        Some(Err(problem)) => {
            return Err(about(
                ErrorCode::SchemaMismatch,
                format!(
                    "the schema of `{event_type}` can't be used, so nothing fits it; correct it"
                ),
                problem.clone(),
            ));
        }
    };
    if violations.is_empty() {
        return Ok(payload);
    }
    let detail = format!("the payload does not fit the schema of `{event_type}`");
    Err(Problem::new(ErrorCode::SchemaMismatch, detail).with_errors(violations))
}
