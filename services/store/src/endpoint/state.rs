//! What a person does to an endpoint's state.
//!
//! ```text
//! active, failing --pause--> paused
//! paused, disabled --resume--> active, failures forgotten
//! any --delete--> deleted, for good; the row stays as a tombstone, its secrets go
//! ```
//!
//! A step to where the endpoint is already changes nothing and is no fault, so that a command
//! can be repeated after an answer was lost.

use hooklane_proto::id::EndpointId;
use hooklane_proto::route::State;

use super::{Endpoint, read};
use crate::manage::Error;
use crate::{Error as Fault, Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Pause,
    Resume,
    Delete,
}

/// An endpoint after a change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Whether this call changed it.
    pub changed: bool,
}

/// The state to go to; `None` where it is there already.
fn step(state: State, action: Action) -> Result<Option<State>, &'static str> {
    match (action, state) {
        (Action::Pause, State::Active | State::Failing) => Ok(Some(State::Paused)),
        (Action::Pause, State::Disabled) => {
            Err("is disabled and takes no deliveries already; resume it to have it active")
        }
        (Action::Resume, State::Paused | State::Disabled) => Ok(Some(State::Active)),
        (Action::Delete, State::Deleted)
        | (Action::Pause, State::Paused)
        | (Action::Resume, State::Active | State::Failing) => Ok(None),
        (Action::Delete, _) => Ok(Some(State::Deleted)),
        (Action::Pause | Action::Resume, State::Deleted) => Err("is deleted; add a new one"),
    }
}

/// Stops deliveries to an endpoint until somebody resumes it. What is open for it is
/// [`super::Settle`]'s.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Conflict`] where it is disabled or deleted, or a fault of the
/// database.
pub async fn pause(store: &Store, id: EndpointId) -> Result<Changed, Error> {
    change(store, id, Action::Pause).await
}

/// Makes an endpoint take deliveries again. What was skipped stays skipped.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Conflict`] where it is deleted, or a fault of the database.
pub async fn resume(store: &Store, id: EndpointId) -> Result<Changed, Error> {
    change(store, id, Action::Resume).await
}

/// Deletes an endpoint with its secrets. What is open for it is [`super::Settle`]'s.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn delete(store: &Store, id: EndpointId) -> Result<Changed, Error> {
    change(store, id, Action::Delete).await
}

async fn change(store: &Store, id: EndpointId, action: Action) -> Result<Changed, Error> {
    let mut tx = store
        .pool()
        .begin()
        .await
        .map_err(Fault::doing("changing an endpoint's state"))?;
    let old = read::lock(&mut tx, id).await?;
    let to = step(old.state, action)
        .map_err(|why| Error::Conflict(format!("the endpoint `{id}` {why}")))?;
    let Some(to) = to else {
        return Ok(Changed {
            endpoint: old,
            changed: false,
        });
    };
    // A resumed endpoint starts anew: one more failure must not disable it again at once.
    sqlx::query!(
        "UPDATE hooklane.endpoints
            SET state = $2::text::hooklane.endpoint_state,
                consecutive_failures = CASE WHEN $3 THEN 0 ELSE consecutive_failures END,
                failing_since = CASE WHEN $3 THEN NULL ELSE failing_since END,
                headers = CASE WHEN $4 THEN NULL ELSE headers END,
                version = nextval('hooklane.endpoint_version'), updated_at = clock_timestamp()
          WHERE id = $1",
        id.uuid(),
        to.as_str(),
        action == Action::Resume,
        action == Action::Delete,
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing("changing an endpoint's state"))?;
    if action == Action::Delete {
        sqlx::query!(
            "DELETE FROM hooklane.endpoint_secrets WHERE endpoint_id = $1",
            id.uuid(),
        )
        .execute(&mut *tx)
        .await
        .map_err(Fault::doing("deleting an endpoint's secrets"))?;
    }
    let endpoint = read::lock(&mut tx, id).await?;
    tx.commit()
        .await
        .map_err(Fault::doing("changing an endpoint's state"))?;
    Ok(Changed {
        endpoint,
        changed: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 5] = [
        State::Active,
        State::Failing,
        State::Paused,
        State::Disabled,
        State::Deleted,
    ];

    #[test]
    fn resume_works_from_paused_and_disabled_alone() {
        let resumed: Vec<_> = STATES.map(|state| step(state, Action::Resume)).into();
        assert_eq!(
            resumed[..4],
            [
                Ok(None),
                Ok(None),
                Ok(Some(State::Active)),
                Ok(Some(State::Active))
            ]
        );
        assert!(resumed[4].is_err());
    }

    #[test]
    fn pausing_does_not_hide_that_an_endpoint_is_disabled() {
        let paused: Vec<_> = STATES.map(|state| step(state, Action::Pause)).into();
        assert_eq!(
            paused[..3],
            [Ok(Some(State::Paused)), Ok(Some(State::Paused)), Ok(None)]
        );
        assert!(paused[3].is_err() && paused[4].is_err());
    }

    #[test]
    fn deleting_is_for_good_and_can_be_repeated() {
        for state in STATES {
            let expected = (state != State::Deleted).then_some(State::Deleted);
            assert_eq!(step(state, Action::Delete), Ok(expected));
        }
    }
}
