//! Handing events to the adopter's code, which is asked and answers.
//!
//! Events of one entity go one at a time, in the order in which they took effect; one that failed or
//! was put off does not hold up those behind it. Whoever takes an event has it for a while; without an
//! answer it is handed out again, and the answer to an earlier hand-out is ignored.
//!
//! Where rows are looked for by id or entity, `status IN ('PENDING', 'DEFERRED')` stands for `PENDING`,
//! which is all that the stage `hand_off` knows of the two: it keeps the planner from the index of what
//! is to be handed off, which it takes to be small where it was when statistics were gathered.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claim::{Body, BodyPlace, bodies};
use super::publish::{Failures, fail};
use super::{Headers, Reason, detail, partner};
use crate::{Error, Store};

/// How long the adopter's code may put an event off.
const PUT_OFF_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// An event on its way to the adopter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOff {
    /// Its id.
    pub id: InboxId,
    /// Whose it is.
    pub partner: Partner,
    /// The partner's id of it.
    pub partner_event_id: String,
    /// What happened.
    pub event_type: String,
    /// To what: a type and a key.
    pub entity: Option<(String, String)>,
    /// Where it stands among those of its entity that took effect.
    pub sequence: Option<i64>,
    /// What its signature covers.
    pub integrity: String,
    /// The body's media type.
    pub content_type: Option<String>,
    /// The kept headers.
    pub headers: Headers,
    /// The exact bytes.
    pub body: Bytes,
    /// When it was received.
    pub received_at: DateTime<Utc>,
    /// The how manieth hand-off of this event it is, from 1.
    pub attempt: u32,
}

/// What the adopter's code answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The event.
    pub id: InboxId,
    /// [`HandOff::attempt`].
    pub attempt: u32,
    /// The answer.
    pub answer: Answer,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Processed,
    /// Not now: something else has to come before, and why.
    Deferred(String),
    /// It failed, or did not answer in time, and why.
    Failed(String),
}

/// What became of answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settlement {
    /// Events that are done.
    pub processed: u32,
    /// Those that were put off.
    pub deferred: u32,
    /// Those that are tried again later.
    pub again: u32,
    /// Those that need a person.
    pub quarantined: Vec<(Partner, Reason)>,
    /// Answers to an earlier hand-out, or about events that don't wait for one.
    pub stale: u32,
    /// Events that had been put off, and are due again because another of their entity is done.
    pub woken: u32,
}

/// What is handed off, without its body.
pub(super) struct Row {
    pub(super) id: Uuid,
    pub(super) partner_name: String,
    pub(super) partner_event_id: String,
    pub(super) received_at: DateTime<Utc>,
    pub(super) event_type: Option<String>,
    pub(super) entity_type: Option<String>,
    pub(super) entity_key: Option<String>,
    pub(super) sequence: Option<i64>,
    pub(super) parent: Option<Uuid>,
    pub(super) integrity: String,
    pub(super) attempt: i32,
}

impl Row {
    pub(super) fn body_place(&self) -> BodyPlace {
        (self.received_at, self.id, self.parent)
    }

    pub(super) fn hand_off(self, body: Body) -> Result<HandOff, Error> {
        let Self {
            id,
            partner_name,
            partner_event_id,
            received_at,
            event_type,
            entity_type,
            entity_key,
            sequence,
            parent: _,
            integrity,
            attempt,
        } = self;
        let Body {
            body,
            headers,
            content_type,
        } = body;
        Ok(HandOff {
            id: InboxId::from_uuid(id),
            partner: partner(&partner_name)?,
            partner_event_id,
            event_type: event_type.unwrap_or_else(|| "unknown".to_owned()),
            entity: entity_type.zip(entity_key),
            sequence,
            integrity,
            content_type,
            headers,
            body,
            received_at,
            attempt: u32::try_from(attempt).unwrap_or_default(),
        })
    }
}

impl Store {
    /// Takes events that are due to be handed to these partners' handlers: at most `limit`, about
    /// `bytes` of bodies (one is always taken), one of an entity, each for `lease`. Several processes
    /// may do so at once.
    ///
    /// # Errors
    /// Where the database fails; what was taken then is handed out again after `lease`.
    pub async fn inbox_take(
        &self,
        now: DateTime<Utc>,
        partners: &[Partner],
        limit: u32,
        bytes: u32,
        lease: Duration,
    ) -> Result<Vec<HandOff>, Error> {
        let doing = "taking inbox events for their handlers";
        let names: Vec<&str> = partners.iter().map(Partner::as_str).collect();
        let mut tx = self.begin_probing().await?;
        // `inbox_is_next`, in line: an entity may have many that wait for their turn. In the order of
        // the index, partner by partner, so that a long backlog is not read to its end.
        let candidates = sqlx::query!(
            r#"SELECT c.id AS "id!", c.body_bytes AS "body_bytes!"
                 FROM unnest($1::text[]) AS p (name)
                CROSS JOIN LATERAL (
                      SELECT w.id, w.body_bytes, w.next_at FROM hooklane.webhook_inbox w
                       WHERE w.hand_off = 'request' AND w.partner_name = p.name
                         AND w.status = 'PENDING' AND w.stage = 'hand_off' AND w.next_at <= $2
                         AND (w.entity_key IS NULL OR NOT EXISTS (
                             SELECT FROM hooklane.webhook_inbox o
                              WHERE o.partner_name = w.partner_name
                                AND o.entity_type = w.entity_type AND o.entity_key = w.entity_key
                                AND o.status IN ('PENDING', 'DEFERRED') AND o.stage = 'hand_off'
                                AND o.id <> w.id
                                AND (o.leased_until > $2
                                     OR o.sequence < w.sequence
                                        AND (NOT o.yields OR o.next_at <= $2))))
                       ORDER BY w.next_at, w.id LIMIT $3) AS c
                ORDER BY c.next_at, c.id LIMIT $3"#,
            &names as &[&str],
            now,
            i64::from(limit.clamp(1, 1000)),
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        let mut left = i64::from(bytes);
        let chosen: Vec<Uuid> = candidates
            .iter()
            .enumerate()
            .take_while(|(n, row)| {
                left -= i64::from(row.body_bytes);
                *n == 0 || left >= 0
            })
            .map(|(_, row)| row.id)
            .collect();
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let free = sqlx::query_scalar!(
            "SELECT w.id FROM hooklane.webhook_inbox w
              WHERE w.id = ANY($1) AND hooklane.inbox_try_entity(w)",
            &chosen,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        let lease = TimeDelta::from_std(lease).unwrap_or(TimeDelta::days(1));
        // Whoever had an entity before may have changed it, which a statement begun now sees.
        let rows = sqlx::query_as!(
            Row,
            r#"WITH locked AS (
                   SELECT w.id FROM hooklane.webhook_inbox w
                    WHERE w.id = ANY($1) AND w.hand_off = 'request'
                      AND w.status IN ('PENDING', 'DEFERRED') AND w.stage = 'hand_off'
                      AND w.next_at <= $2 AND hooklane.inbox_is_next(w, $2)
                      FOR UPDATE SKIP LOCKED
               )
               UPDATE hooklane.webhook_inbox w
                  SET leased_until = $3, next_at = $3, handed_out = w.handed_out + 1
                 FROM locked WHERE w.id = locked.id
            RETURNING w.id, w.partner_name, w.partner_event_id, w.received_at, w.event_type,
                      w.entity_type, w.entity_key, w.sequence, w.parent, w.integrity,
                      w.handed_out AS attempt"#,
            &free,
            now,
            now + lease,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        let mut bodies = bodies(&mut tx, rows.iter().map(Row::body_place)).await?;
        tx.commit().await.map_err(Error::doing(doing))?;
        let handed: Result<Vec<HandOff>, Error> = rows
            .into_iter()
            .filter_map(|row| Some((bodies.remove(&row.id)?, row)))
            .map(|(body, row)| row.hand_off(body))
            .collect();
        let mut handed = handed?;
        handed.sort_by_key(|one| chosen.iter().position(|id| *id == one.id.uuid()));
        Ok(handed)
    }

    /// Writes down what handlers answered. An answer to a hand-out that is not the last one is stale.
    ///
    /// # Errors
    /// Where the database fails: nothing was written down then.
    pub async fn inbox_settle(
        &self,
        now: DateTime<Utc>,
        answers: &[Settled],
    ) -> Result<Settlement, Error> {
        let doing = "settling inbox events";
        let mut settlement = Settlement::default();
        if answers.is_empty() {
            return Ok(settlement);
        }
        let ids: Vec<Uuid> = answers.iter().map(|one| one.id.uuid()).collect();
        let attempts: Vec<i32> = answers
            .iter()
            .map(|one| i32::try_from(one.attempt).unwrap_or(i32::MAX))
            .collect();
        let mut tx = self.pool().begin().await.map_err(Error::doing(doing))?;
        let current = sqlx::query_scalar!(
            "SELECT w.id FROM unnest($1::uuid[], $2::int4[]) AS a (id, attempt)
               JOIN hooklane.webhook_inbox w ON w.id = a.id
              WHERE w.status IN ('PENDING', 'DEFERRED') AND w.stage = 'hand_off'
                AND w.handed_out = a.attempt
              ORDER BY w.id FOR UPDATE OF w",
            &ids,
            &attempts,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        // Each once, however often it is answered.
        let mut current: HashSet<Uuid> = current.into_iter().collect();
        let (mut done, mut put_off, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for Settled { id, answer, .. } in answers {
            if !current.remove(&id.uuid()) {
                settlement.stale += 1;
                continue;
            }
            match answer {
                Answer::Processed => done.push(id.uuid()),
                Answer::Deferred(why) => put_off.push((id.uuid(), detail(why))),
                Answer::Failed(why) => failed.push((id.uuid(), detail(why))),
            }
        }
        settlement.processed = processed(&mut tx, now, &done).await?;
        settlement.woken = wake(&mut tx, now, &done).await?;
        let expired = defer(&mut tx, now, &put_off).await?;
        settlement.deferred = count(put_off.len() - expired.len());
        settlement.quarantined = expired;
        let Failures {
            again, quarantined, ..
        } = fail(&mut tx, now, &failed).await?;
        settlement.again = again;
        settlement.quarantined.extend(quarantined);
        tx.commit().await.map_err(Error::doing(doing))?;
        Ok(settlement)
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

async fn processed(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    ids: &[Uuid],
) -> Result<u32, Error> {
    if ids.is_empty() {
        return Ok(0);
    }
    sqlx::query!(
        "WITH done AS (
             UPDATE hooklane.webhook_inbox
                SET status = 'PROCESSED', processed_at = $2, leased_until = NULL, reason = NULL,
                    detail = NULL
              WHERE id = ANY($1) RETURNING id
         )
         INSERT INTO hooklane.inbox_trail (event_id, at, action)
         SELECT id, $2, 'processed' FROM done",
        ids,
        now,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("settling inbox events"))?;
    Ok(count(ids.len()))
}

/// Makes what was put off and is about the same entities due.
async fn wake(conn: &mut PgConnection, now: DateTime<Utc>, done: &[Uuid]) -> Result<u32, Error> {
    if done.is_empty() {
        return Ok(0);
    }
    let woken = sqlx::query!(
        "WITH waiting AS (
             SELECT w.id FROM hooklane.webhook_inbox d
              CROSS JOIN LATERAL (
                    SELECT id FROM hooklane.webhook_inbox
                     WHERE partner_name = d.partner_name AND entity_type = d.entity_type
                       AND entity_key = d.entity_key AND status IN ('PENDING', 'DEFERRED')
                       AND stage = 'hand_off' AND deferrals > 0 AND leased_until IS NULL
                       AND next_at > $2
                       FOR UPDATE SKIP LOCKED) AS w
              WHERE d.id = ANY($1)
         )
         UPDATE hooklane.webhook_inbox w SET next_at = $2 FROM waiting WHERE w.id = waiting.id",
        done,
        now,
    )
    .execute(conn)
    .await
    .map_err(Error::doing("waking inbox events that were put off"))?;
    Ok(u32::try_from(woken.rows_affected()).unwrap_or(u32::MAX))
}

/// Puts events off; answers those that were put off for too long.
async fn defer(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    put_off: &[(Uuid, String)],
) -> Result<Vec<(Partner, Reason)>, Error> {
    if put_off.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = put_off.iter().map(|(id, _)| *id).collect();
    let whys: Vec<&str> = put_off.iter().map(|(_, why)| why.as_str()).collect();
    let rows = sqlx::query!(
        r#"WITH put_off AS (
               UPDATE hooklane.webhook_inbox w
                  SET leased_until = NULL, yields = true, deferrals = w.deferrals + 1,
                      detail = p.why,
                      deadline_at = coalesce(w.deadline_at, $3::timestamptz + make_interval(secs => $4)),
                      next_at = least($3::timestamptz
                                      + make_interval(secs => least(300, power(2, least(w.deferrals, 10)))),
                                      coalesce(w.deadline_at, 'infinity')),
                      status = CASE WHEN w.deadline_at <= $3 THEN 'QUARANTINED' ELSE w.status END,
                      reason = CASE WHEN w.deadline_at <= $3 THEN 'deferral_expired' END
                 FROM unnest($1::uuid[], $2::text[]) AS p (id, why)
                WHERE w.id = p.id
            RETURNING w.id, w.partner_name, w.status, w.deferrals, w.detail
           ), noted AS (
               INSERT INTO hooklane.inbox_trail (event_id, at, action, reason, detail)
               SELECT id, $3, CASE status WHEN 'QUARANTINED' THEN 'quarantined' ELSE 'put_off' END,
                      CASE status WHEN 'QUARANTINED' THEN 'deferral_expired' END, detail
                 FROM put_off WHERE status = 'QUARANTINED' OR deferrals = 1
           )
           SELECT partner_name AS "partner_name!" FROM put_off WHERE status = 'QUARANTINED'"#,
        &ids,
        &whys as &[&str],
        now,
        PUT_OFF_FOR.as_secs_f64(),
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("putting inbox events off"))?;
    rows.into_iter()
        .map(|row| Ok((partner(&row.partner_name)?, Reason::DeferralExpired)))
        .collect()
}
