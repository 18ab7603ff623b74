//! What a person does to an endpoint's state.

use hooklane_proto::route::State;

/// What a person does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Stops deliveries until somebody resumes them.
    Pause,
    /// Makes it take deliveries again, its failures forgotten.
    Resume,
    /// Removes it for good.
    Delete,
}

/// Why the state does not allow an action, to be read after the endpoint's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Pausing would hide why it takes no deliveries.
    #[error("is disabled and takes no deliveries already; resume it to have it active")]
    Disabled,
    /// Nothing leads out of it.
    #[error("is deleted; add a new one")]
    Deleted,
}

/// The state to go to; `None` where it is there already, so that an action can be repeated after
/// its answer was lost.
///
/// # Errors
/// Where the state does not allow it.
pub const fn act(state: State, action: Action) -> Result<Option<State>, Refused> {
    match (action, state) {
        (Action::Pause, State::Active | State::Failing) => Ok(Some(State::Paused)),
        (Action::Pause, State::Disabled) => Err(Refused::Disabled),
        (Action::Resume, State::Paused | State::Disabled) => Ok(Some(State::Active)),
        (Action::Delete, State::Deleted)
        | (Action::Pause, State::Paused)
        | (Action::Resume, State::Active | State::Failing) => Ok(None),
        (Action::Delete, _) => Ok(Some(State::Deleted)),
        (Action::Pause | Action::Resume, State::Deleted) => Err(Refused::Deleted),
    }
}
