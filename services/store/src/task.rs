//! Recovery in the background: delivering again what has ended, however much that is.
//!
//! A task is a row that says what is to be delivered again and how far it has come. Schedulers take
//! it step by step ([`crate::Store::step_task`]): a step opens new series for a bounded number of
//! deliveries and moves the row on, in one transaction. So a task goes on after any crash where it
//! was, and drives no delivery twice. A step publishes nothing: what it makes due waits in the
//! ledger, and goes out at the endpoint's own rate.
//!
//! A task acts on what had ended when it was made. What was driven again since, by this task, by
//! another one or by a replay, is not found: so of two tasks about the same, made one after the
//! other, the second drives nothing that the first one drove meanwhile. Cancelled, it stops where it
//! is; what is due by then stays due.
//!
//! Owns the rows and the statements. Does not own what a new series is or when one is refused (that
//! is a replay's, in [`crate::dead_letter`]), nor when the steps are taken: that is the scheduler's.

mod count;
mod create;
mod page;
mod read;
mod step;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use hooklane_proto::id::{EndpointId, MessageId, TaskId};
use hooklane_proto::token::ConsumerId;

use crate::dead_letter::Refusal;

pub use count::{Counted, count};
pub use create::create;
pub use read::{Listing, cancel, list, show};
pub use step::Stepped;

/// What is to be delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// One delivery, the last accepted where a message's id has returned: in a new series where it
    /// has ended, at once where it waits for its next attempt.
    Retry {
        /// The message.
        message: MessageId,
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// A message, to every endpoint that it was for when it was accepted; what is open is left.
    Replay {
        /// The message.
        message: MessageId,
    },
    /// What an endpoint failed for good and nobody discarded.
    Recover {
        /// The endpoint.
        endpoint: EndpointId,
        /// When it failed.
        span: Span,
    },
    /// What an endpoint missed while it was paused or disabled.
    ReplayMissing {
        /// The endpoint.
        endpoint: EndpointId,
        /// When it was skipped.
        span: Span,
    },
}

/// A stretch of time, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its begin.
    pub since: DateTime<Utc>,
    /// Its end; `None`, or a time to come, means now.
    pub until: Option<DateTime<Utc>>,
}

impl Work {
    /// The name of its kind in the ledger and in every output.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Replay { .. } => "replay",
            Self::Recover { .. } => "recover",
            Self::ReplayMissing { .. } => "replay_missing",
        }
    }

    /// The message that it is about.
    #[must_use]
    pub const fn message(&self) -> Option<MessageId> {
        match self {
            Self::Retry { message, .. } | Self::Replay { message } => Some(*message),
            Self::Recover { .. } | Self::ReplayMissing { .. } => None,
        }
    }

    /// The endpoint that it is about.
    #[must_use]
    pub const fn endpoint(&self) -> Option<EndpointId> {
        match self {
            Self::Retry { endpoint, .. }
            | Self::Recover { endpoint, .. }
            | Self::ReplayMissing { endpoint, .. } => Some(*endpoint),
            Self::Replay { .. } => None,
        }
    }

    /// The time that it is about.
    #[must_use]
    pub const fn span(&self) -> Option<Span> {
        match self {
            Self::Recover { span, .. } | Self::ReplayMissing { span, .. } => Some(*span),
            Self::Retry { .. } | Self::Replay { .. } => None,
        }
    }
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
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

impl Status {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Running,
        Self::Done,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Its name in the ledger and in every output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled | Self::Failed)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no status of a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a task's status; give waiting, running, done, cancelled or failed")]
pub struct InvalidStatus(String);

impl FromStr for Status {
    type Err = InvalidStatus;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == name)
            .ok_or_else(|| InvalidStatus(name.to_owned()))
    }
}

/// How many deliveries were refused, by reason.
pub type Refused = BTreeMap<Refusal, u64>;

/// What is said where everything is refused: each reason once. The endpoint is the one that all of it
/// is about, if it is about one.
#[must_use]
pub fn reasons(refused: &Refused, endpoint: Option<EndpointId>) -> String {
    let told: Vec<String> = refused.keys().map(|why| why.told(endpoint)).collect();
    format!("nothing is delivered again: {}", told.join("; or "))
}

/// A task and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// What it does. The end of a span is never after the task was made.
    pub work: Work,
    /// Whose deliveries they are.
    pub consumer: ConsumerId,
    /// Where it stands.
    pub status: Status,
    /// How many deliveries there were to look at when it began. `None` before that, and where
    /// counting took too long.
    pub total: Option<u64>,
    /// How many it has looked at.
    pub found: u64,
    /// How many of them it made due.
    pub due: u64,
    /// The others.
    pub refused: Refused,
    /// What went wrong the last time, until a step goes well again.
    pub error: Option<String>,
    /// When somebody made it.
    pub created_at: DateTime<Utc>,
    /// When a scheduler took it.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
}

impl Task {
    /// How many of the deliveries that there were when it began it did not come upon, once it is
    /// done: something else drove them meanwhile. `None` before that, and where they were not counted.
    #[must_use]
    pub fn moved_on(&self) -> Option<u64> {
        match self.status {
            Status::Done => self.total.map(|total| total.saturating_sub(self.found)),
            Status::Waiting | Status::Running | Status::Cancelled | Status::Failed => None,
        }
    }

    /// Whether it is done and all that it was made for was refused.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        let moved_on = self.moved_on().unwrap_or(0);
        self.status == Status::Done && self.due == 0 && self.found > 0 && moved_on == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_read_back_by_its_name() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        assert!("paused".parse::<Status>().is_err());
    }
}
