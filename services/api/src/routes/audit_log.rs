//! `/v1/audit-log`: who changed what.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use hooklane_proto::token::ConsumerId;
use hooklane_store::audit_log::{self, Action, Actor, Entry, Listing};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::extract::Query;
use crate::page::{self, Page};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "audit_log";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which entries to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those about one consumer.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    consumer: Option<ConsumerId>,
    /// Those of one actor: `cli`, or a key's id.
    #[param(max_length = 64)]
    actor: Option<String>,
    /// Those of one kind of change, such as `endpoint.update`.
    #[param(max_length = 64)]
    action: Option<String>,
    /// Those of this time or later.
    since: Option<DateTime<Utc>>,
    /// Those before this time.
    until: Option<DateTime<Utc>>,
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// A change that somebody made.
#[derive(Debug, Serialize, ToSchema)]
struct AuditEntry {
    /// Its id.
    id: String,
    /// When.
    at: DateTime<Utc>,
    /// Who: `cli`, or a key's id.
    actor: String,
    /// The key's name at that time.
    actor_name: String,
    /// The request that asked for it.
    request_id: Option<String>,
    /// What was done.
    #[schema(example = "endpoint.update")]
    action: String,
    /// Whom it is about.
    consumer: Option<String>,
    /// The id of what was changed.
    subject: String,
    /// Names of settings, counts and times; never a secret.
    #[schema(value_type = Object)]
    detail: Value,
}

impl From<Entry> for AuditEntry {
    fn from(entry: Entry) -> Self {
        let Entry {
            id,
            at,
            actor,
            request_id,
            action,
            consumer,
            subject,
            detail,
        } = entry;
        Self {
            id: id.to_string(),
            at,
            actor: actor.id(),
            actor_name: actor.name().to_owned(),
            request_id,
            action,
            consumer: consumer.map(String::from),
            subject,
            detail,
        }
    }
}

fn actor(text: &str) -> Result<String, Problem> {
    Actor::named(text).ok_or_else(|| Problem::unprocessable("an actor is `cli`, or a key's id"))
}

/// List changes, the last first.
#[utoipa::path(
    get, path = "/v1/audit-log", tag = "Audit log", operation_id = "list_audit_log",
    params(ListQuery),
    responses((status = 200, description = "A page of changes.", body = Page<AuditEntry>)),
)]
async fn list(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<AuditEntry>>, Problem> {
    let limit = page::limit(query.limit)?;
    let action = query
        .action
        .as_deref()
        .map(str::parse::<Action>)
        .transpose();
    let listing = Listing {
        consumer: query.consumer,
        actor: query.actor.as_deref().map(actor).transpose()?,
        action: action.map_err(|error| Problem::unprocessable(error.to_string()))?,
        since: query.since,
        until: query.until,
        after: page::key(LISTING, query.cursor.as_deref())?,
    };
    let found = audit_log::list(api.store(), &listing, limit).await?;
    Ok(Json(Page::of(LISTING, found, AuditEntry::from, |place| {
        place
    })))
}
