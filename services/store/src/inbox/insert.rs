//! Keeping events: new ones in one statement, and what becomes of those that are there already.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::receive::Receipt;
use super::{Headers, Status, word};
use crate::Error;

/// Other bodies that are kept of one event.
const MAX_CONFLICTS: i64 = 10;

/// A row to be.
#[derive(Debug, Clone)]
pub(super) struct NewRow<'a> {
    pub(super) id: InboxId,
    pub(super) partner: &'a str,
    pub(super) event_id: &'a str,
    pub(super) received_at: DateTime<Utc>,
    pub(super) signature_verified: bool,
    pub(super) id_signed: bool,
    /// How far back the body is looked for under other ids, in seconds, and whether it is left out
    /// then.
    pub(super) same_body: Option<(f64, bool)>,
    pub(super) event_type: Option<String>,
    pub(super) integrity: &'a str,
    pub(super) key_label: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
    /// `None`: those of its request.
    pub(super) headers: Option<&'a Headers>,
    pub(super) body: &'a [u8],
    pub(super) sha256: [u8; 32],
    pub(super) parent: Option<InboxId>,
}

/// Writes those that are not there yet; answers which of them were written, each with the earlier event
/// of the same body.
pub(super) async fn insert(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    rows: &[&NewRow<'_>],
) -> Result<HashMap<Uuid, Option<Uuid>>, Error> {
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id.uuid()).collect();
    let received: Vec<DateTime<Utc>> = rows.iter().map(|row| row.received_at).collect();
    let verified: Vec<bool> = rows.iter().map(|row| row.signature_verified).collect();
    let signed: Vec<bool> = rows.iter().map(|row| row.id_signed).collect();
    let look_back: Vec<Option<f64>> = rows
        .iter()
        .map(|row| row.same_body.map(|(seconds, _)| seconds))
        .collect();
    let leave_out: Vec<bool> = rows
        .iter()
        .map(|row| row.same_body.is_some_and(|(_, leave_out)| leave_out))
        .collect();
    let headers: Vec<Option<String>> = rows
        .iter()
        .map(|row| row.headers.map(Headers::write))
        .collect();
    let bytes: Vec<i32> = rows
        .iter()
        .map(|row| i32::try_from(row.body.len()).unwrap_or(i32::MAX))
        .collect();
    let parents: Vec<Option<Uuid>> = rows
        .iter()
        .map(|row| row.parent.map(InboxId::uuid))
        .collect();
    // Sorted by everybody alike, so that nobody waits in a circle.
    let made = sqlx::query!(
        r#"WITH given AS MATERIALIZED (
               SELECT g.*, CASE WHEN g.look_back IS NOT NULL AND NOT g.id_signed THEN
                      (SELECT w.id FROM hooklane.webhook_inbox w
                        WHERE w.partner_name = g.partner AND w.body_sha256 = g.digest
                          AND NOT w.id_signed AND w.partner_event_id <> g.event_id
                          AND w.received_at >= $1::timestamptz - make_interval(secs => g.look_back)
                        ORDER BY w.received_at, w.id LIMIT 1) END AS seen
                 FROM unnest($2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::bool[],
                             $7::bool[], $8::float8[], $9::bool[], $10::text[], $11::text[],
                             $12::text[], $13::text[], $14::text[], $15::bytea[], $16::bytea[],
                             $17::int4[], $18::uuid[])
                      AS g (id, partner, event_id, received_at, verified, id_signed, look_back,
                            leave_out, event_type, integrity, key_label, content_type, headers,
                            body, digest, bytes, parent)
           ), made AS (
               INSERT INTO hooklane.webhook_inbox
                      (id, partner_name, partner_event_id, signature_verified, received_at,
                       event_type, body_sha256, body_bytes, id_signed, same_body_as, integrity,
                       key_label, parent, next_at)
               SELECT id, partner, event_id, verified, received_at, event_type, digest, bytes,
                      id_signed, seen, integrity, key_label, parent, $1
                 FROM given
                WHERE NOT (leave_out AND seen IS NOT NULL)
                ORDER BY partner, event_id
               ON CONFLICT (partner_name, partner_event_id) DO NOTHING
               RETURNING id, same_body_as
           ), bodies AS (
               INSERT INTO hooklane.inbox_bodies (received_at, id, body, headers, content_type)
               SELECT g.received_at, g.id, g.body, g.headers::json, g.content_type
                 FROM given g JOIN made ON made.id = g.id
           )
           SELECT id AS "id!", same_body_as FROM made"#,
        now,
        &ids,
        rows.iter().map(|row| row.partner).collect::<Vec<_>>() as Vec<&str>,
        rows.iter().map(|row| row.event_id).collect::<Vec<_>>() as Vec<&str>,
        &received,
        &verified,
        &signed,
        &look_back as &[Option<f64>],
        &leave_out,
        rows.iter()
            .map(|row| row.event_type.as_deref())
            .collect::<Vec<_>>() as Vec<Option<&str>>,
        rows.iter().map(|row| row.integrity).collect::<Vec<_>>() as Vec<&str>,
        rows.iter().map(|row| row.key_label).collect::<Vec<_>>() as Vec<Option<&str>>,
        rows.iter().map(|row| row.content_type).collect::<Vec<_>>() as Vec<Option<&str>>,
        headers as Vec<Option<String>>,
        rows.iter().map(|row| row.body).collect::<Vec<_>>() as Vec<&[u8]>,
        rows.iter()
            .map(|row| row.sha256.as_slice())
            .collect::<Vec<_>>() as Vec<&[u8]>,
        &bytes,
        &parents as &[Option<Uuid>],
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("keeping inbox events"))?;
    Ok(made
        .into_iter()
        .map(|row| (row.id, row.same_body_as))
        .collect())
}

/// What becomes of rows whose ids are taken: one with the same body is a repetition, which takes an
/// event out of quarantine; one with another body is a conflict. `None` where nothing has the id.
///
/// Within a transaction: several statements.
pub(super) async fn settle(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    rows: &[&NewRow<'_>],
) -> Result<Vec<Option<Receipt>>, Error> {
    let there = sqlx::query!(
        r#"SELECT w.id, w.partner_name, w.partner_event_id, w.body_sha256, w.status
             FROM unnest($1::text[], $2::text[]) AS g (partner, event_id)
             JOIN hooklane.webhook_inbox w
               ON w.partner_name = g.partner AND w.partner_event_id = g.event_id"#,
        rows.iter().map(|row| row.partner).collect::<Vec<_>>() as Vec<&str>,
        rows.iter().map(|row| row.event_id).collect::<Vec<_>>() as Vec<&str>,
    )
    .fetch_all(&mut *conn)
    .await
    .map_err(Error::doing("looking for repeated inbox events"))?;
    let mut known = HashMap::with_capacity(there.len());
    for row in there {
        let status: Status = word(&row.status)?;
        known.insert(
            (row.partner_name, row.partner_event_id),
            (row.id, row.body_sha256, status),
        );
    }
    let found = |row: &NewRow<'_>| known.get(&(row.partner.to_owned(), row.event_id.to_owned()));
    let same = |row: &NewRow<'_>, digest: &[u8]| row.sha256.as_slice() == digest;

    let armed: Vec<Uuid> = rows
        .iter()
        .filter_map(|row| found(row).filter(|(_, digest, _)| same(row, digest)))
        .filter(|(_, _, status)| *status == Status::Quarantined)
        .map(|(id, ..)| *id)
        .collect();
    let armed = rearm(conn, now, &armed, "re_armed").await?;
    let conflicts: Vec<(Uuid, &NewRow<'_>)> = rows
        .iter()
        .filter_map(|row| {
            let (id, ..) = found(row).filter(|(_, digest, _)| !same(row, digest))?;
            Some((*id, *row))
        })
        .collect();
    keep_conflicts(conn, now, &conflicts).await?;
    let receipt = |row: &&NewRow<'_>| {
        let (id, digest, _) = found(row)?;
        let event = InboxId::from_uuid(*id);
        Some(if !same(row, digest) {
            Receipt::Conflict(event)
        } else if armed.contains(id) {
            Receipt::ReArmed(event)
        } else {
            Receipt::Duplicate(event)
        })
    };
    Ok(rows.iter().map(receipt).collect())
}

/// Takes events out of quarantine; answers which of them were in it. One that took effect before it came
/// there is handed off again, another is decided anew.
pub(super) async fn rearm(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    ids: &[Uuid],
    action: &str,
) -> Result<HashSet<Uuid>, Error> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let armed = sqlx::query_scalar!(
        r#"WITH locked AS (
               SELECT id FROM hooklane.webhook_inbox
                WHERE id = ANY($1) AND status = 'QUARANTINED' ORDER BY id FOR UPDATE
           ), armed AS (
               UPDATE hooklane.webhook_inbox w
                  SET status = 'PENDING', next_at = $2, failures = 0, deferrals = 0, faults = 0,
                      deadline_at = NULL, leased_until = NULL, processed_at = NULL, reason = NULL,
                      detail = NULL, yields = w.stage = 'hand_off'
                 FROM locked WHERE w.id = locked.id
               RETURNING w.id
           ), noted AS (
               INSERT INTO hooklane.inbox_trail (event_id, at, action)
               SELECT id, $2, $3 FROM armed
           )
           SELECT id AS "id!" FROM armed"#,
        ids,
        now,
        action,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("taking inbox events out of quarantine"))?;
    Ok(armed.into_iter().collect())
}

/// Keeps bodies that came under an id with another body, each once and a few of each event.
async fn keep_conflicts(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    conflicts: &[(Uuid, &NewRow<'_>)],
) -> Result<(), Error> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = conflicts.iter().map(|(id, _)| *id).collect();
    let of = |column: fn(&NewRow<'_>) -> Option<String>| {
        conflicts
            .iter()
            .map(|(_, row)| column(row))
            .collect::<Vec<_>>()
    };
    sqlx::query!(
        "INSERT INTO hooklane.inbox_conflicts (event_id, body_sha256, at, headers, body)
         SELECT g.id, g.digest, $1, g.headers::json, g.body
           FROM unnest($2::uuid[], $3::bytea[], $4::text[], $5::bytea[])
                WITH ORDINALITY AS g (id, digest, headers, body, n)
          WHERE (SELECT count(*) FROM hooklane.inbox_conflicts c WHERE c.event_id = g.id)
                + (SELECT count(*) FROM unnest($2::uuid[]) WITH ORDINALITY AS o (id, n)
                    WHERE o.id = g.id AND o.n < g.n) < $6
          ORDER BY g.id, g.digest
         ON CONFLICT (event_id, body_sha256) DO NOTHING",
        now,
        &ids,
        conflicts
            .iter()
            .map(|(_, row)| row.sha256.as_slice())
            .collect::<Vec<_>>() as Vec<&[u8]>,
        of(|row| row.headers.map(Headers::write)) as Vec<Option<String>>,
        conflicts
            .iter()
            .map(|(_, row)| row.body)
            .collect::<Vec<_>>() as Vec<&[u8]>,
        MAX_CONFLICTS,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("keeping conflicting inbox events"))?;
    Ok(())
}
