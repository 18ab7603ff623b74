//! `/v1/inbox`: partners' events, and the requests that were refused.
//!
//! What would happen with an event now is not told here: that takes the sources' configuration, which
//! is the inbox's own.

mod rejects;
mod view;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_core::error::ErrorCode;
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use hooklane_store::Store;
use hooklane_store::inbox::{Done, Filter, Place, Reason, Status};
use http::HeaderValue;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::Api;
use crate::extract::{Acting, NoBody, Path, Query, id};
use crate::page::{self, Page};
use crate::problem::Problem;
use view::{InboxEvent, WholeInboxEvent};

/// What cursors are of.
const LISTING: &str = "inbox_events";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(body))
        .routes(routes!(replay))
        .routes(routes!(discard))
        .merge(rejects::routes())
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum InboxStatusName {
    Pending,
    Deferred,
    Processed,
    Quarantined,
    Superseded,
    Discarded,
}

impl From<InboxStatusName> for Status {
    fn from(name: InboxStatusName) -> Self {
        match name {
            InboxStatusName::Pending => Self::Pending,
            InboxStatusName::Deferred => Self::Deferred,
            InboxStatusName::Processed => Self::Processed,
            InboxStatusName::Quarantined => Self::Quarantined,
            InboxStatusName::Superseded => Self::Superseded,
            InboxStatusName::Discarded => Self::Discarded,
        }
    }
}

/// Why an event is in quarantine.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum QuarantineReasonName {
    Unparseable,
    Ambiguous,
    ImpossibleTransition,
    DeferralExpired,
    TooManyDeferred,
    HandlerFailed,
    Poison,
    EntityMissing,
}

impl From<QuarantineReasonName> for Reason {
    fn from(name: QuarantineReasonName) -> Self {
        match name {
            QuarantineReasonName::Unparseable => Self::Unparseable,
            QuarantineReasonName::Ambiguous => Self::Ambiguous,
            QuarantineReasonName::ImpossibleTransition => Self::ImpossibleTransition,
            QuarantineReasonName::DeferralExpired => Self::DeferralExpired,
            QuarantineReasonName::TooManyDeferred => Self::TooManyDeferred,
            QuarantineReasonName::HandlerFailed => Self::HandlerFailed,
            QuarantineReasonName::Poison => Self::Poison,
            QuarantineReasonName::EntityMissing => Self::EntityMissing,
        }
    }
}

/// Which events to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those of one partner.
    #[param(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,49}$")]
    partner: Option<Partner>,
    /// Those with one id of the partner's.
    #[param(max_length = 100)]
    partner_event_id: Option<String>,
    /// Those with one status.
    #[param(inline)]
    status: Option<InboxStatusName>,
    /// Those in quarantine for one reason.
    #[param(inline)]
    reason: Option<QuarantineReasonName>,
    /// Those of one event type, in the partner's words.
    #[param(max_length = 255)]
    event_type: Option<String>,
    /// Those about an entity of one type; with `entity_key`.
    #[param(max_length = 50)]
    entity_type: Option<String>,
    /// Those about one entity; with `entity_type`.
    #[param(max_length = 2000)]
    entity_key: Option<String>,
    /// Those received at or after this.
    since: Option<DateTime<Utc>>,
    /// Those received at or before this.
    until: Option<DateTime<Utc>>,
    /// Where the page starts: `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Entries at the most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

impl ListQuery {
    fn filter(self) -> Result<Filter, Problem> {
        let entity = match (self.entity_type, self.entity_key) {
            (Some(kind), Some(key)) => Some((kind, key)),
            (None, None) => None,
            _ => {
                return Err(Problem::unprocessable(
                    "an entity is `entity_type` and `entity_key`; give both",
                ));
            }
        };
        let (entity_type, entity_key) = entity.as_ref().map(|(t, k)| (t, k)).unzip();
        for (name, text, most) in [
            ("partner_event_id", self.partner_event_id.as_ref(), 100),
            ("event_type", self.event_type.as_ref(), 255),
            ("entity_type", entity_type, 50),
            ("entity_key", entity_key, 2000),
        ] {
            fits(name, text.map_or("", String::as_str), most)?;
        }
        Ok(Filter {
            partner: self.partner,
            partner_event: self.partner_event_id,
            status: self.status.map(Status::from),
            reason: self.reason.map(Reason::from),
            event_type: self.event_type,
            entity,
            since: self.since,
            until: self.until,
        })
    }
}

/// Refuses a text that nothing in the ledger can have.
fn fits(name: &str, text: &str, most: usize) -> Result<(), Problem> {
    if text.chars().count() > most {
        return Err(Problem::unprocessable(format!(
            "`{name}` has more than {most} characters"
        )));
    }
    if text.contains('\0') {
        return Err(Problem::unprocessable(format!(
            "`{name}` has a zero byte in it"
        )));
    }
    Ok(())
}

/// An event by its id.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct EventPath {
    /// The event's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^inb_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    event: InboxId,
}

/// List partners' events, the last received first.
#[utoipa::path(
    get, path = "/v1/inbox/events", tag = "Inbox", operation_id = "list_inbox_events",
    params(ListQuery),
    responses((status = 200, description = "A page of events.", body = Page<InboxEvent>)),
)]
async fn list(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<InboxEvent>>, Problem> {
    let limit = page::limit(query.limit)?;
    let after: Option<(DateTime<Utc>, Uuid)> = page::key(LISTING, query.cursor.as_deref())?;
    let after = after.map(|(received_at, id)| Place {
        received_at,
        id: InboxId::from_uuid(id),
    });
    let filter = query.filter()?;
    let found = api.store().inbox_events(&filter, after, limit).await?;
    let key = |place: Place| (place.received_at, place.id.uuid());
    Ok(Json(Page::of(LISTING, found, InboxEvent::from, key)))
}

/// Show a partner's event, and how it was decided about.
#[utoipa::path(
    get, path = "/v1/inbox/events/{event}", tag = "Inbox", operation_id = "get_inbox_event",
    params(EventPath),
    responses((status = 200, description = "The event.", body = WholeInboxEvent)),
)]
async fn show(
    State(api): State<Api>,
    Path(path): Path<EventPath>,
) -> Result<Json<WholeInboxEvent>, Problem> {
    let found = api.store().inbox_event(path.event).await?;
    Ok(Json(WholeInboxEvent::from(found)))
}

/// Get an event's body, byte for byte as the partner sent it.
///
/// 404 also where it is past its retention.
#[utoipa::path(
    get, path = "/v1/inbox/events/{event}/body", tag = "Inbox", operation_id = "get_inbox_body",
    params(EventPath),
    responses(
        (status = 200, description = "The body.", body = Vec<u8>, content_type = "application/octet-stream"),
    ),
)]
async fn body(State(api): State<Api>, Path(path): Path<EventPath>) -> Result<Response, Problem> {
    let found = api.store().inbox_event(path.event).await?;
    let body = found
        .body
        .ok_or_else(|| Problem::not_found("the body is past its retention, and is kept no more"))?;
    // Somebody else wrote it: no browser is to take it for a page of ours.
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, body).into_response())
}

/// Take an event out of quarantine: it is decided about, or handed on, once more.
#[utoipa::path(
    post, path = "/v1/inbox/events/{event}/replay", tag = "Inbox",
    operation_id = "replay_inbox_event", params(EventPath),
    responses(
        (status = 200, description = "The event, as it stands now.", body = InboxEvent),
        (status = 409, description = "It is not in quarantine."),
    ),
)]
async fn replay(
    Acting(store): Acting,
    Path(path): Path<EventPath>,
    _: NoBody,
) -> Result<Json<InboxEvent>, Problem> {
    let done = store.inbox_replay(clock::now(), &[path.event]).await?;
    settled(&store, path.event, done).await
}

/// Discard an event in quarantine: somebody looked, and wants no more of it.
#[utoipa::path(
    post, path = "/v1/inbox/events/{event}/discard", tag = "Inbox",
    operation_id = "discard_inbox_event", params(EventPath),
    responses(
        (status = 200, description = "The event, as it stands now.", body = InboxEvent),
        (status = 409, description = "It is not in quarantine."),
    ),
)]
async fn discard(
    Acting(store): Acting,
    Path(path): Path<EventPath>,
    _: NoBody,
) -> Result<Json<InboxEvent>, Problem> {
    let done = store.inbox_discard(clock::now(), &[path.event]).await?;
    settled(&store, path.event, done).await
}

async fn settled(
    store: &Store,
    event: InboxId,
    done: Vec<(InboxId, Done)>,
) -> Result<Json<InboxEvent>, Problem> {
    // Where it is not there at all, the look at it says so.
    let found = store.inbox_event(event).await?;
    if let Some((_, Done::Not(status))) = done.first() {
        let status = status.as_str();
        return Err(Problem::new(
            ErrorCode::Conflict,
            format!("it is not in quarantine, but {status}"),
        ));
    }
    Ok(Json(InboxEvent::from(found.row)))
}
