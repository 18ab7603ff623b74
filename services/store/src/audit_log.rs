//! Who changed what by hand.
//!
//! Owns `hooklane.audit_log`. A [`Store`] that acts in somebody's name ([`Store::acting`]) writes an
//! entry in the transaction of each change that is made through it, so that there is no change
//! without its entry and no entry of what was not done. One that acts in nobody's name, such as a
//! service's, writes none. A change that changes nothing, such as pausing what is paused, has no
//! entry.
//!
//! An entry says which settings were changed, never what to: values may be secrets.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use hooklane_proto::id::{ApiKeyId, AuditId};
use hooklane_proto::token::ConsumerId;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::manage::{Error, Page};
use crate::{Error as Fault, Store};

/// Longest request id that is kept, in characters.
const MAX_REQUEST_ID: usize = 200;

/// Who changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// Somebody at the command line.
    Cli,
    /// Whoever has an API key.
    Key {
        /// The key.
        id: ApiKeyId,
        /// Its name at that time.
        name: String,
    },
}

impl Actor {
    /// As the ledger has it: `cli`, or the key's id.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Self::Cli => Self::CLI.to_owned(),
            Self::Key { id, .. } => id.to_string(),
        }
    }

    /// For people.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Cli => Self::CLI,
            Self::Key { name, .. } => name,
        }
    }

    /// What an actor is called in the ledger, from how a person names one: `cli`, or a key's id.
    #[must_use]
    pub fn named(text: &str) -> Option<String> {
        let key = text.parse::<ApiKeyId>().ok().map(|id| id.to_string());
        key.or_else(|| (text == Self::CLI).then(|| text.to_owned()))
    }

    const CLI: &str = "cli";

    fn read(id: &str, name: String) -> Result<Self, Fault> {
        if id == Self::CLI {
            return Ok(Self::Cli);
        }
        Ok(Self::Key {
            id: id
                .parse()
                .map_err(Fault::unreadable("reading an audit entry"))?,
            name,
        })
    }
}

/// In whose name something is done, and at which request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// Who.
    pub actor: Actor,
    /// The request that asks for it; kept without control characters, 200 characters of it.
    pub request_id: Option<String>,
}

impl By {
    /// Somebody at the command line.
    #[must_use]
    pub fn cli() -> Self {
        Self {
            actor: Actor::Cli,
            request_id: None,
        }
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// What was done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Action {
            $($(#[$doc])* $variant),+
        }

        impl Action {
            /// Every action.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in the ledger and in output.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

actions! {
    /// A consumer was added.
    ConsumerCreate = "consumer.create",
    /// A consumer's settings were changed.
    ConsumerUpdate = "consumer.update",
    /// A consumer was deleted.
    ConsumerDelete = "consumer.delete",
    /// An event type was added.
    EventTypeCreate = "event_type.create",
    /// An event type was changed or deprecated.
    EventTypeUpdate = "event_type.update",
    /// An endpoint was added.
    EndpointCreate = "endpoint.create",
    /// An endpoint's settings were changed.
    EndpointUpdate = "endpoint.update",
    /// An endpoint was paused.
    EndpointPause = "endpoint.pause",
    /// An endpoint was resumed.
    EndpointResume = "endpoint.resume",
    /// An endpoint was deleted.
    EndpointDelete = "endpoint.delete",
    /// An endpoint was given a new signing secret.
    EndpointRotateSecret = "endpoint.rotate_secret",
    /// Somebody was shown an endpoint's signing secrets.
    EndpointRevealSecret = "endpoint.reveal_secret",
    /// Open deliveries of a message were cancelled.
    DeliveryCancel = "delivery.cancel",
    /// Something is to be delivered again.
    TaskCreate = "task.create",
    /// A task was cancelled.
    TaskCancel = "task.cancel",
    /// Dead letters were replayed.
    DeadLetterReplay = "dead_letter.replay",
    /// Dead letters were discarded.
    DeadLetterDiscard = "dead_letter.discard",
    /// Events set aside are to be tried again.
    OutboxRequeue = "outbox.requeue",
    /// An API key was made.
    ApiKeyCreate = "api_key.create",
    /// An API key was revoked.
    ApiKeyRevoke = "api_key.revoke",
    /// Inbox events were taken out of quarantine, to be tried again.
    InboxReplay = "inbox.replay",
    /// Inbox events in quarantine were given up.
    InboxDiscard = "inbox.discard",
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No action has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no action")]
pub struct InvalidAction(String);

impl FromStr for Action {
    type Err = InvalidAction;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|action| action.as_str() == name)
            .ok_or_else(|| InvalidAction(name.chars().take(80).collect()))
    }
}

/// A change that was made.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    /// What was done.
    pub action: Action,
    /// Whom it is about; `None` is nobody in particular.
    pub consumer: Option<&'a str>,
    /// The id of what was changed.
    pub subject: String,
    /// Names of settings, counts, times: no secret, no header's value, no payload.
    pub detail: Value,
}

impl<'a> Change<'a> {
    /// A change of what has the id `subject`, without more to say of it.
    #[must_use]
    pub fn of(action: Action, consumer: Option<&'a str>, subject: impl ToString) -> Self {
        Self {
            action,
            consumer,
            subject: subject.to_string(),
            detail: Value::Object(serde_json::Map::new()),
        }
    }

    /// The same with what more there is to say: an object.
    #[must_use]
    pub fn with(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

/// The names of those that are changed.
pub(crate) fn named<const N: usize>(settings: [(&'static str, bool); N]) -> Vec<&'static str> {
    let changed = settings.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(name, _)| name).collect()
}

/// Writes an entry in the transaction of the change, where the store acts in somebody's name.
pub(crate) async fn note(
    conn: &mut PgConnection,
    store: &Store,
    change: Change<'_>,
) -> Result<(), Fault> {
    let Some(By { actor, request_id }) = store.by() else {
        return Ok(());
    };
    let Change {
        action,
        consumer,
        subject,
        detail,
    } = change;
    let request_id: Option<String> = request_id.as_ref().map(|id| {
        let kept = id.chars().filter(|c| !c.is_control());
        kept.take(MAX_REQUEST_ID).collect()
    });
    sqlx::query!(
        "INSERT INTO hooklane.audit_log
             (id, actor, actor_name, request_id, action, consumer_id, subject, detail)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        AuditId::generate().uuid(),
        actor.id(),
        actor.name(),
        request_id,
        action.as_str(),
        consumer,
        subject,
        detail,
    )
    .execute(conn)
    .await
    .map_err(Fault::doing("writing an audit entry"))?;
    Ok(())
}

/// Writes an entry of something that no function of this crate does, where the store acts in
/// somebody's name.
///
/// # Errors
/// A fault of the database.
pub async fn write(store: &Store, change: Change<'_>) -> Result<(), Fault> {
    let mut conn = store
        .pool()
        .acquire()
        .await
        .map_err(Fault::doing("writing an audit entry"))?;
    note(&mut conn, store, change).await
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: AuditId,
    /// When the change was made.
    pub at: DateTime<Utc>,
    /// Who made it.
    pub actor: Actor,
    /// The request that asked for it.
    pub request_id: Option<String>,
    /// What was done, as [`Action::as_str`].
    pub action: String,
    /// Whom it is about.
    pub consumer: Option<ConsumerId>,
    /// The id of what was changed.
    pub subject: String,
    /// Names of settings, counts, times.
    pub detail: Value,
}

struct Row {
    id: Uuid,
    at: DateTime<Utc>,
    actor: String,
    actor_name: String,
    request_id: Option<String>,
    action: String,
    consumer_id: Option<String>,
    subject: String,
    detail: Value,
}

impl Row {
    fn entry(self) -> Result<Entry, Fault> {
        let Self {
            id,
            at,
            actor,
            actor_name,
            request_id,
            action,
            consumer_id,
            subject,
            detail,
        } = self;
        Ok(Entry {
            id: AuditId::from_uuid(id),
            at,
            actor: Actor::read(&actor, actor_name)?,
            request_id,
            action,
            consumer: consumer_id
                .map(|id| ConsumerId::new(&id))
                .transpose()
                .map_err(Fault::unreadable("reading an audit entry"))?,
            subject,
            detail,
        })
    }
}

/// Which entries to list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Those about one consumer.
    pub consumer: Option<ConsumerId>,
    /// Those of one actor: `cli`, or a key's id.
    pub actor: Option<String>,
    /// Those of one kind of change.
    pub action: Option<Action>,
    /// Those of this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Those before this time.
    pub until: Option<DateTime<Utc>>,
    /// Those behind this one, that is, before it in time.
    pub after: Option<Place>,
}

/// Where an entry stands in the log: its time, and its id among those of the same time.
pub type Place = (DateTime<Utc>, AuditId);

/// Entries that the first condition chooses, the last first.
macro_rules! entries {
    ($which:literal, $listing:ident, $consumer:expr, $limit:ident) => {
        sqlx::query_as!(
            Row,
            "SELECT id, at, actor, actor_name, request_id, action, consumer_id, subject, detail
               FROM hooklane.audit_log WHERE "
                + $which
                + " AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR action = $3)
                AND at >= coalesce($4, '-infinity'::timestamptz)
                AND at < coalesce($5, 'infinity'::timestamptz)
                AND at <= coalesce($6, 'infinity'::timestamptz)
                AND ($6::timestamptz IS NULL OR (at, id) < ($6, $7))
              ORDER BY at DESC, id DESC LIMIT $8",
            $consumer,
            $listing.actor.as_deref(),
            $listing.action.map(Action::as_str),
            $listing.since,
            $listing.until,
            $listing.after.map(|(at, _)| at),
            $listing.after.map(|(_, id)| id.uuid()),
            i64::from($limit) + 1,
        )
    };
}

/// Entries, the last first.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    listing: &Listing,
    limit: u32,
) -> Result<Page<Entry, Place>, Error> {
    // Two statements: each finds its index whatever the planner makes of the other conditions.
    let rows = match &listing.consumer {
        Some(consumer) => {
            entries!("consumer_id = $1", listing, consumer.as_str(), limit)
                .fetch_all(store.pool())
                .await
        }
        None => {
            entries!("$1::text IS NULL", listing, None::<&str>, limit)
                .fetch_all(store.pool())
                .await
        }
    };
    let rows = rows.map_err(Fault::doing("listing audit entries"))?;
    let entries: Result<Vec<Entry>, Fault> = rows.into_iter().map(Row::entry).collect();
    Ok(Page::cut(entries?, limit, |entry| (entry.at, entry.id)))
}

impl Store {
    /// Deletes audit entries from before `before`, at most `limit`; answers how many, fewer than
    /// `limit` once there are no more.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn forget_audit_log(&self, before: DateTime<Utc>, limit: u32) -> Result<u64, Fault> {
        sqlx::query!(
            "DELETE FROM hooklane.audit_log a
              USING (SELECT id FROM hooklane.audit_log WHERE at < $1
                      ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED) old
              WHERE a.id = old.id",
            before,
            i64::from(limit)
        )
        .execute(self.pool())
        .await
        .map(|done| done.rows_affected())
        .map_err(Fault::doing("deleting old audit entries"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_read_back_by_its_name() {
        for action in Action::ALL {
            assert_eq!(action.as_str().parse(), Ok(*action));
        }
        assert!("endpoint.borrow".parse::<Action>().is_err());
    }

    #[test]
    fn an_actor_is_read_back() {
        let key = Actor::Key {
            id: ApiKeyId::for_test(1),
            name: "billing".to_owned(),
        };
        for actor in [Actor::Cli, key] {
            let read = Actor::read(&actor.id(), actor.name().to_owned()).unwrap();
            assert_eq!(read, actor);
        }
        assert!(Actor::read("somebody", String::new()).is_err());
    }
}
