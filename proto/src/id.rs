//! Identifiers: a prefix that says what is identified, then a UUID.
//!
//! The text form is `<prefix>_<hyphenated UUID>`, so that an outbox row's id is found again by
//! searching for it. Parsing takes the prefixed and the bare form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text that is not an identifier of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind} id: expected `{prefix}_` and a UUID")]
pub struct InvalidId {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// The text form's prefix, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// A new id, ordered by time (UUIDv7).
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            /// The id with these bits, whatever their UUID version.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID inside.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// A fixed, readable id for tests.
            #[must_use]
            pub const fn for_test(n: u64) -> Self {
                Self(Uuid::from_u64_pair(0x0000_0000_0000_7000, 0x8000_0000_0000_0000 | n))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.as_hyphenated())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let bare = text.strip_prefix(concat!($prefix, "_")).unwrap_or(text);
                Uuid::try_parse(bare).map(Self).map_err(|_| InvalidId {
                    text: text.chars().take(80).collect(),
                    kind: $kind,
                    prefix: $prefix,
                })
            }
        }
    };
}

id!(
    /// An accepted event: the outbox row's id, or a new UUIDv7. It is the `webhook-id` of every
    /// attempt, for ever.
    MessageId, "msg", "a message"
);
id!(
    /// A customer's endpoint.
    EndpointId, "ep", "an endpoint"
);
id!(
    /// One POST.
    AttemptId, "att", "an attempt"
);
id!(
    /// Work that is done in the background.
    TaskId, "task", "a task"
);
id!(
    /// A key for the HTTP API.
    ApiKeyId, "key", "an API key"
);
id!(
    /// An entry of the audit log.
    AuditId, "aud", "an audit entry"
);
id!(
    /// A partner's event, as the inbox received it.
    InboxId, "inb", "an inbox event"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let id = MessageId::generate();
        assert_eq!(id.to_string().parse::<MessageId>(), Ok(id));
        assert_eq!(id.uuid().to_string().parse::<MessageId>(), Ok(id));
    }

    #[test]
    fn another_kinds_prefix_is_refused() {
        let text = EndpointId::for_test(7).to_string();
        let error = text.parse::<MessageId>().unwrap_err();
        assert!(error.to_string().contains("not a message id"), "{error}");
    }
}
