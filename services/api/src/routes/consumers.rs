//! `/v1/consumers`: the adopter's customers.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use hooklane_proto::token::ConsumerId;
use hooklane_store::{Store, consumer};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::extract::{self, Acting, Body, IfMatch, NoBody, Path, Query, nullable};
use crate::page::{self, Page, PageQuery};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "consumers";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, update, delete))
}

/// A consumer by its id.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ConsumerPath {
    /// The consumer's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(crate) consumer: ConsumerId,
}

impl ConsumerPath {
    /// Refuses where there is no such consumer.
    pub(crate) async fn exists(&self, store: &Store) -> Result<(), Problem> {
        consumer::show(store, &self.consumer).await?;
        Ok(())
    }
}

/// A new consumer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewConsumer {
    /// The adopter's own id.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$", example = "acme")]
    id: ConsumerId,
    /// For people.
    #[serde(default)]
    #[schema(max_length = 200)]
    name: String,
    /// Attempts a second to each endpoint that has no rate of its own; null takes the deployment's.
    #[schema(minimum = 1, maximum = 1000)]
    default_rate: Option<u16>,
}

/// Changes of a consumer; what is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ConsumerChanges {
    /// For people.
    #[schema(max_length = 200)]
    name: Option<String>,
    /// Attempts a second to each endpoint that has no rate of its own; null takes the deployment's.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 1000)]
    default_rate: Option<Option<u16>>,
}

/// One of the adopter's customers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Consumer {
    /// The adopter's own id.
    #[schema(example = "acme")]
    id: String,
    /// For people.
    name: String,
    /// Attempts a second to each endpoint that has no rate of its own; null takes the deployment's.
    default_rate: Option<u16>,
    /// Its endpoints that are not deleted.
    endpoints: u64,
    /// Grows with every change; the `etag` in quotes.
    version: i64,
    /// When it was added.
    created_at: DateTime<Utc>,
}

impl From<consumer::Consumer> for Consumer {
    fn from(consumer: consumer::Consumer) -> Self {
        let consumer::Consumer {
            id,
            name,
            default_rate,
            version,
            created_at,
            endpoints,
        } = consumer;
        Self {
            id: id.to_string(),
            name,
            default_rate,
            endpoints,
            version,
            created_at,
        }
    }
}

/// List consumers, in the order of their ids.
#[utoipa::path(
    get, path = "/v1/consumers", tag = "Consumers", operation_id = "list_consumers",
    params(PageQuery),
    responses((status = 200, description = "A page of consumers.", body = Page<Consumer>)),
)]
async fn list(
    State(api): State<Api>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Consumer>>, Problem> {
    let after: Option<ConsumerId> = page::key(LISTING, query.cursor.as_deref())?;
    let limit = page::limit(query.limit)?;
    let found = consumer::list(api.store(), after.as_ref(), limit).await?;
    Ok(Json(Page::of(LISTING, found, Consumer::from, |id| id)))
}

/// Add a consumer.
///
/// The id of one that was deleted can be taken again: it has its messages then, and none of its endpoints
/// and keys.
#[utoipa::path(
    post, path = "/v1/consumers", tag = "Consumers", operation_id = "create_consumer",
    request_body = NewConsumer,
    responses(
        (status = 201, description = "It was added.", body = Consumer),
        (status = 409, description = "The id is taken."),
    ),
)]
async fn create(Acting(store): Acting, Body(new): Body<NewConsumer>) -> Result<Response, Problem> {
    let added = consumer::add(&store, &new.id, &new.name, new.default_rate).await?;
    let body = extract::tagged(added.version, Consumer::from(added));
    Ok((StatusCode::CREATED, body).into_response())
}

/// Show a consumer.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}", tag = "Consumers", operation_id = "show_consumer",
    params(ConsumerPath),
    responses((status = 200, description = "The consumer.", body = Consumer)),
)]
async fn show(State(api): State<Api>, Path(path): Path<ConsumerPath>) -> Result<Response, Problem> {
    Ok(tagged(consumer::show(api.store(), &path.consumer).await?))
}

/// Change a consumer.
#[utoipa::path(
    patch, path = "/v1/consumers/{consumer}", tag = "Consumers", operation_id = "update_consumer",
    params(ConsumerPath, IfMatch), request_body = ConsumerChanges,
    responses(
        (status = 200, description = "It was changed.", body = Consumer),
        (status = 412, description = "Somebody else changed it meanwhile."),
    ),
)]
async fn update(
    Acting(store): Acting,
    Path(path): Path<ConsumerPath>,
    IfMatch(expected): IfMatch,
    Body(changes): Body<ConsumerChanges>,
) -> Result<Response, Problem> {
    let ConsumerChanges { name, default_rate } = changes;
    let changes = consumer::Changes { name, default_rate };
    let changed = consumer::update(&store, &path.consumer, &changes, expected).await?;
    Ok(tagged(changed))
}

/// Delete a consumer.
///
/// Its endpoints are to be deleted first. The keys that are good for it alone are revoked; its messages
/// stay until their retention is over, and from now on none is accepted.
#[utoipa::path(
    delete, path = "/v1/consumers/{consumer}", tag = "Consumers", operation_id = "delete_consumer",
    params(ConsumerPath, IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 409, description = "It has endpoints, or is built in."),
        (status = 412, description = "Somebody else changed it meanwhile."),
    ),
)]
async fn delete(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<ConsumerPath>,
    IfMatch(expected): IfMatch,
    _: NoBody,
) -> Result<StatusCode, Problem> {
    consumer::delete(&store, &path.consumer, expected).await?;
    api.known_keys().forget();
    Ok(StatusCode::NO_CONTENT)
}

fn tagged(consumer: consumer::Consumer) -> Response {
    extract::tagged(consumer.version, Consumer::from(consumer)).into_response()
}
