//! Requests that were refused: no event came of them.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use hooklane_proto::token::Partner;
use hooklane_store::inbox::Rejected;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::view::{InboxHeader, headers, text};
use crate::Api;
use crate::extract::{Path, Query};
use crate::page::{self, Page};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "inbox_rejects";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
}

/// Which refused requests to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those sent to one partner's source.
    #[param(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,49}$")]
    partner: Option<Partner>,
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// A request that was refused.
#[derive(Debug, Serialize, ToSchema)]
struct InboxReject {
    /// Its number.
    number: i64,
    /// Whose source it was sent to.
    partner: String,
    /// When.
    at: DateTime<Utc>,
    /// Why it was refused.
    #[schema(example = "wrong_signature")]
    reason: String,
    /// Whom it came from, as the inbox saw it.
    remote: Option<String>,
    /// The size of its body, in bytes.
    bytes: u64,
}

impl From<&Rejected> for InboxReject {
    fn from(rejected: &Rejected) -> Self {
        Self {
            number: rejected.id,
            partner: rejected.partner.to_string(),
            at: rejected.at,
            reason: rejected.reason.clone(),
            remote: rejected.remote.clone(),
            bytes: rejected.bytes,
        }
    }
}

/// A request that was refused, with what is kept of it.
#[derive(Debug, Serialize, ToSchema)]
struct WholeInboxReject {
    #[serde(flatten)]
    reject: InboxReject,
    /// Its headers, without what is secret.
    headers: Vec<InboxHeader>,
    /// The beginning of its body, where that is text.
    body: Option<String>,
    /// The same in base64, where it is no text.
    body_base64: Option<String>,
}

/// A refused request by its number.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct RejectPath {
    /// Its number.
    #[param(minimum = 1)]
    reject: i64,
}

/// List requests that were refused, the last first.
#[utoipa::path(
    get, path = "/v1/inbox/rejects", tag = "Inbox", operation_id = "list_inbox_rejects",
    params(ListQuery),
    responses((status = 200, description = "A page of refused requests.", body = Page<InboxReject>)),
)]
async fn list(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<InboxReject>>, Problem> {
    let limit = page::limit(query.limit)?;
    let after: Option<i64> = page::key(LISTING, query.cursor.as_deref())?;
    let partner = query.partner.as_ref();
    let found = api.store().inbox_rejects(partner, after, limit).await?;
    let view = |rejected: Rejected| InboxReject::from(&rejected);
    Ok(Json(Page::of(LISTING, found, view, |number| number)))
}

/// Show a request that was refused, with its headers and the beginning of its body.
#[utoipa::path(
    get, path = "/v1/inbox/rejects/{reject}", tag = "Inbox", operation_id = "get_inbox_reject",
    params(RejectPath),
    responses((status = 200, description = "The request.", body = WholeInboxReject)),
)]
async fn show(
    State(api): State<Api>,
    Path(path): Path<RejectPath>,
) -> Result<Json<WholeInboxReject>, Problem> {
    // The newest of those behind the next number.
    let behind = path.reject.checked_add(1);
    let page = api.store().inbox_rejects(None, behind, 1).await?;
    let found = page.items.into_iter().find(|found| found.id == path.reject);
    let found = found.ok_or_else(|| {
        Problem::not_found("there is no refused request with this number, or not any more")
    })?;
    let reject = InboxReject::from(&found);
    let (body, body_base64) = text(found.body.to_vec());
    Ok(Json(WholeInboxReject {
        reject,
        headers: headers(found.headers),
        body,
        body_base64,
    }))
}
