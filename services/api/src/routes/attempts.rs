//! POSTs that were made: listed, with what was answered, and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use hooklane_core::error::ErrorCode;
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use hooklane_store::attempt::{self, Listing, Which};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::consumers::ConsumerPath;
use super::endpoints::EndpointPath;
use super::message_log::MessagePath;
use crate::Api;
use crate::extract::{Path, Query, id, optional_id};
use crate::page::{self, Page};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "attempts";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(statistics))
}

/// An attempt of a consumer.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AttemptPath {
    /// The consumer's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    consumer: ConsumerId,
    /// The attempt's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^att_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    attempt: AttemptId,
}

/// Which attempts to list: those to an endpoint, or those of a message.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those to one endpoint.
    #[serde(default, deserialize_with = "optional_id")]
    #[param(
        value_type = Option<String>,
        pattern = "^ep_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )]
    endpoint: Option<EndpointId>,
    /// Those of one message.
    #[serde(default, deserialize_with = "optional_id")]
    #[param(
        value_type = Option<String>,
        pattern = "^msg_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )]
    message: Option<MessageId>,
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Which attempts to count.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Window {
    /// Those of the last so many seconds, a day at the most.
    #[param(minimum = 1, maximum = 86400, default = 86400)]
    seconds: Option<u32>,
}

/// One POST.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Attempt {
    /// Its id.
    #[schema(example = "att_01987c3e-9d6a-7000-8000-000000000001")]
    id: String,
    /// The message: the `webhook-id`.
    message: String,
    /// The endpoint.
    endpoint: String,
    /// The series that it belongs to.
    series: i32,
    /// Its number in all series.
    number: i32,
    /// When the lane started it.
    started_at: DateTime<Utc>,
    /// From the start to the last byte read, in microseconds.
    duration_us: u64,
    /// The answer's status code.
    status: Option<i16>,
    /// The error class, where there was no answer of use.
    error: Option<String>,
    /// The error in words.
    detail: Option<String>,
    /// What followed: `sent`, `failed` or `retry`.
    verdict: String,
    /// The attempt's own trace.
    traceparent: Option<String>,
}

impl From<attempt::Attempt> for Attempt {
    fn from(attempt: attempt::Attempt) -> Self {
        let attempt::Attempt {
            id,
            key,
            series,
            drive: _,
            number,
            started_at,
            duration,
            status,
            error,
            detail,
            verdict,
            traceparent,
        } = attempt;
        Self {
            id: id.to_string(),
            message: key.message.to_string(),
            endpoint: key.endpoint.to_string(),
            series,
            number,
            started_at,
            duration_us: micros(duration),
            status,
            error,
            detail,
            verdict,
            traceparent,
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// One POST, with what was answered.
#[derive(Debug, Serialize, ToSchema)]
struct AnsweredAttempt {
    /// The attempt.
    #[serde(flatten)]
    attempt: Attempt,
    /// The answer's headers, the first 8 KiB of them.
    headers: Vec<AnswerHeader>,
    /// The answer's first 4 KiB, as text where they are UTF-8.
    body: Option<String>,
    /// The answer's first 4 KiB in base64, where they are not.
    body_base64: Option<String>,
}

/// A header of an answer.
#[derive(Debug, Serialize, ToSchema)]
struct AnswerHeader {
    /// Its name.
    name: String,
    /// Its value.
    value: String,
}

impl From<attempt::Answered> for AnsweredAttempt {
    fn from(answered: attempt::Answered) -> Self {
        let attempt::Answered {
            attempt,
            headers,
            body,
        } = answered;
        let (body, body_base64) = text_or_base64(body);
        let headers = headers
            .into_iter()
            .map(|(name, value)| AnswerHeader { name, value });
        Self {
            attempt: attempt.into(),
            headers: headers.collect(),
            body,
            body_base64,
        }
    }
}

/// Bytes as text where they are UTF-8, otherwise in base64.
fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    }
}

/// What an endpoint's newest attempts say.
#[derive(Debug, Serialize, ToSchema)]
struct Statistics {
    /// Attempts that started before this are not counted.
    since: DateTime<Utc>,
    /// Whether all attempts of the window are counted. Otherwise there are too many of them.
    complete: bool,
    /// Attempts.
    attempts: u64,
    /// Those that the endpoint took.
    succeeded: u64,
    /// The others.
    failed: u64,
    /// The share of those that it took, 0 to 1; null where there were none.
    success_rate: Option<f64>,
    /// Microseconds that half of them took at the most; null where there were none.
    p50_us: Option<u64>,
    /// Microseconds that 95 of 100 took at the most.
    p95_us: Option<u64>,
    /// Microseconds that 99 of 100 took at the most.
    p99_us: Option<u64>,
    /// Failures by error class; those with an answer by its status, such as `500`.
    failures: BTreeMap<String, u64>,
}

impl From<attempt::Statistics> for Statistics {
    fn from(statistics: attempt::Statistics) -> Self {
        let attempt::Statistics {
            since,
            complete,
            attempts,
            succeeded,
            failed,
            p50,
            p95,
            p99,
            failures,
        } = statistics;
        Self {
            since,
            complete,
            attempts,
            succeeded,
            failed,
            success_rate: (attempts > 0).then(|| succeeded as f64 / attempts as f64),
            p50_us: p50.map(micros),
            p95_us: p95.map(micros),
            p99_us: p99.map(micros),
            failures,
        }
    }
}

/// List attempts, the last started first: those to an endpoint, or those of a message.
///
/// A page may hold fewer entries than asked for, or none, and still name the next: the search ends
/// after a few seconds and goes on from there.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/attempts", tag = "Attempts",
    operation_id = "list_attempts", params(ConsumerPath, ListQuery),
    responses((status = 200, description = "A page of attempts.", body = Page<Attempt>)),
)]
async fn list(
    State(api): State<Api>,
    Path(ConsumerPath { consumer }): Path<ConsumerPath>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Attempt>>, Problem> {
    let limit = page::limit(query.limit)?;
    let after: Option<(DateTime<Utc>, Uuid)> = page::key(LISTING, query.cursor.as_deref())?;
    let which = match (query.message, query.endpoint) {
        (Some(message), endpoint) => {
            let path = MessagePath { consumer, message };
            path.place(api.store()).await?;
            Which::Message(message, endpoint)
        }
        (None, Some(endpoint)) => {
            let path = EndpointPath { consumer, endpoint };
            path.endpoint(api.store()).await?;
            Which::Endpoint(endpoint)
        }
        (None, None) => {
            return Err(Problem::unprocessable(
                "name an endpoint or a message, or both",
            ));
        }
    };
    let listing = Listing {
        after: after.map(|(at, id)| (at, AttemptId::from_uuid(id))),
        ..Listing::of(which)
    };
    let found = attempt::list(api.store(), &listing, limit).await?;
    Ok(Json(Page::of(LISTING, found, Attempt::from, |(at, id)| {
        (at, id.uuid())
    })))
}

/// Show an attempt, with the headers and the body of the answer.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/attempts/{attempt}", tag = "Attempts",
    operation_id = "show_attempt", params(AttemptPath),
    responses((status = 200, description = "The attempt.", body = AnsweredAttempt)),
)]
async fn show(
    State(api): State<Api>,
    Path(path): Path<AttemptPath>,
) -> Result<Json<AnsweredAttempt>, Problem> {
    let found = attempt::show(api.store(), path.attempt).await?;
    let owner = MessagePath {
        consumer: path.consumer,
        message: found.attempt.key.message,
    };
    // Of another consumer is not there; a fault of the ledger stays one.
    owner
        .place(api.store())
        .await
        .map_err(|problem| match problem.code() {
            ErrorCode::NotFound => {
                Problem::not_found(format!("there is no attempt `{}`", path.attempt))
            }
            _ => problem,
        })?;
    Ok(Json(found.into()))
}

/// Count an endpoint's attempts: how many it took, and how long they took.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/statistics", tag = "Attempts",
    operation_id = "show_statistics", params(EndpointPath, Window),
    responses((status = 200, description = "The figures.", body = Statistics)),
)]
async fn statistics(
    State(api): State<Api>,
    Path(path): Path<EndpointPath>,
    Query(window): Query<Window>,
) -> Result<Json<Statistics>, Problem> {
    path.endpoint(api.store()).await?;
    let window = match window.seconds {
        None => attempt::MAX_WINDOW,
        Some(0) => return Err(Problem::unprocessable("a window has a second at the least")),
        Some(seconds) => Duration::from_secs(seconds.into()),
    };
    let counted = attempt::statistics(api.store(), path.endpoint, window).await?;
    Ok(Json(counted.into()))
}
