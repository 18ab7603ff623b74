//! The inbox: partners' events, kept once, decided in a legal order, and handed off.
//!
//! Owns `hooklane.webhook_inbox` and the tables around it: the bodies, the entities that events move,
//! the trail of decisions, conflicts, rejects, and the inbox's own outbox. Does not own how a request
//! is verified or how a body is read: both come in, as [`Incoming`] and through a [`Reader`]. Nor the
//! rule by which events apply: that is [`hooklane_core::rules::transition`].
//!
//! An event's way:
//!
//! 1. [`crate::Store::inbox_receive`] keeps it, once, under the partner's own id. The row is the proof of
//!    having seen it and the event itself, so that nothing can be seen and lost.
//! 2. [`crate::Store::inbox_step`] reads it, locks its entity, and decides: it takes effect, waits for what
//!    comes before it, is superseded, or needs a person. The decision, the entity and the hand-off are
//!    one transaction.
//! 3. It is handed off: published on `INBOX` from a table that the decision writes to
//!    ([`crate::Store::inbox_publications`]), asked for by the service ([`crate::Store::inbox_take`]), or claimed by
//!    SQL functions in the adopter's own transaction. A failure comes again after 1, 5 and 15 minutes;
//!    the fourth ends in quarantine.
//!
//! Locks are taken in one order: events (skipping those that somebody is at), then entities by name.
//! Whoever moves an entity wakes what waits for it, and skips what is locked until it has committed: its
//! holder may wait for the entity, and then sees it moved; or it came too late for an event that somebody
//! else had just deferred, and lets go of it as it is.

mod align;
mod claim;
mod decide;
mod forget;
mod hand_off;
mod insert;
mod list;
mod person;
mod publish;
mod reader;
mod receive;
mod reject;
mod show;
mod step;
mod write;

use std::fmt;
use std::str::FromStr;

use hooklane_proto::token::Partner;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Error;

pub use hand_off::{Answer, HandOff, Settled, Settlement};
pub use list::{Counts, EntityRow, Filter, Place, Row};
pub use person::{Done, DryRun, Outcome};
pub use publish::{Failures, Publication};
pub use reader::{Claimed, Entity, Item, Reader, Reading};
pub use receive::{Incoming, Receipt, SameBody};
pub use reject::{Reject, Rejected};
pub use show::{Conflict, Shown, Trail};
pub use step::{StepLimits, Stepped};

/// Longest detail that is kept, in characters.
const MAX_DETAIL: usize = 500;
/// Longest event type and entity key that is kept, in bytes; keys beyond are hashed.
const MAX_NAME: usize = 255;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$of:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $variant),+ }

        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in the ledger and in output.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = InvalidWord;

            fn from_str(word: &str) -> Result<Self, InvalidWord> {
                let known = Self::ALL.iter().copied().find(|one| one.as_str() == word);
                known.ok_or_else(|| InvalidWord {
                    word: word.chars().take(80).collect(),
                    what: $what,
                    known: [$($word),+].join(", "),
                })
            }
        }
    };
}

/// A word that is none of a closed set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no {what}; give one of: {known}")]
pub struct InvalidWord {
    word: String,
    what: &'static str,
    known: String,
}

words! {
    /// What has become of an event.
    Status, "status" {
        /// It is to be decided, or to be handed off.
        Pending = "PENDING",
        /// It waits for what comes before it.
        Deferred = "DEFERRED",
        /// It took effect, or was split into its items.
        Processed = "PROCESSED",
        /// A person has to look at it.
        Quarantined = "QUARANTINED",
        /// Its entity had moved on: it had no effect.
        Superseded = "SUPERSEDED",
        /// Somebody took it out of quarantine for good.
        Discarded = "DISCARDED",
    }
}
words! {
    /// What is to be done with an event.
    Stage, "stage" {
        /// Whether it may take effect is to be decided.
        Decide = "decide",
        /// It took effect, and is to be handed off.
        HandOff = "hand_off",
    }
}
words! {
    /// Which way events are handed off.
    Mode, "mode" {
        /// Published on `INBOX`.
        Stream = "stream",
        /// The adopter's code is asked, and answers.
        Request = "request",
        /// The adopter claims them by SQL functions.
        Sql = "sql",
    }
}
words! {
    /// Why an event is in quarantine.
    Reason, "reason" {
        /// It can't be read.
        Unparseable = "unparseable",
        /// A key that matters is there twice.
        Ambiguous = "ambiguous",
        /// It can never be legal where its entity stands.
        ImpossibleTransition = "impossible_transition",
        /// What comes before it did not come in time.
        DeferralExpired = "deferral_expired",
        /// Too many events of its entity wait.
        TooManyDeferred = "too_many_deferred",
        /// The fourth hand-off failed, too.
        HandlerFailed = "handler_failed",
        /// Looking at it fails.
        Poison = "poison",
        /// It does not say which entity it is about.
        EntityMissing = "entity_missing",
    }
}

/// Header names, in lower case, and values, in order, repetitions included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(pub Vec<(String, String)>);

#[derive(Serialize, Deserialize)]
struct Pair(String, String);

impl Headers {
    /// As the ledger has them. A text can't hold NUL there.
    fn write(&self) -> String {
        let clean = |text: &String| text.replace('\0', "\u{fffd}");
        let pairs: Vec<Pair> = self
            .0
            .iter()
            .map(|(name, value)| Pair(clean(name), clean(value)))
            .collect();
        // Lists of strings always have a JSON form.
        serde_json::to_string(&pairs).unwrap_or_else(|_| "[]".to_owned())
    }

    fn read(text: Option<&str>) -> Result<Self, Error> {
        let Some(text) = text else {
            return Ok(Self::default());
        };
        let pairs: Vec<Pair> = serde_json::from_str(text)
            .map_err(Error::unreadable("reading an inbox event's headers"))?;
        Ok(Self(pairs.into_iter().map(|Pair(n, v)| (n, v)).collect()))
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn partner(name: &str) -> Result<Partner, Error> {
    Partner::new(name).map_err(Error::unreadable("reading an inbox event's partner"))
}

fn word<T: FromStr<Err = InvalidWord>>(word: &str) -> Result<T, Error> {
    word.parse()
        .map_err(Error::unreadable("reading an inbox event"))
}

/// A text for a person, as short as it is kept, without what the ledger can't hold.
fn detail(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '\0')
        .take(MAX_DETAIL)
        .collect()
}

/// An event type as it is kept: what is too long is cut.
fn event_type(text: &str) -> String {
    let mut kept: String = text.replace('\0', "\u{fffd}");
    let end = (0..=MAX_NAME.min(kept.len()))
        .rev()
        .find(|at| kept.is_char_boundary(*at));
    kept.truncate(end.unwrap_or_default());
    kept
}

/// An entity's key as it is kept: what is too long, or can't be kept, has its hash for a key.
fn entity_key(text: &str) -> String {
    if text.len() <= MAX_NAME && !text.contains('\0') {
        return text.to_owned();
    }
    let digest = sha256(text.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back_and_others_are_told_the_known_ones() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(*status));
        }
        let error = "stuck".parse::<Mode>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`stuck` is no mode; give one of: stream, request, sql"
        );
    }

    #[test]
    fn headers_read_back_in_order_with_repetitions() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = Headers(vec![pair("b", "1"), pair("a", "\"x\""), pair("b", "2")]);
        assert_eq!(Headers::read(Some(&headers.write())).unwrap(), headers);
        let nul = Headers(vec![pair("a", "x\0y")]);
        assert!(!nul.write().contains("\\u0000"));
        assert_eq!(Headers::read(None).unwrap(), Headers::default());
    }

    #[test]
    fn what_the_ledger_cannot_hold_is_cut_or_hashed() {
        assert_eq!(entity_key("a b.c"), "a b.c");
        for odd in ["x".repeat(256), "a\0b".to_owned()] {
            let key = entity_key(&odd);
            assert!(key.starts_with("sha256:") && key.len() == 71, "{key}");
        }
        assert_eq!(event_type("a\0"), "a\u{fffd}");
        let long = event_type(&"é".repeat(200));
        assert_eq!(long.len(), 254);
        assert_eq!(detail(&"x".repeat(900)).len(), MAX_DETAIL);
    }
}
