//! `/v1/event-types`: the catalogue of what can happen.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use hooklane_proto::token::EventType as Name;
use hooklane_store::event_type;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::extract::{self, Acting, Body, IfMatch, Path, Query, nullable};
use crate::intake::schema;
use crate::page::{self, Page, PageQuery};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "event_types";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, update))
}

/// An event type by its name.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct EventTypePath {
    /// The event type's name.
    #[param(value_type = String, max_length = 100, pattern = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$")]
    event_type: Name,
}

/// A new event type.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewEventType {
    /// Its name: dot-separated words of letters, digits and `_`.
    #[schema(
        value_type = String, max_length = 100, pattern = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$",
        example = "invoice.paid"
    )]
    name: Name,
    /// For people.
    #[serde(default)]
    #[schema(max_length = 4096)]
    description: String,
    /// The payload's JSON Schema: payloads that come over the API have to fit it. At most 64 KiB,
    /// without references to elsewhere.
    #[schema(value_type = Option<Value>, example = json!({"type": "object"}))]
    schema: Option<Box<RawValue>>,
    /// A payload as it may look, at most 64 KiB.
    #[schema(value_type = Option<Value>, example = json!({"invoice": "6f1e"}))]
    example: Option<Box<RawValue>>,
}

/// Changes of an event type; what is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EventTypeChanges {
    /// For people.
    #[schema(max_length = 4096)]
    description: Option<String>,
    /// The payload's JSON Schema; null takes it away.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Value>)]
    schema: Option<Option<Box<RawValue>>>,
    /// A payload as it may look; null takes it away.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Value>)]
    example: Option<Option<Box<RawValue>>>,
    /// No longer to be subscribed to; still accepted.
    deprecated: Option<bool>,
}

/// An entry of the catalogue.
#[derive(Debug, Serialize, ToSchema)]
struct EventType {
    /// Its name.
    #[schema(example = "invoice.paid")]
    name: String,
    /// For people.
    description: String,
    /// The payload's JSON Schema, as it was given.
    #[schema(value_type = Option<Value>)]
    schema: Option<Box<RawValue>>,
    /// A payload as it may look, as it was given.
    #[schema(value_type = Option<Value>)]
    example: Option<Box<RawValue>>,
    /// No longer to be subscribed to; still accepted.
    deprecated: bool,
    /// Grows with every change; the `etag` in quotes.
    version: i64,
    /// When it was added.
    created_at: DateTime<Utc>,
}

impl From<event_type::EventType> for EventType {
    fn from(event_type: event_type::EventType) -> Self {
        let event_type::EventType {
            name,
            description,
            schema,
            example,
            deprecated,
            version,
            created_at,
        } = event_type;
        Self {
            name: name.to_string(),
            description,
            schema,
            example,
            deprecated,
            version,
            created_at,
        }
    }
}

/// List event types, in the order of their names.
#[utoipa::path(
    get, path = "/v1/event-types", tag = "Event types", operation_id = "list_event_types",
    params(PageQuery),
    responses((status = 200, description = "A page of event types.", body = Page<EventType>)),
)]
async fn list(
    State(api): State<Api>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<EventType>>, Problem> {
    let after: Option<Name> = page::key(LISTING, query.cursor.as_deref())?;
    let limit = page::limit(query.limit)?;
    let found = event_type::list(api.store(), after.as_ref(), limit).await?;
    Ok(Json(Page::of(LISTING, found, EventType::from, |name| name)))
}

/// Add an event type.
#[utoipa::path(
    post, path = "/v1/event-types", tag = "Event types", operation_id = "create_event_type",
    request_body = NewEventType,
    responses(
        (status = 201, description = "It was added.", body = EventType),
        (status = 409, description = "The name is taken."),
    ),
)]
async fn create(Acting(store): Acting, Body(new): Body<NewEventType>) -> Result<Response, Problem> {
    check_schema(new.schema.as_deref())?;
    let said = event_type::New {
        description: new.description,
        schema: new.schema,
        example: new.example,
    };
    let added = event_type::add(&store, &new.name, &said).await?;
    let body = extract::tagged(added.version, EventType::from(added));
    Ok((StatusCode::CREATED, body).into_response())
}

/// Show an event type.
#[utoipa::path(
    get, path = "/v1/event-types/{event_type}", tag = "Event types",
    operation_id = "show_event_type", params(EventTypePath),
    responses((status = 200, description = "The event type.", body = EventType)),
)]
async fn show(
    State(api): State<Api>,
    Path(path): Path<EventTypePath>,
) -> Result<Response, Problem> {
    Ok(tagged(
        event_type::show(api.store(), &path.event_type).await?,
    ))
}

/// Change an event type, or deprecate it.
///
/// A new schema holds for what is sent from a second later on.
#[utoipa::path(
    patch, path = "/v1/event-types/{event_type}", tag = "Event types",
    operation_id = "update_event_type", params(EventTypePath, IfMatch),
    request_body = EventTypeChanges,
    responses(
        (status = 200, description = "It was changed.", body = EventType),
        (status = 412, description = "Somebody else changed it meanwhile."),
    ),
)]
async fn update(
    Acting(store): Acting,
    Path(path): Path<EventTypePath>,
    IfMatch(expected): IfMatch,
    Body(changes): Body<EventTypeChanges>,
) -> Result<Response, Problem> {
    let EventTypeChanges {
        description,
        schema,
        example,
        deprecated,
    } = changes;
    check_schema(schema.as_ref().and_then(|schema| schema.as_deref()))?;
    let changes = event_type::Changes {
        description,
        schema,
        example,
        deprecated,
    };
    let changed = event_type::update(&store, &path.event_type, &changes, expected).await?;
    Ok(tagged(changed))
}

fn check_schema(text: Option<&RawValue>) -> Result<(), Problem> {
    let Some(text) = text else {
        return Ok(());
    };
    let parsed = serde_json::from_str(text.get())
        .map_err(|error| Problem::unprocessable(format!("the schema can't be read: {error}")))?;
    schema::check(&parsed).map_err(Problem::unprocessable)
}

fn tagged(event_type: event_type::EventType) -> Response {
    extract::tagged(event_type.version, EventType::from(event_type)).into_response()
}
