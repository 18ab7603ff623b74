//! What the management of consumers, event types, endpoints and deliveries has in common: its
//! refusals, and its pages.
//!
//! A refusal tells the person who asked what to do instead, and has an [`ErrorCode`]; a fault of
//! the database passes through as it is.

use hooklane_core::error::ErrorCode;
use hooklane_core::rules::{address, headers, subscription};
use hooklane_core::secrets;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing has this id.
    #[error("there is no {kind} `{id}`; {hint}: hooklane {command} list",
        kind = .kind.noun(), hint = .kind.listed(), command = .kind.command())]
    NotFound {
        /// What was looked for.
        kind: Kind,
        /// The id that was given.
        id: String,
    },
    /// The id is taken.
    #[error("the {kind} `{id}` exists already", kind = .kind.noun())]
    Exists {
        /// What it is.
        kind: Kind,
        /// Its id.
        id: String,
    },
    /// It was changed since whoever changes it looked at it.
    #[error("the {kind} `{id}` was changed meanwhile, and is at version {current} now; look at it \
             again and repeat the change", kind = .kind.noun())]
    Stale {
        /// What it is.
        kind: Kind,
        /// Its id.
        id: String,
        /// Its version by now.
        current: i64,
    },
    /// Its state does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// A value is out of its range.
    #[error("{0}")]
    Invalid(String),
    /// A limit is reached.
    #[error("{0}")]
    Limit(String),
    /// The endpoint's address is refused.
    #[error(transparent)]
    Address(#[from] address::Refusal),
    /// The event type filters can't be read.
    #[error(transparent)]
    Filter(#[from] subscription::Invalid),
    /// The custom headers can't be used.
    #[error(transparent)]
    Headers(#[from] headers::Invalid),
    /// Filters name event types that don't exist.
    #[error(
        "no such event type: {}; add it first with: hooklane event-type add NAME",
        .0.join(", ")
    )]
    UnknownEventTypes(Vec<String>),
    /// A stored secret does not open.
    #[error(transparent)]
    Secrets(#[from] secrets::Error),
    /// The database.
    #[error(transparent)]
    Store(#[from] crate::Error),
}

/// What is managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An adopter's customer.
    Consumer,
    /// An entry of the catalogue of event types.
    EventType,
    /// A customer's endpoint.
    Endpoint,
    /// An accepted event.
    Message,
    /// A message for one endpoint.
    Delivery,
    /// One POST.
    Attempt,
    /// Work in the background.
    Task,
    /// A key for the HTTP API.
    ApiKey,
    /// A partner's event.
    InboxEvent,
}

impl Kind {
    /// What it is called.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::EventType => "event type",
            Self::Message => "message",
            Self::Attempt => "attempt",
            Self::ApiKey => "API key",
            Self::InboxEvent => "inbox event",
            other => other.command(),
        }
    }

    const fn command(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::EventType => "event-type",
            Self::Endpoint => "endpoint",
            // Messages and attempts are not listed, deliveries are.
            Self::Message | Self::Delivery | Self::Attempt => "delivery",
            Self::Task => "task",
            Self::ApiKey => "api-key",
            Self::InboxEvent => "inbox",
        }
    }

    const fn listed(self) -> &'static str {
        match self {
            Self::Message | Self::Attempt => "list messages' deliveries with",
            _ => "list them with",
        }
    }
}

impl Error {
    /// The kind of fault.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } | Self::UnknownEventTypes(_) => ErrorCode::NotFound,
            Self::Exists { .. } | Self::Conflict(_) => ErrorCode::Conflict,
            Self::Stale { .. } => ErrorCode::PreconditionFailed,
            Self::Invalid(_) | Self::Filter(_) | Self::Headers(_) => ErrorCode::InvalidData,
            Self::Limit(_) => ErrorCode::LimitExceeded,
            Self::Address(_) => ErrorCode::ForbiddenAddress,
            Self::Secrets(secrets::Error::UnknownKey { .. } | secrets::Error::WrongKey { .. }) => {
                ErrorCode::WrongMasterKey
            }
            Self::Secrets(_) => ErrorCode::Internal,
            Self::Store(error) => error.code(),
        }
    }

    /// Refuses a change of what is at another version than its author expects.
    pub(crate) fn unless_current(
        kind: Kind,
        id: impl ToString,
        current: i64,
        expected: Option<i64>,
    ) -> Result<(), Self> {
        match expected {
            Some(expected) if expected != current => Err(Self::Stale {
                kind,
                id: id.to_string(),
                current,
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn not_found(kind: Kind, id: impl ToString) -> Self {
        Self::NotFound {
            kind,
            id: id.to_string(),
        }
    }
}

impl crate::Error {
    /// The kind of fault.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        // A table, column, function, type or schema that is not there.
        let outdated = ["42P01", "42703", "42883", "42704", "3F000"];
        match self {
            // A table that does not fit its source is a fault of the source.
            Self::NoUrl | Self::Url | Self::Outbox { .. } => ErrorCode::Config,
            Self::Connect(_) | Self::OutboxConnect { .. } => ErrorCode::PostgresUnavailable,
            Self::Migrate(_) => ErrorCode::SchemaOutdated,
            _ if self.is_transient() => ErrorCode::PostgresUnavailable,
            _ => match self.sqlstate() {
                Some(state) if outdated.contains(&state.as_ref()) => ErrorCode::SchemaOutdated,
                _ => ErrorCode::Internal,
            },
        }
    }
}

/// One page of a listing, and where the next one starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, K> {
    /// The entries.
    pub items: Vec<T>,
    /// The key after which the next page starts; `None` where this is the last.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// Makes a page of what was fetched with one entry more than asked for.
    pub(crate) fn cut(mut items: Vec<T>, limit: u32, key: impl Fn(&T) -> K) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(key);
        Self { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_next_only_where_there_is_one() {
        let full = Page::cut(vec![1, 2, 3], 2, |n| *n);
        assert_eq!((full.items, full.next), (vec![1, 2], Some(2)));
        let last = Page::cut(vec![1, 2], 2, |n| *n);
        assert_eq!((last.items, last.next), (vec![1, 2], None));
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_lists_it() {
        let error = Error::not_found(Kind::EventType, "a.b");
        assert_eq!(
            error.to_string(),
            "there is no event type `a.b`; list them with: hooklane event-type list"
        );
        let error = Error::not_found(Kind::Message, "x");
        assert_eq!(
            error.to_string(),
            "there is no message `x`; list messages' deliveries with: hooklane delivery list"
        );
        assert_eq!(error.code().exit_code(), 65);
    }
}
