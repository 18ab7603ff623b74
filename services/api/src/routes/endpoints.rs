//! Customers' endpoints: their settings, state and secrets.

mod body;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route;
use hooklane_proto::token::ConsumerId;
use hooklane_store::Store;
use hooklane_store::endpoint::{self, Listing};
use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::extract::{self, Acting, Body, IfMatch, NoBody, Path, Query, etag, id};
use crate::page::{self, Page, PageQuery};
use crate::problem::Problem;
use crate::routes::consumers::ConsumerPath;
use body::{Added, Endpoint, EndpointChanges, NewEndpoint, Rotated, Rotation, Secrets, Written};

/// What cursors are of: by id, and by the time of failing.
const LISTING: &str = "endpoints";
const FAILING: &str = "failing";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_all))
        .routes(routes!(list_failing))
        .routes(routes!(list, create))
        .routes(routes!(show, update, delete))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(reveal))
        .routes(routes!(rotate))
}

/// An endpoint of a consumer.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct EndpointPath {
    /// The consumer's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(crate) consumer: ConsumerId,
    /// The endpoint's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^ep_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) endpoint: EndpointId,
}

impl EndpointPath {
    /// The endpoint, where it is this consumer's and not deleted.
    pub(crate) async fn endpoint(&self, store: &Store) -> Result<endpoint::Endpoint, Problem> {
        let missing = || Problem::not_found(format!("there is no endpoint `{}`", self.endpoint));
        let found = endpoint::show(store, self.endpoint).await?;
        let theirs = found.consumer == self.consumer && found.state != route::State::Deleted;
        if theirs { Ok(found) } else { Err(missing()) }
    }
}

/// An endpoint's state.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StateName {
    Active,
    Failing,
    Paused,
    Disabled,
}

impl From<StateName> for route::State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Active => Self::Active,
            StateName::Failing => Self::Failing,
            StateName::Paused => Self::Paused,
            StateName::Disabled => Self::Disabled,
        }
    }
}

/// Which endpoints to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those in one state.
    #[param(inline)]
    state: Option<StateName>,
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
    ) -> Result<Json<Page<Endpoint>>, Problem> {
        let after: Option<uuid::Uuid> = page::key(LISTING, self.cursor.as_deref())?;
        let limit = page::limit(self.limit)?;
        let listing = Listing {
            consumer,
            state: self.state.map(route::State::from),
            after: after.map(EndpointId::from_uuid),
        };
        let found = endpoint::list(api.store(), &listing, limit).await?;
        Ok(Json(Page::of(
            LISTING,
            found,
            Endpoint::from,
            EndpointId::uuid,
        )))
    }
}

/// List the endpoints of the whole account, the oldest first.
#[utoipa::path(
    get, path = "/v1/endpoints", tag = "Endpoints", params(ListQuery),
    operation_id = "list_all_endpoints",
    responses((status = 200, description = "A page of endpoints.", body = Page<Endpoint>)),
)]
async fn list_all(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Endpoint>>, Problem> {
    query.run(&api, None).await
}

/// List every endpoint that fails, whoever's it is, the longest failing first.
#[utoipa::path(
    get, path = "/v1/endpoints/failing", tag = "Endpoints", operation_id = "list_failing_endpoints",
    params(PageQuery),
    responses((status = 200, description = "A page of endpoints.", body = Page<Endpoint>)),
)]
async fn list_failing(
    State(api): State<Api>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Endpoint>>, Problem> {
    let after: Option<(Option<DateTime<Utc>>, uuid::Uuid)> =
        page::key(FAILING, query.cursor.as_deref())?;
    let after = after.map(|(since, id)| (since, EndpointId::from_uuid(id)));
    let limit = page::limit(query.limit)?;
    let found = endpoint::failing(api.store(), None, after, limit).await?;
    Ok(Json(Page::of(
        FAILING,
        found,
        Endpoint::from,
        |(since, id)| (since, id.uuid()),
    )))
}

/// List a consumer's endpoints, the oldest first.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/endpoints", tag = "Endpoints",
    operation_id = "list_endpoints", params(ConsumerPath, ListQuery),
    responses((status = 200, description = "A page of endpoints.", body = Page<Endpoint>)),
)]
async fn list(
    State(api): State<Api>,
    Path(path): Path<ConsumerPath>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Endpoint>>, Problem> {
    path.exists(api.store()).await?;
    query.run(&api, Some(path.consumer)).await
}

/// Add an endpoint.
///
/// It gets every event that is accepted after this has answered, and nothing of before. The answer
/// holds its signing secret.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/endpoints", tag = "Endpoints",
    operation_id = "create_endpoint", params(ConsumerPath), request_body = NewEndpoint,
    responses((status = 201, description = "It was added.", body = Added)),
)]
async fn create(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<ConsumerPath>,
    Body(new): Body<NewEndpoint>,
) -> Result<Response, Problem> {
    let new = new.into_new(path.consumer)?;
    let added = endpoint::add(&store, &new, api.addresses(), api.keys()).await?;
    let version = added.endpoint.version;
    let body = Added {
        endpoint: Written {
            endpoint: added.endpoint.into(),
            warnings: added.warnings,
        },
        secret: added.secret.reveal().to_string(),
    };
    let headers = [
        (CACHE_CONTROL, "no-store".to_owned()),
        (ETAG, etag(version)),
    ];
    Ok((StatusCode::CREATED, headers, Json(body)).into_response())
}

/// Show an endpoint.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/endpoints/{endpoint}", tag = "Endpoints",
    operation_id = "show_endpoint", params(EndpointPath),
    responses((status = 200, description = "The endpoint.", body = Endpoint)),
)]
async fn show(State(api): State<Api>, Path(path): Path<EndpointPath>) -> Result<Response, Problem> {
    Ok(tagged(path.endpoint(api.store()).await?))
}

/// Change an endpoint's settings.
///
/// The lanes follow within a second, and never see half of a change.
#[utoipa::path(
    patch, path = "/v1/consumers/{consumer}/endpoints/{endpoint}", tag = "Endpoints",
    operation_id = "update_endpoint", params(EndpointPath, IfMatch),
    request_body = EndpointChanges,
    responses(
        (status = 200, description = "It was changed.", body = Written),
        (status = 409, description = "Its state does not allow it."),
        (status = 412, description = "Somebody else changed it meanwhile."),
    ),
)]
async fn update(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    IfMatch(expected): IfMatch,
    Body(changes): Body<EndpointChanges>,
) -> Result<Response, Problem> {
    let now = path.endpoint(&store).await?;
    let changes = changes.into_changes(now.rate)?;
    let policy = api.addresses();
    let updated = endpoint::update(
        &store,
        path.endpoint,
        &changes,
        expected,
        policy,
        api.keys(),
    )
    .await?;
    let version = updated.endpoint.version;
    let body = Written {
        endpoint: updated.endpoint.into(),
        warnings: updated.warnings,
    };
    Ok(extract::tagged(version, body).into_response())
}

/// Delete an endpoint.
///
/// Its open deliveries become `cancelled` in the background, and its secrets go.
#[utoipa::path(
    delete, path = "/v1/consumers/{consumer}/endpoints/{endpoint}", tag = "Endpoints",
    operation_id = "delete_endpoint", params(EndpointPath, IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 412, description = "Somebody else changed it meanwhile."),
    ),
)]
async fn delete(
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    IfMatch(expected): IfMatch,
    _: NoBody,
) -> Result<StatusCode, Problem> {
    path.endpoint(&store).await?;
    endpoint::delete_at(&store, path.endpoint, expected).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause an endpoint.
///
/// What waits for it becomes `skipped` in the background, as does what is accepted meanwhile;
/// nothing of that is sent on `resume`, only by `replay-missing`. To pause twice is no error.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/pause", tag = "Endpoints",
    operation_id = "pause_endpoint", params(EndpointPath),
    responses(
        (status = 200, description = "It is paused.", body = Endpoint),
        (status = 409, description = "Its state does not allow it."),
    ),
)]
async fn pause(
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    _: NoBody,
) -> Result<Response, Problem> {
    path.endpoint(&store).await?;
    Ok(tagged(
        endpoint::pause(&store, path.endpoint).await?.endpoint,
    ))
}

/// Resume an endpoint that is paused or disabled.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/resume", tag = "Endpoints",
    operation_id = "resume_endpoint", params(EndpointPath),
    responses(
        (status = 200, description = "It takes deliveries.", body = Endpoint),
        (status = 409, description = "Its state does not allow it."),
    ),
)]
async fn resume(
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    _: NoBody,
) -> Result<Response, Problem> {
    path.endpoint(&store).await?;
    Ok(tagged(
        endpoint::resume(&store, path.endpoint).await?.endpoint,
    ))
}

/// Reveal the secrets that sign at present.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/secrets", tag = "Endpoints",
    operation_id = "reveal_secrets", params(EndpointPath),
    responses((status = 200, description = "The secrets, the newest first.", body = Secrets)),
)]
async fn reveal(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
) -> Result<Response, Problem> {
    path.endpoint(&store).await?;
    let found = endpoint::reveal(&store, path.endpoint, api.keys()).await?;
    let data = found.into_iter().map(body::Standing::from).collect();
    Ok(([(CACHE_CONTROL, "no-store")], Json(Secrets { data })).into_response())
}

/// Give an endpoint a new signing secret.
///
/// The old one signs along for a while, so that every attempt verifies with either.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/secrets/rotate", tag = "Endpoints",
    operation_id = "rotate_secret", params(EndpointPath), request_body = Rotation,
    responses(
        (status = 200, description = "The new secret.", body = Rotated),
        (status = 409, description = "Its state does not allow it."),
    ),
)]
async fn rotate(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    Body(rotation): Body<Rotation>,
) -> Result<Response, Problem> {
    path.endpoint(&store).await?;
    let grace = rotation
        .grace_seconds
        .map(|seconds| Duration::from_secs(seconds.into()));
    let grace = grace.unwrap_or(api.config().rotation_grace);
    let new = rotation
        .secret
        .as_ref()
        .map(body::parse_secret)
        .transpose()?;
    let rotated = endpoint::rotate(&store, path.endpoint, new, grace, api.keys()).await?;
    let body = Rotated {
        secret: rotated.secret.reveal().to_string(),
        old_until: rotated.old_until,
    };
    Ok(([(CACHE_CONTROL, "no-store")], Json(body)).into_response())
}

fn tagged(endpoint: endpoint::Endpoint) -> Response {
    extract::tagged(endpoint.version, Endpoint::from(endpoint)).into_response()
}
