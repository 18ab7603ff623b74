//! `/v1/api-keys`: who may ask for what. The first key comes from the command line.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_proto::id::ApiKeyId;
use hooklane_proto::token::ConsumerId;
use hooklane_store::api_key::{self, Listing};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::extract::{Acting, Body, NoBody, Path, Query, id};
use crate::page::{self, Page, PageQuery};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "api_keys";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, revoke))
}

/// A key by its id.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct KeyPath {
    /// The key's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^key_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    key: ApiKeyId,
}

/// What a key is good for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Scope {
    /// To send messages, and nothing else.
    Publish,
    /// One consumer's endpoints and log.
    Consumer,
    /// To read everything but secrets.
    Read,
    /// Everything.
    Admin,
}

impl From<Scope> for api_key::Scope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Publish => Self::Publish,
            Scope::Consumer => Self::Consumer,
            Scope::Read => Self::Read,
            Scope::Admin => Self::Admin,
        }
    }
}

impl From<api_key::Scope> for Scope {
    fn from(scope: api_key::Scope) -> Self {
        match scope {
            api_key::Scope::Publish => Self::Publish,
            api_key::Scope::Consumer => Self::Consumer,
            api_key::Scope::Read => Self::Read,
            api_key::Scope::Admin => Self::Admin,
        }
    }
}

/// A new key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewApiKey {
    /// For people.
    #[schema(min_length = 1, max_length = 100, example = "billing service")]
    name: String,
    /// What it is good for.
    scope: Scope,
    /// The one consumer that it is good for: has to be named with `consumer`, may be with `publish`.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    consumer: Option<ConsumerId>,
    /// When it expires, ten years from now at the most; null is never.
    expires_at: Option<DateTime<Utc>>,
    /// Requests a second; null takes the deployment's setting.
    #[schema(minimum = 1, maximum = 10000)]
    rate_limit: Option<u16>,
}

/// A key. Holds no secret.
#[derive(Debug, Serialize, ToSchema)]
struct ApiKey {
    /// Its id.
    #[schema(example = "key_01987c3e-9d6a-7000-8000-000000000001")]
    id: String,
    /// For people.
    name: String,
    /// What it is good for.
    scope: Scope,
    /// The one consumer that it is good for; null is all of them.
    consumer: Option<String>,
    /// Its last four characters.
    hint: String,
    /// `active`, `expired` or `revoked`.
    standing: &'static str,
    /// Requests a second; null takes the deployment's setting.
    rate_limit: Option<u16>,
    /// When it was made.
    created_at: DateTime<Utc>,
    /// Who made it: `cli`, or a key's id.
    created_by: String,
    /// When it expires; null is never.
    expires_at: Option<DateTime<Utc>>,
    /// When somebody revoked it.
    revoked_at: Option<DateTime<Utc>>,
    /// When it was last used, to a minute or so.
    last_used_at: Option<DateTime<Utc>>,
}

impl From<api_key::ApiKey> for ApiKey {
    fn from(key: api_key::ApiKey) -> Self {
        let standing = key.standing(clock::now()).as_str();
        let api_key::ApiKey {
            id,
            name,
            scope,
            consumer,
            hint,
            rate_limit,
            created_at,
            created_by,
            expires_at,
            revoked_at,
            last_used_at,
        } = key;
        Self {
            id: id.to_string(),
            name,
            scope: scope.into(),
            consumer: consumer.map(String::from),
            hint,
            standing,
            rate_limit,
            created_at,
            created_by,
            expires_at,
            revoked_at,
            last_used_at,
        }
    }
}

/// A key that was made, with its text.
#[derive(Serialize, ToSchema)]
struct CreatedApiKey {
    /// The key.
    #[serde(flatten)]
    api_key: ApiKey,
    /// What to send as `authorization: Bearer ...`. Shown here and never again.
    key: String,
}

/// List keys, the oldest first; expired and revoked ones too.
#[utoipa::path(
    get, path = "/v1/api-keys", tag = "API keys", operation_id = "list_api_keys", params(PageQuery),
    responses((status = 200, description = "A page of keys.", body = Page<ApiKey>)),
)]
async fn list(
    State(api): State<Api>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    let after: Option<uuid::Uuid> = page::key(LISTING, query.cursor.as_deref())?;
    let limit = page::limit(query.limit)?;
    let listing = Listing {
        consumer: None,
        after: after.map(ApiKeyId::from_uuid),
    };
    let found = api_key::list(api.store(), &listing, limit).await?;
    Ok(Json(Page::of(LISTING, found, ApiKey::from, ApiKeyId::uuid)))
}

/// Make a key.
#[utoipa::path(
    post, path = "/v1/api-keys", tag = "API keys", operation_id = "create_api_key",
    request_body = NewApiKey,
    responses(
        (status = 201, description = "It was made.", body = CreatedApiKey),
        (status = 404, description = "There is no such consumer."),
    ),
)]
async fn create(Acting(store): Acting, Body(new): Body<NewApiKey>) -> Result<Response, Problem> {
    let NewApiKey {
        name,
        scope,
        consumer,
        expires_at,
        rate_limit,
    } = new;
    let new = api_key::New {
        name,
        scope: scope.into(),
        consumer,
        expires_at,
        rate_limit,
    };
    let created = api_key::create(&store, &new).await?;
    let body = CreatedApiKey {
        api_key: created.key.into(),
        key: created.secret.expose_secret().to_owned(),
    };
    Ok((
        StatusCode::CREATED,
        [(CACHE_CONTROL, "no-store")],
        Json(body),
    )
        .into_response())
}

/// Show a key.
#[utoipa::path(
    get, path = "/v1/api-keys/{key}", tag = "API keys", operation_id = "show_api_key",
    params(KeyPath),
    responses((status = 200, description = "The key.", body = ApiKey)),
)]
async fn show(State(api): State<Api>, Path(path): Path<KeyPath>) -> Result<Json<ApiKey>, Problem> {
    Ok(Json(api_key::show(api.store(), path.key).await?.into()))
}

/// Revoke a key.
///
/// It is refused at once where it was revoked, and within `api.keys_for` (5 s unless changed) by
/// other processes that serve the API. To revoke twice is no error.
#[utoipa::path(
    delete, path = "/v1/api-keys/{key}", tag = "API keys", operation_id = "revoke_api_key",
    params(KeyPath),
    responses((status = 204, description = "It is revoked.")),
)]
async fn revoke(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<KeyPath>,
    _: NoBody,
) -> Result<StatusCode, Problem> {
    api_key::revoke(&store, path.key).await?;
    api.known_keys().forget();
    Ok(StatusCode::NO_CONTENT)
}
