//! Writing what a step decided, in its transaction: a few statements, whatever the number of events.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claim::{EntityKey, Standing, Taken, columns};
use super::decide::{After, Noted, Plan, Published};
use super::insert::{NewRow, insert, settle};
use super::receive::Receipt;
use super::step::Stepped;
use super::{Mode, Reason, event_type, sha256};
use crate::Error;

/// Writes a plan; `before` is where the entities stood. The second part is the entities of which
/// something is to be woken after the commit.
pub(super) async fn all(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    taken: &[Taken],
    before: &BTreeMap<EntityKey, Standing>,
    plan: Plan,
) -> Result<(Stepped, Vec<EntityKey>), Error> {
    let Plan {
        after,
        mut trail,
        published,
        split,
        standings,
        moved,
        mut counts,
    } = plan;
    events(conn, now, &after).await?;
    for (n, items) in split {
        let known = items_of(conn, now, &taken[n], &items).await?;
        let new = items.len() - known;
        trail.push(Noted {
            event: taken[n].id,
            action: "split",
            detail: Some(format!("{} items, {new} of them new", items.len())),
            ..Noted::default()
        });
    }
    let changed: Vec<(&EntityKey, &Standing)> = standings
        .iter()
        .filter(|(key, standing)| before.get(*key) != Some(*standing))
        .collect();
    entities(conn, now, &changed).await?;
    note(conn, now, &trail).await?;
    publish(conn, &published).await?;
    let mut waited_for: Vec<EntityKey> = moved
        .into_iter()
        .filter(|key| standings.get(key).is_some_and(|one| one.deferred > 0))
        .collect();
    let ids: Vec<Uuid> = taken.iter().map(|one| one.id).collect();
    let (woken, locked) = wake(conn, now, &waited_for, &ids).await?;
    counts.woken = woken;
    if !locked {
        waited_for.clear();
    }
    Ok((counts, waited_for))
}

async fn events(conn: &mut PgConnection, now: DateTime<Utc>, after: &[After]) -> Result<(), Error> {
    let ids: Vec<Uuid> = after.iter().map(|row| row.id).collect();
    let of = |column: fn(&After) -> Option<&str>| after.iter().map(column).collect::<Vec<_>>();
    let number = |column: fn(&After) -> Option<i64>| after.iter().map(column).collect::<Vec<_>>();
    let next_at: Vec<DateTime<Utc>> = after.iter().map(|row| row.next_at).collect();
    let deadlines: Vec<Option<DateTime<Utc>>> = after.iter().map(|row| row.deadline_at).collect();
    let deferrals: Vec<i32> = after.iter().map(|row| row.deferrals).collect();
    let handed_out: Vec<i32> = after.iter().map(|row| row.handed_out).collect();
    let faults: Vec<i16> = after.iter().map(|row| row.faults).collect();
    sqlx::query!(
        "UPDATE hooklane.webhook_inbox w
            SET status = a.status, stage = a.stage, hand_off = coalesce(a.mode, w.hand_off),
                event_type = a.event_type, entity_type = a.entity_type, entity_key = a.entity_key,
                order_value = a.order_value, sequence = a.sequence, next_at = a.next_at,
                deadline_at = a.deadline_at, deferrals = a.deferrals, handed_out = a.handed_out,
                faults = a.faults, reason = a.reason, detail = a.detail,
                processed_at = CASE WHEN a.status IN ('PROCESSED', 'SUPERSEDED') THEN $1::timestamptz END
           FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                       $8::text[], $9::int8[], $10::int8[], $11::timestamptz[], $12::timestamptz[],
                       $13::int4[], $14::int4[], $15::int2[], $16::text[], $17::text[])
                AS a (id, status, stage, mode, event_type, entity_type, entity_key, order_value,
                      sequence, next_at, deadline_at, deferrals, handed_out, faults, reason, detail)
          WHERE w.id = a.id",
        now,
        &ids,
        of(|row| Some(row.status.as_str())) as Vec<Option<&str>>,
        of(|row| Some(row.stage.as_str())) as Vec<Option<&str>>,
        of(|row| row.mode.map(Mode::as_str)) as Vec<Option<&str>>,
        of(|row| row.event_type.as_deref()) as Vec<Option<&str>>,
        of(|row| row.entity.as_ref().map(|(kind, _)| kind.as_str())) as Vec<Option<&str>>,
        of(|row| row.entity.as_ref().map(|(_, key)| key.as_str())) as Vec<Option<&str>>,
        number(|row| row.order) as Vec<Option<i64>>,
        number(|row| row.sequence) as Vec<Option<i64>>,
        &next_at,
        &deadlines as &[Option<DateTime<Utc>>],
        &deferrals,
        &handed_out,
        &faults,
        of(|row| row.reason.map(Reason::as_str)) as Vec<Option<&str>>,
        of(|row| row.detail.as_deref()) as Vec<Option<&str>>,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("writing decisions about inbox events"))?;
    Ok(())
}

/// Keeps the items of a batch as events of their own; answers how many were there already.
async fn items_of(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    taken: &Taken,
    items: &[super::Item],
) -> Result<usize, Error> {
    let rows: Vec<NewRow<'_>> = items
        .iter()
        .map(|item| NewRow {
            id: InboxId::generate(),
            partner: taken.partner.as_str(),
            event_id: &item.partner_event_id,
            // Its day is there: the batch's body is in it.
            received_at: taken.received_at,
            signature_verified: taken.signature_verified,
            id_signed: item.id_signed,
            same_body: None,
            event_type: item.event_type.as_deref().map(event_type),
            integrity: &taken.integrity,
            key_label: taken.key_label.as_deref(),
            content_type: None,
            headers: None,
            body: &item.body,
            sha256: sha256(&item.body),
            parent: Some(InboxId::from_uuid(taken.id)),
        })
        .collect();
    let all: Vec<&NewRow<'_>> = rows.iter().collect();
    let made = insert(&mut *conn, now, &all).await?;
    let left: Vec<&NewRow<'_>> = all
        .into_iter()
        .filter(|row| !made.contains_key(&row.id.uuid()))
        .collect();
    if left.is_empty() {
        return Ok(0);
    }
    let settled = settle(conn, now, &left).await?;
    Ok(settled
        .iter()
        .filter(|one| one.as_ref().is_some_and(Receipt::is_stored))
        .count())
}

async fn entities(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    changed: &[(&EntityKey, &Standing)],
) -> Result<(), Error> {
    if changed.is_empty() {
        return Ok(());
    }
    let keys: Vec<EntityKey> = changed.iter().map(|(key, _)| (*key).clone()).collect();
    let columns = columns(&keys);
    let states: Vec<Option<&str>> = changed
        .iter()
        .map(|(_, one)| one.state.as_deref())
        .collect();
    let sequences: Vec<i64> = changed.iter().map(|(_, one)| one.sequence).collect();
    let orders: Vec<Option<i64>> = changed.iter().map(|(_, one)| one.last_order).collect();
    let deferred: Vec<i32> = changed.iter().map(|(_, one)| one.deferred).collect();
    sqlx::query!(
        "UPDATE hooklane.inbox_entities e
            SET state = c.state, sequence = c.sequence, last_order = c.last_order,
                deferred = c.deferred, changed_at = $8
           FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::int8[],
                       $7::int4[])
                AS c (partner, type, key, state, sequence, last_order, deferred)
          WHERE e.partner_name = c.partner AND e.entity_type = c.type AND e.entity_key = c.key",
        &columns.0 as &[&str],
        &columns.1 as &[&str],
        &columns.2 as &[&str],
        &states as &[Option<&str>],
        &sequences,
        &orders as &[Option<i64>],
        &deferred,
        now,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("moving inbox entities"))?;
    Ok(())
}

/// Adds to the trail.
pub(super) async fn note(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    trail: &[Noted],
) -> Result<(), Error> {
    if trail.is_empty() {
        return Ok(());
    }
    let events: Vec<Uuid> = trail.iter().map(|noted| noted.event).collect();
    let of = |column: fn(&Noted) -> Option<&str>| trail.iter().map(column).collect::<Vec<_>>();
    let sequences: Vec<Option<i64>> = trail.iter().map(|noted| noted.sequence).collect();
    sqlx::query!(
        "INSERT INTO hooklane.inbox_trail
                (event_id, at, action, from_state, to_state, sequence, reason, detail, machine)
         SELECT event, $1, action, from_state, to_state, sequence, reason, detail, machine
           FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::int8[], $7::text[],
                       $8::text[], $9::text[])
                AS t (event, action, from_state, to_state, sequence, reason, detail, machine)",
        now,
        &events,
        of(|noted| Some(noted.action)) as Vec<Option<&str>>,
        of(|noted| noted.from.as_deref()) as Vec<Option<&str>>,
        of(|noted| noted.to.as_deref()) as Vec<Option<&str>>,
        &sequences as &[Option<i64>],
        of(|noted| noted.reason) as Vec<Option<&str>>,
        of(|noted| noted.detail.as_deref()) as Vec<Option<&str>>,
        of(|noted| noted.machine.as_deref()) as Vec<Option<&str>>,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("writing the trail of inbox events"))?;
    Ok(())
}

/// Leaves events for the publisher, in this order.
async fn publish(conn: &mut PgConnection, published: &[Published]) -> Result<(), Error> {
    if published.is_empty() {
        return Ok(());
    }
    let events: Vec<Uuid> = published.iter().map(|one| one.event).collect();
    let received: Vec<DateTime<Utc>> = published.iter().map(|one| one.received_at).collect();
    let attempts: Vec<i32> = published.iter().map(|one| one.attempt).collect();
    // Positions are drawn in the order of the rows.
    sqlx::query!(
        "INSERT INTO hooklane.inbox_handoffs (event_id, received_at, attempt)
         SELECT event, received_at, attempt
           FROM unnest($1::uuid[], $2::timestamptz[], $3::int4[])
                WITH ORDINALITY AS p (event, received_at, attempt, n)
          ORDER BY n",
        &events,
        &received,
        &attempts,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("leaving inbox events for the publisher"))?;
    Ok(())
}

/// Makes what waits for these entities due, but for `looked_at` and what is due already, or each of many
/// events would write all those behind it anew; answers how many. The second part is whether somebody has
/// locked some of it: waiting for whoever does, and holds it until it has these entities, would never
/// end. It may have seen that the event was not due any more, and won't look at it: [`wake_after`].
async fn wake(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    keys: &[EntityKey],
    looked_at: &[Uuid],
) -> Result<(u32, bool), Error> {
    if keys.is_empty() {
        return Ok((0, false));
    }
    let columns = columns(keys);
    let counts = sqlx::query!(
        r#"WITH waiting AS MATERIALIZED (
               SELECT w.id
                 FROM unnest($1::text[], $2::text[], $3::text[]) AS k (partner, type, key)
                CROSS JOIN LATERAL (
                      SELECT id FROM hooklane.webhook_inbox
                       WHERE partner_name = k.partner AND entity_type = k.type
                         AND entity_key = k.key AND status = 'DEFERRED' AND next_at > $5
                         AND id <> ALL($4) OFFSET 0) AS w
           ), free AS MATERIALIZED (
               SELECT w.id FROM waiting
                CROSS JOIN LATERAL (
                      SELECT id FROM hooklane.webhook_inbox
                       WHERE id = waiting.id AND status = 'DEFERRED' FOR UPDATE SKIP LOCKED) AS w
           ), woken AS (
               UPDATE hooklane.webhook_inbox w SET next_at = $5 FROM free WHERE w.id = free.id
               RETURNING w.id
           )
           SELECT (SELECT count(*) FROM waiting) AS "waiting!",
                  (SELECT count(*) FROM woken) AS "woken!""#,
        &columns.0 as &[&str],
        &columns.1 as &[&str],
        &columns.2 as &[&str],
        looked_at,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(Error::doing("waking deferred inbox events"))?;
    let woken = u32::try_from(counts.woken).unwrap_or(u32::MAX);
    Ok((woken, counts.woken < counts.waiting))
}

/// Makes what still waits for these entities due, once whoever has locked it is through; answers how
/// many. For after the commit, when nobody waits for this one.
pub(super) async fn wake_after(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    keys: &[EntityKey],
) -> Result<u32, Error> {
    let columns = columns(keys);
    let woken = sqlx::query!(
        "WITH waiting AS MATERIALIZED (
             SELECT w.id
               FROM unnest($1::text[], $2::text[], $3::text[]) AS k (partner, type, key)
              CROSS JOIN LATERAL (
                    SELECT id FROM hooklane.webhook_inbox
                     WHERE partner_name = k.partner AND entity_type = k.type
                       AND entity_key = k.key AND status = 'DEFERRED' AND next_at > $4
                      OFFSET 0) AS w
              ORDER BY w.id
         ), locked AS MATERIALIZED (
             SELECT w.id FROM waiting
              CROSS JOIN LATERAL (
                    SELECT id FROM hooklane.webhook_inbox
                     WHERE id = waiting.id AND status = 'DEFERRED' AND next_at > $4
                       FOR UPDATE) AS w
         )
         UPDATE hooklane.webhook_inbox w SET next_at = $4 FROM locked WHERE w.id = locked.id",
        &columns.0 as &[&str],
        &columns.1 as &[&str],
        &columns.2 as &[&str],
        now,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("waking deferred inbox events"))?;
    Ok(u32::try_from(woken.rows_affected()).unwrap_or(u32::MAX))
}
