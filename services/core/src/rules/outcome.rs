//! What came of one POST, and what it means for the delivery.
//!
//! Owns the classes and the closed set of error classes. Does not own what follows: the schedule
//! says when, the lane holds, the recorder disables. The result of an attempt is data, never an
//! `Err`: a receiver that fails is the ordinary case here.
//!
//! The outcome is decided by the head of the answer alone. Whatever the body does after a 2xx
//! head, the receiver has accepted the POST.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::retry_after;

mod error_class;
#[cfg(test)]
mod tests;

pub use error_class::{ErrorClass, UnknownErrorClass};

/// What came of one POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A valid head of an answer arrived.
    Answered {
        /// The status code as it was sent, also outside 100 to 599.
        status: u16,
        /// What `Retry-After` asks for, uncapped; only kept where the status gives it weight.
        retry_after: Option<Duration>,
    },
    /// None did.
    Failed(ErrorClass),
}

/// What an outcome means for the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// 2xx: sent.
    Success,
    /// 410: the delivery fails and the endpoint is disabled.
    Gone,
    /// 429: again by the schedule, and where a wait is asked for the whole lane holds for it.
    Throttled {
        /// The wait asked for, uncapped.
        retry_after: Option<Duration>,
    },
    /// 503: again by the schedule, not before the wait asked for; no other delivery waits.
    Unavailable {
        /// The wait asked for, uncapped.
        retry_after: Option<Duration>,
    },
    /// Any other answer and any failure of the receiver's: again by the schedule.
    Retry,
    /// We failed, not the receiver: neither counted as an attempt nor held against the endpoint.
    OwnFault,
}

impl Outcome {
    /// The outcome of an answer with this status and this value of `Retry-After`, if it had one.
    #[must_use]
    pub fn answered(status: u16, retry_after: Option<&[u8]>, now: DateTime<Utc>) -> Self {
        let retry_after = match status {
            429 | 503 => retry_after.and_then(|value| retry_after::parse(value, now)),
            _ => None,
        };
        Self::Answered {
            status,
            retry_after,
        }
    }

    /// What it means for the delivery.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Self::Answered {
                status,
                retry_after,
            } => match status {
                200..=299 => Class::Success,
                410 => Class::Gone,
                429 => Class::Throttled { retry_after },
                503 => Class::Unavailable { retry_after },
                _ => Class::Retry,
            },
            Self::Failed(error) if error.is_own_fault() => Class::OwnFault,
            Self::Failed(_) => Class::Retry,
        }
    }

    /// The status, where an answer came.
    #[must_use]
    pub fn status(self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(status),
            Self::Failed(_) => None,
        }
    }

    /// The error class, where none came.
    #[must_use]
    pub fn error(self) -> Option<ErrorClass> {
        match self {
            Self::Answered { .. } => None,
            Self::Failed(error) => Some(error),
        }
    }
}

impl Class {
    /// Whether the attempt is one of those a series has, and one the endpoint's health sees.
    #[must_use]
    pub fn is_counted(self) -> bool {
        self != Self::OwnFault
    }

    /// What the receiver asked for, uncapped, to be given to the schedule.
    #[must_use]
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after } | Self::Unavailable { retry_after } => retry_after,
            Self::Success | Self::Gone | Self::Retry | Self::OwnFault => None,
        }
    }
}
