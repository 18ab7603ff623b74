//! Messages on their way in: one, or many at a time.
//!
//! Owns what a request may say and how outcomes are told. What can be refused without the ledger is
//! refused before anything waits; the rest goes through [`crate::intake`].

mod body;
mod check;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hooklane_core::error::ErrorCode;
use hooklane_proto::header;
use hooklane_proto::token::EventType;
use hooklane_proto::trace::TraceContext;
use hooklane_store::accept::{MAX_PAYLOAD, Outcome, Reason, Rejection};
use http::{HeaderMap, StatusCode};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use body::{Item, Sent, SentBatch, Status, Taken, TakenBatch};
use check::{ready, warnings};

use super::consumers::ConsumerPath;
use crate::Api;
use crate::extract::{Body, Path};
use crate::intake::{self, Known};
use crate::problem::Problem;

/// Largest body with one message, in bytes: its payload, and what is around it.
const ONE: usize = MAX_PAYLOAD + 16 * 1024;
/// Largest body with many messages, in bytes.
const MANY: usize = 4 * 1024 * 1024;
/// Most messages in a batch.
const MAX_BATCH: usize = 1_000;
/// The header with the idempotency key.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(send))
        .routes(routes!(send_batch))
}

/// Send a message.
///
/// Answered once the ledger has it, together with a delivery for each endpoint that is subscribed at
/// this moment: from then on it is not lost.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/messages", tag = "Messages", operation_id = "send_message",
    params(
        ConsumerPath,
        ("idempotency-key" = Option<String>, Header, max_length = 255,
         description = "As `idempotency_key` of the body; give one of them."),
        ("traceparent" = Option<String>, Header,
         description = "The trace that the message belongs to (W3C Trace Context)."),
        ("tracestate" = Option<String>, Header, description = "Belongs to `traceparent`."),
    ),
    request_body = Sent,
    responses(
        (status = 202, description = "The ledger has it.", body = Taken),
        (status = 409, description = "The idempotency key stands for other content."),
    ),
)]
async fn send(
    State(api): State<Api>,
    Path(path): Path<ConsumerPath>,
    headers: HeaderMap,
    Body(mut sent): Body<Sent, ONE>,
) -> Result<(StatusCode, Json<Taken>), Problem> {
    let header = key_header(&headers)?;
    match (&sent.idempotency_key, header) {
        (Some(body), Some(header)) if *body != header => {
            return Err(Problem::unprocessable(
                "the header `idempotency-key` and `idempotency_key` of the body differ; give one",
            ));
        }
        (None, Some(header)) => sent.idempotency_key = Some(header),
        _ => {}
    }
    let trace = trace_context(&headers);
    let known = known(&api, &sent.event_type).await?;
    let (message, _span) = ready(&path.consumer, sent, known.as_deref(), trace.as_ref()).await?;
    let mut answer = api.committer().commit(vec![message]).await?;
    let (receipt, repeated) = match answer.outcomes.pop() {
        Some(Outcome::Accepted(receipt)) => (receipt, false),
        Some(Outcome::Repeat(receipt)) => (receipt, true),
        Some(Outcome::Rejected(rejection)) => return Err(rejected(rejection)),
        None => return Err(answer.fault.unwrap_or(intake::Refused::CutOff).into()),
    };
    let taken = Taken {
        id: receipt.message.to_string(),
        accepted_at: receipt.accepted_at,
        repeated,
        warnings: warnings(known.as_deref()),
    };
    Ok((StatusCode::ACCEPTED, Json(taken)))
}

/// Send many messages.
///
/// Each is taken or refused by itself, and `results` says which, in the same order. Of several with
/// the same idempotency key the first is taken; the others repeat it, or are in conflict with it.
/// A message that has no place in the ledger in time, as in a batch for very many endpoints, is
/// rejected as `busy`: send it again. A batch of which none was taken because the ledger failed or was
/// busy is answered as a whole.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/messages/batch", tag = "Messages",
    operation_id = "send_messages",
    params(
        ConsumerPath,
        ("traceparent" = Option<String>, Header,
         description = "The trace that the messages belong to (W3C Trace Context)."),
        ("tracestate" = Option<String>, Header, description = "Belongs to `traceparent`."),
    ),
    request_body = SentBatch,
    responses((status = 200, description = "What became of each.", body = TakenBatch)),
)]
async fn send_batch(
    State(api): State<Api>,
    Path(path): Path<ConsumerPath>,
    headers: HeaderMap,
    Body(batch): Body<SentBatch, MANY>,
) -> Result<Json<TakenBatch>, Problem> {
    let count = batch.messages.len();
    if headers.contains_key(IDEMPOTENCY_KEY) {
        return Err(Problem::unprocessable(
            "the header `idempotency-key` can't stand for many messages; give each an \
             `idempotency_key`",
        ));
    }
    let trace = trace_context(&headers);
    let mut types: HashMap<EventType, Option<Arc<Known>>> = HashMap::new();
    let mut results: Vec<Result<Vec<String>, Problem>> = Vec::with_capacity(count);
    let mut messages = Vec::with_capacity(count);
    let mut spans = Vec::with_capacity(count);
    for item in batch.messages {
        let sent = match Sent::read(&item) {
            Ok(sent) => sent,
            Err(problem) => {
                results.push(Err(problem));
                continue;
            }
        };
        let known = match types.get(&sent.event_type) {
            Some(known) => known.clone(),
            None => {
                let known = known(&api, &sent.event_type).await?;
                types.insert(sent.event_type.clone(), known.clone());
                known
            }
        };
        let ready = ready(&path.consumer, sent, known.as_deref(), trace.as_ref()).await;
        results.push(ready.map(|(message, span)| {
            messages.push(message);
            spans.push(span);
            warnings(known.as_deref())
        }));
    }
    let answer = if messages.is_empty() {
        path.exists(api.store()).await?;
        intake::Answer {
            outcomes: Vec::new(),
            fault: None,
        }
    } else {
        api.committer().commit(messages).await?
    };
    drop(spans);
    let mut outcomes = answer.outcomes.into_iter();
    let fault = answer.fault.unwrap_or(intake::Refused::CutOff);
    let mut items = Vec::with_capacity(count);
    for (at, result) in results.into_iter().enumerate() {
        items.push(match result {
            Err(problem) => Item::rejected(at, problem),
            Ok(warnings) => match outcomes.next() {
                Some(Outcome::Accepted(receipt)) => {
                    Item::taken(Status::Accepted, receipt, warnings)
                }
                Some(Outcome::Repeat(receipt)) => Item::taken(Status::Repeated, receipt, warnings),
                Some(Outcome::Rejected(rejection)) => {
                    // It is the whole batch's.
                    if rejection.reason == Reason::UnknownConsumer {
                        return Err(rejected(rejection));
                    }
                    Item::rejected(at, rejected(rejection))
                }
                None => Item::rejected(at, fault.clone().into()),
            },
        });
    }
    Ok(Json(TakenBatch { results: items }))
}

/// The key in the header.
fn key_header(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) if values.next().is_none() => Ok(Some(text.to_owned())),
        _ => Err(Problem::unprocessable(
            "the header `idempotency-key` can't be read; give it once, in visible ASCII characters",
        )),
    }
}

/// The trace that the request belongs to. One that is malformed counts as none, as the
/// specification has it.
fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| headers.get(name)?.to_str().ok();
    TraceContext::parse(text(header::TRACEPARENT)?, text(header::TRACESTATE))
}

async fn known(api: &Api, event_type: &EventType) -> Result<Option<Arc<Known>>, Problem> {
    Ok(api.types().get(event_type).await?)
}

/// Why the ledger would not take a message.
fn rejected(rejection: Rejection) -> Problem {
    let code = match rejection.reason {
        Reason::Conflict => ErrorCode::Conflict,
        Reason::UnknownConsumer | Reason::UnknownEndpoint => ErrorCode::NotFound,
        Reason::UnknownEventType => ErrorCode::UnknownEventType,
        Reason::PayloadTooLarge => ErrorCode::PayloadTooLarge,
        Reason::PayloadMissing
        | Reason::BadConsumer
        | Reason::BadEventType
        | Reason::BadKey
        | Reason::BadContentType
        | Reason::Refused
        | Reason::Unreadable => ErrorCode::Unprocessable,
    };
    Problem::new(code, rejection.detail)
}
