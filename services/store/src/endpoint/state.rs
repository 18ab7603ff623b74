//! What a person does to an endpoint's state, by the rule in `hooklane_core::rules::health`.
//!
//! A step to where the endpoint is already changes nothing and is no fault, so that a command
//! can be repeated after an answer was lost. A deleted endpoint's row stays as a tombstone; its
//! secrets and its health go.

use hooklane_core::rules::health::{Action, act};
use hooklane_proto::id::EndpointId;
use sqlx::PgConnection;

use super::{Endpoint, read};
use crate::audit_log;
use crate::manage::{Error, Kind};
use crate::operational::{self, Change, Event};
use crate::{Error as Fault, Store};

/// An endpoint after a change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Whether this call changed it.
    pub changed: bool,
}

/// Stops deliveries to an endpoint until somebody resumes it. What is open for it is
/// [`super::Settle`]'s.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Conflict`] where it is disabled or deleted, or a fault of the
/// database.
pub async fn pause(store: &Store, id: EndpointId) -> Result<Changed, Error> {
    change(store, id, Action::Pause, None).await
}

/// Makes an endpoint take deliveries again. What was skipped stays skipped.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Conflict`] where it is deleted, or a fault of the database.
pub async fn resume(store: &Store, id: EndpointId) -> Result<Changed, Error> {
    change(store, id, Action::Resume, None).await
}

/// Deletes an endpoint with its secrets. What is open for it is [`super::Settle`]'s.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn delete(store: &Store, id: EndpointId) -> Result<Changed, Error> {
    delete_at(store, id, None).await
}

/// [`delete`]s an endpoint that is at the version `expected`, or at any. One that is deleted already is at
/// the version that it should be.
///
/// # Errors
/// As [`delete`]; [`Error::Stale`] where it is at another version.
pub async fn delete_at(
    store: &Store,
    id: EndpointId,
    expected: Option<i64>,
) -> Result<Changed, Error> {
    change(store, id, Action::Delete, expected).await
}

async fn change(
    store: &Store,
    id: EndpointId,
    action: Action,
    expected: Option<i64>,
) -> Result<Changed, Error> {
    let mut tx = store
        .pool()
        .begin()
        .await
        .map_err(Fault::doing("changing an endpoint's state"))?;
    lock_health(&mut tx, id).await?;
    let old = read::lock(&mut tx, id).await?;
    let to = act(old.state, action)
        .map_err(|why| Error::Conflict(format!("the endpoint `{id}` {why}")))?;
    let Some(to) = to else {
        return Ok(Changed {
            endpoint: old,
            changed: false,
        });
    };
    Error::unless_current(Kind::Endpoint, id, old.version, expected)?;
    sqlx::query!(
        "UPDATE hooklane.endpoints
            SET state = $2::text::hooklane.endpoint_state,
                headers = CASE WHEN $3 THEN NULL ELSE headers END,
                version = nextval('hooklane.endpoint_version'), updated_at = clock_timestamp()
          WHERE id = $1",
        id.uuid(),
        to.as_str(),
        action == Action::Delete,
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing("changing an endpoint's state"))?;
    if action == Action::Resume {
        forget(&mut tx, id).await?;
    }
    if action == Action::Delete {
        sqlx::query!(
            "DELETE FROM hooklane.endpoint_secrets WHERE endpoint_id = $1",
            id.uuid(),
        )
        .execute(&mut *tx)
        .await
        .map_err(Fault::doing("deleting an endpoint's secrets"))?;
        sqlx::query!(
            "DELETE FROM hooklane.endpoint_health WHERE endpoint_id = $1",
            id.uuid(),
        )
        .execute(&mut *tx)
        .await
        .map_err(Fault::doing("deleting an endpoint's health"))?;
    }
    let endpoint = read::lock(&mut tx, id).await?;
    let event = Event::changed(&Change {
        endpoint: id,
        consumer: endpoint.consumer.as_str(),
        from: old.state,
        to,
        reason: "manual",
        run: None,
        at: endpoint.updated_at,
    });
    operational::write(&mut tx, &[event]).await?;
    let audited = match action {
        Action::Pause => audit_log::Action::EndpointPause,
        Action::Resume => audit_log::Action::EndpointResume,
        Action::Delete => audit_log::Action::EndpointDelete,
    };
    let note = audit_log::Change::of(audited, Some(endpoint.consumer.as_str()), id);
    audit_log::note(&mut tx, store, note).await?;
    tx.commit()
        .await
        .map_err(Fault::doing("changing an endpoint's state"))?;
    Ok(Changed {
        endpoint,
        changed: true,
    })
}

/// Takes the lock that whoever changes a state takes first. The row is made where there is none.
async fn lock_health(conn: &mut PgConnection, id: EndpointId) -> Result<(), Fault> {
    sqlx::query!(
        "INSERT INTO hooklane.endpoint_health AS h (endpoint_id)
         SELECT id FROM hooklane.endpoints WHERE id = $1 AND state <> 'deleted'
         ON CONFLICT (endpoint_id) DO UPDATE SET endpoint_id = h.endpoint_id",
        id.uuid(),
    )
    .execute(conn)
    .await
    .map_err(Fault::doing("locking an endpoint's health"))?;
    Ok(())
}

/// Starts anew: neither one more failure nor a late record of an old one may stop it again at once.
/// The day's failures stay what they were.
async fn forget(conn: &mut PgConnection, id: EndpointId) -> Result<(), Fault> {
    sqlx::query!(
        "UPDATE hooklane.endpoint_health
            SET consecutive_failures = 0, failing_since = NULL, last_failure_at = NULL,
                forgotten_until = greatest(forgotten_until, clock_timestamp())
          WHERE endpoint_id = $1",
        id.uuid(),
    )
    .execute(conn)
    .await
    .map_err(Fault::doing("forgetting an endpoint's failures"))?;
    Ok(())
}
