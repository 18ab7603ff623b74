//! Messages that were accepted, with their deliveries and attempts.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::Store;
use hooklane_store::message::{self, Deliveries, Listed, Listing, Tree};
use http::HeaderValue;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::consumers::ConsumerPath;
use super::deliveries::{DeliveryStatusName, WholeDelivery};
use crate::Api;
use crate::extract::{Path, Query, id, optional_id};
use crate::page::{self, Page};
use crate::problem::Problem;

/// Most deliveries that a message is shown with.
const SHOWN: u32 = 200;

/// What cursors are of.
const LISTING: &str = "messages";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(payload))
}

/// A message of a consumer.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct MessagePath {
    /// The consumer's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(super) consumer: ConsumerId,
    /// The message's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^msg_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(super) message: MessageId,
}

impl MessagePath {
    /// When the message was accepted, where it is this consumer's; the last one, where its id has
    /// returned.
    pub(super) async fn place(&self, store: &Store) -> Result<DateTime<Utc>, Problem> {
        match message::place(store, self.message).await? {
            Some((accepted_at, consumer)) if consumer == self.consumer => Ok(accepted_at),
            _ => Err(Problem::not_found(format!(
                "there is no message `{}`",
                self.message
            ))),
        }
    }

    /// The message, where it is this consumer's, with as many of its deliveries, or the one to
    /// `endpoint`.
    pub(super) async fn tree(
        &self,
        store: &Store,
        endpoint: Option<EndpointId>,
        deliveries: u32,
    ) -> Result<Tree, Problem> {
        let accepted_at = self.place(store).await?;
        Ok(message::tree(store, accepted_at, self.message, endpoint, deliveries).await?)
    }
}

/// Which messages to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those of one event type.
    #[param(
        value_type = Option<String>, max_length = 100,
        pattern = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$"
    )]
    event_type: Option<EventType>,
    /// Those with a delivery to this endpoint.
    #[serde(default, deserialize_with = "optional_id")]
    #[param(
        value_type = Option<String>,
        pattern = "^ep_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )]
    endpoint: Option<EndpointId>,
    /// Those with a delivery that has this status; to the endpoint, where one is named.
    #[param(inline)]
    status: Option<DeliveryStatusName>,
    /// Those accepted at or after this.
    since: Option<DateTime<Utc>>,
    /// Those accepted before this.
    until: Option<DateTime<Utc>>,
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// An accepted event, in a listing.
#[derive(Debug, Serialize, ToSchema)]
struct ListedMessage {
    /// Its id: the `webhook-id` of every attempt.
    #[schema(example = "msg_01987c3e-9d6a-7000-8000-000000000001")]
    id: String,
    /// Whose endpoints get it.
    consumer: String,
    /// What happened.
    event_type: String,
    /// When the ledger took it.
    accepted_at: DateTime<Utc>,
    /// The payload's media type.
    content_type: String,
    /// The payload's size, in bytes.
    bytes: u64,
    /// Which way it came: `api`, `intake`, or `outbox:` and a source.
    source: String,
    /// The producer's idempotency key.
    idempotency_key: Option<String>,
    /// How many deliveries it has, by status.
    deliveries: DeliveryCounts,
}

/// Deliveries by status.
#[derive(Debug, Serialize, ToSchema)]
struct DeliveryCounts {
    /// On their way.
    received: u64,
    /// Waiting for their next attempt.
    stalled: u64,
    /// Taken.
    sent: u64,
    /// Failed for good.
    failed: u64,
    /// The endpoint was paused or disabled.
    skipped: u64,
    /// Taken back.
    cancelled: u64,
}

impl From<Listed> for ListedMessage {
    fn from(listed: Listed) -> Self {
        let Listed {
            id,
            accepted_at,
            consumer,
            event_type,
            content_type,
            size,
            source,
            idempotency_key,
            deliveries,
        } = listed;
        let Deliveries {
            received,
            stalled,
            sent,
            failed,
            skipped,
            cancelled,
        } = deliveries;
        Self {
            id: id.to_string(),
            consumer: consumer.to_string(),
            event_type,
            accepted_at,
            content_type,
            bytes: size,
            source,
            idempotency_key,
            deliveries: DeliveryCounts {
                received,
                stalled,
                sent,
                failed,
                skipped,
                cancelled,
            },
        }
    }
}

/// An accepted event.
#[derive(Debug, Serialize, ToSchema)]
struct Message {
    /// Its id: the `webhook-id` of every attempt.
    #[schema(example = "msg_01987c3e-9d6a-7000-8000-000000000001")]
    id: String,
    /// Whose endpoints get it.
    consumer: String,
    /// What happened.
    event_type: String,
    /// When the ledger took it.
    accepted_at: DateTime<Utc>,
    /// The payload's media type.
    content_type: String,
    /// The payload's size, in bytes. The payload itself is at `.../payload`.
    bytes: usize,
    /// Which way it came: `api`, `intake`, or `outbox:` and a source.
    source: String,
    /// The producer's idempotency key.
    idempotency_key: Option<String>,
    /// The trace that it belongs to.
    traceparent: Option<String>,
    /// How many deliveries it has.
    deliveries: u64,
    /// Its deliveries, at most 200 of them, with their attempts.
    log: Vec<WholeDelivery>,
}

impl From<Tree> for Message {
    fn from(tree: Tree) -> Self {
        let Tree {
            message,
            deliveries,
            branches,
        } = tree;
        let message::Message {
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
            accepted_at,
            content_type,
            bytes: payload.len(),
            source,
            idempotency_key,
            traceparent,
            deliveries,
            log: branches.into_iter().map(WholeDelivery::from).collect(),
        }
    }
}

/// One POST, as a message's log has it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LoggedAttempt {
    /// Its id.
    id: String,
    /// The series that it belongs to.
    series: i32,
    /// Its number in all series.
    number: i32,
    /// When the lane started it.
    started_at: DateTime<Utc>,
    /// From the start to the last byte read, in microseconds.
    duration_us: i64,
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

impl From<message::Attempt> for LoggedAttempt {
    fn from(attempt: message::Attempt) -> Self {
        let message::Attempt {
            id,
            series,
            drive: _,
            number,
            started_at,
            duration_us,
            status,
            body: _,
            error,
            detail,
            verdict,
            traceparent,
        } = attempt;
        Self {
            id: id.to_string(),
            series,
            number,
            started_at,
            duration_us,
            status,
            error,
            detail,
            verdict,
            traceparent,
        }
    }
}

/// List a consumer's messages, the last accepted first.
///
/// A page may hold fewer entries than asked for, or none, and still name the next: the search ends
/// after a few seconds and goes on from there.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/messages", tag = "Messages", operation_id = "list_messages",
    params(ConsumerPath, ListQuery),
    responses((status = 200, description = "A page of messages.", body = Page<ListedMessage>)),
)]
async fn list(
    State(api): State<Api>,
    Path(path): Path<ConsumerPath>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<ListedMessage>>, Problem> {
    path.exists(api.store()).await?;
    let limit = page::limit(query.limit)?;
    let after: Option<(DateTime<Utc>, Uuid)> = page::key(LISTING, query.cursor.as_deref())?;
    let listing = Listing {
        consumer: Some(path.consumer),
        event_type: query.event_type,
        endpoint: query.endpoint,
        status: query.status.map(DeliveryStatus::from),
        since: query.since,
        until: query.until,
        after: after.map(|(at, id)| (at, MessageId::from_uuid(id))),
        ..Listing::default()
    };
    let found = message::list(api.store(), &listing, limit).await?;
    Ok(Json(Page::of(
        LISTING,
        found,
        ListedMessage::from,
        |(at, id)| (at, id.uuid()),
    )))
}

/// Show a message with its deliveries and their attempts.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/messages/{message}", tag = "Messages",
    operation_id = "show_message", params(MessagePath),
    responses((status = 200, description = "The message.", body = Message)),
)]
async fn show(
    State(api): State<Api>,
    Path(path): Path<MessagePath>,
) -> Result<Json<Message>, Problem> {
    Ok(Json(path.tree(api.store(), None, SHOWN).await?.into()))
}

/// Get a message's payload, byte for byte as it is sent.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/messages/{message}/payload", tag = "Messages",
    operation_id = "get_payload", params(MessagePath),
    responses(
        (status = 200, description = "The payload.", body = Vec<u8>, content_type = "application/octet-stream"),
    ),
)]
async fn payload(
    State(api): State<Api>,
    Path(path): Path<MessagePath>,
) -> Result<Response, Problem> {
    let payload = path.tree(api.store(), None, 0).await?.message.payload;
    // Somebody else wrote it: no browser is to take it for a page of ours.
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, payload).into_response())
}
