//! The inbox's own outbox: what took effect and is to be published on `INBOX`, in order; and what
//! becomes of hand-offs that fail.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claim::bodies;
use super::hand_off::{HandOff, Row};
use super::{Reason, Status, detail, partner};
use crate::{Error, Store};

/// An event to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Its place in the order of publication.
    pub position: i64,
    /// What to publish.
    pub hand_off: HandOff,
}

/// What became of failed hand-offs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failures {
    /// Events that are tried again later.
    pub again: u32,
    /// Those that need a person.
    pub quarantined: Vec<(Partner, Reason)>,
    /// Failures that were said before, or of a hand-off that is not the last.
    pub stale: u32,
}

impl Store {
    /// What is to be published, in order: at most `limit` events and about `bytes` of bodies (one
    /// event always). For one publisher at a time: two of them publish twice, in any order.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_publications(
        &self,
        limit: u32,
        bytes: u32,
    ) -> Result<Vec<Publication>, Error> {
        let doing = "reading inbox events to publish";
        let mut tx = self.begin_probing().await?;
        let rows = sqlx::query!(
            r#"SELECT h.position, h.attempt, w.id, w.partner_name, w.partner_event_id, w.received_at,
                      w.event_type, w.entity_type, w.entity_key, w.sequence, w.parent, w.integrity,
                      w.body_bytes
                 FROM hooklane.inbox_handoffs h
                 JOIN hooklane.webhook_inbox w ON w.id = h.event_id
                ORDER BY h.position LIMIT $1"#,
            i64::from(limit.max(1)),
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        let mut left = i64::from(bytes);
        let mut wanted = Vec::with_capacity(rows.len());
        for row in rows {
            left -= i64::from(row.body_bytes);
            if left < 0 && !wanted.is_empty() {
                break;
            }
            let event = Row {
                id: row.id,
                partner_name: row.partner_name,
                partner_event_id: row.partner_event_id,
                received_at: row.received_at,
                event_type: row.event_type,
                entity_type: row.entity_type,
                entity_key: row.entity_key,
                sequence: row.sequence,
                parent: row.parent,
                integrity: row.integrity,
                attempt: row.attempt,
            };
            wanted.push((row.position, event));
        }
        let bodies = bodies(&mut tx, wanted.iter().map(|(_, row)| row.body_place())).await?;
        tx.rollback().await.map_err(Error::doing(doing))?;
        let publication = |(position, row): (i64, Row)| {
            let Some(body) = bodies.get(&row.id).cloned() else {
                // A day with events to publish is not dropped.
                let event = InboxId::from_uuid(row.id);
                tracing::error!(%event, "an inbox event to be published has no body any more");
                return None;
            };
            let publication = row
                .hand_off(body)
                .map(|hand_off| Publication { position, hand_off });
            Some(publication)
        };
        wanted.into_iter().filter_map(publication).collect()
    }

    /// Forgets publications that the stream has; answers how many.
    ///
    /// # Errors
    /// Where the database fails: they are published again, which the stream notices.
    pub async fn inbox_published(&self, positions: &[i64]) -> Result<u64, Error> {
        sqlx::query!(
            "DELETE FROM hooklane.inbox_handoffs WHERE position = ANY($1)",
            positions,
        )
        .execute(self.pool())
        .await
        .map(|done| done.rows_affected())
        .map_err(Error::doing("forgetting published inbox events"))
    }

    /// Gives up publications that the stream will never take, each with why: their hand-off failed.
    ///
    /// # Errors
    /// Where the database fails: nothing was given up then.
    pub async fn inbox_unpublishable(
        &self,
        now: DateTime<Utc>,
        refused: &[(i64, String)],
    ) -> Result<Failures, Error> {
        let doing = "giving up inbox events that can't be published";
        let positions: Vec<i64> = refused.iter().map(|(position, _)| *position).collect();
        let mut tx = self.pool().begin().await.map_err(Error::doing(doing))?;
        let rows = sqlx::query!(
            "DELETE FROM hooklane.inbox_handoffs WHERE position = ANY($1)
             RETURNING position, event_id, attempt",
            &positions,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Error::doing(doing))?;
        let failed: Vec<(Uuid, i32, String)> = rows
            .into_iter()
            .filter_map(|row| {
                let (_, why) = refused.iter().find(|(at, _)| *at == row.position)?;
                Some((row.event_id, row.attempt, why.clone()))
            })
            .collect();
        let failures = fail_published(&mut tx, now, &failed).await?;
        tx.commit().await.map_err(Error::doing(doing))?;
        Ok(failures)
    }

    /// Consumers of `INBOX` gave events up, each with the attempt that the message carried and why.
    /// Said twice, it counts once.
    ///
    /// # Errors
    /// Where the database fails: nothing was written down then.
    pub async fn inbox_failed(
        &self,
        now: DateTime<Utc>,
        failed: &[(InboxId, u32, String)],
    ) -> Result<Failures, Error> {
        let doing = "noting failed hand-offs of the inbox";
        let failed: Vec<(Uuid, i32, String)> = failed
            .iter()
            .map(|(id, attempt, why)| {
                let attempt = i32::try_from(*attempt).unwrap_or(i32::MAX);
                (id.uuid(), attempt, why.clone())
            })
            .collect();
        let mut tx = self.pool().begin().await.map_err(Error::doing(doing))?;
        let failures = fail_published(&mut tx, now, &failed).await?;
        tx.commit().await.map_err(Error::doing(doing))?;
        Ok(failures)
    }
}

/// Those of the hand-offs that were published last and not failed since.
async fn fail_published(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    failed: &[(Uuid, i32, String)],
) -> Result<Failures, Error> {
    if failed.is_empty() {
        return Ok(Failures::default());
    }
    let ids: Vec<Uuid> = failed.iter().map(|(id, ..)| *id).collect();
    let attempts: Vec<i32> = failed.iter().map(|(_, attempt, _)| *attempt).collect();
    let current = sqlx::query_scalar!(
        "SELECT w.id FROM unnest($1::uuid[], $2::int4[]) AS f (id, attempt)
           JOIN hooklane.webhook_inbox w ON w.id = f.id
          WHERE w.status = 'PROCESSED' AND w.stage = 'hand_off' AND w.hand_off = 'stream'
            AND w.handed_out = f.attempt
          ORDER BY w.id FOR UPDATE OF w",
        &ids,
        &attempts,
    )
    .fetch_all(&mut *conn)
    .await
    .map_err(Error::doing("noting failed hand-offs of the inbox"))?;
    let mut current: HashSet<Uuid> = current.into_iter().collect();
    let mut stale = 0;
    let mut counted = Vec::with_capacity(failed.len());
    for (id, _, why) in failed {
        if current.remove(id) {
            counted.push((*id, detail(why)));
        } else {
            stale += 1;
        }
    }
    let failures = fail(conn, now, &counted).await?;
    Ok(Failures { stale, ..failures })
}

/// Writes down failed hand-offs of events that are locked.
pub(super) async fn fail(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    failed: &[(Uuid, String)],
) -> Result<Failures, Error> {
    if failed.is_empty() {
        return Ok(Failures::default());
    }
    let ids: Vec<Uuid> = failed.iter().map(|(id, _)| *id).collect();
    let whys: Vec<&str> = failed.iter().map(|(_, why)| why.as_str()).collect();
    let rows = sqlx::query!(
        r#"SELECT partner AS "partner!", became AS "became!"
             FROM hooklane.inbox_failures($1::uuid[], $2::text[], $3)"#,
        &ids,
        &whys as &[&str],
        now,
    )
    .fetch_all(conn)
    .await
    .map_err(Error::doing("noting failed hand-offs of the inbox"))?;
    let mut failures = Failures::default();
    for row in rows {
        if row.became == Status::Quarantined.as_str() {
            let partner = partner(&row.partner)?;
            failures.quarantined.push((partner, Reason::HandlerFailed));
        } else {
            failures.again += 1;
        }
    }
    Ok(failures)
}
