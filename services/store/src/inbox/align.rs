//! A source whose hand-off was configured anew.

use chrono::{DateTime, Utc};
use hooklane_proto::token::Partner;

use super::Mode;
use crate::{Error, Store};

/// Events that one transaction leaves for the publisher.
const BATCH: i64 = 10_000;

impl Store {
    /// Lets what waits to be handed off, or would after a replay, go the way that its source is
    /// configured to go now; answers how many events that were to go another way. What somebody is at
    /// is left for the next time.
    ///
    /// For the start of a service, before it decides about anything: what was decided before is then
    /// published before. And every now and then, for what another process with another configuration
    /// has decided since.
    ///
    /// # Errors
    /// Where the database fails; some of it may be done then.
    pub async fn inbox_align(
        &self,
        now: DateTime<Utc>,
        modes: &[(Partner, Mode)],
    ) -> Result<u64, Error> {
        let doing = "turning inbox events to another hand-off";
        let mut turned = self.publish_waiting(now, modes).await?;
        let turns = modes.iter().flat_map(|(partner, to)| {
            let others = Mode::ALL.iter().filter(move |from| *from != to);
            others.map(move |from| (partner.as_str(), from.as_str(), to.as_str()))
        });
        let (mut partners, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for (partner, before, after) in turns {
            partners.push(partner);
            from.push(before);
            to.push(after);
        }
        let mut tx = self.begin_probing().await?;
        turned += sqlx::query!(
            "WITH waiting AS MATERIALIZED (
                 SELECT w.id, m.after
                   FROM unnest($1::text[], $2::text[], $3::text[]) AS m (partner, before, after)
                  CROSS JOIN LATERAL (
                        SELECT id FROM hooklane.webhook_inbox
                         WHERE hand_off = m.before AND partner_name = m.partner
                           AND status = 'PENDING' AND stage = 'hand_off'
                           FOR UPDATE SKIP LOCKED) AS w
             )
             UPDATE hooklane.webhook_inbox w
                SET hand_off = waiting.after, leased_until = NULL,
                    next_at = CASE WHEN w.leased_until IS NULL THEN w.next_at ELSE $4 END
               FROM waiting WHERE w.id = waiting.id",
            &partners as &[&str],
            &from as &[&str],
            &to as &[&str],
            now,
        )
        .execute(&mut *tx)
        .await
        .map_err(Error::doing(doing))?
        .rows_affected();
        tx.commit().await.map_err(Error::doing(doing))?;
        turned += sqlx::query!(
            "UPDATE hooklane.webhook_inbox w SET hand_off = m.after
               FROM unnest($1::text[], $2::text[], $3::text[]) AS m (partner, before, after)
              WHERE w.partner_name = m.partner AND w.hand_off = m.before
                AND w.status = 'QUARANTINED' AND w.stage = 'hand_off'",
            &partners as &[&str],
            &from as &[&str],
            &to as &[&str],
        )
        .execute(self.pool())
        .await
        .map_err(Error::doing(doing))?
        .rows_affected();
        Ok(turned)
    }

    /// Leaves for the publisher what was to go another way, in the order in which it took effect; but
    /// for what failed or was put off, which goes when it is due.
    async fn publish_waiting(
        &self,
        now: DateTime<Utc>,
        modes: &[(Partner, Mode)],
    ) -> Result<u64, Error> {
        let doing = "leaving inbox events for the publisher";
        let published = modes.iter().filter(|(_, mode)| *mode == Mode::Stream);
        let partners: Vec<&str> = published.map(|(partner, _)| partner.as_str()).collect();
        let mut turned = 0;
        // OFFSET keeps the planner from turning the loops over the index inside out.
        loop {
            let mut tx = self.begin_probing().await?;
            let some = sqlx::query!(
                "WITH waiting AS MATERIALIZED (
                     SELECT w.id
                       FROM unnest($1::text[]) AS p (name)
                      CROSS JOIN unnest(ARRAY['request', 'sql']) AS m (before)
                      CROSS JOIN LATERAL (
                            SELECT id, sequence FROM hooklane.webhook_inbox
                             WHERE hand_off = m.before AND partner_name = p.name
                               AND status = 'PENDING' AND stage = 'hand_off' AND NOT yields
                            OFFSET 0) AS w
                      ORDER BY w.sequence, w.id LIMIT $2
                 ), free AS MATERIALIZED (
                     SELECT w.id FROM waiting
                      CROSS JOIN LATERAL (
                            SELECT id FROM hooklane.webhook_inbox
                             WHERE id = waiting.id AND status IN ('PENDING', 'DEFERRED')
                               AND stage = 'hand_off' AND NOT yields
                               FOR UPDATE SKIP LOCKED) AS w
                 ), turned AS (
                     UPDATE hooklane.webhook_inbox w
                        SET hand_off = 'stream', status = 'PROCESSED', processed_at = $3,
                            leased_until = NULL, handed_out = w.handed_out + 1
                       FROM free WHERE w.id = free.id
                     RETURNING w.id, w.received_at, w.handed_out, w.sequence
                 )
                 INSERT INTO hooklane.inbox_handoffs (event_id, received_at, attempt)
                 SELECT id, received_at, handed_out FROM turned ORDER BY sequence, id",
                &partners as &[&str],
                BATCH,
                now,
            )
            .execute(&mut *tx)
            .await
            .map_err(Error::doing(doing))?
            .rows_affected();
            tx.commit().await.map_err(Error::doing(doing))?;
            turned += some;
            if some == 0 {
                return Ok(turned);
            }
        }
    }
}
