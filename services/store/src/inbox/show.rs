//! One event, whole.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;

use super::Headers;
use super::claim::{Body, bodies};
use super::list::{Row, digest, events};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

/// Items that are shown of a batch.
const MAX_ITEMS: i64 = 100;
/// Entries of the trail that are shown: the last ones.
const MAX_TRAIL: i64 = 1000;

/// An event with everything that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The event.
    pub row: Row,
    /// What was decided about it, in order; the last 1,000 entries.
    pub trail: Vec<Trail>,
    /// Bodies that came under its id and are others; ten at most.
    pub conflicts: Vec<Conflict>,
    /// The body's media type.
    pub content_type: Option<String>,
    /// The kept headers; an item has those of its request.
    pub headers: Headers,
    /// The exact bytes; `None` where they are past the retention.
    pub body: Option<Bytes>,
    /// The items that it was split into; the first hundred.
    pub items: Vec<InboxId>,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail {
    /// When.
    pub at: DateTime<Utc>,
    /// What was done: `applied`, `deferred`, `superseded`, `quarantined`, `split`, `published_again`,
    /// `processed`, `put_off`, `failed`, `re_armed`, `replayed` or `discarded`.
    pub action: String,
    /// The entity's state before.
    pub from: Option<String>,
    /// The entity's state afterwards.
    pub to: Option<String>,
    /// Where it stands among its entity's that took effect.
    pub sequence: Option<i64>,
    /// Why it needs a person.
    pub reason: Option<String>,
    /// What there is to say.
    pub detail: Option<String>,
    /// The fingerprint of the machine that decided.
    pub machine: Option<String>,
}

/// A body that came under the id of an event with another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// When it came first.
    pub at: DateTime<Utc>,
    /// Its SHA-256.
    pub sha256: [u8; 32],
    /// The kept headers.
    pub headers: Headers,
    /// The exact bytes.
    pub body: Bytes,
}

impl Store {
    /// One event with everything that is known of it.
    ///
    /// # Errors
    /// [`Error::NotFound`], or a fault of the database.
    pub async fn inbox_event(&self, id: InboxId) -> Result<Shown, Error> {
        let doing = "showing an inbox event";
        let mut conn = self.pool().acquire().await.map_err(Fault::doing(doing))?;
        let row = events!("WHERE id = $1", id.uuid())
            .fetch_optional(&mut *conn)
            .await
            .map_err(Fault::doing(doing))?
            .ok_or_else(|| Error::not_found(Kind::InboxEvent, id))?
            .row()?;
        let trail = sqlx::query_as!(
            Trail,
            r#"SELECT at AS "at!", action AS "action!", from_state AS "from", to_state AS "to",
                      sequence, reason, detail, machine
                 FROM (SELECT * FROM hooklane.inbox_trail WHERE event_id = $1
                        ORDER BY id DESC LIMIT $2) AS last
                ORDER BY id"#,
            id.uuid(),
            MAX_TRAIL,
        )
        .fetch_all(&mut *conn)
        .await
        .map_err(Fault::doing(doing))?;
        let conflicts = sqlx::query!(
            "SELECT at, body_sha256, headers::text AS headers, body FROM hooklane.inbox_conflicts
              WHERE event_id = $1 ORDER BY at, body_sha256",
            id.uuid(),
        )
        .fetch_all(&mut *conn)
        .await
        .map_err(Fault::doing(doing))?;
        let conflicts: Result<Vec<Conflict>, Fault> = conflicts
            .into_iter()
            .map(|row| {
                Ok(Conflict {
                    at: row.at,
                    sha256: digest(&row.body_sha256)?,
                    headers: Headers::read(row.headers.as_deref())?,
                    body: row.body.into(),
                })
            })
            .collect();
        let items = sqlx::query_scalar!(
            "SELECT id FROM hooklane.webhook_inbox WHERE parent = $1 ORDER BY id LIMIT $2",
            id.uuid(),
            MAX_ITEMS,
        )
        .fetch_all(&mut *conn)
        .await
        .map_err(Fault::doing(doing))?;
        let place = (row.received_at, id.uuid(), row.parent.map(InboxId::uuid));
        let body = bodies(&mut conn, [place].into_iter())
            .await?
            .remove(&id.uuid());
        let (body, headers, content_type) = match body {
            Some(Body {
                body,
                headers,
                content_type,
            }) => (Some(body), headers, content_type),
            None => (None, Headers::default(), None),
        };
        Ok(Shown {
            row,
            trail,
            conflicts: conflicts?,
            content_type,
            headers,
            body,
            items: items.into_iter().map(InboxId::from_uuid).collect(),
        })
    }
}
