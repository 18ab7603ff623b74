//! Messages on their way to endpoints.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use hooklane_core::rules::merge::DeliveryStatus;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::ConsumerId;
use hooklane_store::Store;
use hooklane_store::delivery::{self, Listing};
use hooklane_store::message::Branch;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::consumers::ConsumerPath;
use super::message_log::{LoggedAttempt, MessagePath};
use crate::Api;
use crate::extract::{Acting, NoBody, Path, Query, id, optional_id};
use crate::page::{self, Page};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "deliveries";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(cancel))
}

/// A delivery of a consumer.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct DeliveryPath {
    /// The consumer's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(super) consumer: ConsumerId,
    /// The message's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^msg_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(super) message: MessageId,
    /// The endpoint's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^ep_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(super) endpoint: EndpointId,
}

impl DeliveryPath {
    /// The delivery with its attempts, where it is this consumer's.
    pub(super) async fn delivery(&self, store: &Store) -> Result<Branch, Problem> {
        let message = MessagePath {
            consumer: self.consumer.clone(),
            message: self.message,
        };
        let tree = message.tree(store, Some(self.endpoint), 1).await?;
        let missing = || {
            let (message, endpoint) = (self.message, self.endpoint);
            Problem::not_found(format!(
                "there is no delivery of `{message}` to `{endpoint}`"
            ))
        };
        tree.branches.into_iter().next().ok_or_else(missing)
    }
}

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum DeliveryStatusName {
    /// On its way.
    Received,
    /// Waiting for its next attempt.
    Stalled,
    /// The endpoint was paused or disabled.
    Skipped,
    /// For good: out of retries, past its deadline, or refused.
    Failed,
    /// Somebody took it back, or the endpoint was deleted.
    Cancelled,
    /// The endpoint took it.
    Sent,
}

impl From<DeliveryStatusName> for DeliveryStatus {
    fn from(name: DeliveryStatusName) -> Self {
        match name {
            DeliveryStatusName::Received => Self::Received,
            DeliveryStatusName::Stalled => Self::Stalled,
            DeliveryStatusName::Skipped => Self::Skipped,
            DeliveryStatusName::Failed => Self::Failed,
            DeliveryStatusName::Cancelled => Self::Cancelled,
            DeliveryStatusName::Sent => Self::Sent,
        }
    }
}

impl From<DeliveryStatus> for DeliveryStatusName {
    fn from(status: DeliveryStatus) -> Self {
        match status {
            DeliveryStatus::Received => Self::Received,
            DeliveryStatus::Stalled => Self::Stalled,
            DeliveryStatus::Skipped => Self::Skipped,
            DeliveryStatus::Failed => Self::Failed,
            DeliveryStatus::Cancelled => Self::Cancelled,
            DeliveryStatus::Sent => Self::Sent,
        }
    }
}

/// Which deliveries to list.
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
    /// Those with one status.
    #[param(inline)]
    status: Option<DeliveryStatusName>,
    /// Those accepted at or after this.
    since: Option<DateTime<Utc>>,
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// A message for one endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Delivery {
    /// The message: the `webhook-id`.
    message: String,
    /// The endpoint.
    endpoint: String,
    /// Whose endpoint it is.
    consumer: String,
    /// When the ledger took the message.
    accepted_at: DateTime<Utc>,
    /// Where it stands.
    status: DeliveryStatusName,
    /// The series of attempts, from 1; a replay opens the next.
    series: i32,
    /// Attempts made, in all series.
    attempts: i32,
    /// Attempts counted against the schedule, in this series.
    counted: i32,
    /// When the next attempt is due, where one is.
    next_attempt_at: Option<DateTime<Utc>>,
    /// No attempt after this.
    deadline: DateTime<Utc>,
    /// The last answer's status code.
    last_status: Option<i16>,
    /// The last attempt's error class.
    last_error: Option<String>,
    /// Why it failed, was skipped or cancelled.
    reason: Option<String>,
    /// When it ended.
    settled_at: Option<DateTime<Utc>>,
}

impl From<delivery::Delivery> for Delivery {
    fn from(delivery: delivery::Delivery) -> Self {
        let delivery::Delivery {
            key,
            consumer,
            status,
            series,
            drive: _,
            attempts,
            counted,
            next_attempt_at,
            deadline,
            faults: _,
            last_status,
            last_error,
            failure_reason,
            settled_at,
        } = delivery;
        Self {
            message: key.message.to_string(),
            endpoint: key.endpoint.to_string(),
            consumer: consumer.to_string(),
            accepted_at: key.accepted_at,
            status: status.into(),
            series,
            attempts,
            counted,
            next_attempt_at,
            deadline,
            last_status,
            last_error,
            reason: failure_reason,
            settled_at,
        }
    }
}

/// A delivery with where it goes and what was tried.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WholeDelivery {
    /// The delivery.
    #[serde(flatten)]
    delivery: Delivery,
    /// The endpoint's present URL.
    url: Option<String>,
    /// Attempts, the first one first.
    log: Vec<LoggedAttempt>,
}

impl From<Branch> for WholeDelivery {
    fn from(branch: Branch) -> Self {
        let Branch {
            delivery,
            url,
            attempts,
        } = branch;
        Self {
            delivery: delivery.into(),
            url,
            log: attempts.into_iter().map(LoggedAttempt::from).collect(),
        }
    }
}

/// List a consumer's deliveries, the last accepted first.
///
/// A page may hold fewer entries than asked for, or none, and still name the next: the search ends
/// after a few seconds and goes on from there.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/deliveries", tag = "Deliveries",
    operation_id = "list_deliveries", params(ConsumerPath, ListQuery),
    responses((status = 200, description = "A page of deliveries.", body = Page<Delivery>)),
)]
async fn list(
    State(api): State<Api>,
    Path(path): Path<ConsumerPath>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Delivery>>, Problem> {
    path.exists(api.store()).await?;
    let limit = page::limit(query.limit)?;
    let after: Option<(DateTime<Utc>, Uuid, Uuid)> = page::key(LISTING, query.cursor.as_deref())?;
    let listing = Listing {
        consumer: Some(path.consumer),
        endpoint: query.endpoint,
        status: query.status.map(DeliveryStatus::from),
        since: query.since,
        after: after.map(|(at, message, endpoint)| DeliveryKey::from_uuids(at, message, endpoint)),
        ..Listing::default()
    };
    let found = delivery::list(api.store(), &listing, limit).await?;
    let place = |key: DeliveryKey| (key.accepted_at, key.message.uuid(), key.endpoint.uuid());
    Ok(Json(Page::of(LISTING, found, Delivery::from, place)))
}

/// Show a delivery with its attempts.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}", tag = "Deliveries",
    operation_id = "show_delivery", params(DeliveryPath),
    responses((status = 200, description = "The delivery.", body = WholeDelivery)),
)]
async fn show(
    State(api): State<Api>,
    Path(path): Path<DeliveryPath>,
) -> Result<Json<WholeDelivery>, Problem> {
    Ok(Json(path.delivery(api.store()).await?.into()))
}

/// Cancel an open delivery.
///
/// One that the endpoint is taking at this moment still ends as `sent`.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}/cancel",
    tag = "Deliveries", operation_id = "cancel_delivery", params(DeliveryPath),
    responses(
        (status = 200, description = "It is cancelled.", body = WholeDelivery),
        (status = 409, description = "It is not open."),
    ),
)]
async fn cancel(
    Acting(store): Acting,
    Path(path): Path<DeliveryPath>,
    _: NoBody,
) -> Result<Json<WholeDelivery>, Problem> {
    path.delivery(&store).await?;
    delivery::cancel(&store, path.message, Some(path.endpoint)).await?;
    Ok(Json(path.delivery(&store).await?.into()))
}
