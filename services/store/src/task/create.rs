//! Making a task: what it is about has to be there, and it has to have a prospect.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hooklane_core::clock;
use hooklane_proto::id::{EndpointId, MessageId, TaskId};
use serde_json::json;

use super::read::show;
use super::{Refused, Span, Task, Work, count, reasons};
use crate::audit_log::{self, Action, Change};
use crate::dead_letter::{self, Terms};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

/// When every lane knows that an endpoint was resumed, with a margin: until then some skip on. What
/// they skip is missed like the rest, so that a task which replays it begins afterwards.
const LANES_KNOW: Duration = Duration::from_secs(2);

/// Makes a task; a scheduler takes it soon.
///
/// # Errors
/// [`Error::NotFound`] where what it is about is not there, [`Error::Conflict`] where everything
/// would be refused: because the endpoint takes no deliveries, or each delivery for itself,
/// [`Error::Invalid`] for a span without an inside, or a fault of the database.
pub async fn create(store: &Store, work: Work, terms: Terms) -> Result<Task, Error> {
    let subject = subject(store, &work).await?;
    let refused = match work {
        Work::Retry { .. } | Work::Replay { .. } => {
            let counted = count::tally(store, &work, terms).await?;
            (counted.due == 0).then_some(counted.refused)
        }
        // Those may be millions: they are looked at one by one in the background.
        Work::Recover { .. } | Work::ReplayMissing { .. } => {
            let stopped = subject.state.as_deref().and_then(dead_letter::stopped);
            stopped.map(|why| Refused::from([(why, 0)]))
        }
    };
    if let Some(refused) = refused.filter(|refused| !refused.is_empty()) {
        return Err(Error::Conflict(reasons(&refused, work.endpoint())));
    }
    let id = TaskId::generate();
    let span = work.span();
    let grace = match work {
        Work::ReplayMissing { .. } => LANES_KNOW,
        Work::Retry { .. } | Work::Replay { .. } | Work::Recover { .. } => Duration::ZERO,
    };
    let doing = "making a task";
    let mut tx = store.pool().begin().await.map_err(Fault::doing(doing))?;
    sqlx::query!(
        "INSERT INTO hooklane.tasks
                (id, kind, consumer_id, message_id, endpoint_id, since, until, created_at, turn_at)
         SELECT $1, $2, $3, $4, $5, $6::timestamptz,
                CASE WHEN $6::timestamptz IS NOT NULL THEN least($7, at + grace) END,
                at, greatest(at, least($7, at + grace))
           FROM (SELECT clock_timestamp() AS at, make_interval(secs => $8) AS grace) clock",
        id.uuid(),
        work.kind(),
        subject.consumer,
        work.message().map(MessageId::uuid),
        work.endpoint().map(EndpointId::uuid),
        span.map(|span| span.since),
        span.and_then(|span| span.until) as Option<DateTime<Utc>>,
        grace.as_secs_f64()
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing(doing))?;
    let detail = json!({
        "kind": work.kind(),
        "message": work.message().map(|id| id.to_string()),
        "endpoint": work.endpoint().map(|id| id.to_string()),
    });
    let change = Change::of(Action::TaskCreate, Some(&subject.consumer), id).with(detail);
    audit_log::note(&mut tx, store, change).await?;
    tx.commit().await.map_err(Fault::doing(doing))?;
    show(store, id).await
}

/// What a task is about.
pub(super) struct Subject {
    consumer: String,
    /// The state of its endpoint, where it has one.
    state: Option<String>,
}

/// Finds what a task is about.
pub(super) async fn subject(store: &Store, work: &Work) -> Result<Subject, Error> {
    match *work {
        Work::Retry { message, endpoint } => {
            let known = sqlx::query_scalar!(
                "SELECT d.consumer_id FROM hooklane.messages m
                   JOIN hooklane.deliveries d ON d.accepted_at = m.accepted_at AND d.message_id = m.id
                  WHERE m.id = $1 AND d.endpoint_id = $2 LIMIT 1",
                message.uuid(),
                endpoint.uuid()
            )
            .fetch_optional(store.pool())
            .await
            .map_err(Fault::doing("looking for a delivery"))?;
            let which = || format!("{message} to {endpoint}");
            let consumer = known.ok_or_else(|| Error::not_found(Kind::Delivery, which()))?;
            Ok(Subject {
                consumer,
                state: None,
            })
        }
        Work::Replay { message } => {
            let known = sqlx::query_scalar!(
                "SELECT consumer_id FROM hooklane.messages WHERE id = $1 LIMIT 1",
                message.uuid()
            )
            .fetch_optional(store.pool())
            .await
            .map_err(Fault::doing("looking for a message"))?;
            Ok(Subject {
                consumer: known.ok_or_else(|| Error::not_found(Kind::Message, message))?,
                state: None,
            })
        }
        Work::Recover { endpoint, span } | Work::ReplayMissing { endpoint, span } => {
            inside(span)?;
            let known = sqlx::query!(
                r#"SELECT consumer_id, state::text AS "state!" FROM hooklane.endpoints WHERE id = $1"#,
                endpoint.uuid()
            )
            .fetch_optional(store.pool())
            .await
            .map_err(Fault::doing("looking for an endpoint"))?;
            let known = known.ok_or_else(|| Error::not_found(Kind::Endpoint, endpoint))?;
            Ok(Subject {
                consumer: known.consumer_id,
                state: Some(known.state),
            })
        }
    }
}

/// What ends after the task was made is none of its business, so that a span ends now at the latest.
fn inside(span: Span) -> Result<(), Error> {
    let now = clock::now();
    let until = span.until.map_or(now, |until| until.min(now));
    if span.since > until {
        return Err(Error::Invalid(
            "the time ends before it begins: give an earlier since, or a later until; it ends now \
             at the latest"
                .to_owned(),
        ));
    }
    Ok(())
}
