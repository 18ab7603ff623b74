//! What is delivered again in the background: retry, replay, recover, replay missing.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use hooklane_proto::id::{EndpointId, TaskId};
use hooklane_proto::token::ConsumerId;
use hooklane_store::Store;
use hooklane_store::task::{self, Listing, Span, Work};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::consumers::ConsumerPath;
use super::deliveries::DeliveryPath;
use super::endpoints::EndpointPath;
use super::message_log::MessagePath;
use crate::Api;
use crate::extract::{Acting, Body, NoBody, Path, Query, id};
use crate::page::{self, Page};
use crate::problem::Problem;

/// What cursors are of.
const LISTING: &str = "tasks";

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_all))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .routes(routes!(replay))
        .routes(routes!(recover))
        .routes(routes!(replay_missing))
}

/// A task of a consumer.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TaskPath {
    /// The consumer's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    consumer: ConsumerId,
    /// The task's id.
    #[serde(deserialize_with = "id")]
    #[param(value_type = String, pattern = "^task_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    task: TaskId,
}

impl TaskPath {
    /// The task, where it is this consumer's.
    async fn task(&self, store: &Store) -> Result<task::Task, Problem> {
        let found = task::show(store, self.task).await?;
        if found.consumer == self.consumer {
            Ok(found)
        } else {
            Err(Problem::not_found(format!(
                "there is no task `{}`",
                self.task
            )))
        }
    }
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum TaskStatus {
    /// No scheduler has taken it yet.
    Waiting,
    /// It is under way.
    Running,
    /// Everything that it is about is due, or was refused.
    Done,
    /// Somebody took it back.
    Cancelled,
    /// It met something that no further try can mend.
    Failed,
}

impl From<task::Status> for TaskStatus {
    fn from(status: task::Status) -> Self {
        match status {
            task::Status::Waiting => Self::Waiting,
            task::Status::Running => Self::Running,
            task::Status::Done => Self::Done,
            task::Status::Cancelled => Self::Cancelled,
            task::Status::Failed => Self::Failed,
        }
    }
}

impl From<TaskStatus> for task::Status {
    fn from(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Waiting => Self::Waiting,
            TaskStatus::Running => Self::Running,
            TaskStatus::Done => Self::Done,
            TaskStatus::Cancelled => Self::Cancelled,
            TaskStatus::Failed => Self::Failed,
        }
    }
}

/// Which tasks to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Those with one status.
    #[param(inline)]
    status: Option<TaskStatus>,
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
    ) -> Result<Json<Page<Task>>, Problem> {
        let after: Option<uuid::Uuid> = page::key(LISTING, self.cursor.as_deref())?;
        let limit = page::limit(self.limit)?;
        let listing = Listing {
            consumer,
            status: self.status.map(task::Status::from),
            after: after.map(TaskId::from_uuid),
        };
        let found = task::list(api.store(), &listing, limit).await?;
        Ok(Json(Page::of(LISTING, found, Task::from, TaskId::uuid)))
    }
}

/// The time that a recovery is about.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Recovery {
    /// Its begin.
    since: DateTime<Utc>,
    /// Its end; null is now.
    until: Option<DateTime<Utc>>,
    /// Only count what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// A task, and how far it has come.
#[derive(Debug, Serialize, ToSchema)]
struct Task {
    /// Its id.
    #[schema(example = "task_01987c3e-9d6a-7000-8000-000000000001")]
    id: String,
    /// `retry`, `replay`, `recover` or `replay_missing`.
    kind: &'static str,
    /// Whose deliveries they are.
    consumer: String,
    /// The message that it is about.
    message: Option<String>,
    /// The endpoint that it is about.
    endpoint: Option<String>,
    /// The begin of the time that it is about.
    since: Option<DateTime<Utc>>,
    /// Its end.
    until: Option<DateTime<Utc>>,
    /// Where it stands.
    status: TaskStatus,
    /// Deliveries that there were to look at when it began; null before that, and where counting took
    /// too long.
    total: Option<u64>,
    /// How many it has looked at.
    found: u64,
    /// How many of them it made due.
    due: u64,
    /// How many of `total` something else drove meanwhile; null until it is done.
    moved_on: Option<u64>,
    /// How many it refused, by reason.
    refused: BTreeMap<&'static str, u64>,
    /// What went wrong the last time, until a step goes well again.
    error: Option<String>,
    /// When somebody made it.
    created_at: DateTime<Utc>,
    /// When a scheduler took it.
    started_at: Option<DateTime<Utc>>,
    /// When it ended.
    ended_at: Option<DateTime<Utc>>,
}

impl From<task::Task> for Task {
    fn from(task: task::Task) -> Self {
        let moved_on = task.moved_on();
        let task::Task {
            id,
            work,
            consumer,
            status,
            total,
            found,
            due,
            refused,
            error,
            created_at,
            started_at,
            ended_at,
        } = task;
        let span = work.span();
        Self {
            id: id.to_string(),
            kind: work.kind(),
            consumer: consumer.to_string(),
            message: work.message().map(|id| id.to_string()),
            endpoint: work.endpoint().map(|id| id.to_string()),
            since: span.map(|span| span.since),
            until: span.and_then(|span| span.until),
            status: status.into(),
            total,
            found,
            due,
            moved_on,
            refused: counts(refused),
            error,
            created_at,
            started_at,
            ended_at,
        }
    }
}

/// What a task would do.
#[derive(Debug, Serialize, ToSchema)]
struct TaskCount {
    /// Deliveries that it would look at.
    found: u64,
    /// Those that it would make due.
    due: u64,
    /// Those that it would refuse, by reason.
    refused: BTreeMap<&'static str, u64>,
}

fn counts(refused: task::Refused) -> BTreeMap<&'static str, u64> {
    let named = refused
        .into_iter()
        .map(|(why, count)| (why.as_str(), count));
    named.collect()
}

async fn begin(api: &Api, store: &Store, work: Work) -> Result<Response, Problem> {
    let task = task::create(store, work, api.terms()).await?;
    Ok((StatusCode::ACCEPTED, Json(Task::from(task))).into_response())
}

/// Begins, or counts, what is about an endpoint and a time.
async fn over_time(
    api: &Api,
    store: &Store,
    path: &EndpointPath,
    recovery: Recovery,
    work: impl FnOnce(EndpointId, Span) -> Work,
) -> Result<Response, Problem> {
    path.endpoint(store).await?;
    let Recovery {
        since,
        until,
        dry_run,
    } = recovery;
    let work = work(path.endpoint, Span { since, until });
    if !dry_run {
        return begin(api, store, work).await;
    }
    let counted = task::count(store, &work, api.terms()).await?;
    let task::Counted {
        found,
        due,
        refused,
    } = counted;
    let refused = counts(refused);
    Ok(Json(TaskCount {
        found,
        due,
        refused,
    })
    .into_response())
}

/// List the tasks of the whole account, the last made first.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "Recovery", operation_id = "list_all_tasks", params(ListQuery),
    responses((status = 200, description = "A page of tasks.", body = Page<Task>)),
)]
async fn list_all(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Task>>, Problem> {
    query.run(&api, None).await
}

/// List a consumer's tasks, the last made first.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/tasks", tag = "Recovery", operation_id = "list_tasks",
    params(ConsumerPath, ListQuery),
    responses((status = 200, description = "A page of tasks.", body = Page<Task>)),
)]
async fn list(
    State(api): State<Api>,
    Path(path): Path<ConsumerPath>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Task>>, Problem> {
    path.exists(api.store()).await?;
    query.run(&api, Some(path.consumer)).await
}

/// Show a task and how far it has come.
#[utoipa::path(
    get, path = "/v1/consumers/{consumer}/tasks/{task}", tag = "Recovery", operation_id = "show_task",
    params(TaskPath),
    responses((status = 200, description = "The task.", body = Task)),
)]
async fn show(State(api): State<Api>, Path(path): Path<TaskPath>) -> Result<Json<Task>, Problem> {
    Ok(Json(path.task(api.store()).await?.into()))
}

/// Cancel a task.
///
/// What it made due until then stays due.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/tasks/{task}/cancel", tag = "Recovery",
    operation_id = "cancel_task", params(TaskPath),
    responses(
        (status = 200, description = "It is cancelled.", body = Task),
        (status = 409, description = "It has ended."),
    ),
)]
async fn cancel(
    Acting(store): Acting,
    Path(path): Path<TaskPath>,
    _: NoBody,
) -> Result<Json<Task>, Problem> {
    path.task(&store).await?;
    Ok(Json(task::cancel(&store, path.task).await?.into()))
}

/// Deliver a message to one endpoint again.
///
/// In a new series where the delivery has ended, at once where it waits for its next attempt.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/deliveries/{message}/{endpoint}/retry", tag = "Recovery",
    operation_id = "retry_delivery", params(DeliveryPath),
    responses(
        (status = 202, description = "It will be.", body = Task),
        (status = 409, description = "It can't be, with the reason."),
    ),
)]
async fn retry(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<DeliveryPath>,
    _: NoBody,
) -> Result<Response, Problem> {
    path.delivery(&store).await?;
    let (message, endpoint) = (path.message, path.endpoint);
    begin(&api, &store, Work::Retry { message, endpoint }).await
}

/// Deliver a message again, to every endpoint that it was for when it was accepted.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/messages/{message}/replay", tag = "Recovery",
    operation_id = "replay_message", params(MessagePath),
    responses(
        (status = 202, description = "It will be.", body = Task),
        (status = 409, description = "It can't be, with the reason."),
    ),
)]
async fn replay(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<MessagePath>,
    _: NoBody,
) -> Result<Response, Problem> {
    path.place(&store).await?;
    let message = path.message;
    begin(&api, &store, Work::Replay { message }).await
}

/// Deliver again what an endpoint failed for good and nobody discarded.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/recover", tag = "Recovery",
    operation_id = "recover_endpoint", params(EndpointPath), request_body = Recovery,
    responses(
        (status = 200, description = "What it would do (`dry_run`).", body = TaskCount),
        (status = 202, description = "It will be.", body = Task),
        (status = 409, description = "It can't be, with the reason."),
    ),
)]
async fn recover(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    Body(recovery): Body<Recovery>,
) -> Result<Response, Problem> {
    let work = |endpoint, span| Work::Recover { endpoint, span };
    over_time(&api, &store, &path, recovery, work).await
}

/// Deliver what an endpoint missed while it was paused or disabled.
#[utoipa::path(
    post, path = "/v1/consumers/{consumer}/endpoints/{endpoint}/replay-missing", tag = "Recovery",
    operation_id = "replay_missing", params(EndpointPath), request_body = Recovery,
    responses(
        (status = 200, description = "What it would do (`dry_run`).", body = TaskCount),
        (status = 202, description = "It will be.", body = Task),
        (status = 409, description = "It can't be, with the reason."),
    ),
)]
async fn replay_missing(
    State(api): State<Api>,
    Acting(store): Acting,
    Path(path): Path<EndpointPath>,
    Body(recovery): Body<Recovery>,
) -> Result<Response, Problem> {
    let work = |endpoint, span| Work::ReplayMissing { endpoint, span };
    over_time(&api, &store, &path, recovery, work).await
}
