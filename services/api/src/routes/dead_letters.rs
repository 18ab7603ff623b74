//! Deliveries that failed for good.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use hooklane_nats::letters::{self, Letter};
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::record::FailureReason;
use hooklane_proto::token::{ConsumerId, EventType};
use hooklane_store::dead_letter::{Filed, Filter, Listed, Order, Place, Series};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::consumers::ConsumerPath;
use crate::Api;
use crate::extract::{Acting, Body, Path, Query, id, optional_id};
use crate::json::Object;
use crate::page::{self, Page};
use crate::problem::Problem;

/// Most dead letters of one request.
const MOST: usize = 500;

/// What cursors are of.
const LISTING: &str = "dead_letters";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_all))
        .routes(routes!(list))
        .routes(routes!(replay))
        .routes(routes!(discard))
}

/// Why a delivery failed for good.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ReasonName {
    Exhausted,
    Deadline,
    Gone,
    Poison,
}

impl From<ReasonName> for FailureReason {
    fn from(name: ReasonName) -> Self {
        match name {
            ReasonName::Exhausted => Self::Exhausted,
            ReasonName::Deadline => Self::Deadline,
            ReasonName::Gone => Self::Gone,
            ReasonName::Poison => Self::Poison,
        }
    }
}

/// Which dead letters to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those for one endpoint.
    #[serde(default, deserialize_with = "optional_id")]
    #[param(
        value_type = Option<String>,
        pattern = "^ep_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )]
    endpoint: Option<EndpointId>,
    /// Those of one event type.
    #[param(
        value_type = Option<String>, max_length = 100,
        pattern = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$"
    )]
    event_type: Option<EventType>,
    /// Those that failed for one reason.
    #[param(inline)]
    reason: Option<ReasonName>,
    /// Those that failed at or after this.
    since: Option<DateTime<Utc>>,
    /// Those that failed at or before this.
    until: Option<DateTime<Utc>>,
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

impl ListQuery {
    async fn run(
        self,
        api: &Api,
        consumer: Option<ConsumerId>,
    ) -> Result<Json<Page<DeadLetter>>, Problem> {
        let limit = page::limit(self.limit)?;
        let after: Option<(DateTime<Utc>, Uuid, Uuid)> =
            page::key(LISTING, self.cursor.as_deref())?;
        let after = after.map(|(failed_at, message, endpoint)| Place {
            failed_at,
            message: MessageId::from_uuid(message),
            endpoint: EndpointId::from_uuid(endpoint),
        });
        let filter = Filter {
            message: None,
            consumer,
            endpoint: self.endpoint,
            event_type: self.event_type,
            reason: self
                .reason
                .map(|name| FailureReason::from(name).as_str().to_owned()),
            since: self.since,
            until: self.until,
        };
        let store = api.store();
        let found = store
            .dead_letters(&filter, Order::NewestFirst, after, limit)
            .await?;
        let key = |place: Place| (place.failed_at, place.message.uuid(), place.endpoint.uuid());
        Ok(Json(Page::of(LISTING, found, DeadLetter::from, key)))
    }
}

/// A delivery that failed for good.
#[derive(Debug, Serialize, ToSchema)]
struct DeadLetter {
    /// The message: the `webhook-id`.
    message: String,
    /// The endpoint.
    endpoint: String,
    /// Whose endpoint it is.
    consumer: String,
    /// When the ledger took the message.
    accepted_at: DateTime<Utc>,
    /// The series of attempts that failed.
    series: i32,
    /// What happened.
    event_type: String,
    /// Attempts made, in all series.
    attempts: i32,
    /// Why it failed.
    reason: String,
    /// The last answer's status code.
    last_status: Option<i16>,
    /// The last attempt's error class.
    last_error: Option<String>,
    /// When it failed.
    failed_at: DateTime<Utc>,
    /// When it was put into the stream `DLQ`; null for a moment, or while the broker is away.
    dead_lettered_at: Option<DateTime<Utc>>,
    /// The size of its payload, in bytes.
    bytes: i32,
}

impl From<Listed> for DeadLetter {
    fn from(listed: Listed) -> Self {
        let Listed {
            series,
            consumer,
            event_type,
            attempts,
            reason,
            last_status,
            last_error,
            failed_at,
            dead_lettered_at,
            bytes,
        } = listed;
        Self {
            message: series.key.message.to_string(),
            endpoint: series.key.endpoint.to_string(),
            consumer: consumer.to_string(),
            accepted_at: series.key.accepted_at,
            series: series.series,
            event_type,
            attempts,
            reason,
            last_status,
            last_error,
            failed_at,
            dead_lettered_at,
            bytes,
        }
    }
}

/// Dead letters, as a listing names them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Chosen {
    /// Which.
    #[schema(value_type = Vec<One>, min_items = 1, max_items = 500)]
    dead_letters: Vec<Object<One>>,
}

/// One dead letter, as a listing names it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct One {
    /// The message.
    #[serde(deserialize_with = "id")]
    #[schema(
        value_type = String,
        pattern = "^msg_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )]
    message: MessageId,
    /// The endpoint.
    #[serde(deserialize_with = "id")]
    #[schema(value_type = String, pattern = "^ep_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    endpoint: EndpointId,
    /// When the ledger took the message.
    accepted_at: DateTime<Utc>,
    /// The series of attempts that failed.
    #[schema(minimum = 1)]
    series: i32,
}

/// What became of dead letters.
#[derive(Debug, Serialize, ToSchema)]
struct Done {
    /// How many were replayed or discarded.
    done: usize,
    /// The others.
    refused: Vec<RefusedOne>,
}

/// A dead letter with which nothing was done.
#[derive(Debug, Serialize, ToSchema)]
struct RefusedOne {
    /// The message.
    message: String,
    /// The endpoint.
    endpoint: String,
    /// Why, as a name.
    #[schema(example = "paused")]
    reason: &'static str,
    /// Why, in words.
    detail: String,
}

impl Chosen {
    /// Refuses what is another consumer's as if it were not there.
    async fn series(self, api: &Api, consumer: &ConsumerId) -> Result<Vec<Series>, Problem> {
        if self.dead_letters.is_empty() || self.dead_letters.len() > MOST {
            return Err(Problem::unprocessable(format!(
                "name 1 to {MOST} dead letters"
            )));
        }
        let series = self.dead_letters.into_iter().map(|Object(one)| Series {
            key: DeliveryKey {
                accepted_at: one.accepted_at,
                message: one.message,
                endpoint: one.endpoint,
            },
            series: one.series,
        });
        let series: Vec<Series> = series.collect();
        let endpoints: Vec<EndpointId> = series.iter().map(|s| s.key.endpoint).collect();
        let foreign = hooklane_store::endpoint::not_of(api.store(), consumer, &endpoints).await?;
        match foreign.first() {
            None => Ok(series),
            Some(endpoint) => Err(Problem::not_found(format!(
                "there is no endpoint `{endpoint}`"
            ))),
        }
    }
}

/// List the dead letters of the whole account, the last that failed first.
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "Dead letters", operation_id = "list_all_dead_letters",
    params(ListQuery),
    responses((status = 200, description = "A page of dead letters.", body = Page<DeadLetter>)),
)]
async fn list_all(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<DeadLetter>>, Problem> {
    query.run(&api, None).await
}

/// List a consumer's dead letters, the last that failed first.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/dead-letters", tag = "Dead letters",
    operation_id = "list_dead_letters", params(ConsumerPath, ListQuery),
    responses((status = 200, description = "A page of dead letters.", body = Page<DeadLetter>)),
)]
async fn list(
    State(api): State<Api>,
    Path(path): Path<ConsumerPath>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<DeadLetter>>, Problem> {
    path.exists(api.store()).await?;
    query.run(&api, Some(path.consumer)).await
}

/// Replay dead letters, each in a new series.
///
/// For all that an endpoint failed since a time: `recover` it.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/dead-letters/replay", tag = "Dead letters",
    operation_id = "replay_dead_letters", params(ConsumerPath), request_body = Chosen,
    responses((status = 200, description = "What became of each.", body = Done)),
)]
async fn replay(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<ConsumerPath>,
    Body(chosen): Body<Chosen>,
) -> Result<Json<Done>, Problem> {
    let series = chosen.series(&api, &path.consumer).await?;
    let outcomes = store.replay(&series, api.terms()).await?;
    let (mut gone, mut refused, mut done) = (Vec::new(), Vec::new(), 0);
    for (series, outcome) in series.iter().zip(outcomes) {
        match outcome {
            Ok(filed) => {
                done += 1;
                gone.extend(filed.map(|filed| (*series, filed)));
            }
            Err(why) => refused.push(RefusedOne {
                message: series.key.message.to_string(),
                endpoint: series.key.endpoint.to_string(),
                reason: why.as_str(),
                detail: why.told(Some(series.key.endpoint)),
            }),
        }
    }
    remove(&api, gone).await;
    Ok(Json(Done { done, refused }))
}

/// Discard dead letters: somebody looked, and wants no more of them.
///
/// The deliveries stay failed. What is replayed, or discarded already, is left alone.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/dead-letters/discard", tag = "Dead letters",
    operation_id = "discard_dead_letters", params(ConsumerPath), request_body = Chosen,
    responses((status = 200, description = "What became of each.", body = Done)),
)]
async fn discard(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<ConsumerPath>,
    Body(chosen): Body<Chosen>,
) -> Result<Json<Done>, Problem> {
    let series = chosen.series(&api, &path.consumer).await?;
    let discarded = store.discard(&series).await?;
    let left = series
        .iter()
        .filter(|s| discarded.iter().all(|(gone, _)| gone != *s));
    let refused = left.map(|series| RefusedOne {
        message: series.key.message.to_string(),
        endpoint: series.key.endpoint.to_string(),
        reason: "no_dead_letter",
        detail: "it is no dead letter, or not any more".to_owned(),
    });
    let refused = refused.collect();
    let done = discarded.len();
    let filed = discarded
        .into_iter()
        .filter_map(|(series, filed)| Some((series, filed?)));
    remove(&api, filed.collect()).await;
    Ok(Json(Done { done, refused }))
}

/// Takes off the stream what has nothing to look for there any more. Where the broker is away it
/// stays until it is too old there.
async fn remove(api: &Api, gone: Vec<(Series, Filed)>) {
    if gone.is_empty() {
        return;
    }
    let gone = gone.into_iter().map(|(series, filed)| Letter {
        key: series.key,
        series: series.series,
        sequence: filed.sequence,
    });
    letters::remove(api.client(), gone).await;
}
