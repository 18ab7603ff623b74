//! Text that becomes part of a subject: consumer ids, event types and partners' names.
//!
//! Checked once, where it enters; whoever holds one of these types may put it into a subject.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest consumer id, in bytes.
pub const CONSUMER_MAX: usize = 64;
/// Longest event type, in bytes (the outbox column's width).
pub const EVENT_TYPE_MAX: usize = 100;
/// Longest name of an inbox's partner, in bytes (the inbox column's width).
pub const PARTNER_MAX: usize = 50;

/// Text that can't become a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Not a consumer id.
    #[error("`{0}` is not a consumer id: 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`")]
    Consumer(String),
    /// Not an event type.
    #[error(
        "`{0}` is not an event type: up to 100 characters, dot-separated words of A-Z, a-z, 0-9 and `_`"
    )]
    EventType(String),
    /// Not a partner's name.
    #[error(
        "`{0}` is not a partner's name: 1 to 50 characters of a-z, 0-9, `_` and `-`, a letter or digit first"
    )]
    Partner(String),
}

fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

fn is_consumer(text: &str) -> bool {
    (1..=CONSUMER_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn is_event_type(text: &str) -> bool {
    text.len() <= EVENT_TYPE_MAX
        && text.split('.').all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
}

fn is_partner(text: &str) -> bool {
    let small = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= PARTNER_MAX
        && text.bytes().next().is_some_and(small)
        && text.bytes().all(|b| small(b) || b == b'_' || b == b'-')
}

macro_rules! token {
    ($(#[$doc:meta])* $name:ident, $check:ident, $error:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and takes the text.
            ///
            /// # Errors
            /// [`InvalidToken`] where a character or the length is not allowed.
            pub fn new(text: &str) -> Result<Self, InvalidToken> {
                if $check(text) {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(InvalidToken::$error(shown(text)))
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidToken;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidToken;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(token: $name) -> Self {
                token.0.as_ref().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

token!(
    /// The adopter's own id of one of its customers.
    ConsumerId, is_consumer, Consumer
);
token!(
    /// What happened, such as `invoice.paid`.
    EventType, is_event_type, EventType
);
token!(
    /// A partner whose webhooks the inbox takes: the name of its source, part of the source's address
    /// and of subjects.
    Partner, is_partner, Partner
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_ids_are_one_subject_token() {
        for good in ["a", "acme", "Acme_9-x", &"x".repeat(64)] {
            assert!(ConsumerId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a.b", "a b", "*", ">", "é", "a\0", &"x".repeat(65)] {
            assert!(ConsumerId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn partners_names_are_lower_case() {
        for good in ["a", "stripe", "pay-pal_2", "0x", &"x".repeat(50)] {
            assert!(Partner::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "A",
            "-a",
            "_a",
            "a.b",
            "../a",
            "a/b",
            "é",
            &"x".repeat(51),
        ] {
            assert!(Partner::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn event_types_are_dotted_words() {
        for good in ["paid", "invoice.paid", "a.b_c.D9", &"x".repeat(100)] {
            assert!(EventType::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a-b",
            "a b",
            "a.*",
            ">",
            &"x".repeat(101),
        ] {
            assert!(EventType::new(bad).is_err(), "{bad}");
        }
    }
}
