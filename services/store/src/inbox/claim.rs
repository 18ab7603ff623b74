//! What a step takes: events that are due, their bodies, and the entities that they may move.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_proto::token::Partner;
use sqlx::PgConnection;
use uuid::Uuid;

use super::reader::Reader;
use super::step::StepLimits;
use super::{Headers, Stage, Status, partner, word};
use crate::Error;

/// A due event, locked.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) id: Uuid,
    pub(super) partner: Partner,
    pub(super) partner_event_id: String,
    pub(super) received_at: DateTime<Utc>,
    pub(super) status: Status,
    pub(super) stage: Stage,
    pub(super) event_type: Option<String>,
    pub(super) entity: Option<(String, String)>,
    pub(super) order: Option<i64>,
    pub(super) sequence: Option<i64>,
    pub(super) parent: Option<Uuid>,
    pub(super) deadline_at: Option<DateTime<Utc>>,
    pub(super) deferrals: i32,
    pub(super) handed_out: i32,
    pub(super) faults: i16,
    pub(super) integrity: String,
    pub(super) key_label: Option<String>,
    pub(super) signature_verified: bool,
    pub(super) bytes: usize,
}

/// What came with a request.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) body: Bytes,
    pub(super) headers: Headers,
    pub(super) content_type: Option<String>,
}

/// An entity: partner, type, key. Its order is the order of locks.
pub(super) type EntityKey = (Partner, String, String);

/// Where an entity stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Standing {
    pub(super) state: Option<String>,
    pub(super) sequence: i64,
    pub(super) last_order: Option<i64>,
    pub(super) deferred: i32,
}

struct Row {
    id: Uuid,
    partner_name: String,
    partner_event_id: String,
    received_at: DateTime<Utc>,
    status: String,
    stage: String,
    event_type: Option<String>,
    entity_type: Option<String>,
    entity_key: Option<String>,
    order_value: Option<i64>,
    sequence: Option<i64>,
    parent: Option<Uuid>,
    deadline_at: Option<DateTime<Utc>>,
    deferrals: i32,
    handed_out: i32,
    faults: i16,
    integrity: String,
    key_label: Option<String>,
    signature_verified: bool,
    body_bytes: i32,
}

impl Row {
    fn taken(self) -> Result<Taken, Error> {
        let Self {
            id,
            partner_name,
            partner_event_id,
            received_at,
            status,
            stage,
            event_type,
            entity_type,
            entity_key,
            order_value,
            sequence,
            parent,
            deadline_at,
            deferrals,
            handed_out,
            faults,
            integrity,
            key_label,
            signature_verified,
            body_bytes,
        } = self;
        Ok(Taken {
            id,
            partner: partner(&partner_name)?,
            partner_event_id,
            received_at,
            status: word(&status)?,
            stage: word(&stage)?,
            event_type,
            entity: entity_type.zip(entity_key),
            order: order_value,
            sequence,
            parent,
            deadline_at,
            deferrals,
            handed_out,
            faults,
            integrity,
            key_label,
            signature_verified,
            bytes: usize::try_from(body_bytes).unwrap_or_default(),
        })
    }
}

/// What a step takes.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Events, locked.
    pub(super) taken: Vec<Taken>,
    /// Whether more of it may be due.
    pub(super) cut: bool,
    /// Partners with events that are due and that nobody here knows.
    pub(super) unknown: u32,
}

/// Locks what is due of the partners that `reader` knows, passing over what somebody else is at. Each of
/// them has the same share of a step: one with a million events does not keep the others waiting, and
/// those of a source that is configured elsewhere, or no more, are not even looked at.
pub(super) async fn due(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    limits: &StepLimits,
    reader: &impl Reader,
) -> Result<Due, Error> {
    let (mut partners, unknown) = waiting(conn, now, reader).await?;
    let events = limits.events.max(1) as usize;
    // Of more than there is room for, those that have waited for the longest.
    partners.truncate(events);
    let share = events / partners.len().max(1);
    // From the rows as they are locked, not as the statement saw them when it began.
    let rows = sqlx::query_as!(
        Row,
        r#"WITH due AS MATERIALIZED (
               SELECT w.* FROM unnest($2::text[]) AS p (name)
                CROSS JOIN LATERAL (
                      SELECT * FROM hooklane.webhook_inbox
                       WHERE partner_name = p.name AND status IN ('PENDING', 'DEFERRED')
                         AND stage = 'decide' AND next_at <= $1
                       ORDER BY next_at, id LIMIT $3 FOR UPDATE SKIP LOCKED) AS w
           ), again AS MATERIALIZED (
               SELECT * FROM hooklane.webhook_inbox
                WHERE status = 'PENDING' AND stage = 'hand_off' AND hand_off = 'stream'
                  AND next_at <= $1
                LIMIT $4 FOR UPDATE SKIP LOCKED
           ), both_of AS (
               SELECT * FROM due UNION ALL SELECT * FROM again
           )
           SELECT id AS "id!", partner_name AS "partner_name!",
                  partner_event_id AS "partner_event_id!", received_at AS "received_at!",
                  status AS "status!", stage AS "stage!", event_type, entity_type, entity_key,
                  order_value, sequence, parent, deadline_at, deferrals AS "deferrals!",
                  handed_out AS "handed_out!", faults AS "faults!", integrity AS "integrity!",
                  key_label, signature_verified AS "signature_verified!",
                  body_bytes AS "body_bytes!"
             FROM both_of
            ORDER BY next_at, id"#,
        now,
        &partners,
        number(share),
        number(events),
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("taking due inbox events"))?;
    let taken: Result<Vec<Taken>, Error> = rows.into_iter().map(Row::taken).collect();
    let mut taken = taken?;
    let mut shares: BTreeMap<(&str, Stage), usize> = BTreeMap::new();
    for one in &taken {
        *shares.entry((one.partner.as_str(), one.stage)).or_default() += 1;
    }
    let full = taken.len() >= events || shares.values().any(|count| *count >= share);
    let mut left = limits.bytes as usize;
    let fits = taken
        .iter()
        .take_while(|one| {
            let fits = one.bytes <= left || left == limits.bytes as usize;
            left = left.saturating_sub(one.bytes.max(1));
            fits
        })
        .count();
    let cut = full || fits < taken.len();
    taken.truncate(fits);
    Ok(Due {
        taken,
        cut,
        unknown,
    })
}

/// The partners that `reader` knows and that have something due, the longest due first; and how many
/// others there are.
async fn waiting(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    reader: &impl Reader,
) -> Result<(Vec<String>, u32), Error> {
    // From one partner to the next in the index, however many events each has.
    let names = sqlx::query_scalar!(
        r#"WITH RECURSIVE open (name) AS (
               (SELECT partner_name FROM hooklane.webhook_inbox
                 WHERE status IN ('PENDING', 'DEFERRED') AND stage = 'decide'
                 ORDER BY partner_name LIMIT 1)
                UNION ALL
               SELECT (SELECT w.partner_name FROM hooklane.webhook_inbox w
                        WHERE w.status IN ('PENDING', 'DEFERRED') AND w.stage = 'decide'
                          AND w.partner_name > open.name
                        ORDER BY w.partner_name LIMIT 1)
                 FROM open WHERE open.name IS NOT NULL
           )
           SELECT open.name AS "name!"
             FROM open
            CROSS JOIN LATERAL (
                  SELECT next_at FROM hooklane.webhook_inbox
                   WHERE partner_name = open.name AND status IN ('PENDING', 'DEFERRED')
                     AND stage = 'decide'
                   ORDER BY next_at, id LIMIT 1) AS first
            WHERE first.next_at <= $1
            ORDER BY first.next_at"#,
        now,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("looking for partners with due inbox events"))?;
    let found = names.len();
    let mut known = Vec::with_capacity(found);
    for name in names {
        if reader.mode(&partner(&name)?).is_some() {
            known.push(name);
        }
    }
    let unknown = u32::try_from(found - known.len()).unwrap_or(u32::MAX);
    Ok((known, unknown))
}

/// Locks one event, if it is due and nobody is at it.
pub(super) async fn due_one(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    id: Uuid,
) -> Result<Option<Taken>, Error> {
    sqlx::query_as!(
        Row,
        "SELECT id, partner_name, partner_event_id, received_at, status, stage, event_type,
                entity_type, entity_key, order_value, sequence, parent, deadline_at, deferrals,
                handed_out, faults, integrity, key_label, signature_verified, body_bytes
           FROM hooklane.webhook_inbox
          WHERE id = $1 AND next_at <= $2
            AND (stage = 'decide' AND status IN ('PENDING', 'DEFERRED')
                 OR stage = 'hand_off' AND status = 'PENDING' AND hand_off = 'stream')
            FOR UPDATE SKIP LOCKED",
        id,
        now,
    )
    .fetch_optional(conn)
    .await
    .map_err(Error::doing("taking a due inbox event"))?
    .map(Row::taken)
    .transpose()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Which of these bodies are there.
pub(super) async fn present(
    conn: &mut PgConnection,
    of: impl Iterator<Item = BodyPlace>,
) -> Result<HashSet<Uuid>, Error> {
    let (received, ids): (Vec<DateTime<Utc>>, Vec<Uuid>) = of.map(|(at, id, _)| (at, id)).unzip();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let found = sqlx::query_scalar!(
        r#"SELECT t.id AS "id!"
             FROM unnest($1::timestamptz[], $2::uuid[]) AS t (received_at, id)
            CROSS JOIN LATERAL (
                  SELECT FROM hooklane.inbox_bodies
                   WHERE received_at = t.received_at AND id = t.id OFFSET 0) AS b"#,
        &received,
        &ids,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("looking for inbox bodies"))?;
    Ok(found.into_iter().collect())
}

/// One event as it is, without locking it.
pub(super) async fn peek(conn: &mut PgConnection, id: Uuid) -> Result<Option<Taken>, Error> {
    sqlx::query_as!(
        Row,
        "SELECT id, partner_name, partner_event_id, received_at, status, stage, event_type,
                entity_type, entity_key, order_value, sequence, parent, deadline_at, deferrals,
                handed_out, faults, integrity, key_label, signature_verified, body_bytes
           FROM hooklane.webhook_inbox WHERE id = $1",
        id,
    )
    .fetch_optional(conn)
    .await
    .map_err(Error::doing("looking at an inbox event"))?
    .map(Row::taken)
    .transpose()
}

/// Where an event's body is: when it was received, its id, and its request where it is an item.
pub(super) type BodyPlace = (DateTime<Utc>, Uuid, Option<Uuid>);

impl Taken {
    pub(super) fn body_place(&self) -> BodyPlace {
        (self.received_at, self.id, self.parent)
    }
}

/// The bodies of events, as far as they are there; an item has the headers of its request.
pub(super) async fn bodies(
    conn: &mut PgConnection,
    of: impl Iterator<Item = BodyPlace>,
) -> Result<HashMap<Uuid, Body>, Error> {
    let (mut received, mut ids, mut parents) = (Vec::new(), Vec::new(), Vec::new());
    for (at, id, parent) in of {
        received.push(at);
        ids.push(id);
        parents.push(parent);
    }
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query!(
        r#"SELECT b.id, b.body, b.content_type, coalesce(b.headers, p.headers)::text AS headers
             FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[]) AS t (received_at, id, parent)
            CROSS JOIN LATERAL (
                  SELECT * FROM hooklane.inbox_bodies
                   WHERE received_at = t.received_at AND id = t.id OFFSET 0) AS b
             LEFT JOIN LATERAL (
                  SELECT headers FROM hooklane.inbox_bodies
                   WHERE received_at = t.received_at AND id = t.parent OFFSET 0) AS p ON true"#,
        &received,
        &ids,
        &parents as &[Option<Uuid>],
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("reading inbox bodies"))?;
    rows.into_iter()
        .map(|row| {
            let body = Body {
                body: row.body.into(),
                headers: Headers::read(row.headers.as_deref())?,
                content_type: row.content_type,
            };
            Ok((row.id, body))
        })
        .collect()
}

/// Makes entities that are not there yet, and locks all of them, in the order of `keys`: sorted, so that
/// nobody waits in a circle.
pub(super) async fn lock_entities(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    keys: &[EntityKey],
) -> Result<BTreeMap<EntityKey, Standing>, Error> {
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let columns = columns(keys);
    sqlx::query!(
        "INSERT INTO hooklane.inbox_entities (partner_name, entity_type, entity_key, changed_at)
         SELECT k.partner, k.type, k.key, $4
           FROM unnest($1::text[], $2::text[], $3::text[])
                WITH ORDINALITY AS k (partner, type, key, n)
          ORDER BY k.n
         ON CONFLICT (partner_name, entity_type, entity_key) DO NOTHING",
        &columns.0 as &[&str],
        &columns.1 as &[&str],
        &columns.2 as &[&str],
        now,
    )
    .execute(&mut *conn)
    .await
    .map_err(Error::doing("making inbox entities"))?;
    let rows = sqlx::query!(
        "SELECT e.partner_name, e.entity_type, e.entity_key, e.state, e.sequence, e.last_order,
                e.deferred
           FROM unnest($1::text[], $2::text[], $3::text[]) AS k (partner, type, key)
          CROSS JOIN LATERAL (
                SELECT * FROM hooklane.inbox_entities
                 WHERE partner_name = k.partner AND entity_type = k.type AND entity_key = k.key
                   FOR UPDATE) AS e",
        &columns.0 as &[&str],
        &columns.1 as &[&str],
        &columns.2 as &[&str],
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("locking inbox entities"))?;
    rows.into_iter()
        .map(|row| {
            let key = (partner(&row.partner_name)?, row.entity_type, row.entity_key);
            let standing = Standing {
                state: row.state,
                sequence: row.sequence,
                last_order: row.last_order,
                deferred: row.deferred,
            };
            Ok((key, standing))
        })
        .collect()
}

/// Where one entity stands, without locking it.
pub(super) async fn standing(
    conn: &mut PgConnection,
    key: &EntityKey,
) -> Result<Option<Standing>, Error> {
    sqlx::query_as!(
        Standing,
        "SELECT state, sequence, last_order, deferred FROM hooklane.inbox_entities
          WHERE partner_name = $1 AND entity_type = $2 AND entity_key = $3",
        key.0.as_str(),
        key.1,
        key.2,
    )
    .fetch_optional(conn)
    .await
    .map_err(Error::doing("looking at an inbox entity"))
}

/// Entities column by column, for `unnest`.
pub(super) fn columns(keys: &[EntityKey]) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
    let partners = keys.iter().map(|(partner, ..)| partner.as_str()).collect();
    let types = keys.iter().map(|(_, kind, _)| kind.as_str()).collect();
    let names = keys.iter().map(|(.., key)| key.as_str()).collect();
    (partners, types, names)
}
