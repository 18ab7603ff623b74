//! Tasks as an operator sees them: shown, listed, cancelled; and the old ones that go.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hooklane_proto::id::{EndpointId, MessageId, TaskId};
use hooklane_proto::token::ConsumerId;
use uuid::Uuid;

use super::{Refused, Span, Status, Task, Work};
use crate::audit_log::{self, Action, Change};
use crate::dead_letter::Refusal;
use crate::manage::{Error, Kind, Page};
use crate::{Error as Fault, Store};

/// Tasks, by what follows the list of columns.
macro_rules! tasks {
    ($rest:literal $(, $value:expr)*) => {
        sqlx::query_as!(
            crate::task::read::Row,
            r#"SELECT id, kind, consumer_id, message_id, endpoint_id, since, until, status::text AS "status!",
                      at_time, at_id, total, found, due, refused::text AS "refused!", created_at,
                      started_at, ended_at, error
                 FROM hooklane.tasks "#
                + $rest
            $(, $value)*
        )
    };
}
pub(super) use tasks;

/// A task's row, with the place that it has reached.
pub(super) struct Row {
    pub(super) id: Uuid,
    pub(super) kind: String,
    pub(super) consumer_id: String,
    pub(super) message_id: Option<Uuid>,
    pub(super) endpoint_id: Option<Uuid>,
    pub(super) since: Option<DateTime<Utc>>,
    pub(super) until: Option<DateTime<Utc>>,
    pub(super) status: String,
    pub(super) at_time: Option<DateTime<Utc>>,
    pub(super) at_id: Option<Uuid>,
    pub(super) total: Option<i64>,
    pub(super) found: i64,
    pub(super) due: i64,
    pub(super) refused: String,
    pub(super) created_at: DateTime<Utc>,
    pub(super) started_at: Option<DateTime<Utc>>,
    pub(super) ended_at: Option<DateTime<Utc>>,
    pub(super) error: Option<String>,
}

impl Row {
    pub(super) fn task(self) -> Result<Task, Fault> {
        let doing = "reading a task";
        let work = self.work()?;
        let Self {
            id,
            kind: _,
            consumer_id,
            message_id: _,
            endpoint_id: _,
            since: _,
            until: _,
            status,
            at_time: _,
            at_id: _,
            total,
            found,
            due,
            refused,
            created_at,
            started_at,
            ended_at,
            error,
        } = self;
        Ok(Task {
            id: TaskId::from_uuid(id),
            work,
            consumer: ConsumerId::new(&consumer_id).map_err(Fault::unreadable(doing))?,
            status: status.parse().map_err(Fault::unreadable(doing))?,
            total: total.map(i64::unsigned_abs),
            found: found.unsigned_abs(),
            due: due.unsigned_abs(),
            refused: read_refused(&refused).map_err(Fault::unreadable(doing))?,
            error,
            created_at,
            started_at,
            ended_at,
        })
    }

    fn work(&self) -> Result<Work, Fault> {
        let message = self.message_id.map(MessageId::from_uuid);
        let endpoint = self.endpoint_id.map(EndpointId::from_uuid);
        let span = self.since.map(|since| Span {
            since,
            until: self.until,
        });
        let work = match (self.kind.as_str(), message, endpoint, span) {
            ("retry", Some(message), Some(endpoint), _) => Some(Work::Retry { message, endpoint }),
            ("replay", Some(message), _, _) => Some(Work::Replay { message }),
            ("recover", _, Some(endpoint), Some(span)) => Some(Work::Recover { endpoint, span }),
            ("replay_missing", _, Some(endpoint), Some(span)) => {
                Some(Work::ReplayMissing { endpoint, span })
            }
            _ => None,
        };
        let unknown = || {
            format!(
                "this release knows no such task of the kind `{}`",
                self.kind
            )
        };
        work.ok_or_else(|| Fault::unreadable("reading a task")(unknown()))
    }
}

/// Counts by reason, as the ledger has them.
pub(super) fn write_refused(refused: &Refused) -> String {
    let counts: serde_json::Map<_, _> = refused
        .iter()
        .map(|(why, count)| (why.as_str().to_owned(), (*count).into()))
        .collect();
    serde_json::Value::Object(counts).to_string()
}

fn read_refused(text: &str) -> Result<Refused, String> {
    let counts: BTreeMap<String, u64> =
        serde_json::from_str(text).map_err(|fault| fault.to_string())?;
    let known = |name: &str| Refusal::ALL.into_iter().find(|why| why.as_str() == name);
    counts
        .into_iter()
        .map(|(name, count)| {
            let why = known(&name).ok_or_else(|| format!("`{name}` is no reason to refuse"))?;
            Ok((why, count))
        })
        .collect()
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Those of one consumer.
    pub consumer: Option<ConsumerId>,
    /// Those with one status.
    pub status: Option<Status>,
    /// Those behind this one, that is, made before it.
    pub after: Option<TaskId>,
}

/// One task.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, id: TaskId) -> Result<Task, Error> {
    let row = tasks!("WHERE id = $1", id.uuid())
        .fetch_optional(store.pool())
        .await
        .map_err(Fault::doing("reading a task"))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::Task, id))?;
    Ok(row.task()?)
}

/// Tasks, the last made first.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    listing: &Listing,
    limit: u32,
) -> Result<Page<Task, TaskId>, Error> {
    let rows = tasks!(
        "WHERE ($1::text IS NULL OR status = $1::text::hooklane.task_status)
           AND ($2::uuid IS NULL OR id < $2) AND ($4::text IS NULL OR consumer_id = $4)
         ORDER BY id DESC LIMIT $3",
        listing.status.map(Status::as_str),
        listing.after.map(TaskId::uuid),
        i64::from(limit) + 1,
        listing.consumer.as_ref().map(ConsumerId::as_str)
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing tasks"))?;
    let tasks: Result<Vec<Task>, Fault> = rows.into_iter().map(Row::task).collect();
    Ok(Page::cut(tasks?, limit, |task| task.id))
}

/// Cancels a task that has not ended. What it made due until then stays due.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Conflict`] where it has ended, or a fault of the database.
pub async fn cancel(store: &Store, id: TaskId) -> Result<Task, Error> {
    let doing = "cancelling a task";
    let consumer = show(store, id).await?.consumer;
    let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
    let cancelled = sqlx::query!(
        "UPDATE hooklane.tasks SET status = 'cancelled', ended_at = clock_timestamp()
          WHERE id = $1 AND status IN ('waiting', 'running')",
        id.uuid()
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?
    .rows_affected()
        > 0;
    if cancelled {
        let change = Change::of(Action::TaskCancel, Some(consumer.as_str()), id);
        audit_log::note(&mut tx, store, change).await?;
    }
    tx.commit().await.map_err(Fault::doing(doing))?;
    let task = show(store, id).await?;
    if !cancelled {
        return Err(Error::Conflict(format!(
            "{id} has ended already: it is {}",
            task.status
        )));
    }
    Ok(task)
}

impl Store {
    /// Deletes tasks that ended before `before`, at most `limit`; answers how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn forget_tasks(&self, before: DateTime<Utc>, limit: u32) -> Result<u64, Fault> {
        sqlx::query!(
            "DELETE FROM hooklane.tasks t
              USING (SELECT id FROM hooklane.tasks WHERE ended_at < $1
                      ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED) old
              WHERE t.id = old.id",
            before,
            i64::from(limit)
        )
        .execute(self.pool())
        .await
        .map(|done| done.rows_affected())
        .map_err(Fault::doing("deleting old tasks"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_read_back() {
        let refused: Refused = Refusal::ALL.into_iter().zip(1..).collect();
        assert_eq!(read_refused(&write_refused(&refused)), Ok(refused));
        assert_eq!(read_refused("{}"), Ok(Refused::new()));
        assert!(read_refused(r#"{"bored": 1}"#).is_err());
    }
}
